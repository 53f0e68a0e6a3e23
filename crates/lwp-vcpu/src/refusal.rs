//! Reasons why lwp can't attach to a process, and remedies.

use lwp_process::kernel_files;
use lwp_process::maps::Status;
use lwp_process::spawn::threads_of;
use lwp_process::sys::Errno;

use crate::Error;

/// The facts known about a process that refuses.
#[derive(Debug, Default)]
struct Facts {
    /// Its `/proc/PID/status`.
    status: String,
    /// Ours.
    own: String,
    /// Yama's level; empty where there is no Yama.
    yama: String,
    /// True if it is this very process.
    itself: bool,
}

/// The advice to give where attaching to `pid` has failed with `error`.
pub fn help(pid: i32, error: Errno) -> String {
    const EPERM: i32 = 1;
    if error.0 != EPERM {
        return "see `lwp doctor`".to_owned();
    }
    let yama = kernel_files::of_machine("/proc/sys/kernel/yama/ptrace_scope");
    advice(&Facts {
        status: kernel_files::text(pid, "status").unwrap_or_default(),
        own: kernel_files::text(kernel_files::Own, "status").unwrap_or_default(),
        yama: yama.unwrap_or_default().trim().to_owned(),
        itself: u32::try_from(pid) == Ok(std::process::id()),
    })
}

/// Refuses a process that traces another: on the virtual CPU its ptrace(2) would fail, and nobody
/// would wait for the stops of that other any more.
///
/// # Errors
///
/// It traces one.
pub fn of_tracer(pid: i32) -> Result<(), Error> {
    let Some(tracee) = traced_by(pid) else { return Ok(()) };
    Err(Error::Machine {
        what: format!(
            "attaching to the process: it traces process {tracee}, as debuggers do, which is not \
             possible on the virtual CPU"
        ),
        help: format!("make it detach from process {tracee} first"),
    })
}

/// Returns a process or a thread that a thread of `pid` traces.
fn traced_by(pid: i32) -> Option<i32> {
    let tracers = threads_of(pid).ok()?;
    let is_traced = |tid: &i32| {
        let tracer = Status::read(*tid).last_number("TracerPid:");
        tracer.is_some_and(|tracer| tracers.contains(&tracer))
    };
    let entries = kernel_files::entries_of_machine("/proc").ok()?;
    let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.flat_map(|process| threads_of(process).unwrap_or_default()).find(is_traced)
}

/// The value of a line of a `status` file.
fn line<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map_or("", str::trim)
}

fn advice(facts: &Facts) -> String {
    let tracer = line(&facts.status, "TracerPid");
    if !matches!(tracer, "" | "0") {
        return format!(
            "process {tracer} traces it already, and a process can have only one tracer: end that one"
        );
    }
    if facts.itself {
        return "lwp cannot count itself: name another process".to_owned();
    }
    if line(&facts.status, "Kthread") == "1" {
        return "it is a thread of the kernel, which does not execute a program".to_owned();
    }
    if facts.yama == "3" {
        return "Yama forbids tracing; only a reboot without kernel.yama.ptrace_scope=3 changes that"
            .to_owned();
    }
    let first = |status: &str| line(status, "Uid").split_whitespace().next().map(str::to_owned);
    let (owner, user) = (first(&facts.status), first(&facts.own));
    match Status::of(&facts.own).has_ptrace_capability() {
        true => "lwp is privileged, but still refused: the process belongs to a surrounding user namespace, or a \
                 security module or the container's filter protects it; attach from outside the container"
            .to_owned(),
        false if user.as_deref() == Some("0") => {
            "lwp runs as root, but without the capability CAP_SYS_PTRACE: containers get it with \
             --cap-add SYS_PTRACE"
                .to_owned()
        }
        false if owner != user => "run as the process's owner or as root".to_owned(),
        false if matches!(facts.yama.as_str(), "1" | "2") => {
            "run as root, or set /proc/sys/kernel/yama/ptrace_scope to 0".to_owned()
        }
        false => "the process has given up or gained privileges, which protects it: run as root".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n";
    const BARE_ROOT: &str = "Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n";
    const USER: &str = "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n";

    fn says(status: &str, own: &str, yama: &str) -> String {
        let [status, own, yama] = [status, own, yama].map(str::to_owned);
        advice(&Facts { status, own, yama, itself: false })
    }

    #[test]
    fn root_is_not_told_to_be_root() {
        for own in [ROOT, BARE_ROOT] {
            for yama in ["", "1", "2"] {
                let says = says("Uid:\t0\t0\t0\t0\n", own, yama);
                assert!(!says.contains("as root or") && !says.contains("run as"), "{says}");
            }
        }
        assert!(says(ROOT, BARE_ROOT, "").contains("CAP_SYS_PTRACE"));
        assert!(says(ROOT, ROOT, "").contains("surrounding user namespace"));
    }

    #[test]
    fn others_are_told_what_would_help() {
        assert!(says(ROOT, USER, "1").contains("owner or as root"));
        assert!(says(USER, USER, "1").contains("ptrace_scope to 0"));
        assert!(says(USER, USER, "").contains("run as root"));
        assert!(says(USER, ROOT, "3").contains("reboot"));
        assert!(says("TracerPid:\t77\n", ROOT, "").contains("process 77 traces it"));
        assert!(says("TracerPid:\t0\nKthread:\t1\n", ROOT, "").contains("thread of the kernel"));
        let itself = Facts { itself: true, ..Facts::default() };
        assert!(advice(&itself).contains("itself"));
    }
}

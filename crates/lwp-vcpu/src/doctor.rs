//! Checks what this machine allows: from `/proc` and `/sys`, and by trying it out (`trial`).

mod surroundings;
mod trial;

use lwp_dbt::context::TargetFeatures;
use lwp_process::kernel_files;
use lwp_process::maps;
use lwp_process::{SharedMemory, sys};

pub use surroundings::{container_id, control_group};

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The thing that was looked at.
    pub name: String,
    /// The result: whether it is as needed.
    pub status: Status,
    /// The finding.
    pub detail: String,
    /// The remedy; empty if nothing is wrong.
    pub help: String,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As needed.
    Ok,
    /// Something will be slower or missing.
    Warn,
    /// `lwp` cannot work.
    Fail,
}

impl Check {
    fn ok(name: &str, detail: impl Into<String>) -> Self {
        Self { name: name.into(), status: Status::Ok, detail: detail.into(), help: String::new() }
    }

    fn warn(name: &str, detail: impl Into<String>, help: &str) -> Self {
        let help = help.into();
        Self { name: name.into(), status: Status::Warn, detail: detail.into(), help }
    }

    fn fail(name: &str, detail: impl Into<String>, help: &str) -> Self {
        let help = help.into();
        Self { name: name.into(), status: Status::Fail, detail: detail.into(), help }
    }
}

/// Looks at everything, and runs a small program on the virtual CPU. For a process that does
/// nothing else: it waits for children.
pub fn checks() -> Vec<Check> {
    // As every run does: what can be raised is no obstacle.
    lwp_process::limits::lift();
    let status = read("/proc/self/status");
    let mut checks = vec![
        kernel(&read("/proc/sys/kernel/osrelease")),
        yama(&read("/proc/sys/kernel/yama/ptrace_scope"), &status),
        tracer(&status),
        surroundings::container(),
        memfd(&read("/proc/sys/vm/memfd_noexec")),
        map_count(&read("/proc/sys/vm/max_map_count")),
        overcommit(&read("/proc/sys/vm/overcommit_memory")),
        address_space(&read("/proc/self/limits")),
        processor(&read("/proc/cpuinfo")),
        surroundings::hidden(&crate::cpuid::hidden()),
        limits(&read("/proc/self/limits")),
        layout(layout_can_be_fixed()),
        processors(sys::allowed_cpus()),
        table(TargetFeatures::of_this_processor().wide_index),
        pmu(&read("/proc/sys/kernel/perf_event_paranoid"), has_pmu()),
        surroundings::vdso(&read("/proc/self/maps")),
        surroundings::huge_pages(
            &read("/sys/kernel/mm/transparent_hugepage/enabled"),
            &read("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        ),
        surroundings::cache(),
        surroundings::generated_code(&status),
    ];
    let refused = surroundings::refused_calls();
    let trial = trial::checks();
    let works = trial.iter().all(|check| check.status == Status::Ok);
    checks.push(surroundings::seccomp(&status, &refused, works));
    checks.extend(trial);
    checks.push(surroundings::advice(&checks));
    checks
}

/// A small file without its last newline; empty if it cannot be read.
fn read(path: &'static str) -> String {
    kernel_files::of_machine(path).unwrap_or_default().trim_end().to_owned()
}

fn has_pmu() -> bool {
    let events = kernel_files::entries_of_machine("/sys/bus/event_source/devices/cpu/events");
    events.is_ok_and(|mut events| events.next().is_some())
}

/// Linux 5.4 is the oldest kernel with everything the virtual CPU uses: PTRACE_GET_SYSCALL_INFO
/// came with 5.3.
fn kernel(release: &str) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (numbers.next().and_then(Result::ok), numbers.next().and_then(Result::ok));
    match version {
        (Some(major), Some(minor)) if (major, minor) >= (5, 4) => {
            Check::ok("kernel", format!("Linux {release}"))
        }
        (Some(_), Some(_)) => Check::fail(
            "kernel",
            format!("Linux {release} is older than 5.4"),
            "use a newer kernel",
        ),
        _ => Check::warn("kernel", "the kernel's release is not known", "mount /proc"),
    }
}

/// Yama restricts attaching. Launching needs no permission: a child may always ask to be traced,
/// except at level 3.
fn yama(scope: &str, status: &str) -> Check {
    let name = "ptrace scope";
    let privileged = maps::Status::of(status).has_ptrace_capability();
    match scope {
        "" | "0" => Check::ok(name, "not restricted by Yama"),
        "1" | "2" if privileged => Check::ok(name, format!("Yama level {scope}, but privileged")),
        "1" => Check::warn(
            name,
            "Yama level 1: only programs started by lwp, not `lwp stat -p`",
            "to attach, run as root or `sysctl kernel.yama.ptrace_scope=0`",
        ),
        "2" => Check::fail(
            name,
            "Yama level 2: tracing needs CAP_SYS_PTRACE",
            "run as root or `sysctl kernel.yama.ptrace_scope=1`",
        ),
        _ => Check::fail(
            name,
            format!("Yama level {scope}: nothing may be traced"),
            "the level can only be lowered by a reboot; unset kernel.yama.ptrace_scope=3",
        ),
    }
}

/// A traced lwp can trace others, but its tracer slows every one of its stops.
fn tracer(status: &str) -> Check {
    match field(status, "TracerPid:") {
        None | Some("0") => Check::ok("tracer", "lwp is not traced itself"),
        Some(pid) => Check::warn(
            "tracer",
            format!("lwp itself is traced by process {pid}"),
            "do not run lwp under a debugger or strace -f",
        ),
    }
}

/// The first line of `/proc/self/status` that starts with `name`, its value trimmed.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Translated code lives in executable shared memory.
fn memfd(noexec: &str) -> Check {
    let name = "shared memory";
    if noexec == "2" {
        return Check::fail(
            name,
            "executable memory files are forbidden",
            "`sysctl vm.memfd_noexec=1`",
        );
    }
    match SharedMemory::new(c"lwp-doctor", 1 << 20) {
        Ok(_) => Check::ok(name, "memory files can be created"),
        Err(error) => Check::fail(
            name,
            format!("a memory file: {error}"),
            "allow memfd_create in the container's seccomp profile; see also the limits below",
        ),
    }
}

/// Each translated module adds a few mappings to the program's own.
fn map_count(limit: &str) -> Check {
    match limit.parse::<u64>() {
        Ok(limit) if limit < 65_530 => Check::warn(
            "mappings",
            format!("vm.max_map_count is {limit}, below the kernel's default"),
            "`sysctl vm.max_map_count=65530`",
        ),
        Ok(limit) => Check::ok("mappings", format!("vm.max_map_count is {limit}")),
        Err(_) => Check::ok("mappings", "no limit is known"),
    }
}

/// Arenas are reserved in full and touched in part.
fn overcommit(mode: &str) -> Check {
    match mode {
        "2" => Check::warn(
            "overcommit",
            "strict: the translator's reservations count as used memory",
            "`sysctl vm.overcommit_memory=0`",
        ),
        _ => Check::ok("overcommit", "reserving address space is free"),
    }
}

/// A limited address space (ulimit -v) has little room for arenas.
fn address_space(limits: &str) -> Check {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"));
    match line.and_then(|line| line.split_whitespace().next()) {
        Some("unlimited") | None => Check::ok("address space", "unlimited"),
        Some(limit) => Check::warn(
            "address space",
            format!("limited to {limit} bytes"),
            "`ulimit -v unlimited`",
        ),
    }
}

/// Limits that lwp lifts for itself as far as the hard limit: a descriptor for each of its files,
/// its threads, and the size of its sparse memory.
fn limits(limits: &str) -> Check {
    let name = "limits";
    let hard = |title: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(title))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let needed = [
        ("Max open files", 64, "open files", "-n"),
        ("Max processes", 16, "processes", "-u"),
        ("Max file size", lwp_mailbox::memory_map::CONTEXTS_BYTES, "the size of files", "-f"),
    ];
    for (title, least, what, option) in needed {
        if let Some(limit) = hard(title)
            && limit < least
        {
            return Check::fail(
                name,
                format!("the hard limit on {what} is {limit}"),
                &format!("raise it: `ulimit -H {option}` {least} or more"),
            );
        }
    }
    Check::ok(name, "files, processes and sizes suffice")
}

/// Returns whether addresses can be the same in every run.
pub fn layout_can_be_fixed() -> bool {
    sys::personality_allowed()
}

/// Addresses that are the same in every run.
fn layout(fixed: bool) -> Check {
    match fixed {
        true => Check::ok("layout", "address space randomisation can be turned off"),
        false => Check::warn(
            "layout",
            "personality(2) is refused: addresses are random, and counts may differ from run to run",
            "allow personality in the container's seccomp profile",
        ),
    }
}

/// The program's threads and the translator work at the same time.
fn processors(allowed: usize) -> Check {
    match allowed {
        1 => Check::warn(
            "processors",
            "one: each hand-off between program and translator is a context switch",
            "give lwp two processors (taskset, the container's cpuset)",
        ),
        more => Check::ok("processors", format!("{more} may be used")),
    }
}

/// Reports how emitted code finds its way through the indirect table.
fn table(wide: bool) -> Check {
    match wide {
        true => Check::ok("branch table", "found by PEXT in a table of 256 Ki slots"),
        false => Check::ok(
            "branch table",
            "PEXT is missing or slow here: 64 Ki slots are used, and large programs run slower",
        ),
    }
}

/// The levels of the x86-64 psABI and the flags of `/proc/cpuinfo` that tell them.
#[rustfmt::skip] // A table: one level a line.
const LEVELS: &[(&str, &[&str])] = &[
    ("x86-64-v2", &["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"]),
    ("x86-64-v3", &["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    ("x86-64-v4", &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
];

fn processor(cpuinfo: &str) -> Check {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let has = |flag: &&str| flags.contains(flag);
    let reached = LEVELS.iter().take_while(|(_, needed)| needed.iter().all(has)).last();
    let lwp = if flags.contains(&"lwp") { ", with Lightweight Profiling" } else { "" };
    let vendor = cpuinfo.lines().find_map(|line| line.strip_prefix("vendor_id")?.split_once(": "));
    let vendor = vendor.map_or(String::new(), |(_, vendor)| format!("{vendor}, "));
    match reached {
        _ if !flags.contains(&"lm") => Check::fail(
            "processor",
            "not an x86-64 processor",
            "lwp translates x86-64 programs on x86-64 processors only",
        ),
        Some((level, _)) => Check::ok("processor", format!("{vendor}{level}{lwp}")),
        None => Check::ok("processor", format!("{vendor}x86-64-v1{lwp}")),
    }
}

/// Not needed, only reported: lwp counts without it.
fn pmu(paranoid: &str, present: bool) -> Check {
    let name = "hardware PMU";
    if !present {
        let level = if paranoid.is_empty() { "not known" } else { paranoid };
        return Check::ok(name, format!("none (paranoid {level}); lwp does not need it"));
    }
    match paranoid.parse::<i32>() {
        Ok(level) if level <= 2 => {
            Check::ok(name, format!("present and open to perf (paranoid {level}); lwp needs none"))
        }
        _ => Check::ok(name, "present, closed to users; lwp does not need it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "TracerPid:\t0\nCapEff:\t0000000000080000\nSeccomp:\t2\n";

    #[test]
    fn kernels() {
        assert_eq!(kernel("6.1.0-18-amd64").status, Status::Ok);
        assert_eq!(kernel("5.4.0").status, Status::Ok);
        assert_eq!(kernel("4.19.0").status, Status::Fail);
        assert_eq!(kernel("").status, Status::Warn);
    }

    #[test]
    fn yama_levels() {
        assert_eq!(yama("", "").status, Status::Ok);
        assert_eq!(yama("1", "").status, Status::Warn);
        assert_eq!(yama("2", "").status, Status::Fail);
        assert_eq!(yama("2", STATUS).status, Status::Ok);
        assert_eq!(yama("3", STATUS).status, Status::Fail);
    }

    #[test]
    fn status_fields() {
        assert_eq!(tracer(STATUS).status, Status::Ok);
        assert_eq!(tracer("TracerPid:\t77\n").status, Status::Warn);
    }

    #[test]
    fn memory_limits() {
        assert_eq!(memfd("2").status, Status::Fail);
        assert_eq!(map_count("1048576").status, Status::Ok);
        assert_eq!(map_count("1000").status, Status::Warn);
        assert_eq!(overcommit("2").status, Status::Warn);
        assert_eq!(overcommit("0").status, Status::Ok);
        let limits = "Max address space         4294967296           unlimited            bytes";
        assert_eq!(address_space(limits).status, Status::Warn);
        assert_eq!(address_space("Max address space  unlimited unlimited").status, Status::Ok);
    }

    #[test]
    fn processor_levels() {
        let v2 = "flags\t\t: lm cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 lwp";
        assert_eq!(processor(v2).detail, "x86-64-v2, with Lightweight Profiling");
        let v3 = format!("{v2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave");
        assert!(processor(&v3).detail.starts_with("x86-64-v3"));
        assert_eq!(processor("flags\t\t: lm").detail, "x86-64-v1");
        let named = processor("vendor_id\t: AuthenticAMD\nflags\t\t: lm");
        assert_eq!(named.detail, "AuthenticAMD, x86-64-v1");
        assert_eq!(processor("Features : fp asimd").status, Status::Fail);
    }

    #[test]
    fn hard_limits() {
        let text = |files: &str, size: &str| {
            format!(
                "Max processes             256                  63432                processes \n\
                 Max open files            8                    {files}                 files     \n\
                 Max file size             0                    {size}            bytes     \n"
            )
        };
        assert_eq!(limits(&text("1024", "unlimited")).status, Status::Ok);
        let files = limits(&text("8", "unlimited"));
        assert_eq!(files.status, Status::Fail);
        assert!(files.help.contains("ulimit -H -n"), "{files:?}");
        assert!(limits(&text("1024", "4096")).detail.contains("size of files is 4096"));
        assert_eq!(limits("").status, Status::Ok);
    }

    #[test]
    fn what_is_slower_or_less_exact_is_said() {
        assert_eq!(layout(true).status, Status::Ok);
        assert_eq!(layout(false).status, Status::Warn);
        assert_eq!(processors(1).status, Status::Warn);
        assert_eq!(processors(2).status, Status::Ok);
        assert_ne!(table(true).detail, table(false).detail);
    }

    #[test]
    fn hardware_counters_are_welcome_but_not_needed() {
        for (paranoid, present) in [("2", true), ("4", true), ("", false)] {
            assert_eq!(pmu(paranoid, present).status, Status::Ok);
        }
    }
}

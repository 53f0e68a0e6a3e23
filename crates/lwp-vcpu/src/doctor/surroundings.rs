//! The environment in which lwp runs: container, filters, and what the kernel offers to programs.
#![expect(clippy::disallowed_methods, reason = "the paths are constants of the machine")]

use std::path::Path;
use std::time::{Duration, Instant};

use lwp_process::sys;
use lwp_process::userfault::{Reach, Userfault};

use super::{Check, Status, field, read};

/// The control group that this process is in, as the unified hierarchy names it, or else the memory
/// controller's: the two that say most about where a process runs. Empty if there is none.
pub fn control_group() -> String {
    control_group_of(&read("/proc/self/cgroup"))
}

fn control_group_of(text: &str) -> String {
    let path = |hierarchy: &str| {
        let line = text.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(hierarchy))?;
        (line != "/").then(|| line.to_owned())
    };
    let root = || text.lines().any(|line| line == "0::/").then(|| "/".to_owned());
    path(":").or_else(|| path("memory:")).or_else(root).unwrap_or_default()
}

/// The id of the container that this process runs in, as its engine writes it; empty if there is
/// none, or none that shows.
pub fn container_id() -> String {
    let texts = [read("/proc/self/cgroup"), read("/proc/self/mountinfo")];
    texts.iter().find_map(|text| container_id_in(text)).unwrap_or_default().to_owned()
}

/// Engines name a container by 64 hexadecimal digits: in its control group, and, where that is
/// hidden by a namespace, in what is mounted over files such as `/etc/hostname`. Other paths have
/// such numbers for other things (layers of images), and only what is known to lead to a
/// container's is taken.
fn container_id_in(text: &str) -> Option<&str> {
    const DIGITS: usize = 64;
    #[rustfmt::skip] // Control groups, then mounts.
    const BEFORE: &[&str] = &[
        "/docker/", "docker-", "libpod-", "crio-", "cri-containerd-", "/lxc/",
        "/docker/containers/", "/overlay-containers/", "/containerd/io.containerd.runtime.v2.task/k8s.io/",
    ];
    text.lines().find_map(|line| {
        let cuts = BEFORE.iter().flat_map(|before| line.match_indices(before));
        let mut ids = cuts.filter_map(|(at, before)| line[at + before.len()..].get(..DIGITS));
        let id = ids.find(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        // Pods of Kubernetes on control groups without slices: the last part of the path.
        id.or_else(|| {
            let (_, last) =
                line.split_once("/kubepods").and_then(|(_, rest)| rest.rsplit_once('/'))?;
            (last.len() == DIGITS && last.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .then_some(last)
        })
    })
}

/// Tries how writes to generated code are noticed here; `status` is this process's.
pub fn generated_code(status: &str) -> Check {
    let filtered = field(status, "Seccomp:").is_some_and(|mode| mode != "0");
    let cost = if filtered { Err(None) } else { cost_of_guarding().map_err(Some) };
    generated_code_from(cost)
}

/// The writes that are noticed, and the time that guarding a page takes; or the error that refuses
/// it; no error where a system call filter keeps `lwp` from trying.
fn generated_code_from(cost: Result<(Reach, Duration), Option<sys::Errno>>) -> Check {
    let name = "generated code";
    let protects = "lwp notices writes to it by the protection of its pages, and stops the thread \
                    at each; lwp record -c compares code instead";
    match cost {
        Ok((reach, cost)) => {
            let cost = cost.as_secs_f64() * 1e6;
            let calls = match reach {
                Reach::All => "",
                Reach::UserMode => "; lwp checks system calls that write to memory beforehand",
            };
            let by = "lwp notices writes to it by userfaultfd; guarding a page takes";
            Check::ok(name, format!("{by} {cost:.1} us{calls}"))
        }
        Err(None) => Check::ok(name, format!("a system call filter is active: {protects}")),
        Err(Some(error)) => Check::ok(name, format!("userfaultfd: {error}: {protects}")),
    }
}

/// Guards and releases a page of this process some times.
fn cost_of_guarding() -> Result<(Reach, Duration), sys::Errno> {
    const PAGE: u64 = 4096;
    const TIMES: u32 = 100;
    let reach = Reach::best()?;
    let descriptor = Userfault::own(reach)?;
    let memory = vec![1u8; 2 * PAGE as usize];
    let start = (memory.as_ptr() as u64).next_multiple_of(PAGE);
    let page = (start, start + PAGE);
    descriptor.register(page)?;
    let began = Instant::now();
    for _ in 0..TIMES {
        descriptor.protect(page, true)?;
        descriptor.protect(page, false)?;
    }
    Ok((reach, began.elapsed() / (2 * TIMES)))
}

/// Containers are no obstacle; recordings say which it was.
pub fn container() -> Check {
    let marks = [("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman")];
    let engine = marks.iter().find(|(mark, _)| Path::new(mark).exists()).map(|(_, name)| *name);
    container_from(engine, &container_id(), &control_group())
}

fn container_from(engine: Option<&str>, id: &str, group: &str) -> Check {
    let detail = match (engine, id) {
        (None, "") => "none that shows".to_owned(),
        (Some(engine), "") => format!("{engine}, without a visible id"),
        (engine, id) => format!("{} {id}", engine.unwrap_or("container")),
    };
    let group = if group.is_empty() { String::new() } else { format!("; control group {group}") };
    Check::ok("container", format!("{detail}{group}"))
}

/// A filter, as containers have it, cannot be read: the calls are tried. `works` says whether a
/// program was run on the virtual CPU in spite of it.
pub fn seccomp(status: &str, refused: &[&str], works: bool) -> Check {
    let name = "seccomp";
    let list = refused.join(", ");
    match field(status, "Seccomp:") {
        Some("1") => Check::fail(
            name,
            "strict mode: only read and write are allowed",
            "run lwp outside the sandbox",
        ),
        Some("2") if refused.is_empty() => {
            Check::ok(name, "a system call filter is active, and refuses nothing that lwp uses")
        }
        Some("2") if works => {
            Check::ok(name, format!("a system call filter is active; refused: {list}; lwp works"))
        }
        Some("2") => Check {
            name: name.into(),
            status: Status::Warn,
            detail: format!("a system call filter is active; refused: {list}"),
            help: "in a container: --cap-add=SYS_PTRACE or --security-opt seccomp=unconfined"
                .into(),
        },
        _ if refused.is_empty() => Check::ok(name, "no system call filter"),
        _ => Check::ok(name, format!("no system call filter, but refused all the same: {list}")),
    }
}

/// Programs read the time there without a system call; they go on doing so in translated code.
pub fn vdso(maps: &str) -> Check {
    let detail = match maps.lines().any(|line| line.ends_with("[vdso]")) {
        true => "present; programs read the time without system calls, unless --deterministic",
        false => "none; programs read the time by system calls",
    };
    Check::ok("vdso", detail)
}

/// The code that is translated to lies in shared memory, whose pages are small unless `shmem` says
/// otherwise.
pub fn huge_pages(enabled: &str, shmem: &str) -> Check {
    let chosen = |text: &str| {
        let word =
            text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
        word.unwrap_or("not known").to_owned()
    };
    let detail = format!("{}; shared memory: {}", chosen(enabled), chosen(shmem));
    Check::ok("huge pages", detail)
}

/// Without a place for translations, every run begins anew.
pub fn cache() -> Check {
    let name = "cache";
    let help = "choose a directory: lwp stat --cache-dir DIR, or set XDG_CACHE_HOME";
    let Some(place) = lwp_code::store::default_place() else {
        return Check::warn(name, "no directory for translations; every run translates anew", help);
    };
    match lwp_code::store::Store::open(&place, lwp_code::store::DEFAULT_LIMIT) {
        Ok(_) => Check::ok(name, format!("translations are kept in {}", place.display())),
        Err(error) => Check::warn(
            name,
            format!("translations cannot be kept, so every run translates anew: {error}"),
            help,
        ),
    }
}

/// The features of this processor that programs are not shown by default.
pub fn hidden(features: &[&str]) -> Check {
    let detail = match features {
        [] => "nothing that this processor has; fewer with --cpu and --deterministic".to_owned(),
        features => format!("{}, which cannot be translated", features.join(", ")),
    };
    Check::ok("hidden features", detail)
}

/// Advice on what to use lwp for here, given everything else.
pub fn advice(checks: &[Check]) -> Check {
    let status = |name: &str| {
        checks.iter().find(|check| check.name == name).map_or(Status::Ok, |check| check.status)
    };
    let failed = checks.iter().any(|check| check.status == Status::Fail);
    let detail = match (failed, status("layout")) {
        (true, _) => "lwp cannot work here; with --fallback native, programs run uncounted",
        (false, Status::Ok) => {
            "`lwp stat` and `lwp record`: exact counts, the same in every run with the same input and \
             environment, if the program does not depend on time or thread scheduling; with \
             --deterministic also in another environment and on another machine"
        }
        (false, _) => {
            "`lwp stat -r 5` and `lwp record`: exact counts, which may differ from run to run because \
             addresses do; allow personality to compare runs"
        }
    };
    Check::ok("advice", detail)
}

/// System calls that the virtual CPU or the other tools here use, and that are refused.
pub fn refused_calls() -> Vec<&'static str> {
    let mut refused = sys::refused_calls();
    if !sys::personality_allowed() {
        refused.push("personality");
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn generated_code_is_guarded_or_says_why_not() {
        let guarded = generated_code_from(Ok((Reach::All, Duration::from_nanos(640))));
        assert_eq!(guarded.status, Status::Ok);
        assert!(guarded.detail.ends_with("guarding a page takes 0.6 us"), "{}", guarded.detail);
        let refused = generated_code_from(Err(Some(sys::Errno(1))));
        assert!(refused.detail.contains("by the protection"), "{}", refused.detail);
        let own = generated_code_from(Ok((Reach::UserMode, Duration::from_nanos(640))));
        assert!(own.detail.ends_with("calls that write to memory beforehand"), "{}", own.detail);
        let filtered = generated_code("Name:\tlwp\nSeccomp:\t2\n");
        assert_eq!(filtered.status, Status::Ok);
        assert!(filtered.detail.starts_with("a system call filter"), "{}", filtered.detail);
    }

    #[test]
    fn ids_of_containers() {
        for text in [
            format!("0::/docker/{ID}"),
            format!("12:pids:/docker/{ID}\n0::/system.slice/containerd.service"),
            format!("0::/system.slice/docker-{ID}.scope"),
            format!("0::/user.slice/user-1000.slice/libpod-{ID}.scope/container"),
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope"),
            format!("11:memory:/kubepods/burstable/pod2e0a/{ID}"),
            format!(
                "612 598 8:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 /dev/sda1"
            ),
            format!(
                "7 6 0:5 /containers/overlay-containers/{ID}/userdata/hosts /etc/hosts rw - tmpfs t"
            ),
        ] {
            assert_eq!(container_id_in(&text), Some(ID), "{text}");
        }
        for text in [
            "0::/",
            "0::/user.slice/user-0.slice/session-1.scope",
            "0::/docker/0123",
            &format!("22 21 0:3 / / rw - overlay overlay lowerdir=/var/lib/x/sha256/{ID}"),
            &format!("0::/docker/{}", ID.replace('f', "x")),
        ] {
            assert_eq!(container_id_in(text), None, "{text}");
        }
    }

    #[test]
    fn groups_of_both_hierarchies() {
        assert_eq!(control_group_of("0::/user.slice/a.scope"), "/user.slice/a.scope");
        assert_eq!(control_group_of("9:name=systemd:/x\n4:memory:/jobs/7\n0::/"), "/jobs/7");
        assert_eq!(control_group_of("3:cpu:/\n0::/"), "/");
        assert_eq!(control_group_of(""), "");
        let text = container_from(Some("Docker"), ID, "/docker/x").detail;
        assert_eq!(text, format!("Docker {ID}; control group /docker/x"));
        assert_eq!(container_from(None, "", "").detail, "none that shows");
    }

    /// Promise: Y1
    #[test]
    fn filters() {
        let active = "Seccomp:\t2\n";
        assert_eq!(seccomp(active, &[], false).status, Status::Ok);
        assert_eq!(seccomp(active, &["ptrace"], false).status, Status::Warn);
        let works = seccomp(active, &["perf_event_open", "personality"], true);
        assert_eq!(works.status, Status::Ok);
        assert!(works.detail.contains("refused: perf_event_open, personality;"), "{works:?}");
        assert_eq!(seccomp("Seccomp:\t1\n", &[], false).status, Status::Fail);
        assert_eq!(seccomp("Seccomp:\t0\n", &[], false).detail, "no system call filter");
    }

    #[test]
    fn advice_follows_from_the_rest() {
        let layout = |status| Check { status, ..Check::ok("layout", "") };
        assert!(advice(&[layout(Status::Ok)]).detail.contains("the same in every run"));
        assert!(advice(&[layout(Status::Warn)]).detail.contains("may differ from run to run"));
        let failed = Check::fail("ptrace", "", "");
        assert!(advice(&[layout(Status::Ok), failed]).detail.contains("--fallback native"));
    }

    #[test]
    fn what_the_kernel_gives() {
        assert!(vdso("7ffd-7ffe r-xp 0 00:00 0 [vdso]").detail.starts_with("present"));
        assert!(vdso("").detail.starts_with("none"));
        let pages = huge_pages("always [madvise] never", "always within_size advise [never] deny");
        assert_eq!(pages.detail, "madvise; shared memory: never");
        assert_eq!(huge_pages("", "").detail, "not known; shared memory: not known");
        assert_eq!(hidden(&["APX"]).detail, "APX, which cannot be translated");
    }
}

//! The reason why an event cannot be had on this machine, and what to do about it.
//!
//! The kernel answers with an error number that stands for a dozen reasons. What was asked for and
//! what the machine says about itself (the paranoia level, seccomp, the list of PMUs, the
//! hypervisor bit) narrow it down to one.

use rustix::io::Errno;

use crate::attr::{Attr, Flags, kind};
use crate::event::Event;
use crate::group::Target;
use crate::kernel::Kernel;

/// An event that could not be opened or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event}: {cause}")]
pub struct Unavailable {
    /// The event's name.
    pub event: String,
    /// The number of the request, from 0; `None` where the group as a whole failed.
    pub index: Option<usize>,
    /// The reason.
    pub cause: Cause,
    /// The kernel's error; `None` where it was not asked.
    pub errno: Option<Errno>,
}

impl Unavailable {
    /// Returns the advice: one sentence.
    pub fn help(&self) -> String {
        self.cause.help()
    }
}

/// The reason why an event is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The kernel was built without perf events.
    #[error("this kernel has no perf events")]
    NotBuilt,
    /// A seccomp filter refuses the system call.
    #[error("a seccomp filter refuses perf_event_open")]
    Seccomp,
    /// `perf_event_paranoid` is higher than the request allows.
    #[error(
        "kernel.perf_event_paranoid is {level}, and this needs {needed} or less, or CAP_PERFMON"
    )]
    Paranoid {
        /// The level set.
        level: i32,
        /// The highest level at which the request is allowed to everyone.
        needed: i32,
    },
    /// The target is another user's, or privileged.
    #[error("no permission to observe that process")]
    NotOurs,
    /// No hardware counter: a virtual machine without a virtual PMU.
    #[error("this virtual machine has no performance counters")]
    NoPmuInVm,
    /// No hardware counter, and no hypervisor to blame.
    #[error("the kernel found no performance counters")]
    NoPmu,
    /// The named PMU does not exist here.
    #[error("there is no PMU {pmu:?} on this machine")]
    NoSuchPmu {
        /// Its name in sysfs.
        pmu: String,
    },
    /// There is a PMU, but not with this event or this combination of its options.
    #[error("this processor's PMU has no such event or option")]
    NotOnThisProcessor,
    /// The PMU cannot exclude the modes that were to be left out.
    #[error("this PMU cannot tell user mode from the kernel")]
    NoModes,
    /// Sampling or precision that the PMU does not have.
    #[error("this PMU cannot sample like that (no interrupt or no precise samples)")]
    NoSampling,
    /// More events than counters, or a combination that the counters cannot hold.
    #[error("these events do not fit on the counters together")]
    TooMany {
        /// The NMI watchdog holds a counter.
        watchdog: bool,
    },
    /// Another user of the PMU has it to itself.
    #[error("the performance counters are in use exclusively")]
    Busy,
    /// Out of file descriptors.
    #[error("too many open files{}", if *.system { " in the system" } else { "" })]
    Files {
        /// The system's limit, not the process's.
        system: bool,
    },
    /// The thread does not exist any more.
    #[error("no thread {0}")]
    NoThread(i32),
    /// The processor does not exist or is offline.
    #[error("processor {0} does not exist or is offline")]
    NoCpu(u32),
    /// The ring would exceed what may be locked.
    #[error("the ring needs more locked memory than kernel.perf_event_mlock_kb allows")]
    Locked,
    /// Out of memory.
    #[error("the kernel is out of memory")]
    Memory,
    /// The kernel does not know part of the request.
    #[error("this kernel is too old for the request")]
    KernelTooOld,
    /// Something that this list does not have.
    #[error("{0}")]
    Other(Errno),
}

impl Cause {
    /// Returns the advice: one sentence.
    pub fn help(&self) -> String {
        let software = "count software events such as task-clock, or count on the virtual CPU: \
                        `cputrack --lwp`, `lwp stat`";
        match self {
            Self::NotBuilt => format!("use a kernel with CONFIG_PERF_EVENTS, or {software}"),
            Self::Seccomp => {
                "allow perf_event_open in the container's seccomp profile, or add the \
                              capability CAP_PERFMON where the profile follows it"
                    .into()
            }
            Self::Paranoid { needed, .. } => format!(
                "sysctl kernel.perf_event_paranoid={needed}, or run with the capability CAP_PERFMON"
            ),
            Self::NotOurs => "run as the owner of the process, or as root".into(),
            Self::NoPmuInVm => format!("give the virtual machine a virtual PMU; else {software}"),
            Self::NoPmu => {
                format!("check the firmware's settings and the kernel's log; else {software}")
            }
            Self::NoSuchPmu { .. } => {
                "see the directory /sys/bus/event_source/devices for those that exist".into()
            }
            Self::NotOnThisProcessor => {
                "see the PMU's events and format directories in sysfs for what it has".into()
            }
            Self::NoModes => "ask for all modes".into(),
            Self::NoSampling => {
                "sample another event, without :p, or count instead of sampling".into()
            }
            Self::TooMany { watchdog: true } => {
                "sysctl kernel.nmi_watchdog=0 frees one counter; or \
                                                 ask for fewer events at a time"
                    .into()
            }
            Self::TooMany { watchdog: false } => "ask for fewer events at a time".into(),
            Self::Busy => "wait for the other user of the counters to end".into(),
            Self::Files { system: false } => "raise the limit with ulimit -n".into(),
            Self::Files { system: true } => "raise it with sysctl fs.file-max".into(),
            Self::NoThread(_) => "choose a thread that is alive".into(),
            Self::NoCpu(_) => "see /sys/devices/system/cpu/online for those that are online".into(),
            Self::Locked => "ask for a smaller ring, or raise kernel.perf_event_mlock_kb".into(),
            Self::Memory => "free some memory".into(),
            Self::KernelTooOld => "use a newer kernel, or leave the option out".into(),
            Self::Other(_) => "see perf_event_open(2)".into(),
        }
    }
}

/// The request that the kernel refused.
#[derive(Clone, Copy, Debug)]
pub struct Refused<'a> {
    /// The event that was to be opened.
    pub event: &'a Event,
    /// The attribute it was opened with.
    pub attr: &'a Attr,
    /// The place where it was to count.
    pub target: Target,
    /// True if it was to join a group with others in it.
    pub joining: bool,
}

/// The cause of `errno` from perf_event_open.
///
/// Spec: perf_event_open(2), "ERRORS".
pub fn diagnose(kernel: &dyn Kernel, refused: Refused<'_>, errno: Errno) -> Cause {
    match errno {
        Errno::NOSYS if seccomp(kernel) => Cause::Seccomp,
        Errno::NOSYS => Cause::NotBuilt,
        Errno::ACCESS | Errno::PERM => permission(kernel, refused, errno),
        Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP => missing(kernel, refused, errno),
        Errno::INVAL => invalid(kernel, refused),
        Errno::BUSY => Cause::Busy,
        Errno::NOSPC => Cause::TooMany { watchdog: watchdog(kernel) },
        Errno::MFILE => Cause::Files { system: false },
        Errno::NFILE => Cause::Files { system: true },
        Errno::SRCH => match refused.target {
            Target::Thread(tid) => Cause::NoThread(tid),
            Target::CurrentThread => Cause::NoThread(0),
            Target::Cpu(_) => Cause::Other(errno),
        },
        Errno::NXIO => match refused.target {
            Target::Cpu(cpu) => Cause::NoCpu(cpu),
            _ => Cause::Other(errno),
        },
        Errno::NOMEM => Cause::Memory,
        Errno::TOOBIG => Cause::KernelTooOld,
        other => Cause::Other(other),
    }
}

/// EACCES and EPERM: paranoia, seccomp, or another user's process. Paranoia is EACCES; filters say
/// EPERM, if they say anything else than ENOSYS.
fn permission(kernel: &dyn Kernel, refused: Refused<'_>, errno: Errno) -> Cause {
    if errno == Errno::PERM && seccomp(kernel) {
        return Cause::Seccomp;
    }
    let level = number(kernel, "/proc/sys/kernel/perf_event_paranoid");
    let flags = refused.attr.flags();
    let needed = match refused.target {
        Target::Cpu(_) => 0,
        _ if !flags.contains(Flags::EXCLUDE_KERNEL) => 1,
        _ => 2,
    };
    match level {
        Some(level) if level > needed => Cause::Paranoid { level, needed },
        _ if seccomp(kernel) => Cause::Seccomp,
        _ => Cause::NotOurs,
    }
}

/// ENOENT, ENODEV and EOPNOTSUPP: no PMU, or not this event on it.
fn missing(kernel: &dyn Kernel, refused: Refused<'_>, errno: Errno) -> Cause {
    if let Some(pmu) = refused.event.pmu.as_deref()
        && kernel.text(&format!("{}/{pmu}/type", crate::pmu::DEVICES)).is_err()
    {
        return Cause::NoSuchPmu { pmu: pmu.into() };
    }
    if !refused.event.is_core() {
        return Cause::NotOnThisProcessor;
    }
    if has_core_pmu(kernel) {
        let sampling = refused.attr.sample_period != 0 || refused.attr.precise() != 0;
        return if errno == Errno::OPNOTSUPP && sampling {
            Cause::NoSampling
        } else {
            Cause::NotOnThisProcessor
        };
    }
    if is_virtual(kernel) { Cause::NoPmuInVm } else { Cause::NoPmu }
}

/// EINVAL: a group that does not fit, a mode that cannot be excluded, or a wrong configuration.
fn invalid(kernel: &dyn Kernel, refused: Refused<'_>) -> Cause {
    if let Target::Cpu(cpu) = refused.target
        && !cpu_online(kernel, cpu)
    {
        return Cause::NoCpu(cpu);
    }
    let excludes = Flags::EXCLUDE_USER | Flags::EXCLUDE_KERNEL | Flags::EXCLUDE_HV;
    if !refused.event.is_core()
        && !refused.event.is_software()
        && refused.attr.flags().intersects(excludes)
    {
        return Cause::NoModes;
    }
    if refused.joining {
        return Cause::TooMany { watchdog: watchdog(kernel) };
    }
    if refused.event.kind > kind::RAW && refused.event.pmu.is_none() {
        return Cause::NoSuchPmu { pmu: format!("type {}", refused.event.kind) };
    }
    Cause::NotOnThisProcessor
}

/// Returns whether a pinned group that went into error state lost its counter to the watchdog.
pub fn watchdog(kernel: &dyn Kernel) -> bool {
    number(kernel, "/proc/sys/kernel/nmi_watchdog") == Some(1)
}

/// Returns whether the processor's core PMU is known to the kernel.
///
/// Spec: sysfs, "bus/event_source/devices"; hybrid processors have `cpu_core` and `cpu_atom`.
pub fn has_core_pmu(kernel: &dyn Kernel) -> bool {
    ["cpu", "cpu_core", "cpu_atom"]
        .iter()
        .any(|pmu| kernel.text(&format!("{}/{pmu}/type", crate::pmu::DEVICES)).is_ok())
}

/// Returns whether CPUID says that a hypervisor is present.
fn is_virtual(kernel: &dyn Kernel) -> bool {
    kernel.cpuid(1, 0)[2] >> 31 == 1
}

/// Returns whether this process runs under a seccomp filter.
///
/// Spec: proc(5), `/proc/pid/status`, "Seccomp".
fn seccomp(kernel: &dyn Kernel) -> bool {
    let status = kernel.text("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

fn number(kernel: &dyn Kernel, path: &str) -> Option<i32> {
    kernel.text(path).ok()?.trim().parse().ok()
}

/// Returns whether `cpu` is in the list of processors that are online. True where there is no list.
fn cpu_online(kernel: &dyn Kernel, cpu: u32) -> bool {
    let Ok(list) = kernel.text("/sys/devices/system/cpu/online") else {
        return true;
    };
    crate::pmu::in_list(&list, cpu)
}

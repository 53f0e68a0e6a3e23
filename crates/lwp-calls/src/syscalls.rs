//! System calls that the virtual CPU takes part in; all others run natively, unseen.

use lwp_dbt::Slot;
use lwp_dbt::block::Emulated;
use lwp_dbt::context::SyscallClass;
use lwp_mailbox::contexts::Context;
use lwp_process::child::{layout_is_ours, with_fixed_layout, without_fixed_layout};
use lwp_process::kernel_files;
use lwp_process::{memory, missing_pages};

use crate::limits::{self, Raised};

mod kernel_writes;
pub mod nr;
mod rare_calls;
mod transfers;
mod unmapped_ranges;
mod waits;

pub use kernel_writes::{filled, filled_elsewhere, filled_later, fills_ever_after, led_to};
pub use rare_calls::{Held, hold, of_32_bits, refused_of_32_bits, result_of_32_bits};
pub use transfers::Transfer;
pub use unmapped_ranges::{AtHole, NOWHERE, around, at_hole, pages_of};
pub use waits::{forgets_time, minds_signals, timeout, unblocks};

const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
const ARCH_SET_GS: u64 = 0x1001;
const ARCH_GET_GS: u64 = 0x1004;
const ARCH_GET_CPUID: u64 = 0x1011;
const ARCH_SET_CPUID: u64 = 0x1012;
const ARCH_SHSTK_ENABLE: u64 = 0x5001;
/// MAP_FIXED and MAP_FIXED_NOREPLACE.
const MAP_AT_PLACE: u64 = 0x10_0010;
const MREMAP_FIXED: u64 = 2;
const SIGSEGV: u64 = 11;
const MCL_ONFAULT: u64 = 4;
const PR_SET_SECCOMP: u64 = 22;
/// Calls outside a range of addresses raise SIGSYS: those of translated code lie elsewhere.
const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
const SECCOMP_SET_MODE_STRICT: u64 = 0;
const SECCOMP_SET_MODE_FILTER: u64 = 1;
const GRND_MASK: u64 = 7;
/// A flag of rseq(2) that there is not.
const NO_RSEQ_FLAG: u64 = 1 << 30;
const EPERM: i64 = -1;
const ENOMEM: i64 = -12;
const EFAULT: i64 = -14;
const ENODEV: i64 = -19;
const EINVAL: i64 = -22;
const ENOSYS: i64 = -38;
const EOPNOTSUPP: i64 = -95;
/// First address that no tracee can have.
const TASK_SIZE: u64 = 0x7fff_ffff_f000;

fn class(number: u64, emulated: Emulated) -> SyscallClass {
    match number {
        _ if emulated.dispatches => SyscallClass::Host,
        nr::MMAP => SyscallClass::Map,
        nr::MUNMAP
        | nr::MADVISE
        | nr::MSYNC
        | nr::MINCORE
        | nr::MLOCK
        | nr::MUNLOCK
        | nr::MLOCK2
        | nr::MSEAL => SyscallClass::Unmap,
        nr::CLONE | nr::CLONE3 => SyscallClass::Clone,
        nr::MPROTECT => SyscallClass::Protect,
        nr::ARCH_PRCTL => SyscallClass::SetFs,
        nr::RT_SIGACTION if !emulated.fills => SyscallClass::Beside,
        nr::RT_SIGACTION
        | nr::PRLIMIT64
        | nr::PKEY_MPROTECT
        | nr::SHMAT
        | nr::SHMDT
        | nr::BRK
        | nr::REMAP_FILE_PAGES
        | nr::PROCESS_MADVISE
        | nr::MREMAP
        | nr::GETRLIMIT
        | nr::SETRLIMIT
        | nr::PTRACE
        | nr::MLOCKALL
        | nr::PRCTL
        | nr::SECCOMP
        | nr::SET_TID_ADDRESS
        | nr::IO_URING_REGISTER
        | nr::USERFAULTFD
        | nr::PERSONALITY
        | nr::RSEQ
        | nr::URETPROBE
        | nr::UPROBE => SyscallClass::Host,
        nr::GETRANDOM | nr::OPEN | nr::OPENAT if emulated.random => SyscallClass::Host,
        nr::OPEN | nr::OPENAT => SyscallClass::Open,
        nr::CREAT | nr::OPENAT2 => SyscallClass::Host,
        nr::WRITE | nr::WRITEV if emulated.writes => SyscallClass::Host,
        nr::LSEEK | nr::DUP | nr::DUP2 | nr::DUP3 => SyscallClass::Watched,
        nr::PREAD64
        | nr::WAIT4
        | nr::GETDENTS
        | nr::GETDENTS64
        | nr::FSTAT
        | nr::NEWFSTATAT
        | nr::STATX
        | nr::FSTATFS
        | nr::FCNTL => match emulated.fills {
            true => SyscallClass::Fills,
            false => SyscallClass::Watched,
        },
        _ if emulated.fills => kernel_writes::class(number),
        _ => SyscallClass::Native,
    }
}

/// The classes of all calls, for sites whose number is known when translating.
pub fn classes(emulated: &Emulated) -> Box<[SyscallClass; 512]> {
    let mut out = Box::new([SyscallClass::Native; 512]);
    for (number, slot) in out.iter_mut().enumerate() {
        *slot = class(number as u64, *emulated);
    }
    out
}

/// The classes as the table that emitted filters look numbers up in; `rt_sigreturn` through an
/// unknown number is the host's too.
pub fn classes_for_table(emulated: &Emulated) -> [u8; 512] {
    let mut out = [0; 512];
    for (number, byte) in out.iter_mut().enumerate() {
        *byte = class(number as u64, *emulated) as u8;
    }
    out[nr::RT_SIGRETURN as usize] = SyscallClass::Host as u8;
    out
}

/// The action to take for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Make it; report it afterwards.
    Run,
    /// Make it natively, stepping over it.
    Step,
}

/// The things to put right after a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The call's own number and arguments.
    pub number: u64,
    /// See `number`.
    pub args: [u64; 4],
    /// The result that the program gets instead of the kernel's.
    pub result: Option<i64>,
    /// The bytes that the call is about instead of those of its second argument, and the result
    /// that the program gets if it succeeds.
    pub shortened: Option<(u64, i64)>,
    /// The process whose limit the call sets, and what the kernel's is raised by.
    pub raised: Option<(i32, Raised)>,
    /// The program's own value of something that INT 0x80 finds changed.
    pub held: Option<Held>,
    /// The call is made in a form that no kernel accepts.
    pub refused: bool,
}

impl Pending {
    /// A call with these arguments.
    pub fn new(number: u64, args: [u64; 4]) -> Self {
        Self { number, args, ..Self::default() }
    }

    /// The call that the thread of a context is about to make.
    pub fn of(context: Context<'_>) -> Self {
        let args = [Slot::Rdi, Slot::Rsi, Slot::Rdx, Slot::R10].map(|slot| context.get(slot));
        Self::new(context.get(Slot::Rax) & 0xffff_ffff, args)
    }
}

/// The change that a call has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that concerns us.
    None,
    /// This range is mapped anew.
    Mapped((u64, u64)),
    /// This range has become executable, or its content may have changed.
    Protected((u64, u64)),
    /// This range can be executed and written to.
    Unlocked((u64, u64)),
    /// This range can no longer be executed.
    Unexecutable((u64, u64)),
    /// A file is open at this descriptor.
    Opened(i32),
    /// The thread has got so many bytes of entries of a directory.
    Listed(Pending, u64),
    /// This may be a copy of another descriptor.
    Copied(i32),
    /// The call has told of the file at a descriptor.
    Described(Pending),
    /// The call has set or told a limit.
    Limited(Pending),
    /// The call has written a number of bytes.
    Written(Pending, u64),
    /// The content of the first range is in the second one, or was there before.
    Moved((u64, u64), (u64, u64)),
    /// The heap of brk(2) ends here.
    HeapEnds(u64),
    /// Shared memory, of unknown size, begins here.
    Attached(u64),
    /// Shared memory, of unknown size, has begun here.
    Detached(u64),
    /// The action for SIGSEGV is the one at this address.
    FaultAction(u64),
}

/// Returns whether a call is mlockall(2), and can be made for the program's own mappings by other
/// calls than that one.
pub fn locks_all(context: Context<'_>) -> bool {
    // A filter may kill for those.
    locks(context.get(Slot::Rax), context.get(Slot::Rdi)) && context.get(Slot::NoSyscalls) == 0
}

/// Returns whether a call with this number and first argument is a valid mlockall(2).
pub fn locks(number: u64, flags: u64) -> bool {
    let flags = flags as u32;
    number as u32 == nr::MLOCKALL as u32 && flags != 0 && flags != MCL_ONFAULT as u32 && flags < 8
}

/// Looks at a call before it is made and arranges it in the context.
pub fn before(
    context: Context<'_>,
    tid: i32,
    random: &mut dyn FnMut() -> u64,
    random_file: Option<&str>,
) -> (Before, Pending) {
    let mut pending = Pending::of(context);
    let Pending { number, args, .. } = pending;
    let answer = |pending: &mut Pending, result| answer_instead(context, pending, result);
    match number {
        nr::RT_SIGRETURN => return (Before::Step, pending),
        // The kernel takes them from its own trampolines alone.
        nr::URETPROBE | nr::UPROBE => return (Before::Step, pending),
        // From the call on the mailbox may not make system calls of its own.
        nr::PRCTL | nr::SECCOMP if installs_filter(&pending) => context.set(Slot::NoSyscalls, 1),
        nr::PRCTL if args[0] == PR_SET_SYSCALL_USER_DISPATCH => answer(&mut pending, EINVAL),
        nr::PTRACE => answer(&mut pending, EPERM),
        nr::USERFAULTFD => missing_pages::expect(),
        nr::PERSONALITY if args[0] as u32 != u32::MAX && layout_is_ours(tid) => {
            context.set(Slot::Rdi, with_fixed_layout(args[0]));
        }
        nr::MLOCKALL => context.set(Slot::Rdi, args[0] | MCL_ONFAULT),
        nr::CLONE => context.set(Slot::Rdi, args[0] & !rare_calls::CLONE_UNTRACED),
        nr::CLONE3 => rare_calls::trace_child(context, tid, args[0], args[1]),
        nr::ARCH_PRCTL => match args[0] {
            ARCH_SET_GS if args[1] >= TASK_SIZE => answer(&mut pending, EPERM),
            ARCH_SET_GS => {
                context.set(Slot::AppGs, args[1]);
                answer(&mut pending, 0);
            }
            ARCH_GET_GS => {
                let written = memory::write_u64(tid, args[1], context.get(Slot::AppGs));
                answer(&mut pending, if written.is_ok() { 0 } else { EFAULT });
            }
            ARCH_SHSTK_ENABLE => answer(&mut pending, EOPNOTSUPP),
            // The virtual processor has no faulting of CPUID.
            ARCH_GET_CPUID => answer(&mut pending, 1),
            ARCH_SET_CPUID => answer(&mut pending, ENODEV),
            _ => {}
        },
        nr::OPEN | nr::OPENAT => {
            let (slot, path) = match number {
                nr::OPEN => (Slot::Rdi, args[0]),
                _ => (Slot::Rsi, args[1]),
            };
            if let Some(file) = random_file
                && names_random_device(tid, path)
            {
                context.set(slot, context.write_scratch(file.as_bytes()));
            }
        }
        nr::GETRANDOM if args[2] & !GRND_MASK == 0 => {
            let result = fill_random(tid, args[0], args[1], random);
            answer(&mut pending, result);
        }
        _ => {}
    }
    (Before::Run, pending)
}

/// Has rseq(2) fail. It is made with a flag that no kernel knows: a filter may allow this call and
/// kill for any other.
pub fn refuse_rseq(context: Context<'_>, pending: &mut Pending) {
    context.set(Slot::Rdx, pending.args[2] | NO_RSEQ_FLAG);
    pending.refused = true;
}

/// Returns whether rseq(2), which is refused, is called as no kernel would accept it.
fn rseq_is_invalid(pending: &Pending) -> bool {
    /// The first version of the area, and what the kernel aligns larger ones to.
    const FIRST: u64 = 32;
    let [area, bytes, flags, _] = pending.args;
    let bytes = bytes & 0xffff_ffff;
    // Nothing is registered that could be taken back.
    flags as u32 != 0 || area == 0 || bytes < FIRST || !area.is_multiple_of(FIRST)
}

/// Returns whether the call puts a system call filter in force.
pub fn installs_filter(pending: &Pending) -> bool {
    match pending.number {
        nr::PRCTL => pending.args[0] == PR_SET_SECCOMP,
        nr::SECCOMP => {
            matches!(pending.args[0], SECCOMP_SET_MODE_STRICT | SECCOMP_SET_MODE_FILTER)
        }
        _ => false,
    }
}

/// Returns whether the filter is for all threads of the process.
pub fn filters_all_threads(pending: &Pending) -> bool {
    const SECCOMP_FILTER_FLAG_TSYNC: u64 = 1;
    pending.number == nr::SECCOMP && pending.args[1] & SECCOMP_FILTER_FLAG_TSYNC != 0
}

fn names_random_device(tid: i32, path: u64) -> bool {
    let starts = |name: &[u8]| {
        let mut bytes = vec![0; name.len()];
        memory::read_exact(tid, path, &mut bytes).is_ok() && bytes == name
    };
    starts(b"/dev/urandom\0") || starts(b"/dev/random\0")
}

fn fill_random(tid: i32, address: u64, len: u64, random: &mut dyn FnMut() -> u64) -> i64 {
    let len = len.min(0x1ff_ffff);
    let mut bytes = Vec::with_capacity(len as usize + 8);
    while (bytes.len() as u64) < len {
        bytes.extend_from_slice(&random().to_le_bytes());
    }
    bytes.truncate(len as usize);
    match memory::write_exact(tid, address, &bytes) {
        Ok(()) => len as i64,
        Err(_) => EFAULT,
    }
}

/// Returns whether [`after`] would find nothing to do, whatever the result of the call is.
/// `has_code` says whether there is code in a range.
pub fn concerns_nobody(pending: &Pending, has_code: impl Fn((u64, u64)) -> bool) -> bool {
    let [a1, a2, a3, a4] = pending.args;
    let old = (a1, a1.saturating_add(page(a2)));
    match pending.number {
        // They are watched, or else would not have come here.
        nr::LSEEK | nr::PREAD64 | nr::WRITE | nr::WRITEV => true,
        nr::DUP | nr::DUP2 | nr::DUP3 => true,
        // They change nothing, or nothing of which code is made.
        nr::MSYNC | nr::MINCORE | nr::MLOCK | nr::MUNLOCK | nr::MLOCK2 | nr::MSEAL => true,
        // What they announce has been noted.
        nr::SIGALTSTACK | nr::SET_TID_ADDRESS | nr::IO_URING_REGISTER => true,
        nr::MPROTECT | nr::PKEY_MPROTECT => a3 & PROT_EXEC == 0 && !has_code(old),
        nr::MUNMAP => !has_code(old),
        nr::MMAP => a3 & PROT_EXEC == 0 && (a4 & MAP_AT_PLACE == 0 || !has_code(old)),
        nr::MADVISE => !discards(a3) || !has_code(old),
        nr::PROCESS_MADVISE => !discards(a4),
        // The kernel chooses a place where nothing is.
        nr::MREMAP => a4 & MREMAP_FIXED == 0 && !has_code(old),
        nr::RT_SIGACTION => a1 != SIGSEGV || a2 == 0,
        nr::GETRLIMIT | nr::SETRLIMIT | nr::PRLIMIT64 => !limits::concerns(pending),
        nr::GETDENTS | nr::GETDENTS64 => false,
        number => {
            let looked_at = Emulated { fills: true, ..Emulated::default() };
            matches!(class(number, looked_at), SyscallClass::Fills | SyscallClass::FillsFar)
        }
    }
}

/// The ranges that a call is about to map, unmap or change.
pub fn touches(pending: &Pending, fifth: u64) -> [(u64, u64); 2] {
    let [a1, a2, a3, a4] = pending.args;
    const NOTHING: (u64, u64) = (0, 0);
    match pending.number {
        nr::MMAP if a4 & MAP_AT_PLACE == 0 => [NOTHING; 2],
        nr::MMAP
        | nr::MUNMAP
        | nr::MPROTECT
        | nr::PKEY_MPROTECT
        | nr::MADVISE
        | nr::REMAP_FILE_PAGES => [range(a1, a2), NOTHING],
        nr::MREMAP if a4 & MREMAP_FIXED != 0 => [range(a1, a2), range(fifth, a3)],
        nr::MREMAP => [range(a1, a2), NOTHING],
        _ => [NOTHING; 2],
    }
}

/// The range in which shmat(2) is about to attach a segment at a place of the program's choice.
/// Nothing where there is no such segment.
pub fn attaches(tid: i32, pending: &Pending) -> (u64, u64) {
    /// Bytes of a segment of another namespace, which cannot be looked up.
    const UNKNOWN: u64 = 1 << 30;
    let [id, at, ..] = pending.args;
    let own = kernel_files::link(kernel_files::Own, "ns/ipc").ok();
    let bytes = match own == kernel_files::link(tid, "ns/ipc").ok() {
        true => {
            let segments = kernel_files::of_machine("/proc/sysvipc/shm").unwrap_or_default();
            rare_calls::bytes_of_segment(&segments, id as i32).unwrap_or(0)
        }
        false => UNKNOWN,
    };
    range(at & !4095, bytes)
}

/// Returns the ranges that a call touches which a thread makes without the host, as far as its
/// context tells.
pub fn touched_alone(context: Context<'_>) -> [(u64, u64); 2] {
    let args = [Slot::Rdi, Slot::Rsi, Slot::Rdx, Slot::R10].map(|slot| context.get(slot));
    let call = Pending::new(context.get(Slot::Rax), args);
    touches(&call, context.get(Slot::R8))
}

/// Has a call that the context describes answered with `result` instead.
pub fn answer_instead(context: Context<'_>, pending: &mut Pending, result: i64) {
    context.set(Slot::Rax, nr::GETPID);
    pending.result = Some(result);
}

/// Returns whether this advice takes the content of memory away: MADV_DONTNEED, MADV_FREE,
/// MADV_REMOVE, MADV_DONTNEED_LOCKED.
fn discards(advice: u64) -> bool {
    matches!(advice as u32, 4 | 8 | 9 | 24)
}

/// The pages of `bytes` at `address`. Both may be anything: what a call has returned stands where
/// the program can write.
fn range(address: u64, bytes: u64) -> (u64, u64) {
    (address, address.saturating_add(page(bytes)))
}

fn page(bytes: u64) -> u64 {
    bytes.saturating_add(4095) & !4095
}

/// Looks at a call after it was made: its true result is `result`. Returns what the program is to
/// get and what has changed.
pub fn after(context: Context<'_>, tid: i32, pending: &Pending, result: u64) -> (u64, Effect) {
    let [a1, a2, a3, a4] = pending.args;
    // What the program passed is what it finds in its registers again.
    context.set(Slot::Rdi, a1);
    context.set(Slot::Rsi, a2);
    context.set(Slot::Rdx, a3);
    let a2 = pending.shortened.map_or(a2, |(bytes, _)| bytes);
    if let Some(result) = pending.result {
        return (result as u64, Effect::None);
    }
    if pending.refused && result as i64 == EINVAL && !rseq_is_invalid(pending) {
        return (ENOSYS as u64, Effect::None);
    }
    let failed = (-4095..0).contains(&(result as i64));
    if failed {
        return (result, Effect::None);
    }
    if pending.number == nr::PERSONALITY {
        return (without_fixed_layout(result).unwrap_or(result), Effect::None);
    }
    let effect = match pending.number {
        nr::MMAP if a3 & PROT_EXEC != 0 => Effect::Mapped(range(result, a2)),
        nr::MMAP if a4 & MAP_AT_PLACE != 0 => Effect::Unexecutable(range(result, a2)),
        nr::MPROTECT | nr::PKEY_MPROTECT if a3 & PROT_EXEC != 0 => match a3 & PROT_WRITE {
            0 => Effect::Protected(range(a1, a2)),
            _ => Effect::Unlocked(range(a1, a2)),
        },
        nr::MPROTECT | nr::PKEY_MPROTECT => Effect::Unexecutable(range(a1, a2)),
        nr::MUNMAP => Effect::Unexecutable(range(a1, a2)),
        // What was written there is gone.
        nr::MADVISE if discards(a3) => Effect::Protected(range(a1, a2)),
        nr::MREMAP => Effect::Moved(range(a1, a2), range(result, a3)),
        nr::OPEN | nr::CREAT | nr::OPENAT | nr::OPENAT2 => Effect::Opened(result as i32),
        nr::GETDENTS | nr::GETDENTS64 | nr::GETDENTS_32 => Effect::Listed(*pending, result),
        nr::REMAP_FILE_PAGES => Effect::Mapped(range(a1, a2)),
        nr::PROCESS_MADVISE | nr::PROCESS_MADVISE_32 => rare_calls::advised(tid, pending),
        nr::BRK => Effect::HeapEnds(result),
        // ipc(2) returns nothing.
        nr::SHMAT if result == 0 => Effect::Attached(a2 & !4095),
        nr::SHMAT => Effect::Attached(result),
        nr::SHMDT => Effect::Detached(a1),
        nr::RT_SIGACTION if a1 == SIGSEGV && a2 != 0 => Effect::FaultAction(a2),
        nr::WRITE | nr::WRITEV => Effect::Written(*pending, result),
        nr::DUP | nr::DUP2 | nr::DUP3 | nr::FCNTL => Effect::Copied(result as i32),
        nr::GETRLIMIT | nr::SETRLIMIT | nr::PRLIMIT64 => Effect::Limited(*pending),
        nr::FSTAT
        | nr::NEWFSTATAT
        | nr::STATX
        | nr::FSTATFS
        | nr::FSTAT_32
        | nr::FSTAT64_32
        | nr::FSTATAT64_32
        | nr::FSTATFS_32
        | nr::FSTATFS64_32 => Effect::Described(*pending),
        _ => Effect::None,
    };
    (pending.shortened.map_or(result, |(_, told)| told as u64), effect)
}

//! Calls that seldom concern code: those of the 32-bit table, and advice about memory in parts.

use lwp_dbt::Slot;
use lwp_mailbox::contexts::Context;
use lwp_process::child::layout_is_ours;
use lwp_process::child::with_fixed_layout;
use lwp_process::regs::Raw;
use lwp_process::{memory, missing_pages};

use super::{
    ARCH_GET_CPUID, ARCH_SET_CPUID, EINVAL, ENODEV, ENOSYS, EPERM, Effect,
    PR_SET_SYSCALL_USER_DISPATCH, Pending, discards, nr, range, rseq_is_invalid,
};

/// Most parts that the kernel takes.
const MOST_PARTS: u64 = 1024;
/// Bytes of a word of a part, which has two: its address and its size.
const WORD: usize = 8;
const WORD_OF_32_BITS: usize = 4;
/// The operations of ipc(2) that attach and detach shared memory.
const IPC_SHMAT: u64 = 21;
const IPC_SHMDT: u64 = 22;

/// Calls of the 32-bit table and those of the 64-bit table that have the same arguments.
#[rustfmt::skip]
const SAME: [(u64, u64); 47] = [
    (2, nr::FORK), (5, nr::OPEN), (8, nr::CREAT), (26, nr::PTRACE), (41, nr::DUP), (45, nr::BRK),
    (55, nr::FCNTL), (63, nr::DUP2), (91, nr::MUNMAP), (100, nr::FSTATFS_32), (108, nr::FSTAT_32),
    (120, nr::CLONE), (125, nr::MPROTECT), (136, nr::PERSONALITY), (141, nr::GETDENTS_32),
    (144, nr::MSYNC), (150, nr::MLOCK), (151, nr::MUNLOCK), (152, nr::MLOCKALL), (163, nr::MREMAP),
    (172, nr::PRCTL), (190, nr::VFORK), (192, nr::MMAP), (197, nr::FSTAT64_32), (218, nr::MINCORE),
    (219, nr::MADVISE), (220, nr::GETDENTS64), (221, nr::FCNTL), (257, nr::REMAP_FILE_PAGES),
    (269, nr::FSTATFS64_32), (295, nr::OPENAT), (300, nr::FSTATAT64_32), (330, nr::DUP3),
    (354, nr::SECCOMP), (374, nr::USERFAULTFD), (376, nr::MLOCK2), (380, nr::PKEY_MPROTECT),
    (383, nr::STATX),
    (384, nr::ARCH_PRCTL), (386, nr::RSEQ), (397, nr::SHMAT), (398, nr::SHMDT), (435, nr::CLONE3),
    (437, nr::OPENAT2), (440, nr::PROCESS_MADVISE_32), (462, nr::MSEAL), (19, nr::LSEEK),
];

/// The call that INT 0x80 makes with these registers, as one of the 64-bit table; `None` for one
/// that the virtual CPU has no part in.
pub fn of_32_bits(tid: i32, regs: &Raw) -> Option<Pending> {
    let words = [regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi].map(|word| word & 0xffff_ffff);
    let [one, two, three, four, five] = words;
    let mut args = [one, two, three, four];
    let number = match regs.rax & 0xffff_ffff {
        90 => {
            let block: [u8; 16] = memory::read_array(tid, one).ok()?;
            for (arg, word) in args.iter_mut().zip(block.chunks_exact(4)) {
                *arg = u64::from(u32::from_le_bytes(word.try_into().ok()?));
            }
            nr::MMAP
        }
        117 if one & 0xffff == IPC_SHMAT => {
            args = [two, five, three, 0];
            nr::SHMAT
        }
        117 if one & 0xffff == IPC_SHMDT => {
            args[0] = five;
            nr::SHMDT
        }
        // The offset is in two words.
        140 => {
            args = [one, two << 32 | three, five, 0];
            nr::LSEEK
        }
        180 => {
            args[3] = five << 32 | four;
            nr::PREAD64
        }
        own => SAME.iter().find(|row| row.0 == own)?.1,
    };
    Some(Pending::new(number, args))
}

/// A value that a call of the 32-bit table finds changed: the program's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The register of its first argument.
    First(u64),
    /// The flags of clone3(2) at this address.
    Flags(u64, u64),
}

/// Arranges a call of the 32-bit table that tells the kernel of a layout, or makes a child: as
/// [`super::before`] does. `regs` are the thread's, who makes it natively.
pub fn hold(tid: i32, pending: &Pending, regs: &mut Raw) -> Option<Held> {
    let [one, ..] = pending.args;
    let first = match pending.number {
        nr::PERSONALITY if one as u32 != u32::MAX && layout_is_ours(tid) => with_fixed_layout(one),
        nr::CLONE if one & CLONE_UNTRACED != 0 => one & !CLONE_UNTRACED,
        nr::USERFAULTFD => {
            missing_pages::expect();
            return None;
        }
        nr::CLONE3 => return hold_flags(tid, one, pending.args[1]),
        _ => return None,
    };
    let own = std::mem::replace(&mut regs.rbx, first);
    Some(Held::First(own))
}

/// Takes the flag out by which nobody traces the child. No memory of ours is where 32 bits reach
/// and each thread has its own, so it is taken out in place.
fn hold_flags(tid: i32, arguments: u64, bytes: u64) -> Option<Held> {
    let flags = memory::read_u64(tid, arguments).ok()?;
    let known = bytes >= 8 && flags & CLONE_UNTRACED != 0;
    let traced = (flags & !CLONE_UNTRACED).to_le_bytes();
    let held = known && memory::write_exact(tid, arguments, &traced).is_ok();
    held.then_some(Held::Flags(arguments, flags))
}

impl Held {
    /// Gives the program back what is its own.
    pub fn put_back(self, tid: i32, regs: &mut Raw) {
        match self {
            Self::First(own) => regs.rbx = own,
            Self::Flags(at, flags) => {
                // The program may have put something else there.
                if memory::read_u64(tid, at).is_ok_and(|now| now == flags & !CLONE_UNTRACED) {
                    let _ = memory::write_exact(tid, at, &flags.to_le_bytes());
                }
            }
        }
    }
}

/// The result of a call of the 32-bit table that is not made, whatever the memory is that it is
/// about: as the call of the 64-bit table is answered.
///
/// The process has rseq(2) if its threads are registered.
pub fn refused_of_32_bits(pending: &Pending, has_rseq: bool) -> Option<i64> {
    match (pending.number, pending.args[0]) {
        (nr::PTRACE, _) => Some(EPERM),
        (nr::PRCTL, PR_SET_SYSCALL_USER_DISPATCH) => Some(EINVAL),
        (nr::RSEQ, _) if has_rseq => None,
        (nr::RSEQ, _) if rseq_is_invalid(pending) => Some(EINVAL),
        (nr::RSEQ, _) => Some(ENOSYS),
        (nr::ARCH_PRCTL, ARCH_GET_CPUID) => Some(1),
        (nr::ARCH_PRCTL, ARCH_SET_CPUID) => Some(ENODEV),
        _ => None,
    }
}

/// The result of a call of the 32-bit table, as one of the 64-bit table returns it.
pub fn result_of_32_bits(rax: u64) -> u64 {
    match rax as u32 as i32 {
        error @ -4095..0 => error as u64,
        _ => rax & 0xffff_ffff,
    }
}

/// The effect of process_madvise(2), which can take content away from the caller's memory alone:
/// on everything from its first part to its last.
pub fn advised(tid: i32, pending: &Pending) -> Effect {
    let [_, parts, many, advice] = pending.args;
    if !discards(advice) {
        return Effect::None;
    }
    let word = match pending.number {
        nr::PROCESS_MADVISE_32 => WORD_OF_32_BITS,
        _ => WORD,
    };
    let mut bytes = vec![0; many.min(MOST_PARTS) as usize * 2 * word];
    if memory::read_exact(tid, parts, &mut bytes).is_err() {
        return Effect::Protected((0, u64::MAX));
    }
    let value = |it: &[u8]| it.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    let parts = bytes.chunks_exact(2 * word).map(|part| part.split_at(word));
    let ranges = parts.map(|(address, bytes)| range(value(address), value(bytes)));
    let hull = ranges.reduce(|hull, part| (hull.0.min(part.0), hull.1.max(part.1)));
    hull.map_or(Effect::None, Effect::Protected)
}

/// The flag of clone(2) by which nobody who traces the maker traces the child.
pub const CLONE_UNTRACED: u64 = 0x80_0000;

/// Has clone3(2) make a child that is traced, whatever its arguments, which are `bytes` long, say.
pub fn trace_child(context: Context<'_>, tid: i32, arguments: u64, bytes: u64) {
    /// More arguments than the kernel takes.
    const MOST: u64 = 4096;
    let mut copy = vec![0; bytes.min(MOST) as usize];
    if bytes > MOST || copy.len() < 8 || memory::read_exact(tid, arguments, &mut copy).is_err() {
        return;
    }
    let (flags, _) = copy.split_at_mut(8);
    let untraced = (CLONE_UNTRACED as u32).to_le_bytes();
    flags.iter_mut().zip(untraced).for_each(|(byte, flag)| *byte &= !flag);
    context.write_vector(&copy);
    context.set(Slot::Rdi, context.vector_address());
}

/// The size of a segment of shared memory, given the list of them all that the kernel shows.
pub fn bytes_of_segment(segments: &str, id: i32) -> Option<u64> {
    let lines = segments.lines().map(|line| line.split_whitespace().skip(1));
    let mut known = lines.filter_map(|mut words| {
        let id = words.next()?.parse::<i32>().ok()?;
        Some((id, words.nth(1)?.parse().ok()?))
    });
    known.find(|(known, _)| *known == id).map(|(_, bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lwp_process::regs::Regs;

    fn registers() -> Raw {
        let [rbx, rcx, rdx, rsi, rdi] = [0xffff_ffff_0000_1000, 0x2000, 7, 0x32, 9];
        Raw { rbx, rcx, rdx, rsi, rdi, ..Regs::default().0 }
    }

    #[test]
    fn calls_of_32_bits_are_those_of_64() {
        let me = std::process::id() as i32;
        let call = |rax| of_32_bits(me, &Raw { rax, ..registers() });
        let mmap = call(192).unwrap();
        assert_eq!((mmap.number, mmap.args), (nr::MMAP, [0x1000, 0x2000, 7, 0x32]));
        assert_eq!(call(91).unwrap().number, nr::MUNMAP);
        assert_eq!(call(440).unwrap().number, nr::PROCESS_MADVISE_32);
        // getpid
        assert_eq!(call(20), None);
        let ipc = of_32_bits(me, &Raw { rax: 117, rbx: IPC_SHMDT, ..registers() }).unwrap();
        assert_eq!((ipc.number, ipc.args[0]), (nr::SHMDT, 9));
    }

    #[test]
    fn errors_of_32_bits_are_negative() {
        assert_eq!(result_of_32_bits(0xffff_fff4) as i64, -12);
        assert_eq!(result_of_32_bits(-12_i64 as u64) as i64, -12);
        assert_eq!(result_of_32_bits(0xf7ff_f000), 0xf7ff_f000);
    }

    #[test]
    fn advice_in_parts_is_about_all_between() {
        let parts: [u64; 4] = [0x7000, 0x1000, 0x3000, 0x10];
        let me = std::process::id() as i32;
        let call =
            |advice| Pending::new(nr::PROCESS_MADVISE, [0, parts.as_ptr() as u64, 2, advice]);
        assert_eq!(advised(me, &call(4)), Effect::Protected((0x3000, 0x8000)));
        assert_eq!(advised(me, &call(3)), Effect::None);
        let parts: [u32; 4] = [0x7000, 0x1000, 0x3000, 0x10];
        let call = Pending::new(nr::PROCESS_MADVISE_32, [0, parts.as_ptr() as u64, 2, 4]);
        assert_eq!(advised(me, &call), Effect::Protected((0x3000, 0x8000)));
    }

    #[test]
    fn what_the_virtual_cpu_lacks_is_refused_by_either_table() {
        let call = |number, one| Pending::new(number, [one, 32, 0, 0]);
        let refused = |number, one| refused_of_32_bits(&call(number, one), false);
        assert_eq!(refused(nr::PTRACE, 0), Some(EPERM));
        assert_eq!(refused(nr::RSEQ, 64), Some(ENOSYS));
        assert_eq!(refused(nr::RSEQ, 1), Some(EINVAL));
        assert_eq!(refused_of_32_bits(&call(nr::RSEQ, 64), true), None);
        assert_eq!(refused(nr::ARCH_PRCTL, ARCH_SET_CPUID), Some(ENODEV));
        assert_eq!(refused(nr::PRCTL, PR_SET_SYSCALL_USER_DISPATCH), Some(EINVAL));
        assert_eq!(refused(nr::PRCTL, 15), None);
        assert_eq!(refused(nr::MMAP, 0), None);
    }

    #[test]
    fn a_segment_is_known_by_its_number() {
        let segments = "       key      shmid perms                  size  cpid  lpid nattch\n         \
             0         11   600                  4096  1  1 1\n        -7         12   600 8192 1 1 1\n";
        assert_eq!(bytes_of_segment(segments, 12), Some(8192));
        assert_eq!(bytes_of_segment(segments, 11), Some(4096));
        assert_eq!(bytes_of_segment(segments, 4096), None);
    }

    #[test]
    fn words_of_64_bits_come_in_halves() {
        let me = std::process::id() as i32;
        let call = |rax, rbx| of_32_bits(me, &Raw { rax, rbx, ..registers() });
        // ipc(2) attaches the segment of its second argument at its fifth.
        let attach = call(117, IPC_SHMAT).expect("shmat");
        assert_eq!((attach.number, attach.args), (nr::SHMAT, [0x2000, 9, 7, 0]));
        assert_eq!(call(117, 1), None, "semaphores are no memory");
        let seek = call(140, 5).expect("_llseek");
        assert_eq!((seek.number, seek.args), (nr::LSEEK, [5, 0x2000 << 32 | 7, 9, 0]));
        let read = call(180, 5).expect("pread64");
        assert_eq!((read.number, read.args[3]), (nr::PREAD64, 9 << 32 | 0x32));
        // The old mmap(2) has its arguments in memory, which the low 32 bits may not reach.
        assert_eq!(call(90, 8), None);
    }

    #[test]
    fn children_are_traced_and_the_program_has_its_flags_back() {
        let me = std::process::id() as i32;
        let (flags, own) = (0x11 | CLONE_UNTRACED, 0xffff_ffff_0000_0000 | CLONE_UNTRACED);
        let mut regs = Raw { rbx: own, ..registers() };
        let held = hold(me, &Pending::new(nr::CLONE, [flags, 0, 0, 0]), &mut regs);
        assert_eq!((held, regs.rbx), (Some(Held::First(own)), 0x11));
        held.expect("it is held").put_back(me, &mut regs);
        assert_eq!(regs.rbx, own);
        assert_eq!(hold(me, &Pending::new(nr::CLONE, [0x11, 0, 0, 0]), &mut regs), None);
        assert_eq!(hold(me, &Pending::new(nr::GETPID, [flags, 0, 0, 0]), &mut regs), None);
    }

    #[test]
    fn flags_in_memory_are_put_back_unless_the_program_has_written_there() {
        use std::sync::atomic::{AtomicU64, Ordering};
        let me = std::process::id() as i32;
        let word = Box::new(AtomicU64::new(0x11 | CLONE_UNTRACED));
        let mut regs = registers();
        let at = word.as_ptr() as u64;
        let call = |bytes| Pending::new(nr::CLONE3, [at, bytes, 0, 0]);
        let now = || word.load(Ordering::SeqCst);
        assert_eq!(hold(me, &call(4), &mut regs), None, "too short for flags");
        let held = hold(me, &call(88), &mut regs).expect("it is held");
        assert_eq!(now(), 0x11);
        held.put_back(me, &mut regs);
        assert_eq!(now(), 0x11 | CLONE_UNTRACED);
        let held = hold(me, &call(88), &mut regs).expect("it is held");
        word.store(5, Ordering::SeqCst);
        held.put_back(me, &mut regs);
        assert_eq!((now(), regs.rbx), (5, registers().rbx));
        assert_eq!(hold(me, &call(88), &mut regs), None);
        let nowhere = Pending::new(nr::CLONE3, [8, 88, 0, 0]);
        assert_eq!(hold(me, &nowhere, &mut regs), None);
    }

    #[test]
    fn advice_whose_parts_cannot_be_read_may_be_about_everything() {
        let me = std::process::id() as i32;
        let call = |parts, many| Pending::new(nr::PROCESS_MADVISE, [0, parts, many, 4]);
        assert_eq!(advised(me, &call(8, 1)), Effect::Protected((0, u64::MAX)));
        assert_eq!(advised(me, &call(8, 0)), Effect::None);
        let hostile = Box::new([u64::MAX - 8, u64::MAX]);
        let Effect::Protected((from, to)) = advised(me, &call(hostile.as_ptr() as u64, 1)) else {
            panic!("it is about something");
        };
        assert!(from <= to, "{from:#x} {to:#x}");
    }
}

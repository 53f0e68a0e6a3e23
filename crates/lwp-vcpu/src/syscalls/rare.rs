//! Calls that seldom concern code: those of the 32-bit table, and advice about memory in parts.

use lwp_dbt::Slot;
use lwp_ptrace::memory;
use lwp_ptrace::regs::Raw;

use super::{Effect, Pending, discards, nr, range};
use crate::contexts::Context;

/// Most parts that the kernel takes.
const MOST_PARTS: u64 = 1024;
const IOVEC: usize = 16;
/// The operations of ipc(2) that attach and detach shared memory.
const IPC_SHMAT: u64 = 21;
const IPC_SHMDT: u64 = 22;

/// The call that INT 0x80 makes with these registers, as one of the 64-bit table; `None` for one
/// that changes no mapping.
pub fn of_32_bits(tid: i32, regs: &Raw) -> Option<Pending> {
    let words = [regs.rbx, regs.rcx, regs.rdx, regs.rsi, regs.rdi].map(|word| word & 0xffff_ffff);
    let [one, two, three, four, five] = words;
    let mut args = [one, two, three, four];
    let number = match regs.rax & 0xffff_ffff {
        45 => nr::BRK,
        90 => {
            let block: [u8; 16] = memory::read_array(tid, one).ok()?;
            for (arg, word) in args.iter_mut().zip(block.chunks_exact(4)) {
                *arg = u64::from(u32::from_le_bytes(word.try_into().ok()?));
            }
            nr::MMAP
        }
        91 => nr::MUNMAP,
        117 if one & 0xffff == IPC_SHMAT => {
            args = [two, five, three, 0];
            nr::SHMAT
        }
        117 if one & 0xffff == IPC_SHMDT => {
            args[0] = five;
            nr::SHMDT
        }
        125 => nr::MPROTECT,
        163 => nr::MREMAP,
        192 => nr::MMAP,
        219 => nr::MADVISE,
        257 => nr::REMAP_FILE_PAGES,
        380 => nr::PKEY_MPROTECT,
        397 => nr::SHMAT,
        398 => nr::SHMDT,
        _ => return None,
    };
    Some(Pending::new(number, args))
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
    let mut bytes = vec![0; many.min(MOST_PARTS) as usize * IOVEC];
    if memory::read_exact(tid, parts, &mut bytes).is_err() {
        return Effect::Protected((0, u64::MAX));
    }
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let ranges = bytes.chunks_exact(IOVEC).map(|part| range(word(&part[..8]), word(&part[8..])));
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
    use lwp_ptrace::regs::Regs;

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
    }
    #[test]
    fn a_segment_is_known_by_its_number() {
        let segments = "       key      shmid perms                  size  cpid  lpid nattch\n         \
             0         11   600                  4096  1  1 1\n        -7         12   600 8192 1 1 1\n";
        assert_eq!(bytes_of_segment(segments, 12), Some(8192));
        assert_eq!(bytes_of_segment(segments, 11), Some(4096));
        assert_eq!(bytes_of_segment(segments, 4096), None);
    }
}

//! System calls that concern the host only if their arguments do, which is rare although programs
//! make them by the thousand: mmap, munmap and other calls with a range of addresses, if it
//! contains code or memory of the virtual CPU; open and openat, if the file may be one in `/proc`
//! that shows the virtual CPU, or one with code that is opened for writing; lseek, fstat and other
//! calls with a descriptor of such a file; and calls that write to the program's memory, if that
//! may be a guarded page. A thread makes all others without the host.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeLabel, byte_ptr, dword_ptr, eax, ecx, edi, edx, esi, qword_ptr, r8, r9, r9d, r10, r10d,
    r11, rax, rcx, rdi, rdx, rsi, word_ptr,
};

use super::{ALL, Builder, begin_request, restore_all, restore_flags, save_flags, state};
use crate::context::{RANGES_AT, Slot, SyscallClass, ranges};
use crate::state_map::{Commit, PcSource, Spills};

const FLAGS: Spills = Spills { flags: true, ..ALL };
const SYS_OPEN: u32 = 2;
const SYS_MMAP: u32 = 9;
const SYS_MPROTECT: u32 = 10;
const SYS_MINCORE: u32 = 27;
const SYS_CLONE: u32 = 56;
const SYS_WAIT4: u32 = 61;
const SYS_OPENAT: u32 = 257;
const SYS_CLONE3: u32 = 435;
/// munmap, msync, madvise, mlock, munlock, mlock2, mseal.
const OF_RANGES: [u32; 7] = [11, 26, 28, 149, 150, 325, 462];
/// fstat, lseek, pread64, dup, dup2, fcntl, getdents, fstatfs, getdents64, newfstatat, dup3, statx.
const OF_DESCRIPTORS: [u32; 12] = [5, 8, 17, 32, 33, 72, 78, 138, 217, 262, 292, 332];
const PROT_EXEC: u32 = 4;
const CLONE_UNTRACED: u32 = 0x80_0000;
/// MAP_FIXED and MAP_FIXED_NOREPLACE.
const MAP_AT_PLACE: u32 = 0x10_0010;

/// The ends of paths that the host looks at: seven bytes at most. A path begins as if behind a
/// slash.
pub const LOOKED_AT: [&[u8]; 14] = [
    b"/maps", b"/stat", b"/statm", b"/smaps", b"/status", b"/limits", b"/mem", b"_rollup",
    b"ma_maps", b"p_files", b"onality", b"syscall", b"/wchan", b"faultfd",
];
const _: () = {
    let mut at = 0;
    while at < LOOKED_AT.len() {
        assert!(LOOKED_AT[at].len() < 8);
        at += 1;
    }
};
/// The bits of open's flags that say whether for writing: O_ACCMODE.
const ACCESS_MODE: u32 = 3;
/// O_CREAT and O_EXCL.
const NEW_FILE: u32 = 0o300;
/// The bit of [`Slot::Watched`] for all descriptors from it on.
const LAST_WATCHED: u32 = 62;
/// That of wait4(2).
const WATCHED_WAITS: u32 = 63;
/// Longer paths the kernel does not take.
const LONGEST_PATH: u32 = 4096;
/// The number of call numbers that have a class.
const CLASSES: u32 = 512;
/// Bytes that a call may write at an argument whatever the others are: those of getgroups(2).
const LEAST: i32 = 0x4_0000;
/// The largest structures that the kernel writes arrays of: io_getevents(2)'s.
const LARGEST: u32 = 32;

/// Ask for the system call at the pc in r11, whose application value is in its slot, unless it
/// concerns nobody: then it is made, and goes on as `Go` says.
///
/// ```text
/// all registers and flags saved, as before a request
/// one of [`OF_DESCRIPTORS`], wait4: the descriptor, or waits, are watched --> ring;  --> fills
/// clone, clone3: the child is not to be traced --> ring;  go back to the call in place
/// open, openat: a file that is there already is opened for writing --> ring
///     the path ends with one of `LOOKED_AT` --> ring;  --> run_and_go
/// it is none of mmap, mprotect, mincore and [`OF_RANGES`]:
///     it writes to memory --> fills;  --> ring
/// it makes something executable --> ring
/// mmap where the kernel chooses the place --> run_and_go
/// rax := end of what it concerns; for each range of code, and of ours: they overlap --> ring
/// the list of ranges has changed --> ring
/// mincore --> fills
/// --> run_and_go
/// fills: it may write to a guarded page --> ring;  --> run_and_go
/// ```
///
/// A path that cannot be read faults here; the host then takes the request as made.
pub(super) fn emit(
    b: &mut Builder,
    ring: CodeLabel,
    run_and_go: CodeLabel,
) -> Result<CodeLabel, IcedError> {
    let start = begin_request(b)?;
    b.asm.lea(r10, qword_ptr(r11 + 2))?;
    b.asm.mov(Builder::slot(Slot::Next), r10)?;
    // The number, before it makes room for the flags.
    b.asm.mov(r9, rax)?;
    save_flags(b)?;
    b.mark(state(PcSource::ContextPc, FLAGS, Commit::Mailbox))?;
    let mut ask = b.asm.create_label();
    let mut nobody = b.asm.create_label();
    let mut clone = b.asm.create_label();
    let mut clone3 = b.asm.create_label();
    for (number, place) in [(SYS_CLONE, clone), (SYS_CLONE3, clone3)] {
        b.asm.cmp(r9d, number)?;
        b.asm.je(place)?;
    }
    emit_search(b, ask, nobody)?;
    b.asm.set_label(&mut ask)?;
    restore_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.jmp(ring)?;
    b.mark(state(PcSource::ContextPc, FLAGS, Commit::Mailbox))?;
    b.asm.set_label(&mut nobody)?;
    restore_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.jmp(run_and_go)?;
    b.mark(state(PcSource::ContextPc, FLAGS, Commit::Mailbox))?;
    b.asm.set_label(&mut clone)?;
    emit_clone(b, ask, &mut clone3)?;
    Ok(start)
}

/// Goes to `ask` where clone(2) or, at `clone3`, clone3(2) makes a child that is not to be traced;
/// else back to the call in place, before which the registers are the application's again.
fn emit_clone(b: &mut Builder, ask: CodeLabel, clone3: &mut CodeLabel) -> super::Emit {
    /// The code in place up to where it goes on: a store to `Kind`, SYSCALL, and LEA or MOV of the
    /// next address to rcx.
    const STORE: i32 = 12;
    const WITH_LEA: i32 = 2 + 7;
    const WITH_MOV: i32 = 2 + 10;
    const SYSCALL: i32 = i16::from_le_bytes([0x0f, 0x05]) as i32;
    let mut back = b.asm.create_label();
    let mut near = b.asm.create_label();
    b.asm.test(edi, CLONE_UNTRACED)?;
    b.asm.jne(ask)?;
    b.asm.jmp(back)?;
    b.asm.set_label(clone3)?;
    b.asm.test(dword_ptr(rdi), CLONE_UNTRACED)?;
    b.asm.jne(ask)?;
    b.asm.set_label(&mut back)?;
    b.asm.mov(rcx, Builder::slot(Slot::Go))?;
    b.asm.lea(r11, qword_ptr(rcx - WITH_LEA - STORE))?;
    b.asm.cmp(word_ptr(rcx - WITH_LEA), SYSCALL)?;
    b.asm.je(near)?;
    b.asm.lea(r11, qword_ptr(rcx - WITH_MOV - STORE))?;
    b.asm.set_label(&mut near)?;
    b.asm.mov(Builder::slot(Slot::Go), r11)?;
    restore_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    restore_all(b)?;
    b.asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    b.asm.mov(r11, Builder::slot(Slot::R11))?;
    b.asm.jmp(Builder::slot(Slot::Go))
}

/// Goes to `ask` where the call may concern code, else to `nobody`.
fn emit_search(b: &mut Builder, ask: CodeLabel, nobody: CodeLabel) -> super::Emit {
    let asm = &mut b.asm;
    let mut others = asm.create_label();
    let mut path = asm.create_label();
    let mut path_at = asm.create_label();
    let mut descriptor = asm.create_label();
    let mut waits = asm.create_label();
    let mut protects = asm.create_label();
    let mut low = asm.create_label();
    let mut other = asm.create_label();
    let mut fills = asm.create_label();
    asm.cmp(r9d, SYS_OPENAT)?;
    asm.je(path_at)?;
    asm.cmp(r9d, SYS_OPEN)?;
    asm.je(path)?;
    asm.cmp(r9d, SYS_WAIT4)?;
    asm.je(waits)?;
    for (numbers, place) in
        [(&OF_DESCRIPTORS[..], descriptor), (&OF_RANGES, others), (&[SYS_MINCORE], others)]
    {
        for number in numbers {
            asm.cmp(r9d, *number)?;
            asm.je(place)?;
        }
    }
    asm.cmp(r9d, SYS_MPROTECT)?;
    asm.je(protects)?;
    asm.cmp(r9d, SYS_MMAP)?;
    asm.jne(other)?;
    // The kernel chooses a place where nothing is.
    asm.mov(rcx, Builder::slot(Slot::R10))?;
    asm.test(ecx, MAP_AT_PLACE)?;
    asm.jne(protects)?;
    asm.test(edx, PROT_EXEC)?;
    asm.jne(ask)?;
    asm.jmp(nobody)?;
    asm.set_label(&mut protects)?;
    asm.test(edx, PROT_EXEC)?;
    asm.jne(ask)?;
    asm.set_label(&mut others)?;
    emit_range(b, ask, nobody, fills)?;
    let asm = &mut b.asm;
    asm.set_label(&mut waits)?;
    asm.mov(edi, WATCHED_WAITS)?;
    asm.jmp(low)?;
    asm.set_label(&mut descriptor)?;
    asm.cmp(edi, LAST_WATCHED)?;
    asm.jb(low)?;
    asm.mov(edi, LAST_WATCHED)?;
    asm.set_label(&mut low)?;
    asm.mov(rax, Builder::slot(Slot::Watched))?;
    asm.bt(rax, rdi)?;
    asm.jc(ask)?;
    asm.mov(rdi, Builder::slot(Slot::Rdi))?;
    asm.mov(eax, SyscallClass::Fills as u32)?;
    asm.jmp(fills)?;
    asm.set_label(&mut path_at)?;
    asm.mov(rdi, rsi)?;
    asm.mov(esi, edx)?;
    asm.set_label(&mut path)?;
    emit_path(b, ask, nobody)?;
    b.asm.set_label(&mut other)?;
    b.asm.cmp(r9d, CLASSES)?;
    b.asm.jae(ask)?;
    b.asm.movzx(eax, byte_ptr(r9 + b.layout.syscall_classes() as i32))?;
    b.asm.cmp(eax, SyscallClass::Fills as u32)?;
    b.asm.jb(ask)?;
    b.asm.set_label(&mut fills)?;
    emit_fills(b, ask, nobody)
}

/// Goes to `ask` where the range of rsi bytes at rdi holds code, or something of ours; else, by the
/// number in r9d, to `fills` or to `nobody`.
fn emit_range(b: &mut Builder, ask: CodeLabel, nobody: CodeLabel, fills: CodeLabel) -> super::Emit {
    let word = |offset: u32| qword_ptr((RANGES_AT + offset) as i32).gs();
    let asm = &mut b.asm;
    let mut next = asm.create_label();
    let mut apart = asm.create_label();
    let mut end = asm.create_label();
    // What the call is about stands in the context before the list is looked at: the host, which is
    // about to map something of ours, writes the list and then looks at contexts.
    asm.mfence()?;
    asm.mov(r11, word(ranges::STATE))?;
    asm.mov(rcx, word(ranges::COUNT))?;
    asm.jrcxz(ask)?;
    asm.lea(rax, qword_ptr(rsi + 4095))?;
    asm.and(rax, -4096)?;
    asm.add(rax, rdi)?;
    asm.jc(ask)?;
    asm.mov(r8, Builder::slot(Slot::This))?;
    asm.lea(r8, qword_ptr(r8 + (RANGES_AT + ranges::FIRST) as i32))?;
    asm.set_label(&mut next)?;
    asm.lea(rcx, qword_ptr(rcx - 1))?;
    asm.jrcxz(end)?;
    asm.cmp(rdi, qword_ptr(r8 + 8))?;
    asm.jae(apart)?;
    asm.cmp(qword_ptr(r8), rax)?;
    asm.jb(ask)?;
    asm.set_label(&mut apart)?;
    asm.lea(r8, qword_ptr(r8 + 16))?;
    asm.jmp(next)?;
    asm.set_label(&mut end)?;
    asm.cmp(r11, word(ranges::STATE))?;
    asm.jne(ask)?;
    asm.cmp(r9d, SYS_MINCORE)?;
    asm.jne(nobody)?;
    asm.mov(r8, Builder::slot(Slot::R8))?;
    asm.mov(eax, SyscallClass::Fills as u32)?;
    asm.jmp(fills)
}

/// Goes to `ask` where the call, whose class is in eax, may write to a guarded page, else to
/// `nobody`.
///
/// ```text
/// there are no guarded pages --> nobody;  its arguments are not all --> ask
/// rax := more than the bytes that it may write at an argument, of which a number may be a count
/// for each argument: at it, or up to so many bytes behind it, there is a guarded page --> ask
/// --> nobody
/// ```
fn emit_fills(b: &mut Builder, ask: CodeLabel, nobody: CodeLabel) -> super::Emit {
    let asm = &mut b.asm;
    // The call stands in the context before the pages are looked at: the host, which is about to
    // guard a page, says so and then looks at contexts.
    asm.mfence()?;
    asm.mov(r11, Builder::slot(Slot::GuardedTo))?;
    asm.test(r11, r11)?;
    asm.je(nobody)?;
    asm.cmp(eax, SyscallClass::Fills as u32)?;
    asm.jne(ask)?;
    asm.mov(eax, 0u32)?;
    for number in [rsi, rdx, r10] {
        let mut other = asm.create_label();
        asm.mov(rcx, number)?;
        asm.shr(rcx, 31)?;
        asm.jne(other)?;
        asm.add(rax, number)?;
        asm.set_label(&mut other)?;
        asm.zero_bytes()?;
    }
    asm.shl(rax, LARGEST.trailing_zeros())?;
    asm.add(rax, LEAST)?;
    asm.mov(r9, Builder::slot(Slot::R9))?;
    for argument in [rdi, rsi, rdx, r10, r8, r9] {
        let mut before = asm.create_label();
        asm.cmp(argument, r11)?;
        asm.jae(before)?;
        asm.lea(rcx, qword_ptr(argument + rax))?;
        asm.cmp(rcx, Builder::slot(Slot::GuardedFrom))?;
        asm.ja(ask)?;
        asm.set_label(&mut before)?;
        asm.zero_bytes()?;
    }
    asm.jmp(nobody)
}

/// Goes to `ask` where the path at rdi ends with one of [`LOOKED_AT`], or is too long, or is opened
/// for writing by the flags in esi and may be there already, because there may be code in it; else
/// to `nobody`.
///
/// ```text
/// rax := "/";  for each byte of the path, and the zero behind it: rax := rax << 8 | it
/// for writing, and not only if it is new: it is /dev/null --> nobody;  --> ask
/// for each end: the last bytes in rax are those, and a zero --> ask
/// --> nobody
/// ```
fn emit_path(b: &mut Builder, ask: CodeLabel, nobody: CodeLabel) -> super::Emit {
    /// The last eight bytes of `/dev/null`, its zero included, as they stand in rax, and the others
    /// in memory.
    const NULL: (u64, i32) = (u64::from_be_bytes(*b"ev/null\0"), i16::from_le_bytes(*b"/d") as i32);
    let asm = &mut b.asm;
    let mut next = asm.create_label();
    let mut looked_at = asm.create_label();
    asm.mov(r9, rdi)?;
    asm.mov(rax, u64::from(b'/'))?;
    asm.mov(r10d, LONGEST_PATH)?;
    asm.set_label(&mut next)?;
    asm.sub(r10d, 1)?;
    asm.jc(ask)?;
    asm.movzx(ecx, byte_ptr(rdi))?;
    asm.lea(rdi, qword_ptr(rdi + 1))?;
    asm.shl(rax, 8)?;
    asm.or(rax, rcx)?;
    asm.test(ecx, ecx)?;
    asm.jne(next)?;
    asm.test(esi, ACCESS_MODE)?;
    asm.je(looked_at)?;
    asm.and(esi, NEW_FILE)?;
    asm.cmp(esi, NEW_FILE)?;
    asm.je(looked_at)?;
    asm.mov(rcx, NULL.0)?;
    asm.cmp(rax, rcx)?;
    asm.jne(ask)?;
    asm.cmp(r10d, LONGEST_PATH - b"/dev/null\0".len() as u32)?;
    asm.jne(ask)?;
    asm.cmp(word_ptr(r9), NULL.1)?;
    asm.jne(ask)?;
    asm.jmp(nobody)?;
    asm.set_label(&mut looked_at)?;
    for end in LOOKED_AT {
        let word = end.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)) << 8;
        let above = 64 - 8 * (end.len() as u32 + 1);
        asm.mov(rcx, rax)?;
        asm.shl(rcx, above)?;
        asm.mov(r8, word << above)?;
        asm.cmp(rcx, r8)?;
        asm.je(ask)?;
    }
    asm.jmp(nobody)
}

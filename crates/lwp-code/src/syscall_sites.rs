//! `syscall` instructions in a tracee, at which the host has it make calls.

use lwp_mailbox::memory_map::is_ours;
use lwp_process::maps::Mapping;
use lwp_process::{Tid, memory};

use crate::space::VSYSCALL;

/// Bytes at the beginning of an arena, among which are system calls of the routines.
const ROUTINES: u64 = 16 << 10;

/// The address of a `syscall` instruction in the tracee: in an arena, which nobody but the host can
/// write to, and else in what the program has.
///
/// # Errors
///
/// The reason for which none is found: as a rule, the kernel hides the process's memory.
pub fn find_syscall(tid: Tid, mappings: &[Mapping]) -> Result<u64, String> {
    let arenas = mappings.iter().filter(|m| m.shared && m.execute && !m.write && is_ours(m));
    // Each begins with the routines.
    let ours =
        arenas.filter_map(|arena| syscall_in(tid, arena.start, arena.start + ROUTINES)).next();
    ours.map_or_else(|| find_syscall_of_program(tid, mappings), Ok)
}

/// The address of a `syscall` instruction of the program's own. The program may exchange it at any
/// time: the call fails then.
///
/// # Errors
///
/// Those of [`find_syscall`].
pub fn find_syscall_of_program(tid: Tid, mappings: &[Mapping]) -> Result<u64, String> {
    const MOST: u64 = 4 << 20;
    let vdso_first = mappings
        .iter()
        .filter(|m| m.name == "[vdso]")
        .chain(mappings.iter().filter(|m| m.execute && m.name != "[vdso]"))
        .filter(|m| m.start < VSYSCALL && !is_ours(m));
    let found =
        vdso_first.filter_map(|m| syscall_in(tid, m.start, m.end.min(m.start + MOST))).next();
    found.ok_or_else(|| match mappings.is_empty() {
        true => {
            "lwp cannot look into its memory, as where its program may be executed but not read \
                 (make it readable or run lwp as root), or no /proc is mounted"
                .into()
        }
        false => "no system call instruction found in the program's memory".into(),
    })
}

/// The first `syscall` instruction between two addresses, read page by page.
fn syscall_in(tid: Tid, start: u64, end: u64) -> Option<u64> {
    let mut page = [0u8; 4096];
    for at in (start..end).step_by(page.len()) {
        memory::read_exact(tid, at, &mut page).ok()?;
        if let Some(index) = page.windows(2).position(|pair| pair == [0x0f, 0x05]) {
            return Some(at + index as u64);
        }
    }
    None
}

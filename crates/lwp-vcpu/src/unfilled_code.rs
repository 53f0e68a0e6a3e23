//! Code in pages that the program itself fills on demand: see [`lwp_process::missing_pages`].
//!
//! The host doesn't read such a page. It directs the thread that needs the code to a routine that
//! reads a byte of the page, and then requests the same code again. While the thread waits for the
//! page to be filled, it holds none of lwp's locks, and a signal finds it before the instruction.

use lwp_code::family::is_cut_short;
use lwp_dbt::{AppPc, Slot};
use lwp_mailbox::exit::ThreadCx;
use lwp_process::kernel_files;
use lwp_process::{Tid, missing_pages};

use crate::emulate::read_code;
use crate::machine::Machine;

/// The device by which descriptors of userfaultfd(2) are made, as its path ends.
const DEVICE: &str = "/userfaultfd";
const DESCRIPTOR: &str = "anon_inode:[userfaultfd]";

/// Returns the address of the first byte at `pc` that the program has yet to fill. What lies behind
/// the instruction is not asked for.
fn absent_byte(tid: Tid, pc: u64) -> Option<u64> {
    let at = missing_pages::first(tid, pc, lwp_arch::insn::LONGEST)?;
    let there = (at - pc) as usize;
    is_cut_short(&read_code(tid, pc)[..there]).then_some(at)
}

/// Reckons with such memory if a process has a descriptor by which it is made, or one of its own.
pub fn look_for_descriptors(pid: i32) {
    let descriptors = kernel_files::entries(pid, "fd").into_iter().flatten();
    for entry in descriptors.filter_map(Result::ok) {
        let name = format!("fd/{}", entry.file_name().display());
        let link = kernel_files::link(pid, &name).unwrap_or_default();
        let link = link.to_string_lossy();
        if link == DESCRIPTOR || link.ends_with(DEVICE) {
            missing_pages::expect();
        }
    }
}

/// A thread has opened a file at `fd`, perhaps the device that makes descriptors of userfaultfd(2).
pub fn opened(tid: Tid, fd: i32) {
    let link = kernel_files::link(tid, &format!("fd/{fd}")).unwrap_or_default();
    if link.to_string_lossy().ends_with(DEVICE) {
        missing_pages::expect();
    }
}

/// Returns the address of a byte of the instruction at `pc` that the program has yet to fill.
pub fn absent_code(machine: &mut Machine, tid: Tid, pc: u64) -> Option<u64> {
    let at = absent_byte(tid, pc)?;
    // What cannot be executed is not asked for.
    let (space, family) = machine.space_of(tid)?;
    space.code_at(family, tid, pc).map(|_| at)
}

/// Leads a thread that waits for an answer to the code at `pc`, if that is yet to be filled.
pub fn lead_to_absent(machine: &mut Machine, cx: ThreadCx, pc: AppPc) -> bool {
    let Some(at) = absent_code(machine, cx.tid, pc.0) else { return false };
    let Some((_, family)) = machine.space_of(cx.tid) else { return false };
    let routine = family.routine(family.translator.routines().lwp.touch_read);
    let context = machine.contexts.context(cx.slot);
    context.set(Slot::LwpTouch, at);
    context.answer(routine);
    true
}

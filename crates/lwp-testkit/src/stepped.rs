//! Every instruction of a native program, one at a time: an oracle for counts.
//!
//! # Safety
//!
//! JUSTIFICATION: a child that is traced from its beginning can only be made by fork, ptrace and
//! exec. Between fork and exec the child calls nothing but those two.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// An instruction that is about to be executed.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its address.
    pub pc: u64,
    /// The stack pointer.
    pub stack: u64,
    /// Eight bytes of code there.
    pub bytes: [u8; 8],
}

/// Runs `program`, which has one thread, natively and tells `each` of every instruction that
/// retires: a repeated string instruction once, system calls too. `None` where the kernel does not
/// let it.
pub fn each_instruction(program: &Path, mut each: impl FnMut(&Step)) -> Option<i32> {
    stay_on_this_processor();
    let path = CString::new(program.as_os_str().as_bytes()).ok()?;
    let arguments = [path.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];
    // SAFETY: the child makes two calls, with memory that was made ready before, and ends.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return None,
        0 => {
            // SAFETY: the vectors end with null pointers and their strings live; _exit does not
            // return.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                libc::_exit(127);
            }
        }
        _ => {}
    }
    let mut before: Option<Step> = None;
    loop {
        let mut status = 0;
        // SAFETY: the child is ours, and `status` is a place for an int.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
            return None;
        }
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            // Its last system call.
            before.iter().for_each(&mut each);
            return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        }
        let now = step_of(child);
        if let Some(step) = before.filter(|step| step.pc != now.pc) {
            each(&step);
        }
        before = Some(now);
        // SAFETY: the child is ours and has stopped.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) };
    }
}

/// Keeps this thread, and the children that it makes, on one processor: a stop, a step or a fork
/// then wakes and interrupts no other one, which takes most of the time in a virtual machine.
pub(crate) fn stay_on_this_processor() {
    // SAFETY: the set is plain bits, for which zero is a value; the kernel reads as many bytes of
    // it as are said. A refusal costs time alone.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu().max(0) as usize, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &raw const one);
    }
}

/// Returns the step that a stopped child is about to execute.
fn step_of(child: i32) -> Step {
    // SAFETY: the structure is plain numbers, for which zero is a value.
    let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: the child is ours and has stopped; the kernel fills the structure.
    unsafe { libc::ptrace(libc::PTRACE_GETREGS, child, 0, &raw mut regs) };
    // SAFETY: as before; a word of its memory is the result.
    let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, child, regs.rip, 0) };
    Step { pc: regs.rip, stack: regs.rsp, bytes: word.to_le_bytes() }
}

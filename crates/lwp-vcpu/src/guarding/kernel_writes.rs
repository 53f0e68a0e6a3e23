//! Writes by the kernel to pages that it can't write to while they are guarded.
//!
//! If the guard only handles a program's own writes, those that the kernel makes for the program
//! fail; those that it makes for an ending thread fail in any case. So the host first releases a
//! page to which the kernel is about to write, and doesn't guard it again. The kernel writes
//!
//! | when | and the page is released |
//! | --- | --- |
//! | in a system call | before the call: see [`lwp_calls::syscalls::filled`] |
//! | a signal's frame | at the stop before it is delivered, or when its stack becomes known |
//! | at the end of a thread | when the word becomes known; a robust lock's at the stop before |
//! | when a thread is made | at the event, and the word is written again |
//! | at any time, to buffers of io_uring | before they are registered, always |
//! | at any time (io_uring else) | with all others, for ever |
//!
//! A thread makes a call without the host if nothing that the call may write to is between the
//! first and the last guarded page, whose addresses are in the thread's context. The thread first
//! writes the call to its context and then reads these addresses. A host that is about to guard
//! other pages does it the other way round: it first writes the addresses to all contexts, and then
//! looks for such calls.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use lwp_calls::syscalls::{self, Pending};
use lwp_code::guards::{Notices, pages_of};
use lwp_dbt::{RequestKind, Slot};
use lwp_mailbox::contexts::Context;
use lwp_process::maps::Status;
use lwp_process::regs::Regs;
use lwp_process::{Tid, memory, sys};

use super::Guarding;
use crate::machine::{Machine, Need, Tasks};

/// Addresses from one to below the other.
type Range = (u64, u64);

/// Bytes below a stack pointer in which a signal's frame lies: the largest vector state is 11 KiB.
const FRAME: u64 = 0x8000;
/// Most locks of a robust list that the kernel looks at.
const MOST_LOCKS: usize = 2048;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;

/// A system call as a context describes it: its number and arguments.
fn call_in(context: Context<'_>) -> (u64, [u64; 6]) {
    let arguments = [Slot::Rdi, Slot::Rsi, Slot::Rdx, Slot::R10, Slot::R8, Slot::R9];
    (context.get(Slot::Rax) & 0xffff_ffff, arguments.map(|slot| context.get(slot)))
}

fn reader(tid: Tid) -> impl Fn(u64, &mut [u8]) -> usize {
    move |at, bytes| memory::read_some(tid, at, bytes).unwrap_or(0)
}

/// Everything that a call of `tid` may write to in its own address space.
fn filled_by(tid: Tid, (number, args): (u64, [u64; 6])) -> Vec<Range> {
    let mut ranges = syscalls::filled(number, &args);
    ranges.extend(syscalls::led_to(number, &args, &reader(tid)));
    ranges
}

impl Tasks {
    /// The ranges that a call of `tid` fills in another process, and a thread of that.
    fn filled_elsewhere(&self, tid: Tid, call: (u64, [u64; 6])) -> Option<(Tid, Vec<Range>)> {
        let (pid, ranges) = syscalls::filled_elsewhere(call.0, &call.1, &reader(tid))?;
        let mut threads = self.threads.iter();
        let (other, _) = threads.find(|(tid, thread)| **tid == pid || thread.pid == pid)?;
        Some((*other, ranges))
    }
}

/// Returns whether pages that the call in a thread's context may write to are still to be given
/// their own protection back: then the thread is to stand still for that, or to wait for
/// another one.
pub fn awaits_release(machine: &mut Machine, tid: Tid, slot: usize) -> bool {
    if !machine.processor.emulated.fills {
        return false;
    }
    let elsewhere = machine.tasks.filled_elsewhere(tid, call_in(machine.contexts.context(slot)));
    // It may be another thread of the same address space.
    let own = machine.tasks.base_space(tid);
    let other = elsewhere.map(|(other, _)| other).filter(|other| {
        machine.tasks.base_space(*other) != own
            && machine.caches.of(&machine.tasks).has_released(*other)
    });
    if let Some(other) = other
        && machine.tasks.threads.get(&other).is_some_and(|thread| thread.errand.need.is_none())
    {
        machine.ask_tracer(other, Need::Guard);
    }
    other.is_some() || machine.caches.of(&machine.tasks).has_released(tid)
}

impl Guarding<'_> {
    /// The notices of the address space of `tid`, if the kernel cannot write to what they guard.
    fn notices_to_release(&self, tid: Tid) -> Option<Arc<Notices>> {
        self.caches.of(self.tasks).notices_of(tid).filter(|notices| !notices.waits_for_kernel())
    }

    /// Has the kernel's writes to these ranges succeed, from now on. Returns whether they would
    /// have failed.
    fn release(&mut self, notices: &Notices, ranges: &[Range]) -> bool {
        let mut any = false;
        for page in ranges.iter().flat_map(|range| notices.leave(*range)) {
            self.cut_off_page(notices.key, page);
            notices.unprotect(page);
            any = true;
        }
        any
    }

    /// A thread is about to make the system call in its context. Pages that this releases may still
    /// have to be given their own protection back: see [`awaits_release`].
    pub fn about_to_fill(&mut self, tid: Tid, slot: usize, fills: bool) {
        let (number, args) = call_in(self.contexts.context(slot));
        for range in syscalls::filled_later(number, &args, &reader(tid)) {
            self.filled_later(tid, range);
        }
        if !fills {
            return;
        }
        if number == syscalls::nr::EXIT {
            self.about_to_leave_locks(tid);
        }
        let [a1, a2, a3, a4, fifth, _] = args;
        let call = Pending::new(number, [a1, a2, a3, a4]);
        let filters = syscalls::installs_filter(&call);
        if syscalls::fills_ever_after(number) || filters {
            self.do_without_notices(tid);
        }
        if let Some(notices) = self.notices_to_release(tid) {
            self.release(&notices, &filled_by(tid, (number, args)));
            self.release_touched(&notices, syscalls::touches(&call, fifth));
        }
        if let Some((other, ranges)) = self.tasks.filled_elsewhere(tid, (number, args))
            && let Some(notices) = self.notices_to_release(other)
        {
            self.release(&notices, &ranges);
        }
    }

    /// The kernel may write to `range` whenever it likes.
    fn filled_later(&mut self, tid: Tid, range: Range) {
        let base = self.tasks.base_space(tid);
        if let Some(Some(space)) = base.and_then(|base| self.caches.spaces.get_mut(base)) {
            space.unasked.add(range);
        }
        if let Some(notices) = self.caches.of(self.tasks).notices_of(tid) {
            self.release(&notices, &[range]);
        }
    }

    /// Nothing is guarded any more in the address space of `tid`.
    pub fn do_without_notices(&mut self, tid: Tid) {
        self.tasks.forget_cuts(self.contexts);
        for side in self.caches.of(self.tasks).all_sides(tid) {
            let Some((space, family)) = self.caches.side(side) else { continue };
            for unit in space.code.private_units() {
                family.invalidate_all(unit);
            }
            space.notices.give_up();
        }
    }

    /// A thread is about to make a call natively, of another form than the usual one.
    pub fn about_to_call_natively(&mut self, tid: Tid) {
        if self.notices_to_release(tid).is_some() {
            self.do_without_notices(tid);
        }
    }

    /// A signal is about to be delivered to `tid`, whose stack pointer is `stack`.
    pub fn about_to_lay_frame(&mut self, tid: Tid, stack: u64) {
        if let Some(notices) = self.notices_to_release(tid) {
            self.release(&notices, &[(stack.saturating_sub(FRAME), stack)]);
        }
    }

    /// A thread is about to end: the kernel marks the locks that it leaves behind.
    pub fn about_to_leave_locks(&mut self, tid: Tid) {
        let Some(notices) = self.caches.of(self.tasks).notices_of(tid) else { return };
        let Ok(head) = sys::robust_list(tid) else { return };
        let word = |at: u64| memory::read_u64(tid, at).unwrap_or(0);
        let (offset, pending) = (word(head.wrapping_add(8)), word(head.wrapping_add(16)));
        // The lowest bit of an address says something else.
        let next = |at: &u64| Some(word(*at) & !1).filter(|at| *at != head && *at != 0);
        let locks = std::iter::successors(next(&head), next).take(MOST_LOCKS);
        let words: Vec<Range> = locks
            .chain(Some(pending & !1).filter(|lock| *lock != 0))
            .map(|lock| lock.wrapping_add(offset))
            .map(|word| (word, word.saturating_add(4)))
            .collect();
        self.release(&notices, &words);
    }

    /// A thread has made `child` by the call in `regs`: the kernel has written its number, and will
    /// once more when it ends.
    pub fn made_by(&mut self, tid: Tid, child: Tid, regs: &Regs) {
        let word = |at: u64| memory::read_u64(tid, regs.0.rdi.wrapping_add(at)).unwrap_or(0);
        let (flags, theirs, own) = match regs.0.orig_rax {
            syscalls::nr::CLONE => (regs.0.rdi, regs.0.r10, regs.0.rdx),
            syscalls::nr::CLONE3 => (word(0), word(16), word(24)),
            _ => return,
        };
        let shares = self.tasks.base_space(child) == self.tasks.base_space(tid);
        if flags & CLONE_CHILD_CLEARTID != 0 {
            self.filled_later(child, (theirs, theirs.saturating_add(4)));
        }
        if flags & CLONE_PARENT_SETTID != 0 {
            self.number_at(tid, child, own);
        }
        if flags & CLONE_CHILD_SETTID != 0 && shares {
            self.number_at(tid, child, theirs);
        }
    }

    /// Writes the number of `child` to a word, where the kernel could not.
    fn number_at(&mut self, tid: Tid, child: Tid, word: u64) {
        let Some(notices) = self.notices_to_release(tid) else { return };
        let mut failed = self.release(&notices, &[(word, word.saturating_add(4))]);
        failed |= pages_of((word, word.saturating_add(4))).any(|page| notices.is_released(page));
        let own = Status::read(child).last_number("NSpid:");
        if let (true, Some(number)) = (failed, own) {
            let bytes = (number as u32).to_le_bytes();
            let written = memory::write_exact(tid, word, &bytes);
            // It may be protected until the thread goes on.
            let _ = written.or_else(|_| memory::force_write(tid, word, &bytes));
        }
    }

    /// Lets the threads of the address space of `tid` know that pages in `range` may be guarded,
    /// and keeps those alone that a call may write to which one of them is making.
    pub fn tell_guards(&mut self, tid: Tid, notices: &Notices, range: Range) {
        let Some((from, to)) = notices.widen(range) else { return };
        let base = self.tasks.base_space(tid);
        let beside = self.tasks.threads.iter().map(|(tid, thread)| (*tid, thread.slot));
        let beside: Vec<(Tid, usize)> =
            beside.filter(|(tid, _)| self.tasks.base_space(*tid) == base).collect();
        for (_, slot) in &beside {
            self.contexts.context(*slot).set(Slot::GuardedFrom, from);
            self.contexts.context(*slot).set(Slot::GuardedTo, to);
        }
        // A thread stores its call and then looks at these.
        fence(Ordering::SeqCst);
        for (tid, slot) in beside {
            let context = self.contexts.context(slot);
            if context.kind() == RequestKind::Syscall {
                let call = call_in(context);
                self.release(notices, &filled_by(tid, call));
            }
        }
    }

    /// Lets a new thread know what those of its address space have been told.
    pub fn tell_guards_to(&self, tid: Tid) {
        let told = self.notices_to_release(tid).map_or((0, 0), |notices| notices.told_range());
        if let Some(thread) = self.tasks.threads.get(&tid) {
            self.contexts.context(thread.slot).set(Slot::GuardedFrom, told.0);
            self.contexts.context(thread.slot).set(Slot::GuardedTo, told.1);
        }
    }
}

/// Lets the threads beside `tid` know once more in which range pages may be guarded, if something
/// else is mapped there since they were told.
pub fn tell_again(machine: &mut Machine, tid: Tid) {
    let mut guarding = machine.guarding();
    let Some(notices) = guarding.notices_to_release(tid) else { return };
    if let Some(range) = notices.told_anew() {
        guarding.tell_guards(tid, &notices, range);
    }
}

//! Signals in every phase: before they are taken, at the handler, and where nobody handles them.

use std::time::Duration;

use lwp_calls::syscalls::nr;
use lwp_dbt::{RequestKind, Slot};
use lwp_process::Stop;
use lwp_process::regs::Regs;
use lwp_process::tracees::Until;

use super::needs::needs;
use super::script::Done::{Detached, Goes, Interrupted, Listens, Sent};
use super::stage::{Idle, Stage};
use super::{branches, leaf, pc_of};
use crate::machine::{Mode, Need};
use crate::tracer::{ignored_signals, retranslate, sigaction_order};

const SIGTRAP: i32 = 5;
const SIGABRT: i32 = 6;
const SIGUSR1: i32 = 10;
const SIGSEGV: i32 = 11;
const SIGUSR2: i32 = 12;
const SIGSTOP: i32 = 19;
/// Nobody handles it, and it is ignored then.
const SIGWINCH: i32 = 28;
const SI_USER: i32 = 0;
const SEGV_MAPERR: i32 = 1;
const TRAP_TRACE: i32 = 2;
const TRAP_FLAG: u64 = 0x100;
const EINTR: u64 = -4i64 as u64;
const ERESTARTNOHAND: u64 = -514i64 as u64;
const ERESTART_RESTARTBLOCK: u64 = -516i64 as u64;
const ENOSYS: u64 = -38i64 as u64;
const PAUSE: u64 = 34;
const RT_SIGPROCMASK: u64 = 14;
const EPOLL_WAIT: u64 = 232;

#[test]
fn a_signal_finds_the_program_s_registers_and_its_handler_is_led_into_translated_code() {
    let (stage, mut cache) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    cache.0.rdx = 77;
    stage.stands(tid, &cache);
    let done = stage.signal(tid, SIGUSR1, SI_USER, 0);
    // It stops again before it executes anything.
    assert_eq!(done, [Interrupted(tid), Goes(tid, Until::Event, SIGUSR1)]);
    let shown = stage.regs(tid).0;
    assert_eq!((shown.rip, shown.rdx), (pc_of(leaf), 77));
    assert!(matches!(stage.mode(tid), Mode::Delivering { cache: Some(it), .. } if it == cache));
    let mut handler = stage.regs(tid);
    (handler.0.rip, handler.0.rsp) = (pc_of(branches), stage.rsp() - 512);
    stage.stands(tid, &handler);
    let done = stage.stop(tid, Stop::Interrupted);
    stage.expect_entered(tid, pc_of(branches), &done);
}

#[test]
fn a_signal_that_nobody_handles_leaves_a_thread_where_it_was() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    stage.signal(tid, SIGWINCH, SI_USER, 0);
    let done = stage.stop(tid, Stop::Interrupted);
    assert_eq!(done, [Goes(tid, Until::Event, 0)]);
    assert_eq!(stage.regs(tid), cache);
    assert!(matches!(stage.mode(tid), Mode::Running));
}

#[test]
fn a_second_signal_is_taken_from_the_same_state() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    stage.signal(tid, SIGUSR1, SI_USER, 0);
    let done = stage.signal(tid, SIGUSR2, SI_USER, 0);
    assert_eq!(done, [Interrupted(tid), Goes(tid, Until::Event, SIGUSR2)]);
    assert_eq!(stage.regs(tid).0.rip, pc_of(leaf));
    assert!(matches!(stage.mode(tid), Mode::Delivering { cache: Some(it), .. } if it == cache));
}

#[test]
fn a_thread_outside_of_translated_code_takes_its_signal_there() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let native = stage.regs_at(pc_of(leaf));
    stage.stands(stage.tid, &native);
    let done = stage.signal(stage.tid, SIGUSR1, SI_USER, 0);
    assert_eq!(done, [Goes(stage.tid, Until::Event, SIGUSR1)]);
    assert_eq!(stage.regs(stage.tid), native);
}

#[test]
fn a_fault_at_translated_code_is_shown_at_the_program_s() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    stage.signal(tid, SIGSEGV, SEGV_MAPERR, cache.0.rip + 1);
    let shown = stage.script.thread(tid, |thread| thread.info.expect("a signal").2);
    assert_eq!(shown, pc_of(leaf) + 1);
    // An address of the program's is shown as it is, and one that was sent is the sender's.
    for (code, address) in [(SEGV_MAPERR, 0x1234), (SI_USER, cache.0.rip + 1)] {
        let (stage, _) = Stage::at(pc_of(leaf));
        stage.signal(stage.tid, SIGSEGV, code, address);
        let shown = stage.script.thread(stage.tid, |thread| thread.info.expect("a signal"));
        assert_eq!(shown.2, address);
    }
}

#[test]
fn code_that_cannot_be_compared_as_a_whole_is_executed_as_far_as_it_is_there() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    let done = stage.signal(tid, SIGSEGV, SEGV_MAPERR, pc_of(leaf));
    assert_eq!(done, [Goes(tid, Until::Instruction, 0)]);
    assert_eq!(stage.regs(tid).0.rip, pc_of(leaf));
    assert!(
        matches!(stage.mode(tid), Mode::Stepping { pc, trapped: false, .. } if pc == pc_of(leaf))
    );
}

#[test]
fn an_instruction_that_was_executed_alone_counts_once() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    stage.signal(tid, SIGSEGV, SEGV_MAPERR, pc_of(leaf));
    let before = stage.machine().counting().thread_sum(tid).counts().instructions;
    let next = stage.regs_at(pc_of(branches));
    stage.stands(tid, &next);
    let done = stage.signal(tid, SIGTRAP, TRAP_TRACE, 0);
    stage.expect_entered(tid, pc_of(branches), &done);
    assert_eq!(stage.machine().counting().thread_sum(tid).counts().instructions, before + 1);
}

#[test]
fn an_instruction_that_faults_does_not_count_and_its_signal_is_delivered() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    stage.signal(tid, SIGSEGV, SEGV_MAPERR, pc_of(leaf));
    let before = stage.machine().counting().thread_sum(tid).counts().instructions;
    let done = stage.signal(tid, SIGSEGV, SEGV_MAPERR, 0x1234);
    assert_eq!(done, [Interrupted(tid), Goes(tid, Until::Event, SIGSEGV)]);
    assert_eq!(stage.machine().counting().thread_sum(tid).counts().instructions, before);
    assert!(matches!(stage.mode(tid), Mode::Delivering { cache: None, .. }));
}

#[test]
fn a_program_that_sets_its_trap_flag_gets_the_processor_s_traps() {
    let (stage, mut cache) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    cache.0.eflags |= TRAP_FLAG;
    stage.stands(tid, &cache);
    let done = stage.signal(tid, SIGTRAP, TRAP_TRACE, 0);
    assert_eq!(done, [Goes(tid, Until::Instruction, 0)]);
    assert!(matches!(stage.mode(tid), Mode::Stepping { trapped: true, .. }));
    let mut next = stage.regs_at(pc_of(leaf) + 1);
    next.0.eflags |= TRAP_FLAG;
    stage.stands(tid, &next);
    let done = stage.signal(tid, SIGTRAP, TRAP_TRACE, 0);
    assert_eq!(done, [Interrupted(tid), Goes(tid, Until::Event, SIGTRAP)]);
    assert_eq!(stage.regs(tid).0.eflags & TRAP_FLAG, TRAP_FLAG);
    assert_eq!(stage.regs(tid).0.rip, pc_of(leaf) + 1);
}

#[test]
fn a_stop_of_job_control_is_kept_and_ends_the_call_that_it_interrupts() {
    let (stage, mut cache) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    assert_eq!(stage.stop(tid, Stop::Group(SIGSTOP)), [Listens(tid)]);
    assert!(stage.machine().tasks.threads[&tid].signals.stopped);
    (cache.0.orig_rax, cache.0.rax) = (PAUSE, EINTR);
    stage.stands(tid, &cache);
    stage.stop(tid, Stop::Group(SIGSTOP));
    assert!(!stage.regs(tid).in_syscall());
    // A call that is made again in any case is left to the kernel.
    (cache.0.orig_rax, cache.0.rax) = (PAUSE, ERESTARTNOHAND);
    stage.stands(tid, &cache);
    stage.stop(tid, Stop::Group(SIGSTOP));
    assert!(stage.regs(tid).in_syscall());
    assert_eq!(stage.stop(tid, Stop::Interrupted).last(), Some(&Goes(tid, Until::Event, 0)));
    assert!(!stage.machine().tasks.threads[&tid].signals.stopped);
}

#[test]
fn a_signal_voids_what_a_thread_waits_for() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    let waits = stage.asking(tid, RequestKind::Step, pc_of(leaf));
    stage.stands(tid, &waits);
    stage.machine().ask_tracer(tid, Need::Step);
    stage.signal(tid, SIGUSR1, SI_USER, 0);
    assert_eq!(stage.regs(tid).0.rip, pc_of(leaf));
    let handler = stage.regs_at(pc_of(branches));
    stage.stands(tid, &handler);
    let done = stage.stop(tid, Stop::Interrupted);
    stage.expect_entered(tid, pc_of(branches), &done);
    assert_eq!(stage.machine().tasks.threads[&tid].errand.need, None);
}

#[test]
fn a_need_is_met_after_a_signal_that_nobody_handles() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    let waits = stage.asking(tid, RequestKind::Step, pc_of(leaf));
    stage.stands(tid, &waits);
    stage.machine().ask_tracer(tid, Need::Step);
    stage.signal(tid, SIGWINCH, SI_USER, 0);
    let done = stage.stop(tid, Stop::Interrupted);
    assert_eq!(done, [Goes(tid, Until::Instruction, 0)]);
    assert!(matches!(stage.mode(tid), Mode::Stepping { .. }));
}

/// A thread waits, and a signal that nobody handles has interrupted that.
fn waits_calmly() -> (Stage, Regs) {
    let (stage, in_call, _) = Stage::in_call(PAUSE, ERESTARTNOHAND);
    let tid = stage.tid;
    stage.signal(tid, SIGWINCH, SI_USER, 0);
    assert!(stage.regs(tid).in_syscall(), "the kernel is to know that it was in a call");
    let done = stage.stop(tid, Stop::Interrupted);
    assert_eq!(done, [Goes(tid, Until::Syscall, 0)]);
    let bit = 1 << (SIGWINCH - 1);
    assert_eq!(stage.script.thread(tid, |thread| thread.mask) & bit, bit);
    assert!(stage.machine().tasks.threads[&tid].signals.calm.is_some());
    (stage, in_call)
}

#[test]
fn a_thread_in_a_call_is_kept_calm_until_the_call_returns() {
    let (stage, _) = waits_calmly();
    let tid = stage.tid;
    // The call begins again, and ends.
    stage.script.thread(tid, |thread| thread.regs.0.rax = ENOSYS);
    assert_eq!(stage.stop(tid, Stop::Syscall), [Goes(tid, Until::Syscall, 0)]);
    stage.script.thread(tid, |thread| thread.regs.0.rax = 0);
    assert_eq!(stage.stop(tid, Stop::Syscall), [Goes(tid, Until::Event, 0)]);
    assert_eq!(stage.script.thread(tid, |thread| thread.mask), 0);
    assert!(stage.machine().tasks.threads[&tid].signals.calm.is_none());
}

#[test]
fn another_signal_ends_the_calm_of_a_thread_and_finds_its_call_interrupted() {
    let (stage, in_call) = waits_calmly();
    let tid = stage.tid;
    stage.script.thread(tid, |thread| thread.regs.0.rax = ENOSYS);
    stage.stop(tid, Stop::Syscall);
    stage.stands(tid, &in_call);
    stage.signal(tid, SIGUSR1, SI_USER, 0);
    assert_eq!(stage.script.thread(tid, |thread| thread.mask), 0);
    assert!(stage.machine().tasks.threads[&tid].signals.calm.is_none());
    // The kernel decides by its action whether the call is made again.
    assert!(stage.regs(tid).in_syscall());
    assert_eq!(stage.regs(tid).0.rax, ERESTARTNOHAND);
}

#[test]
fn a_call_that_would_show_what_is_kept_from_a_thread_is_taken_back() {
    let (stage, _) = waits_calmly();
    let tid = stage.tid;
    // rt_sigprocmask(2) with room for the old mask.
    let mut asks = stage.regs(tid);
    (asks.0.orig_rax, asks.0.rax) = (RT_SIGPROCMASK, ENOSYS);
    (asks.0.rdi, asks.0.rsi, asks.0.rdx, asks.0.r10) = (0, 0, stage.rsp(), 8);
    stage.stands(tid, &asks);
    assert_eq!(stage.stop(tid, Stop::Syscall), [Goes(tid, Until::Syscall, 0)]);
    assert!(!stage.regs(tid).in_syscall(), "the kernel makes no call");
    let done = stage.stop(tid, Stop::Syscall);
    assert_eq!(done.last(), Some(&Goes(tid, Until::Event, 0)));
    assert_eq!(stage.script.thread(tid, |thread| thread.mask), 0);
    let again = stage.regs(tid).0;
    assert_eq!((again.rip, again.rax), (asks.0.rip - 2, RT_SIGPROCMASK));
}

#[test]
fn a_wait_that_cannot_be_restarted_is_made_again_or_is_over() {
    const NANOSLEEP: u64 = 35;
    // It has failed with EINTR in the eyes of the kernel: epoll_wait(2) without end.
    let (stage, in_call, _) = Stage::in_call(EPOLL_WAIT, EINTR);
    let tid = stage.tid;
    stage.script.thread(tid, |thread| thread.regs.0.r10 = -1i64 as u64);
    stage.signal(tid, SIGWINCH, SI_USER, 0);
    stage.stop(tid, Stop::Interrupted);
    let again = stage.regs(tid).0;
    assert_eq!((again.rip, again.rax), (in_call.0.rip - 2, EPOLL_WAIT));
    // A stop on its way: the call has been interrupted after all.
    stage.signal(tid, SIGUSR1, SI_USER, 0);
    assert_eq!(stage.regs(tid).0.rax, EINTR);
    assert!(stage.regs(tid).in_syscall());
    // One that the kernel restarts by itself is left to it.
    let (stage, in_call, _) = Stage::in_call(NANOSLEEP, ERESTART_RESTARTBLOCK);
    stage.signal(stage.tid, SIGWINCH, SI_USER, 0);
    stage.stop(stage.tid, Stop::Interrupted);
    assert_eq!(stage.regs(stage.tid), in_call);
}

#[test]
fn a_wait_that_was_led_elsewhere_does_not_end_the_next_one() {
    let (stage, in_call, _) = Stage::in_call(EPOLL_WAIT, EINTR);
    let tid = stage.tid;
    let mut short = in_call;
    short.0.r10 = 20;
    ignored_signals::resume_call_elsewhere(&mut stage.machine(), tid, &mut short);
    assert_eq!((short.0.rip, short.0.rax), (in_call.0.rip - 2, EPOLL_WAIT));
    std::thread::sleep(Duration::from_millis(21));
    // At the same place, without end.
    let mut endless = in_call;
    endless.0.r10 = -1i64 as u64;
    ignored_signals::resume_call(&mut stage.machine(), tid, &mut endless);
    assert_eq!((endless.0.rip, endless.0.rax), (in_call.0.rip - 2, EPOLL_WAIT));
}

#[test]
fn a_transfer_that_is_cut_goes_on_with_what_is_left() {
    const GETRANDOM: u64 = 318;
    let (stage, mut cut, _) = Stage::in_call(GETRANDOM, 256);
    let tid = stage.tid;
    (cut.0.rdi, cut.0.rsi) = (0x1000, 1024);
    stage.stands(tid, &cut);
    stage.signal(tid, SIGWINCH, SI_USER, 0);
    assert_eq!(stage.stop(tid, Stop::Interrupted), [Goes(tid, Until::Syscall, 0)]);
    let rest = stage.regs(tid).0;
    assert_eq!((rest.rip, rest.rax), (cut.0.rip - 2, GETRANDOM));
    assert_eq!((rest.rdi, rest.rsi), (0x1100, 768));
    // The rest is made, and the program sees one call.
    let mut begins = stage.regs(tid);
    (begins.0.rip, begins.0.orig_rax, begins.0.rax) = (cut.0.rip, GETRANDOM, ENOSYS);
    stage.stands(tid, &begins);
    assert_eq!(stage.stop(tid, Stop::Syscall), [Goes(tid, Until::Syscall, 0)]);
    begins.0.rax = 768;
    stage.stands(tid, &begins);
    assert_eq!(stage.stop(tid, Stop::Syscall).last(), Some(&Goes(tid, Until::Event, 0)));
    let whole = stage.regs(tid).0;
    assert_eq!((whole.rax, whole.rdi, whole.rsi), (1024, 0x1000, 1024));
}

#[test]
fn a_core_dump_waits_for_all_threads_of_its_process() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    let (tid, other) = (stage.tid, stage.another());
    stage.script.thread(other.tid, |thread| thread.stopped = false);
    let done = stage.signal(tid, SIGABRT, SI_USER, 0);
    assert_eq!(done, [Interrupted(other.tid)], "it takes its signal when the other stands still");
    assert!(stage.script.stands(tid));
    stage.stands(other.tid, &cache);
    let done = stage.stop(other.tid, Stop::Interrupted);
    assert_eq!(done, [Interrupted(tid), Goes(tid, Until::Event, SIGABRT)]);
    assert_eq!(stage.regs(other.tid).0.rip, pc_of(leaf), "the dump has its registers");
    assert!(matches!(stage.mode(other.tid), Mode::Parked { .. }));
    // The first process of a namespace survives such a signal.
    let done = stage.stop(tid, Stop::Interrupted);
    assert!(done.contains(&Goes(other.tid, Until::Event, 0)), "{done:?}");
    assert!(matches!(stage.mode(other.tid), Mode::Running));
    assert_eq!(stage.slot(other.tid, Slot::Pc), pc_of(leaf));
}

#[test]
fn a_process_that_dies_alone_waits_for_nobody() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    let done = stage.signal(tid, SIGABRT, SI_USER, 0);
    assert_eq!(done, [Interrupted(tid), Goes(tid, Until::Event, SIGABRT)]);
}

#[test]
fn a_thread_that_is_let_go_takes_its_own_registers_along() {
    let (stage, mut cache) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    stage.machine().context(tid).expect("it lives").set(Slot::AppGs, 0x5000);
    cache.0.rbx = 9;
    stage.stands(tid, &cache);
    let mut tracer = stage.tracer();
    tracer.detach_all();
    assert_eq!(stage.script.done(), [Interrupted(tid)]);
    tracer.stopped(tid, Stop::Interrupted);
    assert_eq!(stage.script.done().last(), Some(&Detached(tid)));
    let regs = stage.regs(tid).0;
    assert_eq!((regs.rip, regs.rbx, regs.gs_base), (pc_of(leaf), 9, 0x5000));
    assert!(stage.machine().tasks.threads.is_empty());
    assert!(stage.machine().tasks.processes.is_empty());
}

#[test]
fn a_calm_thread_is_looked_at_now_and_then_and_stopped_once_for_that() {
    let (stage, _) = waits_calmly();
    let tid = stage.tid;
    let look = |all| ignored_signals::look(&mut stage.machine(), all);
    let next = look(false).expect("it is looked at again");
    assert_eq!(stage.script.done(), []);
    // It is to be let go: until it has stopped, nothing more is asked of it.
    let soon = look(true).expect("its stop is waited for");
    assert_eq!(stage.script.done(), [Interrupted(tid)]);
    assert!(soon <= next);
    look(true);
    assert_eq!(stage.script.done(), []);
    // It has stopped, and its call goes on.
    stage.stop(tid, Stop::Interrupted);
    look(true);
    assert_eq!(stage.script.done(), [Interrupted(tid)]);
    let (awake, _) = Stage::at(pc_of(leaf));
    assert_eq!(ignored_signals::look(&mut awake.machine(), true), None, "nobody is calm");
}

/// A process of two threads chooses a handler for a signal that it ignores; one of them asks.
fn chooses_a_handler(handler: u64, signal: u64) -> (Stage, Idle, bool) {
    let (stage, _) = Stage::at(pc_of(leaf));
    let (tid, other) = (stage.tid, stage.another());
    let action = Box::new([handler, 0, 0, 0]);
    let waits = stage.asking(tid, RequestKind::Syscall, b"\x0f\x05\x90".as_ptr() as u64);
    stage.stands(tid, &waits);
    let mut machine = stage.machine();
    let slot = machine.tasks.threads[&tid].slot;
    let at = action.as_ptr() as u64;
    for (field, value) in [
        (Slot::Rax, nr::RT_SIGACTION),
        (Slot::Rdi, signal),
        (Slot::Rsi, at),
        (Slot::Rdx, 0),
        (Slot::R10, 8),
    ] {
        machine.contexts.context(slot).set(field, value);
    }
    machine.answer(slot, false);
    let settles = machine.tasks.threads[&tid].errand.need == Some(Need::Settle);
    drop(machine);
    (stage, other, settles)
}

#[test]
fn a_handler_is_chosen_when_no_signal_is_on_its_way_that_was_ignored_before() {
    // Programs in this language begin with it ignored.
    const SIGPIPE: u64 = 13;
    const HANDLER: u64 = 0x5000;
    for (handler, signal) in [(HANDLER, SIGUSR1 as u64), (1, SIGPIPE), (HANDLER, 65)] {
        let (_stage, _other, settles) = chooses_a_handler(handler, signal);
        assert!(!settles, "{handler:#x} for {signal}");
    }
    let (stage, other, settles) = chooses_a_handler(HANDLER, SIGPIPE);
    assert!(settles);
    let tid = stage.tid;
    let pc = b"\x0f\x05\x90".as_ptr() as u64;
    let settle = |signal: u64| {
        needs(&stage, Need::Settle, pc, |regs| {
            (regs.0.rax, regs.0.rdi, regs.0.r10) = (nr::RT_SIGACTION, signal, 8);
        })
    };
    let asked = || stage.machine().tasks.threads[&tid].signals.wait.asked;
    // The other thread has been stopped by such a signal, which is to be thrown away.
    stage.script.thread(other.tid, |thread| thread.info = Some((SIGPIPE as i32, SI_USER, 0)));
    for times in 1..=2 {
        let done = settle(SIGPIPE);
        stage.expect_entered(tid, pc, &done);
        assert_eq!(asked(), times);
    }
    // By the time that it asks again there is none; nor is there one of a number that is none.
    stage.script.thread(other.tid, |thread| thread.info = None);
    for signal in [SIGPIPE, 0, 65, u64::MAX] {
        let done = settle(signal);
        assert_eq!(done.last(), Some(&Goes(tid, Until::Event, 0)));
        assert_eq!(stage.regs(tid).0.rip, stage.routine(|routines| routines.run));
        assert_eq!(asked(), 0);
    }
}

/// A signal that the test's process has a handler for, which changes nothing here.
fn handled_signal() -> i32 {
    const SIGCHLD: i32 = 17;
    let event = Box::leak(Box::new(lwp_process::sys::event_fd().expect("an eventfd")));
    lwp_process::sys::signal_child_events(event).expect("a handler");
    SIGCHLD
}

/// A thread that has just come back from the handler of `signal`, and has executed nothing since.
fn back_from_a_handler(signal: i32, code: i32) -> (Stage, Regs) {
    let (stage, _) = Stage::at(pc_of(leaf));
    let tid = stage.tid;
    stage.signal(tid, signal, code, 0);
    let mut handler = stage.regs_at(pc_of(branches));
    handler.0.rsp -= 512;
    stage.stands(tid, &handler);
    stage.stop(tid, Stop::Interrupted);
    let landing = stage.regs_at(stage.routine(|routines| routines.sigreturn));
    let context = stage.machine().context(tid).map(|context| {
        context.set(Slot::SigPc, pc_of(leaf));
        context.set(Slot::SigFrame, landing.0.rsp);
    });
    context.expect("it lives");
    stage.stands(tid, &landing);
    (stage, landing)
}

#[test]
fn a_timer_that_fires_too_soon_is_held_until_the_program_has_gone_on() {
    const SI_TIMER: i32 = -2;
    const SI_TKILL: i32 = -6;
    const GETPID: u64 = 39;
    let signal = handled_signal();
    let (stage, mut regs) = back_from_a_handler(signal, SI_TIMER);
    let tid = stage.tid;
    let mask = |tid| stage.script.thread(tid, |thread| thread.mask);
    let done = stage.signal(tid, signal, SI_TIMER, 0);
    assert_eq!(done.last(), Some(&Goes(tid, Until::Syscall, 0)), "{done:?}");
    assert_eq!(stage.regs(tid), regs, "it goes on where it stood");
    assert_ne!(mask(tid) & ignored_signals::bit(signal as u32), 0);
    // A call is taken back, and what was held comes before it.
    let behind = regs.0.rip;
    (regs.0.orig_rax, regs.0.rax) = (GETPID, ENOSYS);
    stage.stands(tid, &regs);
    stage.stop(tid, Stop::Syscall);
    assert!(!stage.regs(tid).in_syscall());
    let taken_back = stage.regs(tid);
    stage.stands(tid, &taken_back);
    let done = stage.stop(tid, Stop::Syscall);
    assert_eq!(done, [Sent(tid, signal), Goes(tid, Until::Event, 0)]);
    assert_eq!((stage.regs(tid).0.rip, stage.regs(tid).0.rax), (behind - 2, GETPID));
    assert_eq!(mask(tid), 0);
    // It says what it said at first, and is not held again.
    let at_call = stage.regs(tid);
    stage.stands(tid, &at_call);
    let done = stage.signal(tid, signal, SI_TKILL, 0);
    assert_eq!(done.last(), Some(&Goes(tid, Until::Event, signal)), "{done:?}");
    assert_eq!(stage.script.thread(tid, |thread| thread.info), Some((signal, SI_TIMER, 0)));
}

#[test]
fn an_action_waits_for_a_signal_that_is_held_after_it_has_first_asked() {
    const SI_TIMER: i32 = -2;
    let signal = handled_signal();
    let (stage, _) = back_from_a_handler(signal, SI_TIMER);
    let (tid, other) = (stage.tid, stage.another());
    let mut app = stage.regs_at(pc_of(leaf));
    (app.0.rax, app.0.rdi, app.0.r10) = (nr::RT_SIGACTION, signal as u64, 8);
    let asked = || {
        stage.stands(other.tid, &app);
        sigaction_order::call(&mut stage.machine(), other.tid, &app).expect("it goes on");
        stage.machine().tasks.threads[&other.tid].signals.wait.asked
    };
    // The thread has stopped for it, but the host has not come to that yet.
    stage.script.thread(tid, |thread| thread.info = Some((signal, SI_TIMER, 0)));
    assert_eq!(asked(), 1);
    stage.script.done();
    let done = stage.signal(tid, signal, SI_TIMER, 0);
    assert_eq!(done.last(), Some(&Goes(tid, Until::Syscall, 0)), "it is held: {done:?}");
    assert_eq!(asked(), 2, "its handler has not run");
    assert_eq!(stage.script.done().first(), Some(&Interrupted(tid)), "the hold is to end");
    // A hold goes on if the thread has had no processor meanwhile.
    let ends = |_| stage.stop(tid, Stop::Interrupted).contains(&Sent(tid, signal));
    assert!((0..1000).any(ends), "it is sent again");
    assert_eq!(asked(), 0, "the thread has taken it");
}

#[test]
fn a_thread_s_own_signals_are_never_held() {
    const SI_TKILL: i32 = -6;
    let signal = handled_signal();
    let (stage, _) = back_from_a_handler(signal, SI_TKILL);
    let done = stage.signal(stage.tid, signal, SI_TKILL, 0);
    assert_eq!(done.last(), Some(&Goes(stage.tid, Until::Event, signal)), "{done:?}");
}

#[test]
fn other_processes_signals_are_held_once_they_come_again_and_again() {
    let signal = handled_signal();
    let (stage, landing) = back_from_a_handler(signal, SI_USER);
    let tid = stage.tid;
    stage.machine().tasks.threads.get_mut(&tid).expect("it lives").signals.pace.come_too_soon(7);
    let delivered = |done: &[super::script::Done]| done.contains(&Goes(tid, Until::Event, signal));
    let done = stage.signal(tid, signal, SI_USER, 0);
    assert!(delivered(&done), "others may have been pending with it: {done:?}");
    let handler = stage.regs_at(pc_of(branches));
    stage.stands(tid, &handler);
    stage.stop(tid, Stop::Interrupted);
    stage.machine().tasks.threads.get_mut(&tid).expect("it lives").signals.pace.come_too_soon(8);
    stage.stands(tid, &landing);
    let done = stage.signal(tid, signal, SI_USER, 0);
    assert!(!delivered(&done), "{done:?}");
}

/// A thread that was parked in a call, whose result is `result`, and has been let on.
fn let_on_in_call(result: u64) -> (Stage, Idle, u64) {
    let (stage, mut regs, site) = Stage::in_call(EPOLL_WAIT, result);
    let (tid, other) = (stage.tid, stage.another());
    // Its timeout, which is not over.
    regs.0.r10 = -1i64 as u64;
    stage.stands(tid, &regs);
    let index = stage.machine().tasks.space_index(tid).expect("an address space");
    stage.machine().caches.flushes.push(index);
    stage.stop(tid, Stop::Interrupted);
    assert!(matches!(stage.mode(tid), Mode::Parked { .. }));
    stage.machine().caches.flushes.clear();
    retranslate::let_on(&mut stage.machine(), tid);
    let done = stage.script.done();
    stage.expect_entered(tid, site, &done);
    let regs = stage.regs(tid);
    stage.stands(tid, &regs);
    (stage, other, site)
}

/// Promise: F8: calls end with EINTR even while translations are replaced
#[test]
fn a_signal_that_comes_while_translations_are_replaced_ends_its_call() {
    for result in [EINTR, ERESTARTNOHAND] {
        let (stage, _other, site) = let_on_in_call(result);
        let tid = stage.tid;
        let done = stage.signal(tid, SIGUSR1, SI_USER, 0);
        assert_eq!(done, [Interrupted(tid), Goes(tid, Until::Event, SIGUSR1)]);
        let shown = stage.regs(tid).0;
        assert_eq!((shown.rip, shown.rax, shown.orig_rax), (site + 2, result, EPOLL_WAIT));
        // Nobody handles it: the call is made again.
        let regs = stage.regs(tid);
        stage.stands(tid, &regs);
        let done = stage.stop(tid, Stop::Interrupted);
        stage.expect_entered(tid, site, &done);
    }
}

#[test]
fn a_stop_of_job_control_while_translations_are_replaced_ends_its_call() {
    let (stage, _other, site) = let_on_in_call(EINTR);
    let tid = stage.tid;
    assert_eq!(stage.stop(tid, Stop::Group(SIGSTOP)), [Listens(tid)]);
    assert_eq!(stage.slot(tid, Slot::Pc), site + 2);
    assert_eq!(stage.regs(tid).0.rax, EINTR);
}

#[test]
fn a_call_that_is_made_again_after_translations_were_replaced_goes_on() {
    let (stage, _other, site) = let_on_in_call(EINTR);
    let tid = stage.tid;
    // It has come further by the time that the signal comes.
    let mut further = stage.regs(tid);
    further.0.rdx = 99;
    stage.stands(tid, &further);
    stage.signal(tid, SIGUSR1, SI_USER, 0);
    assert_eq!(stage.regs(tid).0.rip, site);
}

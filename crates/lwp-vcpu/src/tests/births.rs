//! New threads, processes and programs, and ends.

use lwp_calls::syscalls::nr;
use lwp_dbt::Slot;
use lwp_process::regs::Regs;
use lwp_process::tracees::Until;
use lwp_process::{Stop, Tid, Tracee};
use lwp_run::config::{Plan, Target};
use lwp_run::outcome::ExitStatus;

use super::script::Done::{self, Called, Detached, Goes, Interrupted, Killed};
use super::stage::{Idle, Stage};
use super::{Scene, leaf, pc_of};
use crate::machine::{Mode, Moving};

const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x1_0000;
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
/// A process that there is not.
const CHILD: Tid = i32::MAX - 7;
const EAGAIN: u64 = -11i64 as u64;

/// Registers of a thread that has made another, and those of the new one.
fn making(cache: &Regs, call: u64, flags: u64) -> Regs {
    let mut regs = *cache;
    (regs.0.orig_rax, regs.0.rdi) = (call, flags);
    regs
}

/// A thread has made `child` by `call`; the new one stands still.
fn makes(stage: &Stage, child: Tid, regs: &Regs) -> Vec<Done> {
    stage.stands(stage.tid, regs);
    stage.stands(child, regs);
    stage.script.thread(stage.tid, |thread| thread.message = child as u64);
    stage.stop(stage.tid, Stop::Child)
}

#[test]
fn a_new_thread_gets_a_context_of_its_own_in_the_same_address_space() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    let child = Idle::new();
    let regs = making(&cache, nr::CLONE, CLONE_VM | CLONE_THREAD);
    assert_eq!(makes(&stage, child.tid, &regs), [Goes(stage.tid, Until::Event, 0)]);
    assert!(matches!(stage.mode(child.tid), Mode::New));
    assert_eq!([stage.tid, child.tid].map(|tid| stage.slot(tid, Slot::Beside)), [1, 1]);
    let done = stage.stop(child.tid, Stop::Interrupted);
    assert_eq!(done.last(), Some(&Goes(child.tid, Until::Event, 0)));
    let (machine, tids) = (stage.machine(), [stage.tid, child.tid]);
    let bases = tids.map(|tid| machine.context(tid).expect("it lives").address());
    assert_ne!(bases[0], bases[1]);
    let spaces = tids.map(|tid| machine.tasks.space_index(tid));
    assert_eq!(spaces[0], spaces[1]);
    assert_eq!(machine.tasks.threads[&child.tid].pid, stage.tid);
    drop(machine);
    // It goes on where the kernel has put it, with its own context.
    let begun = stage.regs(child.tid).0;
    assert_eq!((begun.rip, begun.gs_base), (cache.0.rip, bases[1]));
}

#[test]
fn a_new_thread_that_stops_before_it_is_reported_waits() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    let child = Idle::new();
    let regs = making(&cache, nr::CLONE, CLONE_VM | CLONE_THREAD);
    stage.stands(child.tid, &regs);
    assert_eq!(stage.stop(child.tid, Stop::Interrupted), []);
    assert_eq!(stage.machine().tasks.newborn, [child.tid]);
    let done = makes(&stage, child.tid, &regs);
    assert!(done.contains(&Goes(child.tid, Until::Event, 0)), "{done:?}");
    assert!(stage.machine().tasks.newborn.is_empty());
    assert!(matches!(stage.mode(child.tid), Mode::Running));
}

#[test]
fn a_forked_process_has_a_copy_of_the_address_space_and_of_the_state() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    // It sees the files that the host sees.
    let idle = Idle::new();
    let child = idle.tid;
    stage.machine().context(stage.tid).expect("it lives").set(Slot::AppGs, 0x6000);
    let regs = making(&cache, nr::FORK, 0);
    assert_eq!(makes(&stage, child, &regs), [Goes(stage.tid, Until::Event, 0)]);
    let machine = stage.machine();
    let [maker, copy] = [stage.tid, child].map(|pid| machine.tasks.processes[&pid]);
    assert_ne!(maker.space, copy.space);
    assert_ne!(maker.contexts, copy.contexts);
    assert_eq!(machine.observers.reports[copy.report].parent, stage.tid);
    assert_eq!(machine.context(child).expect("it lives").get(Slot::AppGs), 0x6000);
    drop(machine);
    let done = stage.stop(child, Stop::Interrupted);
    assert_eq!(done, [Goes(child, Until::Event, 0)]);
    // It maps its contexts itself, and goes on where it stands.
    assert_eq!(stage.regs(child).0.rip, stage.routine(|routines| routines.move_in.start));
    assert_eq!(stage.slot(child, Slot::Go), cache.0.rip);
    assert_eq!(stage.slot(child, Slot::Pc), pc_of(leaf));
    // Neither has another thread beside it.
    let asks = u64::from(stage.machine().contexts.tells_actions);
    assert_eq!([stage.tid, child].map(|tid| stage.slot(tid, Slot::Beside)), [asks; 2]);
}

#[test]
fn a_forked_process_that_a_signal_stops_has_its_contexts_mapped_from_outside() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    // Its memory is that of a process that there is.
    let child = Idle::new();
    makes(&stage, child.tid, &making(&cache, nr::FORK, 0));
    stage.stop(child.tid, Stop::Interrupted);
    assert!(stage.machine().tasks.threads[&child.tid].moving == Moving::Itself);
    let done = stage.signal(child.tid, SIGSEGV, 0, 0);
    assert!(done.iter().any(|it| matches!(it, Called(nr::MMAP, _))), "{done:?}");
    assert_eq!(done.last(), Some(&Goes(child.tid, Until::Event, SIGSEGV)));
    assert_eq!(stage.regs(child.tid).0.rip, pc_of(leaf));
    assert!(stage.machine().tasks.threads[&child.tid].moving == Moving::Done);
}

#[test]
fn a_process_made_by_vfork_shares_the_address_space() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    makes(&stage, CHILD, &making(&cache, nr::VFORK, 0));
    let machine = stage.machine();
    let (maker, child) = (machine.tasks.processes[&stage.tid], machine.tasks.processes[&CHILD]);
    assert_eq!((maker.space, maker.contexts), (child.space, child.contexts));
    let space = machine.caches.spaces[maker.space].as_ref().expect("an address space");
    assert_eq!(space.users, 2);
    drop(machine);
    let done = stage.stop(CHILD, Stop::Exited(3));
    assert_eq!(done, []);
    let machine = stage.machine();
    assert!(!machine.tasks.processes.contains_key(&CHILD));
    // What it may have made just before still finds its address space.
    assert!(machine.tasks.limbo.contains_key(&CHILD));
}

#[test]
fn a_process_that_is_not_followed_runs_natively() {
    let mut scene = Scene::of(|config| config.program.follow_children = false, Plan::Exact);
    let head = scene.head(pc_of(leaf));
    let stage = Stage::of(scene);
    let cache = stage.regs_at(head);
    makes(&stage, CHILD, &making(&cache, nr::FORK, 0));
    let done = stage.stop(CHILD, Stop::Interrupted);
    assert_eq!(done.last(), Some(&Detached(CHILD)), "{done:?}");
    assert_eq!(stage.regs(CHILD).0.rip, pc_of(leaf));
    let machine = stage.machine();
    assert!(!machine.tasks.threads.contains_key(&CHILD));
    let why = machine.observers.reports[1].uncounted.clone();
    assert_eq!(why.as_deref(), Some("child processes are not followed"));
}

#[test]
fn a_thread_for_which_there_is_no_context_is_refused() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    let child = Idle::new();
    let mut machine = stage.machine();
    let contexts = machine.tasks.processes[&stage.tid].contexts;
    // So many threads fill a file of contexts.
    for tid in 0.. {
        if machine.add_thread(CHILD - tid, stage.tid, contexts).is_none() {
            break;
        }
    }
    drop(machine);
    let regs = making(&cache, nr::CLONE, CLONE_VM | CLONE_THREAD);
    stage.script.thread(stage.tid, |thread| thread.stops.push_back(Stop::Syscall));
    let done = makes(&stage, child.tid, &regs);
    assert_eq!(done.last(), Some(&Goes(stage.tid, Until::Event, 0)), "{done:?}");
    assert_eq!(stage.regs(stage.tid).0.rax, EAGAIN);
    assert_eq!(stage.machine().tasks.unwanted, [child.tid]);
    // It ends before it executes anything of the program.
    let done = stage.stop(child.tid, Stop::Interrupted);
    assert_eq!(done.last(), Some(&Goes(child.tid, Until::Event, 0)));
    let regs = stage.regs(child.tid).0;
    assert_eq!((regs.rax, regs.rdi), (nr::EXIT, 0));
}

#[test]
fn a_process_without_a_known_maker_is_killed() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let regs = stage.regs_at(pc_of(leaf));
    stage.stands(CHILD, &regs);
    assert_eq!(stage.stop(CHILD, Stop::Interrupted), [Killed(CHILD, SIGKILL)]);
    assert!(stage.machine().tasks.newborn.is_empty());
}

#[test]
fn a_thread_that_ends_has_its_last_counts_settled() {
    let (stage, cache) = Stage::at(pc_of(leaf));
    let other = stage.another();
    let done = stage.stop(other.tid, Stop::Exiting);
    assert_eq!(done, [Goes(other.tid, Until::Event, 0)]);
    assert!(stage.machine().tasks.threads[&other.tid].account.settled);
    stage.stop(other.tid, Stop::Exited(0));
    assert!(!stage.machine().tasks.threads.contains_key(&other.tid));
    assert!(stage.machine().tasks.processes.contains_key(&stage.tid));
    assert_eq!(stage.regs(stage.tid), cache);
    let reports = stage.machine().counting().so_far();
    assert_eq!(reports[0].threads.len(), 2);
}

#[test]
fn a_run_ends_as_its_first_process_does() {
    for (stop, status) in [
        (Stop::Exited(7), ExitStatus::Code(7)),
        (
            Stop::Killed { signal: SIGSEGV, core: true },
            ExitStatus::Signal { signal: SIGSEGV, core: true },
        ),
    ] {
        let (stage, _) = Stage::at(pc_of(leaf));
        let mut tracer = stage.tracer();
        tracer.stopped(stage.tid, stop);
        assert_eq!(tracer.status(), Some(status));
        assert!(stage.machine().tasks.threads.is_empty());
    }
}

#[test]
fn a_thread_that_cannot_be_led_on_ends_its_process_with_a_status_of_ours() {
    let (stage, _) = Stage::at(pc_of(leaf));
    // The kernel says nothing of the signal.
    stage.script.thread(stage.tid, |thread| thread.info = None);
    let mut tracer = stage.tracer();
    tracer.stopped(stage.tid, Stop::Signal(SIGSEGV));
    assert_eq!(stage.script.done(), [Killed(stage.tid, SIGKILL)]);
    tracer.stopped(stage.tid, Stop::Killed { signal: SIGKILL, core: false });
    assert_eq!(tracer.status(), Some(ExitStatus::Code(125)));
}

/// A stack with no argument and no variable, as a new program finds it.
fn fresh_stack(stage: &Stage) {
    for word in 0..16 {
        lwp_process::memory::write_u64(stage.tid, stage.rsp() + word * 8, 0).expect("a stack");
    }
}

#[test]
fn a_new_program_has_an_address_space_of_its_own_and_a_new_report() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let other = stage.another();
    fresh_stack(&stage);
    let first = stage.regs_at(pc_of(leaf));
    stage.stands(stage.tid, &first);
    stage.script.thread(stage.tid, |thread| thread.stops.push_back(Stop::Syscall));
    let before = stage.machine().tasks.processes[&stage.tid];
    let done = stage.stop(stage.tid, Stop::Exec);
    // It leaves the call before anything is done in the new program.
    assert_eq!(done[0], Goes(stage.tid, Until::Syscall, 0));
    stage.expect_entered(stage.tid, pc_of(leaf), &done);
    let fixed: Vec<u64> = done
        .iter()
        .filter_map(|it| match it {
            Called(nr::MMAP, [address, ..]) => Some(*address),
            _ => None,
        })
        .collect();
    let machine = stage.machine();
    let after = machine.tasks.processes[&stage.tid];
    assert_ne!(before.contexts, after.contexts);
    assert!(!machine.tasks.threads.contains_key(&other.tid), "exec ends all other threads");
    let context = machine.context(stage.tid).expect("it lives");
    assert!(fixed.contains(&lwp_mailbox::memory_map::CONTEXTS_AT), "{fixed:x?}");
    assert!(context.address() >= lwp_mailbox::memory_map::CONTEXTS_AT);
}

/// The thread that executes a program has the first one's number afterwards, known or not.
#[test]
fn a_program_is_counted_whose_process_was_attached_to_without_its_first_thread() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let other = stage.another();
    stage.machine().counting().remove_thread(stage.tid);
    fresh_stack(&stage);
    let first = stage.regs_at(pc_of(leaf));
    stage.stands(stage.tid, &first);
    stage.script.thread(stage.tid, |thread| thread.stops.push_back(Stop::Syscall));
    let done = stage.stop(stage.tid, Stop::Exec);
    stage.expect_entered(stage.tid, pc_of(leaf), &done);
    assert!(!stage.machine().tasks.threads.contains_key(&other.tid));
}

#[test]
fn a_program_for_which_there_is_no_room_runs_natively_and_says_so() {
    const ENOMEM: i64 = -12;
    let (stage, _) = Stage::at(pc_of(leaf));
    fresh_stack(&stage);
    let first = stage.regs_at(pc_of(leaf));
    stage.stands(stage.tid, &first);
    stage.script.thread(stage.tid, |thread| thread.stops.push_back(Stop::Syscall));
    stage.script.answer(|number, _| if number == nr::MMAP { ENOMEM } else { 5 });
    let done = stage.stop(stage.tid, Stop::Exec);
    assert_eq!(done.last(), Some(&Detached(stage.tid)), "{done:?}");
    let machine = stage.machine();
    assert!(machine.tasks.threads.is_empty());
    drop(machine);
    let reports = stage.machine().counting().so_far();
    let last = reports.last().expect("a report");
    assert!(last.uncounted.as_deref().is_some_and(|why| why.contains("system call 9")), "{last:?}");
}

#[test]
fn a_program_of_32_bits_runs_natively() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let mut first = stage.regs_at(pc_of(leaf));
    first.0.cs = 0x23;
    stage.stands(stage.tid, &first);
    stage.script.thread(stage.tid, |thread| thread.stops.push_back(Stop::Syscall));
    let done = stage.stop(stage.tid, Stop::Exec);
    assert_eq!(done, [Goes(stage.tid, Until::Syscall, 0), Detached(stage.tid)]);
}

#[test]
fn a_program_that_is_killed_in_its_exec_is_over() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let killed = Stop::Killed { signal: SIGKILL, core: false };
    stage.script.thread(stage.tid, |thread| thread.stops.push_back(killed));
    let mut tracer = stage.tracer();
    tracer.stopped(stage.tid, Stop::Exec);
    assert_eq!(stage.script.done(), [Goes(stage.tid, Until::Syscall, 0)]);
    assert!(tracer.status().is_some());
}

#[test]
fn threads_that_are_needed_are_interrupted_and_forgers_killed() {
    use crate::machine::Need;
    let (stage, _) = Stage::at(pc_of(leaf));
    stage.machine().ask_tracer(stage.tid, Need::Step);
    let mut tracer = stage.tracer();
    tracer.needs();
    assert_eq!(stage.script.done(), [Interrupted(stage.tid)]);
    stage.machine().forged(stage.tid, "a word");
    tracer.needs();
    assert_eq!(stage.script.done(), [Killed(stage.tid, SIGKILL)]);
    let why = stage.machine().observers.reports[0].uncounted.clone();
    assert!(why.is_some_and(|why| why.ends_with("a word")));
}

#[test]
fn a_program_that_takes_too_long_is_asked_to_end_and_killed() {
    const SIGTERM: i32 = 15;
    let (stage, _) = Stage::at(pc_of(leaf));
    let mut tracer = stage.tracer();
    tracer.time_out();
    assert_eq!(stage.script.done(), [Killed(stage.tid, SIGTERM)]);
    tracer.time_out();
    assert_eq!(stage.script.done(), [Killed(stage.tid, SIGKILL)]);
}

#[test]
fn a_live_process_is_taken_over_with_all_its_threads() {
    let stage = Stage::before(Target::Attach { pid: std::process::id() as i32 });
    let other = Idle::new();
    let mut regs = stage.regs_at(pc_of(leaf));
    regs.0.gs_base = 0x9000;
    for tid in [stage.tid, other.tid] {
        stage.stands(tid, &regs);
    }
    // One of them waits in a call, which it makes again.
    stage.script.thread(other.tid, |thread| {
        (thread.regs.0.orig_rax, thread.regs.0.rax) = (34, -514i64 as u64);
    });
    let threads = [stage.tid, other.tid].map(Tracee);
    stage.tracer().attach(stage.tid, &threads).expect("it can be taken over");
    let done = stage.script.done();
    for tid in [stage.tid, other.tid] {
        assert!(done.contains(&Goes(tid, Until::Event, 0)), "{done:?}");
        assert_eq!(stage.slot(tid, Slot::AppGs), 0x9000);
        assert_eq!(stage.slot(tid, Slot::Beside), 1);
    }
    assert_eq!(stage.slot(stage.tid, Slot::Pc), pc_of(leaf));
    assert_eq!(stage.slot(other.tid, Slot::Pc), pc_of(leaf) - 2);
    assert_eq!(stage.regs(other.tid).0.rax, 34);
}

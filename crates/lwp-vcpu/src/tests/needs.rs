//! Work for a thread that stands still.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::mpsc::channel;

use lwp_calls::syscalls::nr;
use lwp_dbt::{RequestKind, Slot};
use lwp_process::Stop;
use lwp_process::regs::Regs;
use lwp_process::tracees::Until;
use lwp_run::config::{Control, ControlLine, Request};

use super::script::Done::{self, Called, Goes};
use super::stage::Stage;
use super::{leaf, pc_of};
use crate::machine::{Mode, Need};
use crate::tracer::Tracer;

const SIGTRAP: i32 = 5;
const TRAP_TRACE: i32 = 2;
const SYS_OPEN: u64 = 2;
const SYS_CLOSE: u64 = 3;

/// A thread waits for the tracer to do something, and is stopped for that.
pub(super) fn needs(stage: &Stage, need: Need, pc: u64, set: impl FnOnce(&mut Regs)) -> Vec<Done> {
    let tid = stage.tid;
    let mut waits = stage.asking(tid, RequestKind::Step, pc);
    let registers = waits;
    set(&mut waits);
    // What the mailbox borrows is in the context.
    let machine = stage.machine();
    let context = machine.context(tid).expect("it lives");
    let raw = &waits.0;
    for (slot, value) in [
        (Slot::Rax, raw.rax),
        (Slot::Rcx, raw.rcx),
        (Slot::Rdx, raw.rdx),
        (Slot::Rbx, raw.rbx),
        (Slot::Rsi, raw.rsi),
        (Slot::Rdi, raw.rdi),
        (Slot::R8, raw.r8),
        (Slot::R9, raw.r9),
        (Slot::R10, raw.r10),
        (Slot::R11, raw.r11),
    ] {
        context.set(slot, value);
    }
    drop(machine);
    waits.0.rip = registers.0.rip;
    stage.stands(tid, &waits);
    stage.machine().ask_tracer(tid, need);
    stage.stop(tid, Stop::Interrupted)
}

/// The address of some code.
fn code(bytes: &'static [u8]) -> u64 {
    bytes.as_ptr() as u64
}

/// Executes the code at `pc` alone; returns the registers behind it, had the processor set `rip`.
fn executed(stage: &Stage, pc: u64, len: u64) -> Vec<Done> {
    let done = needs(stage, Need::Step, pc, |_| ());
    assert_eq!(done, [Goes(stage.tid, Until::Instruction, 0)]);
    let mut behind = stage.regs(stage.tid);
    behind.0.rip = pc + len;
    stage.stands(stage.tid, &behind);
    stage.signal(stage.tid, SIGTRAP, TRAP_TRACE, 0)
}

#[test]
fn an_instruction_is_executed_with_the_program_s_registers_and_segment_base() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let (tid, pc) = (stage.tid, code(b"\x0f\x31"));
    stage.machine().context(tid).expect("it lives").set(Slot::AppGs, 0x7000);
    let done = needs(&stage, Need::Step, pc, |regs| regs.0.rdx = 8);
    assert_eq!(done, [Goes(tid, Until::Instruction, 0)]);
    let native = stage.regs(tid).0;
    assert_eq!((native.rip, native.rdx, native.gs_base), (pc, 8, 0x7000));
    // It may change its base.
    stage
        .script
        .thread(tid, |thread| (thread.regs.0.rip, thread.regs.0.gs_base) = (pc + 2, 0x8000));
    let done = stage.signal(tid, SIGTRAP, TRAP_TRACE, 0);
    stage.expect_entered(tid, pc + 2, &done);
    assert_eq!(stage.slot(tid, Slot::AppGs), 0x8000);
}

#[test]
fn the_flags_that_are_pushed_have_no_trap_flag_of_ours() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let pc = code(b"\x9c\x90");
    lwp_process::memory::write_u64(stage.tid, stage.rsp(), 0x346).expect("a stack");
    let done = executed(&stage, pc, 1);
    stage.expect_entered(stage.tid, pc + 1, &done);
    assert_eq!(stage.word(0), 0x246);
    // Another instruction's operand is none.
    let other = code(b"\x50\x90");
    lwp_process::memory::write_u64(stage.tid, stage.rsp(), 0x346).expect("a stack");
    executed(&stage, other, 1);
    assert_eq!(stage.word(0), 0x346);
}

#[test]
fn transactions_abort_where_the_processor_has_any() {
    let (stage, _) = Stage::at(pc_of(leaf));
    // xbegin +2
    let transaction = code(b"\xc7\xf8\x02\x00\x00\x00\x90\x90\x90");
    let done = needs(&stage, Need::Step, transaction, |regs| regs.0.rax = 5);
    if is_x86_feature_detected!("rtm") {
        stage.expect_entered(stage.tid, transaction + 8, &done);
        assert_eq!(stage.regs(stage.tid).0.rax, 0);
    } else {
        assert_eq!(done, [Goes(stage.tid, Until::Instruction, 0)]);
    }
}

#[test]
fn instructions_that_a_trap_flag_would_change_are_answered() {
    let (stage, _) = Stage::at(pc_of(leaf));
    // mov ss, eax with the segment that there is.
    let segment = code(b"\x8e\xd0\x90");
    let done = needs(&stage, Need::Step, segment, |regs| (regs.0.rax, regs.0.ss) = (0x2b, 0x2b));
    stage.expect_entered(stage.tid, segment + 2, &done);
    // Another one is the processor's to refuse.
    let done = needs(&stage, Need::Step, segment, |regs| (regs.0.rax, regs.0.ss) = (1, 0x2b));
    assert_eq!(done, [Goes(stage.tid, Until::Instruction, 0)]);
}

#[test]
fn a_repeated_instruction_counts_when_it_is_done() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let pc = code(b"\xf3\xa4\x90");
    let before = stage.machine().counting().thread_sum(stage.tid).counts().instructions;
    let counted = |stage: &Stage| {
        stage.machine().counting().thread_sum(stage.tid).counts().instructions - before
    };
    let done = executed(&stage, pc, 0);
    stage.expect_entered(stage.tid, pc, &done);
    assert_eq!(counted(&stage), 0);
    executed(&stage, pc, 2);
    assert_eq!(counted(&stage), 1);
}

#[test]
fn a_system_call_is_made_by_a_routine_and_counts() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let (tid, pc) = (stage.tid, code(b"\x0f\x05\x90"));
    let before = stage.machine().counting().thread_sum(tid).counts().instructions;
    let done = needs(&stage, Need::Step, pc, |regs| regs.0.rax = nr::GETPID);
    assert_eq!(done, [Goes(tid, Until::Event, 0)]);
    assert_eq!(stage.regs(tid).0.rip, stage.routine(|routines| routines.run));
    assert_eq!(stage.slot(tid, Slot::Next), pc + 2);
    assert!(matches!(stage.mode(tid), Mode::Running));
    assert_eq!(stage.machine().counting().thread_sum(tid).counts().instructions, before + 1);
}

#[test]
fn a_call_about_a_range_that_is_partly_ours_is_made_for_the_rest() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let (tid, pc) = (stage.tid, code(b"\x0f\x05\x90"));
    let mut machine = stage.machine();
    let (_, family) = machine.space_of(tid).expect("an address space");
    let arena = family.arenas[0].address;
    drop(machine);
    let done = needs(&stage, Need::Around, pc, |regs| {
        (regs.0.rax, regs.0.rdi, regs.0.rsi) = (nr::MUNMAP, arena - 4096, 8192);
    });
    assert_eq!(done[0], Called(nr::MUNMAP, [arena - 4096, 4096, 0, 0, 0, 0]));
    assert!(!done[1..].iter().any(|it| matches!(it, Called(..))), "{done:?}");
    stage.expect_entered(tid, pc + 2, &done);
    assert_eq!(stage.regs(tid).0.rax, 0);
}

#[test]
fn translations_start_over_when_an_arena_has_to_move() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let (tid, other) = (stage.tid, stage.another());
    stage.script.thread(other.tid, |thread| thread.stopped = false);
    let mut machine = stage.machine();
    let (space, family) = machine.space_of(tid).expect("an address space");
    space.moves = true;
    let before = family.index;
    drop(machine);
    let pc = pc_of(leaf);
    let done = needs(&stage, Need::Flush, pc, |_| ());
    assert_eq!(done, [Done::Interrupted(other.tid)], "no thread may be in the old translations");
    assert!(matches!(stage.mode(tid), Mode::Parked { .. }));
    let done = stage.stop(other.tid, Stop::Interrupted);
    assert!(done.contains(&Goes(tid, Until::Event, 0)), "{done:?}");
    assert!(done.contains(&Goes(other.tid, Until::Event, 0)), "{done:?}");
    let mapped = |it: &&Done| matches!(it, Called(nr::MMAP, _));
    assert!(done.iter().filter(mapped).count() > 1, "{done:?}");
    assert_eq!((stage.slot(tid, Slot::Pc), stage.slot(other.tid, Slot::Pc)), (pc, pc));
    let mut machine = stage.machine();
    assert!(machine.caches.flushes.is_empty());
    let (space, family) = machine.space_of(tid).expect("an address space");
    assert_ne!(family.index, before);
    assert!(!space.moves);
}

#[test]
fn a_flush_is_called_off_where_another_thread_makes_a_call_for_us() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let (tid, other) = (stage.tid, stage.another());
    let mut machine = stage.machine();
    machine.space_of(tid).expect("an address space").0.moves = true;
    machine.tasks.threads.get_mut(&other.tid).expect("it lives").mode =
        Mode::Calling { entered: true };
    drop(machine);
    let done = needs(&stage, Need::Flush, pc_of(leaf), |_| ());
    assert_eq!(done, [Goes(tid, Until::Instruction, 0)]);
    assert!(stage.machine().caches.flushes.is_empty());
}

#[test]
fn a_file_that_shows_us_is_replaced_at_its_descriptor() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let file = File::open("/proc/self/maps").expect("a process has mappings");
    let fd = file.as_raw_fd();
    let done = needs(&stage, Need::Hide(fd), pc_of(leaf), |_| ());
    let calls: Vec<u64> = done
        .iter()
        .filter_map(|it| match it {
            Called(number, _) => Some(*number),
            _ => None,
        })
        .collect();
    assert_eq!(calls, [SYS_OPEN, nr::DUP3, SYS_CLOSE]);
    assert!(done.iter().any(|it| matches!(it, Called(nr::DUP3, [_, to, ..]) if *to == fd as u64)));
    stage.expect_entered(stage.tid, pc_of(leaf), &done);
}

#[test]
fn a_thread_stands_still_until_its_commands_have_been_heard() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let done = needs(&stage, Need::Obey(2), pc_of(leaf), |_| ());
    assert_eq!(done, [], "it stands still");
    let (requests, to_tracer) = channel();
    let (heard, acknowledged) = channel();
    let control = Control { requests: to_tracer, done: heard, reports: None };
    let mut tracer = stage.tracer_with(control);
    stage.machine().config.counted.control_line = Some(ControlLine { device: 1, inode: 1 });
    requests.send(Request::Heard).expect("somebody listens");
    requests.send(Request::Enable).expect("somebody listens");
    drop(requests);
    tracer.requests();
    assert_eq!(acknowledged.try_iter().count(), 2);
    // Nobody is left to hear the second.
    stage.expect_entered(stage.tid, pc_of(leaf), &stage.script.done());
}

#[test]
fn counting_is_switched_on_request() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let (requests, to_tracer) = channel();
    let (heard, acknowledged) = channel();
    let (reports, reported) = channel();
    let control = Control { requests: to_tracer, done: heard, reports: Some(reports) };
    let mut tracer: Tracer<'_> = stage.tracer_with(control);
    let counts = |stage: &Stage| stage.machine().tasks.threads[&stage.tid].account.counting;
    requests.send(Request::Disable).expect("somebody listens");
    tracer.requests();
    assert!(!counts(&stage));
    requests.send(Request::Enable).expect("somebody listens");
    requests.send(Request::Report).expect("somebody listens");
    tracer.requests();
    assert!(counts(&stage));
    assert_eq!(reported.try_iter().map(|report| report.len()).collect::<Vec<_>>(), [1]);
    assert_eq!(acknowledged.try_iter().count(), 3);
    // A program that was started is asked to end.
    requests.send(Request::Stop).expect("somebody listens");
    tracer.requests();
    assert_eq!(stage.script.done(), [Done::Killed(stage.tid, 15)]);
}

#[test]
fn a_call_of_the_32_bit_table_is_made_natively_unless_ours_is_there() {
    const GETPID_32: u64 = 20;
    const MUNMAP_32: u64 = 91;
    let (stage, _) = Stage::at(pc_of(leaf));
    let (tid, pc) = (stage.tid, code(b"\xcd\x80\x90"));
    let done = needs(&stage, Need::Step, pc, |regs| regs.0.rax = GETPID_32);
    assert_eq!(done, [Goes(tid, Until::Instruction, 0)]);
    stage.script.thread(tid, |thread| thread.regs.0.rip = pc + 2);
    stage.signal(tid, SIGTRAP, TRAP_TRACE, 0);
    let mut machine = stage.machine();
    let (_, family) = machine.space_of(tid).expect("an address space");
    let low = family.layout().low;
    drop(machine);
    // Nothing of the program's is there.
    let done = needs(&stage, Need::Step, pc, |regs| {
        (regs.0.rax, regs.0.rbx, regs.0.rcx) = (MUNMAP_32, low, 4096);
    });
    stage.expect_entered(tid, pc + 2, &done);
    assert_eq!(stage.regs(tid).0.rax, 0);
}

#[test]
fn a_call_of_the_32_bit_table_is_settled_when_it_has_been_made() {
    const MPROTECT_32: u64 = 125;
    const OPEN_32: u64 = 5;
    let (stage, _) = Stage::at(pc_of(leaf));
    let (tid, pc) = (stage.tid, code(b"\xcd\x80\x90"));
    let calls = |number, result: u64| {
        let done = needs(&stage, Need::Step, pc, |regs| {
            (regs.0.rax, regs.0.rbx, regs.0.rcx, regs.0.rdx) = (number, 1 << 20, 4096, 1);
        });
        assert_eq!(done, [Goes(tid, Until::Instruction, 0)]);
        assert!(stage.machine().tasks.threads[&tid].pending.is_some());
        stage
            .script
            .thread(tid, |thread| (thread.regs.0.rip, thread.regs.0.rax) = (pc + 2, result));
        let done = stage.signal(tid, SIGTRAP, TRAP_TRACE, 0);
        assert!(stage.machine().tasks.threads[&tid].pending.is_none());
        (done, stage.regs(tid).0.rax)
    };
    for result in [0, 0xffff_fff3] {
        let (done, shown) = calls(MPROTECT_32, result);
        stage.expect_entered(tid, pc + 2, &done);
        assert_eq!(shown, result);
    }
    // A file that it has opened may show us.
    let file = File::open("/proc/self/maps").expect("a process has mappings");
    let fd = file.as_raw_fd() as u64;
    let (done, shown) = calls(OPEN_32, fd);
    let replaced = |it: &Done| matches!(it, Called(nr::DUP3, [_, to, ..]) if *to == fd);
    assert!(done.iter().any(replaced), "{done:?}");
    assert_eq!(shown, fd);
}

#[test]
fn what_the_virtual_cpu_lacks_is_not_called_by_the_32_bit_table_either() {
    const PTRACE_32: u64 = 26;
    const EPERM: u64 = -1_i64 as u64;
    let (stage, _) = Stage::at(pc_of(leaf));
    let pc = code(b"\xcd\x80\x90");
    let done = needs(&stage, Need::Step, pc, |regs| regs.0.rax = PTRACE_32);
    stage.expect_entered(stage.tid, pc + 2, &done);
    assert_eq!(stage.regs(stage.tid).0.rax, EPERM);
}

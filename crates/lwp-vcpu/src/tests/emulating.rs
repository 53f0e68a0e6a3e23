//! Instructions and calls that the virtual processor answers instead of the real one.

use std::sync::atomic::{AtomicU64, Ordering};

use lwp_calls::syscalls::{Pending, nr};
use lwp_dbt::{Commit, RequestKind, Slot};
use lwp_process::regs::{Raw, restart};
use lwp_process::tracees::Until;
use lwp_process::{Stop, sys};
use lwp_run::config::{CpuModel, Plan};

use super::needs::needs;
use super::script::Done::{self, Called, Goes};
use super::stage::Stage;
use super::{Answer, Scene, leaf, pc_of};
use crate::machine::{Mode, Need};
use crate::server::syscall_done;
use crate::{dumpable, emulate};

const TRAP_FLAG: u64 = 0x100;

/// A run in which everything is the same each time.
fn deterministic() -> Scene {
    Scene::of(
        |config| (config.cpu, config.program.deterministic) = (CpuModel::V2, true),
        Plan::Exact,
    )
}

/// Executes the instruction in these bytes with these registers.
fn executed(scene: &mut Scene, bytes: &'static [u8], regs: Raw) -> Option<Raw> {
    let code: Box<[u8]> = [bytes, &[0; 16]].concat().into();
    let rip = code.as_ptr() as u64;
    let tid = scene.tid;
    let app = lwp_process::Regs(Raw { rip, ..regs });
    let after = emulate::instruction(&mut scene.machine, tid, &app)?.0;
    assert_eq!(after.rip, rip + bytes.len() as u64);
    Some(after)
}

#[test]
fn instructions_that_differ_from_run_to_run_have_the_virtual_processor_s_results() {
    let none = lwp_process::Regs::default().0;
    let mut scene = deterministic();
    let cpu = scene.machine.processor.cpu.clone();
    let asked = Raw { rax: 7, rcx: 0, ..none };
    let after = executed(&mut scene, b"\x0f\xa2", asked).expect("cpuid");
    let answer = cpu.cpuid(7, 0).map(u64::from);
    assert_eq!([after.rax, after.rbx, after.rcx, after.rdx], answer);
    // The processor's own answer does where it is the same.
    let after = executed(&mut scene, b"\x0f\x01\xd0", none);
    let shown = after.map(|after| after.rdx << 32 | after.rax);
    assert_eq!(shown, (cpu.xcr0() != sys::xcr0()).then_some(cpu.xcr0()));
    assert_eq!(executed(&mut scene, b"\x0f\x01\xd0", Raw { rcx: 1, ..none }).map(|_| ()), None);
    // Time goes on, by as much each time.
    let mut time = |bytes: &'static [u8]| {
        let after = executed(&mut scene, bytes, Raw { rcx: 9, ..none }).expect("it is answered");
        (after.rdx << 32 | after.rax, after.rcx)
    };
    let (first, second, third) = (time(b"\x0f\x31"), time(b"\x0f\x01\xf9"), time(b"\x48\x0f\x31"));
    assert!(second.0 > first.0 && third.0 - second.0 == second.0 - first.0);
    assert_eq!((first.1, second.1), (9, 0), "rdtscp tells of a processor");
    assert_eq!(executed(&mut scene, b"\x90", none).map(|_| ()), None);
}

#[test]
fn random_numbers_are_the_same_in_every_run_and_go_where_they_are_wanted() {
    const CARRY: u64 = 1;
    let ones = Raw { rax: u64::MAX, r9: u64::MAX, eflags: 0x8d5, ..lwp_process::Regs::default().0 };
    let drawn = || {
        let mut scene = deterministic();
        let draw = |bytes| {
            let after = executed(&mut scene, bytes, ones).expect("it is answered");
            assert_eq!(after.eflags & 0x8d5, CARRY, "there are always some");
            (after.rax, after.r9)
        };
        // rdrand ax, eax, rax; rdseed r9.
        let all: [&'static [u8]; 4] =
            [b"\x66\x0f\xc7\xf0", b"\x0f\xc7\xf0", b"\x48\x0f\xc7\xf0", b"\x49\x0f\xc7\xf9"];
        all.map(draw)
    };
    let first = drawn();
    assert_eq!(drawn(), first);
    let [half, word, wide, other] = first;
    assert_eq!(half.0 >> 16, u64::MAX >> 16);
    assert!(word.0 <= u64::from(u32::MAX) && wide.0 > u64::from(u32::MAX));
    assert_eq!((half.1, word.1, wide.1), (u64::MAX, u64::MAX, u64::MAX));
    assert!(other.0 == u64::MAX && other.1 != u64::MAX);
    // Where nothing is to be the same, the processor draws.
    assert!(executed(&mut Scene::exact(), b"\x0f\xc7\xf0", ones).is_none());
    // cmpxchg8b has the same first bytes.
    assert!(executed(&mut deterministic(), b"\x0f\xc7\x0e", ones).is_none());
}

/// The thread makes a call with these arguments, which is not made; the result that it sees.
fn answered(scene: &mut Scene, number: u64, args: [u64; 3]) -> u64 {
    let [a1, a2, a3] = args;
    scene.set(Slot::Rax, number).set(Slot::Rdi, a1).set(Slot::Rsi, a2).set(Slot::Rdx, a3);
    assert_eq!(scene.ask(RequestKind::Syscall, pc_of(leaf)), Answer::Does, "{number}");
    assert!(scene.thread().pending.expect("it is reported").result.is_some(), "{number}");
    scene.set(Slot::Rax, 4711);
    syscall_done(&mut scene.machine, scene.tid);
    scene.context().get(Slot::Rax)
}

#[test]
fn calls_about_the_processor_are_answered_for_the_virtual_one() {
    const SET_GS: u64 = 0x1001;
    const GET_GS: u64 = 0x1004;
    const GET_CPUID: u64 = 0x1011;
    const SET_CPUID: u64 = 0x1012;
    const SHSTK_ENABLE: u64 = 0x5001;
    let [eperm, efault, enodev, eopnotsupp] = [-1_i64, -14, -19, -95].map(|it| it as u64);
    let mut scene = Scene::exact();
    let told = Box::new(AtomicU64::new(0));
    let at = told.as_ptr() as u64;
    let mut call = |what, value| answered(&mut scene, nr::ARCH_PRCTL, [what, value, 0]);
    assert_eq!(call(SET_GS, 0x7000), 0);
    assert_eq!((call(GET_GS, at), told.load(Ordering::SeqCst)), (0, 0x7000));
    assert_eq!(call(SET_GS, 1 << 47), eperm);
    assert_eq!(call(GET_GS, 8), efault);
    assert_eq!((call(GET_CPUID, 0), call(SET_CPUID, 0)), (1, enodev));
    assert_eq!(call(SHSTK_ENABLE, 1), eopnotsupp);
    assert_eq!(scene.context().get(Slot::AppGs), 0x7000);
}

#[test]
fn a_hidden_process_is_told_that_it_is_until_it_no_longer_is() {
    const GET_DUMPABLE: u64 = 3;
    const SET_DUMPABLE: u64 = 4;
    let mut scene = Scene::exact();
    let pid = scene.thread().pid;
    scene.machine.tasks.processes.get_mut(&pid).expect("a process").hidden = true;
    assert_eq!(answered(&mut scene, nr::PRCTL, [GET_DUMPABLE, 0, 0]), 0);
    assert_eq!(answered(&mut scene, nr::PRCTL, [SET_DUMPABLE, 0, 0]), 0);
    assert!(dumpable::is_hidden(&scene.machine.tasks, pid));
    for (call, hidden) in
        [([SET_DUMPABLE, 2], true), ([SET_DUMPABLE, 1], false), ([GET_DUMPABLE, 0], false)]
    {
        let call = Pending::new(nr::PRCTL, [call[0], call[1], 0, 0]);
        assert_eq!(dumpable::answer(&mut scene.machine.tasks, scene.tid, &call), None, "{call:?}");
        assert_eq!(dumpable::is_hidden(&scene.machine.tasks, pid), hidden, "{call:?}");
    }
}

#[test]
fn random_bytes_of_the_system_are_the_same_in_every_run() {
    const BYTES: usize = 20;
    let drawn = || {
        let mut scene = deterministic();
        let room = Box::new([const { AtomicU64::new(u64::MAX) }; 4]);
        let at = room.as_ptr() as u64;
        assert_eq!(answered(&mut scene, nr::GETRANDOM, [at, BYTES as u64, 0]), BYTES as u64);
        assert_eq!(answered(&mut scene, nr::GETRANDOM, [8, 1, 0]), -14_i64 as u64);
        let words = room.iter().map(|word| word.load(Ordering::SeqCst).to_le_bytes());
        words.collect::<Vec<_>>().concat()
    };
    let first = drawn();
    assert_eq!(drawn(), first);
    assert!(first[BYTES..].iter().all(|byte| *byte == 0xff), "no more than was asked for");
    assert!(first[..BYTES].iter().any(|byte| *byte != 0xff));
    // Their device is a file of ours.
    for (number, argument) in [(nr::OPEN, Slot::Rdi), (nr::OPENAT, Slot::Rsi)] {
        let mut scene = deterministic();
        for (path, ours) in [(&b"/dev/urandom\0"[..], true), (b"/dev/urandom2\0", false)] {
            let path: Box<[u8]> = path.into();
            let at = path.as_ptr() as u64;
            scene.set(Slot::Rax, number).set(Slot::Rdi, at).set(Slot::Rsi, at);
            scene.ask(RequestKind::Syscall, pc_of(leaf));
            assert_eq!(scene.context().get(argument) != at, ours, "{number}");
            scene.thread().pending = None;
        }
    }
}

/// A thread with its trap flag set is about to make a system call.
fn trapped() -> (Stage, u64, Vec<Done>) {
    let (stage, _) = Stage::at(pc_of(leaf));
    let pc = b"\x0f\x05\x90".as_ptr() as u64;
    let done = needs(&stage, Need::Step, pc, |regs| {
        (regs.0.rax, regs.0.eflags) = (nr::GETPID, 0x202 | TRAP_FLAG);
    });
    (stage, pc, done)
}

#[test]
fn a_thread_with_a_trap_flag_makes_calls_in_translated_code_and_then_traps_again() {
    let (stage, pc, done) = trapped();
    let tid = stage.tid;
    assert_eq!(done, [Goes(tid, Until::Syscall, 0)]);
    let regs = stage.regs(tid).0;
    assert_eq!((regs.rip, regs.eflags & TRAP_FLAG), (stage.routine(|it| it.enter), 0));
    assert_eq!(stage.slot(tid, Slot::Pc), pc);
    // The calls of the mailbox, and the beginning of the program's own, are passed over.
    for entered in [true, false] {
        assert_eq!(stage.stop(tid, Stop::Syscall), [Goes(tid, Until::Syscall, 0)]);
        assert!(matches!(stage.mode(tid), Mode::Calling { entered: it } if it == entered));
    }
    stage.stop(tid, Stop::Syscall);
    let mut machine = stage.machine();
    let context = machine.context(tid).expect("it lives");
    context.set(Slot::Next, pc + 2);
    context.set(Slot::Kind, RequestKind::Dispatch as u64);
    let (_, family) = machine.space_of(tid).expect("an address space");
    let is = |place: &u64| {
        family.state_at(*place).is_some_and(|(state, _)| state.commit == Commit::RunSyscallDone)
    };
    let places = (0..family.translator.routines().code.len() as u32).map(|it| family.routine(it));
    let place = { places }.find(is).expect("a call of the program's ends somewhere");
    drop(machine);
    let mut regs = stage.regs_at(place);
    (regs.0.rax, regs.0.orig_rax) = (4711, nr::GETPID);
    // One that the kernel makes again has not ended.
    let mut again = regs;
    again.0.rax = (1..4096).map(|it: i64| -it as u64).find(|it| restart::is(*it)).expect("one");
    stage.stands(tid, &again);
    assert_eq!(stage.stop(tid, Stop::Syscall), [Goes(tid, Until::Syscall, 0)]);
    stage.stop(tid, Stop::Syscall);
    stage.stands(tid, &regs);
    let done = stage.stop(tid, Stop::Syscall);
    assert!(!done.iter().any(|it| matches!(it, Called(..))), "{done:?}");
    assert_eq!(done, [Goes(tid, Until::Instruction, 0)]);
    let native = stage.regs(tid).0;
    assert_eq!((native.rip, native.rax), (pc + 2, 4711));
    assert_ne!(native.eflags & TRAP_FLAG, 0);
}

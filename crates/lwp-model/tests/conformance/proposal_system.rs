//! The 2007 proposal as kernels, hypervisors and their requirements see it.

use lwp_arch::msr::LwpMsr0;
use lwp_arch::retired::BranchKind;
use lwp_arch::{AppPc, Fault};
use lwp_model::{Cpu, LwpUnit};

use crate::machine::{BLOCK, Machine, branch, plain};
use crate::proposal::{BRANCHES, INSTRUCTIONS, block, machine, seen};

/// A processor with one unit, on which threads of different address spaces take turns. A thread is
/// the machine with its memory; what it leaves in the unit goes with it.
struct Processor {
    unit: LwpUnit,
}

impl Processor {
    /// Lets the unit work for `thread`, whose state is `saved`, and saves the state again. The
    /// enable register is the system's and is loaded with the thread.
    fn turn(&mut self, thread: &mut Machine, saved: &mut Saved, work: impl FnOnce(&mut Machine)) {
        self.unit.write_lwpmsr0(&Cpu::kernel_64(), saved.msr0).unwrap();
        self.unit.restore_volatile(saved.volatile.take());
        std::mem::swap(&mut self.unit, &mut thread.unit);
        work(thread);
        std::mem::swap(&mut self.unit, &mut thread.unit);
        saved.volatile = self.unit.save_volatile();
    }
}

/// What the system keeps of a thread that does not run.
struct Saved {
    msr0: LwpMsr0,
    volatile: Option<lwp_model::Volatile2007>,
}

fn off(msr0: LwpMsr0) -> Saved {
    Saved { msr0, volatile: None }
}

/// Two jumps a number: an instruction and a branch each.
fn work(m: &mut Machine, numbers: std::ops::Range<u64>) {
    for ip in numbers {
        m.retire(&branch(ip, ip + 1, BranchKind::Return));
    }
}

/// Two threads take turns of every length; each leaves the memory it leaves alone.
///
/// Spec: P07 §5.5.2.1, §3
#[test]
fn p07_5_5_2_1_threads_that_take_turns_record_as_alone() {
    let everything = machine().unit.lwpmsr0();
    let prepared = |interval| {
        let mut m = machine();
        block(&mut m, 32, &[(INSTRUCTIONS, interval, interval), (BRANCHES, 3, 1)]);
        m
    };
    for length in 1..7 {
        let (mut alone_a, mut alone_b) = (prepared(2), prepared(5));
        let (mut a, mut b) = (alone_a.clone(), alone_b.clone());
        for m in [&mut alone_a, &mut alone_b] {
            m.start();
            work(m, 1..25);
            m.slwpcb().unwrap();
        }
        let mut processor = Processor { unit: machine().unit };
        let (mut saved_a, mut saved_b) = (off(everything), off(everything));
        processor.turn(&mut a, &mut saved_a, |m| {
            m.start();
        });
        processor.turn(&mut b, &mut saved_b, |m| {
            m.start();
        });
        let mut at = 1;
        while at < 25 {
            let end = (at + length).min(25);
            processor.turn(&mut a, &mut saved_a, |m| work(m, at..end));
            processor.turn(&mut b, &mut saved_b, |m| work(m, at..end));
            at = end;
        }
        processor.turn(&mut a, &mut saved_a, |m| {
            m.slwpcb().unwrap();
        });
        processor.turn(&mut b, &mut saved_b, |m| {
            m.slwpcb().unwrap();
        });
        assert_eq!(a.memory, alone_a.memory, "turns of {length}");
        assert_eq!(b.memory, alone_b.memory, "turns of {length}");
    }
}

/// A guest whose system has LWP off does not see that the other's has it on, and does not disturb
/// it.
///
/// Spec: P07 §5.5.2.2
#[test]
fn p07_5_5_2_2_guests_keep_their_own_enable_register_and_profile() {
    let mut processor = Processor { unit: machine().unit };
    let (mut with_lwp, mut without) = (machine(), machine());
    let everything = with_lwp.unit.lwpmsr0();
    let (mut saved, mut none) = (off(everything), off(LwpMsr0::empty()));
    processor.turn(&mut with_lwp, &mut saved, |m| {
        m.start().run(1, 3);
    });
    processor.turn(&mut without, &mut none, |m| {
        assert_eq!(m.unit.cpuid().eax, 0);
        assert_eq!(m.slwpcb(), Err(Fault::Ud));
        assert_eq!(m.llwpcb(BLOCK.0), Err(Fault::Ud));
        assert_eq!(m.retire(&plain(9)).records, 0);
    });
    assert_eq!(without.memory, machine().memory);
    processor.turn(&mut with_lwp, &mut saved, |m| {
        assert_eq!(m.slwpcb(), Ok(BLOCK.0));
        m.run(4, 2);
    });
    let ips: Vec<u64> = seen(&with_lwp).iter().map(|(_, ip)| *ip).collect();
    assert_eq!(ips, [1, 2, 3, 4, 5]);
}

/// After a switch to a thread that has not configured LWP, nothing of the thread before can be
/// found: no block, no counter, no record; and nothing is written to its memory any more.
///
/// Spec: P07 §5.5.4, §2
#[test]
fn p07_5_5_4_nothing_leaks_into_the_next_thread() {
    let everything = machine().unit.lwpmsr0();
    let mut processor = Processor { unit: machine().unit };
    let (mut first, mut second) = (machine(), machine());
    let (mut saved_first, mut saved_second) = (off(everything), off(everything));
    processor.turn(&mut first, &mut saved_first, |m| {
        m.start().run(1, 2);
    });
    let (memory, fresh) = (first.memory.clone(), second.memory.clone());
    processor.turn(&mut second, &mut saved_second, |m| {
        assert_eq!(m.slwpcb(), Ok(0));
        m.run(1, 50);
        assert_eq!(m.unit.state(), machine().unit.state(), "as after reset, but for the enables");
    });
    assert_eq!(second.memory, fresh);
    assert_eq!(first.memory, memory);
}

/// Identifiable and globally enabled: a program can ask what there is, and gets nothing before the
/// system allows it.
///
/// Spec: P07 §2, §5.1, §5.2.1
#[test]
fn p07_2_lwp_can_be_found_and_is_off_until_the_system_allows_it() {
    let mut m = machine();
    let kernel = Cpu::kernel_64();
    m.unit.write_lwpmsr0(&kernel, LwpMsr0::empty()).unwrap();
    let leaf = m.unit.cpuid();
    assert_eq!(leaf.eax, 0, "nothing enabled");
    assert_ne!(leaf.edx & 1, 0, "but there");
    assert_eq!(m.llwpcb(BLOCK.0), Err(Fault::Ud));
    assert_eq!(m.unit.write_lwpmsr0(&Cpu::user_64(), LwpMsr0::ENABLED), Err(Fault::Gp0));
    m.unit.write_lwpmsr0(&kernel, LwpMsr0::ENABLED | LwpMsr0::BRE).unwrap();
    m.llwpcb(BLOCK.0).unwrap();
    m.retire(&plain(AppPc(1).0));
    assert_eq!(seen(&m), [], "instructions were not enabled");
}

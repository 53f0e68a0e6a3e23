//! Page faults at every access of every operation.

use lwp_arch::event::EventId;
use lwp_arch::insn::Width;
use lwp_arch::record::DataSource;
use lwp_arch::retired::BranchKind;
use lwp_arch::{EventFlags, Fault, LinearAddr, PageFault, Retired};
use lwp_model::{Data1, HeadPublication, LinearMemory, LwpUnit, OnFault, Policy, Simultaneous};

use crate::machine::{BLOCK, Flaky, Machine, RING, branch, insert, miss, plain, small_rings};

/// Three events expire on the next instruction, the ring has room for one, the threshold is 0.
fn busy(policy: Policy) -> Machine {
    let mut m = Machine::with(small_rings(), policy);
    m.block(EventFlags::all() - EventFlags::CONT, 3).edit(|block| block.threshold = 0.into());
    m.start();
    m.lwpins(1).unwrap();
    m
}

fn jump(accesses: &[lwp_arch::retired::Access]) -> Retired<'_> {
    Retired { accesses, ..branch(0x10, 0x80, BranchKind::IndirectJump) }
}

type Operation = fn(&mut Machine, &mut Flaky<'_>) -> Result<(), Fault>;

/// Every operation that touches memory.
const OPERATIONS: [(&str, Operation); 5] = [
    ("retire", |m, memory| {
        let access = [miss(0x9000, DataSource::Dram, 99)];
        m.unit.retire(&m.cpu, &jump(&access), memory, &mut m.signals).map(|_| ())
    }),
    ("lwpins", |m, memory| {
        let insert = insert(Data1::Memory(BLOCK.plus(0x800)));
        m.unit.lwpins(&m.cpu, &insert, memory, &mut m.signals).map(|_| ())
    }),
    ("lwpval", |m, memory| {
        let insert = insert(Data1::Memory(BLOCK.plus(0x800)));
        m.unit.lwpval(&m.cpu, &insert, memory, &mut m.signals)
    }),
    ("slwpcb", |m, memory| m.unit.slwpcb(&m.cpu, Width::W64, memory, &mut m.signals).map(|_| ())),
    ("llwpcb", |m, memory| m.unit.llwpcb(&m.cpu, BLOCK.0, memory, &mut m.signals).map(|_| ())),
];

/// An operation that faults at any of its accesses and is restarted ends as if it had not faulted:
/// same memory, same state, same interrupts, same random bits used.
///
/// Spec: P07 §5.5.6; LWP §6.4
#[test]
fn lwp_spec_6_4_a_restarted_operation_equals_an_undisturbed_one() {
    for (name, operation) in OPERATIONS {
        let mut smooth = busy(Policy::default());
        let accesses = {
            let mut memory = smooth.memory.clone();
            let mut flaky = Flaky::new(&mut memory, None);
            operation(&mut smooth, &mut flaky).unwrap();
            let accesses = flaky.accesses;
            smooth.memory = memory;
            accesses
        };
        assert!(accesses >= 2, "{name} touches memory");
        for fail_at in 0..accesses {
            let mut m = busy(Policy::default());
            let mut memory = m.memory.clone();
            let before = memory.clone();
            let mut flaky = Flaky::new(&mut memory, Some(fail_at));
            let fault = operation(&mut m, &mut flaky);
            assert!(matches!(fault, Err(Fault::Pf(_))), "{name} at {fail_at}: {fault:?}");
            if name != "llwpcb" {
                assert_eq!(memory, before, "{name} at {fail_at} wrote before it faulted");
            }
            operation(&mut m, &mut Flaky::new(&mut memory, None)).unwrap();
            assert_eq!(memory, smooth.memory, "{name} at {fail_at}");
            assert_eq!(m.unit.state(), smooth.unit.state(), "{name} at {fail_at}");
            assert_eq!(m.signals.interrupts, smooth.signals.interrupts, "{name} at {fail_at}");
            assert_eq!(m.signals.random, smooth.signals.random, "{name} at {fail_at}");
        }
    }
}

/// Spec: P07 §5.5.6; LWP §6.4, §7. DEV-37
#[test]
fn lwp_spec_6_4_dev_37_default_policy() {
    let policy = Policy::default();
    assert_eq!(policy.on_fault, OnFault::Restart);
    assert_eq!(policy.head, HeadPublication::EachRecord);
    assert_eq!(policy.simultaneous, Simultaneous::StoreAll);
    assert_eq!(LwpUnit::new(small_rings()).policy(), &policy);
}

/// The ring behind a page that may not be touched: how a replay debugger learnt of overflows.
///
/// Spec: LWP §6.4
#[test]
fn lwp_spec_6_4_a_protected_ring_faults_at_the_record() {
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 8).start();
    m.memory.unmap(RING, 4096);
    let absent = PageFault { address: RING, write: true, present: false };
    assert_eq!(m.try_retire(&plain(0x10)), Err(Fault::Pf(absent)));
    assert_eq!(absent.error_code(), 0b110);
    m.memory.map(RING, 4096);
    m.retire(&plain(0x10));
    assert_eq!(m.seen(), [(2, 0x10)], "once");
}

/// The instructions of the handler that repairs the page are not recorded, so that they meet no
/// other fault; those that pass before the restart are lost.
///
/// Spec: LWP §6.4
#[test]
fn lwp_spec_6_4_dev_37_a_handler_meets_no_other_fault() {
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 1, 0).start();
    m.memory.unmap(RING, 4096);
    assert!(m.try_retire(&plain(0x10)).is_err());
    for ip in 0x800..0x900 {
        assert_eq!(m.try_retire(&plain(ip)).map(|it| it.records), Ok(0));
    }
    assert!(m.try_retire(&plain(0x10)).is_err(), "the handler has repaired nothing");
    m.memory.map(RING, 4096);
    m.run(0x10, 4);
    assert_eq!(m.seen(), [(2, 0x10), (2, 0x12)]);
}

/// A handler that never comes back does not end the profile.
///
/// Spec: LWP §6.4
#[test]
fn lwp_spec_6_4_dev_37_a_restart_is_not_awaited_for_ever() {
    let mut m = Machine::new();
    m.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 1, 0).start();
    m.memory.unmap(RING, 4096);
    assert!(m.try_retire(&plain(0x10)).is_err());
    m.memory.map(RING, 4096);
    m.run(0x100_000, 1 << 17);
    assert!(!m.seen().is_empty());
}

/// Spec: P07 §5.5.6
#[test]
fn p07_5_5_6_drop_retires_the_instruction_and_forgets_it() {
    let policy = Policy { on_fault: OnFault::Drop, ..Policy::default() };
    let mut m = Machine::with(small_rings(), policy);
    m.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 1, 1).start();
    m.retire(&plain(0x10));
    m.memory.unmap(RING, 4096);
    let outcome = m.retire(&plain(0x11));
    assert_eq!(outcome.trap.map(|fault| fault.address), Some(RING));
    assert_eq!(outcome.records, 0);
    m.memory.map(RING, 4096);
    assert_eq!(m.retire(&plain(0x12)).trap, None);
    assert_eq!(m.seen(), [(2, 0x12)], "the next occurrence records");
}

/// Spec: P07 §5.5.6; LWP §6.1, §6.4
#[test]
fn lwp_spec_6_4_save_keeps_the_record_until_its_page_is_there() {
    let policy = Policy { on_fault: OnFault::Save, ..Policy::default() };
    let mut m = Machine::with(small_rings(), policy);
    m.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 2, 0).start();
    m.memory.unmap(RING, 4096);
    assert!(m.retire(&plain(0x10)).trap.is_some());
    assert_eq!(m.unit.pending().map(|record| record.ip().0), Some(0x10));
    // Its page is still missing: the trap repeats, the event stays expired, nothing else is
    // gathered.
    assert!(m.retire(&plain(0x11)).trap.is_some());
    assert_eq!(m.unit.pending().map(|record| record.ip().0), Some(0x10));
    m.memory.map(RING, 4096);
    m.run(0x12, 3);
    assert_eq!(m.seen(), [(2, 0x10), (2, 0x14)], "counted from the store on");
}

/// Spec: LWP §5.4, §6.4
#[test]
fn lwp_spec_5_4_slwpcb_stores_a_waiting_record() {
    let policy = Policy { on_fault: OnFault::Save, ..Policy::default() };
    let mut m = Machine::with(small_rings(), policy);
    m.block(EventFlags::IRE, 8).slot(EventId::INSTRUCTIONS_RETIRED, 7, 0).start();
    m.memory.unmap(RING, 4096);
    m.retire(&plain(0x10));
    let absent = PageFault { address: RING, write: true, present: false };
    assert_eq!(m.slwpcb(), Err(Fault::Pf(absent)));
    m.memory.map(RING, 4096);
    assert_eq!(m.slwpcb(), Ok(BLOCK.0));
    assert_eq!(m.seen(), [(2, 0x10)]);
    assert_eq!(m.counter(EventId::INSTRUCTIONS_RETIRED), 7, "reset when stored");
}

/// Spec: LWP §5.5, §6.4
#[test]
fn lwp_spec_5_5_lwpins_restarts_under_every_policy() {
    for on_fault in [OnFault::Restart, OnFault::Drop, OnFault::Save] {
        let mut m = Machine::with(small_rings(), Policy { on_fault, ..Policy::default() });
        m.block(EventFlags::VAL, 8).slot(EventId::VALUE_SAMPLE, 3, 0).start();
        m.memory.unmap(RING, 4096);
        assert!(matches!(m.lwpins(1), Err(Fault::Pf(_))), "{on_fault:?}");
        assert!(matches!(m.lwpval(1), Err(Fault::Pf(_))), "{on_fault:?}");
        assert_eq!(m.unit.pending(), None);
        m.memory.map(RING, 4096);
        assert_eq!(m.lwpins(1), Ok(false));
        assert_eq!(m.lwpval(1), Ok(()));
        assert_eq!(m.seen(), [(255, 0x40_0100), (1, 0x40_0100)], "{on_fault:?}");
    }
}

/// A ring whose second record lies on a missing page: with several records for one instruction the
/// first is not stored twice.
///
/// Spec: LWP §4.3, §6.4
#[test]
fn lwp_spec_6_4_records_of_one_instruction_are_stored_together_or_not_at_all() {
    let mut m = Machine::new();
    let base = 0x1_1000 - 32;
    m.block(EventFlags::IRE | EventFlags::BRE, 8);
    m.edit(|block| block.buffer_base = base.into()).start();
    m.memory.unmap(LinearAddr(0x1_1000), 1);
    let both = branch(0x10, 0x80, BranchKind::Return);
    let fault = m.try_retire(&both);
    let absent = PageFault { address: LinearAddr(0x1_1000), write: true, present: false };
    assert_eq!(fault, Err(Fault::Pf(absent)));
    assert_eq!(m.memory.peek(LinearAddr(base), 32), [0; 32]);
    m.memory.map(LinearAddr(0x1_1000), 1);
    assert_eq!(m.retire(&both).records, 2);
    assert_eq!(m.head(), 64);
}

/// Spec: LWP §6.4
#[test]
fn lwp_spec_6_4_the_fault_names_the_first_byte_of_the_access_out_of_reach() {
    let mut m = Machine::new();
    m.block(EventFlags::empty(), 8).edit(|block| block.buffer_base = 0x1_0FF0.into()).start();
    m.memory.unmap(LinearAddr(0x1_1000), 1);
    let absent = PageFault { address: LinearAddr(0x1_1000), write: true, present: false };
    assert_eq!(m.lwpins(0), Err(Fault::Pf(absent)));
    assert_eq!(m.memory.check_write(LinearAddr(0x1_0FF0), 32), Err(absent));
}

//! An operating system with two threads and two cores: enabling LWP, switching threads, moving one
//! to the other core, a control block that is paged out, an interrupt, fork and the end of a
//! thread.
//!
//! ```sh
//! cargo run -p lwp-model --example operating_system
//! ```
//!
//! Every claim is an assertion. `docs/lwp-systems.md` tells the same in prose.
#![allow(clippy::print_stdout, reason = "an example is short")]

use lwp_arch::lwpcb::{EventSlot, Lwpcb};
use lwp_arch::msr::LwpCfg;
use lwp_arch::{AppPc, EventFlags, Fault, LinearAddr, Record, Retired};
use lwp_model::{Cpu, LwpUnit, PagedMemory, Processor, Seeded, ThreadState};

/// The interrupt that the kernel has chosen for thresholds.
const VECTOR: u8 = 0xf0;

/// A core with its unit.
struct Core {
    unit: LwpUnit,
    signals: Seeded,
}

impl Core {
    /// Starts a core as a kernel does: XSETBV, then `LWP_CFG` with the core's own number.
    fn start(number: u8) -> Self {
        let mut unit = LwpUnit::new(Processor::full());
        assert_eq!(unit.cpuid().eax, 0, "nothing is available before the system says so");
        unit.set_xcr0(true);
        let has = EventFlags::from_bits_retain(unit.cpuid().edx & !1);
        let cfg = LwpCfg::new(has, number, VECTOR);
        unit.wrmsr(&Cpu::kernel_64(), LwpCfg::MSR, cfg.bits()).expect("it has what it says");
        Self { unit, signals: Seeded::new(1) }
    }
}

/// A thread: what is saved of it, and its memory, which here is a process of its own.
struct Thread {
    lwp: ThreadState,
    memory: PagedMemory,
    ip: u64,
}

const BLOCK: LinearAddr = LinearAddr(0x1000);
const RING: LinearAddr = LinearAddr(0x2000);

impl Thread {
    /// A thread starts with LWP off.
    fn new() -> Self {
        Self { lwp: ThreadState::Off, memory: PagedMemory::new(), ip: 0x40_0000 }
    }

    /// The program makes a control block, every fourth instruction, and executes LLWPCB.
    fn profile(&mut self, core: &mut Core) {
        let mut block = Lwpcb::default();
        block.flags = (EventFlags::IRE | EventFlags::INT).bits().into();
        block.set_buffer_size_random(1024, 0);
        block.buffer_base = RING.0.into();
        block.threshold = 96.into();
        self.memory.map(BLOCK, 0x2000);
        self.memory.poke(BLOCK, &block.to_bytes());
        self.memory.poke(BLOCK.plus(128 + 8), &EventSlot::new(3, 3).to_bytes());
        let loaded =
            core.unit.llwpcb(&Cpu::user_64(), BLOCK.0, &mut self.memory, &mut core.signals);
        loaded.expect("a good block");
    }

    /// Executes so many instructions.
    ///
    /// A page fault is the kernel's to mend; the instruction is executed again.
    fn run(&mut self, core: &mut Core, instructions: u64) -> Result<(), Fault> {
        for _ in 0..instructions {
            // What was restored is completed from the block, by the thread's own rights.
            core.unit.settle(&mut self.memory)?;
            let retired = Retired::plain(AppPc(self.ip), AppPc(self.ip + 1));
            core.unit.retire(&Cpu::user_64(), &retired, &mut self.memory, &mut core.signals)?;
            self.ip += 1;
        }
        Ok(())
    }

    /// The records so far: core and instruction.
    fn records(&self) -> Vec<(u8, u64)> {
        let head = self.memory.peek_u32(BLOCK.plus(Lwpcb::BUFFER_HEAD_OFFSET)) as usize;
        let bytes = self.memory.peek(RING, head);
        let records = bytes.chunks(Record::SIZE).filter_map(Record::from_prefix);
        records.map(|record| (record.core_id, record.ip().0)).collect()
    }
}

/// The kernel's switch: what the unit has of one thread goes with it, and the other's comes back.
fn switch(core: &mut Core, from: &mut Thread, to: &Thread) {
    from.lwp = core.unit.take_thread();
    assert!(!core.unit.is_on(), "between two threads nothing is profiled");
    core.unit.give_thread(&Cpu::kernel_64(), &to.lwp).expect("it was saved here");
}

/// Plays the system.
pub fn main() {
    let (mut first, mut second) = (Core::start(0), Core::start(1));
    let (mut a, mut b) = (Thread::new(), Thread::new());

    // Thread a profiles itself; b does not, and leaves no trace in a's ring.
    a.profile(&mut first);
    a.run(&mut first, 6).expect("its memory is there");
    assert_eq!(a.records(), [(0, 0x40_0003)]);
    switch(&mut first, &mut a, &b);
    b.run(&mut first, 1000).expect("LWP is off");
    assert_eq!(a.records().len(), 1);

    // a goes on where it was, two instructions into its interval, on the other core.
    b.lwp = first.unit.take_thread();
    second
        .unit
        .give_thread(&Cpu::kernel_64(), &a.lwp)
        .expect("it was saved on a core of the same kind");
    a.run(&mut second, 2).expect("its memory is there");
    assert_eq!(a.records(), [(0, 0x40_0003), (1, 0x40_0007)], "the record names the core");

    // The block is paged out while the thread does not run: nothing needs it before the thread
    // does.
    let saved = second.unit.take_thread();
    let page = a.memory.peek(BLOCK, 0x1000);
    a.memory.unmap(BLOCK, 0x1000);
    second.unit.give_thread(&Cpu::kernel_64(), &saved).expect("no memory is touched");
    let Err(Fault::Pf(fault)) = a.run(&mut second, 1) else { panic!("the block is not there") };
    assert_eq!(fault.address.0 & !0xfff, BLOCK.0);
    a.memory.map(BLOCK, 0x1000);
    a.memory.poke(BLOCK, &page);
    assert!(second.signals.interrupts.is_empty());
    a.run(&mut second, 4).expect("the instruction is executed again, and counts once");
    assert_eq!(a.records().last(), Some(&(1, 0x40_000b)));

    // Three records are 96 bytes: the interrupt comes with the third, and the kernel wakes whoever
    // drains.
    assert_eq!(second.signals.interrupts, [VECTOR]);

    // fork: the child begins with LWP off, or both would write to one ring.
    let child = Thread { lwp: ThreadState::Off, memory: a.memory.clone(), ip: a.ip };
    switch(&mut second, &mut a, &child);
    assert!(!second.unit.is_on());

    // A thread that ends takes what was saved of it with it.
    drop(a);
    println!("operating system: all as it should be");
}

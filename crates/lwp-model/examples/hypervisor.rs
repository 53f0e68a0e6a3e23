//! A hypervisor with two guests: what a guest is shown, what is intercepted, the switch of guests,
//! the interrupt that is injected, and a guest that migrates to another machine.
//!
//! ```sh
//! cargo run -p lwp-model --example hypervisor
//! ```
//!
//! Every claim is an assertion. `docs/lwp-systems.md` tells the same in prose.
#![allow(clippy::print_stdout, reason = "an example is short")]

use lwp_arch::cpuid::presets::{BULLDOZER, STEAMROLLER};
use lwp_arch::lwpcb::{EventSlot, Lwpcb};
use lwp_arch::msr::{LwpCbaddr, LwpCfg};
use lwp_arch::{AppPc, EventFlags, Fault, LinearAddr, Retired};
use lwp_model::{Cpu, Guest, LwpUnit, PagedMemory, Processor, Seeded, common};

/// The interrupt by which the hypervisor hears of thresholds.
const OURS: u8 = 0xf2;
/// The one that the guest has chosen.
const THEIRS: u8 = 0x50;
const BLOCK: u64 = 0x1000;
const RING: u64 = 0x2000;

/// The guest's memory with a control block: every second instruction, an interrupt at each record.
fn memory() -> PagedMemory {
    let mut block = Lwpcb::default();
    block.flags = (EventFlags::IRE | EventFlags::INT).bits().into();
    block.set_buffer_size_random(1024, 0);
    block.buffer_base = RING.into();
    let mut memory = PagedMemory::new();
    memory.map(LinearAddr(BLOCK), 0x2000);
    memory.poke(LinearAddr(BLOCK), &block.to_bytes());
    memory.poke(LinearAddr(BLOCK + 128 + 8), &EventSlot::new(1, 1).to_bytes());
    memory
}

/// Enables LWP as the guest's kernel does when it finds LWP: by intercepted XSETBV and WRMSR.
fn enable(guest: &mut Guest, unit: &mut LwpUnit) {
    let kernel = Cpu::kernel_64();
    guest.set_xcr0(unit, true);
    let has = EventFlags::from_bits_retain(guest.cpuid().edx & !1);
    let cfg = LwpCfg::new(has, 3, THEIRS);
    guest.wrmsr(unit, &kernel, LwpCfg::MSR, cfg.bits(), OURS).expect("what it was shown");
    assert_eq!(guest.rdmsr(unit, &kernel, LwpCfg::MSR), Ok(cfg.bits()), "the guest's own vector");
    assert_eq!(unit.lwp_cfg().vector(), OURS, "the machine's is ours");
    // More than it was shown, which the machine may well have, and an address: faults for the
    // guest.
    assert_eq!(guest.wrmsr(unit, &kernel, LwpCfg::MSR, 1 << 30, OURS), Err(Fault::Gp0));
    assert_eq!(guest.wrmsr(unit, &kernel, LwpCbaddr::MSR, BLOCK, OURS), Err(Fault::Gp0));
    assert_eq!(guest.rdmsr(unit, &Cpu::user_64(), LwpCfg::MSR), Err(Fault::Gp0));
}

/// The guest's program executes so many instructions.
fn run(unit: &mut LwpUnit, memory: &mut PagedMemory, signals: &mut Seeded, instructions: u64) {
    for ip in 0..instructions {
        unit.settle(memory).expect("the guest's memory is there");
        let retired = Retired::plain(AppPc(ip), AppPc(ip + 1));
        unit.retire(&Cpu::user_64(), &retired, memory, signals).expect("so is its ring");
    }
}

fn head(memory: &PagedMemory) -> u32 {
    memory.peek_u32(LinearAddr(BLOCK + Lwpcb::BUFFER_HEAD_OFFSET))
}

/// Plays the hypervisor.
pub fn main() {
    // The guest is to run on both machines: it is shown what they have in common.
    let shown = common(&BULLDOZER, &STEAMROLLER).expect("their control blocks are laid out alike");
    assert_eq!(shown.features, BULLDOZER.features, "neither continuous mode nor time stamps");
    let mut old = LwpUnit::new(Processor::shipped(BULLDOZER));
    let mut new = LwpUnit::new(Processor::shipped(STEAMROLLER));
    let mut signals = Seeded::new(1);
    let (mut guest, mut other) = (Guest::new(shown), Guest::new(shown));

    assert_eq!(guest.cpuid().eax, 0, "as after reset");
    guest.enter(&mut old, OURS).expect("the machine has what the guest is shown");
    enable(&mut guest, &mut old);
    assert_eq!(guest.cpuid().eax, shown.features.bits());

    // LLWPCB and everything after it is not intercepted.
    let mut memory = memory();
    old.llwpcb(&Cpu::user_64(), BLOCK, &mut memory, &mut signals).expect("a good block");
    run(&mut old, &mut memory, &mut signals, 3);
    assert_eq!((head(&memory), signals.interrupts.len()), (32, 1));
    assert_eq!(signals.interrupts[0], OURS, "it interrupts the hypervisor,");
    assert_eq!(guest.interrupt(), Some(THEIRS), "which injects what the guest has asked for");

    // Another guest, and the hypervisor in between, find nothing of it.
    guest.leave(&mut old);
    assert_eq!((old.is_on(), old.cpuid().eax), (false, 0));
    other.enter(&mut old, OURS).expect("it is shown the same");
    assert_eq!(other.rdmsr(&old, &Cpu::kernel_64(), LwpCbaddr::MSR), Ok(0));
    other.leave(&mut old);

    // Migration: the guest is data, and goes on in the middle of its interval.
    let arrived = guest.clone();
    drop(guest);
    let mut guest = arrived;
    guest.enter(&mut new, OURS).expect("the new machine has more than that");
    assert_eq!(guest.cpuid().edx, shown.features.bits(), "and shows no more than before");
    run(&mut new, &mut memory, &mut signals, 1);
    assert_eq!(
        head(&memory),
        64,
        "the second instruction of the interval that began on the old machine"
    );

    // A machine that lacks something is refused before the guest can find out.
    let mut rich = Guest::new(STEAMROLLER);
    rich.enter(&mut new, OURS).expect("it has all of that");
    rich.set_xcr0(&mut new, true);
    let all = LwpCfg::new(EventFlags::from_bits_retain(STEAMROLLER.features.bits() & !1), 0, 0);
    rich.wrmsr(&mut new, &Cpu::kernel_64(), LwpCfg::MSR, all.bits(), OURS).expect("likewise");
    rich.leave(&mut new);
    assert_eq!(rich.enter(&mut old, OURS), Err(Fault::Gp0));
    println!("hypervisor: all as it should be");
}

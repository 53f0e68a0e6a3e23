//! Instructions whose results come from the virtual processor instead of the real one: CPUID and
//! XGETBV, and with `--deterministic` those that read the clock or random numbers.

use lwp_arch::insn;
use lwp_process::regs::{Raw, Regs, general};
use lwp_process::{Tid, memory};

use crate::machine::Machine;

/// CF, PF, AF, ZF, SF, OF.
const ARITHMETIC: u64 = 0x8d5;
const CF: u64 = 1;
/// Cycles that one reading of the virtual time stamp counter advances it by.
const TSC_STEP: u64 = 1000;

/// Executes the instruction at the application's pc if it is one of these.
pub fn instruction(machine: &mut Machine, tid: Tid, app: &Regs) -> Option<Regs> {
    let bytes = read_code(tid, app.0.rip);
    let mut next = *app;
    let regs = &mut next.0;
    let (prefixes, rex, op) = split(&bytes);
    match op {
        [0x0f, 0xa2, ..] => {
            let answer = machine.processor.cpuid(regs.rax as u32, regs.rcx as u32).map(u64::from);
            [regs.rax, regs.rbx, regs.rcx, regs.rdx] = answer;
            regs.rip += prefixes as u64 + 2;
        }
        [0x0f, 0x01, 0xd0, ..] if machine.processor.emulated.xgetbv && regs.rcx as u32 == 0 => {
            let value = machine.processor.cpu.xcr0();
            (regs.rax, regs.rdx) = (value & 0xffff_ffff, value >> 32);
            regs.rip += prefixes as u64 + 3;
        }
        // The processor raises the fault.
        [0x0f, 0x31, ..] | [0x0f, 0x01, 0xf9, ..]
            if machine.tasks.threads.get(&tid).is_some_and(|thread| thread.clock_faults) =>
        {
            return None;
        }
        [0x0f, 0x31, ..] if machine.processor.emulated.tsc => {
            let tsc = machine.processor.virtual_tsc(TSC_STEP);
            (regs.rax, regs.rdx) = (tsc & 0xffff_ffff, tsc >> 32);
            regs.rip += prefixes as u64 + 2;
        }
        [0x0f, 0x01, 0xf9, ..] if machine.processor.emulated.tsc => {
            let tsc = machine.processor.virtual_tsc(TSC_STEP);
            (regs.rax, regs.rdx, regs.rcx) = (tsc & 0xffff_ffff, tsc >> 32, 0);
            regs.rip += prefixes as u64 + 3;
        }
        // RDRAND is 0F C7 /6, RDSEED 0F C7 /7, register forms only.
        [0x0f, 0xc7, modrm, ..]
            if machine.processor.emulated.random && modrm >> 6 == 3 && modrm >> 4 & 3 == 3 =>
        {
            let value = machine.processor.next_random();
            let register = modrm & 7 | (rex & 1) << 3;
            let wide = rex & 8 != 0;
            let half = bytes[..prefixes].contains(&0x66);
            set_register(regs, register, value, wide, half);
            regs.eflags = regs.eflags & !ARITHMETIC | CF;
            regs.rip += prefixes as u64 + 3;
        }
        _ => return None,
    }
    Some(next)
}

/// The bytes at `pc`, zero where there are none.
pub fn read_code(tid: Tid, pc: u64) -> [u8; insn::LONGEST] {
    let mut bytes = [0; insn::LONGEST];
    if memory::read_exact(tid, pc, &mut bytes).is_err() {
        let page_left = 4096 - (pc & 4095) as usize;
        let _ = memory::read_exact(tid, pc, &mut bytes[..page_left.min(insn::LONGEST)]);
    }
    bytes
}

/// Length of the prefixes, REX included; the REX byte; the rest.
fn split(bytes: &[u8; insn::LONGEST]) -> (usize, u8, &[u8]) {
    let legacy = bytes
        .iter()
        .take_while(|b| {
            matches!(b, 0x66 | 0x67 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65)
        })
        .count();
    match bytes.get(legacy) {
        Some(&rex @ 0x40..=0x4f) => (legacy + 1, rex, &bytes[legacy + 1..]),
        _ => (legacy, 0, &bytes[legacy.min(15)..]),
    }
}

/// Writes `value` to general register `register`, or its half.
pub fn set_register(regs: &mut Raw, register: u8, value: u64, wide: bool, half: bool) {
    let place = general(regs, register);
    *place = match (wide, half) {
        (true, _) => value,
        (false, true) => *place & !0xffff | value & 0xffff,
        (false, false) => value & 0xffff_ffff,
    };
}

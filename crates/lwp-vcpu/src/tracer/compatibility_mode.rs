//! 32-bit code in a 64-bit process, which far jumps enter and leave. The host single-steps it.
//!
//! Promise: F39

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use lwp_dbt::EventDeltas;
use lwp_process::Tid;
use lwp_process::regs::{Raw, Regs};

use super::Handled;
use super::stopped_work::{Stepped, begin_step, call_of_32_bits, go_on, set_native};
use crate::emulate::read_code;
use crate::machine::Machine;

/// The code segment of 32-bit code.
const CS_32: u64 = 0x23;
const INT_80: [u8; 2] = [0xcd, 0x80];

/// Returns whether a thread with these registers is about to execute 32-bit code.
pub fn is_in(app: &Regs) -> bool {
    app.0.cs == CS_32
}

/// The instruction at `pc`, as 32-bit code has it.
pub fn instruction_at(tid: Tid, pc: u64) -> Instruction {
    Decoder::with_ip(32, &read_code(tid, pc), pc, DecoderOptions::NONE).decode()
}

/// Executes the instruction at `app` natively, in place.
pub fn step(machine: &mut Machine, tid: Tid, app: &Regs) -> Handled {
    if read_code(tid, app.0.rip).starts_with(&INT_80)
        && let Some(rax) = call_of_32_bits(machine, tid, app)
    {
        let next = Regs(Raw { rax, rip: app.0.rip + 2, ..app.0 });
        count(machine, tid, app.0.rip, next.0.rip);
        return go_on(machine, tid, &next);
    }
    set_native(machine, tid, app)?;
    begin_step(machine, tid, app, Stepped::of_32_bits())
}

/// The 32-bit instruction at `pc` has been executed, and `next` is the one to follow.
pub fn count(machine: &mut Machine, tid: Tid, pc: u64, next: u64) {
    let deltas = weights(&instruction_at(tid, pc), next);
    if let Some(thread) = machine.tasks.threads.get_mut(&tid) {
        thread.account.correction.add(deltas, 1);
    }
    machine.observers.note_place(&mut machine.tasks, tid, |places| {
        places.stepped(pc, 1);
        places.jumped(pc, next, deltas);
    });
}

/// The events that an instruction counts, given the one that followed it. Far transfers are no
/// branches.
fn weights(instruction: &Instruction, next: u64) -> EventDeltas {
    let one = EventDeltas { instructions: 1, ..EventDeltas::default() };
    let branch = EventDeltas { branches: 1, ..one };
    let far = instruction.is_jmp_far()
        || instruction.is_jmp_far_indirect()
        || instruction.is_call_far()
        || instruction.is_call_far_indirect()
        || instruction.mnemonic() != iced_x86::Mnemonic::Ret
            && instruction.flow_control() == FlowControl::Return;
    match instruction.flow_control() {
        _ if far => one,
        FlowControl::ConditionalBranch => {
            let taken = i32::from(next != instruction.next_ip());
            EventDeltas { conditional: 1, conditional_taken: taken, ..branch }
        }
        FlowControl::UnconditionalBranch => branch,
        FlowControl::IndirectBranch => EventDeltas { indirect: 1, ..branch },
        FlowControl::Call => EventDeltas { calls: 1, ..branch },
        FlowControl::IndirectCall => EventDeltas { calls: 1, indirect: 1, ..branch },
        FlowControl::Return => EventDeltas { returns: 1, ..branch },
        _ => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(bytes: &[u8], next: u64) -> EventDeltas {
        let at = 0x1000;
        weights(&Decoder::with_ip(32, bytes, at, DecoderOptions::NONE).decode(), next)
    }

    #[test]
    fn near_branches_are_counted_by_their_kinds() {
        let one = EventDeltas { instructions: 1, ..EventDeltas::default() };
        let branch = EventDeltas { branches: 1, ..one };
        // inc ecx, a prefix in 64-bit code.
        assert_eq!(counted(&[0x41], 0x1001), one);
        // je +2, taken and not; jmp +2; jmp eax; call +0; call eax; ret; loop -2.
        let taken = EventDeltas { conditional: 1, conditional_taken: 1, ..branch };
        assert_eq!(counted(&[0x74, 2], 0x1004), taken);
        assert_eq!(counted(&[0x74, 2], 0x1002), EventDeltas { conditional_taken: 0, ..taken });
        assert_eq!(counted(&[0xe2, 0xfe], 0x1000), taken);
        assert_eq!(counted(&[0xeb, 2], 0x1004), branch);
        assert_eq!(counted(&[0xff, 0xe0], 5), EventDeltas { indirect: 1, ..branch });
        assert_eq!(counted(&[0xe8, 0, 0, 0, 0], 5), EventDeltas { calls: 1, ..branch });
        let through = EventDeltas { calls: 1, indirect: 1, ..branch };
        assert_eq!(counted(&[0xff, 0xd0], 5), through);
        assert_eq!(counted(&[0xc3], 5), EventDeltas { returns: 1, ..branch });
        // ljmp 0x33:0x2000; lcall; lret; iret; int 0x80.
        let far = [&[0xea, 0, 0x20, 0, 0, 0x33, 0][..], &[0x9a, 0, 0x20, 0, 0, 0x33, 0], &[0xcb]];
        for bytes in far.into_iter().chain([&[0xcf][..], &[0xcd, 0x80]]) {
            assert_eq!(counted(bytes, 0x2000), one, "{bytes:x?}");
        }
    }
}

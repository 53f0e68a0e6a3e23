//! Classifies instructions by the way in which they are translated.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpAccess, OpKind, Register,
};

use super::{Carry, Decoding, Emulated, Insn, Terminator};
use crate::addr::AppPc;
use crate::context::RequestKind;

/// The terminator of a block that ends at a marker.
pub(super) const MARKED: Terminator = Terminator::Emulate { kind: RequestKind::Marker };

/// Returns whether an instruction can be the last one of a marker.
pub(super) fn may_mark(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Xchg)
}

pub(super) fn carry(decoder: &Decoder<'_>, instruction: &Instruction, emulated: Emulated) -> Carry {
    if emulated.fewer_states && saves_state(instruction) {
        let relative = instruction.is_ip_rel_memory_operand().then(|| {
            let offsets = decoder.get_constant_offsets(instruction);
            (offsets.displacement_offset() as u8, instruction.ip_rel_memory_address())
        });
        return Carry::StateSave(relative);
    }
    if instruction.is_ip_rel_memory_operand() {
        let offsets = decoder.get_constant_offsets(instruction);
        return Carry::RipRelative {
            displacement_at: offsets.displacement_offset() as u8,
            operand: instruction.ip_rel_memory_address(),
        };
    }
    match instruction.mnemonic() {
        Mnemonic::Rdgsbase | Mnemonic::Wrgsbase => return Carry::GsBase,
        _ => {}
    }
    if uses_gs_memory(instruction) { Carry::AppGs } else { Carry::Copy }
}

/// Returns whether a rip-relative operand may be written to.
pub(super) fn stores_nearby(instruction: &Instruction) -> bool {
    let reads_only = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
    instruction.is_ip_rel_memory_operand()
        && instruction.op0_kind() == OpKind::Memory
        && !reads_only
}

/// Returns whether `instruction` is XSAVE or one of its relatives.
pub fn saves_state(instruction: &Instruction) -> bool {
    use Mnemonic::{Xrstor, Xrstor64, Xsave, Xsave64, Xsavec, Xsavec64, Xsaveopt, Xsaveopt64};
    matches!(
        instruction.mnemonic(),
        Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64 | Xrstor | Xrstor64
    )
}

/// Returns the terminator for an instruction that ends a block because it may request the state of
/// Lightweight Profiling; `before` are the code of the block so far and its instructions. Where the
/// block itself says that bit 62 of the mask is clear, as dynamic linkers do, it is an instruction
/// like any other.
pub(super) fn requests_lwp(
    instruction: &Instruction,
    how: Decoding,
    before: (&[u8], &[Insn]),
) -> Option<Terminator> {
    const LWP: u32 = 1 << 30;
    if !how.emulated.lwp_state || !saves_state(instruction) {
        return None;
    }
    match known_low(before, Register::RDX) {
        Some(mask) if mask & LWP == 0 => None,
        None if !(how.dcache || how.emulated.fewer_states || uses_gs_memory(instruction)) => {
            Some(Terminator::StateSave)
        }
        _ => Some(Terminator::Step),
    }
}

/// The place of the x87 unit's instruction pointer in the operand of an instruction that stores it,
/// and whether it has 64 bits.
pub fn stored_pointer(instruction: &Instruction) -> Option<(u8, bool)> {
    Some(match instruction.code() {
        Code::Fnstenv_m28byte | Code::Fnsave_m108byte => (12, false),
        Code::Fxsave_m512byte | Code::Xsave_mem | Code::Xsavec_mem | Code::Xsaveopt_mem => {
            (8, false)
        }
        Code::Fxsave64_m512byte | Code::Xsave64_mem | Code::Xsavec64_mem | Code::Xsaveopt64_mem => {
            (8, true)
        }
        _ => return None,
    })
}

/// Returns the terminator for an instruction that stores a pointer of the x87 unit. Where the block
/// itself says that no state of that is stored, as dynamic linkers do, it is an instruction like
/// any other; so it is where its operand is rewritten or watched.
pub(super) fn stores_pointer(
    instruction: &Instruction,
    how: Decoding,
    before: (&[u8], &[Insn]),
) -> Option<Terminator> {
    const X87: u32 = 1;
    stored_pointer(instruction)?;
    let masked = saves_state(instruction);
    let other = how.dcache
        || masked && how.emulated.fewer_states
        || matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    let without = masked && known_low(before, Register::RAX).is_some_and(|mask| mask & X87 == 0);
    (!other && !without).then_some(Terminator::StorePointer)
}

/// Returns the value of the low half of rax or rdx behind these instructions, where they themselves
/// say so.
fn known_low((code, insns): (&[u8], &[Insn]), wanted: Register) -> Option<u32> {
    let mut factory = iced_x86::InstructionInfoFactory::new();
    for insn in insns.iter().rev() {
        let start = usize::from(insn.offset);
        let bytes = &code[start..start + usize::from(insn.len)];
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        let written = |register: &iced_x86::UsedRegister| {
            let writes = !matches!(register.access(), OpAccess::Read | OpAccess::CondRead);
            writes && register.register().full_register() == wanted
        };
        if factory.info(&instruction).used_registers().iter().any(written) {
            return sets_low(&instruction);
        }
    }
    None
}

fn sets_low(instruction: &Instruction) -> Option<u32> {
    let register = instruction.op0_register();
    let whole = register.is_gpr32() || register.is_gpr64();
    match instruction.code() {
        _ if !whole || instruction.op0_kind() != OpKind::Register => None,
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 => Some(instruction.immediate32()),
        Code::Mov_rm64_imm32 => Some(instruction.immediate32to64() as u32),
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 | Code::Xor_r64_rm64 | Code::Xor_rm64_r64
            if instruction.op1_kind() == OpKind::Register
                && instruction.op0_register() == instruction.op1_register() =>
        {
            Some(0)
        }
        _ => None,
    }
}

/// The state mask is borrowed from rax, which the operand must not need.
fn state_operand_uses_rax(instruction: &Instruction) -> bool {
    [instruction.memory_base(), instruction.memory_index()]
        .iter()
        .any(|register| register.full_register() == Register::RAX)
}

/// LEA names a segment without using it.
fn uses_gs_memory(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::GS
        && instruction.mnemonic() != Mnemonic::Lea
        && (0..instruction.op_count()).any(|op| is_memory(instruction.op_kind(op)))
}

fn is_memory(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Memory
            | OpKind::MemorySegSI
            | OpKind::MemorySegESI
            | OpKind::MemorySegRSI
            | OpKind::MemorySegDI
            | OpKind::MemorySegEDI
            | OpKind::MemorySegRDI
    )
}

pub(super) fn terminator(
    instruction: &Instruction,
    emulated: Emulated,
    number: Option<u32>,
) -> Option<Terminator> {
    let target = AppPc(instruction.near_branch_target());
    Some(match instruction.flow_control() {
        FlowControl::Next => return special(instruction, emulated),
        // A 16-bit operand size cuts rip to 16 bits on some processors and not on others.
        _ if has_operand_size_prefix(instruction) => Terminator::Step,
        FlowControl::UnconditionalBranch => match instruction.code() {
            Code::Jmp_rel8_64 | Code::Jmp_rel32_64 => Terminator::Jump { target },
            _ => Terminator::Step,
        },
        FlowControl::ConditionalBranch => match instruction.mnemonic() {
            Mnemonic::Loop
            | Mnemonic::Loope
            | Mnemonic::Loopne
            | Mnemonic::Jrcxz
            | Mnemonic::Jecxz => Terminator::CountedLoop { target },
            _ => Terminator::Conditional {
                target,
                condition: instruction.condition_code() as u8 - 1,
            },
        },
        FlowControl::Call => match instruction.code() {
            Code::Call_rel32_64 => Terminator::Call { target },
            Code::Syscall => Terminator::Syscall { number },
            _ => Terminator::Step,
        },
        FlowControl::IndirectBranch if plain_indirect(instruction, Code::Jmp_rm64) => {
            Terminator::IndirectJump
        }
        FlowControl::IndirectCall if plain_indirect(instruction, Code::Call_rm64) => {
            Terminator::IndirectCall
        }
        FlowControl::Return => match instruction.code() {
            Code::Retnq => Terminator::Return { release: 0 },
            Code::Retnq_imm16 => Terminator::Return { release: instruction.immediate16() },
            _ => Terminator::Step,
        },
        FlowControl::XbeginXabortXend
            if instruction.mnemonic() == Mnemonic::Xbegin && emulated.no_transactions =>
        {
            Terminator::Step
        }
        FlowControl::XbeginXabortXend if instruction.mnemonic() == Mnemonic::Xbegin => {
            Terminator::TransactionAbort { target }
        }
        FlowControl::XbeginXabortXend => return None,
        _ => Terminator::Step,
    })
}

/// Returns the terminator for an instruction that ends a block where data cache accesses are
/// watched, though it would not elsewhere.
pub(super) fn watched_alone(instruction: &Instruction, walks: bool) -> Option<Terminator> {
    if crate::operands::repeats(instruction) {
        return Some(Terminator::Repeat { walked: walks && can_be_walked(instruction) });
    }
    let odd = crate::operands::of(instruction).iter().any(|operand| !operand.is_plain());
    odd.then_some(Terminator::Step)
}

/// Returns whether a repeated string instruction goes on until rcx is 0, at plain addresses.
fn can_be_walked(instruction: &Instruction) -> bool {
    use Mnemonic::{Movsb, Movsd, Movsq, Movsw, Stosb, Stosd, Stosq, Stosw};
    let usual = matches!(
        instruction.mnemonic(),
        Movsb | Movsw | Movsd | Movsq | Stosb | Stosw | Stosd | Stosq
    );
    let plain =
        |operand: &crate::operands::MemoryOperand| operand.segment.is_none() && !operand.narrow;
    usual && instruction.has_rep_prefix() && crate::operands::of(instruction).iter().all(plain)
}

fn plain_indirect(instruction: &Instruction, code: Code) -> bool {
    instruction.code() == code && !uses_gs_memory(instruction)
}

fn has_operand_size_prefix(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Code::Jmp_rel8_16
            | Code::Jmp_rel16
            | Code::Call_rel16
            | Code::Retnw
            | Code::Retnw_imm16
            | Code::Jmp_rm16
            | Code::Call_rm16
    )
}

/// Instructions without a branch that nevertheless end a block.
fn special(instruction: &Instruction, emulated: Emulated) -> Option<Terminator> {
    let kind = match instruction.mnemonic() {
        Mnemonic::Cpuid => RequestKind::Cpuid,
        Mnemonic::Xgetbv if emulated.xgetbv => RequestKind::Xgetbv,
        Mnemonic::Rdtsc | Mnemonic::Rdtscp if emulated.tsc => RequestKind::Tsc,
        Mnemonic::Rdrand | Mnemonic::Rdseed if emulated.random => RequestKind::Random,
        _ if emulated.lwp && lwp_request(instruction, emulated).is_some() => {
            return lwp_request(instruction, emulated).map(|kind| Terminator::Lwp { kind });
        }
        Mnemonic::Popf | Mnemonic::Popfq => return Some(Terminator::PopFlags),
        _ if loads_gs(instruction) => return Some(Terminator::Step),
        _ if emulated.fewer_states
            && saves_state(instruction)
            && state_operand_uses_rax(instruction) =>
        {
            return Some(Terminator::Step);
        }
        _ if uses_gs_memory(instruction) && !gs_rewritable(instruction) => {
            return Some(Terminator::Step);
        }
        _ => return None,
    };
    Some(Terminator::Emulate { kind })
}

/// Returns the request that an LWP instruction makes; nothing, if this processor lacks it: no other
/// has it either, so that executed as it is, it raises #UD.
fn lwp_request(instruction: &Instruction, emulated: Emulated) -> Option<RequestKind> {
    Some(match instruction.mnemonic() {
        Mnemonic::Llwpcb => RequestKind::Llwpcb,
        Mnemonic::Slwpcb => RequestKind::Slwpcb,
        Mnemonic::Lwpins | Mnemonic::Lwpval if emulated.no_inserts => return None,
        Mnemonic::Lwpins => RequestKind::Lwpins,
        Mnemonic::Lwpval => RequestKind::Lwpval,
        _ => return None,
    })
}

fn loads_gs(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Pop | Mnemonic::Lgs => {
            instruction.op0_register() == Register::GS && instruction.op0_kind() == OpKind::Register
                || instruction.mnemonic() == Mnemonic::Lgs
        }
        Mnemonic::Swapgs => false,
        _ => false,
    }
}

/// Only operands spelled with a 64-bit base or index register, or none, are rewritten.
fn gs_rewritable(instruction: &Instruction) -> bool {
    let explicit = (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory);
    let base = instruction.memory_base();
    let index = instruction.memory_index();
    explicit
        && (base == Register::None || base.is_gpr64())
        && (index == Register::None || index.is_gpr64() || index.is_vector_register())
        && !instruction.is_stack_instruction()
        && instruction.mnemonic() != Mnemonic::Xlatb
}

//! The effect of an instruction to come, as far as a unit wants to know.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, UsedMemory,
};
use lwp_arch::insn::{self, CodeSize, Gpr, Operands};
use lwp_arch::retired::{AccessKind, BranchKind};
use lwp_arch::xsave::image::Save;
use lwp_arch::{AppPc, LinearAddr};
use lwp_model::Cpu;
use lwp_process::Vectors;
use lwp_process::regs::{CS_64, Raw, general_value};
use lwp_uarch::{Operand, Step};

/// Longest instruction in bytes.
pub const LONGEST: usize = 15;
const ZERO_FLAG: u64 = 1 << 6;

/// An instruction that is about to be executed with known registers.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The mode in which it is executed.
    pub cpu: Cpu,
    /// Its address.
    pub ip: u64,
    /// Address of the byte behind it.
    pub fall_through: u64,
    /// The action that it needs.
    pub action: Action,
    /// The kind of branch and whether it will be taken.
    pub branch: Option<(BranchKind, bool)>,
    /// Memory operands in the order of access; of a REP string instruction, those of one iteration.
    pub operands: Vec<Operand>,
    /// A REP string instruction: it may take several steps to retire.
    pub repeats: bool,
    /// It may change registers other than the general ones.
    pub vector: bool,
    /// It enters the kernel.
    pub crosses_privilege: bool,
    /// It pushes the flags, and the trap flag of stepping with them.
    pub pushes_flags: bool,
    /// It loads SS: the processor takes no single-step trap before the next instruction has retired
    /// too.
    pub shadows_next: bool,
    instruction: iced_x86::Instruction,
}

/// The part that carries an instruction out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The processor.
    Step,
    /// The unit.
    Lwp(insn::Instruction),
    /// The runner: CPUID.
    Cpuid,
    /// The processor, and the runner lays LWP over the result: XGETBV.
    Xgetbv,
    /// XSAVE or a relative: the processor, and the runner lays the LWP component over the result.
    State(StateAccess),
}

/// An instruction that saves or restores state, with registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateAccess {
    /// The mode in which it is executed.
    pub cpu: Cpu,
    /// Address of the image.
    pub image: u64,
    /// Its mask.
    pub requested: u64,
    /// The way in which it saves; `None` if it restores.
    pub save: Option<Save>,
}

impl StateAccess {
    fn of(instruction: &iced_x86::Instruction, regs: &Raw, cpu: Cpu) -> Option<Self> {
        use Mnemonic::{Xrstor, Xrstor64, Xsave, Xsave64, Xsavec, Xsavec64, Xsaveopt, Xsaveopt64};
        let save = match instruction.mnemonic() {
            Xsave | Xsave64 => Some(Save::All),
            Xsaveopt | Xsaveopt64 => Some(Save::Modified),
            Xsavec | Xsavec64 => Some(Save::Compacted),
            Xrstor | Xrstor64 => None,
            _ => return None,
        };
        let requested = regs.rdx << 32 | regs.rax & u64::from(u32::MAX);
        let image = instruction.virtual_address(0, 0, |register, _, _| value(register, regs))?;
        Some(Self { cpu, image, requested, save })
    }
}

impl Decoded {
    /// Decodes the instruction at `regs.rip`, whose bytes `code` begins with, without its memory
    /// operands.
    pub fn new(code: &[u8], regs: &Raw) -> Self {
        let (cpu, size) = mode(regs);
        let bits = if size == CodeSize::Bits64 { 64 } else { 32 };
        let mut decoder = Decoder::with_ip(bits, code, regs.rip, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let mnemonic = instruction.mnemonic();
        let action = match (mnemonic, insn::decode(code, size)) {
            (_, Ok(lwp)) => Action::Lwp(lwp),
            (Mnemonic::Cpuid, _) => Action::Cpuid,
            (Mnemonic::Xgetbv, _) => Action::Xgetbv,
            _ => StateAccess::of(&instruction, regs, cpu).map_or(Action::Step, Action::State),
        };
        let repeats = instruction.has_rep_prefix() | instruction.has_repne_prefix()
            && instruction.is_string_instruction();
        let branch = branch_kind(&instruction).map(|kind| (kind, taken(&instruction, regs)));
        let loads_ss = matches!(mnemonic, Mnemonic::Mov | Mnemonic::Pop)
            && instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == Register::SS;
        Self {
            cpu,
            ip: regs.rip,
            fall_through: instruction.next_ip(),
            action,
            branch,
            operands: Vec::new(),
            repeats,
            vector: mnemonic == Mnemonic::INVALID,
            crosses_privilege: crosses_privilege(&instruction),
            pushes_flags: matches!(mnemonic, Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq),
            shadows_next: loads_ss,
            instruction,
        }
    }

    /// Adds what a unit that is on wants to know besides: memory operands, and whether there are
    /// registers beyond the general ones. The vector registers are asked for where the instruction
    /// finds operands by them.
    pub fn with_operands(mut self, regs: &Raw, vectors: impl FnOnce() -> Option<Vectors>) -> Self {
        let instruction = self.instruction;
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&instruction);
        self.vector |= info.used_registers().iter().any(|used| !is_general(used.register()));
        let mut operands = Vec::new();
        // What LLWPCB and SLWPCB do to the block is the unit's traffic, not the instruction's.
        let of_block =
            matches!(&self.action, Action::Lwp(lwp) if matches!(lwp.operands, Operands::Block(_)));
        if instruction.is_string_instruction() {
            let none_left = self.repeats && address_width(&instruction, regs.rcx) == 0;
            if !none_left {
                operands = string_operands(&instruction, regs);
            }
        } else if instruction.is_vsib() {
            let vectors = vectors();
            operands.extend(vectors.iter().flat_map(|it| elements(&instruction, regs, it)));
        } else if counts_bits(&instruction) {
            operands = bit_string(&instruction, regs);
        } else if !of_block {
            for used in info.used_memory() {
                push_operands(used, regs, &mut operands);
            }
            if is_prefetch(instruction.mnemonic()) {
                operands.extend(prefetched(&instruction, regs));
            }
        }
        self.operands = operands;
        self
    }

    /// The instruction as the models want it, with `operands` and continued at `next_ip`.
    pub fn step<'a>(&self, operands: &'a [Operand], next_ip: u64) -> Step<'a> {
        Step {
            ip: AppPc(self.ip),
            fall_through: AppPc(self.fall_through),
            next_ip: AppPc(next_ip),
            branch: self.branch,
            operands,
            crosses_privilege: self.crosses_privilege,
        }
    }
}

/// The mode in which a thread with these registers executes: the unit's, the decoder's and that of
/// LWP's instructions. Programs of modify_ldt have other segments: those of 32-bit programs are
/// taken for 32-bit code.
fn mode(regs: &Raw) -> (Cpu, CodeSize) {
    match regs.cs {
        CS_64 => (Cpu::user_64(), CodeSize::Bits64),
        _ => (Cpu::user_32(), CodeSize::Bits32),
    }
}

fn is_general(register: Register) -> bool {
    register.is_gpr() || register.is_segment_register() || register.is_ip()
}

/// Jumps, calls and returns. SYSCALL and its like are calls to the decoder only.
fn branch_kind(instruction: &iced_x86::Instruction) -> Option<BranchKind> {
    let far = instruction.is_jmp_far()
        || instruction.is_jmp_far_indirect()
        || instruction.is_call_far()
        || instruction.is_call_far_indirect();
    match instruction.flow_control() {
        _ if crosses_privilege(instruction) => None,
        _ if far => Some(BranchKind::FarTransfer),
        FlowControl::UnconditionalBranch => Some(BranchKind::DirectJump),
        FlowControl::IndirectBranch => Some(BranchKind::IndirectJump),
        FlowControl::ConditionalBranch => Some(BranchKind::Conditional),
        FlowControl::Call => Some(BranchKind::DirectCall),
        FlowControl::IndirectCall => Some(BranchKind::IndirectCall),
        FlowControl::Return => match instruction.mnemonic() {
            Mnemonic::Ret => Some(BranchKind::Return),
            // IRET between two places of user code is a far transfer like RETF.
            _ => Some(BranchKind::FarTransfer),
        },
        _ => None,
    }
}

fn crosses_privilege(instruction: &iced_x86::Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Syscall
            | Mnemonic::Sysenter
            | Mnemonic::Int
            | Mnemonic::Int1
            | Mnemonic::Int3
            | Mnemonic::Into
    )
}

/// Returns whether a branch is going to be taken. Looking at where it went would not do: both ways
/// of a conditional jump may lead to the same place.
fn taken(instruction: &iced_x86::Instruction, regs: &Raw) -> bool {
    let zero = regs.eflags & ZERO_FLAG != 0;
    let count = address_width(instruction, regs.rcx);
    let left = address_width(instruction, regs.rcx.wrapping_sub(1)) != 0;
    match instruction.mnemonic() {
        Mnemonic::Jrcxz | Mnemonic::Jecxz | Mnemonic::Jcxz => count == 0,
        Mnemonic::Loop => left,
        Mnemonic::Loope => left && zero,
        Mnemonic::Loopne => left && !zero,
        _ if instruction.flow_control() == FlowControl::ConditionalBranch => {
            condition_holds(instruction.condition_code() as u8, regs.eflags)
        }
        _ => true,
    }
}

/// `rcx` as LOOP, JRCXZ and REP see it: as wide as their addresses.
fn address_width(instruction: &iced_x86::Instruction, rcx: u64) -> u64 {
    use OpKind::{MemoryESDI, MemoryESEDI, MemorySegESI, MemorySegSI};
    use iced_x86::Code as C;
    let by_branch = match instruction.code() {
        C::Jecxz_rel8_16 | C::Jecxz_rel8_32 | C::Jecxz_rel8_64 => Some(32),
        C::Loop_rel8_16_ECX | C::Loop_rel8_32_ECX | C::Loop_rel8_64_ECX => Some(32),
        C::Loope_rel8_16_ECX | C::Loope_rel8_32_ECX | C::Loope_rel8_64_ECX => Some(32),
        C::Loopne_rel8_16_ECX | C::Loopne_rel8_32_ECX | C::Loopne_rel8_64_ECX => Some(32),
        C::Jcxz_rel8_16 | C::Jcxz_rel8_32 | C::Loop_rel8_16_CX | C::Loop_rel8_32_CX => Some(16),
        C::Loope_rel8_16_CX | C::Loope_rel8_32_CX => Some(16),
        C::Loopne_rel8_16_CX | C::Loopne_rel8_32_CX => Some(16),
        _ => None,
    };
    let by_operand = |n| match instruction.op_kind(n) {
        MemoryESEDI | MemorySegESI => Some(32),
        MemoryESDI | MemorySegSI => Some(16),
        _ => None,
    };
    let bits = by_branch.or_else(|| (0..instruction.op_count()).find_map(by_operand));
    bits.map_or(rcx, |bits: u32| rcx & ((1 << bits) - 1))
}

/// iced's condition codes: none, o, no, b, ae, e, ne, be, a, s, ns, p, np, l, ge, le, g.
fn condition_holds(code: u8, flags: u64) -> bool {
    let [cf, pf, zf, sf, of] = [0, 2, 6, 7, 11].map(|bit| flags >> bit & 1 != 0);
    let Some(code) = code.checked_sub(1) else { return true };
    let value = [of, cf, zf, cf || zf, sf, pf, sf != of, zf || sf != of][usize::from(code / 2) % 8];
    value != (code & 1 != 0)
}

/// Operands of one iteration.
fn string_operands(instruction: &iced_x86::Instruction, regs: &Raw) -> Vec<Operand> {
    use iced_x86::OpKind::{
        MemoryESDI, MemoryESEDI, MemoryESRDI, MemorySegESI, MemorySegRSI, MemorySegSI,
    };
    let bytes = element_bytes(instruction.mnemonic());
    let mut out = Vec::new();
    // The source comes first, as the processor reads it first.
    for n in (0..instruction.op_count()).rev() {
        let (base, is_source) = match instruction.op_kind(n) {
            MemorySegRSI => (regs.rsi, true),
            MemorySegESI => (regs.rsi & 0xFFFF_FFFF, true),
            MemoryESRDI => (regs.rdi, false),
            MemoryESEDI => (regs.rdi & 0xFFFF_FFFF, false),
            MemorySegSI => (regs.rsi & 0xFFFF, true),
            MemoryESDI => (regs.rdi & 0xFFFF, false),
            _ => continue,
        };
        let segment = match (is_source, instruction.segment_prefix()) {
            (true, Register::FS) => regs.fs_base,
            (true, Register::GS) => regs.gs_base,
            _ => 0,
        };
        use Mnemonic::{Cmpsb, Cmpsd, Cmpsq, Cmpsw, Scasb, Scasd, Scasq, Scasw};
        let compares = matches!(
            instruction.mnemonic(),
            Cmpsb | Cmpsw | Cmpsd | Cmpsq | Scasb | Scasw | Scasd | Scasq
        );
        let kind = if is_source || compares { AccessKind::Load } else { AccessKind::Store };
        out.push(Operand { kind, address: LinearAddr(base.wrapping_add(segment)), bytes });
    }
    out
}

fn element_bytes(mnemonic: Mnemonic) -> u32 {
    use Mnemonic::{
        Cmpsd, Cmpsq, Cmpsw, Insd, Insw, Lodsd, Lodsq, Lodsw, Movsd, Movsq, Movsw, Outsd, Outsw,
        Scasd, Scasq, Scasw, Stosd, Stosq, Stosw,
    };
    match mnemonic {
        Cmpsw | Lodsw | Movsw | Scasw | Stosw | Insw | Outsw => 2,
        Cmpsd | Lodsd | Movsd | Scasd | Stosd | Insd | Outsd => 4,
        Cmpsq | Lodsq | Movsq | Scasq | Stosq => 8,
        _ => 1,
    }
}

/// The loads and stores of one memory operand.
fn push_operands(used: &UsedMemory, regs: &Raw, out: &mut Vec<Operand>) {
    let (loads, stores) = match used.access() {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        _ => (false, false),
    };
    let address = used.virtual_address(0, |register, _, _| value(register, regs));
    let Some(address) = address.map(LinearAddr) else { return };
    let bytes = u32::try_from(used.memory_size().size()).unwrap_or(1).max(1);
    let made = [(loads, AccessKind::Load), (stores, AccessKind::Store)];
    let made = made.into_iter().filter(|(made, _)| *made);
    out.extend(made.map(|(_, kind)| Operand { kind, address, bytes }));
}

/// The loads of a gather, the stores of a scatter: of each element that the mask selects.
fn elements(instruction: &iced_x86::Instruction, regs: &Raw, vectors: &Vectors) -> Vec<Operand> {
    let operand = (0..instruction.op_count()).find(|n| instruction.op_kind(*n) == OpKind::Memory);
    let Some(operand) = operand else { return Vec::new() };
    let stores = operand == 0;
    let data = if stores { instruction.op1_register() } else { instruction.op0_register() };
    let bytes = instruction.memory_size().size();
    let index_bytes = if instruction.is_vsib64() { 8 } else { 4 };
    let index = instruction.memory_index();
    let count = (data.size() / bytes).min(index.size() / index_bytes);
    let selected = |element: usize| match instruction.op_mask() {
        Register::None => {
            let mask = instruction.op2_register().number();
            vectors.lane(mask, element * bytes + bytes - 1, 1) & 0x80 != 0
        }
        mask => vectors.mask(mask.number()) >> element & 1 != 0,
    };
    let kind = if stores { AccessKind::Store } else { AccessKind::Load };
    let made = |element: usize| {
        let address = instruction.virtual_address(
            operand,
            element,
            |register, element, size| match register.is_vector_register() {
                true => Some(vectors.lane(register.number(), element * size, size)),
                false => value(register, regs),
            },
        )?;
        Some(Operand { kind, address: LinearAddr(address), bytes: bytes as u32 })
    };
    (0..count).filter(|element| selected(*element)).filter_map(made).collect()
}

/// BT, BTS, BTR and BTC with a register: the bit may be far from the operand's address.
fn counts_bits(instruction: &iced_x86::Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc)
        && instruction.op0_kind() == OpKind::Memory
        && instruction.op1_kind() == OpKind::Register
}

fn bit_string(instruction: &iced_x86::Instruction, regs: &Raw) -> Vec<Operand> {
    let bytes = instruction.memory_size().size() as u32;
    let start = instruction.virtual_address(0, 0, |register, _, _| value(register, regs));
    let (Some(start), Some(bit)) = (start, value(instruction.op1_register(), regs)) else {
        return Vec::new();
    };
    let bit = match bytes {
        2 => i64::from(bit as i16),
        4 => i64::from(bit as i32),
        _ => bit as i64,
    };
    let away = (bit >> (8 * bytes).ilog2()).wrapping_mul(bytes.into());
    let address = LinearAddr(start.wrapping_add_signed(away));
    let load = Operand { kind: AccessKind::Load, address, bytes };
    match instruction.mnemonic() {
        Mnemonic::Bt => vec![load],
        _ => vec![load, Operand { kind: AccessKind::Store, address, bytes }],
    }
}

/// The line that a prefetch asks for, which the decoder does not take for an access.
fn prefetched(instruction: &iced_x86::Instruction, regs: &Raw) -> Option<Operand> {
    let address = instruction.virtual_address(0, 0, |register, _, _| value(register, regs))?;
    Some(Operand { kind: AccessKind::Prefetch, address: LinearAddr(address), bytes: 1 })
}

fn is_prefetch(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Prefetch
            | Mnemonic::Prefetchw
            | Mnemonic::Prefetchwt1
            | Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
    )
}

/// A register in an address. 64-bit code knows no segment bases but those of FS and GS, and Linux
/// gives 32-bit programs no others unless they ask for them.
fn value(register: Register, regs: &Raw) -> Option<u64> {
    match register {
        Register::FS => return Some(regs.fs_base),
        Register::GS => return Some(regs.gs_base),
        _ if register.is_segment_register() => return Some(0),
        _ if !register.is_gpr() => return None,
        _ => {}
    }
    let full = Gpr::new(register.full_register().number() as u8).map(|gpr| gpr_value(gpr, regs))?;
    let bits = register.size() * 8;
    Some(if bits >= 64 { full } else { full & ((1 << bits) - 1) })
}

/// A general register.
pub fn gpr_value(register: Gpr, regs: &Raw) -> u64 {
    general_value(regs, register.number())
}

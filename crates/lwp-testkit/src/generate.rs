//! Random valid instructions.

use std::arch::is_x86_feature_detected as has;

use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, Encoder, FlowControl, Instruction, Mnemonic,
    OpCodeOperandKind, OpKind, Register,
};

use crate::Rng;

/// The data of generated code, and what the registers must hold for it.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Start of the memory that may be read and written.
    pub start: u64,
}

impl Data {
    /// Bytes of the memory.
    pub const BYTES: u64 = 0x1_0000;

    /// Returns the address that rbx and the other base registers hold.
    pub fn base(self) -> u64 {
        self.start + 0x4000
    }

    /// Initial stack pointer.
    pub fn stack(self) -> u64 {
        self.start + 0xc000
    }

    /// The application's gs base.
    pub fn gs(self) -> u64 {
        self.start + 0x2000
    }

    /// General registers at the start, in encoding order: pointers where operands need them, random
    /// numbers elsewhere.
    pub fn registers(self, rng: &mut Rng) -> [u64; 16] {
        let mut registers = [0; 16];
        for value in &mut registers {
            let wide = rng.draw();
            *value = wide >> rng.pick(&[0, 0, 16, 32, 40, 56, 60]);
        }
        registers[3] = self.base();
        registers[4] = self.stack();
        registers[5] = self.stack() + 0x800;
        registers[6] = self.base() + 0x400;
        registers[7] = self.base() + 0x800;
        registers[12] = self.base() + 0x40;
        registers[13] = self.base() + 0x80;
        registers[14] = 0x40;
        registers
    }
}

/// Makes instructions.
#[derive(Debug)]
pub struct Generator {
    /// The source of its numbers.
    pub rng: Rng,
    data: Data,
    codes: Vec<Code>,
}

/// Registers that no explicit operand is written to: they hold the addresses of memory operands.
const RESERVED: &[Register] =
    &[Register::RBX, Register::RSP, Register::R12, Register::R13, Register::R14];

impl Generator {
    /// A generator whose memory operands lie in `data`.
    pub fn new(seed: u64, data: Data) -> Self {
        Self::with(seed, data, |feature| detected(feature) == Some(true))
    }

    /// A generator of code that is not executed: its instructions are of every processor, and so
    /// the same on each machine.
    pub fn not_executed(seed: u64, data: Data) -> Self {
        Self::with(seed, data, |feature| detected(feature).is_some())
    }

    fn with(seed: u64, data: Data, has: impl Fn(CpuidFeature) -> bool) -> Self {
        let codes = Code::values().filter(|code| usable(*code, &has)).collect();
        Self { rng: Rng::new(seed), data, codes }
    }

    /// The instruction forms that this processor has and that may be generated.
    pub fn codes(&self) -> &[Code] {
        &self.codes
    }

    /// One instruction of any form, to lie at `ip`.
    pub fn any(&mut self, ip: u64) -> Vec<u8> {
        loop {
            let codes = &self.codes;
            let mut code = codes[self.rng.below(codes.len() as u64) as usize];
            // Half of the forms are AVX-512: prefer the others.
            if code.encoding() == iced_x86::EncodingKind::EVEX && !self.rng.one_in(4) {
                code = codes[self.rng.below(codes.len() as u64) as usize];
            }
            if let Some(bytes) = self.of(code, ip) {
                return bytes;
            }
        }
    }

    /// One instruction that leaves the stack pointer alone and does not divide.
    pub fn quiet(&mut self, ip: u64) -> Vec<u8> {
        loop {
            let bytes = self.any(ip);
            let instruction = decode(&bytes, ip);
            let divides = matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
            let gathers = instruction.is_vsib();
            let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
            let moves = matches!(instruction.mnemonic(), Mnemonic::Std | Mnemonic::Xlatb);
            let string = instruction.is_string_instruction();
            let stack = instruction.is_stack_instruction();
            if !(stack || divides || gathers || repeats || moves || string) {
                return bytes;
            }
        }
    }

    /// An instruction of this form with random operands, encoded to lie at `ip`; `None` where the
    /// operands drawn do not go together.
    pub fn of(&mut self, code: Code, ip: u64) -> Option<Vec<u8>> {
        let info = code.op_code();
        let mut instruction = Instruction::default();
        instruction.set_code(code);
        for (operand, kind) in info.op_kinds().iter().enumerate() {
            self.operand(&mut instruction, operand as u32, *kind)?;
        }
        if info.can_use_op_mask_register()
            && (info.require_op_mask_register() || self.rng.one_in(2))
        {
            instruction.set_op_mask(self.register(Register::K1, 7));
            instruction.set_zeroing_masking(info.can_use_zeroing_masking() && self.rng.one_in(2));
        }
        let memory = (0..info.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory);
        if memory && info.can_broadcast() {
            instruction.set_is_broadcast(self.rng.one_in(3));
        }
        let target = instruction.op0_kind() == OpKind::Memory;
        instruction.set_has_lock_prefix(info.can_use_lock_prefix() && target && self.rng.one_in(4));
        if info.can_use_rep_prefix() && instruction.is_string_instruction() && self.rng.one_in(2) {
            instruction.set_has_rep_prefix(true);
        } else if info.can_use_repne_prefix()
            && instruction.is_string_instruction()
            && self.rng.one_in(2)
        {
            instruction.set_has_repne_prefix(true);
        }
        let mut encoder = Encoder::new(64);
        encoder.encode(&instruction, ip).ok()?;
        let mut bytes = encoder.take_buffer();
        if instruction.has_rep_prefix() || instruction.has_repne_prefix() {
            // mov ecx, count
            let count = self.rng.below(20) as u8;
            bytes.splice(0..0, [0xb9, count, 0, 0, 0]);
            return Some(bytes);
        }
        let decoded = decode(&bytes, ip);
        (decoded.mnemonic() == code.mnemonic()).then_some(bytes)
    }

    fn register(&mut self, first: Register, number: u64) -> Register {
        first + self.rng.below(number) as u32
    }

    /// A general register that may be written.
    fn general(&mut self, first: Register) -> Register {
        loop {
            let register = self.register(first, 16);
            if !RESERVED.contains(&register.full_register()) {
                return register;
            }
        }
    }

    fn byte(&mut self) -> Register {
        loop {
            // AL .. BH, SPL .. R15L
            let register = self.register(Register::AL, 20);
            if !RESERVED.contains(&register.full_register()) {
                return register;
            }
        }
    }

    fn operand(
        &mut self,
        instruction: &mut Instruction,
        operand: u32,
        kind: OpCodeOperandKind,
    ) -> Option<()> {
        use OpCodeOperandKind as K;
        let vectors = match instruction.code().encoding() {
            iced_x86::EncodingKind::EVEX => 32,
            _ => 16,
        };
        let may_be_memory = matches!(
            kind,
            K::r8_or_mem
                | K::r16_or_mem
                | K::r32_or_mem
                | K::r64_or_mem
                | K::mm_or_mem
                | K::xmm_or_mem
                | K::ymm_or_mem
                | K::zmm_or_mem
                | K::k_or_mem
        );
        if kind == K::mem || may_be_memory && !self.rng.one_in(3) {
            instruction.set_op_kind(operand, OpKind::Memory);
            self.memory(instruction);
            return Some(());
        }
        let register = match kind {
            K::r8_or_mem | K::r8_reg | K::r8_opcode => self.byte(),
            K::r16_or_mem | K::r16_reg | K::r16_rm | K::r16_opcode => self.general(Register::AX),
            K::r32_or_mem | K::r32_reg | K::r32_rm | K::r32_opcode | K::r32_vvvv => {
                self.general(Register::EAX)
            }
            K::r64_or_mem | K::r64_reg | K::r64_rm | K::r64_opcode | K::r64_vvvv => {
                self.general(Register::RAX)
            }
            K::mm_or_mem | K::mm_reg | K::mm_rm => self.register(Register::MM0, 8),
            K::xmm_or_mem | K::xmm_reg | K::xmm_rm | K::xmm_vvvv | K::xmm_is4 => {
                self.register(Register::XMM0, vectors)
            }
            K::ymm_or_mem | K::ymm_reg | K::ymm_rm | K::ymm_vvvv | K::ymm_is4 => {
                self.register(Register::YMM0, vectors)
            }
            K::zmm_or_mem | K::zmm_reg | K::zmm_rm | K::zmm_vvvv => {
                self.register(Register::ZMM0, vectors)
            }
            K::k_or_mem | K::k_reg | K::k_rm | K::k_vvvv => self.register(Register::K0, 8),
            K::al => Register::AL,
            K::cl => Register::CL,
            K::ax => Register::AX,
            K::dx => Register::DX,
            K::eax => Register::EAX,
            K::rax => Register::RAX,
            K::st0 => Register::ST0,
            K::sti_opcode => self.register(Register::ST0, 8),
            _ => return self.implied(instruction, operand, kind),
        };
        instruction.set_op_kind(operand, OpKind::Register);
        instruction.set_op_register(operand, register);
        Some(())
    }

    /// Immediates and implied memory operands.
    fn implied(
        &mut self,
        instruction: &mut Instruction,
        operand: u32,
        kind: OpCodeOperandKind,
    ) -> Option<()> {
        use OpCodeOperandKind as K;
        let random = self.rng.draw();
        let (op_kind, value) = match kind {
            K::imm8 => (OpKind::Immediate8, random & 0xff),
            K::imm8_const_1 => (OpKind::Immediate8, 1),
            K::imm8sex16 => (OpKind::Immediate8to16, sign_extend(random)),
            K::imm8sex32 => (OpKind::Immediate8to32, sign_extend(random)),
            K::imm8sex64 => (OpKind::Immediate8to64, sign_extend(random)),
            K::imm16 => (OpKind::Immediate16, random & 0xffff),
            K::imm32 => (OpKind::Immediate32, random & 0xffff_ffff),
            K::imm32sex64 => (OpKind::Immediate32to64, i64::from(random as i32) as u64),
            K::imm64 => (OpKind::Immediate64, random),
            K::seg_rSI => (OpKind::MemorySegRSI, 0),
            K::es_rDI => (OpKind::MemoryESRDI, 0),
            K::seg_rDI => (OpKind::MemorySegRDI, 0),
            _ => return None,
        };
        instruction.set_op_kind(operand, op_kind);
        if value != 0 {
            instruction.set_immediate_u64(operand, value);
        }
        Some(())
    }

    /// A memory operand of any form that leads into the data.
    fn memory(&mut self, instruction: &mut Instruction) {
        let fine = !self.rng.one_in(4);
        let step = if fine { 64 } else { 1 };
        let displacement = self.rng.below(0x1000 / step) * step;
        instruction.set_memory_displ_size(1);
        match self.rng.below(10) {
            0 | 1 => {
                instruction.set_memory_base(Register::RIP);
                instruction.set_memory_displacement64(self.data.base() + displacement);
                instruction.set_memory_displ_size(8);
            }
            2 => {
                instruction.set_memory_base(Register::RSP);
                instruction.set_memory_displacement64(displacement / 2);
            }
            3 => {
                instruction.set_memory_base(Register::RBX);
                instruction.set_memory_index(Register::R14);
                instruction.set_memory_index_scale(self.rng.pick(&[1, 2, 4, 8]));
                instruction.set_memory_displacement64(displacement.wrapping_neg() / 4 * 4);
            }
            4 => {
                instruction.set_segment_prefix(Register::GS);
                instruction.set_memory_displacement64(displacement);
                instruction.set_memory_displ_size(8);
            }
            5 => {
                instruction.set_segment_prefix(Register::GS);
                instruction.set_memory_base(Register::R14);
                if self.rng.one_in(2) {
                    instruction.set_memory_index(Register::R14);
                    instruction.set_memory_index_scale(4);
                }
                instruction.set_memory_displacement64(displacement);
            }
            number => {
                let base = [Register::RBX, Register::R12, Register::R13, Register::RBX];
                instruction.set_memory_base(base[number as usize - 6]);
                instruction.set_memory_displacement64(displacement.wrapping_sub(64));
            }
        }
        if instruction.memory_displacement64() == 0 {
            instruction.set_memory_displ_size(0);
        }
    }
}

fn sign_extend(value: u64) -> u64 {
    i64::from(value as i8) as u64
}

fn decode(bytes: &[u8], ip: u64) -> Instruction {
    Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode()
}

/// Forms that can be generated: of user mode, without a branch, with the same effect each time.
fn usable(code: Code, has: impl Fn(CpuidFeature) -> bool) -> bool {
    let info = code.op_code();
    info.is_instruction()
        && info.mode64()
        && info.cpl3()
        && !info.is_privileged()
        && code != Code::INVALID
        && instruction(code).flow_control() == FlowControl::Next
        && code.cpuid_features().iter().all(|feature| has(*feature))
        && !varies(code.mnemonic())
}

fn instruction(code: Code) -> Instruction {
    let mut instruction = Instruction::default();
    instruction.set_code(code);
    instruction
}

/// Instructions whose effect is not a function of registers and memory, or which take away what the
/// test itself stands on.
fn varies(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        // Time, chance, place.
        Cpuid | Rdtsc | Rdtscp | Rdrand | Rdseed | Rdpid | Rdpmc | Xgetbv | Lsl
        // The state image holds instruction addresses, or depends on history.
        | Fnsave | Fsave | Fnstenv | Fstenv | Fxsave | Fxsave64 | Xsave | Xsave64 | Xsavec
        | Xsavec64 | Xsaveopt | Xsaveopt64 | Frstor | Fldenv | Fxrstor | Fxrstor64 | Xrstor
        | Xrstor64 | Ldmxcsr | Vldmxcsr
        // Thread pointer, descriptor tables, flags that stop or trap.
        | Wrfsbase | Rdfsbase | Wrgsbase | Sgdt | Sidt | Sldt | Smsw | Str | Popf | Popfq | Popfd
        | Pushf | Pushfq | Clac | Stac | Cli | Sti | Lfs | Lgs | Lss | Enqcmd | Movdir64b
        | Verr | Verw | Lar
        // Input and output.
        | In | Out | Insb | Insw | Insd | Outsb | Outsw | Outsd
        | Monitor | Mwait | Umonitor | Umwait | Tpause | Zero_bytes | Reservednop
    )
}

/// Returns whether the processor has a feature; `None` for those whose instructions are left out.
fn detected(feature: CpuidFeature) -> Option<bool> {
    use CpuidFeature::*;
    Some(match feature {
        INTEL8086 | INTEL186 | INTEL286 | INTEL386 | INTEL486 | X64 | CMOV | CX8 | FPU | FPU287
        | FPU387 | FXSR | MMX | MULTIBYTENOP | PAUSE | SSE | SSE2 => true,
        SSE3 => has!("sse3"),
        SSSE3 => has!("ssse3"),
        SSE4_1 => has!("sse4.1"),
        SSE4_2 => has!("sse4.2"),
        AES => has!("aes"),
        PCLMULQDQ => has!("pclmulqdq"),
        POPCNT => has!("popcnt"),
        MOVBE => has!("movbe"),
        LZCNT => has!("lzcnt"),
        BMI1 => has!("bmi1"),
        BMI2 => has!("bmi2"),
        ADX => has!("adx"),
        CMPXCHG16B => has!("cmpxchg16b"),
        SHA => has!("sha"),
        F16C => has!("f16c"),
        FMA => has!("fma"),
        AVX => has!("avx"),
        AVX2 => has!("avx2"),
        GFNI => has!("gfni"),
        VAES => has!("vaes"),
        VPCLMULQDQ => has!("vpclmulqdq"),
        AVX512F => has!("avx512f"),
        AVX512VL => has!("avx512vl"),
        AVX512BW => has!("avx512bw"),
        AVX512DQ => has!("avx512dq"),
        AVX512CD => has!("avx512cd"),
        AVX512_VBMI => has!("avx512vbmi"),
        AVX512_VBMI2 => has!("avx512vbmi2"),
        AVX512_BITALG => has!("avx512bitalg"),
        AVX512_VNNI => has!("avx512vnni"),
        AVX512_VPOPCNTDQ => has!("avx512vpopcntdq"),
        AVX512_IFMA => has!("avx512ifma"),
        _ => return None,
    })
}

//! The memory operands of an instruction, for a modelled data cache that has to see each access.

use iced_x86::{
    Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};

/// The use that an instruction makes of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Use {
    /// Reads it.
    Load = 0,
    /// Writes it.
    Store = 1,
    /// Reads it, then writes it.
    LoadStore = 2,
    /// Asks for it to be fetched.
    Prefetch = 3,
}

impl Use {
    /// The use with this number; of two bits, each is one.
    pub fn from_raw(raw: u64) -> Self {
        match raw & 3 {
            0 => Self::Load,
            1 => Self::Store,
            2 => Self::LoadStore,
            _ => Self::Prefetch,
        }
    }
}

/// A memory operand: how its address comes about, and what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOperand {
    /// Base register or none.
    pub base: Register,
    /// Index register or none.
    pub index: Register,
    /// Factor of the index.
    pub scale: u32,
    /// Displacement; the whole address where there is no register.
    pub displacement: u64,
    /// True if that address is relative to the instruction's.
    pub relative: bool,
    /// FS or GS, where its base is added.
    pub segment: Option<Register>,
    /// True if base and index are 32 bits wide, and so is their sum.
    pub narrow: bool,
    /// Length in bytes, at least 1; of one element where there are several.
    pub bytes: u32,
    /// The use made of it.
    pub how: Use,
    /// Anything else that decides on the address, if anything does.
    pub spread: Spread,
}

/// The place in memory of an operand that is not where its base, index and displacement say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// There.
    Here,
    /// A bit string: in the element that has the bit with the number in this register.
    Bit(Register),
    /// In several places: see [`Elements`].
    Elements(Elements),
}

/// The elements of a gather or a scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elements {
    /// The number of elements.
    pub count: u8,
    /// The vector register that has an index for each.
    pub indices: Register,
    /// Length of an index in bytes.
    pub index_bytes: u8,
    /// The register that says which are accessed: a mask register has a bit for each, a vector
    /// register an element whose sign says it.
    pub mask: Register,
}

/// The operands of `instruction` in the order of access; of a repeated string instruction those of
/// one iteration.
pub fn of(instruction: &Instruction) -> Vec<MemoryOperand> {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let mut out: Vec<MemoryOperand> =
        info.used_memory().iter().filter_map(|it| used(instruction, it)).collect();
    if is_string(instruction) {
        // The source comes first, as the processor reads it first.
        out.sort_by_key(|operand| operand.how == Use::Store);
        let bytes = string_bytes(instruction);
        out.iter_mut().for_each(|operand| operand.bytes = bytes);
    }
    if is_prefetch(instruction.mnemonic()) {
        out.extend(prefetched(instruction));
    }
    out
}

fn used(instruction: &Instruction, used: &UsedMemory) -> Option<MemoryOperand> {
    let how = match used.access() {
        OpAccess::Read | OpAccess::CondRead => Use::Load,
        OpAccess::Write | OpAccess::CondWrite => Use::Store,
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Use::LoadStore,
        _ => return None,
    };
    let elements = used.index().is_vector_register();
    let spread =
        if elements { Spread::Elements(elements_of(instruction)?) } else { bit_of(instruction) };
    // The decoder says the address, and no register.
    let relative = instruction.is_ip_rel_memory_operand()
        && [used.base(), used.index()].map(without_rip) == [Register::None; 2]
        && used.displacement() == instruction.ip_rel_memory_address();
    let eip = relative && instruction.memory_base() == Register::EIP;
    let narrow = used.base().is_gpr32() || used.index().is_gpr32() || eip;
    let [base, index] = [used.base(), used.index()].map(without_rip);
    Some(MemoryOperand {
        base,
        index: if elements { Register::None } else { index },
        scale: used.scale(),
        displacement: used.displacement(),
        relative,
        segment: with_base(used.segment()),
        narrow,
        bytes: (used.memory_size().size() as u32).max(1),
        how,
        spread,
    })
}

/// The elements of a gather or scatter; `None` for one that only prefetches, which no current
/// processor has.
fn elements_of(instruction: &Instruction) -> Option<Elements> {
    let is_store = instruction.op0_kind() == OpKind::Memory;
    let data = if is_store { instruction.op1_register() } else { instruction.op0_register() };
    let mask = match instruction.op_mask() {
        Register::None => instruction.op2_register(),
        mask => mask,
    };
    if !data.is_vector_register() || mask == Register::None {
        return None;
    }
    let index_bytes = if instruction.is_vsib64() { 8 } else { 4 };
    let indices = instruction.memory_index();
    let element = instruction.memory_size().size().max(1);
    let count = (data.size() / element).min(indices.size() / index_bytes);
    Some(Elements { count: count as u8, indices, index_bytes: index_bytes as u8, mask })
}

/// BT and its like with a register count bits from the operand's address on.
fn bit_of(instruction: &Instruction) -> Spread {
    use Mnemonic::{Bt, Btc, Btr, Bts};
    let of_string = matches!(instruction.mnemonic(), Bt | Btc | Btr | Bts)
        && instruction.op0_kind() == OpKind::Memory
        && instruction.op1_kind() == OpKind::Register;
    if of_string { Spread::Bit(instruction.op1_register()) } else { Spread::Here }
}

/// The line that a prefetch asks for, which the decoder does not take for an access.
fn prefetched(instruction: &Instruction) -> Option<MemoryOperand> {
    if instruction.op0_kind() != OpKind::Memory {
        return None;
    }
    let relative = instruction.is_ip_rel_memory_operand();
    let eip = instruction.memory_base() == Register::EIP;
    let narrow =
        instruction.memory_base().is_gpr32() || instruction.memory_index().is_gpr32() || eip;
    let [base, index] = [instruction.memory_base(), instruction.memory_index()].map(without_rip);
    Some(MemoryOperand {
        base,
        index,
        scale: instruction.memory_index_scale(),
        displacement: instruction.memory_displacement64(),
        relative,
        segment: with_base(instruction.memory_segment()),
        narrow,
        bytes: 1,
        how: Use::Prefetch,
        spread: Spread::Here,
    })
}

/// The decoder gives the whole address of a rip-relative operand as its displacement.
fn without_rip(register: Register) -> Register {
    if register.is_ip() { Register::None } else { register }
}

fn with_base(segment: Register) -> Option<Register> {
    matches!(segment, Register::FS | Register::GS).then_some(segment)
}

fn is_prefetch(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Prefetch, Prefetchnta, Prefetcht0, Prefetcht1, Prefetcht2, Prefetchw, Prefetchwt1,
    };
    matches!(
        mnemonic,
        Prefetch | Prefetchw | Prefetchwt1 | Prefetchnta | Prefetcht0 | Prefetcht1 | Prefetcht2
    )
}

fn is_string(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
}

fn string_bytes(instruction: &Instruction) -> u32 {
    match instruction.memory_size() {
        MemorySize::Unknown => 1,
        size => size.size() as u32,
    }
}

/// Returns whether `instruction` is a string instruction that repeats.
pub fn repeats(instruction: &Instruction) -> bool {
    is_string(instruction) && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

impl MemoryOperand {
    /// The linear address, given the registers and the bases of FS and GS; of an operand in several
    /// places that from which they are counted.
    pub fn address(&self, value: impl Fn(Register) -> u64) -> u64 {
        self.offset_by(0, value)
    }

    /// Every linear address, in the order of access. `lane` is so many bytes of a vector or mask
    /// register from an offset on.
    pub fn addresses(
        &self,
        value: impl Fn(Register) -> u64 + Copy,
        lane: impl Fn(Register, usize, usize) -> u64,
    ) -> Vec<u64> {
        match self.spread {
            Spread::Here => vec![self.address(value)],
            Spread::Bit(register) => {
                let number = signed(value(register.full_register()), register.size());
                let element = number.div_euclid(8 * i64::from(self.bytes));
                let away = element.wrapping_mul(i64::from(self.bytes)).cast_unsigned();
                vec![self.offset_by(away, value)]
            }
            Spread::Elements(elements) => (0..usize::from(elements.count))
                .filter(|number| elements.has(*number, self.bytes as usize, &lane))
                .map(|number| {
                    let bytes = usize::from(elements.index_bytes);
                    let index = signed(lane(elements.indices, number * bytes, bytes), bytes);
                    let scaled = index.wrapping_mul(i64::from(self.scale));
                    self.offset_by(scaled.cast_unsigned(), value)
                })
                .collect(),
        }
    }

    /// The address so many bytes further on.
    fn offset_by(&self, away: u64, value: impl Fn(Register) -> u64) -> u64 {
        let part = |register: Register| match register {
            Register::None => 0,
            register => {
                let full = value(register.full_register());
                let bits = register.size() * 8;
                if bits >= 64 { full } else { full & ((1 << bits) - 1) }
            }
        };
        let scaled = part(self.index).wrapping_mul(u64::from(self.scale));
        let mut sum = part(self.base).wrapping_add(scaled).wrapping_add(self.displacement);
        sum = sum.wrapping_add(away);
        if self.narrow {
            sum &= u64::from(u32::MAX);
        }
        sum.wrapping_add(self.segment.map_or(0, value))
    }

    /// Returns whether LEA can compute the address.
    pub fn is_plain(&self) -> bool {
        let plain = |register: Register| {
            register == Register::None || register.is_gpr64() || register.is_gpr32()
        };
        self.spread == Spread::Here && plain(self.base) && plain(self.index)
    }
}

impl Elements {
    /// Returns whether element `number`, of so many bytes, is accessed.
    fn has(
        &self,
        number: usize,
        bytes: usize,
        lane: impl Fn(Register, usize, usize) -> u64,
    ) -> bool {
        match self.mask.is_k() {
            true => lane(self.mask, 0, 8) >> number & 1 == 1,
            false => signed(lane(self.mask, number * bytes, bytes), bytes) < 0,
        }
    }
}

/// The low `bytes` of `value` as a signed number.
fn signed(value: u64, bytes: usize) -> i64 {
    let unused = 64 - 8 * bytes.clamp(1, 8);
    (value << unused).cast_signed() >> unused
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn operands(bytes: &[u8]) -> Vec<MemoryOperand> {
        of(&Decoder::with_ip(64, bytes, 0x40_0000, DecoderOptions::NONE).decode())
    }

    #[test]
    fn a_read_modify_write_is_one_operand() {
        let found = operands(&[0x48, 0x01, 0x44, 0x8b, 0x10]); // add [rbx + rcx*4 + 16], rax
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].how, found[0].bytes), (Use::LoadStore, 8));
        let value = |register| if register == Register::RBX { 0x1000 } else { 2 };
        assert_eq!(found[0].address(value), 0x1018);
    }

    #[test]
    fn the_stack_counts() {
        let push = operands(&[0xff, 0x33]); // push [rbx]
        assert_eq!(push.iter().map(|o| o.how).collect::<Vec<_>>().len(), 2);
        let call = operands(&[0xe8, 0, 0, 0, 0]);
        assert_eq!((call[0].how, call[0].address(|_| 0x1000)), (Use::Store, 0xff8));
        let ret = operands(&[0xc3]);
        assert_eq!((ret[0].how, ret[0].address(|_| 0x1000)), (Use::Load, 0x1000));
    }

    #[test]
    fn rip_relative_operands_have_their_whole_address() {
        let found = operands(&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0]); // mov rax, [rip + 16]
        assert_eq!(found[0].address(|_| 0), 0x40_0017);
    }

    #[test]
    fn lea_and_nop_touch_nothing_and_a_prefetch_asks() {
        assert!(operands(&[0x48, 0x8d, 0x03]).is_empty());
        assert!(operands(&[0x0f, 0x1f, 0x03]).is_empty());
        assert_eq!(operands(&[0x0f, 0x18, 0x0b])[0].how, Use::Prefetch);
    }

    #[test]
    fn bit_strings_are_accessed_where_the_bit_is() {
        let of = |bytes: &[u8], number: i64| {
            let found = operands(bytes);
            assert!(!found[0].is_plain());
            let value = |register| match register {
                Register::RDI => 0x1_0000,
                _ => number.cast_unsigned(),
            };
            found[0].addresses(value, |_, _, _| 0)
        };
        let (bt64, bts32, btr16) =
            (&[0x48, 0x0f, 0xa3, 0x0f], &[0x0f, 0xab, 0x0f], &[0x66, 0x0f, 0xb3, 0x0f]);
        assert_eq!(
            (of(bt64, 65536), of(bt64, -1), of(bt64, 63)),
            (vec![0x1_2000], vec![0xfff8], vec![0x1_0000])
        );
        assert_eq!((of(bts32, 32), of(bts32, -33)), (vec![0x1_0004], vec![0xfff8]));
        assert_eq!(
            (of(btr16, 17), of(btr16, 0x8000)),
            (vec![0x1_0002], vec![0xf000]),
            "16 bits, signed"
        );
        assert!(
            operands(&[0x0f, 0xba, 0x27, 0x05])[0].is_plain(),
            "an immediate stays in the element"
        );
    }

    #[test]
    fn gathers_access_what_their_mask_selects() {
        let value = |register| if register == Register::RDI { 0x1000 } else { 0 };
        let [gather] = operands(&[0xc4, 0xe2, 0x6d, 0x90, 0x0c, 0x1f])[..] else { panic!() };
        // vpgatherdd ymm1, [rdi + ymm3], ymm2
        assert_eq!((gather.how, gather.bytes), (Use::Load, 4));
        let lane = |register, offset: usize, _| match register {
            Register::YMM2 => {
                if offset.is_multiple_of(8) {
                    0x8000_0000
                } else {
                    0x7fff_ffff
                }
            }
            Register::YMM3 => (offset as u64 / 4).wrapping_mul(0x100).wrapping_neg() & 0xffff_ffff,
            other => panic!("{other:?}"),
        };
        assert_eq!(gather.addresses(value, lane), [0x1000, 0xe00, 0xc00, 0xa00]);
        let [scatter] = operands(&[0x62, 0xf2, 0xfd, 0x49, 0xa2, 0x0c, 0xd7])[..] else { panic!() };
        // vscatterdpd [rdi + ymm2*8]{k1}, zmm1
        let lane = |register, offset: usize, _| match register {
            Register::K1 => 0b1000_0010,
            Register::YMM2 => offset as u64 / 4,
            other => panic!("{other:?}"),
        };
        assert_eq!((scatter.how, scatter.bytes), (Use::Store, 8));
        assert_eq!(scatter.addresses(value, lane), [0x1008, 0x1038]);
    }

    #[test]
    fn a_string_reads_before_it_writes() {
        let found = operands(&[0xf3, 0x48, 0xa5]); // rep movsq
        let uses: Vec<_> = found.iter().map(|operand| (operand.how, operand.bytes)).collect();
        assert_eq!(uses, [(Use::Load, 8), (Use::Store, 8)]);
    }
}

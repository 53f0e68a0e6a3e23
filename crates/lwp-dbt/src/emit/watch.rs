//! What the emitter knows about data cache accesses within a block: where flags are dead, which
//! registers are in their slots, and which addresses need no further check.

use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register};

use crate::operands::MemoryOperand;

/// The division of the data cache that is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedShape {
    /// Length of a line.
    pub line_bytes: u32,
    /// The bits of an address that choose a set.
    pub set_mask: u32,
    /// The bits of its set's place.
    pub places: u32,
}

/// That of 32 KiB in 8 ways of 64 bytes.
impl Default for WatchedShape {
    fn default() -> Self {
        Self { line_bytes: 64, set_mask: 0xfc0, places: 0xfc0 }
    }
}

impl WatchedShape {
    /// Returns whether the bits of an address that choose a set are those of its place.
    pub fn is_direct(self) -> bool {
        self.set_mask == self.places
    }
}

/// The knowledge at the instruction at hand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// The cache that is watched.
    pub shape: WatchedShape,
    /// Arithmetic flags that are dead behind the block.
    pub dead_after: u8,
    /// A bit for each instruction, the last being the terminator: all flags are dead before it.
    pub dead: u128,
    /// State bits of the registers that lie in their slots while the instructions that follow do
    /// not mention them.
    pub held: u8,
    known: Known,
}

/// Addresses in lines that are the most recent of their sets: displacements from one base.
///
/// Accesses of one base disturb each other only where they are a whole way of the cache apart, and
/// only the line that is then the most recent of the set would be thought to be; so a displacement
/// far from the others starts anew.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Base, index and factor.
    base: Option<(Register, Register, u32)>,
    /// First displacement, and the one behind the last.
    ranges: Vec<(i64, i64)>,
}

/// Most ranges remembered.
const MOST_RANGES: usize = 8;
/// The distance that displacements may lie apart: less than the smallest way of a cache is long by
/// a line, for lines of 64 bytes. See [`Watch::reach`].
const LEAST_WAY_BYTES: i64 = 1024;

impl Watch {
    /// Nothing is known where a fragment begins.
    pub fn forget(&mut self) {
        self.known = Known::default();
    }

    /// Returns whether an access of this operand is certain to be one of a most recent line.
    pub fn knows(&self, operand: &MemoryOperand) -> bool {
        let (from, to) = extent(operand);
        key(operand).is_some_and(|key| self.known.base == Some(key))
            && self.known.ranges.iter().any(|(first, end)| *first <= from && to <= *end)
    }

    /// An access of this operand has been made.
    pub fn learn(&mut self, operand: &MemoryOperand) {
        let Some(key) = key(operand) else { return self.forget() };
        let (from, to) = extent(operand);
        if self.known.base != Some(key) {
            self.known = Known { base: Some(key), ranges: Vec::new() };
        }
        let (line, reach) = (i64::from(self.shape.line_bytes), self.reach());
        let ranges = &mut self.known.ranges;
        let apart = |(first, end): &(i64, i64)| to.max(*end) - from.min(*first) > reach;
        if ranges.len() == MOST_RANGES || ranges.iter().any(apart) {
            ranges.clear();
        }
        let joined = |(first, end): &(i64, i64)| (from.min(*first), to.max(*end));
        let near = |range: &(i64, i64)| joined(range).1 - joined(range).0 <= line;
        match ranges.iter().position(near) {
            Some(at) => ranges[at] = joined(&ranges[at]),
            None => ranges.push((from, to)),
        }
    }

    /// Within so many bytes, two addresses are in one line or in different sets.
    fn reach(&self) -> i64 {
        LEAST_WAY_BYTES - i64::from(self.shape.line_bytes)
    }

    /// An instruction has been executed: what it does to the registers that are known.
    pub fn executed(&mut self, instruction: &Instruction, info: &InstructionInfo) {
        let Some((base, index, _)) = self.known.base else { return };
        let writes = |register: Register| {
            register != Register::None
                && info.used_registers().iter().any(|used| {
                    used.register().full_register() == register
                        && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
                })
        };
        if writes(index) {
            return self.forget();
        }
        if writes(base) {
            let Some(change) = change(instruction, base) else { return self.forget() };
            for (first, end) in &mut self.known.ranges {
                *first -= change;
                *end -= change;
            }
        }
    }
}

/// Returns the amount that an instruction adds to a register that it writes, where that is plain to
/// see.
fn change(instruction: &Instruction, register: Register) -> Option<i64> {
    let stack = i64::from(instruction.stack_pointer_increment());
    if register == Register::RSP && stack != 0 {
        // POP RSP, LEAVE and ENTER do more than that.
        let plain = match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pushfq => true,
            Mnemonic::Pop => {
                instruction.op0_kind() != OpKind::Register || instruction.op0_register() != register
            }
            _ => false,
        };
        return plain.then_some(stack);
    }
    let immediate =
        matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
    if instruction.op_count() != 2 || !immediate || instruction.op0_register() != register {
        return None;
    }
    match instruction.mnemonic() {
        Mnemonic::Add => Some(instruction.immediate(1) as i64),
        Mnemonic::Sub => Some((instruction.immediate(1) as i64).wrapping_neg()),
        _ => None,
    }
}

/// Returns the base, index and factor that addresses of the operand are relative to; `None` where
/// that cannot be followed. An address relative to the module stays so when the module is mapped
/// elsewhere, by whole pages; an absolute one does not.
fn key(operand: &MemoryOperand) -> Option<(Register, Register, u32)> {
    let followed = operand.segment.is_none() && !operand.narrow;
    let base = if operand.relative { Register::RIP } else { operand.base };
    followed.then_some((base, operand.index, operand.scale))
}

/// The operand's first displacement, and the one behind its last.
fn extent(operand: &MemoryOperand) -> (i64, i64) {
    // Far from either end, so that sums cannot overflow: addresses are canonical.
    let from = (operand.displacement as i64).clamp(i64::MIN / 4, i64::MAX / 4);
    (from, from + i64::from(operand.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    /// Lets instructions access memory one after the other; whether each is known beforehand.
    fn known(code: &[u8]) -> Vec<bool> {
        let mut watch = Watch::default();
        let mut factory = InstructionInfoFactory::new();
        let mut out = Vec::new();
        for instruction in &mut Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE) {
            for operand in crate::operands::of(&instruction) {
                out.push(watch.knows(&operand));
                watch.learn(&operand);
            }
            watch.executed(&instruction, factory.info(&instruction));
        }
        out
    }

    #[test]
    fn the_same_address_is_known_until_its_register_changes() {
        // mov eax, [rbx+8]; mov [rbx+8], eax; mov al, [rbx+11]; mov al, [rbx+12]
        let same = [0x8b, 0x43, 8, 0x89, 0x43, 8, 0x8a, 0x43, 11, 0x8a, 0x43, 12];
        assert_eq!(known(&same), [false, true, true, false]);
        // mov eax, [rbx]; mov rbx, rcx; mov eax, [rbx]
        assert_eq!(known(&[0x8b, 0x03, 0x48, 0x89, 0xcb, 0x8b, 0x03]), [false, false]);
        // mov rbx, [rbx]; mov rax, [rbx]
        assert_eq!(known(&[0x48, 0x8b, 0x1b, 0x48, 0x8b, 0x03]), [false, false]);
    }

    #[test]
    fn what_is_added_to_a_register_is_followed() {
        // push rax; mov rcx, [rsp]; add rsp, 8; mov rcx, [rsp-8]; pop rdx
        let stack =
            [0x50, 0x48, 0x8b, 0x0c, 0x24, 0x48, 0x83, 0xc4, 8, 0x48, 0x8b, 0x4c, 0x24, 0xf8, 0x5a];
        assert_eq!(known(&stack), [false, true, true, false]);
        // push rax; pop rsp; mov rcx, [rsp-8]
        assert_eq!(known(&[0x50, 0x5c, 0x48, 0x8b, 0x4c, 0x24, 0xf8]), [false, true, false]);
        // push rax; add esp, 8; mov rcx, [rsp-8]
        assert_eq!(known(&[0x50, 0x83, 0xc4, 8, 0x48, 0x8b, 0x4c, 0x24, 0xf8]), [false, false]);
    }

    #[test]
    fn another_base_may_be_in_the_same_set() {
        // mov eax, [rbx]; mov eax, [rdx]; mov eax, [rbx]
        assert_eq!(known(&[0x8b, 0x03, 0x8b, 0x02, 0x8b, 0x03]), [false, false, false]);
        // mov eax, [rbx]; mov eax, [rbx+0x1000]; mov eax, [rbx]
        let far = [0x8b, 0x03, 0x8b, 0x83, 0, 0x10, 0, 0, 0x8b, 0x03];
        assert_eq!(known(&far), [false, false, false]);
        // mov eax, [rbx]; mov eax, fs:[rbx]; mov eax, [rbx]
        assert_eq!(known(&[0x8b, 0x03, 0x64, 0x8b, 0x03, 0x8b, 0x03]), [false, false, false]);
    }

    #[test]
    fn what_lies_between_two_known_addresses_of_a_line_is_known() {
        // mov rax, [rbx]; mov rax, [rbx+0x38]; mov rax, [rbx+0x10]
        let within = [0x48, 0x8b, 0x03, 0x48, 0x8b, 0x43, 0x38, 0x48, 0x8b, 0x43, 0x10];
        assert_eq!(known(&within), [false, false, true]);
        // mov rax, [rbx]; mov rax, [rbx+0x39]; mov rax, [rbx+0x10]
        let apart = [0x48, 0x8b, 0x03, 0x48, 0x8b, 0x43, 0x39, 0x48, 0x8b, 0x43, 0x10];
        assert_eq!(known(&apart), [false, false, false]);
    }
}

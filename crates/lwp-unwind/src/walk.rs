//! Walking a stack, frame by frame.
//!
//! Promise: R13

use crate::expression::evaluate;
use crate::generated::Generated;
use crate::image::Image;
use crate::leaving::by_instructions;
use crate::row::{Cfa, RBP, RBX, REGISTERS, RIP, RSP, Row, Rule};

/// The memory of the process whose stack is walked.
pub trait Memory {
    /// The eight bytes at `address`, if they can be read.
    fn word(&mut self, address: u64) -> Option<u64>;

    /// The caller's registers of generated code that the implementation knows more of than its
    /// instructions and a frame pointer say.
    fn leave(&mut self, registers: &Registers) -> Option<Registers> {
        let _ = registers;
        None
    }
}

/// General registers by DWARF's numbers, as far as they are known: rax, rdx, rcx, rbx, rsi, rdi,
/// rbp, rsp, r8 to r15, and rip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    values: [u64; REGISTERS],
    known: u32,
}

impl Registers {
    /// All of them known.
    pub fn all(values: [u64; REGISTERS]) -> Self {
        Self { values, known: (1 << REGISTERS) - 1 }
    }

    /// The value of a register, if it is known.
    pub fn get(&self, register: u16) -> Option<u64> {
        let known = usize::from(register) < REGISTERS && self.known >> register & 1 != 0;
        known.then(|| self.values[usize::from(register)])
    }

    /// Makes a register unknown.
    pub(crate) fn forget(&mut self, register: u16) {
        self.known &= !(1u32.checked_shl(u32::from(register)).unwrap_or(0));
    }

    /// Makes all registers unknown that a call may change; the stack pointer stays.
    pub(crate) fn keep_preserved(&mut self) {
        self.known &= PRESERVED | 1 << RSP;
    }

    /// Sets a register.
    pub fn set(&mut self, register: u16, value: u64) {
        if usize::from(register) < REGISTERS {
            self.values[usize::from(register)] = value;
            self.known |= 1 << register;
        }
    }
}

/// Executable memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeRange {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// The file's tables, as [`Unwinder::add`] has numbered them; `None` for generated code.
    pub image: Option<u32>,
    /// The tables of generated code, as [`Unwinder::add_generated`] has numbered them. Where they
    /// are, a file's are not looked at.
    pub generated: Option<u32>,
    /// The difference between an address and the file's own.
    pub bias: u64,
    /// The caller's number for what is mapped here.
    pub tag: u32,
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The instruction in this frame: the sampled one, one that a signal has interrupted, or the
    /// last byte of the call that has not returned.
    pub place: u64,
    /// The tag of the range that it lies in.
    pub tag: Option<u32>,
    /// The stack pointer there. The frame's memory ends where that of its caller begins.
    pub sp: u64,
    /// The registers there, as far as they are known.
    pub registers: Registers,
}

/// The reason why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// At the stack's bottom, which the tables mark.
    Bottom,
    /// Nothing says how to go on: no table, and no frame pointer that leads to code.
    Lost,
    /// At the given depth.
    Deep,
}

/// Registers that calls preserve.
const PRESERVED: u32 = 1 << RBX | 1 << RBP | 0xf << 12;

/// The tables of all files.
#[derive(Debug, Default)]
pub struct Unwinder {
    images: Vec<Image>,
    generated: Vec<Generated>,
    /// The number of walks.
    walks: u64,
}

impl Unwinder {
    /// Takes the tables of another file in; the number is for [`CodeRange::image`].
    pub fn add(&mut self, image: Image) -> u32 {
        self.images.push(image);
        self.images.len() as u32 - 1
    }

    /// Takes the tables of a process's generated code in; the number is for
    /// [`CodeRange::generated`].
    pub fn add_generated(&mut self, generated: Generated) -> u32 {
        self.generated.push(generated);
        self.generated.len() as u32 - 1
    }

    /// Forgets the tables of all generated code.
    pub fn forget_generated(&mut self) {
        self.generated.clear();
    }

    /// The tables with this number.
    pub fn image(&self, number: u32) -> Option<&Image> {
        self.images.get(number as usize)
    }

    /// Walks the stack that `registers` stand on: `frames` becomes what is found, innermost first,
    /// at most `deepest` of them. `code` is in order and does not overlap.
    pub fn walk(
        &mut self,
        code: &[CodeRange],
        registers: Registers,
        memory: &mut dyn Memory,
        deepest: usize,
        frames: &mut Vec<Frame>,
    ) -> Ending {
        frames.clear();
        self.walks += 1;
        let mut registers = registers;
        // The first frame, and those interrupted by signals, stand at an instruction; others at the
        // instruction after a call, which may be another function's.
        let mut at_instruction = true;
        while let Some(pc) = registers.get(RIP) {
            if frames.len() == deepest {
                return Ending::Deep;
            }
            let place = if at_instruction { pc } else { pc.wrapping_sub(1) };
            let range = range_at(code, place);
            if range.is_none() && !frames.is_empty() {
                return Ending::Lost;
            }
            let sp = registers.get(RSP).unwrap_or(0);
            frames.push(Frame { place, tag: range.map(|range| range.tag), sp, registers });
            let row = range.and_then(|range| self.row(range, place, memory));
            let next = match row {
                Some(row) => by_table(row, &registers, memory),
                None => without_table(code, &registers, memory),
            };
            let caller = match next {
                Next::Caller(caller) => caller,
                Next::Bottom => return Ending::Bottom,
                Next::Lost => return Ending::Lost,
            };
            let signal = row.is_some_and(|row| row.signal);
            if !signal && caller.get(RSP) <= registers.get(RSP) && frames.len() > 1 {
                return Ending::Lost;
            }
            at_instruction = signal;
            registers = caller;
        }
        Ending::Bottom
    }

    fn row(&mut self, range: &CodeRange, place: u64, memory: &mut dyn Memory) -> Option<&Row> {
        if let Some(number) = range.generated {
            let generated = self.generated.get_mut(number as usize)?;
            return generated.row(place, self.walks, memory);
        }
        self.images.get_mut(range.image? as usize)?.row(place.wrapping_sub(range.bias))
    }
}

/// The range that has `address`.
fn range_at(code: &[CodeRange], address: u64) -> Option<&CodeRange> {
    let after = code.partition_point(|range| range.start <= address);
    code.get(after.checked_sub(1)?).filter(|range| address < range.end)
}

/// One step of a walk.
enum Next {
    Caller(Registers),
    Bottom,
    Lost,
}

/// The caller's registers, as a table row says.
fn by_table(row: &Row, registers: &Registers, memory: &mut dyn Memory) -> Next {
    let cfa = match &row.cfa {
        Cfa::Register(register, offset) => {
            registers.get(*register).map(|value| value.wrapping_add_signed(*offset))
        }
        Cfa::Expression(code) => evaluate(code, None, registers, memory),
    };
    let Some(cfa) = cfa else { return Next::Lost };
    let mut caller = *registers;
    caller.known &= PRESERVED;
    caller.set(RSP, cfa);
    let mut returns = false;
    for (register, rule) in &row.rules {
        if *register == RIP {
            if *rule == Rule::Lost {
                return Next::Bottom;
            }
            returns = true;
        }
        match value(rule, *register, cfa, registers, memory) {
            Some(value) => caller.set(*register, value),
            None => caller.known &= !(1 << register),
        }
    }
    if !returns {
        // On this machine a return address has no default place.
        return Next::Bottom;
    }
    match caller.get(RIP) {
        Some(0) => Next::Bottom,
        Some(_) => Next::Caller(caller),
        None => Next::Lost,
    }
}

fn value(
    rule: &Rule,
    register: u16,
    cfa: u64,
    registers: &Registers,
    memory: &mut dyn Memory,
) -> Option<u64> {
    match rule {
        Rule::Lost => None,
        Rule::Same => registers.get(register),
        Rule::At(offset) => memory.word(cfa.wrapping_add_signed(*offset)),
        Rule::Is(offset) => Some(cfa.wrapping_add_signed(*offset)),
        Rule::Register(other) => registers.get(*other),
        Rule::AtExpression(code) => {
            let address = evaluate(code, Some(cfa), registers, memory)?;
            memory.word(address)
        }
        Rule::IsExpression(code) => evaluate(code, Some(cfa), registers, memory),
        Rule::Constant(value) => Some(*value),
    }
}

/// The caller's registers where there is no table: a stub says by its instructions how it is left,
/// a language may know its own code, and other code has a frame pointer.
fn without_table(code: &[CodeRange], registers: &Registers, memory: &mut dyn Memory) -> Next {
    let leads_to_code = |caller: &Registers| {
        let to = caller.get(RIP).map(|to| to.wrapping_sub(1));
        to.is_some_and(|to| range_at(code, to).is_some())
    };
    let caller = by_instructions(registers, memory).filter(leads_to_code);
    match caller.or_else(|| memory.leave(registers).filter(leads_to_code)) {
        Some(caller) => Next::Caller(caller),
        None => by_frame_pointer(code, registers, memory),
    }
}

/// The caller's registers where the frame has a pointer to it: rbp points to the caller's rbp, and
/// the return address lies above that. It must lead to code, or else rbp was something else.
fn by_frame_pointer(code: &[CodeRange], registers: &Registers, memory: &mut dyn Memory) -> Next {
    let (Some(sp), Some(bp)) = (registers.get(RSP), registers.get(RBP)) else { return Next::Lost };
    if bp == 0 {
        return Next::Bottom;
    }
    if bp < sp || !bp.is_multiple_of(8) {
        return Next::Lost;
    }
    let (Some(saved), Some(ret)) = (memory.word(bp), memory.word(bp.wrapping_add(8))) else {
        return Next::Lost;
    };
    if ret == 0 {
        return Next::Bottom;
    }
    if range_at(code, ret.wrapping_sub(1)).is_none() {
        return Next::Lost;
    }
    let mut caller = Registers::default();
    caller.set(RIP, ret);
    caller.set(RSP, bp.wrapping_add(16));
    caller.set(RBP, saved);
    Next::Caller(caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack of words from this address up.
    struct Words(u64, Vec<u64>);

    impl Memory for Words {
        fn word(&mut self, address: u64) -> Option<u64> {
            let index = address.checked_sub(self.0)? / 8;
            self.1.get(index as usize).copied()
        }
    }

    fn generated() -> [CodeRange; 1] {
        [CodeRange { start: 0x1000, end: 0x2000, image: None, generated: None, bias: 0, tag: 9 }]
    }

    fn at(pc: u64, sp: u64, bp: u64) -> Registers {
        let mut registers = Registers::default();
        registers.set(RIP, pc);
        registers.set(RSP, sp);
        registers.set(RBP, bp);
        registers
    }

    #[test]
    fn code_without_tables_is_walked_by_the_frame_pointer() {
        let mut memory = Words(0x8000, vec![7, 0x8020, 0x1234, 7, 0, 0x1456, 0, 0]);
        let mut frames = Vec::new();
        let mut unwinder = Unwinder::default();
        let start = at(0x1010, 0x8000, 0x8008);
        let ending = unwinder.walk(&generated(), start, &mut memory, 100, &mut frames);
        let places: Vec<u64> = frames.iter().map(|frame| frame.place).collect();
        assert_eq!(places, [0x1010, 0x1233, 0x1455]);
        assert!(frames.iter().all(|frame| frame.tag == Some(9)));
        assert_eq!(ending, Ending::Bottom);
    }

    #[test]
    fn a_frame_pointer_that_leads_nowhere_ends_the_walk() {
        let mut frames = Vec::new();
        let mut unwinder = Unwinder::default();
        for (bp, words) in [
            (0x8008, vec![0, 0x8020, 0x9999_9999]),
            (0x7000, vec![0]),
            (0x8001, vec![0]),
            (0x8008, vec![0]),
        ] {
            let mut memory = Words(0x8000, words);
            let start = at(0x1010, 0x8000, bp);
            let ending = unwinder.walk(&generated(), start, &mut memory, 100, &mut frames);
            assert_eq!((ending, frames.len()), (Ending::Lost, 1));
        }
    }

    #[test]
    fn a_stack_that_points_to_itself_ends() {
        let mut memory = Words(0x8000, vec![0x8000, 0x1234]);
        let mut frames = Vec::new();
        let start = at(0x1010, 0x8000, 0x8000);
        let ending = Unwinder::default().walk(&generated(), start, &mut memory, 100, &mut frames);
        assert_eq!((ending, frames.len()), (Ending::Lost, 2));
    }

    #[test]
    fn depth_is_limited() {
        // A chain of a thousand frames.
        let words: Vec<u64> = (0..1000u64).flat_map(|n| [0x8000 + (n + 1) * 16, 0x1100]).collect();
        let mut memory = Words(0x8000, words);
        let mut frames = Vec::new();
        let start = at(0x1010, 0x8000, 0x8000);
        let ending = Unwinder::default().walk(&generated(), start, &mut memory, 50, &mut frames);
        assert_eq!((ending, frames.len()), (Ending::Deep, 50));
    }
}

//! DWARF expressions in unwind tables.

use gimli::{Encoding, EndianSlice, EvaluationResult, Expression, Format, LittleEndian, Location};

use crate::walk::{Memory, Registers};

const ENCODING: Encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };
/// Steps after which an expression is given up.
const LONGEST: u32 = 1000;

/// The value of `code` with `initial` on its stack, as far as registers and memory have what it
/// needs.
pub fn evaluate(
    code: &[u8],
    initial: Option<u64>,
    registers: &Registers,
    memory: &mut dyn Memory,
) -> Option<u64> {
    let expression = Expression(EndianSlice::new(code, LittleEndian));
    let mut evaluation = expression.evaluation(ENCODING);
    evaluation.set_max_iterations(LONGEST);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = registers.get(register.0)?;
                evaluation.resume_with_register(gimli::Value::Generic(value)).ok()?
            }
            EvaluationResult::RequiresMemory { address, size, .. } => {
                let word = memory.word(address)?;
                let bits = u32::from(size.clamp(1, 8)) * 8;
                let value = word & (u64::MAX >> (64 - bits));
                evaluation.resume_with_memory(gimli::Value::Generic(value)).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result().last()?.location {
        Location::Address { address } => Some(address),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words;

    impl Memory for Words {
        fn word(&mut self, address: u64) -> Option<u64> {
            (address == 0x100).then_some(0x1234_5678_9abc_def0)
        }
    }

    #[test]
    fn registers_and_memory_are_supplied() {
        let mut registers = Registers::default();
        registers.set(6, 0x108);
        // DW_OP_breg6 -8; DW_OP_deref
        let code = [0x76, 0x78, 0x06];
        assert_eq!(evaluate(&code, None, &registers, &mut Words), Some(0x1234_5678_9abc_def0));
        // The same with rbx, which is not known.
        assert_eq!(evaluate(&[0x73, 0x78, 0x06], None, &registers, &mut Words), None);
        // DW_OP_plus_uconst 16 on an initial value
        assert_eq!(evaluate(&[0x23, 16], Some(5), &registers, &mut Words), Some(21));
    }

    #[test]
    fn endless_expressions_end() {
        // DW_OP_skip -3
        assert_eq!(evaluate(&[0x2f, 0xfd, 0xff], Some(0), &Registers::default(), &mut Words), None);
    }
}

//! The unwind table's row for one instruction, in a form that outlives the table's bytes.

use gimli::{CfaRule, EndianSlice, LittleEndian, Register, RegisterRule, UnwindSection};

/// DWARF's number of rdx.
pub const RDX: u16 = 1;
/// DWARF's number of rbx.
pub const RBX: u16 = 3;
/// DWARF's number of rbp.
pub const RBP: u16 = 6;
/// DWARF's number of rsp.
pub const RSP: u16 = 7;
/// DWARF's number of the return address, which stands for rip.
pub const RIP: u16 = 16;
/// The number of registers that take part.
pub const REGISTERS: usize = 17;

/// The place of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// At a register's value plus an offset.
    Register(u16, i64),
    /// The value of an expression.
    Expression(Box<[u8]>),
}

/// The way to restore a register of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It is lost.
    Lost,
    /// It is what it is.
    Same,
    /// It lies at this offset from the frame's address.
    At(i64),
    /// It is the frame's address plus this offset.
    Is(i64),
    /// Another register has it.
    Register(u16),
    /// It lies where an expression says.
    AtExpression(Box<[u8]>),
    /// It is what an expression says.
    IsExpression(Box<[u8]>),
    /// It is a number.
    Constant(u64),
}

/// A row of an unwind table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The place of the frame.
    pub cfa: Cfa,
    /// Rules that the table states, by register.
    pub rules: Vec<(u16, Rule)>,
    /// The function is the kernel's way back from a signal handler: the caller was interrupted, not
    /// called.
    pub signal: bool,
}

impl Row {
    /// The row in the table's own form.
    pub fn of<'a, S>(
        section: &S,
        row: &gimli::UnwindTableRow<usize>,
        signal: bool,
    ) -> gimli::Result<Self>
    where
        S: UnwindSection<EndianSlice<'a, LittleEndian>>,
    {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Cfa::Register(register.0, *offset),
            CfaRule::Expression(expression) => {
                Cfa::Expression(expression.get(section)?.0.slice().into())
            }
        };
        let mut rules = Vec::new();
        for number in 0..REGISTERS as u16 {
            let Some(rule) = row.register(Register(number)) else { continue };
            let rule = match rule {
                RegisterRule::SameValue => Rule::Same,
                RegisterRule::Offset(offset) => Rule::At(offset),
                RegisterRule::ValOffset(offset) => Rule::Is(offset),
                RegisterRule::Register(register) => Rule::Register(register.0),
                RegisterRule::Expression(expression) => {
                    Rule::AtExpression(expression.get(section)?.0.slice().into())
                }
                RegisterRule::ValExpression(expression) => {
                    Rule::IsExpression(expression.get(section)?.0.slice().into())
                }
                RegisterRule::Constant(value) => Rule::Constant(value),
                _ => Rule::Lost,
            };
            rules.push((number, rule));
        }
        Ok(Self { cfa, rules, signal })
    }
}

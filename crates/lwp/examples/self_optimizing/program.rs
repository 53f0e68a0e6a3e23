//! The machine: four registers, basic blocks, and input items that a program adds to a sum.

/// A register's number: 0 to 3. Register 0 holds the sum.
pub type Reg = u8;

/// What an instruction does.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Puts the next item into a register.
    Next(Reg),
    /// Copies the second register to the first.
    Copy(Reg, Reg),
    /// Keeps only these bits.
    And(Reg, i32),
    /// Shifts right.
    Shift(Reg, u8),
    /// Adds a number.
    Add(Reg, i32),
    /// Calls a method on the sum that is known only when the program runs.
    Send { method: Reg, value: Reg },
}

/// What is compared at the end of a block.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    Equal(Reg, i32),
    Less(Reg, i32),
    MoreItems,
}

/// How a block ends. Blocks are named by their numbers.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Jump(usize),
    If { test: Test, yes: usize, no: usize },
    Return,
}

/// A basic block.
#[derive(Clone, Debug)]
pub struct Block {
    pub ops: Vec<Op>,
    pub end: End,
}

/// A method's name, and its result for the sum and a value.
type Method = (&'static str, fn(u64, u64) -> u64);

/// The methods of [`Op::Send`], by number. Larger numbers call the last one.
pub const METHODS: [Method; 4] = [
    ("add", u64::wrapping_add),
    ("sub", u64::wrapping_sub),
    ("xor", |sum, value| sum ^ value),
    ("mul", u64::wrapping_mul),
];

/// A program as a parser would leave it: the exceptions stand where the source names them, in
/// front of the usual case.
pub fn program() -> Vec<Block> {
    use Op::{Add, And, Copy, Next, Send, Shift};
    let block = |ops: &[Op], end| Block { ops: ops.to_vec(), end };
    let when = |test, yes, no| End::If { test, yes, no };
    vec![
        block(
            &[Next(1), Copy(2, 1), And(2, 3), Shift(1, 2)],
            when(Test::Equal(1, 0), 1, 2), // nothing in it?
        ),
        block(&[Add(0, 1)], End::Jump(5)),
        block(&[], when(Test::Less(1, 16), 3, 4)), // a small one?
        block(&[Add(1, 1000)], End::Jump(4)),
        block(&[Send { method: 2, value: 1 }], End::Jump(5)),
        block(&[], when(Test::MoreItems, 0, 6)),
        block(&[], End::Return),
    ]
}

/// Items as they come: few are empty or small, and nearly all have method 2. The compiler does not
/// know that.
pub fn items(count: usize) -> Vec<u64> {
    let mut state = 1u64;
    let mut below = |limit: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut item = || {
        let value = match below(100) {
            0..3 => 0,
            3..9 => 1 + below(15),
            _ => 16 + below(1 << 20),
        };
        let method = if below(100) < 4 { below(4) } else { 2 };
        value << 2 | method
    };
    (0..count).map(|_| item()).collect()
}

/// Returns whether a program can be compiled without checks: it names registers and blocks that
/// there are, and takes one item in its first block, where only the test for more items leads.
pub fn verify(program: &[Block]) -> bool {
    let registers = |op: &Op| match *op {
        Op::Copy(a, b) | Op::Send { method: a, value: b } => a < 4 && b < 4,
        Op::Next(a) | Op::And(a, _) | Op::Shift(a, _) | Op::Add(a, _) => a < 4,
    };
    let is_next = |op: &&Op| matches!(op, Op::Next(_));
    let leads_on = |to: usize| 0 < to && to < program.len();
    let fits = |(number, block): (usize, &Block)| {
        let nexts = block.ops.iter().filter(is_next).count();
        nexts == usize::from(number == 0)
            && block.ops.iter().all(registers)
            && block.ops.iter().filter(|op| matches!(op, Op::Send { .. })).count() <= 1
            && match block.end {
                End::Jump(to) => leads_on(to),
                End::If { test: Test::MoreItems, yes: 0, no } => leads_on(no),
                End::If { test: Test::Equal(reg, _) | Test::Less(reg, _), yes, no } => {
                    reg < 4 && leads_on(yes) && leads_on(no)
                }
                End::If { test: Test::MoreItems, .. } => false,
                End::Return => true,
            }
    };
    !program.is_empty() && program.iter().enumerate().all(fits)
}

/// Interprets a program: slow, obvious, and what generated code is compared with.
pub fn interpret(program: &[Block], items: &[u64], sum: u64) -> u64 {
    let mut registers = [sum, 0, 0, 0];
    let mut items = items.iter().copied().peekable();
    let mut at = if items.peek().is_some() { Some(0) } else { None };
    while let Some(number) = at {
        let block: &Block = &program[number];
        for op in &block.ops {
            step(*op, &mut registers, &mut items);
        }
        at = match block.end {
            End::Jump(to) => Some(to),
            End::If { test, yes, no } => {
                let holds = match test {
                    Test::Equal(reg, number) => registers[usize::from(reg)] as i64 == number.into(),
                    Test::Less(reg, number) => (registers[usize::from(reg)] as i64) < number.into(),
                    Test::MoreItems => items.peek().is_some(),
                };
                Some(if holds { yes } else { no })
            }
            End::Return => None,
        };
    }
    registers[0]
}

fn step(op: Op, registers: &mut [u64; 4], items: &mut impl Iterator<Item = u64>) {
    let extended = |number: i32| i64::from(number) as u64;
    match op {
        Op::Next(reg) => registers[usize::from(reg)] = items.next().unwrap_or_default(),
        Op::Copy(to, from) => registers[usize::from(to)] = registers[usize::from(from)],
        Op::And(reg, bits) => registers[usize::from(reg)] &= extended(bits),
        Op::Shift(reg, bits) => registers[usize::from(reg)] >>= bits,
        Op::Add(reg, number) => {
            let register = &mut registers[usize::from(reg)];
            *register = register.wrapping_add(extended(number));
        }
        Op::Send { method, value } => {
            let method = registers[usize::from(method)].min(METHODS.len() as u64 - 1);
            let (_, call) = METHODS[method as usize];
            registers[0] = call(registers[0], registers[usize::from(value)]);
        }
    }
}

//! The compiler: machine code of a program, laid out and specialised by what is known of it.

use std::collections::BTreeMap;

use crate::program::{Block, End, METHODS, Op, Reg, Test, verify};

/// What the compiler is told beside the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The order of the blocks in memory. The first one is the program's.
    pub order: Vec<usize>,
    /// The method that a block's `Send` nearly always calls: it is tried first.
    pub usual: BTreeMap<usize, u8>,
    /// Whether `Send` samples its method with LWPVAL.
    pub samples_values: bool,
}

/// A conditional branch that ends a block.
#[derive(Clone, Copy, Debug)]
pub struct Branch {
    pub block: usize,
    /// Whether the branch, if taken, leads to the block for *yes*.
    pub taken_is_yes: bool,
}

/// Machine code, and where the blocks' branches are in it.
#[derive(Debug, Default)]
pub struct Compiled {
    bytes: Vec<u8>,
    branches: BTreeMap<u64, Branch>,
}

impl Compiled {
    /// Position-independent code of a function: rdi is the first item, rsi the end of the items,
    /// rdx the sum so far, rax the new sum. Of a program that [`verify`] has passed, it reads the
    /// items and no other memory, and writes none.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The blocks' branches, by their offset.
    pub fn branches(&self) -> &BTreeMap<u64, Branch> {
        &self.branches
    }
}

/// The second byte of `jcc`; the lowest bit inverts the condition.
const BELOW: u8 = 0x82;
const EQUAL: u8 = 0x84;
const LESS: u8 = 0x8c;
/// `OP r/m64, r64` of the methods, by number; the last one has another form.
const SIMPLE: [u8; 3] = [0x01, 0x29, 0x31];

/// A place that jumps lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Block(usize),
    /// A method of a block's `Send`.
    Method(usize, u8),
    /// What follows a block's `Send`.
    Sent(usize),
    /// Where a block's `Send` looks for a method that is not the usual one.
    Unusual(usize),
}

#[derive(Default)]
struct Compiler {
    out: Compiled,
    labels: BTreeMap<Label, usize>,
    /// Jumps' distances that are still to be filled in.
    jumps: Vec<(usize, Label)>,
}

/// Compiles `program`. Its registers are r8 to r11; rdi is the next item, rsi the end of the items.
pub fn compile(program: &[Block], plan: &Plan) -> Compiled {
    assert!(verify(program), "the program could read past its items");
    let mut compiler = Compiler::default();
    compiler.emit(&[0x49, 0x89, 0xd0]); // mov r8, rdx
    for (place, &number) in plan.order.iter().enumerate() {
        compiler.label(Label::Block(number));
        let block = &program[number];
        block.ops.iter().for_each(|op| compiler.op(*op, number, plan));
        compiler.end(number, block.end, plan.order.get(place + 1).copied());
    }
    // Out of line: what seldom happens.
    for number in plan.usual.keys() {
        for op in &program[*number].ops {
            if let Op::Send { method, value } = *op {
                compiler.label(Label::Unusual(*number));
                compiler.send(*number, method, value);
                compiler.jump(Label::Sent(*number));
            }
        }
    }
    compiler.finish()
}

impl Compiler {
    fn emit(&mut self, bytes: &[u8]) {
        self.out.bytes.extend(bytes);
    }

    fn label(&mut self, label: Label) {
        self.labels.insert(label, self.out.bytes.len());
    }

    /// `jmp label`
    fn jump(&mut self, label: Label) {
        self.emit(&[0xe9]);
        self.distance(label);
    }

    /// `jcc label`
    fn branch(&mut self, condition: u8, label: Label) {
        self.emit(&[0x0f, condition]);
        self.distance(label);
    }

    fn distance(&mut self, label: Label) {
        self.jumps.push((self.out.bytes.len(), label));
        self.emit(&[0; 4]);
    }

    fn op(&mut self, op: Op, block: usize, plan: &Plan) {
        match op {
            // mov REG, [rdi]; add rdi, 8
            Op::Next(reg) => self.emit(&[0x4c, 0x8b, reg << 3 | 7, 0x48, 0x83, 0xc7, 8]),
            Op::Copy(to, from) => self.emit(&[0x4d, 0x89, 0xc0 | from << 3 | to]),
            Op::And(reg, bits) => self.with_number(4, reg, bits),
            Op::Shift(reg, bits) => self.emit(&[0x49, 0xc1, 0xe8 | reg, bits]),
            Op::Add(reg, number) => self.with_number(0, reg, number),
            Op::Send { method, value } => {
                if plan.samples_values {
                    self.sample(method, block as u32);
                }
                match plan.usual.get(&block) {
                    Some(&usual) => {
                        self.with_number(7, method, usual.into());
                        self.branch(EQUAL ^ 1, Label::Unusual(block));
                        self.method(usual, value);
                    }
                    None => self.send(block, method, value),
                }
                self.label(Label::Sent(block));
            }
        }
    }

    /// `OP REG, NUMBER` of the group: 0 add, 4 and, 7 cmp.
    fn with_number(&mut self, op: u8, reg: Reg, number: i32) {
        self.emit(&[0x49, 0x81, 0xc0 | op << 3 | reg]);
        self.emit(&number.to_le_bytes());
    }

    /// LWPVAL: Data2 is the register, Flags the site.
    fn sample(&mut self, reg: Reg, site: u32) {
        let data2 = 0x80 | (!(8 + reg) & 15) << 3; // W, vvvv inverted
        self.emit(&[0x8f, 0xca, data2, 0x12, 0xc8 | reg]);
        self.emit(&site.to_le_bytes());
    }

    /// Looks for the method, one after the other.
    fn send(&mut self, block: usize, method: Reg, value: Reg) {
        let last = METHODS.len() as u8 - 1;
        for number in 0..last {
            self.with_number(7, method, number.into());
            self.branch(EQUAL, Label::Method(block, number));
        }
        self.method(last, value);
        for number in 0..last {
            self.jump(Label::Sent(block));
            self.label(Label::Method(block, number));
            self.method(number, value);
        }
    }

    fn method(&mut self, number: u8, value: Reg) {
        match SIMPLE.get(usize::from(number)) {
            Some(op) => self.emit(&[0x4d, *op, 0xc0 | value << 3]),
            None => self.emit(&[0x4d, 0x0f, 0xaf, 0xc0 | value]), // imul r8, VALUE
        }
    }

    /// Ends a block. `next` is the block behind it, which needs no jump.
    fn end(&mut self, block: usize, end: End, next: Option<usize>) {
        match end {
            End::Return => self.emit(&[0x4c, 0x89, 0xc0, 0xc3]), // mov rax, r8; ret
            End::Jump(to) if next == Some(to) => {}
            End::Jump(to) => self.jump(Label::Block(to)),
            End::If { test, yes, no } => {
                let condition = self.test(test);
                let taken_is_yes = next != Some(yes);
                let at = self.out.bytes.len() as u64;
                self.out.branches.insert(at, Branch { block, taken_is_yes });
                match taken_is_yes {
                    true => self.branch(condition, Label::Block(yes)),
                    false => self.branch(condition ^ 1, Label::Block(no)),
                }
                if taken_is_yes && next != Some(no) {
                    self.jump(Label::Block(no));
                }
            }
        }
    }

    /// Compares. Returns the condition that holds if the test does.
    fn test(&mut self, test: Test) -> u8 {
        match test {
            Test::Equal(reg, number) => {
                self.with_number(7, reg, number);
                EQUAL
            }
            Test::Less(reg, number) => {
                self.with_number(7, reg, number);
                LESS
            }
            Test::MoreItems => {
                self.emit(&[0x48, 0x39, 0xf7]); // cmp rdi, rsi
                BELOW
            }
        }
    }

    fn finish(mut self) -> Compiled {
        for (at, label) in self.jumps {
            let distance = (self.labels[&label] as i32) - (at as i32 + 4);
            self.out.bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        self.out
    }
}

//! Steps that copy what is read of an interpreter: see [`crate::gather`].

use super::{BLOCK, EVAL, FORMAT, SUB, at};
use crate::gather::{FACT, Label, Step, Steps, Value};

const INTERPRETER: Value = 0;
const STATEMENT: Value = 1;
const STACK: Value = 2;
const CONTEXTS: Value = 3;
const INDEX: Value = 4;
const CONTEXT: Value = 5;
const OTHER: Value = 6;
const CODE: Value = 7;

fn offset(offset: u64) -> i32 {
    offset as i32
}

/// `to` := the pointer at `base` and an offset; goes to `end` where it is null.
fn pointer(steps: &mut Steps, (to, base, at): (Value, Value, u64), end: Label) {
    steps.add([Step::Word(to, base, offset(at)), Step::IfEqual(to, 0, end)]);
}

/// The steps for the interpreter that the pointer at `current` leads to.
pub fn steps(current: u64) -> Steps {
    let mut steps = Steps::default();
    let end = steps.label();
    let finish = steps.label();
    steps.add([Step::Set(INTERPRETER, current), Step::Copy(INTERPRETER, 0, 8)]);
    pointer(&mut steps, (INTERPRETER, INTERPRETER, 0), end);
    let bytes = at::STACK + 8 - at::STATEMENT;
    steps.add([Step::Copy(INTERPRETER, offset(at::STATEMENT), bytes)]);
    pointer(&mut steps, (STATEMENT, INTERPRETER, at::STATEMENT), end);
    pointer(&mut steps, (STACK, INTERPRETER, at::STACK), end);
    let each = steps.here();
    let bytes = at::INDEX + 8 - at::CONTEXTS;
    steps.add([Step::Copy(STACK, offset(at::CONTEXTS), bytes)]);
    pointer(&mut steps, (CONTEXTS, STACK, at::CONTEXTS), end);
    steps.add([Step::Half(INDEX, STACK, offset(at::INDEX))]);
    contexts(&mut steps, end);
    pointer(&mut steps, (STACK, STACK, at::BEFORE), finish);
    steps.add([Step::Jump(each)]);
    steps.place(finish);
    place(&mut steps, end);
    steps.place(end);
    steps.add([Step::End]);
    steps
}

/// Copies the contexts of a stack, from the innermost on, and what they lead to.
fn contexts(steps: &mut Steps, end: Label) {
    let [done, next, sub, eval, text, from] = std::array::from_fn(|_| steps.label());
    let each = steps.here();
    steps.add([
        Step::IfLess(INDEX, 0, done),
        Step::Index(CONTEXT, CONTEXTS, INDEX, at::CONTEXT_SIZE),
        Step::Copy(CONTEXT, 0, at::CONTEXT_SIZE),
        Step::Byte(OTHER, CONTEXT, 0),
        Step::And(OTHER, OTHER, 0xf),
        Step::IfEqual(OTHER, u64::from(SUB), sub),
        Step::IfEqual(OTHER, u64::from(FORMAT), sub),
        Step::IfEqual(OTHER, u64::from(EVAL), eval),
    ]);
    steps.place(next);
    steps.add([Step::Add(INDEX, INDEX, -1), Step::Jump(each)]);
    steps.place(eval);
    steps.add([
        Step::Byte(OTHER, CONTEXT, 0),
        Step::And(OTHER, OTHER, u64::from(BLOCK)),
        Step::IfEqual(OTHER, 0, text),
        Step::Jump(next),
    ]);
    steps.place(text);
    place(steps, end);
    steps.add([Step::Jump(from)]);
    steps.place(sub);
    place(steps, end);
    function(steps, end);
    steps.place(from);
    pointer(steps, (STATEMENT, CONTEXT, at::FROM), end);
    steps.add([Step::Jump(next)]);
    steps.place(done);
}

/// Copies the place of the statement.
fn place(steps: &mut Steps, end: Label) {
    let first = at::LINE & !7;
    steps.add([Step::Copy(STATEMENT, offset(first), at::FILE + 8 - first)]);
    pointer(steps, (OTHER, STATEMENT, at::FILE), end);
    steps.add([Step::Text(OTHER)]);
}

/// Copies what tells the context's subroutine from others, which must be known.
fn function(steps: &mut Steps, end: Label) {
    pointer(steps, (CODE, CONTEXT, at::CODE), end);
    steps.add([Step::Copy(CODE, 0, 16), Step::Add(FACT[0], CODE, 0)]);
    pointer(steps, (CODE, CODE, at::BODY), end);
    steps.add([
        Step::Copy(CODE, offset(at::START), at::GLOB + 8 - at::START),
        Step::Word(FACT[1], CODE, offset(at::GLOB)),
        Step::Word(FACT[2], CODE, offset(at::START)),
        Step::Set(FACT[3], 0),
        Step::Set(FACT[4], 0),
        Step::Set(FACT[5], 0),
        Step::Know,
    ]);
}

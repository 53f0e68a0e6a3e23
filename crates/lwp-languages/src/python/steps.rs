//! Steps that copy what is read of a thread's frames: see [`crate::gather`].

use super::code::Fields;
use super::frames::{OF_CFRAME, STATE_BYTES};
use super::layout::{Chain, Layout, SHIM};
use super::threads::{Found, Places};
use crate::gather::{FACT, Fact, Label, Step, Steps, Value};
use crate::interpreter::Who;

/// Values: the thread's state, a frame, what activations have on the native stack, a code object,
/// and one for a while.
const STATE: Value = 0;
const FRAME: Value = 2;
const ANCHOR: Value = 3;
const CODE: Value = 4;
const OTHER: Value = 5;

/// The steps for a thread with this state.
pub fn steps(places: &Places<'_>, found: Found, who: &Who) -> Steps {
    let layout = places.layout;
    let mut steps = Steps::default();
    let end = steps.label();
    steps.add([Step::Set(STATE, found.state())]);
    found.add_steps(places, who, &mut steps);
    match layout.chain {
        Chain::Objects | Chain::ObjectsOnStack => objects(layout, &mut steps, end),
        Chain::Marked => marked(layout, &mut steps, end),
        Chain::ShimsByStack | Chain::Shims => shims(layout, &mut steps, end),
    }
    steps.place(end);
    steps.add([Step::End]);
    steps
}

/// The fact that tells the code object at `code` from others.
pub fn fact(code: u64, fields: Fields) -> Fact {
    let Fields { file, name, lines, first } = fields;
    [code, file, name, lines, i64::from(first.cast_signed()).cast_unsigned(), 0]
}

fn at(offset: u64) -> i32 {
    offset as i32
}

/// `to` := the pointer at `base` and an offset, which is copied; goes to `end` where it is null.
fn pointer(steps: &mut Steps, (to, base, offset): (Value, Value, u64), end: Label) {
    steps.add([
        Step::Copy(base, at(offset), 8),
        Step::Word(to, base, at(offset)),
        Step::IfEqual(to, 0, end),
    ]);
}

/// Copies what is read of the frame in [`FRAME`], but for the link to the one before, and of its
/// code object, which must be known.
fn frame(layout: &Layout, steps: &mut Steps, end: Label) {
    pointer(steps, (CODE, FRAME, layout.frame.code), end);
    steps.add([Step::Copy(FRAME, at(layout.frame.instruction), 8)]);
    if layout.chain == Chain::Shims {
        steps.add([Step::And(CODE, CODE, !7)]);
    }
    let places = [layout.code.file, layout.code.name, layout.code.lines];
    steps.add([Step::Add(FACT[0], CODE, 0)]);
    for (value, place) in FACT[1..].iter().zip(places) {
        steps.add([Step::Word(*value, CODE, at(place))]);
    }
    let all = places.into_iter().chain([layout.code.first, layout.head - 8]);
    let (least, most) = all.fold((u64::MAX, 0), |(a, b), it| (a.min(it), b.max(it)));
    let least = least & !7;
    steps.add([
        Step::Half(FACT[4], CODE, at(layout.code.first)),
        Step::Set(FACT[5], 0),
        Step::Know,
        Step::Copy(CODE, at(least), (most + 8 - least).next_multiple_of(8)),
    ]);
}

fn objects(layout: &Layout, steps: &mut Steps, end: Label) {
    let activations = steps.label();
    pointer(steps, (FRAME, STATE, layout.thread.frame), activations);
    let each = steps.here();
    frame(layout, steps, activations);
    pointer(steps, (FRAME, FRAME, layout.frame.previous), activations);
    steps.add([Step::Jump(each)]);
    steps.place(activations);
    let Some(stack) = layout.thread.stack else { return };
    pointer(steps, (ANCHOR, STATE, stack), end);
    let each = steps.here();
    let outside = steps.label();
    // The outermost one is a part of the state.
    steps.add([
        Step::Index(OTHER, ANCHOR, STATE, u64::MAX),
        Step::IfLess(OTHER, 0, outside),
        Step::IfLess(OTHER, STATE_BYTES, end),
    ]);
    steps.place(outside);
    pointer(steps, (ANCHOR, ANCHOR, 8), end);
    steps.add([Step::Jump(each)]);
}

fn marked(layout: &Layout, steps: &mut Steps, end: Label) {
    let [current, before] = OF_CFRAME;
    let link = steps.label();
    pointer(steps, (ANCHOR, STATE, layout.thread.frame), end);
    pointer(steps, (FRAME, ANCHOR, current), end);
    let each = steps.here();
    frame(layout, steps, end);
    steps.add([
        Step::Copy(FRAME, at(layout.frame.owner & !7), 8),
        Step::Byte(OTHER, FRAME, at(layout.frame.owner)),
        Step::IfEqual(OTHER, 0, link),
    ]);
    pointer(steps, (ANCHOR, ANCHOR, before), end);
    steps.place(link);
    pointer(steps, (FRAME, FRAME, layout.frame.previous), end);
    steps.add([Step::Jump(each)]);
}

fn shims(layout: &Layout, steps: &mut Steps, end: Label) {
    pointer(steps, (FRAME, STATE, layout.thread.frame), end);
    if layout.chain == Chain::ShimsByStack {
        pointer(steps, (FRAME, FRAME, 0), end);
    }
    let each = steps.here();
    let own = steps.label();
    let link = steps.label();
    steps.add([
        Step::Copy(FRAME, at(layout.frame.owner & !7), 8),
        Step::Byte(OTHER, FRAME, at(layout.frame.owner)),
        Step::IfLess(OTHER, u64::from(SHIM), own),
        Step::Jump(link),
    ]);
    steps.place(own);
    frame(layout, steps, end);
    steps.place(link);
    pointer(steps, (FRAME, FRAME, layout.frame.previous), end);
    steps.add([Step::Jump(each)]);
}

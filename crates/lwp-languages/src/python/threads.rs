//! The interpreter's state of a thread.

use rustc_hash::FxHashMap;

use crate::Memory;
use crate::gather::{Step, Steps};
use crate::interpreter::Who;
use crate::python::layout::Layout;

/// Most interpreters of a process, and most threads of each.
const INTERPRETERS: usize = 256;
const THREADS: usize = 1 << 14;

/// In a thread descriptor of the GNU C library for x86-64, `struct pthread`, the kernel's number of
/// the thread: behind the head of 704 bytes and a list's links.
const NUMBER_IN_DESCRIPTOR: u64 = 720;

/// States by thread.
#[derive(Debug, Default)]
pub struct Known(FxHashMap<i32, u64>);

impl Known {
    /// The state of a thread, as it was found last.
    pub fn last(&self, who: &Who) -> Option<u64> {
        self.0.get(&who.number).copied()
    }

    /// Adds steps that copy what [`find`](Self::find) reads of the state in value 0, which must be
    /// that of the thread still.
    pub fn add_steps(layout: &Layout, who: &Who, steps: &mut Steps) {
        let (ask, go_on) = (steps.label(), steps.label());
        let at = |offset: u64| offset as i32;
        match layout.thread.native {
            Some(native) => steps.add([Step::Copy(0, at(native), 8), Step::Word(1, 0, at(native))]),
            None => steps.add([
                Step::Copy(0, at(layout.thread.pthread), 8),
                Step::Word(1, 0, at(layout.thread.pthread)),
                Step::Copy(1, at(NUMBER_IN_DESCRIPTOR), 8),
                Step::Half(1, 1, at(NUMBER_IN_DESCRIPTOR)),
            ]),
        }
        steps.add([Step::IfEqual(1, who.number as u64, go_on)]);
        steps.place(ask);
        steps.add([Step::Ask]);
        steps.place(go_on);
        // Without an interpreter it is looked for again.
        steps.add([
            Step::Copy(0, at(layout.thread.interpreter), 8),
            Step::Word(1, 0, at(layout.thread.interpreter)),
            Step::IfEqual(1, 0, ask),
        ]);
    }

    /// The state of a thread.
    pub fn find(
        &mut self,
        layout: &Layout,
        runtime: u64,
        who: &Who,
        memory: &mut dyn Memory,
    ) -> Option<u64> {
        if let Some(&state) = self.0.get(&who.number)
            && is_of(layout, state, who, memory)
            && memory.pointer(state.checked_add(layout.thread.interpreter)?).is_some()
        {
            return Some(state);
        }
        let found = search(layout, runtime, who, memory);
        match found {
            Some(state) => self.0.insert(who.number, state),
            None => self.0.remove(&who.number),
        };
        found
    }
}

fn search(layout: &Layout, runtime: u64, who: &Who, memory: &mut dyn Memory) -> Option<u64> {
    let mut all = Vec::new();
    let mut interpreter = memory.pointer(runtime.checked_add(layout.interpreters)?)?;
    for _ in 0..INTERPRETERS {
        let mut state = memory.pointer(interpreter.checked_add(layout.interpreter.threads)?);
        while let Some(at) = state.filter(|_| all.len() < THREADS) {
            // A state that names another interpreter is none.
            if memory.word(at.checked_add(layout.thread.interpreter)?) != Some(interpreter) {
                break;
            }
            if is_of(layout, at, who, memory) {
                return Some(at);
            }
            all.push(at);
            state = memory.pointer(at.checked_add(layout.thread.next)?);
        }
        match memory.pointer(interpreter.checked_add(layout.interpreter.next)?) {
            Some(next) => interpreter = next,
            None => break,
        }
    }
    // The C library may keep thread descriptors of another form: then a thread that is alone is
    // known by that.
    match all[..] {
        [alone] if who.first && layout.thread.native.is_none() => Some(alone),
        _ => None,
    }
}

/// Returns whether a state is that of the thread.
fn is_of(layout: &Layout, state: u64, who: &Who, memory: &mut dyn Memory) -> bool {
    let word = |offset: u64, memory: &mut dyn Memory| memory.word(state.checked_add(offset)?);
    let number = match layout.thread.native {
        Some(native) => word(native, memory),
        None => word(layout.thread.pthread, memory)
            .and_then(|descriptor| memory.half(descriptor.checked_add(NUMBER_IN_DESCRIPTOR)?))
            .map(u64::from),
    };
    number.is_some() && number == u64::try_from(who.number).ok()
}

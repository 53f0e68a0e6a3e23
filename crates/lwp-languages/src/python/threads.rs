//! The interpreter's state of a thread.

use rustc_hash::FxHashMap;

use crate::Memory;
use crate::gather::{Step, Steps};
use crate::interpreter::{Thread, Who};
use crate::python::layout::{Chain, Layout};

/// Most interpreters of a process, and most threads of all of them.
const INTERPRETERS: usize = 256;
const THREADS: usize = 1 << 14;

/// Most threads that are looked at where there are several interpreters, at each sample.
const THREADS_AT_A_SAMPLE: usize = 1 << 12;

/// Most states of a thread, one for each interpreter that it executes.
const STATES: usize = 16;

/// In a thread descriptor of the GNU C library for x86-64, `struct pthread`, the kernel's number of
/// the thread: behind the head of 704 bytes and a list's links.
const NUMBER_IN_DESCRIPTOR: u64 = 720;

/// States by thread, in processes with a single interpreter.
#[derive(Debug, Default)]
pub struct Known(FxHashMap<i32, Found>);

/// A state, and the interpreter that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    state: u64,
    interpreter: u64,
}

/// The places of `_PyRuntime` and of what lies in CPython's structures.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// `_PyRuntime`.
    pub runtime: u64,
    /// The structures.
    pub layout: &'a Layout,
}

impl Found {
    /// The state's address.
    pub fn state(&self) -> u64 {
        self.state
    }

    /// Adds steps that copy what [`Known::find`] reads of the state in value 0, which must be that
    /// of the thread still.
    pub fn add_steps(&self, places: &Places<'_>, who: &Who, steps: &mut Steps) {
        let layout = places.layout;
        let [ask, alone, last, go_on] = [(); 4].map(|()| steps.label());
        let at = |offset: u64| offset as i32;
        // The interpreter must be the only one still.
        let next = at(layout.interpreter.next);
        steps.add([
            Step::Set(1, places.runtime),
            Step::Copy(1, at(layout.interpreters), 8),
            Step::Word(1, 1, at(layout.interpreters)),
            Step::IfEqual(1, self.interpreter, alone),
            Step::Jump(ask),
        ]);
        steps.place(alone);
        steps.add([Step::Copy(1, next, 8), Step::Word(1, 1, next), Step::IfEqual(1, 0, last)]);
        steps.add([Step::Jump(ask)]);
        steps.place(last);
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
}

impl Known {
    /// The state of a thread of a single interpreter, as it was found last.
    pub fn last(&self, who: &Who) -> Option<Found> {
        self.0.get(&who.number).copied()
    }

    /// The states of a thread: one for each interpreter whose code it executes, in no order.
    pub fn find(
        &mut self,
        places: &Places<'_>,
        thread: &Thread<'_>,
        memory: &mut dyn Memory,
    ) -> Vec<u64> {
        let who = &thread.who;
        let interpreters = interpreters(places, memory).unwrap_or_default();
        let found = match interpreters[..] {
            [interpreter] => self.of_single(places.layout, interpreter, who, memory),
            _ => None,
        };
        match found {
            Some(found) => self.0.insert(who.number, found),
            None => self.0.remove(&who.number),
        };
        match found {
            Some(found) => vec![found.state],
            None if interpreters.len() < 2 => Vec::new(),
            None => of_several(places.layout, &interpreters, thread, memory),
        }
    }

    fn of_single(
        &self,
        layout: &Layout,
        interpreter: u64,
        who: &Who,
        memory: &mut dyn Memory,
    ) -> Option<Found> {
        if let Some(&found) = self.0.get(&who.number)
            && found.interpreter == interpreter
            && is_of(layout, found.state, who, memory)
            && memory.pointer(found.state.checked_add(layout.thread.interpreter)?).is_some()
        {
            return Some(found);
        }
        let mut threads = Threads { layout, interpreter, next: None };
        threads.begin(memory);
        let mut all = Vec::new();
        while let Some(state) = threads.next(memory).filter(|_| all.len() < THREADS) {
            if is_of(layout, state, who, memory) {
                return Some(Found { state, interpreter });
            }
            all.push(state);
        }
        // The C library may keep thread descriptors of another form: then a thread that is alone
        // is known by that.
        match all[..] {
            [state] if who.first && layout.thread.native.is_none() => {
                Some(Found { state, interpreter })
            }
            _ => None,
        }
    }
}

/// All interpreters of a process, the newest first.
fn interpreters(places: &Places<'_>, memory: &mut dyn Memory) -> Option<Vec<u64>> {
    let layout = places.layout;
    let mut all = vec![memory.pointer(places.runtime.checked_add(layout.interpreters)?)?];
    while let Some(&last) = all.last().filter(|_| all.len() < INTERPRETERS) {
        match memory.pointer(last.checked_add(layout.interpreter.next)?) {
            Some(next) => all.push(next),
            None => break,
        }
    }
    Some(all)
}

/// The states of a thread, of several interpreters.
fn of_several(
    layout: &Layout,
    interpreters: &[u64],
    thread: &Thread<'_>,
    memory: &mut dyn Memory,
) -> Vec<u64> {
    let (mut seen, mut found) = (0, Vec::new());
    for &interpreter in interpreters {
        let mut threads = Threads { layout, interpreter, next: None };
        threads.begin(memory);
        while seen < THREADS_AT_A_SAMPLE
            && found.len() < STATES
            && let Some(state) = threads.next(memory)
        {
            seen += 1;
            let executes = executes(layout, state, thread, memory);
            if executes.unwrap_or_else(|| is_of(layout, state, &thread.who, memory)) {
                found.push(state);
            }
        }
    }
    found
}

/// Returns whether a thread executes a state, by what that has on the native stack; `None` where
/// this does not tell. To 3.11 a state names the thread that made its interpreter, whichever
/// executes it.
fn executes(
    layout: &Layout,
    state: u64,
    thread: &Thread<'_>,
    memory: &mut dyn Memory,
) -> Option<bool> {
    let place = match layout.chain {
        Chain::Objects | Chain::Shims => None,
        Chain::ObjectsOnStack => layout.thread.stack,
        Chain::Marked | Chain::ShimsByStack => Some(layout.thread.frame),
    }?;
    let (first, last) = (thread.native.first()?, thread.native.last()?);
    thread.complete.then_some(())?;
    let at = memory.word(state.checked_add(place)?);
    Some(at.is_some_and(|at| (first.sp..last.sp).contains(&at)))
}

/// The states of an interpreter's threads, one after the other.
struct Threads<'a> {
    layout: &'a Layout,
    interpreter: u64,
    next: Option<u64>,
}

impl Threads<'_> {
    fn begin(&mut self, memory: &mut dyn Memory) {
        let first = self.interpreter.checked_add(self.layout.interpreter.threads);
        self.next = first.and_then(|first| memory.pointer(first));
    }

    fn next(&mut self, memory: &mut dyn Memory) -> Option<u64> {
        let at = self.next.take()?;
        // A state that names another interpreter is none.
        let named = memory.word(at.checked_add(self.layout.thread.interpreter)?)?;
        (named == self.interpreter).then_some(())?;
        let next = at.checked_add(self.layout.thread.next);
        self.next = next.and_then(|next| memory.pointer(next));
        Some(at)
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

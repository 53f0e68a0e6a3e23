//! Functions of interpreted languages in sampled stacks.
//!
//! [`lwp_languages`] reads the functions, and this module numbers them. In the recording, a source
//! file is a module, and each line of a function has an address in it. No process can use these
//! addresses, because they are in the kernel's half.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lwp_languages::functions::{Frame as LanguageFrame, Function, Functions, Language};
use lwp_languages::interpreter::{Interpreter, Process, Thread, Who};
use lwp_languages::luajit;
use lwp_languages::merge::{self, Activation, Merged, Native};
use lwp_process::maps::Status;
use lwp_process::{Tid, sys};
use lwp_unwind::{CodeRange, Ending, Frame, RBP, RBX, RDX, RIP, RSP, Registers};
use rustc_hash::FxHashMap;

use crate::lwp::Gather;
use crate::profile::{LanguageFunction, Module, Place};

/// Receives the source files and functions that stacks are met to have, before the first of their
/// places.
pub trait Declarations {
    /// A source file, as a module; returns the number that it gets. Its own number says nothing.
    fn add_module(&mut self, module: Module) -> u32;
    /// A function in one of these files.
    fn add_function(&mut self, function: &LanguageFunction);
}

/// Interpreters, and what has been read of them.
#[derive(Debug, Default)]
pub struct Languages {
    /// Languages that are looked for.
    wanted: Vec<Language>,
    /// Files with an interpreter, by the number of their unwind tables.
    interpreters: FxHashMap<u32, Interpreter>,
    /// By process and file.
    processes: FxHashMap<(i32, u32), Process>,
    /// By thread and process.
    threads: FxHashMap<(Tid, i32), Who>,
    functions: Functions,
    /// Module and first address of each function.
    reported: Vec<(u32, u64)>,
    modules: FxHashMap<(Language, Arc<str>), SourceFile>,
    memory: Pages,
    // Kept for the next sample, for their room.
    native: Vec<Native>,
    merged: Vec<Merged>,
    places: Vec<Place>,
}

/// A module that stands for a source file.
#[derive(Clone, Copy, Debug)]
struct SourceFile {
    module: u32,
    /// Functions that have addresses in it.
    functions: u64,
}

/// Functions' addresses begin here.
const FIRST: u64 = 1 << 63;
/// Lines of a function that have addresses; those further down share the first.
const LINES: u64 = 1 << 20;
/// Processes and threads that are remembered.
const MOST: usize = 1 << 10;

impl Languages {
    /// Nothing has been read yet; `wanted` languages will be.
    pub fn new(wanted: &[Language]) -> Self {
        Self { wanted: wanted.to_vec(), ..Self::default() }
    }

    /// Returns whether frames of any language are wanted.
    pub fn are_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Returns whether `code` has an interpreter of a wanted language in it.
    pub fn are_in(&self, code: &[CodeRange]) -> bool {
        !self.interpreters.is_empty()
            && code.iter().filter_map(|it| it.image).any(|it| self.interpreters.contains_key(&it))
    }

    /// Looks for an interpreter in the file whose unwind tables have the number `image`.
    pub fn learn(&mut self, image: u32, path: &Path) {
        if self.wanted.is_empty() {
            return;
        }
        if let Some(interpreter) = Interpreter::open(path, &self.wanted) {
            self.interpreters.insert(image, interpreter);
        }
    }

    /// Forgets a process that has ended, or executes another program.
    pub fn forget_process(&mut self, pid: i32) {
        self.processes.retain(|(of, _), _| *of != pid);
        self.threads.retain(|(_, of), _| *of != pid);
    }

    /// Takes the tables from code whose language knows better how it is left. Returns whether there
    /// is such code.
    pub fn take_tables(&self, code: &mut Vec<CodeRange>) -> bool {
        let mut found = false;
        for index in 0..code.len() {
            let range = code[index];
            let interpreter = range.image.and_then(|image| self.interpreters.get(&image));
            let Some(Interpreter::LuaJit(interpreter)) = interpreter else { continue };
            found = true;
            for part in &interpreter.evaluator {
                let at = |address: u64| address.wrapping_add(range.bias);
                let (start, end) = (at(part.start), at(part.end));
                if range.start <= start && start < end && end <= range.end {
                    code[index].end = start;
                    code.push(CodeRange { start, end, image: None, ..range });
                    code.push(CodeRange { start: end, ..range });
                }
            }
        }
        code.retain(|range| range.start < range.end);
        code.sort_unstable_by_key(|range| range.start);
        found
    }

    /// The number of a function that is read from the memory of `tid`.
    pub fn number(
        &mut self,
        tid: Tid,
        read: impl FnOnce(&mut dyn lwp_languages::Memory) -> Option<Function>,
    ) -> Option<u32> {
        self.memory.begin(tid);
        let function = read(&mut self.memory)?;
        Some(self.functions.number(function))
    }

    /// The place of a function's declaration, which it is reported with if it is new.
    pub fn declared(
        &mut self,
        function: u32,
        pid: i32,
        to: &mut dyn Declarations,
    ) -> Option<Place> {
        let line = self.functions.get(function)?.line;
        self.place(LanguageFrame { function, line }, pid, to)
    }

    /// A sample of thread `tid` begins. The memory that is read is that of now, or what the thread
    /// has `copied` when the sample was due.
    pub fn begin(&mut self, tid: Tid, copied: Option<&[(u64, Vec<u8>)]>) {
        match copied {
            Some(pieces) => self.memory.begin_with(tid, pieces),
            None => self.memory.begin_again(tid),
        }
    }

    /// Returns whether more was read than the thread had copied.
    pub fn fell_short(&self) -> bool {
        self.memory.fell_short
    }

    /// The memory that is read of the interpreter of a thread, the last sample of which was read;
    /// `None` where it cannot be said in steps, or the process has several interpreters.
    pub fn gather(&self, (tid, pid): (Tid, i32), code: &[CodeRange]) -> Option<Gather> {
        let &[(image, _)] = &self.images(code)[..] else { return None };
        let who = self.threads.get(&(tid, pid))?;
        let (steps, facts) = self.processes.get(&(pid, image))?.gather(who)?;
        Some(Gather { steps, facts: facts.to_vec() })
    }

    /// The files with interpreters in `code`, and how much higher their addresses are there.
    fn images(&self, code: &[CodeRange]) -> Vec<(u32, u64)> {
        let has = |range: &CodeRange| {
            range.image.filter(|it| self.interpreters.contains_key(it)).map(|it| (it, range.bias))
        };
        let mut images: Vec<(u32, u64)> = code.iter().filter_map(has).collect();
        images.dedup();
        images
    }

    /// Puts the functions that thread `tid` of process `pid` interprets between the places of its
    /// native frames.
    pub fn merge_into(
        &mut self,
        places: &mut Vec<Place>,
        (tid, pid): (Tid, i32),
        (code, frames, ending): (&[CodeRange], &[Frame], Ending),
        to: &mut dyn Declarations,
    ) {
        if self.interpreters.is_empty() {
            return;
        }
        let images = self.images(code);
        if self.threads.len() >= MOST {
            self.threads.clear();
        }
        let who = *self.threads.entry((tid, pid)).or_insert_with(|| who(tid, pid));
        for image in images {
            let complete = ending == Ending::Bottom;
            let (found, activations) = self.read(who, pid, image, (code, frames, complete));
            if !found.is_empty() {
                self.put(places, pid, (&found, &activations, complete), to);
                return;
            }
        }
    }

    /// The frames that an interpreter executes, and its activations. The native frames become those
    /// of `frames`.
    fn read(
        &mut self,
        who: Who,
        pid: i32,
        (image, bias): (u32, u64),
        (code, frames, complete): (&[CodeRange], &[Frame], bool),
    ) -> (Vec<LanguageFrame>, Vec<Activation>) {
        let Some(interpreter) = self.interpreters.get(&image) else { return Default::default() };
        if self.processes.len() >= MOST {
            self.processes.clear();
        }
        let fresh = || Process::new(interpreter.clone(), bias);
        let process = self.processes.entry((pid, image)).or_insert_with(fresh);
        if !process.is(interpreter, bias) {
            *process = fresh();
        }
        self.native.clear();
        let of_file = |place: u64| {
            let after = code.partition_point(|range| range.start <= place);
            let range = after.checked_sub(1).and_then(|at| code.get(at));
            range.is_some_and(|range| place < range.end && range.image.is_some())
        };
        self.native.extend(frames.iter().map(|frame| Native {
            place: frame.place,
            generated: !of_file(frame.place),
            sp: frame.sp,
            evaluator: interpreter.evaluates(frame.place.wrapping_sub(bias)),
            preserved: [RBX, RBP, 12, 13, 14, 15].map(|register| frame.registers.get(register)),
            rdx: frame.registers.get(RDX),
        }));
        let thread = Thread { who, native: &self.native, complete };
        process.stack(&thread, &mut self.functions, &mut self.memory)
    }

    /// Puts the frames that were found between the places of the native ones.
    fn put(
        &mut self,
        places: &mut Vec<Place>,
        pid: i32,
        (found, activations, complete): (&[LanguageFrame], &[Activation], bool),
        to: &mut dyn Declarations,
    ) {
        let mut merged = std::mem::take(&mut self.merged);
        merge::merge(&self.native, complete, activations, &mut merged);
        let mut out = std::mem::take(&mut self.places);
        out.clear();
        for frame in &merged {
            out.extend(match *frame {
                Merged::Native(index) => places.get(index).copied(),
                Merged::Language(index) => {
                    found.get(index).and_then(|frame| self.place(*frame, pid, to))
                }
            });
        }
        std::mem::swap(places, &mut out);
        (self.merged, self.places) = (merged, out);
    }

    /// Returns the place of a frame, and reports its function if it is new.
    fn place(
        &mut self,
        frame: LanguageFrame,
        pid: i32,
        to: &mut dyn Declarations,
    ) -> Option<Place> {
        while self.reported.len() <= frame.function as usize {
            let number = self.reported.len() as u32;
            let place = self.report(number, pid, to)?;
            self.reported.push(place);
        }
        let first = self.functions.get(frame.function)?.line;
        let (module, address) = *self.reported.get(frame.function as usize)?;
        let line = u64::from(frame.line.wrapping_sub(first));
        let line = if line < LINES { line } else { 0 };
        Some(Place { module: Some(module), address: address + line })
    }

    fn report(&mut self, number: u32, pid: i32, to: &mut dyn Declarations) -> Option<(u32, u64)> {
        let function = self.functions.get(number)?;
        let key = (function.language, Arc::clone(&function.file));
        let file = match self.modules.get_mut(&key) {
            Some(file) => file,
            None => {
                let path =
                    PathBuf::from(format!("[{}]{}", function.language.word(), function.file));
                let mappings = Vec::new();
                let module = Module { id: 0, pid, path, changing: false, mappings, file: None };
                let module = to.add_module(module);
                let file = SourceFile { module, functions: 0 };
                self.modules.entry(key).or_insert(file)
            }
        };
        let (module, address) = (file.module, FIRST + file.functions * LINES);
        file.functions += 1;
        to.add_function(&LanguageFunction {
            module,
            address,
            size: LINES,
            name: function.name.to_string(),
            file: function.file.to_string(),
            line: function.line,
        });
        Some((module, address))
    }
}

/// The registers of the caller of code that LuaJIT has compiled, whose stack ends at `sp`.
pub fn leave_trace(
    registers: &Registers,
    sp: u64,
    memory: &mut dyn lwp_languages::Memory,
) -> Option<Registers> {
    let caller = luajit::caller(sp, memory)?;
    let all = [(RIP, caller.rip), (RSP, caller.rsp), (RBX, caller.rbx), (RBP, caller.rbp)];
    let more = [(14, caller.r14), (15, caller.r15)];
    let mut out = Registers::default();
    all.iter().chain(&more).for_each(|(register, value)| out.set(*register, *value));
    let saved = caller.r12_and_r13.map(|saved| saved.map(Some));
    let others = saved.unwrap_or_else(|| [12, 13].map(|register| registers.get(register)));
    for (register, value) in [12, 13].into_iter().zip(others) {
        value.into_iter().for_each(|value| out.set(register, value));
    }
    Some(out)
}

/// A thread as its process sees it, which may be in a namespace of its own.
fn who(tid: Tid, pid: i32) -> Who {
    let number = Status::read(tid).last_number("NSpid:").unwrap_or(tid);
    Who { number, first: tid == pid }
}

/// Memory of a tracee, as it was when it was first looked at in a sample.
#[derive(Debug, Default)]
struct Pages {
    tid: Tid,
    /// Their bytes, by address; `None` where nothing can be read.
    pieces: FxHashMap<u64, Option<Box<[u8; PIECE]>>>,
    /// Pieces that were read ahead, and have not been looked at.
    ahead: Vec<(u64, Box<[u8; PIECE]>)>,
    /// Pieces that the thread has copied itself, by address, where it has.
    copied: Option<Vec<(u64, Vec<u8>)>>,
    /// It has copied all, and yet more was read.
    fell_short: bool,
}

/// Bytes read at a time: a frame or a code object has some hundred, and neighbours are near.
const PIECE: usize = 1024;

/// Pieces that lie over one another where the thread has copied them, at most.
const MOST_OVERLAPPING: usize = 8;

/// Most pieces read ahead.
const MOST_AHEAD: usize = 32;

impl Pages {
    fn begin(&mut self, tid: Tid) {
        self.tid = tid;
        self.pieces.clear();
        self.ahead.clear();
        (self.copied, self.fell_short) = (None, false);
    }

    /// Takes what the thread has copied. More is read as it is now, which is known by
    /// `fell_short`.
    fn begin_with(&mut self, tid: Tid, pieces: &[(u64, Vec<u8>)]) {
        self.begin(tid);
        let mut pieces = pieces.to_vec();
        pieces.sort_by_key(|(start, _)| *start);
        self.copied = Some(pieces);
    }

    /// Begins another sample, which mostly needs the memory that the thread's last one did: one
    /// call reads that ahead.
    fn begin_again(&mut self, tid: Tid) {
        let same = tid == self.tid;
        let there = self.pieces.iter().filter(|(_, piece)| same && piece.is_some());
        let starts: Vec<u64> = there.map(|(start, _)| *start).take(MOST_AHEAD).collect();
        self.begin(tid);
        let mut pieces = vec![[0; PIECE]; starts.len()];
        let read = sys::read_pieces(tid, &starts, &mut pieces);
        let pieces = pieces.into_iter().map(Box::new);
        self.ahead.extend(starts.into_iter().zip(pieces).take(read));
    }

    fn piece(&mut self, start: u64) -> Option<&[u8; PIECE]> {
        let Self { tid, pieces, ahead, .. } = self;
        let read = || {
            if let Some(at) = ahead.iter().position(|(at, _)| *at == start) {
                return Some(ahead.swap_remove(at).1);
            }
            let mut bytes = Box::new([0; PIECE]);
            let got = sys::read_memory(*tid, start, &mut bytes[..]).unwrap_or(0);
            (got == PIECE).then_some(bytes)
        };
        pieces.entry(start).or_insert_with(read).as_deref()
    }
}

/// Fills `bytes` from pieces that a thread has copied, by address.
fn read_copied(pieces: &[(u64, Vec<u8>)], address: u64, bytes: &mut [u8]) -> Option<()> {
    let (mut at, mut rest) = (address, bytes);
    while !rest.is_empty() {
        let after = pieces.partition_point(|(start, _)| *start <= at);
        // Pieces may overlap.
        let from = pieces[..after].iter().rev().take(MOST_OVERLAPPING).find_map(|it| {
            it.1.get(usize::try_from(at - it.0).ok()?..).filter(|bytes| !bytes.is_empty())
        })?;
        let (now, later) = rest.split_at_mut(from.len().min(rest.len()));
        now.copy_from_slice(&from[..now.len()]);
        (at, rest) = (at + now.len() as u64, later);
    }
    Some(())
}

impl lwp_languages::Memory for Pages {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        let Some(end) = address.checked_add(bytes.len() as u64) else { return false };
        if let Some(pieces) = &self.copied {
            if read_copied(pieces, address, bytes).is_some() {
                return true;
            }
            self.fell_short = true;
        }
        let (mut at, mut rest) = (address, bytes);
        while at < end {
            let start = at & !(PIECE as u64 - 1);
            let Some(piece) = self.piece(start) else { return false };
            let from = &piece[(at - start) as usize..];
            let len = from.len().min(rest.len());
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&from[..len]);
            (at, rest) = (at + len as u64, later);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use lwp_languages::Memory;

    use super::*;

    fn read(pages: &mut Pages, word: &AtomicU64) -> Option<u64> {
        let mut bytes = [0; 8];
        pages.read(word.as_ptr() as u64, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    #[test]
    fn each_sample_reads_memory_as_it_is_by_then() {
        let tid = std::process::id() as Tid;
        let words: [Box<AtomicU64>; 2] = [1, 2].map(|value| Box::new(AtomicU64::new(value)));
        let mut pages = Pages::default();
        for sample in 0..3 {
            pages.begin_again(tid);
            let ahead = pages.ahead.len();
            assert_eq!(ahead > 0, sample > 0, "the last sample is known");
            for (word, first) in words.iter().zip([1, 2]) {
                assert_eq!(read(&mut pages, word), Some(first + sample));
            }
            assert!(pages.ahead.is_empty(), "both are read again");
            // Within a sample nothing changes.
            words.iter().for_each(|word| _ = word.fetch_add(1, Ordering::SeqCst));
            assert_eq!(read(&mut pages, &words[0]), Some(1 + sample));
        }
    }

    #[test]
    fn what_is_gone_is_not_read_ahead() {
        let tid = std::process::id() as Tid;
        let word = AtomicU64::new(7);
        let mut pages = Pages::default();
        pages.begin_again(tid);
        assert_eq!(read(&mut pages, &word), Some(7));
        assert!(!pages.read(PIECE as u64, &mut [0; 8]), "nothing is mapped there");
        pages.begin_again(tid);
        assert_eq!(pages.ahead.len(), 1);
        // Another thread's memory may be another process's.
        pages.begin_again(tid + 1);
        assert!(pages.ahead.is_empty());
    }
}

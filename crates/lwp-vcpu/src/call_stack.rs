//! Call stacks of sampled threads.
//!
//! When a thread waits in its mailbox, its registers are in its context. The host reads its stack
//! from outside and unwinds it with the unwind tables of the mapped files ([`lwp_unwind`]). Between
//! samples, there is no work, and no state that could become wrong, so exceptions, `longjmp`, tail
//! calls and stack switches need no special care.

use std::path::PathBuf;
use std::sync::Arc;

use lwp_languages::functions::Language;
use lwp_process::maps::{self, Mapping};
use lwp_process::program_files;
use lwp_process::tracee_files::path_of;
use lwp_process::{Tid, sys};
use lwp_unwind::{CodeRange, Ending, Frame, Image, Memory, RIP, RSP, Registers, Unwinder};
use rustc_hash::FxHashMap;

use self::dumps::Dumps;
use self::languages::Languages;
use crate::lwp::{Gather, report_kept};
use crate::machine::Counting;
use crate::profile::{Module, ModuleMapping, Place, Profiler, Sample};

mod dumps;
pub mod languages;

/// Most frames of a stack; what lies further out is left out.
const DEEPEST: usize = 1024;
/// Layouts kept; each is a few kilobytes.
const LAYOUTS: usize = 256;

/// Knowledge of the files that stacks lead through.
#[derive(Debug, Default)]
pub struct CallStacks {
    unwinder: Unwinder,
    images: FxHashMap<FileKey, u32>,
    modules: FxHashMap<ModuleKey, (u32, Vec<ModuleMapping>)>,
    /// Code by the state of an address space ([`lwp_code::space::CodeMap::changes`]).
    layouts: FxHashMap<u64, Arc<Vec<CodeRange>>>,
    /// Files with tables of generated code.
    dumps: Dumps,
    /// Interpreted languages.
    pub languages: Languages,
    /// A language has code that it knows better than tables do.
    traces: bool,
    /// The end of the stack that was walked last, if the walk came to its bottom and needed nothing
    /// from elsewhere.
    end: Option<u64>,
    /// Kept for the next walk, for their room.
    frames: Vec<Frame>,
    places: Vec<Place>,
    memory: TraceeStack,
}

/// A file, or the kernel's shared object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum FileKey {
    File((u32, u32), u64),
    Vdso,
}

/// A module of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ModuleKey {
    /// A file by name and place: what its first byte's address would be.
    File(FileKey, String, u64),
    /// Generated code of a process.
    Generated(i32),
}

impl CallStacks {
    /// Nothing is known yet. Functions of `languages` are told apart from their interpreters.
    pub fn new(languages: &[Language]) -> Self {
        Self { languages: Languages::new(languages), ..Self::default() }
    }

    /// The code that is mapped for thread `tid`, whose address space is in the state `changes`.
    fn layout(
        &mut self,
        (tid, pid): (Tid, i32),
        changes: u64,
        profiler: &mut Profiler,
    ) -> Arc<Vec<CodeRange>> {
        if let Some(known) = self.layouts.get(&changes) {
            return Arc::clone(known);
        }
        if self.dumps.are_many() {
            self.dumps.forget();
            self.unwinder.forget_generated();
            self.layouts.clear();
        }
        if self.layouts.len() >= LAYOUTS {
            self.layouts.clear();
        }
        let mappings = maps::read(tid);
        let mut code: Vec<CodeRange> = mappings
            .iter()
            .filter(|mapping| mapping.execute && mapping.start < lwp_code::space::VSYSCALL)
            .filter(|mapping| !lwp_mailbox::memory_map::is_ours(mapping))
            .map(|mapping| self.range((tid, pid), mapping, profiler))
            .collect();
        if let Some(generated) = self.dumps.of(pid, &mappings, &mut self.unwinder) {
            // Code may be generated into files too.
            let image = |range: &CodeRange| self.unwinder.image(range.image?);
            let bare =
                |range: &&mut CodeRange| image(range).is_none_or(lwp_unwind::Image::is_empty);
            code.iter_mut().filter(bare).for_each(|it| it.generated = Some(generated));
        }
        self.traces |= self.languages.take_tables(&mut code);
        let code = Arc::new(code);
        self.layouts.insert(changes, Arc::clone(&code));
        code
    }

    /// The place of an instruction that a thread is about to execute.
    fn place(
        &mut self,
        thread: (Tid, i32),
        changes: u64,
        profiler: &mut Profiler,
        address: u64,
    ) -> Place {
        let tag = |code: &[CodeRange]| {
            code.iter().find(|it| (it.start..it.end).contains(&address)).map(|it| it.tag)
        };
        let mut module = tag(&self.layout(thread, changes, profiler));
        if module.is_none() {
            // Memory has become executable in a way that makes no notice: a stack's, or a grown
            // one's.
            self.layouts.remove(&changes);
            module = tag(&self.layout(thread, changes, profiler));
        }
        Place { module, address }
    }

    fn range(
        &mut self,
        (tid, pid): (Tid, i32),
        mapping: &Mapping,
        profiler: &mut Profiler,
    ) -> CodeRange {
        let file = match mapping.name.as_str() {
            "[vdso]" => Some(FileKey::Vdso),
            _ if mapping.inode != 0 && mapping.name.starts_with('/') => {
                Some(FileKey::File(mapping.device, mapping.inode))
            }
            _ => None,
        };
        let (start, end) = (mapping.start, mapping.end);
        let Some(file) = file else {
            let tag = self.module(ModuleKey::Generated(pid), mapping, pid, profiler);
            return CodeRange { start, end, image: None, generated: None, bias: 0, tag };
        };
        let image = match self.images.get(&file) {
            Some(&image) => image,
            None => {
                let image = self.unwinder.add(image_of(tid, mapping));
                if let Some(file) = mapping.open(tid) {
                    self.languages.learn(image, &path_of(&file));
                }
                self.images.insert(file.clone(), image);
                image
            }
        };
        let base = start.wrapping_sub(mapping.offset);
        let tag =
            self.module(ModuleKey::File(file, mapping.name.clone(), base), mapping, pid, profiler);
        let address = self.unwinder.image(image).and_then(|image| image.address_of(mapping.offset));
        let bias = start.wrapping_sub(address.unwrap_or(mapping.offset));
        CodeRange { start, end, image: Some(image), generated: None, bias, tag }
    }

    /// The number of a module, reported if it is new or has grown.
    fn module(
        &mut self,
        key: ModuleKey,
        mapping: &Mapping,
        pid: i32,
        profiler: &mut Profiler,
    ) -> u32 {
        let piece =
            ModuleMapping { start: mapping.start, end: mapping.end, offset: mapping.offset };
        let path = match &key {
            ModuleKey::File(..) => PathBuf::from(mapping.path()),
            ModuleKey::Generated(_) => PathBuf::new(),
        };
        let known = self.modules.get(&key);
        let number = known.map(|(number, _)| *number);
        let mut mappings = known.map(|(_, mappings)| mappings.clone()).unwrap_or_default();
        if let Some(number) = number
            && (path.as_os_str().is_empty() || mappings.contains(&piece))
        {
            return number;
        }
        // Generated code has no file for which its place matters.
        if !path.as_os_str().is_empty() {
            mappings.push(piece);
        }
        let file = match path.as_os_str().is_empty() {
            true => None,
            false => program_files::hold(pid, mapping),
        };
        let mappings_now = mappings.clone();
        let module = Module { id: 0, pid, path, changing: false, mappings: mappings_now, file };
        let number = profiler.number_module(module, number);
        self.modules.insert(key, (number, mappings));
        number
    }
}

/// The unwind tables of what is mapped.
fn image_of(tid: Tid, mapping: &Mapping) -> Image {
    if mapping.name != "[vdso]" {
        let file = program_files::hold(tid, mapping);
        return file.map_or_else(Image::default, |file| Image::of_file(&file));
    }
    let mut bytes = vec![0; (mapping.end - mapping.start) as usize];
    let got = sys::read_memory(tid, mapping.start, &mut bytes).unwrap_or(0);
    Image::of_bytes(&bytes[..got])
}

/// A tracee's stack, read in pieces.
#[derive(Debug)]
struct TraceeStack {
    tid: Tid,
    /// Bytes read, from `start` on: mostly all that a walk needs.
    near: Vec<u8>,
    start: u64,
    /// The number of these bytes that the walk has needed.
    needed: u64,
    /// The number of bytes from `start` on that the walk has come to.
    reach: u64,
    /// The bytes are a copy, of a stack that is another by now: nothing further out is read.
    copied: bool,
    /// Other pieces.
    far: Vec<(u64, Vec<u8>)>,
    /// The stack may be one of LuaJIT's.
    traces: bool,
}

/// Bytes read at a time, and first of all as many as the walk before has needed, at least so many.
const PIECE: u64 = 0x2000;
const LEAST: u64 = 0x200;

impl Default for TraceeStack {
    fn default() -> Self {
        Self {
            tid: 0,
            near: Vec::new(),
            start: 0,
            needed: PIECE,
            reach: 0,
            copied: false,
            far: Vec::new(),
            traces: false,
        }
    }
}

/// Bytes that a stack may have.
const STACK: u64 = 8 << 20;

impl TraceeStack {
    /// Reads the stack of `tid` from `sp` on.
    fn begin(&mut self, tid: Tid, sp: u64) {
        let wanted = (self.needed + self.needed / 4).clamp(LEAST, 8 * PIECE);
        self.tid = tid;
        self.start = sp & !7;
        // To the end of a page: that is where the work of reading is counted.
        let end = (self.start.saturating_add(wanted) | 0xfff).saturating_add(1);
        (self.needed, self.reach, self.copied) = (0, 0, false);
        self.far.clear();
        read_up_to(tid, self.start, (end - self.start) as usize, &mut self.near);
    }

    /// Takes a copy of the stack of `tid` instead.
    fn begin_with(&mut self, tid: Tid, copy: &KeptStack) {
        (self.tid, self.start) = (tid, copy.start);
        (self.reach, self.copied) = (0, true);
        self.far.clear();
        self.near.clear();
        self.near.extend_from_slice(&copy.bytes);
    }

    /// The first address behind the stack, as far as the walk has come.
    fn end(&self) -> u64 {
        self.start + self.reach
    }

    /// Returns whether the walk wanted more of a copied stack than there is.
    fn fell_short(&self) -> bool {
        self.copied && self.reach > self.near.len() as u64
    }
}

/// Reads `len` bytes at `start` into `bytes`, or as many as there are.
fn read_up_to(tid: Tid, start: u64, len: usize, bytes: &mut Vec<u8>) {
    bytes.resize(len, 0);
    // Up to a page's end, what lies behind it may not be mapped: the kernel reads up to there.
    let got = sys::read_memory(tid, start, bytes).unwrap_or(0);
    bytes.truncate(got);
}

fn word_in(start: u64, bytes: &[u8], address: u64) -> Option<u64> {
    let at = usize::try_from(address.checked_sub(start)?).ok()?;
    let word = bytes.get(at..at.checked_add(8)?)?;
    word.try_into().ok().map(u64::from_le_bytes)
}

impl Memory for TraceeStack {
    fn word(&mut self, address: u64) -> Option<u64> {
        if let Some(beyond) = address.checked_sub(self.start).filter(|it| *it < STACK) {
            self.reach = self.reach.max(beyond + 8);
        }
        if let Some(word) = word_in(self.start, &self.near, address) {
            self.needed = self.needed.max(address - self.start + 8);
            return Some(word);
        }
        if self.fell_short() {
            return None;
        }
        let known =
            self.far.iter().rev().find_map(|(start, bytes)| word_in(*start, bytes, address));
        if known.is_some() {
            return known;
        }
        let start = address & !7;
        // The stack goes on behind what was read: the next walk had better read this too.
        self.needed = match start.checked_sub(self.start) {
            Some(beyond) if beyond < 8 * PIECE => self.needed.max(beyond + PIECE),
            _ => self.needed,
        };
        let mut bytes = Vec::new();
        read_up_to(self.tid, start, PIECE as usize, &mut bytes);
        let word = word_in(start, &bytes, address);
        self.far.push((start, bytes));
        word
    }

    fn leave(&mut self, registers: &Registers) -> Option<Registers> {
        let sp = registers.get(RSP).filter(|_| self.traces)?;
        languages::leave_trace(registers, sp, self)
    }
}

impl lwp_languages::Memory for TraceeStack {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        // A program may point to the end of all addresses.
        bytes.chunks_mut(8).zip((0..).step_by(8)).all(|(chunk, offset)| {
            let at = address.checked_add(offset);
            let word = at.and_then(|at| lwp_unwind::Memory::word(self, at));
            word.map(|it| chunk.copy_from_slice(&it.to_le_bytes()[..chunk.len()])).is_some()
        })
    }
}

/// A sampled instruction, and the registers of its thread at the beginning of the block that the
/// instruction is in, or later.
#[derive(Clone, Debug)]
pub struct SampledAt {
    /// The instruction's address.
    pub ip: u64,
    /// The registers, which the stack is walked from.
    pub registers: Registers,
    /// The stack, if it is not that of now.
    pub kept: Option<KeptStack>,
}

/// A part of the stack that a thread has copied when a sample was due.
#[derive(Clone, Debug)]
pub struct KeptStack {
    /// The state that its address space was in.
    pub changes: u64,
    /// The part's address.
    pub start: u64,
    /// Its bytes, up to where the walk before came to the bottom.
    pub bytes: Vec<u8>,
    /// Pieces of other memory, by their addresses: what is read of an interpreter.
    pub memory: Vec<(u64, Vec<u8>)>,
}

impl SampledAt {
    /// The instruction that a thread with these registers executes next.
    pub fn next(registers: Registers) -> Self {
        Self { ip: registers.get(RIP).unwrap_or(0), registers, kept: None }
    }
}

/// A sample: the number of its thread, its events, a bit each, and its place.
#[derive(Clone, Debug)]
struct Taken {
    serial: u32,
    events: u32,
    at: SampledAt,
}

impl Taken {
    /// Hands the sample, which was taken with this stack, to a profiler, once for each event.
    fn report(&self, profiler: &mut Profiler, stack: &[Place]) {
        for event in (0..32).filter(|event| self.events >> event & 1 != 0) {
            profiler.add_sample(&Sample { serial: self.serial, event, stack });
        }
    }
}

impl CallStacks {
    /// Returns whether stacks in an address space may have functions of an interpreted language in
    /// them. `changes`: the state that it is in.
    pub fn interprets(&self, changes: u64) -> bool {
        let may = |code: &Arc<Vec<CodeRange>>| self.languages.are_in(code);
        self.languages.are_wanted() && self.layouts.get(&changes).is_none_or(may)
    }

    /// The memory that was read of an interpreter for the last sample, which was one of this
    /// thread; `None` where it cannot be said in steps.
    pub fn gather(&self, thread: (Tid, i32), changes: u64) -> Option<Gather> {
        self.languages.gather(thread, self.layouts.get(&changes)?)
    }

    /// Forgets a process that has ended, or executes another program.
    pub fn forget_process(&mut self, pid: i32) {
        self.languages.forget_process(pid);
    }

    /// The end of the stack that was walked last, where that says how much of it the next walk
    /// needs.
    pub fn end_of_last(&self) -> Option<u64> {
        self.end
    }

    /// Reports a sample of a thread with its stack. `changes`: the state of its address space.
    fn report(&mut self, thread: (Tid, i32), changes: u64, profiler: &mut Profiler, taken: &Taken) {
        let registers = taken.at.registers;
        let mut memory = std::mem::take(&mut self.memory);
        match &taken.at.kept {
            Some(copy) => memory.begin_with(thread.0, copy),
            None => memory.begin(thread.0, registers.get(RSP).unwrap_or(0)),
        }
        let mut frames = std::mem::take(&mut self.frames);
        let mut code = self.layout(thread, changes, profiler);
        memory.traces = self.traces;
        let mut ending = self.unwinder.walk(&code, registers, &mut memory, DEEPEST, &mut frames);
        if frames.first().is_some_and(|frame| frame.tag.is_none()) {
            // Memory has become executable in a way that makes no notice: a stack's, or a grown
            // one's.
            self.layouts.remove(&changes);
            code = self.layout(thread, changes, profiler);
            ending = self.unwinder.walk(&code, registers, &mut memory, DEEPEST, &mut frames);
        }
        if let Some(frame) = frames.first_mut() {
            frame.place = taken.at.ip;
        }
        let whole = ending == Ending::Bottom && !memory.fell_short() && !self.traces;
        self.end = whole.then(|| memory.end());
        let places = &mut self.places;
        places.clear();
        places.extend(frames.iter().map(|frame| Place { module: frame.tag, address: frame.place }));
        if self.languages.are_wanted() {
            let copied = taken.at.kept.as_ref().map(|kept| &kept.memory[..]);
            self.languages.begin(thread.0, copied);
            self.languages.merge_into(places, thread, (&code, &frames, ending), profiler);
            if self.languages.fell_short() {
                self.end = None;
            }
        }
        taken.report(profiler, places);
        (self.frames, self.memory) = (frames, memory);
    }
}

impl Counting<'_> {
    /// Reports the samples `events`, a bit each, of a thread, while its events are counted.
    pub fn report_samples(&mut self, tid: Tid, events: u32, at: SampledAt) {
        if at.kept.is_none() {
            report_kept(self, tid);
        }
        let thread = self.tasks.threads.get(&tid).filter(|thread| thread.account.counting);
        let Some(thread) = thread else { return };
        let (pid, serial) = (thread.pid, thread.account.profile.serial);
        if !thread.account.profile.announced {
            self.report_thread(tid);
            if let Some(thread) = self.tasks.threads.get_mut(&tid) {
                thread.account.profile.announced = true;
            }
        }
        let Some(Some(space)) =
            self.tasks.space_index(tid).and_then(|index| self.caches.spaces.get(index))
        else {
            return;
        };
        let Some(profiler) = &mut self.observers.profiler else { return };
        let stacks = &mut self.observers.call_stacks;
        let changes = at.kept.as_ref().map_or(space.code.changes, |kept| kept.changes);
        let taken = Taken { serial, events, at };
        if self.config.sampling.stacks {
            return stacks.report((tid, pid), changes, profiler, &taken);
        }
        let place = stacks.place((tid, pid), changes, profiler, taken.at.ip);
        taken.report(profiler, &[place]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> Tid {
        std::process::id() as Tid
    }

    #[test]
    fn a_stack_is_read_as_far_as_a_walk_needs_it() {
        let words: Box<[u64]> = (0..8 * PIECE).collect();
        let start = words.as_ptr() as u64;
        let mut stack = TraceeStack::default();
        stack.begin(me(), start + 3);
        for index in [0, 1, 100, 5 * PIECE, 100, 5 * PIECE + 1, 0] {
            assert_eq!(stack.word(start + 8 * index), Some(index));
        }
        assert_eq!(stack.end(), start + 8 * (5 * PIECE + 2));
        assert!(!stack.fell_short());
        // A word may lie across two, and a piece may have an odd number of bytes.
        let mut bytes = [0; 13];
        assert!(lwp_languages::Memory::read(&mut stack, start + 8, &mut bytes));
        assert_eq!(bytes[..8], 1_u64.to_le_bytes());
        assert_eq!(bytes[8..], 2_u64.to_le_bytes()[..5]);
        assert_eq!(stack.word(start + 4), Some(1 << 32));
        // What is not there, or wraps around.
        for address in [8, u64::MAX - 7, u64::MAX] {
            assert_eq!(stack.word(address), None, "{address:#x}");
            assert!(!lwp_languages::Memory::read(&mut stack, address, &mut bytes));
        }
        stack.begin(me(), u64::MAX);
        assert_eq!(stack.word(u64::MAX - 7), None);
    }

    #[test]
    fn a_copied_stack_has_no_more_than_was_copied() {
        let words: Box<[u64]> = (0..1024).collect();
        let start = words.as_ptr() as u64;
        let bytes: Vec<u8> = (100..132_u64).flat_map(u64::to_le_bytes).collect();
        let copy = KeptStack { changes: 0, start, bytes, memory: Vec::new() };
        let mut stack = TraceeStack::default();
        stack.begin(me(), start);
        assert_eq!(stack.word(start), Some(0));
        stack.begin_with(me(), &copy);
        assert_eq!([0, 31].map(|at| stack.word(start + 8 * at)), [Some(100), Some(131)]);
        assert!(!stack.fell_short());
        assert_eq!(stack.end(), start + 8 * 32);
        // The stack is another one by now: its words say nothing.
        assert_eq!(stack.word(start + 8 * 32), None);
        assert!(stack.fell_short());
        stack.begin(me(), start);
        assert_eq!(stack.word(start + 8 * 32), Some(32));
    }
}

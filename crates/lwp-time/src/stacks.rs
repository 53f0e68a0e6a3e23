//! Stacks of samples: the code that is mapped, and a walk over what the kernel has copied.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lwp_ptrace::tracee_files::{Mapped as MappedFile, open_mapped, path_of};
use lwp_ptrace::{absent, sys};
use lwp_unwind::{CodeRange, Ending, Frame, Image, Memory, RIP, RSP, Registers, Unwinder};
use lwp_vcpu::profile::{LanguageFunction, Module, ModuleMapping, Place, Sink};
use lwp_vcpu::program_files::Viewpoint;
use lwp_vcpu::{Declarations, Language, Languages, leave_trace};
use rustc_hash::FxHashMap;

use crate::address_space::{AddressSpace, Mapped};

/// The most frames of a stack; what lies further out is left out.
const DEEPEST: usize = 1024;
/// The most bytes that a stack may have.
const LARGEST_STACK: u64 = 8 << 20;

/// The number of stacks by how much of them was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completeness {
    /// Down to where the thread began.
    pub complete: u64,
    /// As far as the copy of the stack reached.
    pub cut: u64,
    /// Others: no table says how to go on, or there were too many frames.
    pub lost: u64,
}

impl Completeness {
    /// All stacks.
    pub fn all(&self) -> u64 {
        self.complete + self.cut + self.lost
    }
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
    File(FileKey, PathBuf, u64),
    /// Generated code of a process.
    Generated(i32),
    /// A name in brackets for what has no file.
    Label(&'static str),
}

/// The kernel's code.
pub(crate) const KERNEL: &str = "[kernel]";
/// What no sample was seen of.
pub(crate) const UNSEEN: &str = "[not sampled]";
/// The reasons for which threads had no processor.
pub(crate) const OFF: &str = "[off the processor]";

/// The sampled stack of a thread of 64-bit code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied<'a> {
    pub registers: Registers,
    pub stack: &'a [u8],
    /// The thread, if it stands still: then more than the copy can be read, and what an interpreter
    /// keeps in its memory.
    pub still: Option<i32>,
}

impl<'a> Copied<'a> {
    /// Of a thread that goes on.
    pub fn moment(registers: Registers, stack: &'a [u8]) -> Self {
        Self { registers, stack, still: None }
    }
}

/// Knowledge of the files that stacks lead through.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    unwinder: Unwinder,
    images: FxHashMap<FileKey, u32>,
    files: FxHashMap<FileKey, Option<Arc<File>>>,
    modules: FxHashMap<ModuleKey, (u32, Vec<ModuleMapping>)>,
    numbers: u32,
    completeness: Completeness,
    frames: Vec<Frame>,
    /// Interpreted languages.
    languages: Languages,
    /// One of them has code that it knows better than tables do.
    traces: bool,
}

/// The receiver of modules, and the number of the next one.
struct Numbered<'a> {
    numbers: &'a mut u32,
    sink: &'a mut dyn Sink,
}

impl Declarations for Numbered<'_> {
    fn add_module(&mut self, module: Module) -> u32 {
        let id = *self.numbers;
        *self.numbers += 1;
        self.sink.module(&Module { id, ..module });
        id
    }

    fn add_function(&mut self, function: &LanguageFunction) {
        self.sink.function(function);
    }
}

impl Stacks {
    /// Nothing is known yet. Functions of `languages` are read from their interpreters where
    /// threads stand still.
    pub fn new(languages: &[Language]) -> Self {
        Self { languages: Languages::new(languages), ..Self::default() }
    }

    /// Returns whether functions of languages are read.
    pub fn reads_languages(&self) -> bool {
        self.languages.are_wanted()
    }

    /// Forgets what is known of the interpreters of a process that has ended, or executes another
    /// program.
    pub fn forget_process(&mut self, pid: i32) {
        self.languages.forget_process(pid);
    }

    /// How much of the stacks was found so far.
    pub fn completeness(&self) -> Completeness {
        self.completeness
    }

    /// What the executable mappings of a process are to the unwinder.
    pub fn code(
        &mut self,
        pid: i32,
        space: &mut AddressSpace,
        sink: &mut dyn Sink,
    ) -> Arc<Vec<CodeRange>> {
        if let Some(code) = &space.code {
            return Arc::clone(code);
        }
        let mappings = space.mappings();
        let mut code = mappings.iter().map(|mapped| self.range(pid, mapped, sink)).collect();
        self.traces |= self.languages.take_tables(&mut code);
        let code: Arc<Vec<CodeRange>> = Arc::new(code);
        space.code = Some(Arc::clone(&code));
        code
    }

    fn range(&mut self, pid: i32, mapped: &Mapped, sink: &mut dyn Sink) -> CodeRange {
        let (start, end) = (mapped.start, mapped.end);
        let (key, path) = match mapped.file() {
            Some(path) => (FileKey::File(mapped.device, mapped.inode), path.to_owned()),
            None if mapped.is_vdso() => (FileKey::Vdso, PathBuf::from("[vdso]")),
            None => {
                let tag = self.generated(pid, sink);
                return CodeRange { start, end, image: None, generated: None, bias: 0, tag };
            }
        };
        let file = self.file(&key, pid, mapped);
        let image = match self.images.get(&key) {
            Some(&image) => image,
            None => {
                let tables = match (&key, &file) {
                    (FileKey::Vdso, _) => own_vdso(),
                    (_, Some(file)) => Image::of_file(file),
                    (_, None) => Image::default(),
                };
                let image = self.unwinder.add(tables);
                if let Some(file) = &file {
                    self.languages.learn(image, &path_of(file));
                }
                self.images.insert(key.clone(), image);
                image
            }
        };
        let base = start.wrapping_sub(mapped.offset);
        let piece = ModuleMapping { start, end, offset: mapped.offset };
        let key = ModuleKey::File(key, path.clone(), base);
        let tag = self.module(key, piece, Described { pid, path, file }, sink);
        let address = self.unwinder.image(image).and_then(|image| image.address_of(mapped.offset));
        let bias = start.wrapping_sub(address.unwrap_or(mapped.offset));
        CodeRange { start, end, image: Some(image), generated: None, bias, tag }
    }

    /// The file of a mapping, held open: its names are looked for at the end. `None` where the path
    /// leads to another one by now, or to none.
    fn file(&mut self, key: &FileKey, pid: i32, mapped: &Mapped) -> Option<Arc<File>> {
        if let Some(known) = self.files.get(key) {
            return known.clone();
        }
        let open = |path: &Path| {
            // Whoever opens a file that a program serves may wait for that program.
            if absent::is_served(pid, mapped.device) {
                return None;
            }
            let range = (mapped.start, mapped.end);
            let of_process = MappedFile { range, inode: mapped.inode, path };
            open_mapped(pid, of_process).ok().or_else(|| open_here(path, mapped.inode))
        };
        let file = mapped.file().and_then(open).map(Arc::new);
        self.files.insert(key.clone(), file.clone());
        file
    }

    /// The number of a module, reported if it is new or has grown.
    fn module(
        &mut self,
        key: ModuleKey,
        piece: ModuleMapping,
        described: Described,
        sink: &mut dyn Sink,
    ) -> u32 {
        let next = self.numbers;
        let (id, mappings) = self.modules.entry(key).or_insert((next, Vec::new()));
        if !mappings.contains(&piece) {
            self.numbers += u32::from(*id == next);
            mappings.push(piece);
            let Described { pid, path, file } = described;
            let mappings = mappings.clone();
            sink.module(&Module { id: *id, pid, path, changing: false, mappings, file });
        }
        *id
    }

    /// The number of a module without a file and without mappings.
    fn bare(&mut self, key: ModuleKey, pid: i32, path: &str, sink: &mut dyn Sink) -> u32 {
        if let Some((id, _)) = self.modules.get(&key) {
            return *id;
        }
        let id = self.numbers;
        self.numbers += 1;
        self.modules.insert(key, (id, Vec::new()));
        let (path, mappings) = (path.into(), Vec::new());
        sink.module(&Module { id, pid, path, changing: false, mappings, file: None });
        id
    }

    /// The module of code that a process has generated.
    fn generated(&mut self, pid: i32, sink: &mut dyn Sink) -> u32 {
        self.bare(ModuleKey::Generated(pid), pid, "", sink)
    }

    /// The module that stands for what has no file.
    pub fn label(&mut self, name: &'static str, sink: &mut dyn Sink) -> u32 {
        self.bare(ModuleKey::Label(name), 0, name, sink)
    }

    /// The number of the module with this name in brackets, if it was needed.
    pub fn known_label(&self, name: &'static str) -> Option<u32> {
        self.modules.get(&ModuleKey::Label(name)).map(|(id, _)| *id)
    }

    /// Walks a copied stack and adds its frames to `places`, innermost first. Returns whether it
    /// was walked to its bottom.
    pub fn walk(
        &mut self,
        pid: i32,
        code: &[CodeRange],
        copied: Copied<'_>,
        (places, sink): (&mut Vec<Place>, &mut dyn Sink),
    ) -> bool {
        let (ending, short) = self.frames_of(pid, code, copied, (places, sink));
        let count = match ending {
            Ending::Bottom => &mut self.completeness.complete,
            Ending::Lost if short => &mut self.completeness.cut,
            Ending::Lost | Ending::Deep => &mut self.completeness.lost,
        };
        *count += 1;
        ending == Ending::Bottom
    }

    /// Adds the frames of a copied stack to `places`. Returns how the walk ended, and whether the
    /// copy was too short.
    pub fn frames_of(
        &mut self,
        pid: i32,
        code: &[CodeRange],
        copied: Copied<'_>,
        (places, sink): (&mut Vec<Place>, &mut dyn Sink),
    ) -> (Ending, bool) {
        let start = copied.registers.get(RSP).unwrap_or(0);
        let (bytes, still, traces) = (copied.stack, copied.still, self.traces);
        let far = Vec::new();
        let mut memory = Copy { pid, code, start, bytes, still, far, traces, short: false };
        let mut frames = std::mem::take(&mut self.frames);
        let ending = self.unwinder.walk(code, copied.registers, &mut memory, DEEPEST, &mut frames);
        let place = |frame: &Frame| Place { module: frame.tag, address: frame.place };
        let short = memory.short;
        let mut found: Vec<Place> = frames.iter().map(place).collect();
        if let Some(tid) = still.filter(|_| self.languages.are_in(code)) {
            let mut to = Numbered { numbers: &mut self.numbers, sink };
            self.languages.begin(tid, None);
            let walked = (code, &frames[..], ending);
            self.languages.merge_into(&mut found, (tid, pid), walked, &mut to);
        }
        places.append(&mut found);
        self.frames = frames;
        (ending, short)
    }
}

/// A module, described.
struct Described {
    pid: i32,
    path: PathBuf,
    file: Option<Arc<File>>,
}

/// Opens a file of a process that is gone, as this process sees it.
fn open_here(path: &Path, inode: u64) -> Option<File> {
    let file = Viewpoint::of(std::process::id().cast_signed())?.open(path).ok()?;
    file.metadata().is_ok_and(|file| file.ino() == inode).then_some(file)
}

/// The tables of the kernel's shared object, which is the same in all processes.
fn own_vdso() -> Image {
    let pid = std::process::id().cast_signed();
    let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let range = text.lines().find(|line| line.ends_with("[vdso]")).and_then(|line| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
    });
    let Some((start, end)) = range else { return Image::default() };
    let mut bytes = vec![0; (end - start) as usize];
    let got = sys::read_memory(pid, start, &mut bytes).unwrap_or(0);
    Image::of_bytes(&bytes[..got])
}

/// A stack as it was, and the code of a process that goes on: code does not change.
struct Copy<'a> {
    pid: i32,
    code: &'a [CodeRange],
    start: u64,
    bytes: &'a [u8],
    /// The thread, if it stands still: its memory is as it was.
    still: Option<i32>,
    /// What was read of that, by address.
    far: Vec<(u64, Vec<u8>)>,
    /// The stack may be one of LuaJIT's.
    traces: bool,
    /// More of the stack was wanted than was copied.
    short: bool,
}

/// Bytes that are read at a time of a thread that stands still.
const PIECE: usize = 0x2000;
/// The most pieces that are read for one stack.
const MOST_PIECES: usize = 160;

impl Copy<'_> {
    fn is_code(&self, address: u64) -> bool {
        let after = self.code.partition_point(|range| range.start <= address);
        after.checked_sub(1).is_some_and(|at| address < self.code[at].end)
    }

    /// A word of a thread that stands still.
    fn read_still(&mut self, tid: i32, address: u64) -> Option<u64> {
        let known =
            self.far.iter().rev().find_map(|(start, bytes)| word_in(*start, bytes, address));
        if known.is_some() || self.far.len() >= MOST_PIECES {
            return known;
        }
        let start = address & !7;
        let mut bytes = vec![0; PIECE];
        let got = sys::read_memory(tid, start, &mut bytes).unwrap_or(0);
        bytes.truncate(got);
        let word = word_in(start, &bytes, address);
        self.far.push((start, bytes));
        word
    }
}

/// The word at `address` in bytes from `start` on.
fn word_in(start: u64, bytes: &[u8], address: u64) -> Option<u64> {
    let at = usize::try_from(address.checked_sub(start)?).ok()?;
    let word = bytes.get(at..at.checked_add(8)?)?;
    word.try_into().ok().map(u64::from_le_bytes)
}

impl Memory for Copy<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let word = word_in(self.start, self.bytes, address);
        if word.is_some() {
            return word;
        }
        if let Some(tid) = self.still {
            let word = self.read_still(tid, address);
            self.short |= word.is_none() && self.far.len() >= MOST_PIECES;
            return word;
        }
        let offset = address.checked_sub(self.start).filter(|offset| *offset < LARGEST_STACK);
        if offset.is_some() {
            self.short = true;
            return None;
        }
        if !self.is_code(address) {
            // Another stack, which is another one by now.
            self.short = true;
            return None;
        }
        let mut word = [0; 8];
        let got = sys::read_memory(self.pid, address, &mut word).unwrap_or(0);
        (got == word.len()).then(|| u64::from_le_bytes(word))
    }

    fn leave(&mut self, registers: &Registers) -> Option<Registers> {
        let sp = registers.get(RSP).filter(|_| self.traces)?;
        leave_trace(registers, sp, self)
    }
}

impl lwp_languages::Memory for Copy<'_> {
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool {
        // A program may point to the end of all addresses.
        bytes.chunks_mut(8).zip((0..).step_by(8)).all(|(chunk, offset)| {
            let word = address.checked_add(offset).and_then(|at| Memory::word(self, at));
            word.map(|it| chunk.copy_from_slice(&it.to_le_bytes()[..chunk.len()])).is_some()
        })
    }
}

/// The registers of a sample by DWARF's numbers: the kernel's order is rax, rbx, rcx, rdx, rsi,
/// rdi, rbp, rsp, rip, r8 to r15.
pub(crate) fn registers(sampled: [u64; 17]) -> Registers {
    let [rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, rip, others @ ..] = sampled;
    let mut registers = Registers::default();
    let named = [rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp];
    (0..).zip(named.into_iter().chain(others)).for_each(|(number, it)| registers.set(number, it));
    registers.set(RIP, rip);
    registers
}

#[cfg(test)]
mod tests {
    use lwp_unwind::{RBP, RBX, RDX};

    use super::*;

    #[test]
    fn registers_have_dwarf_s_numbers() {
        let registers = registers(std::array::from_fn(|index| index as u64));
        let found = [0, RDX, RBX, RBP, RSP, 8, 15, RIP].map(|number| registers.get(number));
        assert_eq!(found, [0, 3, 1, 6, 7, 9, 16, 8].map(Some));
    }

    /// The copy has two words; behind it the stack may go on, and elsewhere there is nothing.
    #[test]
    fn a_stack_has_no_more_than_was_copied() {
        let code = [];
        let bytes: Vec<u8> = [7u64, 8].into_iter().flat_map(u64::to_le_bytes).collect();
        let pid = std::process::id().cast_signed();
        let mut copy = Copy {
            pid,
            code: &code,
            start: 0x8000,
            bytes: &bytes,
            still: None,
            far: Vec::new(),
            traces: false,
            short: false,
        };
        assert_eq!([0x8000, 0x8008].map(|at| copy.word(at)), [Some(7), Some(8)]);
        assert!(!copy.short);
        assert_eq!([0x8009, 0x8010, u64::MAX, 0].map(|at| copy.word(at)), [None; 4]);
        assert!(copy.short);
    }
}

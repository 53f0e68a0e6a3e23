//! Writing a recording while a program runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use lwp_profile::chunk::{self, Extent};
use lwp_profile::{
    Block, NamedRange, RecordedFrame, RecordedNames, RecordedSample, Recording, SampledEvent,
    Writer,
};
use lwp_terminal::escape::printable;
use lwp_vcpu::config::Request;
use lwp_vcpu::profile as vcpu;
use lwp_vcpu::{Addition, Outcome};
use rustc_hash::FxHashMap;

use crate::code_lists::CodeLists;
use crate::failure::{Failure, OWN_FAILURE, plain};
use crate::generating::Generating;
use crate::interpreted::Interpreted;
use crate::requests::Requests;
use crate::{profiles, recorded};

/// A recording that is being written. Clones write to the same file.
#[derive(Clone, Debug)]
pub struct Recorder {
    state: Arc<Mutex<State>>,
}

/// A file by path, and the inode and time of change of the one that was mapped.
type FileVersion = (String, Option<(u64, i64)>);

/// The place that a recording is written to.
#[derive(Debug)]
struct Place {
    file: File,
    copy: Spare,
}

/// A copy of bytes written to a place that cannot be read.
#[derive(Debug)]
enum Spare {
    /// It is a file.
    Needless,
    Kept(Vec<u8>),
    /// There was more than is kept.
    TooLarge,
}

/// The most that is kept of a recording that goes into a pipe.
const LARGEST_COPY: usize = 1 << 30;

impl Place {
    fn new(file: File) -> Self {
        let readable = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let copy = if readable { Spare::Needless } else { Spare::Kept(Vec::new()) };
        Self { file, copy }
    }
}

impl io::Write for Place {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        if let Spare::Kept(copy) = &mut self.copy {
            match copy.len() + written <= LARGEST_COPY {
                true => copy.extend_from_slice(&bytes[..written]),
                false => self.copy = Spare::TooLarge,
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[derive(Debug)]
struct State {
    writer: Writer<Place>,
    path: PathBuf,
    broken: Broken,
    generating: Generating,
    lists: CodeLists,
    /// Modules of generated code by process.
    generated: BTreeMap<i32, BTreeSet<u32>>,
    /// Additions to the beginnings of programs.
    added: BTreeSet<String>,
    /// Files of modules that have been seen, by path and version, and held open for their names.
    files: BTreeMap<FileVersion, Option<Arc<File>>>,
    samples: Samples,
    interpreted: Interpreted,
    /// Most bytes of samples that wait for the file.
    buffer: usize,
    /// True if the targets of indirect calls are recorded.
    calls: bool,
    /// True if calling contexts are measured.
    contexts: bool,
}

/// The first failure to write, after which nothing is written.
#[derive(Debug, Default)]
struct Broken {
    error: Option<io::Error>,
    /// The line to the run, which need not count any more then.
    run: Option<Arc<Requests>>,
    /// True if counts of a thread or samples were written before.
    useful: bool,
}

impl Broken {
    /// Returns the failure of the whole recording.
    fn failure(&self, path: &Path) -> Option<Failure> {
        let error = self.error.as_ref()?;
        let kept = match self.useful {
            true => "what was written before can be read",
            false => "nothing was recorded before",
        };
        let help = format!("{kept}; {}, or choose another place with -o", remedy(error));
        Some(Failure::io(path.display(), error).with_help(help))
    }
}

/// Returns advice on a failure to write.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::FileTooLarge => "raise the limit on the size of files, `ulimit -f`",
        ErrorKind::QuotaExceeded => "make room within your quota",
        _ => "make room",
    }
}

/// Samples on their way to the file.
#[derive(Debug, Default)]
struct Samples {
    /// Every frame that has been seen, and its index.
    frames: FxHashMap<RecordedFrame, u32>,
    /// The stack before, outermost frame first, and the index of each frame.
    before: Vec<(vcpu::Place, u32)>,
    /// Frames that have not been written, and the index of the first of them.
    fresh: Vec<RecordedFrame>,
    first: u32,
    waiting: Vec<RecordedSample>,
    /// Samples that were taken several times at once.
    spans: Vec<(RecordedSample, u64)>,
    /// Number of samples taken.
    taken: u64,
}

/// Bytes of samples that wait for the file unless something else is asked for.
pub const BUFFER: usize = 32 << 10;

impl Samples {
    /// Bytes of what waits.
    fn bytes(&self) -> usize {
        let spans = size_of_val(&self.spans[..]);
        spans + size_of_val(&self.waiting[..]) + size_of_val(&self.fresh[..])
    }

    /// The index of the innermost frame of a stack.
    fn intern(&mut self, stack: &[vcpu::Place]) -> u32 {
        // Most stacks differ from the one before in their innermost frames only.
        let outermost_first = stack.iter().rev();
        let same = outermost_first.zip(&self.before).take_while(|(now, (was, _))| *now == was);
        let same = same.count();
        self.before.truncate(same);
        let mut caller = self.before.last().map(|(_, index)| *index);
        for place in stack.iter().rev().skip(same) {
            let frame = RecordedFrame { caller, module: place.module, address: place.address };
            let next = self.first + self.fresh.len() as u32;
            let index = *self.frames.entry(frame).or_insert(next);
            if index == next {
                self.fresh.push(frame);
            }
            self.before.push((*place, index));
            caller = Some(index);
        }
        caller.unwrap_or(0)
    }
}

/// The place for the recording that is at `path`; none if there is nothing worth keeping.
fn place_of_old(path: &Path) -> Option<PathBuf> {
    if !path.is_file() {
        return None;
    }
    let with = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    match File::open(path).and_then(chunk::extent) {
        Ok(Extent::Nothing) => None,
        Ok(Extent::Part) => {
            let [path, old, part] = [path.to_owned(), with(".old"), with(".part")]
                .map(|it| printable(&it.display().to_string()));
            lwp_terminal::say!(
                "lwp: {path} is an unfinished or damaged recording: it is kept as {part}, \
                 and {old} stays"
            );
            Some(with(".part"))
        }
        // A file of another kind is kept too: it may be anything.
        Ok(Extent::Whole | Extent::Foreign) | Err(_) => Some(with(".old")),
    }
}

impl Recorder {
    /// Creates the file; one that is there already is kept beside it, `.old` added to its name. A
    /// part of a recording does not replace a whole one: it is kept as `.part`.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Err(crate::args::usage_error(
                "standard output is the program's",
                "name a file for the recording, or another descriptor: -o /dev/fd/3",
            ));
        }
        let old = place_of_old(path);
        let kept = old.as_ref().is_some_and(|old| std::fs::rename(path, old).is_ok());
        let failed = |error| {
            Failure::io(path.display(), &error)
                .with_help("name another place for the recording with -o FILE")
        };
        let file = File::create(path).map_err(failed)?;
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        let writer = Writer::new(Place::new(file)).map_err(|error| {
            // A file without a recording would be in the way of the one before.
            if is_file && std::fs::remove_file(path).is_ok() && kept {
                let _ = old.as_ref().map(|old| std::fs::rename(old, path));
            }
            let help = format!("{}, or name another place with -o FILE", remedy(&error));
            Failure::io(path.display(), &error).with_help(help)
        })?;
        let state = State {
            writer,
            path: path.to_owned(),
            broken: Broken::default(),
            generating: Generating::default(),
            lists: CodeLists::default(),
            generated: BTreeMap::new(),
            added: BTreeSet::new(),
            files: BTreeMap::new(),
            samples: Samples::default(),
            interpreted: Interpreted::default(),
            buffer: BUFFER,
            calls: true,
            contexts: false,
        };
        Ok(Self { state: Arc::new(Mutex::new(state)) })
    }

    /// Lets at most so many bytes of samples wait for the file: they are written before, when a
    /// thread ends, and at every checkpoint.
    pub fn set_buffer(&self, bytes: usize) {
        self.state().buffer = bytes;
    }

    /// Stops counting in the run that `requests` leads to once nothing can be written any more.
    pub fn stop_when_broken(&self, requests: &Arc<Requests>) {
        self.state().broken.run = Some(Arc::clone(requests));
    }

    /// Records nothing of where indirect calls lead.
    pub fn leave_calls_out(&self) {
        self.state().calls = false;
    }

    /// Has calling contexts measured.
    pub fn measure_contexts(&self) {
        self.state().contexts = true;
    }

    /// Returns the receiver of reports on a native run.
    pub fn spans(&self) -> Box<dyn lwp_time::Spans> {
        Box::new(self.clone())
    }

    /// Returns the receiver of the virtual CPU's reports.
    pub fn sink(&self) -> Box<dyn vcpu::Sink> {
        Box::new(self.clone())
    }

    /// Notes what ran.
    pub fn info(&self, pairs: &[(String, String)]) {
        let mut state = self.state();
        state.write(|writer| writer.info(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()))));
    }

    /// Notes which events are sampled.
    pub fn events(&self, events: &[SampledEvent]) {
        self.state().write(|writer| writer.events(events));
    }

    /// Writes the recording of the program's native run, whose bytes these are.
    pub fn native(&self, recording: &[u8]) {
        self.state().write(|writer| writer.native(recording));
    }

    /// Writes what is known only at the end.
    pub fn finish(&self, outcome: &Outcome) -> Result<(), Failure> {
        let mut state = self.state();
        state.write_samples();
        for (id, process) in outcome.processes.iter().enumerate() {
            let image = recorded::image(id, process);
            state.write(|writer| writer.image(&image));
        }
        for pid in state.generating.take() {
            let dump = state.lists.read(pid);
            state.write(|writer| writer.symbols(&dump.symbols));
            state.write_lines(pid, dump.lines);
        }
        state.lists.remove();
        let added: Vec<String> = std::mem::take(&mut state.added).into_iter().collect();
        if !added.is_empty() {
            let added = added.join("; ");
            state.write(|writer| writer.info([("added", added.as_str())]));
        }
        state.write(Writer::end);
        state.result()
    }

    /// Reads what has been finished.
    pub fn read_back(&self) -> Result<Recording, Failure> {
        let state = self.state();
        match &state.writer.out().copy {
            Spare::Needless => profiles::read(&state.path),
            Spare::Kept(bytes) => Recording::parse(bytes).map_err(|error| {
                Failure::new(OWN_FAILURE, format!("{}: {error}", state.path.display()))
            }),
            Spare::TooLarge => Err(Failure::new(
                OWN_FAILURE,
                format!(
                    "{}: more than a pipe's recording is looked at again",
                    state.path.display()
                ),
            )
            .with_help("it has no names: record into a file, or keep the programs as they are")),
        }
    }

    /// The files of modules by their paths, as they were when they were mapped.
    pub fn held_files(&self) -> Vec<(String, Arc<File>)> {
        let state = self.state();
        let held = state.files.iter();
        held.filter_map(|((path, _), file)| Some((path.clone(), file.clone()?))).collect()
    }

    /// Adds names to what has been finished.
    pub fn names(&self, names: &[RecordedNames]) -> Result<(), Failure> {
        let mut state = self.state();
        names.iter().for_each(|names| state.write(|writer| writer.names(names)));
        state.result()
    }

    /// Bytes written, and samples taken.
    pub fn progress(&self) -> (u64, u64) {
        let state = self.state();
        (state.writer.written(), state.samples.taken)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether everything could be written so far.
    fn result(&self) -> Result<(), Failure> {
        self.broken.failure(&self.path).map_or(Ok(()), Err)
    }

    fn write(&mut self, write: impl FnOnce(&mut Writer<Place>) -> io::Result<()>) {
        if self.broken.error.is_some() {
            return;
        }
        let Err(error) = write(&mut self.writer) else { return };
        // Whoever waits for a long run should not learn it at the end.
        if let Some(run) = self.broken.run.take() {
            let (place, why) = (printable(&self.path.display().to_string()), plain(&error));
            lwp_terminal::say!("lwp: {place}: {why}: recording stops here; the program continues");
            run.send(Request::Disable);
        }
        self.broken.error = Some(error);
    }

    /// Writes counts or samples; if that works, the recording is useful.
    fn write_counts(&mut self, write: impl FnOnce(&mut Writer<Place>) -> io::Result<()>) {
        self.write(write);
        self.broken.useful |= self.broken.error.is_none();
    }
}

impl State {
    /// Writes the lines of the code that a process has generated.
    fn write_lines(&mut self, pid: i32, lines: Vec<NamedRange>) {
        let modules = self.generated.get(&pid).cloned().unwrap_or_default();
        if lines.is_empty() {
            return;
        }
        for module in modules {
            let lines = lines.clone();
            let names = RecordedNames { module, debug: true, lines, ..RecordedNames::default() };
            self.write(|writer| writer.names(&names));
        }
    }

    fn write_samples(&mut self) {
        let samples = &mut self.samples;
        let (first, fresh) = (samples.first, std::mem::take(&mut samples.fresh));
        let waiting = std::mem::take(&mut samples.waiting);
        let spans = std::mem::take(&mut samples.spans);
        samples.first += fresh.len() as u32;
        fresh.iter().for_each(|frame| self.interpreted.frame(frame));
        for names in self.interpreted.take() {
            self.write(|writer| writer.names(&names));
        }
        if !fresh.is_empty() {
            self.write(|writer| writer.frames(first, &fresh));
        }
        if !waiting.is_empty() {
            self.write_counts(|writer| writer.samples(&waiting));
        }
        if !spans.is_empty() {
            self.write_counts(|writer| writer.spans(&spans));
        }
    }
}

impl vcpu::Sink for Recorder {
    fn module(&mut self, module: &vcpu::Module) {
        let recorded = recorded::module(module);
        let mut state = self.state();
        let bracketed = recorded.language().is_some() || recorded.is_label();
        let anonymous = recorded.is_anonymous() && !bracketed;
        if anonymous {
            state.generated.entry(module.pid).or_default().insert(module.id);
        }
        if let Some(pid) = state.generating.module(module, anonymous) {
            state.lists.note(pid);
        }
        state.write(|writer| writer.module(&recorded));
        let known = (recorded.path.clone(), recorded.version);
        if recorded.is_anonymous() || state.files.contains_key(&known) {
            return;
        }
        state.files.insert(known, module.file.clone());
        if let Some(file) = recorded::hidden_file(module) {
            state.write(|writer| writer.file(&file));
        }
    }

    fn blocks(&mut self, blocks: &[vcpu::Block]) {
        let mut state = self.state();
        state.generating.blocks(blocks);
        let blocks: Vec<Block> = blocks.iter().map(recorded::block).collect();
        state.write(|writer| writer.blocks(&blocks));
    }

    fn thread(&mut self, thread: &vcpu::ThreadExecutions) {
        let sampled = &thread.sampled;
        let mut state = self.state();
        if let Some(pid) = state.generating.thread(thread) {
            state.lists.note(pid);
        }
        let thread = recorded::thread(thread);
        state.write_samples();
        state.write_counts(|writer| writer.thread(&thread));
        if !sampled.is_empty() {
            state.write(|writer| writer.sampled(thread.serial, sampled));
        }
    }

    fn added(&mut self, pid: i32, addition: &Addition) {
        let mut state = self.state();
        state.lists.asked(pid);
        state.added.insert(format!("{}: {}", addition.programs.join(", "), addition.text()));
    }

    fn function(&mut self, function: &vcpu::LanguageFunction) {
        self.state().interpreted.function(function);
    }

    fn wants_calls(&self) -> bool {
        self.state().calls
    }

    fn wants_contexts(&self) -> bool {
        self.state().contexts
    }

    fn sample(&mut self, sample: &vcpu::Sample<'_>) {
        let mut state = self.state();
        if state.broken.error.is_some() {
            return;
        }
        if let Some(pid) = state.generating.sample(sample) {
            state.lists.note(pid);
        }
        let frame = state.samples.intern(sample.stack);
        let (serial, event) = (sample.serial, sample.event);
        state.samples.taken += 1;
        state.samples.waiting.push(RecordedSample { serial, event, frame });
        if state.samples.bytes() >= state.buffer {
            state.write_samples();
        }
    }
}

impl lwp_time::Spans for Recorder {
    fn span(&mut self, sample: &vcpu::Sample<'_>, units: u64) {
        let mut state = self.state();
        if state.broken.error.is_some() {
            return;
        }
        let frame = state.samples.intern(sample.stack);
        let (serial, event) = (sample.serial, sample.event);
        state.samples.spans.push((RecordedSample { serial, event, frame }, units));
        if state.samples.bytes() >= state.buffer {
            state.write_samples();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stacks of these addresses, innermost first, in turn; the recorded frames, outermost first,
    /// by the index that each stack got.
    fn recorded(stacks: &[&[u64]]) -> Vec<Vec<u64>> {
        let mut samples = Samples::default();
        let mut all: Vec<RecordedFrame> = Vec::new();
        let mut lists = Vec::new();
        for (nth, stack) in stacks.iter().enumerate() {
            let place = |&address| vcpu::Place { module: Some(1), address };
            let stack: Vec<vcpu::Place> = stack.iter().map(place).collect();
            let index = samples.intern(&stack);
            if nth % 2 == 1 {
                // Written: the next frames are others.
                samples.first += samples.fresh.len() as u32;
                all.append(&mut samples.fresh);
            }
            let known: Vec<RecordedFrame> = all.iter().chain(&samples.fresh).copied().collect();
            let next = |frame: &RecordedFrame| frame.caller.map(|caller| known[caller as usize]);
            let frames = std::iter::successors(Some(known[index as usize]), next);
            lists.push(frames.map(|frame| frame.address).collect());
        }
        let known = all.len() + samples.fresh.len();
        assert_eq!(samples.frames.len(), known, "a frame is written once");
        lists
    }

    #[test]
    fn a_stack_is_what_it_was_whatever_came_before() {
        let stacks: [&[u64]; 8] = [
            &[5, 4, 3, 2, 1],
            &[6, 3, 2, 1],
            &[3, 2, 1],
            &[7, 3, 2, 1],
            &[5, 4, 3, 2, 1],
            &[3, 3, 2, 1],
            &[1],
            &[2, 1, 9],
        ];
        assert_eq!(recorded(&stacks), stacks);
    }
}

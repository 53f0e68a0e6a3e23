//! Writing a recording while a program runs.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use lwp_profile::{Block, RecordedFrame, RecordedSample, SampledEvent, Writer};
use lwp_vcpu::Outcome;
use lwp_vcpu::profile as vcpu;

use crate::failure::{Failure, plain};
use crate::recorded;

/// A recording that is being written. Clones write to the same file.
#[derive(Clone, Debug)]
pub struct Recorder {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    writer: Writer<File>,
    path: PathBuf,
    /// The first failure; nothing is written after it.
    failure: Option<io::Error>,
    /// Processes that executed code which no file holds.
    generating: BTreeSet<i32>,
    samples: Samples,
}

/// Samples on their way to the file.
#[derive(Debug, Default)]
struct Samples {
    /// Every frame that has been seen, and its index.
    frames: HashMap<RecordedFrame, u32>,
    /// Frames that have not been written, and the index of the first of them.
    fresh: Vec<RecordedFrame>,
    first: u32,
    waiting: Vec<RecordedSample>,
    /// How many there were.
    taken: u64,
}

/// Samples written at a time.
const BATCH: usize = 1024;

impl Samples {
    /// The index of the innermost frame of a stack.
    fn intern(&mut self, stack: &[vcpu::Place]) -> u32 {
        let mut caller = None;
        for place in stack.iter().rev() {
            let frame = RecordedFrame { caller, module: place.module, address: place.address };
            let next = self.first + self.fresh.len() as u32;
            let index = *self.frames.entry(frame).or_insert(next);
            if index == next {
                self.fresh.push(frame);
            }
            caller = Some(index);
        }
        caller.unwrap_or(0)
    }
}

impl Recorder {
    /// Creates the file; one that is there already is kept beside it, `.old` added to its name.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        if path.is_file() {
            let mut old = path.as_os_str().to_owned();
            old.push(".old");
            let _ = std::fs::rename(path, old);
        }
        let failed = |error| {
            Failure::io(path.display(), &error)
                .with_remedy("name another place for the recording with -o FILE")
        };
        let file = File::create(path).map_err(failed)?;
        let writer = Writer::new(file).map_err(failed)?;
        let state = State {
            writer,
            path: path.to_owned(),
            failure: None,
            generating: BTreeSet::new(),
            samples: Samples::default(),
        };
        Ok(Self { state: Arc::new(Mutex::new(state)) })
    }

    /// Where the virtual CPU reports to.
    pub fn sink(&self) -> Box<dyn vcpu::Sink> {
        Box::new(self.clone())
    }

    /// Notes what ran.
    pub fn info(&self, pairs: &[(&str, String)]) {
        let mut state = self.state();
        state.write(|writer| writer.info(pairs.iter().map(|(k, v)| (*k, v.as_str()))));
    }

    /// Notes which events are sampled.
    pub fn events(&self, events: &[SampledEvent]) {
        self.state().write(|writer| writer.events(events));
    }

    /// Writes what is known only at the end.
    pub fn finish(&self, outcome: &Outcome) -> Result<(), Failure> {
        let mut state = self.state();
        state.write_samples();
        for (id, process) in outcome.processes.iter().enumerate() {
            let image = recorded::image(id, process);
            state.write(|writer| writer.image(&image));
        }
        for pid in std::mem::take(&mut state.generating) {
            let symbols = recorded::generated_symbols(pid);
            state.write(|writer| writer.symbols(&symbols));
        }
        state.write(Writer::end);
        match &state.failure {
            None => Ok(()),
            Some(error) => Err(Failure::new(
                crate::failure::OWN_FAILURE,
                format!("{}: {}", state.path.display(), plain(error)),
            )
            .with_remedy(
                "what was written before can be read; make room, or choose another place with -o",
            )),
        }
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
    fn write(&mut self, write: impl FnOnce(&mut Writer<File>) -> io::Result<()>) {
        if self.failure.is_none()
            && let Err(error) = write(&mut self.writer)
        {
            self.failure = Some(error);
        }
    }
}

impl State {
    fn write_samples(&mut self) {
        let samples = &mut self.samples;
        let (first, fresh) = (samples.first, std::mem::take(&mut samples.fresh));
        let waiting = std::mem::take(&mut samples.waiting);
        samples.first += fresh.len() as u32;
        if !fresh.is_empty() {
            self.write(|writer| writer.frames(first, &fresh));
        }
        if !waiting.is_empty() {
            self.write(|writer| writer.samples(&waiting));
        }
    }
}

impl vcpu::Sink for Recorder {
    fn module(&mut self, module: &vcpu::Module) {
        let recorded = recorded::module(module);
        let mut state = self.state();
        if module.changing || recorded.is_anonymous() {
            state.generating.insert(module.pid);
        }
        state.write(|writer| writer.module(&recorded));
    }

    fn blocks(&mut self, blocks: &[vcpu::Block]) {
        let blocks: Vec<Block> = blocks.iter().map(recorded::block).collect();
        self.state().write(|writer| writer.blocks(&blocks));
    }

    fn thread(&mut self, thread: &vcpu::ThreadExecutions) {
        let sampled = &thread.sampled;
        let thread = recorded::thread(thread);
        let mut state = self.state();
        state.write_samples();
        state.write(|writer| writer.thread(&thread));
        if !sampled.is_empty() {
            state.write(|writer| writer.sampled(thread.serial, sampled));
        }
    }

    fn wants_calls(&self) -> bool {
        true
    }

    fn sample(&mut self, sample: &vcpu::Sample<'_>) {
        let mut state = self.state();
        let frame = state.samples.intern(sample.stack);
        let (serial, event) = (sample.serial, sample.event);
        state.samples.taken += 1;
        state.samples.waiting.push(RecordedSample { serial, event, frame });
        if state.samples.waiting.len() >= BATCH {
            state.write_samples();
        }
    }
}

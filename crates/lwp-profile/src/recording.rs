//! Contents of a recording, as they were learnt while the program ran.

use std::collections::BTreeMap;

use crate::contexts::RecordedContexts;
use crate::names::RecordedNames;
use crate::profile::Event;

/// A mapping of a module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
}

/// A file whose code was executed, or anonymous code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedModule {
    /// Its number.
    pub id: u32,
    /// The file as the program named it; `[vdso]`; empty for anonymous code; of a source file of an
    /// interpreted language, its path behind the language in brackets.
    pub path: String,
    /// The GNU build id, empty where there is none.
    pub build_id: Vec<u8>,
    /// Size and modification time (nanoseconds since 1970) of the file: whether it has changed.
    pub version: Option<(u64, i64)>,
    /// A process that had it mapped.
    pub pid: i32,
    /// Its executable mappings.
    pub mappings: Vec<Mapping>,
}

impl RecordedModule {
    /// Returns whether its path is a name for what has no file: the kernel, time that no sample
    /// was seen of, or the reasons for which threads were off the processor.
    pub fn is_label(&self) -> bool {
        matches!(self.path.as_str(), "[kernel]" | "[not sampled]" | "[off the processor]")
    }

    /// Returns whether this is code without a file.
    pub fn is_anonymous(&self) -> bool {
        self.path.is_empty() || self.path.starts_with("//") || self.path.starts_with('[')
    }

    /// The interpreted language whose source file this stands for, as in `[python]/usr/lib/app.py`.
    pub fn language(&self) -> Option<&str> {
        let (language, file) = self.path.strip_prefix('[')?.split_once(']')?;
        (!file.is_empty()).then_some(language)
    }

    /// Returns the offset of `address` in the module's file, which stays the same when the module
    /// is mapped elsewhere. Anonymous code has no file: its address stands for itself.
    pub fn offset_of(&self, address: u64) -> u64 {
        if self.is_anonymous() && self.path != "[vdso]" {
            return address;
        }
        let mapping = self.mappings.iter().find(|m| (m.start..m.end).contains(&address));
        mapping.map_or(address, |m| (address - m.start).wrapping_add(m.offset))
    }
}

/// The branch, or another instruction, by which a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum BlockEnd {
    /// Not in a branch.
    #[default]
    Other = 0,
    /// Direct jump.
    Jump = 1,
    /// Conditional branch.
    Conditional = 2,
    /// Direct call.
    Call = 3,
    /// Indirect jump.
    IndirectJump = 4,
    /// Indirect call.
    IndirectCall = 5,
    /// Return.
    Return = 6,
}

impl BlockEnd {
    /// The end with this number; unknown ones read as [`Self::Other`].
    pub fn from_raw(raw: u64) -> Self {
        let all = [
            Self::Other,
            Self::Jump,
            Self::Conditional,
            Self::Call,
            Self::IndirectJump,
            Self::IndirectCall,
            Self::Return,
        ];
        usize::try_from(raw).ok().and_then(|raw| all.get(raw).copied()).unwrap_or_default()
    }
}

/// A basic block: straight code that was entered at its first instruction. Blocks may overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub id: u32,
    /// Its module.
    pub module: u32,
    /// Address of its first instruction in the process.
    pub address: u64,
    /// Lengths of its instructions, in bytes.
    pub lengths: Vec<u8>,
    /// Number of instructions that a run executes; others are reported as steps.
    pub counted: u16,
    /// The kind of its last instruction.
    pub end: BlockEnd,
    /// Target of its direct branch.
    pub target: Option<u64>,
    /// Its bytes; empty where they could not be read.
    pub bytes: Vec<u8>,
}

/// Number of executions of a block by a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCount {
    /// The number of the block.
    pub block: u32,
    /// Complete executions.
    pub runs: u64,
    /// Of these, how often its conditional branch was not taken.
    pub not_taken: u64,
}

/// Number of times that a branch led to a place: an indirect call, or a branch that was executed
/// alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedJump {
    /// Module and address of the branch.
    pub from: (Option<u32>, u64),
    /// Module and address of where it led; the instruction behind it, where it was not taken.
    pub to: (Option<u32>, u64),
    /// Kind of the branch.
    pub end: BlockEnd,
    /// Executed alone: these executions are steps, and no block's.
    pub alone: bool,
    /// Taken; only a conditional branch may not be.
    pub taken: bool,
    /// Number of executions.
    pub times: u64,
}

/// Number of misses of an instruction in modelled data caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordedMisses {
    /// Module and address of the instruction.
    pub at: (Option<u32>, u64),
    /// Loads of data that the first level did not have.
    pub loads: u64,
    /// Stores to data that the first level did not have.
    pub stores: u64,
    /// Loads of data that no level had.
    pub memory_loads: u64,
    /// Stores to data that no level had.
    pub memory_stores: u64,
}

/// All that one thread executed, block by block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadExecutions {
    /// Its number in the run.
    pub serial: u32,
    /// Number of its process image.
    pub image: u32,
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// Name.
    pub comm: String,
    /// Complete executions of blocks.
    pub blocks: Vec<BlockCount>,
    /// Executions cut short: block, instructions executed, how often.
    pub partial: Vec<(u32, u16, u64)>,
    /// Instructions executed one at a time: module, address, how often; negative numbers correct
    /// what a block counts.
    pub steps: Vec<(Option<u32>, u64, i64)>,
    /// Targets of branches, as far as their blocks do not tell.
    pub jumps: Vec<RecordedJump>,
    /// Instructions that have missed the modelled caches, if there are any.
    pub misses: Vec<RecordedMisses>,
    /// Calling contexts, if they were measured.
    pub contexts: RecordedContexts,
}

/// A process image: an exec starts a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its number.
    pub id: u32,
    /// Process id.
    pub pid: i32,
    /// Parent's process id; 0 for the first.
    pub parent: i32,
    /// Name.
    pub comm: String,
    /// The reason why it was not counted, if so.
    pub uncounted: Option<String>,
    /// Its arguments, with blanks in between; empty where they are not known.
    pub command: String,
}

/// A name of generated code, as a perf map or a jitdump file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedSymbol {
    /// The process it belongs to.
    pub pid: i32,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Name as the program gave it.
    pub name: String,
}

/// An event that was sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledEvent {
    /// Its name.
    pub name: String,
    /// Events per sample.
    pub interval: u64,
    /// True if a model supplied the events instead of a measurement.
    pub modelled: bool,
}

impl SampledEvent {
    /// Returns whether it is nanoseconds of CPU time.
    pub fn is_time(&self) -> bool {
        self.name == Event::TIME
    }

    /// Returns whether it is time that was measured from beginning to end, and not sampled: that
    /// of threads off the processor, in units of its interval.
    pub fn is_spans(&self) -> bool {
        self.name == Event::OFF_CPU
    }
}

/// A frame of a sampled stack, together with all that it was called from: stacks are a forest, so
/// that what they have in common is there once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordedFrame {
    /// Index of the frame that it was called from; `None` for the outermost. Always a smaller
    /// index.
    pub caller: Option<u32>,
    /// Its module.
    pub module: Option<u32>,
    /// The instruction; in a frame that has called another, the last byte of the call.
    pub address: u64,
}

/// A sample. Those of one event and one thread are in order, an interval from each to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordedSample {
    /// Number of the thread.
    pub serial: u32,
    /// Index of the event.
    pub event: u32,
    /// Index of the innermost frame.
    pub frame: u32,
}

/// A file kept with the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedFile {
    /// The path that it stands for.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// A recording, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// Facts about the run, as keys and values; see `docs/recording-format.md` for the keys.
    pub info: BTreeMap<String, String>,
    /// Modules by number.
    pub modules: BTreeMap<u32, RecordedModule>,
    /// Blocks by number.
    pub blocks: BTreeMap<u32, Block>,
    /// Threads by number.
    pub threads: BTreeMap<u32, ThreadExecutions>,
    /// Process images by number.
    pub images: BTreeMap<u32, Image>,
    /// Names of generated code.
    pub symbols: Vec<RecordedSymbol>,
    /// Names of what was executed in each module; none in recordings before 1.3, or whose recorder
    /// was killed.
    pub names: Vec<RecordedNames>,
    /// Events that were sampled.
    pub events: Vec<SampledEvent>,
    /// Frames of sampled stacks.
    pub frames: Vec<RecordedFrame>,
    /// Different samples and how often each was taken, in order: a recording has far fewer
    /// different ones than samples.
    pub samples: Vec<(RecordedSample, u64)>,
    /// Number of occurrences of each sampled event, by thread; the rest after the last sample
    /// included.
    pub sampled: BTreeMap<u32, Vec<u64>>,
    /// Files kept with it.
    pub files: Vec<RecordedFile>,
    /// The native run of the same program, in which its time was sampled.
    pub native: Option<Box<Recording>>,
    /// True if the recorder came to its end.
    pub complete: bool,
    /// Remarks on data that the reader had to leave out.
    pub warnings: Vec<String>,
    /// True if counts are among them, and not only names, which stand behind the counts.
    pub lost_counts: bool,
}

impl Recording {
    /// The value of an info key, empty where there is none.
    pub fn info(&self, key: &str) -> &str {
        self.info.get(key).map_or("", String::as_str)
    }

    /// The number of events that a sample of each event stands for, at least one: its interval. Of
    /// time, all samples together stand for no more than the kernel's clocks say: perf's clock,
    /// which sets the intervals, runs on while a hypervisor has taken the processor away.
    pub fn weights(&self) -> Vec<u64> {
        let clock: Option<u64> = self.info("cpu-time").parse().ok();
        let weight = |(number, event): (usize, &SampledEvent)| {
            let taken = || {
                let of_event =
                    |(sample, _): &&(RecordedSample, u64)| sample.event as usize == number;
                let times = self.samples.iter().filter(of_event).map(|(_, times)| *times);
                times.fold(0, u64::saturating_add).max(1)
            };
            let most = clock.filter(|_| event.is_time()).map(|clock| clock / taken());
            most.map_or(event.interval, |most| most.min(event.interval)).max(1)
        };
        self.events.iter().enumerate().map(weight).collect()
    }

    /// Returns whether a model has added to what was counted.
    pub fn is_modelled(&self) -> bool {
        self.info.contains_key("model") && self.events.is_empty()
    }

    /// Returns whether counts are missing: the recording is damaged, or its recorder was stopped.
    pub fn is_partial(&self) -> bool {
        !self.complete || self.lost_counts
    }

    /// Returns whether it holds neither counts nor samples.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty() && self.samples.is_empty() && self.sampled.is_empty()
    }

    /// Returns whether there were processes and none of them was counted: a sum of zero says
    /// nothing of them.
    pub fn is_uncounted(&self) -> bool {
        let mut images = self.images.values();
        !self.images.is_empty() && images.all(|image| image.uncounted.is_some())
    }

    /// Retired instructions of all threads.
    pub fn instructions(&self) -> u64 {
        // A program can write to its own counters: their sum may be anything.
        let threads = self.threads.values().map(|thread| self.thread_instructions(thread));
        u64::try_from(threads.fold(0, i64::saturating_add)).unwrap_or(0)
    }

    fn thread_instructions(&self, thread: &ThreadExecutions) -> i64 {
        let runs = thread.blocks.iter().map(|count| {
            let counted = self.blocks.get(&count.block).map_or(0, |block| block.counted);
            (count.runs as i64).wrapping_mul(i64::from(counted))
        });
        let partial = thread.partial.iter().map(|&(_, n, times)| i64::from(n) * times as i64);
        let steps = thread.steps.iter().map(|&(_, _, times)| times);
        runs.chain(partial).chain(steps).fold(0, i64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: R130
    #[test]
    fn samples_of_time_stand_for_no_more_than_the_clocks_say() {
        let event = |name: &str| SampledEvent { name: name.into(), interval: 10, modelled: false };
        let sample = |event, times| (RecordedSample { serial: 0, event, frame: 0 }, times);
        let with = |clock: &str| Recording {
            info: [("cpu-time".to_owned(), clock.to_owned())].into(),
            events: vec![event("cpu-time"), event("calls")],
            samples: vec![sample(0, 30), sample(0, 70), sample(1, 1)],
            ..Recording::default()
        };
        // 100 samples of 10, where the clocks say 1,005, 900 and nothing.
        assert_eq!(with("1005").weights(), [10, 10]);
        assert_eq!(with("900").weights(), [9, 10]);
        assert_eq!(with("").weights(), [10, 10]);
        assert_eq!(with("0").weights(), [1, 10]);
    }
}

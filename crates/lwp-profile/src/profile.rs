//! The profile: functions, lines, stacks and calls with counts per event.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::contexts::ContextKind;

/// The mode of a recording: every execution was counted, or every N-th event was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Every execution of every block was counted: values are true counts.
    #[default]
    Exact,
    /// Values are samples times their interval.
    Sampled,
}

/// An event of a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// Its name, as `lwp list` has it.
    pub name: String,
    /// Events per sample; `None` where every event was counted.
    pub interval: Option<u64>,
    /// True if a model supplied the events instead of a measurement.
    pub modelled: bool,
}

impl Event {
    /// The events of an exact profile, in the order of their values.
    pub const EXACT: [&'static str; 8] = [
        "instructions",
        "branches",
        "branches-taken",
        "conditional-branches",
        "conditional-taken",
        "calls",
        "returns",
        "indirect-branches",
    ];

    /// The name of the event whose counts are nanoseconds of CPU time.
    pub const TIME: &'static str = "cpu-time";

    /// The name of the event whose counts are nanoseconds in which threads were off the processor.
    pub const OFF_CPU: &'static str = "off-cpu";

    /// Returns whether it is nanoseconds of CPU time, which are sampled.
    pub fn is_time(&self) -> bool {
        self.name == Self::TIME
    }

    /// Returns whether it is nanoseconds off the processor, which are measured.
    pub fn is_off_cpu(&self) -> bool {
        self.name == Self::OFF_CPU
    }

    /// Returns whether the event of this name counts nanoseconds.
    pub fn is_in_nanoseconds(name: &str) -> bool {
        matches!(name, Self::TIME | Self::OFF_CPU)
    }

    /// What it counts, in the words of other tools' formats.
    pub fn unit(&self) -> &'static str {
        if Self::is_in_nanoseconds(&self.name) { "nanoseconds" } else { "count" }
    }

    /// The events of an exact profile.
    pub fn exact() -> Vec<Self> {
        let event = |name: &&str| Self { name: (*name).to_owned(), ..Self::default() };
        Self::EXACT.iter().map(event).collect()
    }
}

/// Counts, one for each event of the profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Values(pub Vec<u64>);

impl Values {
    /// No events at all.
    pub fn zero(events: usize) -> Self {
        Self(vec![0; events])
    }

    /// Adds `other`, saturating.
    pub fn add(&mut self, other: &Self) {
        for (sum, value) in self.0.iter_mut().zip(&other.0) {
            *sum = sum.saturating_add(*value);
        }
    }

    /// The value of the event with this index, 0 if there is none.
    pub fn get(&self, event: usize) -> u64 {
        self.0.get(event).copied().unwrap_or(0)
    }

    /// Returns whether all are zero.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|value| *value == 0)
    }
}

macro_rules! index {
    // index!(ModuleId, "a module") makes a number that only indexes the profile's modules.
    ($($Name:ident, $what:literal;)*) => { $(
        #[doc = concat!("The index of ", $what, " in its profile.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $Name(pub u32);

        impl $Name {
            /// As an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )* };
}

index! {
    ModuleId, "a module";
    FunctionId, "a function";
    LocationId, "a location";
    StackId, "a stack";
    ThreadId, "a thread";
}

/// A file whose code was executed, or generated code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Module {
    /// Its path as the program saw it; `[vdso]`, `[generated]` where there is no file.
    pub path: String,
    /// GNU build id, empty where there is none.
    pub build_id: Vec<u8>,
    /// The name that programs link it by, empty where it has none or it is not known.
    pub soname: String,
    /// True if it is a program and no library, as far as that is known.
    pub program: bool,
    /// True if its symbols are Go's, or of another language that has dots in names: they have no
    /// compiler's suffixes.
    pub go: bool,
}

impl Module {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        match self.path.rsplit('/').next() {
            Some(name) if !name.is_empty() => name,
            _ => &self.path,
        }
    }

    /// The interpreted language whose source file this stands for, and the file, as in
    /// `[python]/usr/lib/app.py`.
    pub fn interpreted(&self) -> Option<(&str, &str)> {
        let (language, file) = self.path.strip_prefix('[')?.split_once(']')?;
        (!file.is_empty()).then_some((language, file))
    }

    /// The build id in hexadecimal.
    pub fn build_id_hex(&self) -> String {
        use std::fmt::Write;
        self.build_id.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// The origin of a function's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// Nothing names it: an address stands for it.
    #[default]
    Unknown,
    /// A symbol table.
    Symbol,
    /// Debug information only: an inlined function.
    Debug,
    /// The program's own list of the code it generates.
    Generated,
    /// The stub through which another module's function is called.
    Stub,
}

/// A function of a program or library, or of generated code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// The program or library that holds it.
    pub module: ModuleId,
    /// Its name as the linker knows it (mangled).
    pub name: String,
    /// Its first address as the file has it; for an inlined function 0.
    pub address: u64,
    /// Its bytes, 0 where they are not known.
    pub size: u64,
    /// The origin of its name.
    pub origin: Origin,
    /// The file that declares it, if that is known.
    pub file: String,
    /// Line of the declaration, 0 where it is not known.
    pub line: u32,
}

/// A function at a place in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The function that the source line belongs to.
    pub function: FunctionId,
    /// Source file, empty where it is not known. Shared: a program has far fewer files than
    /// instructions.
    pub file: Arc<str>,
    /// Line, 0 where it is not known.
    pub line: u32,
}

/// The bytes of an instruction; none where they are not known.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code {
    bytes: [u8; 15],
    len: u8,
}

impl From<&[u8]> for Code {
    /// At most fifteen bytes: no instruction is longer.
    fn from(code: &[u8]) -> Self {
        let mut bytes = [0; 15];
        let len = code.len().min(bytes.len());
        bytes[..len].copy_from_slice(&code[..len]);
        Self { bytes, len: len as u8 }
    }
}

impl Deref for Code {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// An instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// Its module.
    pub module: ModuleId,
    /// Its address as the file has it; for generated code, in the process.
    pub address: u64,
    /// Its bytes; empty where they are not known.
    pub bytes: Code,
    /// The functions that it belongs to: inlined ones, innermost first, then the function that they
    /// were inlined into.
    pub frames: Arc<[Frame]>,
}

impl Location {
    /// The function that was not inlined: the one with a symbol.
    pub fn function(&self) -> FunctionId {
        self.frames.last().map_or(FunctionId(0), |frame| frame.function)
    }
}

/// A call stack: the place of the event, then the places it returns to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stack {
    /// Locations, innermost first. Never empty.
    pub locations: Arc<[LocationId]>,
}

/// A thread of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thread {
    /// Name.
    pub comm: String,
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
}

/// Counts of one stack in one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    /// The thread that executed the stack.
    pub thread: ThreadId,
    /// The stack; of one location in an exact profile.
    pub stack: StackId,
    /// The counts.
    pub values: Values,
}

/// The way by which control came to a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallKind {
    /// A direct call.
    #[default]
    Direct,
    /// A direct jump from another function: a tail call.
    Tail,
    /// The jump in a stub, led by the name of the symbol it imports.
    Import,
    /// An indirect call. Without a place: what is left of the executions of a function's first
    /// instruction when everything else is taken away; an indirect jump, or the kernel, led there.
    Indirect,
}

/// Calls of one function from one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// The calling instruction; `None` where it is not known.
    pub from: Option<LocationId>,
    /// The function called.
    pub to: FunctionId,
    /// The kind of call.
    pub kind: CallKind,
    /// The number of calls: a true count.
    pub count: u64,
}

/// A function as it was called along one path of callers in a thread, with measured counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The thread.
    pub thread: ThreadId,
    /// Index of the context that it was called from: a smaller one. A thread's first function, a
    /// signal's handler and contexts that were merged have none.
    pub caller: Option<u32>,
    /// The instruction that called it.
    pub site: Option<LocationId>,
    /// The function.
    pub function: FunctionId,
    /// How control came there.
    pub kind: ContextKind,
    /// How often it was entered.
    pub calls: u64,
    /// The instructions that it executed itself.
    pub instructions: u64,
}

/// A profile. Built by [`crate::Builder`], which keeps everything in canonical order: equal content
/// is equal memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The command that ran.
    pub command: String,
    /// More about the run, as keys and values; see `docs/recording-format.md` for the keys.
    pub info: BTreeMap<String, String>,
    /// The mode, by which values are counts or estimates.
    pub mode: Mode,
    /// Events, in the order of all values.
    pub events: Vec<Event>,
    /// Programs and libraries, by [`ModuleId`].
    pub modules: Vec<Module>,
    /// Functions of all modules, by [`FunctionId`].
    pub functions: Vec<Function>,
    /// Instructions with their frames, by [`LocationId`].
    pub locations: Vec<Location>,
    /// Call stacks, by [`StackId`].
    pub stacks: Vec<Stack>,
    /// Threads of all processes, by [`ThreadId`].
    pub threads: Vec<Thread>,
    /// Arguments of processes, with blanks in between, by process id and name.
    pub commands: BTreeMap<(i32, String), String>,
    /// Counts.
    pub samples: Vec<Sample>,
    /// Calls; only in exact profiles.
    pub calls: Vec<Call>,
    /// Calling contexts, if they were measured. What is called from a context stands behind it,
    /// and before whatever is not.
    pub contexts: Vec<Context>,
}

impl Profile {
    /// The value of an info key, empty where there is none.
    pub fn info(&self, key: &str) -> &str {
        self.info.get(key).map_or("", String::as_str)
    }

    /// Returns whether calling contexts were measured.
    pub fn has_contexts(&self) -> bool {
        !self.contexts.is_empty()
    }

    /// The index of the event called `name`.
    pub fn event(&self, name: &str) -> Option<usize> {
        self.events.iter().position(|event| event.name == name)
    }

    /// The function with this number.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.index()]
    }

    /// The module of a function.
    pub fn module_of(&self, id: FunctionId) -> &Module {
        &self.modules[self.function(id).module.index()]
    }

    /// The location with this number.
    pub fn location(&self, id: LocationId) -> &Location {
        &self.locations[id.index()]
    }

    /// The innermost location of a sample.
    pub fn leaf(&self, sample: &Sample) -> LocationId {
        self.stacks[sample.stack.index()].locations[0]
    }

    /// Returns whether samples have call stacks.
    pub fn has_stacks(&self) -> bool {
        self.stacks.iter().any(|stack| stack.locations.len() > 1)
    }

    /// Returns whether counts of the event with this index have the stacks that they were sampled
    /// with, beside events that were counted: those of a native run.
    pub fn is_sampled_beside(&self, event: usize) -> bool {
        let event = self.events.get(event);
        let timed = event.is_some_and(|event| event.is_time() && event.interval.is_some());
        self.mode == Mode::Exact && timed
    }

    /// The sum of everything.
    pub fn total(&self) -> Values {
        let mut total = Values::zero(self.events.len());
        for sample in &self.samples {
            total.add(&sample.values);
        }
        total
    }

    /// Counts of every location on its own, by location.
    pub fn by_location(&self) -> Vec<Values> {
        let mut sums = vec![Values::zero(self.events.len()); self.locations.len()];
        for sample in &self.samples {
            sums[self.leaf(sample).index()].add(&sample.values);
        }
        sums
    }

    /// Counts of every function's own code, what was inlined into it included.
    pub fn by_function(&self) -> Vec<Values> {
        let mut sums = vec![Values::zero(self.events.len()); self.functions.len()];
        for sample in &self.samples {
            let function = self.location(self.leaf(sample)).function();
            sums[function.index()].add(&sample.values);
        }
        sums
    }
}

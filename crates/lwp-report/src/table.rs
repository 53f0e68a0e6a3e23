//! A table of what was executed, by whatever it is asked by.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use lwp_profile::{CallGraph, FunctionId, Inclusive, LocationId, Profile, Sample};
use lwp_symbols::FunctionNames;

use crate::beside::Beside;

/// Sort keys, which tell the rows of a table apart; the names are perf's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SortKey {
    /// Name of the thread.
    Comm,
    /// Process id.
    Pid,
    /// Thread id.
    Tid,
    /// Name and id of the thread.
    Thread,
    /// Name and id of the process, and the arguments that tell it from others of that name.
    Process,
    /// Module: program, shared library.
    Dso,
    /// Function.
    Sym,
    /// Source file.
    SrcFile,
    /// Source line.
    SrcLine,
    /// Address.
    Address,
}

/// A sort key that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKey(pub String);

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "tag" => f.write_str(
                "recordings have no tags to sort by: what a program notes of itself, by LWPVAL and LWPINS, \
                 goes to its own ring, and a program that is recorded sees no LWP",
            ),
            name => write!(f, "no sort key is called {name:?}"),
        }
    }
}

impl FromStr for SortKey {
    type Err = UnknownKey;

    fn from_str(text: &str) -> Result<Self, UnknownKey> {
        Ok(match text {
            "comm" => Self::Comm,
            "pid" => Self::Pid,
            "tid" => Self::Tid,
            "thread" => Self::Thread,
            "process" => Self::Process,
            "dso" | "module" => Self::Dso,
            "sym" | "symbol" | "func" | "function" => Self::Sym,
            "srcfile" | "file" => Self::SrcFile,
            "srcline" | "line" => Self::SrcLine,
            "addr" | "ip" | "address" | "inst" => Self::Address,
            _ => return Err(UnknownKey(text.to_owned())),
        })
    }
}

impl SortKey {
    /// All names, for messages.
    pub const NAMES: &'static str = "comm, pid, tid, thread, process, dso (module), sym (func), srcfile (file), srcline (line), addr (inst)";

    /// Returns whether it tells instructions of one function apart.
    pub fn is_of_instructions(self) -> bool {
        matches!(self, Self::SrcFile | Self::SrcLine | Self::Address)
    }

    /// The heading of the column.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Comm => "Command",
            Self::Pid => "Pid",
            Self::Tid => "Tid",
            Self::Thread => "Thread",
            Self::Process => "Process",
            Self::Dso => "Module",
            Self::Sym => "Function",
            Self::SrcFile => "Source file",
            Self::SrcLine => "Source line",
            Self::Address => "Address",
        }
    }

    /// The name of the column in JSON and CSV.
    pub fn name(self) -> &'static str {
        match self {
            Self::Comm => "comm",
            Self::Pid => "pid",
            Self::Tid => "tid",
            Self::Thread => "thread",
            Self::Process => "process",
            Self::Dso => "dso",
            Self::Sym => "sym",
            Self::SrcFile => "srcfile",
            Self::SrcLine => "srcline",
            Self::Address => "addr",
        }
    }
}

/// The contents of a table.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keys, the first the most significant.
    pub sort: Vec<SortKey>,
    /// Index of the event.
    pub event: usize,
    /// Sort by what was done for a function instead of what it did itself.
    pub children: bool,
    /// Names as programmers write them instead of the linker's.
    pub demangle: bool,
    /// Leave rows below this part of the whole out.
    pub percent_limit: f64,
    /// Count inlined functions on their own.
    pub inline: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sort: vec![SortKey::Dso, SortKey::Sym],
            event: 0,
            children: false,
            demangle: true,
            percent_limit: 0.0,
            inline: false,
        }
    }
}

/// The counts of one combination of sort keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The values of the sort keys.
    pub keys: Vec<String>,
    /// Counted here.
    pub own: u64,
    /// Counted here and in what was called from here.
    pub inclusive: Option<f64>,
    /// Number of calls to it.
    pub calls: Option<u64>,
    /// Estimated cycles, where a model supplies them beside the event.
    pub cycles: Option<u64>,
    /// Counted here of the event that is told beside the table's, where there is one.
    pub beside: Option<u64>,
    /// The function, where the row stands for one.
    pub function: Option<FunctionId>,
}

/// A report by sort keys, largest counts first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The command of the program.
    pub command: String,
    /// The event's name.
    pub event: String,
    /// True if a model supplied the event.
    pub modelled: bool,
    /// Events per sample, where not every event was counted.
    pub interval: Option<u64>,
    /// True if it is time: nanoseconds, sampled at intervals of it.
    pub time: bool,
    /// True if it is time off the processor: nanoseconds, each measured.
    pub off_cpu: bool,
    /// All of the time, by the kernel's clocks, where the recording says it.
    pub clock: Option<u64>,
    /// The event that is told beside this one: instructions beside time, and time beside them.
    pub beside: Option<Beside>,
    /// Remarks on the difference between the native run and the counted one.
    pub differences: String,
    /// Keys.
    pub sort: Vec<SortKey>,
    /// Rows, greatest first.
    pub rows: Vec<Row>,
    /// Rows left out.
    pub hidden: usize,
    /// Sum over all rows.
    pub total: u64,
    /// True if no process was counted: that nothing is shown says nothing of the program.
    pub uncounted: bool,
    /// True if counts are missing: the recording is damaged or unfinished.
    pub partial: bool,
    /// True if inclusive counts are true; otherwise they are estimates.
    pub inclusive_exact: bool,
    /// True if contexts were measured, in instructions: estimates of other events follow them.
    pub has_contexts: bool,
    /// True if rows are ordered by inclusive counts.
    pub by_inclusive: bool,
}

impl Table {
    /// Makes the table.
    pub fn new(profile: &Profile, options: &Options) -> Self {
        let names = Names::new(profile, options);
        let functions_only =
            options.sort.iter().all(|key| matches!(key, SortKey::Dso | SortKey::Sym))
                && options.sort.contains(&SortKey::Sym)
                && !options.inline;
        let cycles = profile.event("modelled-cycles").filter(|event| *event != options.event);
        let beside = Beside::of(profile, options.event);
        let mut sums: BTreeMap<(Vec<String>, Option<FunctionId>), [u64; 3]> = BTreeMap::new();
        for sample in &profile.samples {
            let value = sample.values.get(options.event);
            let leaf = profile.leaf(sample);
            let function = functions_only.then(|| profile.location(leaf).function());
            let keys = match function {
                Some(_) => Vec::new(),
                None => names.keys(sample, leaf),
            };
            let sum = sums.entry((keys, function)).or_default();
            let cycles = cycles.map_or(0, |event| sample.values.get(event));
            let other = beside.as_ref().map_or(0, |(event, _)| sample.values.get(*event));
            let values = sum.iter_mut().zip([value, cycles, other]);
            values.for_each(|(sum, value)| *sum = sum.saturating_add(value));
        }
        let all = |at: usize| sums.values().fold(0u64, |sum, row| sum.saturating_add(row[at]));
        let mut table = Self {
            command: profile.command.clone(),
            event: profile.events.get(options.event).map_or(String::new(), |e| e.name.clone()),
            modelled: profile.events.get(options.event).is_some_and(|e| e.modelled),
            interval: profile.events.get(options.event).and_then(|e| e.interval),
            time: profile.events.get(options.event).is_some_and(lwp_profile::Event::is_time),
            off_cpu: profile.events.get(options.event).is_some_and(lwp_profile::Event::is_off_cpu),
            clock: profile.info("cpu-time").parse().ok(),
            sort: options.sort.clone(),
            total: all(0),
            beside: beside.map(|(_, beside)| Beside { total: all(2), ..beside }),
            differences: profile.info("differences").to_owned(),
            by_inclusive: options.children && functions_only,
            has_contexts: profile.has_contexts(),
            ..Self::default()
        };
        table.rows = sums
            .into_iter()
            .map(|((keys, function), [own, estimated, other])| {
                let cycles = cycles.map(|_| estimated);
                let beside = table.beside.as_ref().map(|_| other);
                Row { keys, own, function, cycles, beside, ..Row::default() }
            })
            .collect();
        if functions_only {
            table.add_calls(profile, options, &names);
        }
        table.arrange(options);
        table
    }

    /// Half the width of the interval that holds a row's true part of the whole in 95 of 100
    /// recordings, in points of per cent: samples that are taken at intervals of time are a matter
    /// of chance. `None` without samples of time.
    pub fn margin(&self, row: &Row) -> Option<f64> {
        /// 95 % of a normal distribution lie within so many standard deviations.
        const DEVIATIONS: f64 = 1.96;
        let interval =
            self.interval.filter(|interval| self.time && *interval > 0 && row.own > 0)?;
        let samples = self.total as f64 / interval as f64;
        if samples < 1.0 {
            return None;
        }
        let part = (row.own as f64 / self.total as f64).min(1.0);
        Some(100.0 * DEVIATIONS * (part * (1.0 - part) / samples).sqrt())
    }

    /// Adds what is known of functions only: calls and inclusive counts.
    fn add_calls(&mut self, profile: &Profile, options: &Options, names: &Names<'_>) {
        let graph = CallGraph::of(profile);
        let inclusive = Inclusive::of(profile, &graph, options.event);
        self.inclusive_exact = inclusive.exact;
        if inclusive.exact {
            self.add_callers(&inclusive);
        }
        if !profile.calls.is_empty() || profile.has_contexts() {
            self.add_called(profile, &graph);
        }
        for row in &mut self.rows {
            let Some(function) = row.function else { continue };
            row.keys = names.function_keys(function);
            row.inclusive = Some(inclusive.of[function.index()]);
            let counted = !profile.calls.is_empty() || profile.has_contexts();
            row.calls = counted.then(|| graph.calls_of(function));
        }
    }

    /// Functions that were on stacks and never did anything themselves.
    fn add_callers(&mut self, inclusive: &Inclusive) {
        let mut has_row = vec![false; inclusive.of.len()];
        for function in self.rows.iter().filter_map(|row| row.function) {
            has_row[function.index()] = true;
        }
        let callers = (0..inclusive.of.len()).filter(|index| !has_row[*index]);
        self.rows.extend(
            callers
                .filter(|index| inclusive.of[*index] > 0.0)
                .map(|index| Row { function: Some(FunctionId(index as u32)), ..Row::default() }),
        );
    }

    /// Functions that were called and executed nothing themselves: those of interpreted languages.
    fn add_called(&mut self, profile: &Profile, graph: &CallGraph) {
        let known: BTreeSet<FunctionId> = self.rows.iter().filter_map(|row| row.function).collect();
        let all = (0..profile.functions.len()).map(|index| FunctionId(index as u32));
        let others = all.filter(|id| !known.contains(id) && graph.calls_of(*id) > 0);
        self.rows.extend(others.map(|id| Row { function: Some(id), ..Row::default() }));
    }

    fn arrange(&mut self, options: &Options) {
        let by_inclusive = self.by_inclusive;
        let weight = |row: &Row| match by_inclusive {
            true => row.inclusive.unwrap_or(0.0),
            false => row.own as f64,
        };
        self.rows.sort_by(|a, b| {
            let by_counts = weight(b).total_cmp(&weight(a)).then(b.own.cmp(&a.own));
            let by_counts = by_counts.then(b.beside.cmp(&a.beside));
            let by_calls = || match (a.own, b.own) {
                (0, 0) => b.calls.cmp(&a.calls),
                _ => Ordering::Equal,
            };
            by_counts.then_with(by_calls).then_with(|| a.keys.cmp(&b.keys))
        });
        let part = |row: &Row| match self.inclusive_exact {
            true => weight(row).max(row.inclusive.unwrap_or(0.0)),
            false => weight(row),
        };
        let before = self.rows.len();
        let least = self.total as f64 * options.percent_limit / 100.0;
        let happened = |row: &Row| {
            let beside = row.beside.is_some_and(|count| count > 0);
            part(row) > 0.0 || beside || row.calls.is_some_and(|calls| calls > 0)
        };
        self.rows.retain(|row| happened(row) && part(row) >= least);
        self.hidden = before - self.rows.len();
    }
}

/// Names of things, each made once.
struct Names<'a> {
    profile: &'a Profile,
    options: &'a Options,
    functions: FunctionNames<'a>,
    titles: BTreeMap<(i32, String), String>,
}

impl<'a> Names<'a> {
    fn new(profile: &'a Profile, options: &'a Options) -> Self {
        let titles = match options.sort.contains(&SortKey::Process) {
            true => profile.process_titles(),
            false => BTreeMap::new(),
        };
        Self { profile, options, functions: FunctionNames::new(profile, options.demangle), titles }
    }

    fn function(&self, id: FunctionId) -> String {
        self.functions.get(id).to_owned()
    }

    fn function_keys(&self, id: FunctionId) -> Vec<String> {
        let keys = self.options.sort.clone();
        let key = |key| match key {
            SortKey::Dso => self.profile.module_of(id).name().to_owned(),
            _ => self.function(id),
        };
        keys.into_iter().map(key).collect()
    }

    fn keys(&self, sample: &Sample, leaf: LocationId) -> Vec<String> {
        let profile = self.profile;
        let location = profile.location(leaf);
        let thread = &profile.threads[sample.thread.index()];
        let innermost = location.frames.first();
        let module = &profile.modules[location.module.index()];
        let options = self.options;
        // Code without lines is at least known by its file.
        let unknown = || match options.sort.contains(&SortKey::Dso) {
            true => UNKNOWN.to_owned(),
            false => format!("{UNKNOWN} [{}]", module.name()),
        };
        let key = |key: &SortKey| match key {
            SortKey::Comm => thread.comm.clone(),
            SortKey::Pid => thread.pid.to_string(),
            SortKey::Tid => thread.tid.to_string(),
            SortKey::Thread => format!("{}-{}", thread.comm, thread.tid),
            SortKey::Process => {
                let title = self.titles.get(&(thread.pid, thread.comm.clone()));
                format!("{}  {}", thread.pid, title.unwrap_or(&thread.comm))
            }
            SortKey::Dso => module.name().to_owned(),
            SortKey::Sym => match innermost.filter(|_| options.inline) {
                Some(frame) => self.function(frame.function),
                None => self.function(location.function()),
            },
            SortKey::SrcFile => innermost
                .filter(|frame| !frame.file.is_empty())
                .map_or_else(unknown, |frame| frame.file.to_string()),
            SortKey::SrcLine => innermost
                .filter(|frame| frame.line != 0)
                .map_or_else(unknown, |frame| format!("{}:{}", base(&frame.file), frame.line)),
            // Two files have the same addresses.
            SortKey::Address if options.sort.contains(&SortKey::Dso) => {
                format!("{:#x}", location.address)
            }
            SortKey::Address => format!("{}+{:#x}", module.name(), location.address),
        };
        options.sort.iter().map(key).collect()
    }
}

/// What stands for a file or a line that is not known.
const UNKNOWN: &str = "??";

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

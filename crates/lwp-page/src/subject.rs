//! A body of counts that pages are made of: one recording, or the sum of many.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use lwp_profile::{
    Course, FunctionId, Mode, Origin, Profile, Recording, Samples, StackId, ThreadId,
};
use lwp_report::annotate::Sources;
use lwp_symbols::{InSamples, function_name, stable_function_name};
use rustc_hash::FxHashMap;

use crate::adding::{Block, LONG, Portion, blocks, portions};
use crate::behind::Behind;
use crate::key::Key;
use crate::picked::{Picked, Shape};
use crate::selection::Selection;
use lwp_symbols::Language;

/// A function as pages name it.
#[derive(Clone, Debug)]
pub struct Label {
    /// Its name.
    pub name: String,
    /// Its module's name.
    pub module: String,
    /// Its language.
    pub language: Language,
}

/// One event of one thread in the order of its samples.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// The thread.
    pub thread: ThreadId,
    /// Index of the event.
    pub event: usize,
    /// Events of each part.
    pub width: u64,
    /// All events.
    pub total: u64,
    /// Stacks and how often each was sampled, part by part.
    pub parts: Vec<Vec<(StackId, u32)>>,
}

/// The sources of a subject.
#[derive(Default)]
pub struct Material {
    /// The name that it goes by: a file, a host, a day.
    pub name: String,
    /// The counts; of a sampled recording without stacks if `samples` has them.
    pub profile: Profile,
    /// Samples by their contexts, if somebody has found them already.
    pub samples: Option<Samples>,
    /// Facts about the run, as names and values.
    pub facts: Vec<(String, String)>,
    /// Remarks on missing data.
    pub notes: Vec<String>,
    /// Times of samples, if they are known.
    pub lanes: Vec<Lane>,
    /// Modules that go by the name of another one in comparisons: the path, or the end of one, and
    /// that name.
    pub modules: Vec<(String, String)>,
    /// Access to source code, if it can be read.
    pub sources: Mutex<Option<Box<dyn Sources + Send>>>,
    /// The recording, for other formats.
    pub behind: Option<Behind>,
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Material").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Number of selections of a subject that are kept.
const KEPT: usize = 6;
/// Most contexts of the selections that are kept, if there are more than two.
pub const MOST_NODES: usize = 1 << 25;

/// Contexts whose trees take long to be made.
const MANY_NODES: usize = 1 << 20;

/// A body of counts with all that pages need of it.
#[derive(Debug)]
pub struct Subject {
    /// Its sources.
    pub of: Material,
    /// Functions by number.
    pub labels: Vec<Label>,
    /// The key of each function in addresses, in other subjects too.
    pub keys: Vec<Key>,
    /// Numbers of the threads, the heaviest first: every page offers them, and a large recording
    /// has millions of samples.
    pub threads: Vec<u32>,
    /// Functions by key.
    pub functions: FxHashMap<Key, FunctionId>,
    /// Contexts and stacks, of a sampled recording. Its samples are in `portions`.
    pub samples: Option<Samples>,
    /// Samples by thread, event and language.
    pub portions: Vec<Portion>,
    /// Counts of long spans of every lane, if it is long.
    pub blocks: Vec<Vec<Block>>,
    /// Samples of every innermost function in each part of each lane: there are far fewer than
    /// stacks.
    pub leaves: Vec<Vec<Leaves>>,
    /// True if there are so many contexts that trees of them take long to be made.
    pub large: bool,
    picked: Mutex<VecDeque<(Selection, Arc<Picked>)>>,
}

/// Functions and how often each was sampled.
pub type Leaves = Vec<(FunctionId, u64)>;

impl Subject {
    /// Prepares what all views need.
    pub fn new(mut of: Material) -> Self {
        let mut samples = of.samples.take().or_else(|| Samples::of(&of.profile));
        let profile = &of.profile;
        let labels = labels(profile);
        let keys = keys(profile, &labels, &of.modules);
        let functions = keys.iter().enumerate().map(|(at, key)| (*key, FunctionId(at as u32)));
        let functions = functions.collect();
        let of_lane = |lane| leaves(profile, samples.as_ref(), lane);
        let leaves = of.lanes.iter().map(of_lane).collect();
        let of_lane = |lane| blocks(profile, samples.as_ref(), lane, LONG);
        let blocks = of.lanes.iter().map(of_lane).collect();
        let portions = samples.as_mut().map(|samples| portions(profile, &labels, samples));
        let portions = portions.unwrap_or_default();
        let threads = threads(profile, &portions);
        let contexts = samples.as_ref().map_or(0, |samples| samples.shape.len());
        let (large, picked) = (contexts >= MANY_NODES, Mutex::default());
        Self {
            labels,
            keys,
            threads,
            functions,
            samples,
            portions,
            blocks,
            leaves,
            large,
            picked,
            of,
        }
    }

    /// The counts.
    pub fn profile(&self) -> &Profile {
        &self.of.profile
    }

    /// The profile with every stack, where pages go without them: of a sampled recording, which
    /// `recording` is.
    pub fn whole(&self, recording: &Recording) -> Option<Profile> {
        let behind = self.of.behind.as_ref().filter(|_| self.samples.is_some());
        behind.map(|behind| behind.profile(recording))
    }

    /// Returns true if every execution was counted.
    pub fn is_exact(&self) -> bool {
        self.profile().mode == Mode::Exact
    }

    /// Makes the trees that pages show of everything, where that takes long. A page that needs one
    /// waits for it.
    pub fn prepare(&self) {
        if !self.large {
            return;
        }
        let picked = self.pick(&Selection::default());
        for shape in Shape::FIRST {
            picked.shaped(self, shape);
        }
    }

    /// The part of the subject that `selection` leaves, if it is kept.
    pub fn known(&self, selection: &Selection) -> Option<Arc<Picked>> {
        let kept = self.picked.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, picked) = kept.iter().find(|(known, _)| known == selection)?;
        Some(Arc::clone(picked))
    }

    /// Returns the part of the subject that `selection` leaves. Several threads that request the
    /// same part at once may each make it; later ones share it.
    pub fn pick(&self, selection: &Selection) -> Arc<Picked> {
        if let Some(known) = self.known(selection) {
            return known;
        }
        let picked = Arc::new(Picked::new(self, selection));
        let mut kept = self.picked.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((selection.clone(), Arc::clone(&picked)));
        // What all pages start from stays, and what was asked for last.
        let too_much = |kept: &VecDeque<(Selection, Arc<Picked>)>| {
            let nodes = || kept.iter().map(|(_, picked)| picked.held()).sum::<usize>();
            kept.len() > KEPT || kept.len() > 2 && nodes() > MOST_NODES
        };
        while too_much(&kept) {
            let last = kept.iter().rposition(|(known, _)| *known != Selection::default());
            let last = last.unwrap_or(kept.len() - 1);
            let _ = kept.remove(last);
        }
        picked
    }
}

fn labels(profile: &Profile) -> Vec<Label> {
    let label = |index: usize| {
        let id = FunctionId(index as u32);
        let (function, module) = (profile.function(id), profile.module_of(id));
        Label {
            name: function_name(profile, id, true),
            module: module.name().to_owned(),
            language: Language::of(function, module),
        }
    };
    (0..profile.functions.len()).map(label).collect()
}

/// Numbers of the threads, the heaviest first.
fn threads(profile: &Profile, portions: &[Portion]) -> Vec<u32> {
    let mut weights = vec![0u64; profile.threads.len()];
    let mut add = |thread: ThreadId, count: u64| {
        let weight = &mut weights[thread.index()];
        *weight = weight.saturating_add(count);
    };
    for portion in portions.iter().filter(|portion| portion.event == 0) {
        add(portion.thread, portion.samples);
    }
    if portions.is_empty() {
        profile.samples.iter().for_each(|it| add(it.thread, it.values.get(0)));
    }
    let mut order: Vec<u32> = (0..weights.len() as u32).collect();
    order.sort_by_key(|number| std::cmp::Reverse(weights[*number as usize]));
    order
}

/// The innermost functions of each part of a lane.
fn leaves(profile: &Profile, samples: Option<&Samples>, lane: &Lane) -> Vec<Leaves> {
    let Some(samples) = samples else { return Vec::new() };
    let mut sums = vec![0u64; profile.functions.len()];
    let mut seen = Vec::new();
    let mut of_part = |part: &Vec<(StackId, u32)>| {
        for (stack, times) in part {
            let function = profile.location(samples.stacks[stack.index()].leaf).function();
            let sum = &mut sums[function.index()];
            if *sum == 0 {
                seen.push(function);
            }
            *sum += u64::from(*times);
        }
        let sum = |function: FunctionId| (function, std::mem::take(&mut sums[function.index()]));
        seen.drain(..).map(sum).collect()
    };
    lane.parts.iter().map(&mut of_part).collect()
}

/// Functions that go by one name in one module are numbered by their addresses.
fn keys(profile: &Profile, labels: &[Label], modules: &[(String, String)]) -> Vec<Key> {
    let common: Vec<Option<&str>> = profile
        .modules
        .iter()
        .map(|module| {
            let pair = modules.iter().find(|(old, _)| lwp_symbols::is_called(module, old))?;
            Some(pair.1.rsplit('/').next().unwrap_or_default())
        })
        .collect();
    let mut taken: FxHashMap<Key, u64> = FxHashMap::default();
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|index| profile.functions[*index].address);
    let mut keys = vec![Key::default(); labels.len()];
    for index in order {
        let function = &profile.functions[index];
        let module = common[function.module.index()].unwrap_or(&labels[index].module);
        let name = stable_function_name(profile, FunctionId(index as u32));
        // An address says something in its own build only.
        let build = match function.origin {
            Origin::Unknown => profile.modules[function.module.index()].build_id_hex(),
            _ => String::new(),
        };
        let key = match build.is_empty() {
            true => Key::of(&[&name, module]),
            false => Key::of(&[&name, module, &build]),
        };
        let before = taken.entry(key).or_default();
        keys[index] = key.numbered(*before);
        *before += 1;
    }
    keys
}

/// The lanes of a course, whose threads and stacks have the numbers that `found` says.
pub fn lanes(course: Course, recording: &Recording, found: &InSamples) -> Vec<Lane> {
    let lane = |lane: lwp_profile::Lane| {
        let interval = recording.events.get(lane.event as usize)?.interval.max(1);
        let stack = |(frame, times): (u32, u32)| Some((found.stack(frame)?, times));
        // Each part in the order of its stacks, as samples are.
        let part = |part: lwp_profile::Part| {
            let mut stacks: Vec<(StackId, u32)> = part.into_iter().filter_map(stack).collect();
            stacks.sort_unstable();
            stacks
        };
        Some(Lane {
            thread: *found.threads.get(&lane.serial)?,
            event: lane.event as usize,
            width: lane.width.saturating_mul(interval),
            total: lane.samples.saturating_mul(interval),
            parts: lane.parts.into_iter().map(part).collect(),
        })
    };
    course.lanes.into_iter().filter_map(lane).collect()
}

/// Returns a recording's facts about its run, as names and values.
pub fn facts(recording: &Recording) -> Vec<(String, String)> {
    let mut facts: BTreeMap<&str, String> = BTreeMap::new();
    for (key, value) in &recording.info {
        let seconds = (key == "started").then(|| value.parse::<i64>().ok()).flatten();
        let value = seconds.map_or_else(|| value.clone(), crate::clock::utc);
        if !value.is_empty() {
            facts.insert(key, value);
        }
    }
    let order = ["command", "directory", "started", "host", "cpu", "kernel", "container", "lwp"];
    let named = order.iter().filter_map(|key| Some(((*key).to_owned(), facts.remove(key)?)));
    let mut out: Vec<(String, String)> = named.collect();
    out.extend(facts.into_iter().map(|(key, value)| (key.to_owned(), value)));
    out
}

//! perf's recording, as `perf report -i` and `perf script -i` read it.
//!
//! One sample stands for all executions of an instruction by a thread; its period is their number.
//! Viewers want time: each event that a sample stands for takes a nanosecond of its thread.
//! Addresses and mappings are those of the run, so perf finds the symbols by itself.
//!
//! The layout is the kernel's `perf_event.h` and `perf.data-file-format.txt`: a header, attributes
//! with their ids, data records, then feature sections.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use lwp_profile::{BlockEnd, Event, Mapping, Profile, RecordedModule, Recording};

use crate::perf_names::Names;

const ATTR_BYTES: u64 = 128;
const HEADER_BYTES: u64 = 104;
/// IP, TID, TIME, PERIOD, IDENTIFIER; with CALLCHAIN where stacks were recorded.
const SAMPLE_TYPE: u64 = 0x1 | 0x2 | 0x4 | 0x100 | 0x1_0000;
const CALLCHAIN: u64 = 0x20;
const BRANCH_STACK: u64 = 0x800;
/// PERF_SAMPLE_BRANCH_USER and PERF_SAMPLE_BRANCH_ANY.
const BRANCHES_OF_USER: u64 = 0x1 | 0x8;
const TYPE_HARDWARE: u32 = 0;
const TYPE_RAW: u32 = 4;
/// `sample_id_all` is off; `mmap`, `comm`, `task`, `mmap2`, `exclude_kernel` and `exclude_hv` on.
const ATTR_FLAGS: u64 = 1 << 5 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 13 | 1 << 23;
const RECORD_COMM: u32 = 3;
const RECORD_SAMPLE: u32 = 9;
const RECORD_MMAP2: u32 = 10;
const RECORD_FINISHED_INIT: u32 = 82;
const USER: u16 = 2;
const FEATURE_BUILD_ID: usize = 2;
const FEATURE_HOSTNAME: usize = 3;
const FEATURE_CMDLINE: usize = 11;
const FEATURE_EVENT_DESC: usize = 12;
const FEATURE_BRANCH_STACK: usize = 15;

/// A file with the names of interpreted functions.
#[derive(Clone, Copy, Debug)]
pub struct NamesFile<'a> {
    /// Its absolute path.
    pub path: &'a str,
    /// Its content.
    pub names: &'a Names,
}

/// The recording as perf would have written it, with names of interpreted functions where there is
/// a file for them.
pub fn encode(recording: &Recording, profile: &Profile, names: Option<&NamesFile<'_>>) -> Vec<u8> {
    let events = &profile.events;
    let stacks = !recording.samples.is_empty();
    let attrs: Vec<Vec<u8>> = (0..events.len()).map(|index| attr(events, index, stacks)).collect();
    let data = records(recording, profile, names);
    file(&attrs, data, features(recording, events, &attrs))
}

/// Branch stacks of a module, each with its newest branch first, as from and to. Each stands for
/// `period` taken branches.
pub(crate) fn encode_branches(
    recording: &Recording,
    module: Option<&RecordedModule>,
    stacks: &[Vec<(u64, u64)>],
    period: u64,
) -> Vec<u8> {
    let pid = module.map_or(0, |module| module.pid);
    let mut data = Vec::new();
    comm(&mut data, (pid, pid), recording.info("command"));
    if let Some(module) = module {
        mappings(&mut data, pid, module);
    }
    for (number, stack) in (1u64..).zip(stacks) {
        let mut body = Vec::with_capacity(64 + 24 * stack.len());
        long(&mut body, id(0));
        long(&mut body, stack.first().map_or(0, |(_, to)| *to));
        word(&mut body, pid as u32);
        word(&mut body, pid as u32);
        long(&mut body, number.saturating_mul(period)); // time
        long(&mut body, period);
        long(&mut body, stack.len() as u64);
        for (from, to) in stack {
            long(&mut body, *from);
            long(&mut body, *to);
            long(&mut body, 0); // neither predicted nor mispredicted: not known
        }
        record(&mut data, RECORD_SAMPLE, USER, body);
    }
    let event =
        Event { name: "branches-taken".to_owned(), interval: Some(period), modelled: false };
    let mut attr = attr(std::slice::from_ref(&event), 0, false);
    attr[24..32].copy_from_slice(&(SAMPLE_TYPE | BRANCH_STACK).to_le_bytes());
    attr[72..80].copy_from_slice(&BRANCHES_OF_USER.to_le_bytes());
    let attrs = [attr];
    let mut features = features(recording, &[event], &attrs);
    features.push((FEATURE_BRANCH_STACK, Vec::new()));
    file(&attrs, data, features)
}

/// The whole file: header, attributes with their ids, records, features.
fn file(attrs: &[Vec<u8>], data: Vec<u8>, features: Vec<(usize, Vec<u8>)>) -> Vec<u8> {
    let ids_at = HEADER_BYTES + attrs.len() as u64 * (ATTR_BYTES + 16);
    let data_at = ids_at + 8 * attrs.len() as u64;
    let mut out = Vec::new();
    out.extend(b"PERFILE2");
    long(&mut out, HEADER_BYTES);
    long(&mut out, ATTR_BYTES + 16);
    section(&mut out, HEADER_BYTES, attrs.len() as u64 * (ATTR_BYTES + 16));
    section(&mut out, data_at, data.len() as u64);
    section(&mut out, 0, 0); // event types: no longer used
    let mut bits = [0u64; 4];
    for (feature, _) in &features {
        bits[feature / 64] |= 1 << (feature % 64);
    }
    bits.iter().for_each(|word| long(&mut out, *word));
    for (index, attr) in attrs.iter().enumerate() {
        out.extend(attr);
        section(&mut out, ids_at + 8 * index as u64, 8);
    }
    (0..attrs.len()).for_each(|index| long(&mut out, id(index)));
    out.extend(data);
    let mut at = out.len() as u64 + 16 * features.len() as u64;
    for (_, bytes) in &features {
        section(&mut out, at, bytes.len() as u64);
        at += bytes.len() as u64;
    }
    features.into_iter().for_each(|(_, bytes)| out.extend(bytes));
    out
}

fn long(out: &mut Vec<u8>, value: u64) {
    out.extend(value.to_le_bytes());
}

fn word(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_le_bytes());
}

fn section(out: &mut Vec<u8>, at: u64, len: u64) {
    long(out, at);
    long(out, len);
}

fn id(event: usize) -> u64 {
    event as u64 + 1
}

/// `struct perf_event_attr`.
fn attr(events: &[Event], index: usize, stacks: bool) -> Vec<u8> {
    let (kind, config) = match events[index].name.as_str() {
        "instructions" => (TYPE_HARDWARE, 1),
        "branches" => (TYPE_HARDWARE, 4),
        // perf shows the name from the event description.
        _ => (TYPE_RAW, index as u64),
    };
    let mut out = Vec::with_capacity(ATTR_BYTES as usize);
    word(&mut out, kind);
    word(&mut out, ATTR_BYTES as u32);
    long(&mut out, config);
    long(&mut out, events[index].interval.unwrap_or(1));
    long(&mut out, SAMPLE_TYPE | if stacks { CALLCHAIN } else { 0 });
    long(&mut out, 0); // read_format
    long(&mut out, ATTR_FLAGS);
    out.resize(ATTR_BYTES as usize, 0);
    out
}

/// A record: type, misc, length, content padded to eight bytes.
fn record(out: &mut Vec<u8>, kind: u32, misc: u16, mut content: Vec<u8>) {
    content.resize(content.len().next_multiple_of(8), 0);
    word(out, kind);
    out.extend(misc.to_le_bytes());
    out.extend((content.len() as u16 + 8).to_le_bytes());
    out.extend(content);
}

/// A string, its end and padding.
fn string(out: &mut Vec<u8>, text: &str) {
    // A record's length has 16 bits; paths are far shorter.
    let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).take(4095).collect();
    out.extend(bytes);
    out.push(0);
}

/// A thread's name.
fn comm(out: &mut Vec<u8>, (pid, tid): (i32, i32), name: &str) {
    let mut comm = Vec::new();
    word(&mut comm, pid as u32);
    word(&mut comm, tid as u32);
    string(&mut comm, &name.chars().take(15).collect::<String>());
    record(out, RECORD_COMM, USER, comm);
}

fn records(recording: &Recording, profile: &Profile, names: Option<&NamesFile<'_>>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut processes: BTreeMap<i32, String> = BTreeMap::new();
    for thread in recording.threads.values() {
        processes.entry(thread.pid).or_insert_with(|| thread.comm.clone());
        comm(&mut out, (thread.pid, thread.tid), &thread.comm);
    }
    for pid in processes.keys() {
        for module in recording.modules.values() {
            mappings(&mut out, *pid, module);
        }
        if let Some(names) = names {
            let start = names.names.start();
            let end = start.saturating_add(names.names.length);
            let mappings_of = vec![Mapping { start, end, offset: 0 }];
            let path = names.path.to_owned();
            let module =
                RecordedModule { path, mappings: mappings_of, ..RecordedModule::default() };
            mappings(&mut out, *pid, &module);
        }
    }
    record(&mut out, RECORD_FINISHED_INIT, 0, Vec::new());
    let mut timed = Timed::default();
    match recording.samples.is_empty() {
        true => executions(&mut timed, recording, profile.events.len()),
        false => samples(&mut timed, recording, names),
    }
    timed.write(&mut out);
    out
}

/// Samples with their times.
#[derive(Default)]
struct Timed {
    /// Nanoseconds that have passed in each thread, by each event.
    clocks: HashMap<(i32, usize), u64>,
    samples: Vec<Sample>,
}

/// A sample, without its stack: that is shared by equal ones.
struct Sample {
    time: u64,
    event: usize,
    address: u64,
    who: (i32, i32),
    period: u64,
    stack: Option<Rc<[u64]>>,
}

impl Timed {
    /// Adds a sample. Its time comes from the samples before it in its thread.
    fn add(&mut self, (pid, tid): (i32, i32), (event, period): (usize, u64), at: &Place) {
        let clock = self.clocks.entry((tid, event)).or_default();
        *clock = clock.saturating_add(period);
        let (time, who) = (*clock, (pid, tid));
        let (address, stack) = (at.address, at.stack.clone());
        self.samples.push(Sample { time, event, address, who, period, stack });
    }

    /// Writes the samples of all threads in the order of their times.
    fn write(mut self, out: &mut Vec<u8>) {
        self.samples.sort_by_key(|sample| sample.time);
        self.samples.iter().for_each(|one| sample(out, one));
    }
}

/// An instruction, and the stack that led there.
struct Place {
    address: u64,
    stack: Option<Rc<[u64]>>,
}

fn mappings(out: &mut Vec<u8>, pid: i32, module: &RecordedModule) {
    for mapping in &module.mappings {
        let mut body = Vec::new();
        word(&mut body, pid as u32);
        word(&mut body, pid as u32);
        long(&mut body, mapping.start);
        long(&mut body, mapping.end.wrapping_sub(mapping.start));
        long(&mut body, mapping.offset);
        word(&mut body, 0); // device, major
        word(&mut body, 0); // device, minor
        long(&mut body, 0); // inode
        long(&mut body, 0); // inode generation
        word(&mut body, 5); // readable, executable
        word(&mut body, 2); // private
        let name = if module.path.is_empty() { "//anon" } else { &module.path };
        string(&mut body, name);
        record(out, RECORD_MMAP2, USER, body);
    }
}

/// Counts of the exact events, by address.
type Sums = BTreeMap<u64, [i64; Event::EXACT.len()]>;

/// A sample for each instruction and event of each thread.
fn executions(out: &mut Timed, recording: &Recording, events: usize) {
    for thread in recording.threads.values() {
        let mut sums = Sums::new();
        for count in &thread.blocks {
            let block = &recording.blocks[&count.block];
            let mut address = block.address;
            let counted = usize::from(block.counted).min(block.lengths.len());
            for (index, len) in block.lengths.iter().take(counted).enumerate() {
                let sum = sums.entry(address).or_default();
                sum[0] = sum[0].wrapping_add(count.runs as i64);
                if index + 1 == block.lengths.len() {
                    branch(sum, block.end, count.runs as i64, count.not_taken as i64);
                }
                address = address.wrapping_add(u64::from(*len));
            }
        }
        for &(block, instructions, times) in &thread.partial {
            let block = &recording.blocks[&block];
            let mut address = block.address;
            for len in block.lengths.iter().take(usize::from(instructions)) {
                let sum = &mut sums.entry(address).or_default()[0];
                *sum = sum.wrapping_add(times as i64);
                address = address.wrapping_add(u64::from(*len));
            }
        }
        for &(_, address, times) in &thread.steps {
            let sum = &mut sums.entry(address).or_default()[0];
            *sum = sum.wrapping_add(times);
        }
        for (address, sums) in sums {
            for (event, &value) in sums.iter().enumerate().take(events) {
                if let Some(period) = u64::try_from(value).ok().filter(|value| *value > 0) {
                    let place = Place { address, stack: None };
                    out.add((thread.pid, thread.tid), (event, period), &place);
                }
            }
        }
    }
}

fn branch(sum: &mut [i64; Event::EXACT.len()], end: BlockEnd, runs: i64, not_taken: i64) {
    let is = |yes: bool| i64::from(yes);
    let conditional = is(end == BlockEnd::Conditional);
    let taken = runs.wrapping_sub(not_taken * conditional);
    let any = is(end != BlockEnd::Other);
    let indirect = is(matches!(end, BlockEnd::IndirectCall | BlockEnd::IndirectJump));
    let call = is(matches!(end, BlockEnd::Call | BlockEnd::IndirectCall));
    let values = [
        0,
        runs * any,
        taken * any,
        runs * conditional,
        taken * conditional,
        runs * call,
        runs * is(end == BlockEnd::Return),
        runs * indirect,
    ];
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum = sum.wrapping_add(value);
    }
}

/// A stack as the kernel gives it: the instruction, then return addresses.
fn return_addresses(recording: &Recording, frame: u32, names: Option<&NamesFile<'_>>) -> Vec<u64> {
    let mut stack = Vec::new();
    let mut next = Some(frame);
    while let Some(frame) = next.and_then(|index| recording.frames.get(index as usize)) {
        // What a frame has is the last byte of the call.
        let address =
            names.map_or(frame.address, |file| file.names.address(frame.module, frame.address));
        stack.push(address.wrapping_add(u64::from(!stack.is_empty())));
        next = frame.caller;
    }
    stack
}

fn samples(out: &mut Timed, recording: &Recording, names: Option<&NamesFile<'_>>) {
    for (recorded, times) in &recording.samples {
        let Some(thread) = recording.threads.get(&recorded.serial) else { continue };
        let stack = return_addresses(recording, recorded.frame, names);
        let Some(&address) = stack.first() else { continue };
        let event = recorded.event as usize;
        let period = recording.events[event].interval.max(1);
        let place = Place { address, stack: Some(stack.into()) };
        // Of spans, one sample has them all.
        let (times, period) = match recording.events[event].is_spans() {
            true => (1, period.saturating_mul(*times)),
            false => (*times, period),
        };
        for _ in 0..times {
            out.add((thread.pid, thread.tid), (event, period), &place);
        }
    }
}

fn sample(out: &mut Vec<u8>, sample: &Sample) {
    /// Marks what follows in a call chain as user space.
    const CONTEXT_USER: u64 = -512i64 as u64;
    let mut body = Vec::with_capacity(48);
    long(&mut body, id(sample.event));
    long(&mut body, sample.address);
    word(&mut body, sample.who.0 as u32);
    word(&mut body, sample.who.1 as u32);
    long(&mut body, sample.time);
    long(&mut body, sample.period);
    if let Some(stack) = &sample.stack {
        let stack = &stack[..stack.len().min(4096)];
        long(&mut body, stack.len() as u64 + 1);
        long(&mut body, CONTEXT_USER);
        stack.iter().for_each(|address| long(&mut body, *address));
    }
    record(out, RECORD_SAMPLE, USER, body);
}

fn features(recording: &Recording, events: &[Event], attrs: &[Vec<u8>]) -> Vec<(usize, Vec<u8>)> {
    let mut build_ids = Vec::new();
    for module in recording.modules.values().filter(|module| !module.build_id.is_empty()) {
        build_id(&mut build_ids, module);
    }
    let mut command = Vec::new();
    let words: Vec<&str> = recording.info("command").split(' ').collect();
    word(&mut command, words.len() as u32);
    words.iter().for_each(|text| header_string(&mut command, text));
    let mut host = Vec::new();
    header_string(&mut host, recording.info("host"));
    let mut descriptions = Vec::new();
    word(&mut descriptions, events.len() as u32);
    word(&mut descriptions, ATTR_BYTES as u32);
    for (index, event) in events.iter().enumerate() {
        descriptions.extend(&attrs[index]);
        word(&mut descriptions, 1);
        header_string(&mut descriptions, &event.name);
        long(&mut descriptions, id(index));
    }
    vec![
        (FEATURE_BUILD_ID, build_ids),
        (FEATURE_HOSTNAME, host),
        (FEATURE_CMDLINE, command),
        (FEATURE_EVENT_DESC, descriptions),
    ]
}

/// A string in a feature: its padded length first.
fn header_string(out: &mut Vec<u8>, text: &str) {
    let mut bytes = Vec::new();
    string(&mut bytes, text);
    bytes.resize(bytes.len().next_multiple_of(64), 0);
    word(out, bytes.len() as u32);
    out.extend(bytes);
}

/// `struct build_id_event`: header, pid, 20 bytes of id with its length, file name.
fn build_id(out: &mut Vec<u8>, module: &RecordedModule) {
    /// The length of the id is given.
    const BUILD_ID_SIZE: u16 = 1 << 15;
    let mut body = Vec::new();
    word(&mut body, u32::MAX); // any process
    let mut id = module.build_id.clone();
    id.truncate(20);
    let len = id.len() as u8;
    id.resize(20, 0);
    body.extend(id);
    body.extend([len, 0, 0, 0]);
    string(&mut body, &module.path);
    body.resize(body.len().next_multiple_of(8), 0);
    word(out, 0);
    out.extend((USER | BUILD_ID_SIZE).to_le_bytes());
    out.extend((body.len() as u16 + 8).to_le_bytes());
    out.extend(body);
}

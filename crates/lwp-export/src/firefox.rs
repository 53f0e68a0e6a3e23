//! Firefox Profiler's processed format, which profiler.firefox.com loads from a local file.
//!
//! The viewer wants time; samples are placed one microsecond apart and weigh what was counted.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fxprof_processed_profile::{
    CategoryColor, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile as Document,
    ReferenceTimestamp, SamplingInterval, ThreadHandle, Timestamp, WeightType,
};
use lwp_profile::{Inferred, Profile, Recording};
use lwp_symbols::FunctionNames;
use lwp_terminal::escape;

use crate::threads::by_thread;
use crate::{estimate, one_line};

/// Most samples that one stack is written as.
const MOST_SAMPLES: u64 = 10_000;

/// The stacks of one event as JSON: each process with its threads.
pub fn render(recording: &Recording, profile: &Profile, event: usize) -> Vec<u8> {
    let threads = by_thread(profile, event);
    let seconds: u64 = recording.info("started").parse().unwrap_or(0);
    let started: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds);
    let interval = SamplingInterval::from_nanos(1000);
    let mut name = one_line(&profile.command);
    if threads.iter().any(|thread| !thread.stacks.recorded) {
        name.push_str(&format!(" ({})", estimate(profile)));
    }
    let mut document = Document::new(&name, ReferenceTimestamp::from(started), interval);
    let zero = Timestamp::from_nanos_since_reference(0);
    let category = document.add_category("Program", CategoryColor::Blue).into();
    let names = FunctionNames::new(profile, true);
    let event_name = profile.events.get(event).map_or("events", |event| event.name.as_str());
    let mut processes = BTreeMap::new();
    for one in &threads {
        let thread = &profile.threads[one.id.index()];
        let (pid, tid) = (thread.pid.unsigned_abs(), thread.tid.unsigned_abs());
        // The first process has the profile's title, others the name of their first thread.
        let title = if processes.is_empty() { name.clone() } else { one_line(&thread.comm) };
        let process =
            *processes.entry(pid).or_insert_with(|| document.add_process(&title, pid, zero));
        let handle = document.add_thread(process, tid, zero, pid == tid);
        document.set_thread_name(handle, &format!("{}: {event_name}", one.title));
        document.set_thread_samples_weight_type(handle, WeightType::Samples);
        let place = Place { thread: handle, category, event };
        add_stacks(&mut document, &names, &place, &one.stacks);
    }
    if threads.is_empty() {
        // The viewer refuses a profile without threads.
        let process = document.add_process(&name, 1, zero);
        document.add_thread(process, 1, zero, true);
    }
    escape::json(&serde_json::to_string(&document).unwrap_or_default()).into_bytes()
}

/// The place of samples in a document.
struct Place {
    thread: ThreadHandle,
    category: CategoryPairHandle,
    event: usize,
}

fn add_stacks(document: &mut Document, names: &FunctionNames<'_>, to: &Place, stacks: &Inferred) {
    let mut at = 0;
    for stack in &stacks.stacks {
        let value = stack.values.get(to.event);
        if value == 0 {
            continue;
        }
        let mut handle = None;
        for id in &stack.functions {
            let text = document.intern_string(names.get(*id));
            let frame = FrameInfo {
                frame: Frame::Label(text),
                category_pair: to.category,
                flags: FrameFlags::empty(),
            };
            let frame = document.intern_frame(to.thread, frame);
            handle = Some(document.intern_stack(to.thread, handle, frame));
        }
        // A sample's weight has 32 bits; what is more stands in several samples.
        // A count that would need more samples than anybody has is cut off.
        let mut left = value.min(MOST_SAMPLES * i32::MAX as u64);
        while left > 0 {
            let weight = i32::try_from(left).unwrap_or(i32::MAX);
            let time = Timestamp::from_nanos_since_reference(at);
            document.add_sample(to.thread, time, handle, CpuDelta::ZERO, weight);
            left -= u64::from(weight.unsigned_abs());
            at += 1000;
        }
    }
}

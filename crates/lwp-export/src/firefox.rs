//! Firefox Profiler's processed format, which profiler.firefox.com loads from a local file.
//!
//! The viewer wants time; samples are placed one microsecond apart and weigh what was counted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fxprof_processed_profile::{
    CategoryColor, CpuDelta, Frame, FrameFlags, FrameInfo, Profile as Document, ReferenceTimestamp,
    SamplingInterval, Timestamp, WeightType,
};
use lwp_profile::{Inferred, Profile, Recording};
use lwp_symbols::FunctionNames;
use lwp_terminal::escape;

use crate::{INFERRED, one_line};

/// Most samples that one stack is written as.
const MOST_SAMPLES: u64 = 10_000;

/// The stacks of one event as JSON.
pub fn render(recording: &Recording, profile: &Profile, event: usize) -> Vec<u8> {
    let inferred = Inferred::of(profile, event);
    let seconds: u64 = recording.info("started").parse().unwrap_or(0);
    let started: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds);
    let interval = SamplingInterval::from_nanos(1000);
    let mut name = one_line(&profile.command);
    if !inferred.recorded {
        name.push_str(&format!(" ({INFERRED})"));
    }
    let mut document = Document::new(&name, ReferenceTimestamp::from(started), interval);
    let zero = Timestamp::from_nanos_since_reference(0);
    let pid = profile.threads.first().map_or(1, |thread| thread.pid.unsigned_abs());
    let process = document.add_process(&name, pid, zero);
    let thread = document.add_thread(process, pid, zero, true);
    let event_name = profile.events.get(event).map_or("events", |event| event.name.as_str());
    document.set_thread_name(thread, event_name);
    document.set_thread_samples_weight_type(thread, WeightType::Samples);
    let category = document.add_category("Program", CategoryColor::Blue).into();
    let names = FunctionNames::new(profile, true);
    let mut at = 0;
    for stack in &inferred.stacks {
        let value = stack.values.get(event);
        if value == 0 {
            continue;
        }
        let mut handle = None;
        for id in &stack.functions {
            let text = document.intern_string(names.get(*id));
            let frame = FrameInfo {
                frame: Frame::Label(text),
                category_pair: category,
                flags: FrameFlags::empty(),
            };
            let frame = document.intern_frame(thread, frame);
            handle = Some(document.intern_stack(thread, handle, frame));
        }
        // A sample's weight has 32 bits; what is more stands in several samples.
        // A count that would need more samples than anybody has is cut off.
        let mut left = value.min(MOST_SAMPLES * i32::MAX as u64);
        while left > 0 {
            let weight = i32::try_from(left).unwrap_or(i32::MAX);
            let time = Timestamp::from_nanos_since_reference(at);
            document.add_sample(thread, time, handle, CpuDelta::ZERO, weight);
            left -= u64::from(weight.unsigned_abs());
            at += 1000;
        }
    }
    escape::json(&serde_json::to_string(&document).unwrap_or_default()).into_bytes()
}

//! pprof's `profile.proto`, compressed with gzip.
//!
//! Flat counts of an exact profile are exact by function, line and address. Its stacks are those of
//! measured contexts, or inferred, which a comment says. Recorded stacks are written as they are.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use lwp_profile::{Event, Located, LocatedStack, Profile, Recording};
use lwp_symbols::function_name;
use prost::Message;

use crate::located_stacks;
use crate::strings::Strings;

/// Messages of `profile.proto`, field by field.
pub mod proto {
    #![allow(
        missing_docs,
        clippy::doc_markdown,
        reason = "the fields are documented in pprof's profile.proto"
    )]

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub time_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub comment: Vec<i64>,
        #[prost(int64, tag = "14")]
        pub default_sample_type: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub r#type: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub str: i64,
        #[prost(int64, tag = "3")]
        pub num: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub memory_limit: u64,
        #[prost(uint64, tag = "4")]
        pub file_offset: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(int64, tag = "6")]
        pub build_id: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
        #[prost(bool, tag = "8")]
        pub has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub has_line_numbers: bool,
        #[prost(bool, tag = "10")]
        pub has_inline_frames: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub address: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
        #[prost(int64, tag = "5")]
        pub start_line: i64,
    }
}

/// The profile, encoded and compressed.
pub fn encode(recording: &Recording, profile: &Profile) -> Vec<u8> {
    compressed(&message(recording, profile))
}

/// The profile of one event as Go's compiler reads it, which wants a type of samples by the name
/// that Go's own CPU profiles have.
pub fn encode_for_go(recording: &Recording, profile: &Profile, event: usize) -> Vec<u8> {
    let mut message = message(recording, profile);
    let first = message.string_table.len() as i64;
    message.string_table.extend(["samples".to_owned(), "count".to_owned()]);
    let samples = proto::ValueType { r#type: first, unit: first + 1 };
    message.sample_type = vec![samples.clone()];
    message.default_sample_type = samples.r#type;
    message.period_type = Some(samples);
    for sample in &mut message.sample {
        sample.value = vec![sample.value.get(event).copied().unwrap_or(0)];
    }
    message.sample.retain(|sample| sample.value[0] > 0);
    compressed(&message)
}

fn compressed(message: &proto::Profile) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = gzip.write_all(&bytes);
    gzip.finish().unwrap_or_default()
}

fn message(recording: &Recording, profile: &Profile) -> proto::Profile {
    let mut strings = Strings::new();
    let seconds: i64 = recording.info("started").parse().unwrap_or(0);
    let sample_type: Vec<proto::ValueType> =
        profile.events.iter().map(|event| value_type(event, &mut strings)).collect();
    let (key_thread, key_pid, key_tid) =
        (strings.add("thread"), strings.add("pid"), strings.add("tid"));
    let located = Located::of(profile, 0);
    let mut one = |stack: &LocatedStack| {
        let thread = &profile.threads[stack.thread.index()];
        let label = |key, num: i32| proto::Label { key, str: 0, num: num.into() };
        let name = strings.add(&thread.comm);
        proto::Sample {
            location_id: stack.locations.iter().map(|id| u64::from(id.0) + 1).collect(),
            value: stack.values.0.iter().map(|value| clamp(*value)).collect(),
            label: vec![
                proto::Label { key: key_thread, str: name, num: 0 },
                label(key_pid, thread.pid),
                label(key_tid, thread.tid),
            ],
        }
    };
    let sample = located.stacks.iter().map(&mut one).collect();
    let mapping = mappings(profile, &mut strings);
    let location = locations(profile);
    let function = functions(profile, &mut strings);
    let mut comment = vec![strings.add(&format!("lwp: {}", profile.command))];
    if !located.recorded {
        comment.push(strings.add(located_stacks(profile)));
    }
    proto::Profile {
        default_sample_type: sample_type.first().map_or(0, |first| first.r#type),
        period_type: sample_type.first().cloned(),
        period: profile.events.first().and_then(|event| event.interval).map_or(1, clamp),
        sample_type,
        sample,
        mapping,
        location,
        function,
        time_nanos: seconds.saturating_mul(1_000_000_000),
        comment,
        string_table: strings.all,
    }
}

fn value_type(event: &Event, strings: &mut Strings) -> proto::ValueType {
    proto::ValueType { r#type: strings.add(&event.name), unit: strings.add(event.unit()) }
}

fn mappings(profile: &Profile, strings: &mut Strings) -> Vec<proto::Mapping> {
    let mut out: Vec<proto::Mapping> = profile
        .modules
        .iter()
        .enumerate()
        .map(|(index, module)| proto::Mapping {
            id: index as u64 + 1,
            memory_start: u64::MAX,
            filename: strings.add(&module.path),
            build_id: strings.add(&module.build_id_hex()),
            has_functions: true,
            has_filenames: true,
            has_line_numbers: true,
            has_inline_frames: true,
            ..proto::Mapping::default()
        })
        .collect();
    for location in &profile.locations {
        let mapping = &mut out[location.module.index()];
        let page = location.address & !0xfff;
        mapping.memory_start = mapping.memory_start.min(page);
        mapping.memory_limit = mapping.memory_limit.max(page.saturating_add(0x1000));
    }
    for mapping in &mut out {
        mapping.memory_start = mapping.memory_start.min(mapping.memory_limit);
        mapping.file_offset = mapping.memory_start;
    }
    out
}

fn locations(profile: &Profile) -> Vec<proto::Location> {
    let one = |(index, location): (usize, &lwp_profile::Location)| proto::Location {
        id: index as u64 + 1,
        mapping_id: u64::from(location.module.0) + 1,
        address: location.address,
        line: location
            .frames
            .iter()
            .map(|frame| proto::Line {
                function_id: u64::from(frame.function.0) + 1,
                line: frame.line.into(),
            })
            .collect(),
    };
    profile.locations.iter().enumerate().map(one).collect()
}

fn functions(profile: &Profile, strings: &mut Strings) -> Vec<proto::Function> {
    let files = files_in_lines(profile);
    let mut out = Vec::with_capacity(profile.functions.len());
    for (index, function) in profile.functions.iter().enumerate() {
        let id = lwp_profile::FunctionId(index as u32);
        let file = match function.file.as_str() {
            // Where an inlined function stands is known by its lines only.
            "" => &*files[index],
            file => file,
        };
        out.push(proto::Function {
            id: index as u64 + 1,
            name: strings.add(&function_name(profile, id, true)),
            system_name: strings.add(&function.name),
            filename: strings.add(file),
            start_line: function.line.into(),
        });
    }
    out
}

/// The first file in which each function has a line.
pub(crate) fn files_in_lines(profile: &Profile) -> Vec<Arc<str>> {
    let mut files: Vec<Arc<str>> = vec![Arc::default(); profile.functions.len()];
    for frame in profile.locations.iter().flat_map(|location| location.frames.iter()) {
        let file = &mut files[frame.function.index()];
        if file.is_empty() {
            *file = Arc::clone(&frame.file);
        }
    }
    files
}

pub(crate) fn clamp(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

//! OpenTelemetry's profiles signal: a `ProfilesData` message, one profile an event. Experimental,
//! as the signal is: the schema is `opentelemetry.proto.profiles.v1development` of
//! opentelemetry-proto 1.9 and later.
//!
//! Every dictionary starts with an empty entry, because an index of zero stands for nothing. Stacks
//! of an exact profile are inferred, which its attribute `lwp.stacks` says.

use std::collections::HashMap;
use std::sync::Arc;

use lwp_profile::{
    Event, FunctionId, Located, LocatedStack, LocationId, Profile, Recording, Thread,
};
use lwp_symbols::function_name;
use prost::Message;

use crate::pprof::{clamp, files_in_lines};
use crate::strings::Strings;
use proto::any_value::Value;

/// Messages of `profiles.proto`, `common.proto` and `resource.proto`, as far as they are used.
pub mod proto {
    #![allow(
        missing_docs,
        clippy::doc_markdown,
        reason = "the fields are documented in OpenTelemetry's profiles.proto"
    )]

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ProfilesData {
        #[prost(message, repeated, tag = "1")]
        pub resource_profiles: Vec<ResourceProfiles>,
        #[prost(message, optional, tag = "2")]
        pub dictionary: Option<ProfilesDictionary>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ProfilesDictionary {
        #[prost(message, repeated, tag = "1")]
        pub mapping_table: Vec<Mapping>,
        #[prost(message, repeated, tag = "2")]
        pub location_table: Vec<Location>,
        #[prost(message, repeated, tag = "3")]
        pub function_table: Vec<Function>,
        #[prost(message, repeated, tag = "4")]
        pub link_table: Vec<Link>,
        #[prost(string, repeated, tag = "5")]
        pub string_table: Vec<String>,
        #[prost(message, repeated, tag = "6")]
        pub attribute_table: Vec<KeyValueAndUnit>,
        #[prost(message, repeated, tag = "7")]
        pub stack_table: Vec<Stack>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ResourceProfiles {
        #[prost(message, optional, tag = "1")]
        pub resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub scope_profiles: Vec<ScopeProfiles>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ScopeProfiles {
        #[prost(message, optional, tag = "1")]
        pub scope: Option<InstrumentationScope>,
        #[prost(message, repeated, tag = "2")]
        pub profiles: Vec<Profile>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct InstrumentationScope {
        #[prost(string, tag = "1")]
        pub name: String,
        #[prost(string, tag = "2")]
        pub version: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Profile {
        #[prost(message, optional, tag = "1")]
        pub sample_type: Option<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub samples: Vec<Sample>,
        #[prost(fixed64, tag = "3")]
        pub time_unix_nano: u64,
        #[prost(message, optional, tag = "5")]
        pub period_type: Option<ValueType>,
        #[prost(int64, tag = "6")]
        pub period: i64,
        #[prost(int32, repeated, tag = "11")]
        pub attribute_indices: Vec<i32>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct ValueType {
        #[prost(int32, tag = "1")]
        pub type_strindex: i32,
        #[prost(int32, tag = "2")]
        pub unit_strindex: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(int32, tag = "1")]
        pub stack_index: i32,
        #[prost(int32, repeated, tag = "2")]
        pub attribute_indices: Vec<i32>,
        #[prost(int64, repeated, tag = "4")]
        pub values: Vec<i64>,
        #[prost(fixed64, repeated, tag = "5")]
        pub timestamps_unix_nano: Vec<u64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub memory_start: u64,
        #[prost(uint64, tag = "2")]
        pub memory_limit: u64,
        #[prost(uint64, tag = "3")]
        pub file_offset: u64,
        #[prost(int32, tag = "4")]
        pub filename_strindex: i32,
        #[prost(int32, repeated, tag = "5")]
        pub attribute_indices: Vec<i32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Stack {
        #[prost(int32, repeated, tag = "1")]
        pub location_indices: Vec<i32>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(int32, tag = "1")]
        pub mapping_index: i32,
        #[prost(uint64, tag = "2")]
        pub address: u64,
        #[prost(message, repeated, tag = "3")]
        pub lines: Vec<Line>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Line {
        #[prost(int32, tag = "1")]
        pub function_index: i32,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Function {
        #[prost(int32, tag = "1")]
        pub name_strindex: i32,
        #[prost(int32, tag = "2")]
        pub system_name_strindex: i32,
        #[prost(int32, tag = "3")]
        pub filename_strindex: i32,
        #[prost(int64, tag = "4")]
        pub start_line: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Link {
        #[prost(bytes = "vec", tag = "1")]
        pub trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub span_id: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct KeyValueAndUnit {
        #[prost(int32, tag = "1")]
        pub key_strindex: i32,
        #[prost(message, optional, tag = "2")]
        pub value: Option<AnyValue>,
        #[prost(int32, tag = "3")]
        pub unit_strindex: i32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct KeyValue {
        #[prost(string, tag = "1")]
        pub key: String,
        #[prost(message, optional, tag = "2")]
        pub value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct AnyValue {
        #[prost(oneof = "any_value::Value", tags = "1, 2, 3")]
        pub value: Option<any_value::Value>,
    }

    pub mod any_value {
        #[derive(Clone, PartialEq, prost::Oneof)]
        pub enum Value {
            #[prost(string, tag = "1")]
            String(String),
            #[prost(bool, tag = "2")]
            Bool(bool),
            #[prost(int64, tag = "3")]
            Int(i64),
        }
    }
}

/// The message.
pub fn encode(recording: &Recording, profile: &Profile) -> Vec<u8> {
    let mut tables = Tables::new();
    let mapping_table = mappings(profile, &mut tables);
    let function_table = functions(profile, &mut tables);
    let located = Located::of(profile, 0);
    let (stack_table, stacks) = stacks(&located);
    let facts = Facts { recording, profile, located: &located, stacks: &stacks };
    let profiles = profiles(&facts, &mut tables);
    let dictionary = proto::ProfilesDictionary {
        mapping_table,
        location_table: locations(profile),
        function_table,
        link_table: vec![proto::Link::default()],
        stack_table,
        string_table: tables.strings.all,
        attribute_table: tables.attributes,
    };
    let scope = proto::InstrumentationScope {
        name: "lwp".into(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let of_scope = proto::ScopeProfiles { scope: Some(scope), profiles };
    let resource = Some(resource(recording, profile));
    let of_resource = proto::ResourceProfiles { resource, scope_profiles: vec![of_scope] };
    let data =
        proto::ProfilesData { resource_profiles: vec![of_resource], dictionary: Some(dictionary) };
    data.encode_to_vec()
}

/// The dictionaries that grow while the rest is made.
struct Tables {
    strings: Strings,
    attributes: Vec<proto::KeyValueAndUnit>,
    numbers: HashMap<(i32, String), i32>,
}

impl Tables {
    fn new() -> Self {
        Self {
            strings: Strings::new(),
            attributes: vec![proto::KeyValueAndUnit::default()],
            numbers: HashMap::new(),
        }
    }

    fn string(&mut self, text: &str) -> i32 {
        i32::try_from(self.strings.add(text)).unwrap_or(0)
    }

    fn attribute(&mut self, key: &str, value: Value) -> i32 {
        let key_strindex = self.string(key);
        let known = (key_strindex, format!("{value:?}"));
        if let Some(&number) = self.numbers.get(&known) {
            return number;
        }
        let number = self.attributes.len() as i32;
        let value = Some(proto::AnyValue { value: Some(value) });
        self.attributes.push(proto::KeyValueAndUnit { key_strindex, value, unit_strindex: 0 });
        self.numbers.insert(known, number);
        number
    }
}

/// The number of what has this index, where zero stands for nothing.
fn number(index: u32) -> i32 {
    i32::try_from(u64::from(index) + 1).unwrap_or(0)
}

fn resource(recording: &Recording, profile: &Profile) -> proto::Resource {
    let text = |key: &str, text: &str| proto::KeyValue {
        key: key.into(),
        value: Some(proto::AnyValue { value: Some(Value::String(text.into())) }),
    };
    let attributes = [
        ("process.command_line", profile.command.as_str()),
        ("host.name", recording.info("host")),
        ("container.id", recording.info("container")),
    ];
    let known = attributes.into_iter().filter(|(_, value)| !value.is_empty());
    proto::Resource { attributes: known.map(|(key, value)| text(key, value)).collect() }
}

/// Sources of the samples.
struct Facts<'a> {
    recording: &'a Recording,
    profile: &'a Profile,
    located: &'a Located,
    /// The number of each stack in the table.
    stacks: &'a [i32],
}

fn profiles(facts: &Facts<'_>, tables: &mut Tables) -> Vec<proto::Profile> {
    let Facts { recording, profile, located, stacks } = facts;
    let seconds: u64 = recording.info("started").parse().unwrap_or(0);
    let threads: Vec<Vec<i32>> =
        profile.threads.iter().map(|thread| thread_attributes(thread, tables)).collect();
    let one = |(index, event): (usize, &Event)| {
        let kind = proto::ValueType {
            type_strindex: tables.string(&event.name),
            unit_strindex: tables.string(event.unit()),
        };
        let origin = match located.recorded {
            true => "recorded",
            false if profile.measures(index) => "measured",
            false if profile.has_contexts() => "shared",
            false => "inferred",
        };
        let facts = [
            ("lwp.exact", Value::Bool(event.interval.is_none())),
            ("lwp.modelled", Value::Bool(event.modelled)),
            ("lwp.stacks", Value::String(origin.into())),
        ];
        let all = located.stacks.iter().zip(*stacks);
        let counted = all.filter(|(stack, _)| stack.values.get(index) > 0);
        let sample = |(stack, number): (&LocatedStack, &i32)| proto::Sample {
            stack_index: *number,
            attribute_indices: threads[stack.thread.index()].clone(),
            values: vec![clamp(stack.values.get(index))],
            timestamps_unix_nano: Vec::new(),
        };
        proto::Profile {
            sample_type: Some(kind),
            samples: counted.map(sample).collect(),
            time_unix_nano: seconds.saturating_mul(1_000_000_000),
            period_type: Some(kind),
            period: event.interval.map_or(1, clamp),
            attribute_indices: facts.map(|(key, value)| tables.attribute(key, value)).to_vec(),
        }
    };
    profile.events.iter().enumerate().map(one).collect()
}

fn thread_attributes(thread: &Thread, tables: &mut Tables) -> Vec<i32> {
    vec![
        tables.attribute("thread.name", Value::String(thread.comm.clone())),
        tables.attribute("process.pid", Value::Int(thread.pid.into())),
        tables.attribute("thread.id", Value::Int(thread.tid.into())),
    ]
}

fn mappings(profile: &Profile, tables: &mut Tables) -> Vec<proto::Mapping> {
    let mut ends: Vec<(u64, u64)> = vec![(u64::MAX, 0); profile.modules.len()];
    for location in &profile.locations {
        let (start, end) = &mut ends[location.module.index()];
        let page = location.address & !0xfff;
        *start = page.min(*start);
        *end = page.saturating_add(0x1000).max(*end);
    }
    let mut table = vec![proto::Mapping::default()];
    for (module, (start, end)) in profile.modules.iter().zip(ends) {
        let start = start.min(end);
        let id = module.build_id_hex();
        let build = (!id.is_empty())
            .then(|| tables.attribute("process.executable.build_id.gnu", Value::String(id)));
        table.push(proto::Mapping {
            memory_start: start,
            memory_limit: end,
            file_offset: start,
            filename_strindex: tables.string(&module.path),
            attribute_indices: build.into_iter().collect(),
        });
    }
    table
}

fn functions(profile: &Profile, tables: &mut Tables) -> Vec<proto::Function> {
    let files = files_in_lines(profile);
    let mut table = vec![proto::Function::default()];
    for (index, function) in profile.functions.iter().enumerate() {
        let file = match function.file.as_str() {
            "" => &*files[index],
            file => file,
        };
        let name = function_name(profile, FunctionId(index as u32), true);
        table.push(proto::Function {
            name_strindex: tables.string(&name),
            system_name_strindex: tables.string(&function.name),
            filename_strindex: tables.string(file),
            start_line: function.line.into(),
        });
    }
    table
}

fn locations(profile: &Profile) -> Vec<proto::Location> {
    let line = |frame: &lwp_profile::Frame| proto::Line {
        function_index: number(frame.function.0),
        line: frame.line.into(),
    };
    let location = |location: &lwp_profile::Location| proto::Location {
        mapping_index: number(location.module.0),
        address: location.address,
        lines: location.frames.iter().map(line).collect(),
    };
    let none = proto::Location::default();
    std::iter::once(none).chain(profile.locations.iter().map(location)).collect()
}

/// The table of stacks, each once, and the number that each of `located` has in it.
fn stacks(located: &Located) -> (Vec<proto::Stack>, Vec<i32>) {
    let mut table = vec![proto::Stack::default()];
    let mut known: HashMap<&Arc<[LocationId]>, i32> = HashMap::new();
    let mut numbers = Vec::with_capacity(located.stacks.len());
    for stack in &located.stacks {
        let next = table.len() as i32;
        let number = *known.entry(&stack.locations).or_insert_with(|| {
            let location_indices = stack.locations.iter().map(|id| number(id.0)).collect();
            table.push(proto::Stack { location_indices });
            next
        });
        numbers.push(number);
    }
    (table, numbers)
}

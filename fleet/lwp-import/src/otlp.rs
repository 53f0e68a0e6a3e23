//! OpenTelemetry's profiles, `v1development`.

use lwp_export::otlp::proto::any_value::Value;
use lwp_export::otlp::proto::{
    KeyValue, Location, Mapping, Profile, ProfilesData, ProfilesDictionary, ResourceProfiles,
    Sample,
};
use lwp_facts::{Facts, Limits, Run, Source, clean_name};
use lwp_profile::Event;
use prost::Message;

use crate::making::{Making, event_name, page, sampled};
use crate::{Error, Result};

/// Reads a message; each resource is a recording.
pub fn read(bytes: &[u8], run: &Run, limits: &Limits) -> Result<Vec<Facts>> {
    let data = ProfilesData::decode(bytes).map_err(|error| Error::Message(error.to_string()))?;
    let unknown = "no dictionary: another version of OTLP's profiles";
    let tables = data.dictionary.as_ref().ok_or_else(|| Error::Message(unknown.to_owned()))?;
    let tables = Tables(tables);
    let all = data.resource_profiles.iter().map(|one| resource(&tables, one, run, limits));
    all.collect()
}

fn resource(
    tables: &Tables<'_>,
    one: &ResourceProfiles,
    run: &Run,
    limits: &Limits,
) -> Result<Facts> {
    let mut run = Run { source: Source::Otlp, ..run.clone() };
    let attributes = one.resource.iter().flat_map(|resource| &resource.attributes);
    attributes.take(limits.labels).for_each(|pair| attribute(&mut run, pair));
    let profiles: Vec<&Profile> =
        one.scope_profiles.iter().flat_map(|scope| &scope.profiles).collect();
    if let Some(at) =
        profiles.iter().map(|profile| profile.time_unix_nano).filter(|at| *at > 0).min()
    {
        run.started = i64::try_from(at / 1_000_000_000).unwrap_or(0);
    }
    let mut events: Vec<Event> = Vec::new();
    let mut of_profiles = Vec::new();
    for profile in &profiles {
        let event = tables.event(profile)?;
        let known = events.iter().position(|known| known.name == event.name);
        of_profiles.push(known.unwrap_or(events.len()));
        if known.is_none() {
            events.push(event);
        }
    }
    let mut making = Making::new(run, events, limits)?;
    for (profile, event) in profiles.iter().zip(of_profiles) {
        for sample in &profile.samples {
            tables.sample(&mut making, sample, event)?;
        }
    }
    making.finish()
}

/// Takes over an attribute of a resource.
fn attribute(run: &mut Run, pair: &KeyValue) {
    let value = match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::String(text)) => clean_name(text),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Int(value)) => value.to_string(),
        None => return,
    };
    match pair.key.as_str() {
        "service.namespace" if run.project == "default" => run.project = value,
        "service.name" if run.benchmark.is_empty() => run.benchmark = value,
        "host.name" => run.host = value,
        "vcs.ref.head.revision" => run.commit = value,
        "vcs.ref.head.name" => run.branch = value,
        "process.command_line" | "process.command" => run.command = value,
        key => {
            run.labels.insert(clean_name(key), value);
        }
    }
}

/// The tables that all profiles of a message share.
struct Tables<'a>(&'a ProfilesDictionary);

fn at<'a, T>(table: &'a [T], index: i32, what: &str) -> Result<&'a T> {
    let found = usize::try_from(index).ok().and_then(|index| table.get(index));
    found.ok_or_else(|| Error::Message(format!("there is no {what} {index}")))
}

impl Tables<'_> {
    fn text(&self, index: i32) -> Result<&str> {
        at(&self.0.string_table, index, "string").map(String::as_str)
    }

    fn event(&self, profile: &Profile) -> Result<Event> {
        let kind = profile.sample_type.unwrap_or_default();
        let name = event_name(self.text(kind.type_strindex)?, self.text(kind.unit_strindex)?);
        let same = profile.period_type == profile.sample_type;
        Ok(sampled(&name, if same { profile.period } else { 1 }))
    }

    fn build_id(&self, mapping: &Mapping) -> Result<String> {
        for index in &mapping.attribute_indices {
            let attribute = at(&self.0.attribute_table, *index, "attribute")?;
            let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
            if let Some(Value::String(text)) = value
                && self.text(attribute.key_strindex)?.starts_with("process.executable.build_id")
            {
                return Ok(text.clone());
            }
        }
        Ok(String::new())
    }

    /// The functions of a location, outermost first, and its line.
    fn place(
        &self,
        making: &mut Making<'_>,
        location: &Location,
    ) -> Result<(Vec<u32>, (&str, u32))> {
        let mapping = at(&self.0.mapping_table, location.mapping_index, "mapping")?;
        let build_id = self.build_id(mapping)?;
        let module = making.module(self.text(mapping.filename_strindex)?, &build_id);
        let (mut frames, mut place) = (Vec::new(), ("", 0));
        for (depth, line) in location.lines.iter().enumerate() {
            let function = at(&self.0.function_table, line.function_index, "function")?;
            let file = self.text(function.filename_strindex)?;
            let declared = u32::try_from(function.start_line).unwrap_or(0);
            let name = self.text(function.name_strindex)?;
            frames.push(making.function(module, name, (file, declared))?);
            if depth == 0 {
                place = (file, u32::try_from(line.line).unwrap_or(0));
            }
        }
        if frames.is_empty() {
            let name = page(&build_id, location.address);
            frames.push(making.function(module, &name, ("", 0))?);
        }
        frames.reverse();
        Ok((frames, place))
    }

    fn sample(&self, making: &mut Making<'_>, sample: &Sample, event: usize) -> Result<()> {
        let stack = at(&self.0.stack_table, sample.stack_index, "stack")?;
        let mut frames = Vec::new();
        let mut line = None;
        for (depth, index) in stack.location_indices.iter().enumerate().rev() {
            let location = at(&self.0.location_table, *index, "location")?;
            let (some, place) = self.place(making, location)?;
            frames.extend(some);
            if depth == 0 {
                line = Some(place);
            }
        }
        // Without values, every moment at which the stack was seen counts one.
        let value = match sample.values.is_empty() {
            true => sample.timestamps_unix_nano.len() as i64,
            false => sample.values.iter().fold(0_i64, |sum, value| sum.saturating_add(*value)),
        };
        let mut values = vec![0; making.facts.events.len()];
        let negative = || Error::Message("a value is below zero".to_owned());
        values[event] = u64::try_from(value).map_err(|_| negative())?;
        making.sample(&frames, line, &values)
    }
}

//! pprof's protocol buffer.

use std::collections::{BTreeMap, HashMap, HashSet};

use lwp_export::pprof::proto::{Function, Location, Mapping, Profile, Sample, ValueType};
use lwp_facts::{Facts, Limits, Run, Source, clean_name};
use prost::Message;

use crate::making::{Making, event_name, page, sampled};
use crate::{Error, Result};

/// Reads a profile.
pub fn read(bytes: &[u8], run: &Run, limits: &Limits) -> Result<Vec<Facts>> {
    let profile = Profile::decode(bytes).map_err(|error| Error::Message(error.to_string()))?;
    let text = |index: i64| -> Result<&str> {
        let found = usize::try_from(index).ok().and_then(|index| profile.string_table.get(index));
        found
            .map(String::as_str)
            .ok_or_else(|| Error::Message(format!("there is no string {index}")))
    };
    let period_type = profile.period_type.unwrap_or_default();
    let event = |of: &ValueType| {
        let interval = if *of == period_type { profile.period } else { 1 };
        Ok(sampled(&event_name(text(of.r#type)?, text(of.unit)?), interval))
    };
    let events = profile.sample_type.iter().map(event).collect::<Result<Vec<_>>>()?;
    let mut run = Run { source: Source::Pprof, ..run.clone() };
    if profile.time_nanos > 0 {
        run.started = profile.time_nanos / 1_000_000_000;
    }
    constants(&profile.sample, &text, &mut run.labels)?;
    let making = Making::new(run, events, limits)?;
    let mappings = profile.mapping.iter().map(|mapping| (mapping.id, mapping)).collect();
    let functions = profile.function.iter().map(|function| (function.id, function)).collect();
    let mut reading = Reading { making, text: &text, mappings, functions, places: HashMap::new() };
    for location in &profile.location {
        let place = reading.place(location)?;
        reading.places.insert(location.id, place);
    }
    for sample in &profile.sample {
        reading.sample(sample)?;
    }
    Ok(vec![reading.making.finish()?])
}

/// A location: its functions, outermost first, and its line.
struct Place {
    frames: Vec<u32>,
    file: String,
    line: u32,
}

struct Reading<'a, T> {
    making: Making<'a>,
    text: &'a T,
    mappings: HashMap<u64, &'a Mapping>,
    functions: HashMap<u64, &'a Function>,
    places: HashMap<u64, Place>,
}

impl<'a, T: Fn(i64) -> Result<&'a str>> Reading<'a, T> {
    fn place(&mut self, location: &Location) -> Result<Place> {
        let (path, build_id) = match self.mappings.get(&location.mapping_id) {
            Some(mapping) => ((self.text)(mapping.filename)?, (self.text)(mapping.build_id)?),
            None => ("", ""),
        };
        let module = self.making.module(path, build_id);
        let mut place = Place { frames: Vec::new(), file: String::new(), line: 0 };
        for (depth, line) in location.line.iter().enumerate() {
            let missing = || Error::Message(format!("there is no function {}", line.function_id));
            let function = *self.functions.get(&line.function_id).ok_or_else(missing)?;
            let (name, file) = ((self.text)(function.name)?, (self.text)(function.filename)?);
            let declared = u32::try_from(function.start_line).unwrap_or(0);
            place.frames.push(self.making.function(module, name, (file, declared))?);
            if depth == 0 {
                place.file = file.to_owned();
                place.line = u32::try_from(line.line).unwrap_or(0);
            }
        }
        if place.frames.is_empty() {
            let name = page(build_id, location.address);
            place.frames.push(self.making.function(module, &name, ("", 0))?);
        }
        // The message has what was inlined before what it was inlined into.
        place.frames.reverse();
        Ok(place)
    }

    fn sample(&mut self, sample: &Sample) -> Result<()> {
        let events = self.making.facts.events.len();
        if sample.value.len() != events {
            let why =
                format!("a sample has {} values, there are {events} types", sample.value.len());
            return Err(Error::Message(why));
        }
        let value = |value: &i64| u64::try_from(*value);
        let values = sample.value.iter().map(value).collect::<std::result::Result<Vec<u64>, _>>();
        let negative = "a value is below zero: this is a difference and no profile";
        let values = values.map_err(|_| Error::Message(negative.to_owned()))?;
        let mut frames = Vec::new();
        for id in sample.location_id.iter().rev() {
            let missing = || Error::Message(format!("there is no location {id}"));
            frames.extend(&self.places.get(id).ok_or_else(missing)?.frames);
        }
        let leaf = sample.location_id.first().and_then(|id| self.places.get(id));
        let line = leaf.map(|place| (place.file.as_str(), place.line));
        self.making.sample(&frames, line, &values)
    }
}

/// Labels that all samples have alike; others are about samples and are lost.
fn constants<'a>(
    samples: &[Sample],
    text: &impl Fn(i64) -> Result<&'a str>,
    out: &mut BTreeMap<String, String>,
) -> Result<()> {
    let Some(first) = samples.first() else { return Ok(()) };
    let mut alike: HashSet<(i64, i64)> = first.label.iter().map(|l| (l.key, l.str)).collect();
    for sample in samples {
        alike.retain(|pair| sample.label.iter().any(|label| (label.key, label.str) == *pair));
        if alike.is_empty() {
            break;
        }
    }
    for (key, value) in alike.into_iter().filter(|(_, value)| *value != 0).take(64) {
        out.insert(clean_name(text(key)?), clean_name(text(value)?));
    }
    Ok(())
}

//! pprof's protocol buffer.

use std::collections::{BTreeMap, HashMap, HashSet};

use lwp_export::pprof::proto::{Function, Location, Mapping, Profile, Sample, ValueType};
use lwp_facts::{Facts, Limits, Run, Source, clean_name};
use prost::encoding::{decode_varint, encode_varint};
use prost::{DecodeError, Message};

use crate::making::{Making, event_name, page, sampled};
use crate::{Error, Result};

/// The field of a profile that has its texts.
const TEXTS: u64 = 6;

/// A profile. Texts that are no UTF-8, such as paths, have signs in place of what is none.
pub fn decode(bytes: &[u8]) -> Result<Profile, DecodeError> {
    Profile::decode(bytes).or_else(|error| match with_texts(bytes) {
        Some(bytes) => Profile::decode(bytes.as_slice()),
        None => Err(error),
    })
}

/// The message with its texts in UTF-8; `None` if it is no message.
fn with_texts(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len());
    while !bytes.is_empty() {
        let field = bytes;
        let key = decode_varint(&mut bytes).ok()?;
        let length = match key & 7 {
            0 => {
                decode_varint(&mut bytes).ok()?;
                0
            }
            1 => 8,
            2 => usize::try_from(decode_varint(&mut bytes).ok()?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (content, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        match key >> 3 == TEXTS && key & 7 == 2 {
            true => {
                let text = String::from_utf8_lossy(content);
                encode_varint(key, &mut out);
                encode_varint(text.len() as u64, &mut out);
                out.extend_from_slice(text.as_bytes());
            }
            false => out.extend_from_slice(&field[..field.len() - rest.len()]),
        }
    }
    Some(out)
}

/// Reads a profile.
pub fn read(bytes: &[u8], run: &Run, limits: &Limits) -> Result<Vec<Facts>> {
    let profile = decode(bytes).map_err(|error| Error::Message(error.to_string()))?;
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
    let started = profile.time_nanos / 1_000_000_000;
    // Some tools write the time since the machine's start, or none.
    if limits.is_time(started) && profile.time_nanos > 0 {
        run.started = started;
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

#[cfg(test)]
mod tests {
    use lwp_export::pprof::proto::Line;

    use super::*;

    /// A profile with one function, whose name is these bytes.
    fn profile(name: &[u8], time_nanos: i64) -> Vec<u8> {
        let texts = ["", "samples", "count", "name-to-replace"].map(str::to_owned);
        let profile = Profile {
            sample_type: vec![ValueType { r#type: 1, unit: 2 }],
            sample: vec![Sample { location_id: vec![1], value: vec![3], ..Sample::default() }],
            location: vec![Location {
                id: 1,
                line: vec![Line { function_id: 1, ..Line::default() }],
                ..Location::default()
            }],
            function: vec![Function { id: 1, name: 3, ..Function::default() }],
            string_table: texts.to_vec(),
            time_nanos,
            ..Profile::default()
        };
        let bytes = profile.encode_to_vec();
        let at = bytes.windows(15).position(|part| part == b"name-to-replace").unwrap();
        let length = u8::try_from(name.len()).unwrap();
        [&bytes[..at - 1], &[length], name, &bytes[at + 15..]].concat()
    }

    fn read_of(bytes: &[u8]) -> Facts {
        let run = Run { benchmark: "b".into(), started: 77, ..Run::default() };
        read(bytes, &run, &Limits::default()).unwrap().remove(0)
    }

    #[test]
    fn names_need_not_be_utf_8() {
        assert_eq!(read_of(&profile(b"main", 0)).functions[0].name, "main");
        let bytes = profile(b"caf\xe9", 0);
        assert_eq!(read_of(&bytes).functions[0].name, "caf\u{fffd}");
        assert_eq!(crate::Format::of(&bytes), Some(crate::Format::Pprof));
        assert!(decode(b"\x32\xff").is_err());
    }

    #[test]
    fn a_time_that_cannot_be_is_left_out() {
        for time in [0, -1, 5_000_000_000, i64::MAX] {
            assert_eq!(read_of(&profile(b"main", time)).run.started, 77, "{time}");
        }
        let time = 1_700_000_000_000_000_000;
        assert_eq!(read_of(&profile(b"main", time)).run.started, 1_700_000_000);
    }
}

//! Measurements of benchmark harnesses: one recording a benchmark, with a total and nothing below.
//!
//! Times are in picoseconds: the fastest benchmarks take less than one nanosecond.

use lwp_facts::{Facts, Run, Source, clean_name};
use lwp_profile::{Event, Mode};
use serde_json::Value;

use crate::{Error, Result};

/// The event of a time.
pub const TIME: &str = "wall-time-ps";

/// Benchmarks of one file, at most.
const MOST: usize = 100_000;

/// One benchmark's recording.
pub fn recording(run: &Run, name: &str, values: &[(String, f64)]) -> Result<Facts> {
    let mut run = Run { source: Source::Bench, complete: true, ..run.clone() };
    if !name.is_empty() {
        run.benchmark = clean_name(name);
    }
    let event = |(name, _): &(String, f64)| Event {
        name: clean_name(name),
        interval: Some(1),
        ..Event::default()
    };
    let total = values.iter().map(|(event, value)| {
        whole(*value).ok_or_else(|| {
            Error::Message(format!("{event} of '{}' is no count or time: {value}", run.benchmark))
        })
    });
    let total = total.collect::<Result<Vec<u64>>>()?;
    let events = values.iter().map(event).collect();
    Ok(Facts { run, mode: Mode::Sampled, events, total, ..Facts::default() })
}

fn whole(value: f64) -> Option<u64> {
    let is_count = value.is_finite() && (0.0..9e18).contains(&value);
    // In range: checked above.
    is_count.then(|| value.round() as u64)
}

/// A time in picoseconds, if the unit is one of time.
pub fn picoseconds(value: f64, unit: &str) -> Option<f64> {
    let scale = match unit {
        "ps" => 1.0,
        "ns" => 1e3,
        "us" | "µs" => 1e6,
        "ms" => 1e9,
        "s" => 1e12,
        _ => return None,
    };
    Some(value * scale)
}

/// A text as JSON.
pub fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text)
        .map_err(|error| Error::Line { line: error.line(), why: error.to_string() })
}

/// The recordings of a file, if there are some and not too many.
pub fn checked(all: Vec<Facts>) -> Result<Vec<Facts>> {
    match all.len() {
        0 => Err(Error::Empty),
        many if many > MOST => Err(Error::Limit { most: MOST as u64, of: "benchmarks" }),
        _ => Ok(all),
    }
}

/// `estimates.json` of one benchmark, whose name is elsewhere, or the messages of `cargo criterion
/// --message-format=json`.
pub fn criterion(text: &str, run: &Run) -> Result<Vec<Facts>> {
    if let Ok(value) = serde_json::from_str::<Value>(text)
        && value.get("reason").is_none()
    {
        // As criterion prints it: the slope where there is one.
        let of = |name: &str| value[name]["point_estimate"].as_f64();
        let time = of("slope").or_else(|| of("mean")).ok_or(Error::Empty)?;
        return Ok(vec![recording(run, "", &[(TIME.to_owned(), time * 1e3)])?]);
    }
    let mut all = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: &str| Error::Line { line: number + 1, why: why.to_owned() };
        let value: Value = serde_json::from_str(line).map_err(|error| wrong(&error.to_string()))?;
        if value["reason"] != "benchmark-complete" {
            continue;
        }
        let name = value["id"].as_str().ok_or_else(|| wrong("key \"id\": a text is wanted"))?;
        let typical = &value["typical"];
        let estimate = typical["estimate"].as_f64();
        let time = estimate.and_then(|time| picoseconds(time, typical["unit"].as_str()?));
        let time = time.ok_or_else(|| wrong("key \"typical\": an estimate of time is wanted"))?;
        all.push(recording(run, name, &[(TIME.to_owned(), time)])?);
    }
    checked(all)
}

/// Bencher's metric format: benchmarks, their measures, and values of these.
pub fn bencher(text: &str, run: &Run) -> Result<Vec<Facts>> {
    let value = json(text)?;
    let object = value.as_object().ok_or(Error::Empty)?;
    let mut all = Vec::new();
    for (name, measures) in object {
        let mut values = Vec::new();
        for (measure, metric) in measures.as_object().into_iter().flatten() {
            let why =
                || Error::Message(format!("{measure} of '{}' has no value", clean_name(name)));
            let value = metric["value"].as_f64().ok_or_else(why)?;
            // Bencher's latency is in nanoseconds.
            values.push(match measure.as_str() {
                "latency" => (TIME.to_owned(), value * 1e3),
                other => (other.to_owned(), value),
            });
        }
        if !values.is_empty() {
            all.push(recording(run, name, &values)?);
        }
    }
    checked(all)
}

/// CodSpeed's results of wall time.
pub fn codspeed(text: &str, run: &Run) -> Result<Vec<Facts>> {
    let value = json(text)?;
    let mut run = run.clone();
    if let Some(creator) = value["creator"]["name"].as_str() {
        run.tool = clean_name(creator);
    }
    let mut all = Vec::new();
    for benchmark in value["benchmarks"].as_array().into_iter().flatten() {
        let name = benchmark["uri"].as_str().or_else(|| benchmark["name"].as_str());
        let name = name.ok_or_else(|| Error::Message("a benchmark has no name".to_owned()))?;
        let stats = &benchmark["stats"];
        let time = stats["median_ns"].as_f64().or_else(|| stats["mean_ns"].as_f64());
        let why = || Error::Message(format!("'{}' has no time", clean_name(name)));
        all.push(recording(&run, name, &[(TIME.to_owned(), time.ok_or_else(why)? * 1e3)])?);
    }
    checked(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(all: Vec<Facts>) -> Vec<(String, String, u64)> {
        let one =
            |facts: Facts| (facts.run.benchmark, facts.events[0].name.clone(), facts.total[0]);
        all.into_iter().map(one).collect()
    }

    #[test]
    fn harnesses_are_read() {
        let run = Run { benchmark: "file".into(), ..Run::default() };
        let estimates = r#"{"mean":{"point_estimate":12.5},"slope":null}"#;
        let wanted = |name: &str, value| vec![(name.to_owned(), TIME.to_owned(), value)];
        assert_eq!(values(criterion(estimates, &run).unwrap()), wanted("file", 12_500));
        let messages = "{\"reason\":\"benchmark-complete\",\"id\":\"a/b\",\"typical\":{\"estimate\":1.5,\"unit\":\"us\"}}\n{\"reason\":\"group-complete\"}\n";
        assert_eq!(values(criterion(messages, &run).unwrap()), wanted("a/b", 1_500_000));
        let metrics = r#"{"x":{"latency":{"value":88.0}}}"#;
        assert_eq!(values(bencher(metrics, &run).unwrap()), wanted("x", 88_000));
        let speed = r#"{"creator":{"name":"codspeed"},"instrument":{"type":"walltime"},"benchmarks":[{"name":"f","uri":"a.rs::f","stats":{"mean_ns":2.0,"median_ns":1.0}}]}"#;
        assert_eq!(values(codspeed(speed, &run).unwrap()), wanted("a.rs::f", 1000));
    }

    #[test]
    fn what_is_no_measurement_is_refused() {
        let run = Run::default();
        for text in
            ["{}", "{", r#"{"x":{"latency":{"value":-1}}}"#, r#"{"x":{"l":{"value":1e300}}}"#]
        {
            assert!(bencher(text, &run).is_err(), "{text}");
        }
        assert!(criterion("{\"reason\":\"benchmark-complete\"}", &run).is_err());
    }
}

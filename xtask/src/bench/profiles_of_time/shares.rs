//! Shares and sums beside those that a program measures itself.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Place, Table, has, profiled, said};

/// Functions of `timed.c` and `timed.py`.
const FUNCTIONS: [&str; 5] = ["heavy", "light", "reading", "beside", "in_child"];

/// What a mode of `timed.c` is.
const MODES: [(&str, &str); 4] =
    [("c", "one thread"), ("k", "system calls too"), ("t", "two threads"), ("p", "two processes")];

pub fn measure(place: &Place, table: &mut Table) -> Result<()> {
    let mut sums = Vec::new();
    for (mode, what) in MODES {
        let recorded = place.record(&[], &["-F", "2999"], &["./timed", "3", mode])?;
        let truth = said(&recorded.printed);
        let found = place.inclusive("cpu-time", &FUNCTIONS)?;
        let samples = recorded.number("samples");
        table.add(format!("error of shares, {what}"), error(&truth, &found, samples));
        sums.push(recorded.number("cpu-time") / truth["all"]);
        let stopped = place.record(&["./filter"], &["-F", "499"], &["./timed", "3", mode])?;
        sums.push(stopped.number("cpu-time") / said(&stopped.printed)["all"]);
        if ["c", "k"].contains(&mode) {
            let found = place.inclusive("cpu-time", &FUNCTIONS)?;
            let (truth, samples) = (said(&stopped.printed), stopped.number("samples"));
            table.add(format!("…, {what}, by stops"), error(&truth, &found, samples));
        }
    }
    let (least, most) =
        sums.iter().fold((f64::MAX, 0.0_f64), |(a, b), it| (a.min(*it), b.max(*it)));
    table.add("sum, of what getrusage says", format!("{least:.4} to {most:.4}"));
    if has("python3") {
        let script = profiled("timed.py").display().to_string();
        let recorded = place.record(&[], &["-F", "997"], &["python3", &script, "3", "c"])?;
        let found = place.inclusive("cpu-time", &FUNCTIONS)?;
        let (truth, samples) = (said(&recorded.printed), recorded.number("samples"));
        table.add("error of shares, Python's functions", error(&truth, &found, samples));
    }
    Ok(())
}

/// The largest error of the shares among functions that the program knows, in points, and the one
/// that is allowed for it: half a point or three standard errors.
fn error(truth: &BTreeMap<String, f64>, found: &BTreeMap<String, f64>, samples: f64) -> String {
    let names = || FUNCTIONS.iter().filter(|name| truth.contains_key(**name));
    let sum = |all: &BTreeMap<String, f64>| -> f64 { names().filter_map(|it| all.get(*it)).sum() };
    let (all, all_found) = (sum(truth), sum(found));
    let errors = names().map(|name| {
        let part = truth[*name] / all;
        let sampled = found.get(*name).copied().unwrap_or(0.0) / all_found;
        let most = (300.0 * (part * (1.0 - part) / samples).sqrt()).max(0.5);
        (100.0 * (part - sampled).abs(), most)
    });
    let (error, most) = errors.fold((0.0, 0.5), |a, b| if b.0 / b.1 > a.0 / a.1 { b } else { a });
    format!("{error:.2} points of {most:.2}, {samples:.0} samples")
}

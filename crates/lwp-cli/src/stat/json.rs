//! The report as one JSON object a line, with the keys of `perf stat -j`.
//!
//! Promise: E6, I8

use std::fmt::Write;

use lwp_terminal::escape;
use serde_json::Value;

use super::number;
use super::report::{Group, Report, Row, Scope, Unit};
use super::spread::Spread;

/// Writes `report`. An uncounted process is an object with the one key "not-counted".
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    for process in &report.uncounted {
        let _ = writeln!(text, "{{\"not-counted\" : {}}}", quoted(process));
    }
    for group in &report.groups {
        for row in &group.rows {
            let _ = writeln!(text, "{{{}}}", object(report, group, row));
        }
    }
    escape::json(&text)
}

/// The members of one row's object. The value is a string, as perf has it, because it may be
/// `<not supported>`; only then is there a reason.
fn object(report: &Report, group: &Group, row: &Row) -> String {
    let mut text = String::new();
    let mut member = |key: &str, value: &str| {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}\"{key}\" : {value}");
    };
    if let Some(at) = report.at {
        member("interval", number::timestamp(at).trim_start());
    }
    match report.scope {
        Scope::Total => {}
        Scope::Process => member("process", &quoted(&group.label)),
        Scope::Thread => member("thread", &quoted(&group.label)),
    }
    member("counter-value", &quoted(&value(row)));
    member("unit", &quoted(row.unit.name()));
    member("event", &quoted(&row.label));
    if report.runs > 1 {
        let percent = row.value.as_ref().map_or(0.0, Spread::percent);
        member("variance", &format!("{percent:.2}"));
    }
    let run_time = if row.value.is_ok() { report.times.task.mean } else { 0 };
    member("event-runtime", &run_time.to_string());
    member("pcnt-running", "100.00");
    // A string, and only where there is a metric, as newer versions of perf have it; gungraun reads
    // no other form.
    if let Some(metric) = row.metric {
        member("metric-value", &quoted(&format!("{:.6}", metric.value)));
        member("metric-unit", &quoted(metric.unit));
    }
    if let Err(missing) = &row.value {
        member("reason", &quoted(missing.reason()));
    }
    text
}

/// The value with six decimals. Counts are written as whole numbers first: a 64-bit count does not
/// fit a double.
fn value(row: &Row) -> String {
    match (&row.value, row.unit) {
        (Err(missing), _) => missing.word().to_owned(),
        (Ok(spread), Unit::Msec) => {
            format!("{}.{:06}", spread.mean / 1_000_000, spread.mean % 1_000_000)
        }
        (Ok(spread), Unit::Count | Unit::Ns) => format!("{}.000000", spread.mean),
    }
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::events;
    use crate::stat::report::samples;

    /// Promise: I3
    #[test]
    fn keys_are_perf_s() {
        let report =
            samples::report("task-clock,branches,cycles", Scope::Total, &[samples::outcome()]);
        let expected = r#"{"not-counted" : "sudo-14: set-user-id programs run natively"}
{"counter-value" : "8.250000", "unit" : "msec", "event" : "task-clock", "event-runtime" : 8250000, "pcnt-running" : 100.00, "metric-value" : "0.825000", "metric-unit" : "CPUs utilized"}
{"counter-value" : "600200.000000", "unit" : "", "event" : "branches", "event-runtime" : 8250000, "pcnt-running" : 100.00, "metric-value" : "20.000000", "metric-unit" : "% of instructions"}
{"counter-value" : "<not supported>", "unit" : "", "event" : "cycles", "event-runtime" : 0, "pcnt-running" : 100.00, "reason" : "the virtual CPU has no cycle counter; translated code takes other cycles"}
"#;
        assert_eq!(render(&report), expected);
    }

    #[test]
    fn every_line_is_json() {
        let mut outcome = samples::outcome();
        outcome.processes[0].comm = "a \"b\"\\".into();
        let report = samples::report("calls,cycles", Scope::Process, &[outcome]);
        for line in render(&report).lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            assert!(value.is_object());
        }
        let requested = events::parse(&["calls,task-clock".to_owned()]).unwrap();
        let at = std::time::Duration::from_millis(1500);
        let report = Report::interval(&requested, Scope::Thread, at, &samples::outcome());
        for line in render(&report).lines().skip(1) {
            let value: Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["interval"], 1.5, "{line}");
        }
        let report = samples::report("calls", Scope::Total, &samples::two_outcomes());
        let text = render(&report);
        assert!(text.contains("\"event\" : \"calls\", \"variance\" : 0.00, "), "{text}");
    }
}

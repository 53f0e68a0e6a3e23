//! The report as separated values, in the column order of `perf stat -x`:
//!
//! ```text
//! [time of an interval's end in s,] [thread or process,] value, unit, event, [spread %, if repeated,] run time in ns,
//! percentage of the run time that was counted, derived value, its unit
//! ```
//!
//! Promise: E6, I8

use std::fmt::Write;

use lwp_terminal::escape::printable;

use super::number;
use super::report::{Group, Report, Row, Scope, Unit};

/// Writes `report` with `separator` between the columns. Uncounted processes are comment lines.
pub fn render(report: &Report, separator: &str) -> String {
    let separator = if separator == "\\t" { "\t" } else { separator };
    let mut text = String::new();
    for process in &report.uncounted {
        let _ = writeln!(text, "# not counted: {}", printable(process));
    }
    for group in &report.groups {
        for row in &group.rows {
            let _ = writeln!(text, "{}", columns(report, group, row).join(separator));
        }
    }
    text
}

fn columns(report: &Report, group: &Group, row: &Row) -> Vec<String> {
    let mut columns = Vec::new();
    if let Some(at) = report.at {
        columns.push(number::timestamp(at));
    }
    if report.scope != Scope::Total {
        columns.push(printable(&group.label));
    }
    columns.push(value(row));
    columns.push(row.unit.name().to_owned());
    columns.push(printable(&row.label));
    if report.runs > 1 {
        let percent = row.value.as_ref().map_or(0.0, |spread| spread.percent());
        columns.push(format!("{percent:.2}%"));
    }
    let run_time = if row.value.is_ok() { report.times.task.mean } else { 0 };
    columns.push(run_time.to_string());
    columns.push("100.00".to_owned());
    columns.push(row.metric.map_or(String::new(), |metric| format!("{:.2}", metric.value)));
    columns.push(row.metric.map_or("", |metric| metric.unit).to_owned());
    columns
}

fn value(row: &Row) -> String {
    match (&row.value, row.unit) {
        (Err(missing), _) => missing.word().to_owned(),
        (Ok(spread), Unit::Msec) => number::msec(spread.mean, false),
        (Ok(spread), Unit::Count | Unit::Ns) => number::count(spread.mean, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::events;
    use crate::stat::report::samples;

    /// Promise: I2
    #[test]
    fn columns_are_perf_s() {
        let events = "task-clock,instructions,branches:u,cycles";
        let report = samples::report(events, Scope::Total, &[samples::outcome()]);
        let expected = "\
# not counted: sudo-14: set-user-id programs run natively
8.25,msec,task-clock,8250000,100.00,0.82,CPUs utilized
3001000,,instructions,8250000,100.00,,
600200,,branches:u,8250000,100.00,20.00,% of instructions
<not supported>,,cycles,0,100.00,,
";
        assert_eq!(render(&report, ","), expected);
    }

    #[test]
    fn repeated_runs_have_a_spread_column() {
        let report = samples::report("instructions,cycles", Scope::Total, &samples::two_outcomes());
        let text = render(&report, "\\t");
        assert!(text.contains("3151050\t\tinstructions\t4.76%\t8250000\t100.00\t\t\n"), "{text}");
        assert!(text.contains("<not supported>\t\tcycles\t0.00%\t0\t100.00\t\t\n"), "{text}");
    }

    #[test]
    fn intervals_begin_with_their_time() {
        let requested = events::parse(&["instructions,task-clock".to_owned()]).unwrap();
        let at = std::time::Duration::new(1, 5);
        let report = Report::interval(&requested, Scope::Total, at, &samples::outcome());
        let expected = "\
# not counted: sudo-14: set-user-id programs run natively
     1.000000005,3001000,,instructions,10000000,100.00,,
     1.000000005,<not supported>,msec,task-clock,0,100.00,,
";
        assert_eq!(render(&report, ","), expected);
    }

    #[test]
    fn processes_come_first() {
        let report = samples::report("calls", Scope::Process, &[samples::outcome()]);
        let text = render(&report, ";");
        assert!(text.contains("cc1-12;10010;;calls;8250000;100.00;5.00;% of branches\n"), "{text}");
    }
}

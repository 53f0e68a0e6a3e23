//! The report for people.
//!
//! Promise: E6

use std::fmt::Write;

use lwp_terminal::escape::printable;

use super::number;
use super::report::{Group, Report, Row, Unit};
use super::spread::Spread;

/// Writes `report` as text; large numbers with commas if `grouped`.
pub fn render(report: &Report, grouped: bool) -> String {
    let mut text = String::new();
    if let Some(at) = report.at {
        let at = number::timestamp(at);
        rows(&mut text, report, grouped, &format!("{at} "));
        return text;
    }
    let runs = if report.runs > 1 { format!(" ({} runs)", report.runs) } else { String::new() };
    let _ = writeln!(
        text,
        "\n Exact counts of {}, user mode, virtual CPU{runs}:\n",
        printable(&report.title)
    );
    rows(&mut text, report, grouped, "");
    text.push_str(&times(report));
    for remark in &report.remarks {
        let _ = writeln!(text, " {remark}\n");
    }
    text
}

/// The line above the rows of intervals.
pub const INTERVALS: &str = "#           time             counts unit events\n";

/// The rows, `first` at the beginning of each line.
fn rows(text: &mut String, report: &Report, grouped: bool, first: &str) {
    for group in &report.groups {
        for row in &group.rows {
            let prefix = prefix(report, group);
            let line = format!("{first}{prefix}{}", line(row, report.runs, grouped));
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    for process in &report.uncounted {
        let _ = writeln!(text, "{first}     <not counted>      {}", printable(process));
    }
}

/// The column of the thread or process, wide enough for the longest.
fn prefix(report: &Report, group: &Group) -> String {
    let width = report.groups.iter().map(|group| group.label.chars().count()).max().unwrap_or(0);
    if width == 0 { String::new() } else { format!(" {:<width$}", printable(&group.label)) }
}

/// One event: value, unit, name, what follows from it, spread.
fn line(row: &Row, runs: usize, grouped: bool) -> String {
    let value = match (&row.value, row.unit) {
        (Err(missing), _) => missing.word().to_owned(),
        (Ok(spread), Unit::Msec) => number::msec(spread.mean, grouped),
        (Ok(spread), Unit::Count | Unit::Ns) => number::count(spread.mean, grouped),
    };
    let comment = match (&row.value, &row.metric) {
        (Err(missing), _) => format!("# {}", missing.reason()),
        (Ok(_), Some(metric)) => format!("# {:>8.2} {}", metric.value, metric.unit),
        (Ok(_), None) => String::new(),
    };
    let spread = match &row.value {
        Ok(spread) if runs > 1 => percent(spread),
        _ => String::new(),
    };
    format!(
        "{value:>18} {:<4} {:<24} {comment:<38}{spread}",
        row.unit.name(),
        printable(&row.label)
    )
}

/// The relative spread of a mean.
fn percent(spread: &Spread) -> String {
    format!("( +-{:>6.2}% )", spread.percent())
}

/// The closing lines.
fn times(report: &Report) -> String {
    let times = &report.times;
    let rows = [
        (times.elapsed, "seconds time elapsed"),
        (times.user, "seconds user"),
        (times.system, "seconds sys"),
        (times.host, "seconds virtual CPU, beside the program"),
    ];
    let mut text = String::new();
    for (at, (spread, name)) in rows.into_iter().enumerate() {
        if at < 2 {
            text.push('\n');
        }
        let value = number::seconds(spread.mean);
        let _ = if report.runs > 1 {
            let error = spread.error / 1e9;
            writeln!(text, "{value:>18} +- {error:.9} {name}  {}", percent(&spread))
        } else {
            writeln!(text, "{value:>18} {name}")
        };
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::report::{Scope, samples};

    #[test]
    fn one_run() {
        let events = "task-clock,instructions,branches:u,conditional-taken,cycles,duration_time";
        let report = samples::report(events, Scope::Total, &[samples::outcome()]);
        let expected = "
 Exact counts of 'make -j2', user mode, virtual CPU:

              8.25 msec task-clock               #     0.82 CPUs utilized
         3,001,000      instructions
           600,200      branches:u               #    20.00 % of instructions
           150,050      conditional-taken        #    50.00 % of conditional branches
   <not supported>      cycles                   # the virtual CPU has no cycle counter; \
translated code takes other cycles
        10,000,000 ns   duration_time
     <not counted>      sudo-14: set-user-id programs run natively

       0.010000000 seconds time elapsed

       0.007250000 seconds user
       0.001000000 seconds sys
       0.002500000 seconds virtual CPU, beside the program

";
        assert_eq!(render(&report, true), expected);
    }

    #[test]
    fn several_runs() {
        let report =
            samples::report("instructions,branches", Scope::Total, &samples::two_outcomes());
        let text = render(&report, false);
        let expected = "
 Exact counts of 'make -j2', user mode, virtual CPU (2 runs):

           3151050      instructions                                                   ( +-  4.76% )
            600200      branches                 #    19.05 % of instructions          ( +-  0.00% )
     <not counted>      sudo-14: set-user-id programs run natively

       0.011000000 +- 0.001000000 seconds time elapsed  ( +-  9.09% )

";
        assert!(text.starts_with(expected), "{text}");
    }

    #[test]
    fn threads_have_a_column() {
        let report = samples::report("calls", Scope::Thread, &[samples::outcome()]);
        let text = render(&report, true);
        let expected = "
 make-11            20,000      calls                    #     5.00 % of branches
 cc1-12             10,000      calls                    #     5.00 % of branches
 gc-13                  10      calls                    #     5.00 % of branches
";
        assert!(text.contains(expected), "{text}");
    }
}

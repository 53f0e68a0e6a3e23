//! Limits on counts: has a change made a program do more than it may?

use std::fmt::{self, Write};

use serde_json::{Value, json};

use crate::escape::{self, markdown as cell, markup, printable};
use crate::libc;
use crate::number::{grouped, signed};

/// How much an event may count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// At most so many percent more than the baseline.
    Percent(f64),
    /// At most so many more than the baseline.
    More(u64),
    /// At most so many.
    Most(u64),
}

impl Limit {
    /// Reads `+0.5%`, `+1000` or `2_000_000`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().replace(['_', ','], "");
        if let Some(percent) = digits.strip_suffix('%') {
            let value: f64 = percent.trim_start_matches('+').parse().ok()?;
            return (value.is_finite() && value >= 0.0).then_some(Self::Percent(value));
        }
        match digits.strip_prefix('+') {
            Some(more) => more.parse().ok().map(Self::More),
            None => digits.parse().ok().map(Self::Most),
        }
    }

    /// Whether a baseline is needed.
    pub fn is_relative(self) -> bool {
        !matches!(self, Self::Most(_))
    }

    /// The greatest count allowed.
    pub fn ceiling(self, before: u64) -> u64 {
        match self {
            Self::Most(most) => most,
            Self::More(more) => before.saturating_add(more),
            Self::Percent(percent) => {
                // A whole count is exceeded only by a whole count more.
                let more = (before as f64 * percent / 100.0).floor();
                before.saturating_add(more as u64)
            }
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "+{percent}%"),
            Self::More(more) => write!(f, "+{}", grouped(*more)),
            Self::Most(most) => write!(f, "{}", grouped(*most)),
        }
    }
}

/// One limit, held against the counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The event.
    pub event: String,
    /// The limit.
    pub limit: Limit,
    /// The baseline's count, where there is one.
    pub before: Option<u64>,
    /// The count.
    pub after: u64,
}

impl Check {
    /// Whether the count is within the limit.
    pub fn passes(&self) -> bool {
        self.after <= self.limit.ceiling(self.before.unwrap_or(0))
    }

    fn change(&self) -> String {
        match self.before {
            None => "-".to_owned(),
            Some(0) => signed(i128::from(self.after)),
            Some(before) => {
                let delta = i128::from(self.after) - i128::from(before);
                format!("{} ({:+.2}%)", signed(delta), 100.0 * delta as f64 / before as f64)
            }
        }
    }
}

/// All checks of a gate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// What ran.
    pub command: String,
    /// Checks, in the order of the limits.
    pub checks: Vec<Check>,
    /// Where the change arose: function and change, greatest first; for the first event that fails.
    pub suspects: Vec<(String, i128)>,
    /// Modules that are another build than the baseline's.
    pub rebuilt: Vec<String>,
}

impl Verdict {
    /// Whether every check passes.
    pub fn passes(&self) -> bool {
        self.checks.iter().all(Check::passes)
    }

    fn word(check: &Check) -> &'static str {
        if check.passes() { "ok" } else { "EXCEEDED" }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for check in &self.checks {
            let _ = writeln!(
                out,
                "{:<8} {}: {} of at most {} ({}), {}",
                Self::word(check),
                check.event,
                grouped(check.after),
                grouped(check.limit.ceiling(check.before.unwrap_or(0))),
                check.limit,
                check.change()
            );
        }
        if !self.suspects.is_empty() {
            let _ = writeln!(out, "changed most:");
        }
        for (name, delta) in &self.suspects {
            let _ = writeln!(out, "  {:>16}  {}", signed(*delta), printable(name));
        }
        for name in &self.rebuilt {
            let _ = writeln!(out, "another build: {}", printable(name));
        }
        if let Some(notice) = libc::notice(&self.rebuilt) {
            let _ = writeln!(out, "{notice}");
        }
        out
    }

    /// For a comment on a change.
    pub fn markdown(&self) -> String {
        let verdict = if self.passes() { "within limits" } else { "limits exceeded" };
        let mut out = format!("### {}: {verdict}\n\n", cell(&self.command));
        out.push_str("| event | baseline | now | change | limit | |\n|---|--:|--:|--:|--:|---|\n");
        for check in &self.checks {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} | {} |",
                cell(&check.event),
                check.before.map_or("-".to_owned(), grouped),
                grouped(check.after),
                check.change(),
                check.limit,
                Self::word(check)
            );
        }
        if !self.suspects.is_empty() {
            out.push_str("\n| change | function |\n|--:|---|\n");
        }
        for (name, delta) in &self.suspects {
            let _ = writeln!(out, "| {} | {} |", signed(*delta), cell(name));
        }
        if let Some(notice) = libc::notice(&self.rebuilt) {
            let _ = writeln!(out, "\n{notice}");
        }
        out
    }

    /// As a JUnit report: one test case a limit.
    pub fn junit(&self) -> String {
        let failures = self.checks.iter().filter(|check| !check.passes()).count();
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let name = markup(&self.command);
        let _ = writeln!(
            out,
            "<testsuites tests=\"{n}\" failures=\"{failures}\">\n\
             <testsuite name=\"lwp gate\" tests=\"{n}\" failures=\"{failures}\">",
            n = self.checks.len()
        );
        for check in &self.checks {
            let event = markup(&check.event);
            let _ = write!(out, "<testcase classname=\"{name}\" name=\"{event}\">");
            if !check.passes() {
                let message = format!(
                    "{} counted, {} allowed ({}), {}",
                    check.after,
                    check.limit.ceiling(check.before.unwrap_or(0)),
                    check.limit,
                    check.change()
                );
                let _ = write!(out, "<failure message=\"{}\"/>", markup(&message));
            }
            out.push_str("</testcase>\n");
        }
        out.push_str("</testsuite>\n</testsuites>\n");
        out
    }

    /// As annotations of a workflow: one command a line, in which the characters that end it are encoded.
    pub fn github(&self) -> String {
        let encoded = |text: &str| {
            let text = text.replace('%', "%25");
            printable(&text.replace('\r', "%0D").replace('\n', "%0A"))
        };
        let mut out = String::new();
        for check in &self.checks {
            let kind = if check.passes() { "notice" } else { "error" };
            let most = grouped(check.limit.ceiling(check.before.unwrap_or(0)));
            let mut message = format!(
                "{}: {}: {} of at most {most} ({}), {}",
                self.command,
                check.event,
                grouped(check.after),
                check.limit,
                check.change()
            );
            if !check.passes() {
                for (name, delta) in &self.suspects {
                    let _ = write!(message, "\n{}  {name}", signed(*delta));
                }
            }
            let _ = writeln!(out, "::{kind} title=lwp gate::{}", encoded(&message));
        }
        if let Some(notice) = libc::notice(&self.rebuilt) {
            let _ = writeln!(out, "::notice title=lwp gate::{}", encoded(notice));
        }
        out
    }

    /// As JSON.
    pub fn json(&self) -> String {
        let checks: Vec<Value> = self
            .checks
            .iter()
            .map(|check| {
                json!({
                    "event": check.event,
                    "limit": check.limit.to_string(),
                    "allowed": check.limit.ceiling(check.before.unwrap_or(0)),
                    "before": check.before,
                    "after": check.after,
                    "passes": check.passes(),
                })
            })
            .collect();
        let suspects: Vec<Value> = self
            .suspects
            .iter()
            .map(|(name, delta)| json!({ "function": name, "change": delta.to_string() }))
            .collect();
        let document = json!({
            "command": self.command,
            "passes": self.passes(),
            "checks": checks,
            "changed_most": suspects,
            "rebuilt": self.rebuilt,
        });
        escape::json(&format!("{document:#}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        assert_eq!(Limit::parse("+0.5%"), Some(Limit::Percent(0.5)));
        assert_eq!(Limit::parse("2%"), Some(Limit::Percent(2.0)));
        assert_eq!(Limit::parse("+1_000"), Some(Limit::More(1000)));
        assert_eq!(Limit::parse("2_000_000"), Some(Limit::Most(2_000_000)));
        for bad in ["", "%", "-1%", "x", "1.5", "+nan%", "inf%"] {
            assert_eq!(Limit::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn limits_are_exact_at_their_edge() {
        let check = |limit, before, after| {
            Check { event: "instructions".into(), limit, before: Some(before), after }.passes()
        };
        assert!(check(Limit::Percent(1.0), 1000, 1010));
        assert!(!check(Limit::Percent(1.0), 1000, 1011));
        assert!(check(Limit::Percent(0.0), 1000, 1000));
        assert!(!check(Limit::Percent(0.0), 1000, 1001));
        assert!(check(Limit::More(5), 10, 15) && !check(Limit::More(5), 10, 16));
        assert!(check(Limit::Most(5), 0, 5) && !check(Limit::Most(5), 0, 6));
    }

    #[test]
    fn every_format_escapes_and_says_what_failed() {
        let check = Check {
            event: "instructions".into(),
            limit: Limit::Percent(1.0),
            before: Some(100),
            after: 150,
        };
        let verdict = Verdict {
            command: "a <b> | c".into(),
            checks: vec![check],
            suspects: vec![("f<int>(\u{1b})".into(), 50)],
            rebuilt: Vec::new(),
        };
        assert!(!verdict.passes());
        assert!(verdict.text().contains("EXCEEDED instructions: 150 of at most 101 (+1%), +50"));
        assert!(verdict.text().contains("f<int>(\u{fffd})"));
        assert!(verdict.markdown().contains("a \\<b\\> \\| c"));
        assert!(verdict.junit().contains("classname=\"a &lt;b&gt; | c\""));
        assert!(verdict.junit().contains("failures=\"1\""));
        let error = "::error title=lwp gate::a <b> | c: instructions: 150 of at most 101 (+1%25), \
                     +50 (+50.00%25)%0A+50  f<int>(\u{fffd})\n";
        assert_eq!(verdict.github(), error);
        let json: Value = serde_json::from_str(&verdict.json()).unwrap();
        assert_eq!(json["checks"][0]["passes"], false);
    }

    /// Once, in every form that people read.
    #[test]
    fn another_c_library_is_said_to_move_counts() {
        let told = |rebuilt: &str| {
            let verdict = Verdict { rebuilt: vec![rebuilt.into()], ..Verdict::default() };
            [verdict.text(), verdict.markdown(), verdict.github()].map(|text| {
                text.lines().filter(|line| line.contains("malloc and other functions")).count()
            })
        };
        assert_eq!(told("libc.so.6"), [1, 1, 1]);
        assert_eq!(told("libm.so.6"), [0, 0, 0]);
    }
}

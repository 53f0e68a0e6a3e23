//! Limits on counts: has a change made programs do more than they may?
//!
//! Promise: R11

mod github;
mod json;
mod junit;
mod markdown;
mod sarif;
mod text;

use std::fmt;

use crate::chance;
use crate::number::{amount, grouped, signed_amount};

/// The most that an event may count.
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
    /// Reads `+0.5%`, `+1000`, `2_000_000` or `2,000,000`.
    ///
    /// # Errors
    ///
    /// The text is no limit; the reason is half a sentence.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if let Some(percent) = text.strip_suffix('%') {
            return percentage(percent.trim_end());
        }
        let (more, digits) = match text.strip_prefix('+') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let count = whole(digits)?;
        Ok(if more { Self::More(count) } else { Self::Most(count) })
    }

    /// Returns whether a baseline is needed.
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

/// Reads the number in front of a per cent sign. A comma in it may separate decimals or thousands,
/// and a limit ten times too high would pass unnoticed.
fn percentage(text: &str) -> Result<Limit, &'static str> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    if digits.contains(',') {
        return Err("decimals are separated by a point, as in +0.5%");
    }
    let plain = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'_');
    let value = digits.bytes().all(plain).then(|| digits.replace('_', "").parse::<f64>());
    match value {
        Some(Ok(percent)) if percent.is_finite() => Ok(Limit::Percent(percent)),
        _ => Err("a percentage is written as in +0.5%"),
    }
}

/// Reads a whole number. Commas stand in front of three digits each, or they separate decimals.
fn whole(text: &str) -> Result<u64, &'static str> {
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = text.split(',');
    let first = groups.next().unwrap_or_default().replace('_', "");
    let separated = text.contains(',');
    let fits = !separated || (first.len() <= 3 && !text.contains('_'));
    if !plain(&first) || !fits || !groups.all(|group| plain(group) && group.len() == 3) {
        return Err(match separated || text.contains('.') {
            true => "counts are whole numbers, as in 2_000_000 or 2,000,000",
            false => "a limit is written as in +0.5%, +1000 or 2_000_000",
        });
    }
    text.replace([',', '_'], "").parse().map_err(|_| "the number is too large")
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

/// The code that a limit applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// Everything that was recorded.
    #[default]
    Whole,
    /// A function.
    Function(String),
    /// A module.
    Module(String),
    /// A function with all that it calls.
    Inclusive(String),
}

/// A line of source code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// File, relative to the repository's root.
    pub file: String,
    /// Line, counted from one.
    pub line: u32,
}

/// One limit, held against the counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The code that the limit applies to.
    pub subject: Subject,
    /// The name of the event that is limited.
    pub event: String,
    /// The most that the event may count.
    pub limit: Limit,
    /// The baseline's count, where there is one.
    pub before: Option<u64>,
    /// The count.
    pub after: u64,
    /// The standard errors of both, if they are sampled times; zero if they are counts.
    pub errors: [f64; 2],
    /// The subject's place in the repository.
    pub place: Option<Place>,
}

impl Check {
    /// Returns whether the count is within the limit; a sampled time is, unless the whole interval
    /// that holds it in 95 of 100 cases lies beyond. New code has no baseline, so that percentages
    /// don't apply to it.
    pub fn passes(&self) -> bool {
        match (self.limit, self.before) {
            (Limit::Percent(_), None) => true,
            _ => self.after.saturating_sub(self.ceiling()) as f64 <= self.margin(),
        }
    }

    /// Half the width of the interval that holds the difference between count and limit in 95 of
    /// 100 cases; zero of counts.
    pub fn margin(&self) -> f64 {
        let [before, after] = self.errors;
        let of_limit = match self.limit {
            Limit::Most(_) => 0.0,
            Limit::More(_) => before,
            Limit::Percent(percent) => before * (1.0 + percent / 100.0),
        };
        chance::margin(&[of_limit, after])
    }

    /// Returns whether the count is another than the baseline's.
    pub fn has_changed(&self) -> bool {
        self.before.is_some_and(|before| before != self.after)
    }

    /// The greatest count allowed.
    pub fn ceiling(&self) -> u64 {
        self.limit.ceiling(self.before.unwrap_or(0))
    }

    fn word(&self) -> &'static str {
        if self.passes() { "ok" } else { "EXCEEDED" }
    }

    /// The event, with what it is counted in where that is not everything.
    fn title(&self) -> String {
        match &self.subject {
            Subject::Whole => self.event.clone(),
            Subject::Function(name) => format!("{} in {name}", self.event),
            Subject::Module(name) => format!("{} in module {name}", self.event),
            Subject::Inclusive(name) => format!("{} in {name} and its callees", self.event),
        }
    }

    fn change(&self) -> String {
        change(&self.event, self.before, self.after)
    }

    /// The count, with its margin if it is a sampled time.
    fn value(&self) -> String {
        let after = amount(&self.event, self.after);
        let margin = self.margin();
        match margin > 0.0 {
            true => format!("{after} ± {}", amount(&self.event, margin.round() as u64)),
            false => after,
        }
    }

    /// The count, the limit and the change in words.
    fn words(&self) -> String {
        let most = amount(&self.event, self.ceiling());
        format!("{} of at most {most} ({}), {}", self.value(), self.limit, self.change())
    }
}

/// From what was before to what is after, in the event's unit and per cent.
fn change(event: &str, before: Option<u64>, after: u64) -> String {
    match before {
        None => "-".to_owned(),
        Some(0) => signed_amount(event, i128::from(after)),
        Some(before) => {
            let delta = i128::from(after) - i128::from(before);
            let part = 100.0 * delta as f64 / before as f64;
            format!("{} ({part:+.2}%)", signed_amount(event, delta))
        }
    }
}

/// A function whose count has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Its name, with its module.
    pub function: String,
    /// The count before; `None` where it was not executed.
    pub before: Option<u64>,
    /// The count after; `None` where it was not executed.
    pub after: Option<u64>,
    /// Its place in the repository.
    pub place: Option<Place>,
}

impl Change {
    /// After minus before.
    pub fn delta(&self) -> i128 {
        i128::from(self.after.unwrap_or(0)) - i128::from(self.before.unwrap_or(0))
    }

    /// The change as a part of what was before, where something was.
    fn part(&self) -> String {
        match (self.before, self.after) {
            (None, _) => "new".to_owned(),
            (_, None) => "gone".to_owned(),
            (Some(0), _) => String::new(),
            (Some(before), _) => format!("{:+.2}%", 100.0 * self.delta() as f64 / before as f64),
        }
    }

    fn words(&self, event: &str) -> String {
        match (self.before, self.after) {
            (None, _) => "new".to_owned(),
            (_, None) => "gone".to_owned(),
            (before, Some(after)) => change(event, before, after),
        }
    }
}

/// The result of one recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Benchmark {
    /// Its name; empty where there is only one.
    pub name: String,
    /// The command of the program.
    pub command: String,
    /// Checks, in the order of the limits.
    pub checks: Vec<Check>,
    /// The event whose changes are listed.
    pub event: String,
    /// Functions that count more or less of it, greatest change first.
    pub changed: Vec<Change>,
    /// Modules that are another build than the baseline's.
    pub rebuilt: Vec<String>,
    /// Further remarks.
    pub notes: Vec<String>,
    /// The name of its differential flame graph.
    pub picture: Option<String>,
}

impl Benchmark {
    /// Returns whether every check passes.
    pub fn passes(&self) -> bool {
        self.checks.iter().all(Check::passes)
    }

    /// Returns its title: the name, or else the command.
    pub fn title(&self) -> &str {
        if self.name.is_empty() { &self.command } else { &self.name }
    }

    /// Checks worth a line: those of everything, and of the others those that fail.
    fn shown(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| check.subject == Subject::Whole || !check.passes())
    }

    /// Returns the number of checks that are not worth a line.
    fn silent(&self) -> usize {
        self.checks.len() - self.shown().count()
    }
}

/// All checks of a gate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Recordings, in their order.
    pub benchmarks: Vec<Benchmark>,
    /// Remarks on the whole.
    pub notes: Vec<String>,
    /// The address of differential flame graphs, in which `{name}` stands for the name of one.
    pub pictures: Option<String>,
}

impl Verdict {
    /// Returns whether every check of every benchmark passes.
    pub fn passes(&self) -> bool {
        self.benchmarks.iter().all(Benchmark::passes)
    }

    /// The verdict in this format.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Text => text::render(self),
            Format::Markdown => markdown::render(self),
            Format::Junit => junit::render(self),
            Format::Json => json::render(self),
            Format::Github => github::render(self),
            Format::Sarif => sarif::render(self),
        }
    }
}

/// A form of the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For a terminal.
    Text,
    /// A comment on a change.
    Markdown,
    /// JUnit's XML: a suite a benchmark, a case a limit.
    Junit,
    /// One JSON document.
    Json,
    /// Commands of a GitHub workflow, which are shown beside the lines that they name.
    Github,
    /// Results of a static analysis, as code scanning reads them.
    Sarif,
}

impl Format {
    /// Every format and its names.
    const NAMED: [(&str, Self); 7] = [
        ("text", Self::Text),
        ("markdown", Self::Markdown),
        ("md", Self::Markdown),
        ("junit", Self::Junit),
        ("json", Self::Json),
        ("github", Self::Github),
        ("sarif", Self::Sarif),
    ];
    /// The names, for messages.
    pub const NAMES: &'static str = "text, markdown, junit, json, github, sarif";

    /// The format called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|row| row.0 == name).map(|row| row.1)
    }
}

/// Functions named as the cause of what fails.
const SUSPECTS: usize = 10;

#[cfg(test)]
mod samples {
    //! Verdicts for the tests of the formats.

    use super::*;

    /// One benchmark that does half more than before, in a function of the repository.
    pub fn exceeded() -> Verdict {
        let place = Some(Place { file: "src/a,b.rs".into(), line: 7 });
        let check = |subject, place| Check {
            subject,
            event: "instructions".into(),
            limit: Limit::Percent(1.0),
            before: Some(100),
            after: 150,
            errors: [0.0; 2],
            place,
        };
        let function = Subject::Function("f<int>(\u{1b})".into());
        let benchmark = Benchmark {
            command: "a <b> | c".into(),
            checks: vec![check(Subject::Whole, None), check(function, place.clone())],
            event: "instructions".into(),
            changed: vec![
                Change {
                    function: "f<int>(\u{1b}) [a]".into(),
                    before: Some(20),
                    after: Some(70),
                    place,
                },
                Change { function: "g [a]".into(), before: Some(1), after: None, place: None },
            ],
            notes: vec!["one\u{1b}note".into()],
            picture: Some("a.svg".into()),
            ..Benchmark::default()
        };
        let mut fine = benchmark.clone();
        fine.name = "group/fine".into();
        fine.checks = vec![Check { after: 100, ..check(Subject::Whole, None) }];
        fine.changed.clear();
        fine.notes.clear();
        Verdict { benchmarks: vec![benchmark, fine], ..Verdict::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libc;

    /// Promise: R135
    #[test]
    fn times_fail_only_with_their_whole_interval() {
        let check = |limit: &str, after: u64, errors: [f64; 2]| Check {
            subject: Subject::Function("f".into()),
            event: "cpu-time".into(),
            limit: Limit::parse(limit).expect("a limit"),
            before: Some(1_000_000_000),
            after,
            errors,
            place: None,
        };
        // 50 ms more are allowed; the error of the difference is 5 ms, or 4 and 3.15.
        assert!(check("+5%", 1_050_000_000, [0.0; 2]).passes());
        assert!(!check("+5%", 1_050_000_001, [0.0; 2]).passes());
        assert!(check("+5%", 1_059_000_000, [0.0, 5e6]).passes());
        assert!(!check("+5%", 1_060_000_000, [0.0, 5e6]).passes());
        assert!(check("+5%", 1_059_000_000, [3e6, 4e6]).passes());
        assert!(!check("+5%", 1_061_000_000, [3e6, 4e6]).passes());
        // A limit without a baseline has no error of its own.
        assert!(!check("1_000_000_000", 1_009_000_000, [1e9, 4e6]).passes());
        let words = check("+5%", 1_060_000_000, [0.0, 5e6]).words();
        assert_eq!(words, "1.060 s ± 0.010 s of at most 1.050 s (+5%), +0.060 s (+6.00%)");
    }

    #[test]
    fn limits_are_read() {
        let cases = [
            ("+0.5%", Limit::Percent(0.5)),
            ("2%", Limit::Percent(2.0)),
            ("+1_000.5 %", Limit::Percent(1000.5)),
            ("+1_000", Limit::More(1000)),
            ("+1,000", Limit::More(1000)),
            ("2_000_000", Limit::Most(2_000_000)),
            ("2,000,000", Limit::Most(2_000_000)),
        ];
        for (text, limit) in cases {
            assert_eq!(Limit::parse(text), Ok(limit), "{text}");
        }
        let bad = ["", "%", "-1%", "x", "1.5", "+nan%", "inf%", "+1e3%", "+-1", "++1", "+", "_"];
        for bad in bad {
            assert!(Limit::parse(bad).is_err(), "{bad}");
        }
        let commas = ["+0,5%", "+1,000%", "0,5", "1,5", "1,00", "1,0000", "1000,000", ",100", "1,"];
        for bad in [&commas[..], &["1_0,000", "1,00_0", "1,000.5"]].concat() {
            let reason = Limit::parse(bad).expect_err(bad);
            assert!(reason.contains("+0.5%") || reason.contains("2,000,000"), "{bad}: {reason}");
        }
        assert!(Limit::parse("99999999999999999999").is_err_and(|it| it.contains("too large")));
    }

    #[test]
    fn limits_are_exact_at_their_edge() {
        let check = |limit, before, after| {
            Check {
                subject: Subject::Whole,
                event: "instructions".into(),
                limit,
                before,
                after,
                errors: [0.0; 2],
                place: None,
            }
            .passes()
        };
        assert!(check(Limit::Percent(1.0), Some(1000), 1010));
        assert!(!check(Limit::Percent(1.0), Some(1000), 1011));
        assert!(check(Limit::Percent(0.0), Some(1000), 1000));
        assert!(!check(Limit::Percent(0.0), Some(1000), 1001));
        assert!(check(Limit::More(5), Some(10), 15) && !check(Limit::More(5), Some(10), 16));
        assert!(check(Limit::Most(5), Some(0), 5) && !check(Limit::Most(5), Some(0), 6));
        // New: no per cent of nothing, but so many more.
        assert!(check(Limit::Percent(1.0), None, 1000));
        assert!(check(Limit::More(5), None, 5) && !check(Limit::More(5), None, 6));
    }

    #[test]
    fn one_benchmark_that_fails_fails_them_all() {
        let verdict = samples::exceeded();
        assert!(!verdict.passes() && verdict.benchmarks[1].passes());
        assert_eq!(verdict.benchmarks[1].title(), "group/fine");
        assert_eq!(Format::named("md"), Some(Format::Markdown));
        assert_eq!(Format::named("pdf"), None);
    }

    /// Once, in every form that people read.
    #[test]
    fn another_c_library_is_said_to_move_counts() {
        let told = |rebuilt: &str| {
            let rebuilt = vec![rebuilt.to_owned()];
            let benchmark = Benchmark { rebuilt: rebuilt.clone(), ..Benchmark::default() };
            let verdict = Verdict { benchmarks: vec![benchmark], ..Verdict::default() };
            assert_eq!(libc::notice(&rebuilt).is_some(), rebuilt[0].starts_with("libc."));
            [Format::Text, Format::Markdown, Format::Github].map(|format| {
                let text = verdict.render(format);
                text.lines().filter(|line| line.contains("malloc and other functions")).count()
            })
        };
        assert_eq!(told("libc.so.6"), [1, 1, 1]);
        assert_eq!(told("libm.so.6"), [0, 0, 0]);
    }
}

//! `lwp fleet compare`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use lwp_query::comment::comment;
use lwp_query::compare::Counted;
use lwp_query::compare::{Comparison, Pair, Selector, Single, compare};
use lwp_query::json;
use lwp_query::number::{grouped, percent, signed};
use lwp_query::views::quoted;
use lwp_query::{Filter, Session, matches};

use super::steps::lines;
use super::{AskedOf, print};
use crate::args::AskedArgs;
use crate::failure::{EXCEEDED, Failure, VANISHED};
use crate::git;

/// The form of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// For people
    #[default]
    Text,
    /// For a comment on a pull request
    Markdown,
    /// JSON
    Json,
}

/// `lwp fleet compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The earlier side: the first letters of a commit or id, a name that git knows (HEAD^, v1.2),
    /// branch:NAME, label:KEY=VALUE, or base: the nearest ancestor of the later side that has
    /// recordings
    pub before: String,

    /// The later side [default: HEAD]
    pub after: Option<String>,

    #[command(flatten)]
    pub asked: AskedArgs,

    /// Count this event [default: instructions, or the only event of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Compare functions together with everything that they called
    #[arg(long)]
    pub children: bool,

    /// Exit with status 3 if the count of a benchmark grew by more than this: +0.1%, +1000;
    /// otherwise with 4 if a benchmark vanished
    #[arg(short, long, value_name = "LIMIT")]
    pub limit: Option<String>,

    /// Let this benchmark vanish; * stands for any letters; the option may be repeated
    #[arg(long, value_name = "BENCHMARK", requires = "limit")]
    pub allow_vanished: Vec<String>,

    /// Look for base on this branch
    #[arg(long, value_name = "BRANCH", default_value = "origin/HEAD")]
    pub onto: String,

    /// Show at most N functions of a benchmark
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    pub functions: usize,

    /// Print the answer in this format
    #[arg(long, value_enum, default_value_t)]
    pub format: CompareFormat,
}

impl CompareArgs {
    /// The counts to compare.
    pub fn counted(&self) -> Counted<'_> {
        Counted { event: self.event.as_deref(), inclusive: self.children }
    }
}

/// Compares.
pub async fn execute(args: &CompareArgs, remote: AskedOf) -> Result<ExitCode, Failure> {
    let limit = args.limit.as_deref().map(Limit::parse).transpose()?;
    // Without a second side, the first term of the filter stands in its place.
    let (after, terms) = match &args.after {
        Some(text) if text.contains('=') && !text.starts_with("label:") => {
            (None, [std::slice::from_ref(text), args.asked.filter.as_slice()].concat())
        }
        after => (after.clone(), args.asked.filter.clone()),
    };
    let filter = Filter::parse(&terms)?;
    let session = args.asked.source.session(remote).await?;
    let after = match after {
        Some(text) => side(&text)?,
        None => {
            let head = git::commit("HEAD").ok_or_else(|| {
                Failure::new("there is no git tree here whose HEAD could be compared")
            })?;
            Selector::parse(&head)?
        }
    };
    let before = match args.before.as_str() {
        "base" => base(&session, &filter, &args.onto).await?,
        text => side(text)?,
    };
    let compared = compare(&session, (&before, &after), &filter, args.counted()).await?;
    let found = Findings::of(&compared, limit.as_ref(), &args.allow_vanished);
    let names = (before.text.as_str(), after.text.as_str());
    match args.format {
        CompareFormat::Text => print(&text(&compared, names, args.functions))?,
        CompareFormat::Markdown => {
            print(&comment(&compared, names, found.over.len(), args.functions))?;
        }
        CompareFormat::Json => print(&format!("{}\n", json::comparison(&compared, names)))?,
    }
    found.tell(&compared, (&after.text, args.limit.as_deref().unwrap_or("")));
    Ok(found.code())
}

/// Benchmarks that a limit does not allow.
struct Findings<'a> {
    /// Those that grew by more than they may.
    over: Vec<&'a Pair>,
    /// Those that vanished.
    vanished: Vec<&'a Single>,
}

impl<'a> Findings<'a> {
    /// None without a limit. What is noted, somebody has said to be meant.
    fn of(compared: &'a Comparison, limit: Option<&Limit>, allowed: &[String]) -> Self {
        let Some(limit) = limit else { return Self { over: Vec::new(), vanished: Vec::new() } };
        let over = |pair: &&Pair| limit.is_exceeded(pair) && pair.note.is_empty();
        let vanished = |one: &&Single| {
            let names = [one.benchmark.clone(), format!("{} {}", one.project, one.benchmark)];
            let is_allowed = |pattern: &String| names.iter().any(|name| matches(pattern, name));
            one.note.is_empty() && !allowed.iter().any(is_allowed)
        };
        Self {
            over: compared.pairs.iter().filter(over).collect(),
            vanished: compared.only_before.iter().filter(vanished).collect(),
        }
    }

    fn tell(&self, compared: &Comparison, (after, limit): (&str, &str)) {
        for pair in &self.over {
            let change = percent(pair.before.value as f64, pair.after.value as f64);
            let name = compared.name(&pair.project, &pair.benchmark);
            lwp_terminal::say!("lwp-fleet: {name} grew by {change}, more than {limit}");
        }
        for one in &self.vanished {
            let name = compared.name(&one.project, &one.benchmark);
            lwp_terminal::say!("lwp-fleet: {name} vanished: {after} has no recording of it");
        }
        if !self.vanished.is_empty() {
            lwp_terminal::say!(
                "help: --allow-vanished BENCHMARK allows it, and so does a note that names it: lwp fleet note COMMIT TEXT --benchmark BENCHMARK"
            );
        }
    }

    fn code(&self) -> ExitCode {
        match (self.over.is_empty(), self.vanished.is_empty()) {
            (false, _) => ExitCode::from(EXCEEDED),
            (true, false) => ExitCode::from(VANISHED),
            (true, true) => ExitCode::SUCCESS,
        }
    }
}

/// A side as it was named: one of our words, or a commit.
fn side(text: &str) -> Result<Selector, Failure> {
    let named = if text.contains(':') { None } else { git::named(text) };
    Ok(Selector::parse(named.as_deref().unwrap_or(text))?)
}

/// The nearest ancestor that has recordings.
async fn base(session: &Session, filter: &Filter, onto: &str) -> Result<Selector, Failure> {
    let ancestors = git::ancestors(onto);
    let none = |why: String| Failure::new(why).with_help("name a commit to compare with");
    if ancestors.is_empty() {
        return Err(none(format!("git knows no ancestors here: no tree, or no branch {onto}")));
    }
    let list: Vec<String> = ancestors.iter().map(|commit| quoted(commit)).collect();
    let sql = format!(
        "select distinct \"commit\" from recordings where {} and \"commit\" in ({})",
        filter.sql(),
        list.join(", ")
    );
    let known = session.ask(&sql).await?.texts("commit");
    let near = ancestors.iter().enumerate().find(|(_, commit)| known.contains(commit));
    let (distance, commit) = near.ok_or_else(|| {
        none(format!("none of the last {} ancestors was recorded", ancestors.len()))
    })?;
    if distance > 0 {
        lwp_terminal::say!(
            "lwp-fleet: base is {commit}, {distance} commits before the nearest one, which was not recorded"
        );
    }
    Ok(Selector::parse(commit)?)
}

/// The most that a count may grow.
enum Limit {
    Percent(f64),
    Count(i128),
}

impl Limit {
    fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = || Failure::new(format!("'{text}' is no limit: +0.1% or +1000 is wanted"));
        let number = text.strip_prefix('+').unwrap_or(text);
        match number.strip_suffix('%') {
            Some(percent) => {
                percent.parse().ok().filter(|p: &f64| p.is_finite()).map(Self::Percent)
            }
            None => number.replace('_', "").parse().ok().map(Self::Count),
        }
        .ok_or_else(wrong)
    }

    fn is_exceeded(&self, pair: &Pair) -> bool {
        // Runs of one commit differ by as much.
        if pair.growth() <= pair.spread().into() {
            return false;
        }
        match self {
            Self::Percent(most) => pair.percent() > *most,
            Self::Count(most) => pair.growth() > *most,
        }
    }
}

fn text(compared: &Comparison, names: (&str, &str), functions: usize) -> String {
    let mut out = format!("# {}: {} compared with {}\n", compared.counted(), names.1, names.0);
    let identical = compared.pairs.iter().filter(|pair| pair.is_identical()).count();
    for pair in compared.pairs.iter().filter(|pair| !pair.is_identical()) {
        let (before, after) = (pair.before.value, pair.after.value);
        out += &format!(
            "{} {}: {} to {}, {} ({})\n",
            pair.project,
            pair.benchmark,
            grouped(before.into()),
            grouped(after.into()),
            signed(i128::from(after) - i128::from(before)),
            percent(before as f64, after as f64),
        );
        if !pair.note.is_empty() {
            out += &format!("    noted: {}\n", pair.note);
        }
        for caveat in pair.caveats() {
            out += &format!("    note: {caveat}\n");
        }
        out += &lines(&pair.changes, functions);
    }
    out += &format!("{identical} of {} benchmarks are identical\n", compared.pairs.len());
    for (list, name) in [(&compared.only_before, names.0), (&compared.only_after, names.1)] {
        if !list.is_empty() {
            let list = list.iter().map(|one| format!("{} {}", one.project, one.benchmark));
            out += &format!("only in {name}: {}\n", list.collect::<Vec<_>>().join(", "));
        }
    }
    out
}

//! `lwp fleet steps`.

use clap::Args;
use lwp_query::compare::{Change, Changes};
use lwp_query::events::event;
use lwp_query::json;
use lwp_query::number::{grouped, percent, signed};
use lwp_query::steps::{Found, steps};

use super::{AskedOf, print};
use crate::args::AskedArgs;
use crate::failure::Failure;
use crate::git;

/// `lwp fleet steps`.
#[derive(Args, Clone, Debug)]
pub struct StepsArgs {
    #[command(flatten)]
    pub asked: AskedArgs,

    /// Count this event [default: instructions, or the only event of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Show at most N functions of a step
    #[arg(short = 'n', long, value_name = "N", default_value_t = 5)]
    pub functions: usize,

    /// Print JSON
    #[arg(short, long)]
    pub json: bool,
}

/// Finds steps.
pub async fn execute(args: &StepsArgs, remote: AskedOf) -> Result<(), Failure> {
    let (session, filter) = args.asked.session(remote).await?;
    let event = event(&session, &filter, args.event.as_deref()).await?;
    let found = steps(&session, &filter, &event, &git::order(), args.functions).await?;
    if args.json {
        return print(&format!("{}\n", json::steps(&found)));
    }
    if found.is_empty() {
        return print("no steps\n");
    }
    print(&found.iter().map(|found| text(found, &event)).collect::<String>())
}

fn text(found: &Found, event: &str) -> String {
    let step = &found.step;
    let (before, after) = (step.before as i128, step.after as i128);
    let short = |commit: &str| commit.get(..12).unwrap_or(commit).to_owned();
    let mut out = format!(
        "{}  {} {}: {} {event}, {} to {} ({})\n",
        short(&found.commit),
        found.project,
        found.benchmark,
        signed(after - before),
        grouped(before),
        grouped(after),
        percent(step.before, step.after),
    );
    out += &format!("    after {}, recorded {}\n", short(&found.before), found.started);
    if !found.note.is_empty() {
        out += &format!("    noted: {}\n", found.note);
    }
    out + &lines(&found.changes, found.changes.changed.len())
}

/// The functions that changed most, and how many only have another name.
pub fn lines(changes: &Changes, most: usize) -> String {
    let mut out: String = changes.changed.iter().take(most).map(line).collect();
    let more = changes.changed.len().saturating_sub(most);
    if more > 0 {
        out += &format!("    {more} more functions changed\n");
    }
    for line in [changes.indistinguishable(), changes.renames()].into_iter().flatten() {
        out += &format!("    {line}\n");
    }
    out
}

fn line(change: &Change) -> String {
    let former = change.former().map_or(String::new(), |former| format!(", {former}"));
    let difference = signed(change.difference()) + &change.plus_minus();
    let (name, module) = (&change.function, &change.module);
    format!("    {difference:>16}  {name} [{module}]{former}\n")
}

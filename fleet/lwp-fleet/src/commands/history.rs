//! `lwp fleet history`.

use clap::Args;
use lwp_query::events::event;
use lwp_query::history::{Asked, Series, history};
use lwp_query::json;
use lwp_query::number::{grouped, percent};

use super::{AskedOf, print};
use crate::args::{AskedArgs, FormatArg};
use crate::failure::Failure;
use crate::git;

/// `lwp fleet history`.
#[derive(Args, Clone, Debug)]
pub struct HistoryArgs {
    #[command(flatten)]
    pub asked: AskedArgs,

    /// Count this event [default: instructions, or the only event of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Count only in this function; * stands for any letters
    #[arg(short, long, value_name = "FUNCTION")]
    pub function: Option<String>,

    /// Print the answer in this format
    #[arg(long, value_enum, default_value_t)]
    pub format: FormatArg,
}

/// Shows a count by commit.
pub async fn execute(args: &HistoryArgs, remote: AskedOf) -> Result<(), Failure> {
    let (session, filter) = args.asked.session(remote).await?;
    let order = git::order();
    let event = event(&session, &filter, args.event.as_deref()).await?;
    let asked = Asked { event: &event, function: args.function.as_deref(), order: &order };
    let all = history(&session, &filter, &asked).await?;
    if let Some(name) = &args.function
        && all.iter().flat_map(|series| &series.points).all(|point| point.value == 0)
    {
        let cause = format!("no function like '{name}' has {event} in these recordings");
        return Err(Failure::new(cause)
            .with_help("lwp fleet report lists functions; in a name, * stands for any letters"));
    }
    match args.format {
        FormatArg::Table => {
            let one = |series| text(series, &event, args.function.as_deref());
            print(&all.iter().map(one).collect::<String>())
        }
        FormatArg::Csv => print(&csv(&all)),
        FormatArg::Json => print(&format!("{}\n", json::histories(&all))),
    }
}

fn text(series: &Series, event: &str, function: Option<&str>) -> String {
    let of = function.map_or(String::new(), |function| format!(" of {function}"));
    let mut out = format!("# {} {}: {event}{of}\n", series.project, series.benchmark);
    let mut last: Option<i64> = None;
    for (index, point) in series.points.iter().enumerate() {
        let step = series.steps.iter().find(|step| step.at == index);
        let change = match last {
            Some(last) if last != point.value => percent(last as f64, point.value as f64),
            _ => String::new(),
        };
        let mark = match step {
            Some(step) if step.after > step.before => "step up",
            Some(_) => "step down",
            None => "",
        };
        let line = format!(
            "{:<12}  {}  {:>16}  {change:>9}  {mark:<9}  {}",
            point.commit.get(..12).unwrap_or(&point.commit),
            point.started,
            grouped(point.value.into()),
            point.note
        );
        out += line.trim_end();
        out.push('\n');
        last = Some(point.value);
    }
    out
}

fn csv(all: &[Series]) -> String {
    use lwp_terminal::escape::csv as field;
    let mut out = "project,benchmark,commit,started,value,runs,step,note\n".to_owned();
    for series in all {
        for (index, point) in series.points.iter().enumerate() {
            let step = series.steps.iter().any(|step| step.at == index);
            out += &format!(
                "{},{},{},{},{},{},{step},{}\n",
                field(&series.project),
                field(&series.benchmark),
                field(&point.commit),
                point.started,
                point.value,
                point.runs,
                field(&point.note)
            );
        }
    }
    out
}

//! `lwp top`: the hottest functions of a program while it runs.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use lwp_vcpu::Plan;

use crate::args::usage_error;
use crate::counting::CountingArgs;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::profiles::NameArgs;
use crate::requests::Requests;
use crate::signals::{self, Program};
use crate::stat::{control, report};
use crate::threads;
use crate::top::{self, Feed, Frames, Plain};

/// `lwp top`.
#[derive(Args, Clone, Debug, Default)]
pub struct TopArgs {
    /// Draw a frame every SECONDS
    #[arg(short = 'd', long = "interval", value_name = "SECONDS", default_value = "1")]
    pub interval: String,

    /// Print frames one after the other [default without a terminal]
    #[arg(short, long)]
    pub batch: bool,

    /// End after N frames: a program that was started is told to end, an attached process is
    /// released
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub frames: Option<u64>,

    /// Print one frame and end, like -n 1
    #[arg(long, conflicts_with = "frames")]
    pub once: bool,

    /// Print frames as JSON, one object a line
    #[arg(short, long)]
    pub json: bool,

    /// Print at most N functions in a frame
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,

    /// Print frames to FILE instead of standard error; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    #[command(flatten)]
    pub names: NameArgs,

    /// The program to show, and the time in which it is shown.
    #[command(flatten)]
    pub counting: CountingArgs,
}

/// Shows frames until the program ends or there were enough.
pub fn execute(args: &TopArgs) -> Result<Ending, Failure> {
    let interval = interval(&args.interval)?;
    let mut config = args.counting.configuration(Plan::Exact)?;
    config.reports.checkpoint = interval;
    let requests = Arc::new(Requests::default());
    if let Some(place) = &args.counting.control {
        config.counted.control_line = Some(control::serve(place, Arc::clone(&requests))?);
    }
    let connected = requests.connect();
    let (feed, pieces) = Feed::new();
    let frames = Frames::new(args.counting.title(), args.names.debug_dirs.clone(), interval);
    let viewer = viewer(args, frames, &requests)?;
    // The screen follows the terminal's size by itself.
    let program = if args.counting.attaches() { Program::Attached } else { Program::Beside };
    signals::answer(Arc::clone(&requests), program)?;
    args.counting.schedule(&requests)?;
    let companion = args.counting.companion(&requests)?;
    let viewing = threads::start("lwp-viewer", move || viewer.show(&pieces))?;
    // The feed ends with the run, and the viewer with the feed.
    let outcome = lwp_vcpu::run_profiled(&config, Some(connected), Some(Box::new(feed)));
    requests.disconnect();
    let shown = viewing.join().unwrap_or(Ok(false));
    let outcome = outcome?;
    for process in outcome.processes.iter().filter_map(report::uncounted) {
        lwp_terminal::say!("lwp: not counted: {process}");
    }
    let ending = args.counting.ending(companion, &outcome);
    // A program that was ended from here has not failed.
    Ok(if shown? { Ending::SUCCESS } else { ending })
}

/// A view for the terminal, if there is one and nothing else is asked for.
fn viewer(
    args: &TopArgs,
    frames: Frames,
    requests: &Arc<Requests>,
) -> Result<Box<dyn top::Viewer>, Failure> {
    #[cfg(feature = "tui")]
    let plain = args.batch || args.json || args.once || args.frames.is_some();
    #[cfg(feature = "tui")]
    if !plain && args.output.is_none() && crate::tui::interactive() {
        return Ok(Box::new(top::Screen::open(frames, Arc::clone(requests))?));
    }
    let out: Box<dyn Write + Send> = match &args.output {
        None => Box::new(std::io::stderr()),
        Some(path) if path.as_os_str() == "-" => Box::new(std::io::stdout()),
        Some(path) => Box::new(File::create(path).map_err(|error| Failure::output(path, &error))?),
    };
    let requests = Arc::clone(requests);
    let most = if args.once { Some(1) } else { args.frames };
    let out = Box::new(lwp_terminal::Plain::new(out));
    Ok(Box::new(Plain { frames, out, limit: args.limit, json: args.json, most, requests }))
}

/// A positive time, from a tenth of a second to an hour.
fn interval(text: &str) -> Result<Duration, Failure> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        usage_error(
            format!("'{text}' is no interval"),
            "give seconds between 0.1 and 3600, as in -d 0.5",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_seconds() {
        assert_eq!(interval("0.5").unwrap(), Duration::from_millis(500));
        for wrong in ["0", "-1", "nan", "inf", "x", "", "1e9"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}

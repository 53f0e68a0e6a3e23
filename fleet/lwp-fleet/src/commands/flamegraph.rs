//! `lwp fleet flamegraph`.

use std::path::PathBuf;

use clap::Args;
use lwp_query::Filter;
use lwp_query::events::event;
use lwp_query::flame::{Picture, flame};
use lwp_terminal::escape::printable;

use super::AskedOf;
use crate::args::AskedArgs;
use crate::failure::Failure;

/// `lwp fleet flamegraph`.
#[derive(Args, Clone, Debug)]
pub struct FlamegraphArgs {
    #[command(flatten)]
    pub asked: AskedArgs,

    /// Count this event [default: instructions, or the only event of the recordings]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Colour functions by their change since these recordings: terms of a filter in one word
    #[arg(long, value_name = "FILTER")]
    pub baseline: Option<String>,

    /// Write to FILE, an .svg picture or an .html page; - is standard output, a picture
    #[arg(short, long, value_name = "FILE", default_value = "fleet.svg")]
    pub output: PathBuf,
}

/// Draws.
pub async fn execute(args: &FlamegraphArgs, remote: AskedOf) -> Result<(), Failure> {
    let end = args.output.extension().map(|end| end.to_string_lossy().to_lowercase());
    let page = match end.as_deref() {
        None | Some("svg") => false,
        Some("html" | "htm") => true,
        Some(other) => {
            let cause = format!("flame graphs are not drawn as .{other}");
            return Err(Failure::new(cause).with_help("name a file that ends in .svg or .html"));
        }
    };
    let (session, filter) = args.asked.session(remote).await?;
    let terms = args
        .baseline
        .as_ref()
        .map(|text| text.split(' ').filter(|term| !term.is_empty()).collect::<Vec<_>>());
    let baseline = terms.map(|terms| Filter::parse(&terms)).transpose()?;
    let event = event(&session, &filter, args.event.as_deref()).await?;
    let picture = Picture { filter: &filter, baseline: baseline.as_ref(), event: &event, page };
    super::write(&args.output, &flame(&session, &picture).await?)?;
    if args.output.as_os_str() != "-" {
        lwp_terminal::say!("lwp-fleet: wrote {}", printable(&args.output.display().to_string()));
    }
    Ok(())
}

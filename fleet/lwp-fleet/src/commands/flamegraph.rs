//! `lwp fleet flamegraph`.

use lwp_query::Filter;
use lwp_query::events::event;
use lwp_query::flame::{Picture, flame};
use lwp_terminal::escape::printable;

use super::AskedOf;
use crate::args::FlamegraphArgs;
use crate::failure::Failure;

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

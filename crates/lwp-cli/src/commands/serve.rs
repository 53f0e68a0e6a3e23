//! `lwp serve`: recordings as pages in a browser.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::Args;
use lwp_page::{Maps, Pages, Server, Subject};
use lwp_profile::Recording;

use super::annotate::prefix_maps;
use crate::comparing::MapArgs;
use crate::ending::Ending;
use crate::failure::Failure;
use crate::profiles::{self, DEFAULT_FILE, NameArgs};

/// `lwp serve`.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// Recordings, the oldest first; any two can be compared [default: lwp.data]
    #[arg(value_name = "RECORDING")]
    pub recordings: Vec<PathBuf>,

    /// Listen on this port of 127.0.0.1 [default: any free one]
    #[arg(short, long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,

    /// Open the page with xdg-open
    #[arg(long)]
    pub open: bool,

    /// Read source files below PATH instead of PREFIX, the place in the debug information
    #[arg(long = "source", value_name = "PREFIX=PATH")]
    pub sources: Vec<String>,

    /// Files that are compared with each other.
    #[command(flatten)]
    pub maps: MapArgs,

    /// Sources of names.
    #[command(flatten)]
    pub names: NameArgs,
}

/// Serves until it is interrupted.
pub fn execute(args: &ServeArgs) -> Result<Ending, Failure> {
    let maps = Maps { sources: prefix_maps(&args.sources)?, modules: args.maps.pairs()? };
    let default = [PathBuf::from(DEFAULT_FILE)];
    let paths = if args.recordings.is_empty() { &default[..] } else { &args.recordings };
    let bound = |error: std::io::Error| {
        Failure::io(format!("port {} of 127.0.0.1", args.port), &error)
            .with_help("without --port any free one is taken")
    };
    let server = Server::bind(args.port).map_err(bound)?;
    let mut subjects = Vec::with_capacity(paths.len());
    for path in paths {
        subjects.push(Arc::new(subject(path, args, maps.clone())?));
    }
    let token = lwp_page::token().map_err(|error| Failure::io("random numbers", &error))?;
    let url = server.url(&token);
    // Whoever reads the address from a pipe gets the line alone.
    super::print(&format!("{url}\n"))?;
    lwp_terminal::say!(
        "lwp: serving until you interrupt it; only clients that know the address get answers"
    );
    if args.open {
        open(&url);
    }
    prepare(&subjects);
    let pages = Pages { shelf: Box::new(subjects), token, hosts: server.hosts() };
    server.run(pages).map_err(|error| Failure::io("the server", &error))?;
    Ok(Ending::SUCCESS)
}

/// Prepares what takes longest to be shown first, while the first pages are looked at.
fn prepare(subjects: &[Arc<Subject>]) {
    let subjects = subjects.to_vec();
    let prepare = move || subjects.iter().for_each(|subject| subject.prepare());
    // Without a thread pages make what they show.
    let _ = std::thread::Builder::new().name("prepare".into()).spawn(prepare);
}

fn subject(path: &Path, args: &ServeArgs, maps: Maps) -> Result<Subject, Failure> {
    let say = |recording: &Recording| profiles::say(path, recording, &[]);
    lwp_page::load((path, profiles::file(path)?), &args.names.options(), maps, say)
        .map_err(|error| profiles::unreadable(path, &error))
}

/// Opens a browser, if there is one. The address is printed anyway.
fn open(url: &str) {
    let quiet = || Stdio::null();
    let started =
        Command::new("xdg-open").arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
    if let Err(error) = started {
        lwp_terminal::say!("lwp: xdg-open: {error}");
    }
}

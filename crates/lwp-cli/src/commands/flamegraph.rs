//! `lwp flamegraph`: a recording as a picture.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use lwp_profile::{Function, Mode, Profile, Tree};
use lwp_report::flame::{self, Before, Graph, Style};
use lwp_symbols::Language;
use lwp_terminal::escape::printable;

use crate::args::usage_error;
use crate::comparing::{self, MapArgs};
use crate::ending::Ending;
use crate::failure::Failure;
use crate::profiles::{self, InputArgs, NameArgs};

/// `lwp flamegraph`.
#[derive(Args, Clone, Debug, Default)]
pub struct FlamegraphArgs {
    /// The recording.
    #[command(flatten)]
    pub input: InputArgs,

    /// Write to FILE: an .svg picture or an .html page, by the end of its name; - is standard
    /// output, a picture
    #[arg(short, long, value_name = "FILE", default_value = "flamegraph.svg")]
    pub output: PathBuf,

    /// Draw this event as widths [default: the recording's first]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Colour functions by their change since this recording
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,

    /// Files that are compared with each other.
    #[command(flatten)]
    pub maps: MapArgs,

    /// Draw outermost functions at the top
    #[arg(long)]
    pub icicle: bool,

    /// Draw stacks inside out: each function with its callers
    #[arg(long)]
    pub inverted: bool,

    /// Count a recursive call at the function's outermost activation
    #[arg(long)]
    pub fold_recursion: bool,

    /// Write this title above the picture [default: the command]
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,

    /// Leave out frames narrower than this many pixels of 1200
    #[arg(long, value_name = "PIXELS", default_value_t = 0.3)]
    pub min_width: f64,
}

/// Returns whether the file is to be a page; a picture where its name has no end, as that of a
/// device.
fn is_page(file: &Path) -> Result<bool, Failure> {
    let end = file.extension().map(|end| end.to_string_lossy().to_lowercase());
    match end.as_deref() {
        None | Some("svg") => Ok(false),
        Some("html" | "htm") => Ok(true),
        Some(other) => Err(usage_error(
            format!("{}: flame graphs are not drawn as .{other}", file.display()),
            "name a file that ends in .svg or .html: browsers show both, and print them as PDF",
        )),
    }
}

/// Draws.
pub fn execute(args: &FlamegraphArgs) -> Result<Ending, Failure> {
    let page = is_page(&args.output)?;
    let event = args.event.as_deref();
    let input = &args.input.input;
    let recording = profiles::of_event(profiles::read(input)?, event);
    let mut names = args.input.names();
    if names.only.is_none() && !names.no_fold {
        names.without_callers_of = lwp_symbols::mostly_interpreter(&recording);
    }
    let names = &names;
    let (profile, tree, event) = profiles::contexts_of(input, recording, names, event)?;
    let event = profile.events.get(event).map_or("", |event| event.name.as_str());
    let style = Style {
        title: args.title.clone().unwrap_or_else(|| profile.command.clone()),
        icicle: args.icicle,
        least: args.min_width.max(0.0),
        ..Style::default()
    };
    let before = match &args.baseline {
        None => None,
        Some(path) => Some(profiles::open_contexts(path, names, Some(event))?),
    };
    let before = before.map(|(profile, tree, _)| (profile, shaped(tree, args)));
    let tree = shaped(tree, args);
    let before = match &before {
        None => None,
        Some((earlier, tree)) => {
            comparing::warn(earlier, &profile);
            let same = lwp_symbols::counterparts(&args.maps.matched(earlier, &profile)?);
            Some(Before { profile: earlier, tree, same })
        }
    };
    let graph = Graph::new(before.as_ref(), (&profile, &tree), event, &style);
    let text = if page { flame::html(&graph, &style) } else { flame::svg(&graph, &style) };
    profiles::write_text(&args.output, &text)?;
    if args.output.as_os_str() != "-" {
        lwp_terminal::say!("lwp: wrote {}", printable(&args.output.display().to_string()));
        say_which_frames(names, &profile);
    }
    Ok(Ending::SUCCESS)
}

/// Says which frames are left out, or could be.
fn say_which_frames(names: &NameArgs, profile: &Profile) {
    if let Some(language) = names.without_callers_of {
        let (name, word) = (language.name(), language.word());
        lwp_terminal::say!(
            "lwp: left out the interpreter's functions that call {name} functions\n\
             help: --no-fold shows them; --only {word} leaves out those that {name} calls, too"
        );
    } else if let Some(language) = interpreted(profile).filter(|_| names.only.is_none()) {
        let word = language.word();
        lwp_terminal::say!("help: --only {word} leaves out the interpreter's own functions");
    }
}

/// The language of the most functions that an interpreter executes.
fn interpreted(profile: &Profile) -> Option<Language> {
    let of = |function: &Function| {
        let module = profile.modules.get(function.module.index())?;
        let (word, _) = module.path.strip_prefix('[')?.split_once(']')?;
        Language::of_runtime(word)
    };
    let mut counts: BTreeMap<Language, usize> = BTreeMap::new();
    profile.functions.iter().filter_map(of).for_each(|it| *counts.entry(it).or_default() += 1);
    let counts = counts.into_iter().filter(|_| profile.mode == Mode::Sampled);
    counts.max_by_key(|(_, count)| *count).map(|(language, _)| language)
}

/// The tree in the shape that is asked for.
fn shaped(tree: Tree, args: &FlamegraphArgs) -> Tree {
    let tree = if args.fold_recursion { tree.folded() } else { tree };
    match args.inverted {
        // What is less cannot be seen.
        true => tree.inverted(tree.root().total / 100_000),
        false => tree,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_name_is_the_format() {
        let page = |file: &str| is_page(Path::new(file)).ok();
        assert_eq!(
            [page("x.svg"), page("X.SVG"), page("-"), page("/dev/stdout")],
            [Some(false); 4]
        );
        assert_eq!([page("x.html"), page("a.svg/x.htm")], [Some(true); 2]);
        assert_eq!([page("x.pdf"), page("x.png"), page("x.svg.gz")], [None; 3]);
    }
}

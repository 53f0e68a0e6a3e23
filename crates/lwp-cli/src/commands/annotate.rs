//! `lwp annotate`: a function's code with counts.

use std::path::PathBuf;

use clap::Args;
use lwp_profile::{FunctionId, Profile};
use lwp_report::annotate::{self, Options};
use lwp_report::{annotate_text, objdump};
use lwp_symbols::{Origins, function_name, whole_function};
use lwp_terminal::escape::printable;

use crate::args::usage_error;
use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};
use crate::output::OutputArgs;
use crate::profiles::{self, InputArgs};
use crate::sources::Files;

/// `lwp annotate`.
#[derive(Args, Clone, Debug, Default)]
pub struct AnnotateArgs {
    /// The recording.
    #[command(flatten)]
    pub input: InputArgs,

    /// Show this event [default: the recording's first]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Write instructions in the syntax att or intel
    #[arg(short = 'M', long = "disassembler-style", value_name = "STYLE", default_value = "att")]
    pub style: String,

    /// Read source files below PATH instead of PREFIX, the place in the debug information. Rust's
    /// own, /rustc/HASH, are found in an installed toolchain of that build (rustup component add
    /// rust-src)
    #[arg(long = "source", value_name = "PREFIX=PATH")]
    pub sources: Vec<String>,

    /// Show source lines only, with the counts of their instructions added up
    #[arg(long)]
    pub line: bool,

    /// Show the function's loops above the code: entries and iterations of each
    #[arg(long, conflicts_with = "objdump_like")]
    pub loops: bool,

    /// Print the lines of `objdump -d -l -S`, with a count before each instruction
    #[arg(long, conflicts_with = "line")]
    pub objdump_like: bool,

    /// Print text (there is no other form yet)
    #[arg(long, hide = true)]
    pub stdio: bool,

    /// The function: its name or a part of it [default: the hottest one of the program and its own
    /// libraries, or else of all]
    #[arg(value_name = "FUNCTION")]
    pub function: Option<String>,

    /// Colours and pages.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Prints the listing.
pub fn execute(args: &AnnotateArgs) -> Result<Ending, Failure> {
    let intel = match args.style.as_str() {
        "att" => false,
        "intel" => true,
        other => {
            let cause = format!("no disassembler style is called '{other}'");
            return Err(usage_error(cause, "styles are: att, intel"));
        }
    };
    let maps = prefix_maps(&args.sources)?;
    let recording = profiles::read(&args.input.input)?;
    let names = args.input.names();
    names.check(&recording)?;
    let profile = profiles::resolve_whole(&args.input.input, &recording, &names);
    let event = profiles::event(&profile, args.event.as_deref())?;
    let id = chosen(&profile, event, args.function.as_deref())?;
    let mut origins = Origins::new(&recording, &args.input.names.debug_dirs);
    origins.learn(&profile);
    let mut sources = Files::new(maps, &recording.files).doubting(origins);
    let options = Options { event, intel };
    let listing = annotate::function(&profile, id, options, &mut sources);
    let paint = args.output.paint();
    let text = match (args.line, args.objdump_like) {
        (true, _) => annotate_text::source_lines(&listing, paint),
        (_, true) => objdump::listing(&listing, intel),
        _ => annotate_text::painted(&listing, paint),
    };
    let text = match args.loops {
        true => {
            let loops = profiles::loops(&args.input.input, &profile)?;
            lwp_report::loops::brief(&profile, &loops, id) + &text
        }
        false => text,
    };
    args.output.show(&text)?;
    sources.doubts().for_each(|doubt| lwp_terminal::say!("lwp: warning: {doubt}"));
    if let Some(advice) = sources.missing() {
        lwp_terminal::say!("lwp: {advice}");
    }
    Ok(Ending::SUCCESS)
}

/// Pairs of `PREFIX=PATH`.
pub fn prefix_maps(texts: &[String]) -> Result<Vec<(String, PathBuf)>, Failure> {
    texts
        .iter()
        .map(|text| {
            let (prefix, path) = text.split_once('=').ok_or_else(|| {
                usage_error(format!("'{text}' has no '='"), "write --source PREFIX=PATH")
            })?;
            Ok((prefix.to_owned(), PathBuf::from(path)))
        })
        .collect()
}

/// The function asked for, the hottest one of several with the same name.
fn chosen(profile: &Profile, event: usize, name: Option<&str>) -> Result<FunctionId, Failure> {
    let own = profile.by_function();
    let heat = |id: &FunctionId| own[id.index()].get(event);
    let hottest = |ids: &[FunctionId]| ids.iter().copied().max_by_key(heat);
    let Some(name) = name else {
        let all: Vec<FunctionId> = (0..own.len() as u32).map(FunctionId).collect();
        let of_program = all.iter().copied().filter(|id| heat(id) > 0 && is_own(profile, *id));
        let first = hottest(&of_program.collect::<Vec<_>>());
        let Some(any) = hottest(&all) else {
            return Err(Failure::new(OWN_FAILURE, "nothing was recorded"));
        };
        if first.is_some_and(|first| heat(&first) < heat(&any)) {
            say_hotter(profile, any);
        }
        return Ok(first.unwrap_or(any));
    };
    let mut found = annotate::find(profile, name);
    found.sort_by_key(|id| std::cmp::Reverse(heat(id)));
    let mut names: Vec<String> = found.iter().map(|id| function_name(profile, *id, true)).collect();
    names.dedup();
    match names.as_slice() {
        [] => Err(Failure::new(OWN_FAILURE, format!("no function like '{name}' was executed"))
            .with_help("`lwp report` lists those that were")),
        [_] => hottest(&found).ok_or_else(|| Failure::new(OWN_FAILURE, "no such function")),
        several if are_bodies(several) => {
            say_others(several);
            hottest(&found).ok_or_else(|| Failure::new(OWN_FAILURE, "no such function"))
        }
        several => {
            Err(Failure::new(OWN_FAILURE, format!("'{name}' can mean {} functions", several.len()))
                .with_help(format!("name one: {}", listed(several))))
        }
    }
}

/// Returns whether several names are those of bodies of one function.
fn are_bodies(names: &[String]) -> bool {
    let mut functions = names.iter().map(|name| whole_function(name));
    let first = functions.next();
    functions.all(|function| Some(&function) == first.as_ref())
}

/// Says that other bodies of a function are not shown. `names`: the hottest first.
fn say_others(names: &[String]) {
    let (shown, others) = (printable(&names[0]), listed(&names[1..]));
    lwp_terminal::say!(
        "lwp: {shown} is the hottest of {} bodies of this function; others: {others}",
        names.len()
    );
}

/// The first of several names, as words of a shell's command line.
fn listed(names: &[String]) -> String {
    let words = names.iter().take(8).map(|name| super::shell_word(name));
    words.collect::<Vec<_>>().join(", ")
}

/// Returns whether a function is the program's own or one of its libraries', not of the system's.
fn is_own(profile: &Profile, id: FunctionId) -> bool {
    const SYSTEM: [&str; 5] = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "["];
    let module = profile.module_of(id);
    let path = module.interpreted().map_or(module.path.as_str(), |(_, file)| file);
    !SYSTEM.iter().any(|system| path.starts_with(system))
}

/// Says that a function which was passed over has more than the one that is shown.
fn say_hotter(profile: &Profile, id: FunctionId) {
    let name = printable(&function_name(profile, id, true));
    let module = printable(profile.module_of(id).name());
    lwp_terminal::say!(
        "lwp: this is the hottest function of the program itself; {name} in {module} is hotter"
    );
}

//! `lwp annotate`: a function's code with counts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::Args;
use lwp_profile::{FunctionId, Profile, RecordedFile};
use lwp_report::annotate::{self, Options, Sources};
use lwp_report::{annotate_text, objdump};
use lwp_symbols::function_name;

use crate::args::usage_error;
use crate::ending::Ending;
use crate::failure::{Failure, OWN_FAILURE};
use crate::profiles::{self, InputArgs};

/// `lwp annotate`.
#[derive(Args, Clone, Debug, Default)]
pub struct AnnotateArgs {
    /// The recording.
    #[command(flatten)]
    pub input: InputArgs,

    /// The event to show [default: the recording's first]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,

    /// Syntax of instructions: att or intel
    #[arg(short = 'M', long = "disassembler-style", value_name = "STYLE", default_value = "att")]
    pub style: String,

    /// Read source files below PATH where the debug information says PREFIX
    #[arg(long = "source", value_name = "PREFIX=PATH")]
    pub sources: Vec<String>,

    /// Show source lines only, with the counts of their instructions added up
    #[arg(long)]
    pub line: bool,

    /// Print lines as `objdump -d -l -S` has them, each instruction's count before it
    #[arg(long, conflicts_with = "line")]
    pub objdump_like: bool,

    /// Print text (there is no other form yet)
    #[arg(long, hide = true)]
    pub stdio: bool,

    /// The function: its name or a part of it [default: the hottest one]
    #[arg(value_name = "FUNCTION")]
    pub function: Option<String>,
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
    let profile = profiles::resolve_whole(&args.input.input, &recording, &args.input.names);
    let event = profiles::event(&profile, args.event.as_deref())?;
    let id = chosen(&profile, event, args.function.as_deref())?;
    let mut sources = Files::new(maps, &recording.files);
    let options = Options { event, intel };
    let listing = annotate::function(&profile, id, options, &mut sources);
    let text = match (args.line, args.objdump_like) {
        (true, _) => annotate_text::source_lines(&listing),
        (_, true) => objdump::listing(&listing, intel),
        _ => annotate_text::listing(&listing),
    };
    super::print(text.as_bytes())?;
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
        return hottest(&all).ok_or_else(|| Failure::new(OWN_FAILURE, "nothing was recorded"));
    };
    let mut found = annotate::find(profile, name);
    found.sort_by_key(|id| std::cmp::Reverse(heat(id)));
    let mut names: Vec<String> = found.iter().map(|id| function_name(profile, *id, true)).collect();
    names.dedup();
    match names.as_slice() {
        [] => Err(Failure::new(OWN_FAILURE, format!("no function like '{name}' was executed"))
            .with_remedy("`lwp report` lists those that were")),
        [_] => hottest(&found).ok_or_else(|| Failure::new(OWN_FAILURE, "no such function")),
        several => {
            Err(Failure::new(OWN_FAILURE, format!("'{name}' can mean {} functions", several.len()))
                .with_remedy(format!("name one: {}", several[..several.len().min(8)].join(", "))))
        }
    }
}

/// Source files, each read once.
#[derive(Debug)]
pub struct Files<'a> {
    maps: Vec<(String, PathBuf)>,
    kept: &'a [RecordedFile],
    lines: HashMap<String, Option<Vec<String>>>,
}

impl<'a> Files<'a> {
    /// Files of a recording, or of this machine.
    pub fn new(maps: Vec<(String, PathBuf)>, kept: &'a [RecordedFile]) -> Self {
        Self { maps, kept, lines: HashMap::new() }
    }

    fn read(&self, file: &str) -> Option<Vec<u8>> {
        if let Some(kept) = self.kept.iter().find(|kept| kept.path == file) {
            return Some(kept.bytes.clone());
        }
        for (prefix, path) in &self.maps {
            if let Some(rest) = file.strip_prefix(prefix.as_str()) {
                let found = std::fs::read(path.join(rest.trim_start_matches('/')));
                if let Ok(bytes) = found {
                    return Some(bytes);
                }
            }
        }
        std::fs::read(Path::new(file)).ok()
    }
}

impl Sources for Files<'_> {
    fn line(&mut self, file: &str, line: u32) -> Option<String> {
        if !self.lines.contains_key(file) {
            let lines = self
                .read(file)
                .map(|bytes| String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect());
            self.lines.insert(file.to_owned(), lines);
        }
        let lines = self.lines.get(file)?.as_ref()?;
        lines.get((line as usize).checked_sub(1)?).cloned()
    }
}

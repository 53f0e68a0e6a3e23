//! Profiles for optimisers: which way the branches of one program or library went, in the forms
//! that BOLT and compilers read.
//!
//! An exact recording has what these tools otherwise take from a processor's last-branch records,
//! which virtual machines don't have, or from an instrumented build: how often every branch was
//! taken and not taken. Recordings don't hold where indirect *jumps* led. [`flow`] works that out
//! from the counts of the code behind them, as far as the file's jump tables tell.

mod binary;
mod bolt;
mod branch_stacks;
mod executed;
mod flow;
mod jump_tables;
mod llvm;
mod ranges;

use lwp_profile::{RecordedModule, Recording};
use lwp_symbols::CompiledError;

use crate::perf_data;

pub use binary::{Binary, BinaryError};
use branch_stacks::BranchStacks;
use executed::Executed;
use flow::Flow;
use llvm::LlvmProfile;
use ranges::Ranges;

/// A profile that an optimiser reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// BOLT's `fdata`.
    Bolt,
    /// LLVM's sample profile as text.
    Llvm,
    /// What AutoFDO's tools make of a processor's records.
    AutoFdo,
    /// What `llvm-profgen` makes of a processor's records.
    ProfGen,
    /// perf's recording with branch stacks.
    BranchStacks,
}

/// The reason why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FeedbackError {
    /// Samples, where all branches are wanted.
    #[error("the recording has samples, and an optimiser's profile needs every branch")]
    Sampled,
    /// Nothing of this file was executed.
    #[error("the recording has no executed code of {0}")]
    NotExecuted(String),
    /// The file is another build.
    #[error("{0} is not the file that was recorded")]
    Changed(String),
    /// There are no names.
    #[error("{0} has no symbol table")]
    Stripped(String),
    /// There are no lines.
    #[error("there is no profile for a compiler of {0}: {1}")]
    Unlined(String, CompiledError),
    /// What was executed has no lines.
    #[error("{0} has no source lines of the functions that were executed")]
    NoLines(String),
}

/// A profile, and what is to be said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The profile: text, except of branch stacks.
    pub content: Vec<u8>,
    /// The number of functions with counts in it.
    pub functions: usize,
    /// Executions of indirect jumps whose targets were worked out, and of those that were not.
    pub indirect_jumps: [u64; 2],
    /// Executed instructions of functions that are in a compiler's profile, and of others.
    instructions: [u64; 2],
    /// Nothing tells the basic blocks of a line apart.
    lacks_discriminators: bool,
}

impl Written {
    /// Executed instructions of functions that are in a compiler's profile, and of others.
    pub fn instructions(&self) -> [u64; 2] {
        self.instructions
    }

    /// Returns whether nothing tells the basic blocks of a line apart.
    pub fn lacks_discriminators(&self) -> bool {
        self.lacks_discriminators
    }
}

impl Feedback {
    /// Every form: name, usual end of file names, what reads it.
    #[rustfmt::skip] // A table: one format a line.
    pub const ALL: &[(Self, &'static str, &'static str, &'static str)] = &[
        (Self::Bolt,    "bolt",    ".fdata",       "llvm-bolt -data=FILE"),
        (Self::Llvm,    "llvm",    ".prof",        "clang -fprofile-sample-use=FILE"),
        (Self::AutoFdo, "autofdo", ".afdo.txt",    "create_llvm_prof --profiler=text"),
        (Self::ProfGen, "profgen", ".profgen.txt", "llvm-profgen --unsymbolized-profile"),
        (Self::BranchStacks, "brstack", ".brstack.data", "perf2bolt, llvm-profgen, AutoFDO"),
    ];

    /// The form called `name`.
    pub fn named(name: &str) -> Option<Self> {
        let row = Self::ALL.iter().find(|row| row.1 == name);
        row.map(|row| row.0)
    }

    /// The form that a file's name suggests.
    pub fn of_file(name: &str) -> Option<Self> {
        let row = Self::ALL.iter().find(|row| name.ends_with(row.2));
        row.map(|row| row.0)
    }

    /// Writes the profile of `binary`, which the recording knows as `path`.
    ///
    /// # Errors
    ///
    /// The recording has samples or nothing of this file, or the file is another one or has no
    /// symbols.
    pub fn write(
        self,
        recording: &Recording,
        path: &str,
        binary: &Binary,
    ) -> Result<Written, FeedbackError> {
        if !recording.events.is_empty() {
            return Err(FeedbackError::Sampled);
        }
        let modules = modules(recording, path, binary)?;
        if !binary.has_symbols() {
            return Err(FeedbackError::Stripped(path.to_owned()));
        }
        let executed = Executed::of(recording, &modules, binary);
        if self == Self::Llvm {
            return llvm_profile(&executed, path, binary);
        }
        let flow = Flow::of(&executed, binary);
        let ranges = || Ranges::of(&executed, &flow, binary);
        let content = match self {
            Self::AutoFdo => ranges().render_for_autofdo(binary).into(),
            Self::ProfGen => ranges().render_for_profgen().into(),
            Self::BranchStacks => {
                let stacks = BranchStacks::of(&executed, &flow, binary);
                let module = recording.modules.get(&modules[0]);
                let placed = stacks.placed(|at| binary.place_in(module?, at));
                perf_data::encode_branches(recording, module, &placed, stacks.period())
            }
            _ => bolt::render(&flow, binary, recording.is_modelled()).into(),
        };
        let (functions, indirect_jumps) = (flow.functions().len(), flow.indirect_jumps());
        Ok(Written { content, functions, indirect_jumps, ..Written::default() })
    }
}

fn llvm_profile(
    executed: &Executed,
    path: &str,
    binary: &Binary,
) -> Result<Written, FeedbackError> {
    let profile = LlvmProfile::of(executed, binary);
    let profile = profile.map_err(|error| FeedbackError::Unlined(path.to_owned(), error))?;
    let (functions, instructions) = (profile.functions(), profile.instructions());
    if functions == 0 {
        return Err(FeedbackError::NoLines(path.to_owned()));
    }
    let lacks_discriminators = !profile.has_discriminators();
    let content = profile.render().into();
    Ok(Written { content, functions, instructions, lacks_discriminators, ..Written::default() })
}

/// The paths of programs in a recording, the one that executed most first.
pub fn programs(recording: &Recording) -> Vec<String> {
    let is_program = |id: &u32| {
        let names = recording.names.iter().find(|names| names.module == *id);
        names.is_some_and(|names| names.program)
    };
    let mut sums: Vec<(u64, &str)> = Vec::new();
    for (id, module) in recording.modules.iter().filter(|(id, _)| is_program(id)) {
        let executed = executed::instructions(recording, *id);
        match sums.iter_mut().find(|(_, path)| *path == module.path) {
            Some((sum, _)) => *sum = sum.saturating_add(executed),
            None => sums.push((executed, &module.path)),
        }
    }
    sums.sort_by_key(|(sum, path)| (std::cmp::Reverse(*sum), *path));
    sums.into_iter().map(|(_, path)| path.to_owned()).collect()
}

/// The numbers of the modules that are this file.
fn modules(recording: &Recording, path: &str, binary: &Binary) -> Result<Vec<u32>, FeedbackError> {
    let same_build = |module: &RecordedModule| {
        !module.build_id.is_empty() && module.build_id == binary.build_id()
    };
    let same_file =
        |module: &RecordedModule| module.build_id.is_empty() && module.version == binary.version();
    let numbers = |is_it: &dyn Fn(&RecordedModule) -> bool| -> Vec<u32> {
        let found = recording.modules.iter().filter(|(_, module)| is_it(module));
        found.map(|(id, _)| *id).collect()
    };
    let named = numbers(&|module| module.path == path);
    let found = numbers(&|module| {
        same_build(module)
            || module.path == path && same_file(module) && binary.build_id().is_empty()
    });
    match (found.is_empty(), named.is_empty()) {
        (false, _) => Ok(found),
        (true, true) => Err(FeedbackError::NotExecuted(path.to_owned())),
        (true, false) => Err(FeedbackError::Changed(path.to_owned())),
    }
}

//! The engine that executes a program: the virtual CPU, or for 32-bit programs one step after the
//! other.

use std::path::Path;

use lwp_terminal::escape::printable;
use lwp_vcpu::profile::Sink;
use lwp_vcpu::{Config, Control, Outcome, Target};

use crate::args::usage_error;
use crate::failure::Failure;

/// How many times longer a stepped program takes than natively: from that of long instructions to
/// that of short ones. Measured: docs/book/src/decisions/i386.md.
const FACTOR: &str = "10,000 to 100,000";

/// An engine that is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The program is translated.
    VirtualCpu,
    /// The program has 32 bits.
    Steps,
}

impl Engine {
    /// Chooses the engine for a run, before anything is started or written.
    ///
    /// # Errors
    ///
    /// The run is to do something that cannot be had for a 32-bit program.
    pub fn choose(config: &Config) -> Result<Self, Failure> {
        if !lwp_step::is_for(config) {
            return Ok(Self::VirtualCpu);
        }
        match lwp_step::unsupported(config) {
            None => Ok(Self::Steps),
            Some((what, instead)) => Err(refusal(config, what, instead)),
        }
    }

    /// Fails if `asked`, which this engine does not have for a 32-bit program.
    pub fn refuse(self, config: &Config, asked: bool, option: [&str; 2]) -> Result<(), Failure> {
        let [what, instead] = option;
        match self {
            Self::Steps if asked => Err(refusal(config, what, instead)),
            _ => Ok(()),
        }
    }

    /// Says that the program will take its time, if it will.
    pub fn warn(self, config: &Config) {
        if self == Self::Steps {
            lwp_terminal::say!(
                "lwp: {} is a 32-bit program: lwp executes it one instruction at a time, which \
                 takes {FACTOR} times as long as natively",
                name(config)
            );
        }
    }

    /// Runs `config` to its end.
    pub fn run(
        self,
        config: &Config,
        control: Control,
        sink: Option<Box<dyn Sink>>,
    ) -> Result<Outcome, Failure> {
        Ok(match self {
            Self::VirtualCpu => lwp_vcpu::run_profiled(config, Some(control), sink)?,
            Self::Steps => lwp_step::run(config, Some(control), sink)?,
        })
    }
}

fn name(config: &Config) -> String {
    match &config.target {
        Target::Launch { program, .. } => {
            let name = program.file_name().map_or(program.as_path(), Path::new);
            printable(&name.display().to_string())
        }
        Target::Attach { pid } => format!("process {pid}"),
    }
}

fn refusal(config: &Config, what: &str, instead: &str) -> Failure {
    let cause = format!("{what}: not for 32-bit programs, and {} is one", name(config));
    usage_error(cause, instead)
}

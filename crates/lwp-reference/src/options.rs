//! The command line.

use std::ffi::OsString;

use clap::{Parser, ValueEnum};
use lwp_arch::EventFlags;
use lwp_arch::cpuid::presets;
use lwp_model::Processor;
use lwp_uarch::{Caches, Preset};

use crate::hardware::{Hardware, Interrupt};

/// Runs a native program step by step with the reference LWP unit beside it.
#[derive(Clone, Debug, Parser)]
#[command(name = "lwp-reference")]
pub struct Options {
    /// The processor whose LWP the program sees: bulldozer, steamroller, 4700s or full
    #[arg(long, value_name = "CPU", default_value = "full", value_parser = known_cpu)]
    pub cpu: String,

    /// One of the two published forms of LWP
    #[arg(long, value_enum, default_value = "final")]
    pub revision: Form,

    /// The modelled data caches: family15h, zen4, generic, or `SIZE/WAYS/LINE[@CYCLES]` for each
    /// level
    #[arg(long, value_name = "CACHES", default_value = "generic")]
    pub cache: Caches,

    /// The modelled machine whose clocks are followed: family15h, zen4 or generic
    #[arg(long, value_name = "PRESET", default_value = "generic", value_parser = preset)]
    pub clocks: &'static Preset,

    /// Events that the system lets programs count, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = event)]
    pub events: Option<Vec<EventFlags>>,

    /// The modelled machine whose branch predictor is there; without, records say that nothing is
    /// known
    #[arg(long, value_name = "PRESET", value_parser = preset)]
    pub predictor: Option<&'static Preset>,

    /// Seed of the random bits of reloaded counters, the same for every thread
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u32,

    /// The signal that stands for the threshold interrupt, by number; sent if the program handles
    /// it
    #[arg(long, value_name = "N", default_value_t = libc::SIGPWR)]
    pub threshold_signal: i32,

    /// The program and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, required = true)]
    pub command: Vec<OsString>,
}

/// A published form of LWP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// The feature of Family 15h processors.
    Final,
    /// The proposal of July 2007.
    #[value(name = "2007")]
    Proposal,
}

impl Options {
    /// The processor that these options describe.
    pub fn hardware(&self) -> Hardware {
        Hardware {
            processor: Some(self.processor()),
            events: self.granted(),
            caches: self.cache.clone(),
            clocks: self.clocks,
            predictor: self.predictor.map(|preset| preset.predictor),
            seed: self.seed,
            interrupt: Some(Interrupt::Thread(self.threshold_signal)),
        }
    }

    /// The events that are granted.
    fn granted(&self) -> EventFlags {
        self.events.as_ref().map_or(EventFlags::all(), |events| events.iter().copied().collect())
    }

    /// The processor to model.
    fn processor(&self) -> Processor {
        match self.revision {
            Form::Proposal => Processor::proposal(),
            Form::Final => {
                let row = presets::ALL.into_iter().find(|(name, _)| *name == self.cpu);
                row.map_or(Processor::full(), |(_, capabilities)| Processor::shipped(capabilities))
            }
        }
    }
}

fn known_cpu(name: &str) -> Result<String, String> {
    match presets::ALL.iter().any(|(known, _)| *known == name) {
        true => Ok(name.to_owned()),
        false => Err(format!("known are {}", presets::ALL.map(|(name, _)| name).join(", "))),
    }
}

fn event(name: &str) -> Result<EventFlags, String> {
    EventFlags::event_named(name).ok_or_else(|| format!("no event is named {name:?}"))
}

fn preset(name: &str) -> Result<&'static Preset, String> {
    let known = || lwp_uarch::presets::ALL.map(|preset| preset.name).join(", ");
    lwp_uarch::presets::by_name(name).ok_or_else(|| format!("known are {}", known()))
}

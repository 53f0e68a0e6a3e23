//! The options of Lightweight Profiling.

use clap::{Args, ValueEnum};
use lwp_vcpu::{Interrupt, LwpConfig, Plan, machine_named};

use crate::args::Cpu;

/// Which LWP the processor has, and how its interrupt arrives.
#[derive(Args, Clone, Debug, Default)]
pub struct LwpArgs {
    /// Which of the two published forms of Lightweight Profiling the processor has
    #[arg(long, value_enum, value_name = "FORM", default_value = "final")]
    pub revision: Revision,

    /// The processor has no Lightweight Profiling
    #[arg(long, conflicts_with = "revision")]
    pub no_lwp: bool,

    /// What the threshold interrupt becomes: none, or a signal's number, for the thread whose ring it is
    /// or, with `:process`, for its process. It is sent only to a program that handles it
    #[arg(long, value_name = "SIGNAL[:process]", value_parser = interrupt, default_value = "30")]
    pub interrupt: Option<Interrupt>,

    /// The modelled machine whose clocks the clock events follow: family15h, zen4 or generic
    #[arg(long, value_name = "MACHINE", default_value = "generic", value_parser = clocks)]
    pub clocks: Option<String>,
}

/// A published form of LWP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Revision {
    /// As the processors of Family 15h had it
    #[default]
    #[value(name = "final")]
    Final,
    /// As it was proposed in 2007
    #[value(name = "2007")]
    Proposal,
}

impl LwpArgs {
    /// The configuration that these options ask for. A program that is counted has LWP only if it was
    /// asked for: what it does to find it would count too.
    pub fn config(&self, cpu: Option<Cpu>, plan: Plan) -> Option<LwpConfig> {
        let asked = self.revision == Revision::Proposal || cpu.is_some_and(Cpu::names_lwp);
        if self.no_lwp || plan == Plan::Exact && !asked {
            return None;
        }
        let mut config = match self.revision {
            Revision::Final => LwpConfig::part(cpu.map_or("full", Cpu::lwp_part))?,
            Revision::Proposal => LwpConfig::proposal(),
        };
        if let Some(interrupt) = self.interrupt {
            config.interrupt = interrupt;
        }
        if let Some(machine) = self.clocks.as_deref().and_then(machine_named) {
            config.machine = machine;
        }
        Some(config)
    }
}

fn clocks(name: &str) -> Result<String, String> {
    match machine_named(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err("known are family15h, zen4 and generic".into()),
    }
}

fn interrupt(text: &str) -> Result<Interrupt, String> {
    let (signal, whom) = text.split_once(':').unwrap_or((text, "thread"));
    if text == "none" {
        return Ok(Interrupt::None);
    }
    let number: i32 = signal.parse().map_err(|_| "a signal's number is wanted".to_owned())?;
    if !(1..=64).contains(&number) || number == 9 || number == 19 {
        return Err(format!("signal {number} cannot be handled"));
    }
    match whom {
        "thread" => Ok(Interrupt::Thread(number)),
        "process" => Ok(Interrupt::Process(number)),
        _ => Err("only `thread` and `process` can get the signal".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_signals_for_a_thread_or_a_process() {
        assert_eq!(interrupt("none"), Ok(Interrupt::None));
        assert_eq!(interrupt("27"), Ok(Interrupt::Thread(27)));
        assert_eq!(interrupt("34:process"), Ok(Interrupt::Process(34)));
        for bad in ["", "9", "0", "65", "10:all", "PROF"] {
            assert!(interrupt(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_part_is_chosen_by_the_processor() {
        let args = LwpArgs::default();
        let bulldozer = args.config(Some(Cpu::Bulldozer), Plan::Exact).expect("there is LWP");
        let full = args.config(None, Plan::Plain).expect("there is LWP");
        assert!(args.config(None, Plan::Exact).is_none());
        assert_ne!(bulldozer.processor, full.processor);
        assert!(LwpArgs { no_lwp: true, ..LwpArgs::default() }.config(None, Plan::Plain).is_none());
    }
}

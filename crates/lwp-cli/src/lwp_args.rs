//! The options of Lightweight Profiling.

use clap::{Args, ValueEnum};
use lwp_vcpu::{Caches, EventFlags, Interrupt, LwpConfig, machine_named};
use signal_hook::low_level::signal_name;

use crate::args::Cpu;
use crate::headings;

/// The processor's form of LWP, and the way in which its interrupt arrives.
#[derive(Args, Clone, Debug, Default)]
pub struct LwpArgs {
    /// Emulate this published form of Lightweight Profiling; the form of 2007 has all its events,
    /// whatever --cpu says
    #[arg(long, value_enum, value_name = "FORM", default_value = "final",
        help_heading = headings::HARDWARE)]
    pub revision: Revision,

    /// Emulate a processor without Lightweight Profiling
    #[arg(long, conflicts_with = "revision", help_heading = headings::HARDWARE)]
    pub no_lwp: bool,

    /// Only let programs count these LWP events, separated by commas: values, instructions,
    /// branches, dcache-misses, core-clocks, reference-clocks; none [default: all that the
    /// processor has]
    #[arg(id = "lwp_events", long = "lwp-events", value_name = "LIST", value_parser = events,
        conflicts_with = "no_lwp", help_heading = headings::HARDWARE)]
    pub events: Option<EventFlags>,

    /// Deliver LWP's threshold interrupt as this signal, to the thread whose ring it is or, with
    /// `:process`, to its process, if the program handles the signal. `eventfd:FD` adds one to the
    /// program's eventfd FD instead; none delivers nothing
    #[arg(
        help_heading = headings::HARDWARE,
        long,
        value_name = "SIGNAL[:process]|eventfd:FD|none",
        value_parser = interrupt,
        default_value = "30"
    )]
    pub interrupt: Option<Interrupt>,

    /// Model these data caches: family15h, zen4, generic, or SIZE/WAYS/LINE for each of up to three
    /// levels, separated by commas; @CYCLES behind a level is its latency, `memory` may follow the
    /// last
    #[arg(long, value_name = "CACHES", default_value = "generic", value_parser = caches,
        help_heading = headings::HARDWARE)]
    pub cache: Option<Caches>,

    /// Model the branch predictor of this machine: family15h, zen4, generic, or none; in a program
    /// that profiles itself, each branch then takes microseconds
    #[arg(long, value_name = "MACHINE", default_value = "none", value_parser = predictor,
        help_heading = headings::HARDWARE)]
    pub predictor: Option<String>,

    /// Model the clocks of this machine, which clock events count: family15h, zen4 or generic
    #[arg(long, value_name = "MACHINE", default_value = "generic", value_parser = clocks,
        help_heading = headings::HARDWARE)]
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
    /// The modelled data caches.
    pub fn caches(&self) -> Caches {
        self.cache.clone().unwrap_or_else(|| LwpConfig::default().caches)
    }

    /// Returns whether the processor has the form of 2007.
    pub fn is_of_2007(&self) -> bool {
        self.revision == Revision::Proposal
    }

    /// The configuration that these options ask for. A process that runs already has seen its
    /// processor: it has LWP only if that was asked for.
    pub fn config(&self, cpu: Option<Cpu>, attaches: bool) -> Option<LwpConfig> {
        let asked = self.is_of_2007() || cpu.is_some_and(Cpu::names_lwp);
        if self.no_lwp || attaches && !asked {
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
        if let Some(events) = self.events {
            config.events = events;
        }
        if let Some(caches) = &self.cache {
            config.caches = caches.clone();
        }
        let predictor = self.predictor.as_deref().and_then(machine_named);
        config.predictor = predictor.map(|machine| machine.predictor);
        Some(config)
    }
}

fn clocks(name: &str) -> Result<String, String> {
    match machine_named(name) {
        Some(_) => Ok(name.to_owned()),
        None => Err("known are family15h, zen4 and generic".into()),
    }
}

fn predictor(name: &str) -> Result<String, String> {
    match name {
        "none" => Ok(name.to_owned()),
        _ => clocks(name).map_err(|known| format!("{known}; none for no predictor")),
    }
}

fn caches(text: &str) -> Result<Caches, String> {
    let caches: Caches = text.parse().map_err(|error| format!("{error}"))?;
    LwpConfig::fits(&caches)?;
    Ok(caches)
}

fn events(text: &str) -> Result<EventFlags, String> {
    let flag = |name| {
        EventFlags::event_named(name).ok_or_else(|| {
            let known = EventFlags::EVENTS.map(|(name, _)| name).join(", ");
            format!("no event is named {name:?}; known are {known}, and none")
        })
    };
    text.split(',').map(flag).collect()
}

fn interrupt(text: &str) -> Result<Interrupt, String> {
    if let Some(number) = text.strip_prefix("eventfd:") {
        let number = number.parse().ok().filter(|number| *number >= 0);
        let number = number.ok_or("a descriptor's number is wanted, as in eventfd:100")?;
        return Ok(Interrupt::EventFd(number));
    }
    let (signal, whom) = text.split_once(':').unwrap_or((text, "thread"));
    if text == "none" {
        return Ok(Interrupt::None);
    }
    let number = signal_called(signal).ok_or(
        "a signal is wanted, as in PROF, SIGUSR1, RTMIN+2 or 27:process, or eventfd:FD, or none",
    )?;
    if !(1..=64).contains(&number) || number == 9 || number == 19 {
        return Err(format!("signal {number} cannot be handled"));
    }
    match whom {
        "thread" => Ok(Interrupt::Thread(number)),
        "process" => Ok(Interrupt::Process(number)),
        _ => Err("only `thread` and `process` can get the signal".into()),
    }
}

/// The number of a signal by its name, with or without SIG, or by its number.
fn signal_called(text: &str) -> Option<i32> {
    /// The first one that the C library leaves to programs.
    const RTMIN: i32 = 34;
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let name = text.strip_prefix("SIG").unwrap_or(text);
    if let Some(more) = name.strip_prefix("RTMIN") {
        return match more.strip_prefix('+') {
            Some(more) => more.parse::<u8>().ok().map(|more| RTMIN + i32::from(more)),
            None => more.is_empty().then_some(RTMIN),
        };
    }
    let is_called = |number: &i32| signal_name(*number).is_some_and(|it| it[3..] == *name);
    (1..RTMIN).find(is_called)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_signals_for_a_thread_or_a_process() {
        assert_eq!(interrupt("none"), Ok(Interrupt::None));
        assert_eq!(interrupt("27"), Ok(Interrupt::Thread(27)));
        assert_eq!(interrupt("34:process"), Ok(Interrupt::Process(34)));
        assert_eq!(interrupt("eventfd:100"), Ok(Interrupt::EventFd(100)));
        assert_eq!(interrupt("PROF"), Ok(Interrupt::Thread(27)));
        assert_eq!(interrupt("SIGUSR1:process"), Ok(Interrupt::Process(10)));
        assert_eq!(interrupt("RTMIN"), Ok(Interrupt::Thread(34)));
        assert_eq!(interrupt("SIGRTMIN+2"), Ok(Interrupt::Thread(36)));
        for bad in [
            "",
            "9",
            "0",
            "65",
            "10:all",
            "KILL",
            "STOP",
            "RTMIN+31",
            "RTMIN2",
            "USR3",
            "eventfd",
            "eventfd:",
            "eventfd:-1",
        ] {
            assert!(interrupt(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn events_and_predictors_are_names() {
        assert_eq!(events("branches,values"), Ok(EventFlags::BRE | EventFlags::VAL));
        assert_eq!(events("none"), Ok(EventFlags::empty()));
        assert!(events("branches,").is_err_and(|says| says.contains("known are values")));
        assert!(predictor("zen4").is_ok() && predictor("none").is_ok());
        assert!(predictor("tage").is_err_and(|says| says.contains("none for no predictor")));
    }

    #[test]
    fn caches_that_translated_code_cannot_keep_are_refused() {
        assert!(caches("16K/4/64").is_ok());
        let wide = caches("64K/64/64,1M/8/64");
        assert!(wide.is_err_and(|says| says.contains("16 sets of 64 lines")));
        let direct = caches("32K/1/64,1M/8/64");
        assert!(direct.is_err_and(|says| says.contains("at most 128 sets")));
        assert!(caches("512/2/64,1M/8/64").is_err_and(|says| says.contains("1024 bytes a way")));
    }

    #[test]
    fn a_part_is_chosen_by_the_processor() {
        let args = LwpArgs::default();
        let bulldozer = args.config(Some(Cpu::Bulldozer), true).expect("there is LWP");
        let full = args.config(None, false).expect("there is LWP");
        assert!(args.config(None, true).is_none());
        assert_ne!(bulldozer.processor, full.processor);
        assert!(LwpArgs { no_lwp: true, ..LwpArgs::default() }.config(None, false).is_none());
    }
}

//! The processor that a program finds beyond the real one.

use lwp_arch::EventFlags;
use lwp_model::{LwpUnit, Processor, Xorshift32};
use lwp_uarch::{Caches, Model, PredictorShape, Preset};

/// Lightweight Profiling, and the models behind it.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// The processor whose LWP the program sees; `None` is one without.
    pub processor: Option<Processor>,
    /// Events that the system lets programs count.
    pub events: EventFlags,
    /// The modelled data caches.
    pub caches: Caches,
    /// The modelled machine whose clocks are followed.
    pub clocks: &'static Preset,
    /// The modelled branch predictor; without it, records say that nothing is known.
    pub predictor: Option<PredictorShape>,
    /// Seed of the random bits of reloaded counters, the same for every thread.
    pub seed: u32,
    /// The way in which the threshold interrupt arrives, if the program handles the signal.
    pub interrupt: Option<Interrupt>,
}

/// The signal that stands for the threshold interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// To the thread whose ring it is.
    Thread(i32),
    /// To its process.
    Process(i32),
}

impl Hardware {
    /// A unit as a thread finds it: off.
    pub(crate) fn unit(&self) -> LwpUnit {
        let mut unit = LwpUnit::new(self.processor.unwrap_or_else(Processor::full));
        unit.enable_events(self.events);
        unit
    }

    /// The random bits of a thread.
    pub(crate) fn random(&self) -> Xorshift32 {
        Xorshift32::new(self.seed)
    }

    /// Cold caches and clocks at zero.
    pub(crate) fn cold(&self) -> Model {
        Model::with(self.clocks, &self.caches, self.predictor)
    }

    /// Returns whether programs find LWPINS and LWPVAL, which the form of 2007 does not have.
    pub(crate) fn has_inserts(&self) -> bool {
        matches!(self.processor, Some(Processor::Shipped(_)))
    }
}

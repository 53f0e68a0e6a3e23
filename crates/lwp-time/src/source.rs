//! Where samples come from.

use lwp_perf::sampler::Losses;
use lwp_perf::{Errno, Rings};

use crate::samples::Samples;
use crate::stops::{StopSums, Stops};

/// Where samples come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The kernel takes them.
    Rings(Box<Rings>),
    /// lwp takes them, of threads that it stops.
    Stops(Box<Stops>),
}

impl Source {
    /// Takes in what was sampled before `until`.
    pub fn read(&mut self, samples: &mut Samples<'_>, until: u64) {
        match self {
            Self::Rings(rings) => samples.read(rings, until),
            Self::Stops(stops) => stops.read_switches(samples, until),
        }
    }

    /// Takes no more samples.
    pub fn disable(&mut self) -> Result<(), Errno> {
        match self {
            Self::Rings(rings) => rings.disable(),
            Self::Stops(stops) => {
                stops.disable();
                Ok(())
            }
        }
    }

    /// CPU time of all threads as it was counted for them, in ns.
    pub fn count(&self) -> Result<u64, Errno> {
        match self {
            Self::Rings(rings) => rings.count(),
            Self::Stops(stops) => Ok(stops.count()),
        }
    }

    /// The number of processors that are sampled.
    pub fn processors(&self) -> usize {
        match self {
            Self::Rings(rings) => rings.processors(),
            Self::Stops(_) => 0,
        }
    }

    /// What was lost.
    pub fn losses(&self) -> Losses {
        match self {
            Self::Rings(rings) => rings.losses(),
            Self::Stops(_) => Losses::default(),
        }
    }

    /// Bytes of each ring; 0 if there are none.
    pub fn ring_bytes(&self) -> usize {
        match self {
            Self::Rings(rings) => rings.ring_bytes(),
            Self::Stops(_) => 0,
        }
    }

    /// The stops, if that is how samples are taken.
    pub fn stops(&self) -> Option<StopSums> {
        match self {
            Self::Rings(_) => None,
            Self::Stops(stops) => Some(stops.sums()),
        }
    }
}

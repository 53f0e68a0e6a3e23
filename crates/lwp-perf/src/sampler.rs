//! One event, sampled into a ring.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::attr::{Flags, Modes};
use crate::diagnosis::{Cause, Refused, Unavailable, diagnose};
use crate::event::Event;
use crate::group::{Inherit, Target, place};
use crate::kernel::{Control, Handle, Kernel};
use crate::ring::{Ring, RingError};
use crate::sample::{Record, SampleFormat, Truncated};

/// The way in which an event is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerOptions {
    /// The event that is sampled.
    pub event: Event,
    /// In which modes, where the event's name does not say.
    pub modes: Modes,
    /// Events between two samples.
    pub period: u64,
    /// The code that is sampled.
    pub target: Target,
    /// The sampling of children. The kernel allows it only for rings of one processor.
    pub inherit: Inherit,
    /// The parts of a sample. `IDENTIFIER` is added.
    pub format: SampleFormat,
    /// Size of the ring in pages: a power of two.
    pub ring_pages: usize,
}

impl SamplerOptions {
    /// Samples `event` of `target` in user mode every `period` events: address, thread, time, into
    /// a ring of 64 pages.
    pub fn new(event: Event, period: u64, target: Target) -> Self {
        use SampleFormat as F;
        Self {
            event,
            modes: Modes::USER,
            period,
            target,
            inherit: Inherit::No,
            format: F::IP | F::TID | F::TIME | F::CPU,
            ring_pages: 64,
        }
    }
}

/// The losses that a sampler has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Records for which the ring had no room, as far as the kernel has said.
    pub lost: u64,
    /// The number of times that the kernel stopped sampling because there were too many interrupts.
    pub throttled: u64,
    /// Records that could not be read.
    pub damaged: u64,
}

/// The reason why a record could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// The ring is damaged.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A record is.
    #[error(transparent)]
    Record(#[from] Truncated),
}

/// An event being sampled. Closed when dropped.
#[derive(Debug)]
pub struct Sampler {
    kernel: Arc<dyn Kernel>,
    event: Handle,
    ring: Ring,
    format: SampleFormat,
    losses: Losses,
}

impl Sampler {
    /// Opens `options`, disabled.
    ///
    /// # Errors
    ///
    /// The kernel refuses the event or its ring; the diagnosis says why.
    pub fn open(kernel: Arc<dyn Kernel>, options: &SamplerOptions) -> Result<Self, Unavailable> {
        let format = options.format | SampleFormat::IDENTIFIER;
        let mut attr = options.event.attr(options.modes);
        attr.sample_period = options.period;
        attr.sample_type = format.bits();
        attr.wakeup = 1;
        attr.set(Flags::DISABLED | Flags::SAMPLE_ID_ALL, true);
        attr.set(Flags::INHERIT, options.inherit != Inherit::No);
        attr.set(Flags::INHERIT_THREAD, options.inherit == Inherit::Threads);
        let (pid, cpu) = place(options.target);
        let unavailable = |cause, errno| Unavailable {
            event: options.event.name.clone(),
            index: None,
            cause,
            errno: Some(errno),
        };
        let event = kernel.open(&attr, pid, cpu, None).map_err(|errno| {
            let event = &options.event;
            let refused = Refused { event, attr: &attr, target: options.target, joining: false };
            unavailable(diagnose(&*kernel, refused, errno), errno)
        })?;
        let bytes = options.ring_pages.checked_mul(rustix::param::page_size());
        let pages = bytes.ok_or(Errno::INVAL).and_then(|bytes| kernel.map(&event, bytes));
        let pages = pages.map_err(|errno| {
            let cause = match errno {
                Errno::PERM | Errno::AGAIN => Cause::Locked,
                Errno::NOMEM => Cause::Memory,
                other => Cause::Other(other),
            };
            unavailable(cause, errno)
        })?;
        let losses = Losses::default();
        Ok(Self { kernel, event, ring: Ring::new(pages), format, losses })
    }

    /// Starts sampling, or goes on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn enable(&self) -> Result<(), Errno> {
        self.kernel.control(&self.event, Control::Enable { group: false })
    }

    /// Stops sampling.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn disable(&self) -> Result<(), Errno> {
        self.kernel.control(&self.event, Control::Disable { group: false })
    }

    /// Returns the number of events counted since the sampler was opened, or since it was reset.
    ///
    /// # Errors
    ///
    /// That of read(2); EIO if the kernel has given the event up.
    pub fn count(&self) -> Result<u64, Errno> {
        let mut bytes = [0; 8];
        let read = self.kernel.read(&self.event, &mut bytes)?;
        if read < bytes.len() { Err(Errno::IO) } else { Ok(u64::from_le_bytes(bytes)) }
    }

    /// Forgets every record that waits in the ring, without reading it: a signal handler may call
    /// it.
    pub fn skip(&mut self) {
        self.ring.skip();
    }

    /// Stops sampling and closes the event, without freeing memory: a signal handler may call it.
    pub fn close(&mut self) {
        // What cannot be stopped ends with its ring.
        let _ = self.disable();
        self.event.close();
    }

    /// The open event, to be controlled or waited for.
    pub fn event(&self) -> &Handle {
        &self.event
    }

    /// Does `control` to the event.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn control(&self, control: Control) -> Result<(), Errno> {
        self.kernel.control(&self.event, control)
    }

    /// Takes the oldest record. `None`: there is none. Losses are also added up; see
    /// [`Sampler::losses`]. After an error the next call goes on behind the damage.
    ///
    /// # Errors
    ///
    /// A record cannot be understood.
    pub fn next_record(&mut self) -> Result<Option<Record>, SampleError> {
        let record = match self.ring.next_record() {
            Ok(None) => return Ok(None),
            Ok(Some(raw)) => Record::parse(raw, self.format).map_err(SampleError::from),
            Err(error) => Err(error.into()),
        };
        match &record {
            Ok(Record::Lost { records, .. }) => self.losses.lost += records,
            Ok(Record::LostSamples { samples }) => self.losses.lost += samples,
            Ok(Record::Throttled { .. }) => self.losses.throttled += 1,
            Ok(_) => {}
            Err(_) => self.losses.damaged += 1,
        }
        record.map(Some)
    }

    /// Waits for a record. `Ok(false)`: none came in time. An error: none will come, because the
    /// sampled thread has ended.
    ///
    /// # Errors
    ///
    /// The kernel's, and an event that can bring no more.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Errno> {
        self.kernel.wait(&self.event, timeout)
    }

    /// Returns the losses so far.
    pub fn losses(&self) -> Losses {
        self.losses
    }
}

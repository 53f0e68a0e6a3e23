//! Events that are counted together.

use std::sync::Arc;

use rustix::io::Errno;

use crate::attr::{Attr, Flags, GROUP_READ_FORMAT, Modes};
use crate::diagnosis::{Cause, Refused, Unavailable, diagnose, watchdog};
use crate::event::Event;
use crate::kernel::{Control, Handle, Kernel};
use crate::page::Pages;

/// The code whose events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The calling thread, on any processor.
    CurrentThread,
    /// The thread with this id, on any processor.
    Thread(i32),
    /// Everything on this processor.
    Cpu(u32),
}

/// The counting of new children. Their counts are *added* to the group's when they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Inherit {
    /// The target alone.
    #[default]
    No,
    /// Threads, not processes (Linux 5.13).
    Threads,
    /// Threads and processes.
    All,
}

/// The ways in which a group counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The code under count.
    pub target: Target,
    /// Always on the counters, or in error: [`ReadError::Lost`]. Without it the kernel may count
    /// part of the time, which [`Reading::running_ns`] tells.
    pub pinned: bool,
    /// The counting of children.
    pub inherit: Inherit,
    /// Count from the start; else wait for [`Group::enable`].
    pub enabled: bool,
    /// Start counting at the next exec, where not enabled.
    pub enable_on_exec: bool,
}

impl Options {
    /// Pinned, not inherited, disabled.
    pub fn new(target: Target) -> Self {
        Self { target, pinned: true, inherit: Inherit::No, enabled: false, enable_on_exec: false }
    }
}

/// One member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The event to count.
    pub event: Event,
    /// In which modes, where the event's name does not say.
    pub modes: Modes,
    /// Overflow (signal or sample) every this many events.
    pub period: Option<u64>,
}

impl Request {
    /// Counts `event` in user mode, without overflow.
    pub fn new(event: Event) -> Self {
        Self { event, modes: Modes::USER, period: None }
    }

    /// Counts in `modes` instead.
    #[must_use]
    pub fn in_modes(mut self, modes: Modes) -> Self {
        self.modes = modes;
        self
    }
}

/// The counts of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Time enabled, in ns.
    pub enabled_ns: u64,
    /// Time on the counters, in ns; less than enabled if the kernel had to multiplex.
    pub running_ns: u64,
    /// One value a request, in their order.
    pub values: Vec<u64>,
}

impl Reading {
    /// Returns whether every event was counted all the time. The kernel's times may differ by a
    /// rounding, in either direction.
    pub fn is_complete(&self) -> bool {
        self.running_ns >= self.enabled_ns
    }
}

/// The reason why a group could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A pinned group found no free counters: it counts no more. Values are lost, never zero.
    #[error("the counters were lost to another user{}", if *.watchdog { "; the NMI watchdog holds one: sysctl kernel.nmi_watchdog=0" } else { "" })]
    Lost {
        /// The NMI watchdog held a counter when the group was opened.
        watchdog: bool,
    },
    /// read(2) failed.
    #[error("reading the counters: {0}")]
    Failed(Errno),
    /// The kernel answered in another shape than asked for.
    #[error("the kernel returned {bytes} bytes for {events} events")]
    Shape {
        /// The number of bytes that were returned.
        bytes: usize,
        /// The number of the group's events.
        events: usize,
    },
}

/// An open group of events. Closed when dropped.
#[derive(Debug)]
pub struct Group {
    kernel: Arc<dyn Kernel>,
    events: Vec<Handle>,
    /// One metadata page an event, where [`Group::map`] was allowed to.
    pages: Vec<Box<dyn Pages>>,
    /// True if the group belongs to the thread that opened it and to it alone.
    own: bool,
    /// True if the NMI watchdog held a counter when the group was opened.
    watchdog: bool,
    buffer: Vec<u64>,
}

impl Group {
    /// Opens `requests` as one group. All of them are counted, or none is.
    ///
    /// # Errors
    ///
    /// The kernel refuses a request; the diagnosis says why.
    pub fn open(
        kernel: Arc<dyn Kernel>,
        options: Options,
        requests: &[Request],
    ) -> Result<Self, Unavailable> {
        let own = options.target == Target::CurrentThread && options.inherit == Inherit::No;
        let mut events: Vec<Handle> = Vec::with_capacity(requests.len());
        for (index, request) in requests.iter().enumerate() {
            let attr = attribute(&options, request, index == 0);
            let (pid, cpu) = place(options.target);
            let opened = kernel.open(&attr, pid, cpu, events.first());
            let opened = opened.map_err(|errno| {
                let joining = index != 0;
                let event = &request.event;
                let refused = Refused { event, attr: &attr, target: options.target, joining };
                let alone = || kernel.open(&attr, pid, cpu, None).map(drop);
                let cause = explain(&*kernel, refused, errno, alone);
                let event = event.name.clone();
                Unavailable { event, index: Some(index), cause, errno: Some(errno) }
            })?;
            events.push(opened);
        }
        if events.is_empty() {
            let cause = Cause::NotOnThisProcessor;
            return Err(Unavailable { event: "no event".into(), index: None, cause, errno: None });
        }
        let buffer = vec![0; 3 + 2 * events.len()];
        let watchdog = watchdog(&*kernel);
        let group = Self { kernel, events, pages: Vec::new(), own, watchdog, buffer };
        if options.enabled {
            group.enable().map_err(|errno| Unavailable {
                event: requests[0].event.name.clone(),
                index: None,
                cause: Cause::Other(errno),
                errno: Some(errno),
            })?;
        }
        Ok(group)
    }

    /// Maps the metadata pages, so that [`Group::read_user`] needs no system call. Does nothing for
    /// a group of another thread or processor, of which user-space reads would be wrong.
    ///
    /// Pages are limited (kernel.perf_event_mlock_kb); the group works without them.
    ///
    /// # Errors
    ///
    /// The kernel's: usually `EPERM`, the limit on locked pages.
    pub fn map(&mut self) -> Result<(), Errno> {
        if !self.own || !self.pages.is_empty() {
            return Ok(());
        }
        let pages = self.events.iter().map(|event| self.kernel.map(event, 0));
        self.pages = pages.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Never true: a group has an event.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The open events, in the order of the requests; the first leads the group.
    pub fn events(&self) -> &[Handle] {
        &self.events
    }

    /// Starts counting, or goes on. Only the leader is switched: members count while it does. (One
    /// that is switched off and on itself may stay off until the next switch of threads; Linux
    /// 6.18.)
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn enable(&self) -> Result<(), Errno> {
        self.kernel.control(self.leader(), Control::Enable { group: false })
    }

    /// Stops counting; values stay.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn disable(&self) -> Result<(), Errno> {
        self.kernel.control(self.leader(), Control::Disable { group: false })
    }

    /// Stops counting and closes the events; values are gone. As dropping, but without freeing
    /// memory: a signal handler may call it. Mapped pages stay until the group is dropped.
    pub fn close(&mut self) {
        // What cannot be stopped ends with its descriptor, or with its page.
        let _ = self.disable();
        self.events.iter_mut().for_each(Handle::close);
    }

    /// Sets every value to zero. Times go on.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn reset(&self) -> Result<(), Errno> {
        self.kernel.control(self.leader(), Control::Reset { group: true })
    }

    /// Does `control` to event `index`. `Refresh` on the leader stops the whole group at the
    /// overflow, on another member that member alone.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn control(&self, index: usize, control: Control) -> Result<(), Errno> {
        let event = self.events.get(index).ok_or(Errno::INVAL)?;
        self.kernel.control(event, control)
    }

    /// Reads all values by one system call.
    ///
    /// # Errors
    ///
    /// The kernel's, or [`ReadError::Lost`].
    pub fn read(&mut self) -> Result<Reading, ReadError> {
        let mut reading = Reading::default();
        self.read_into(&mut reading)?;
        Ok(reading)
    }

    /// Reads all values by one system call, without allocating if `reading` was used before: a
    /// signal handler may call it.
    ///
    /// Spec: perf_event_open(2), "Reading results", PERF_FORMAT_GROUP.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub fn read_into(&mut self, reading: &mut Reading) -> Result<(), ReadError> {
        let events = self.events.len();
        let Some(leader) = self.events.first() else {
            return Err(ReadError::Shape { bytes: 0, events });
        };
        let bytes = zerocopy::IntoBytes::as_mut_bytes(self.buffer.as_mut_slice());
        let read = self.kernel.read(leader, bytes).map_err(ReadError::Failed)?;
        if read == 0 {
            return Err(ReadError::Lost { watchdog: self.watchdog });
        }
        if read != 8 * self.buffer.len() || self.buffer[0] != events as u64 {
            return Err(ReadError::Shape { bytes: read, events });
        }
        reading.enabled_ns = self.buffer[1];
        reading.running_ns = self.buffer[2];
        reading.values.clear();
        reading.values.extend(self.buffer[3..].iter().step_by(2));
        Ok(())
    }

    /// Reads all values without a system call, into `values`. False where one of them cannot be
    /// read so just now; [`Group::read`] then can.
    ///
    /// Must be called by the thread that opened the group.
    #[inline]
    pub fn read_user(&self, values: &mut [u64]) -> bool {
        if self.pages.is_empty() || values.len() != self.pages.len() {
            return false;
        }
        for (value, page) in values.iter_mut().zip(&self.pages) {
            let Some(count) = page.user_count() else {
                return false;
            };
            *value = count.value;
        }
        true
    }

    /// As [`Group::read_user`], and returns for how long the leader has been on the counters, in
    /// ns. `None` where values or time cannot be read so just now.
    #[inline]
    pub fn read_user_timed(&self, values: &mut [u64]) -> Option<u64> {
        let (leader, _) = self.pages.split_first()?;
        let running_ns = leader.user_count()?.running_ns?;
        self.read_user(values).then_some(running_ns)
    }

    fn leader(&self) -> &Handle {
        &self.events[0]
    }
}

/// The attribute of one member.
fn attribute(options: &Options, request: &Request, leads: bool) -> Attr {
    let mut attr = request.event.attr(request.modes);
    attr.read_format = GROUP_READ_FORMAT;
    attr.sample_period = request.period.unwrap_or(0);
    // Members follow their leader: only it is pinned and switched off.
    attr.set(Flags::PINNED, leads && options.pinned);
    attr.set(Flags::DISABLED, leads);
    attr.set(Flags::ENABLE_ON_EXEC, leads && options.enable_on_exec && !options.enabled);
    attr.set(Flags::INHERIT, options.inherit != Inherit::No);
    attr.set(Flags::INHERIT_THREAD, options.inherit == Inherit::Threads);
    attr
}

/// `pid` and `cpu` of perf_event_open(2).
pub(crate) fn place(target: Target) -> (i32, i32) {
    match target {
        Target::CurrentThread => (0, -1),
        Target::Thread(tid) => (tid, -1),
        Target::Cpu(cpu) => (-1, i32::try_from(cpu).unwrap_or(i32::MAX)),
    }
}

/// The cause of `errno`. A member that the kernel takes `alone` was refused for the company it
/// keeps.
fn explain(
    kernel: &dyn Kernel,
    mut refused: Refused<'_>,
    errno: Errno,
    alone: impl FnOnce() -> Result<(), Errno>,
) -> Cause {
    if refused.joining && errno == Errno::INVAL {
        refused.joining = alone().is_ok();
    }
    diagnose(kernel, refused, errno)
}

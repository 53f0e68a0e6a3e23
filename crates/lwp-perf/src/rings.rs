//! A program with its threads and children, sampled: one ring a processor.
//!
//! The kernel inherits sampled events only if each has one processor, so that two never write to
//! one ring. Records of names, mappings, forks and ends come beside the samples: they say which
//! code an address belonged to when it was sampled, also of processes that are gone by now.

use std::sync::Arc;

use rustix::io::Errno;

use crate::attr::{Attr, Flags, Modes};
use crate::diagnosis::{Cause, Refused, Unavailable, diagnose};
use crate::event::Event;
use crate::group::Target;
use crate::kernel::{Control, Handle, Kernel};
use crate::pmu::cpu_list;
use crate::ring::Ring;
use crate::sample::{Record, SampleFormat, USER_REGISTERS, time_of};
use crate::sampler::Losses;

/// The threads that are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The calling thread.
    Caller,
    /// This thread and everything that it makes, from its next exec on.
    Launched(i32),
    /// Threads that run already, as [`Rings::add_thread`] names them, and everything that they
    /// make.
    Running,
    /// A thread that runs already, as [`Rings::add_thread`] names it, and nothing that it makes.
    Thread,
    /// All threads.
    Machine,
}

/// The way in which a program is sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingsOptions {
    /// The event.
    pub event: Event,
    /// Events between two samples of a thread.
    pub period: u64,
    /// The threads.
    pub scope: Scope,
    /// True if children are sampled too, and not only threads.
    pub children: bool,
    /// True if there are records of threads that get a processor or lose it.
    pub switches: bool,
    /// In which modes. Counts are of all modes.
    pub modes: Modes,
    /// Bytes of the user stack in each sample, a multiple of eight; 0: neither stack nor registers.
    pub stack_bytes: u32,
    /// Bytes of each ring, a power of two. Where the kernel locks no more memory for this user,
    /// they are halved until it does.
    pub ring_bytes: usize,
}

/// The smallest ring: it holds a few samples.
const LEAST_RING: usize = 64 << 10;

impl RingsOptions {
    /// The parts of a sample.
    fn format(&self) -> SampleFormat {
        use SampleFormat as F;
        let mut format = F::IP | F::TID | F::TIME;
        if self.stack_bytes > 0 {
            format |= F::REGS_USER | F::STACK_USER;
        }
        format.set(F::CALLCHAIN, self.stack_bytes > 0 && self.modes.contains(Modes::KERNEL));
        format
    }

    fn attr(&self) -> Attr {
        let mut attr = self.event.attr(self.modes);
        attr.sample_period = self.period;
        attr.sample_type = self.format().bits();
        attr.clockid = libc::CLOCK_MONOTONIC;
        attr.set(Flags::DISABLED | Flags::SAMPLE_ID_ALL | Flags::USE_CLOCKID, true);
        attr.set(Flags::EXCLUDE_CALLCHAIN_USER, true);
        if self.stack_bytes > 0 {
            (attr.sample_regs_user, attr.sample_stack_user) = (USER_REGISTERS, self.stack_bytes);
        }
        let beside = Flags::TASK | Flags::COMM | Flags::MMAP | Flags::MMAP2;
        attr.set(beside, self.scope != Scope::Caller);
        attr.set(Flags::CONTEXT_SWITCH, self.switches);
        attr.set(Flags::ENABLE_ON_EXEC, matches!(self.scope, Scope::Launched(_)));
        attr.set(Flags::EXCLUDE_IDLE, self.scope == Scope::Machine);
        if matches!(self.scope, Scope::Launched(_) | Scope::Running) {
            attr.set(Flags::INHERIT, true);
            attr.set(Flags::INHERIT_THREAD, !self.children);
        }
        attr
    }

    /// The processors that events are opened for, as perf_event_open(2) has them.
    fn processors(&self, kernel: &dyn Kernel) -> Vec<i32> {
        if self.scope == Scope::Caller {
            return vec![-1];
        }
        let online = kernel.text("/sys/devices/system/cpu/online");
        let list = cpu_list(&online.unwrap_or_else(|_| "0".to_owned()));
        list.into_iter().filter_map(|cpu| i32::try_from(cpu).ok()).collect()
    }
}

/// A processor: its events write to one ring.
#[derive(Debug)]
struct Processor {
    cpu: i32,
    events: Vec<Handle>,
    ring: Option<Ring>,
}

/// A sampled program. Closed when dropped.
#[derive(Debug)]
pub struct Rings {
    kernel: Arc<dyn Kernel>,
    options: RingsOptions,
    attr: Attr,
    processors: Vec<Processor>,
    ring_bytes: usize,
    format: SampleFormat,
    losses: Losses,
}

impl Rings {
    /// Opens an event and a ring for each processor; none yet for threads that run already.
    ///
    /// # Errors
    ///
    /// The kernel refuses an event or its ring; the diagnosis says why.
    pub fn open(kernel: Arc<dyn Kernel>, options: &RingsOptions) -> Result<Self, Unavailable> {
        let processors = options.processors(&*kernel).into_iter();
        let processors = processors.map(|cpu| Processor { cpu, events: Vec::new(), ring: None });
        let mut rings = Self {
            kernel,
            attr: options.attr(),
            processors: processors.collect(),
            ring_bytes: options.ring_bytes,
            format: options.format(),
            losses: Losses::default(),
            options: options.clone(),
        };
        match options.scope {
            Scope::Caller => rings.add(0, |_| Target::CurrentThread)?,
            Scope::Launched(pid) => rings.add(pid, |_| Target::Thread(pid))?,
            Scope::Machine => rings.add(-1, Target::Cpu)?,
            Scope::Running | Scope::Thread => {}
        }
        Ok(rings)
    }

    /// Samples a thread that runs, from now on, and what it makes. One that has ended meanwhile is
    /// passed over.
    ///
    /// # Errors
    ///
    /// As for [`Self::open`].
    pub fn add_thread(&mut self, tid: i32) -> Result<(), Unavailable> {
        match self.add(tid, |_| Target::Thread(tid)) {
            Err(Unavailable { cause: Cause::NoThread(_), .. }) => return Ok(()),
            added => added?,
        }
        let newest = self.processors.iter().filter_map(|processor| processor.events.last());
        let enabled =
            newest.map(|event| self.kernel.control(event, Control::Enable { group: false }));
        enabled.collect::<Result<(), Errno>>().map_err(|errno| self.options.failed(errno))
    }

    /// Opens an event on each processor, which writes to the ring of that one.
    fn add(&mut self, pid: i32, target: impl Fn(u32) -> Target) -> Result<(), Unavailable> {
        for processor in &mut self.processors {
            let event =
                self.kernel.open(&self.attr, pid, processor.cpu, None).map_err(|errno| {
                    let target = target(u32::try_from(processor.cpu).unwrap_or(0));
                    let event = &self.options.event;
                    let refused = Refused { event, attr: &self.attr, target, joining: false };
                    self.options.unavailable(diagnose(&*self.kernel, refused, errno), errno)
                })?;
            match (&processor.ring, processor.events.first()) {
                (Some(_), Some(first)) => {
                    let shared = self.kernel.share_ring(&event, first);
                    shared.map_err(|errno| self.options.failed(errno))?;
                }
                _ => {
                    let ring = self.options.ring(&*self.kernel, &event, &mut self.ring_bytes)?;
                    processor.ring = Some(ring);
                }
            }
            processor.events.push(event);
        }
        Ok(())
    }

    /// The number of processors.
    pub fn processors(&self) -> usize {
        self.processors.len()
    }

    /// Returns whether no thread is sampled.
    pub fn is_empty(&self) -> bool {
        self.processors.iter().all(|processor| processor.events.is_empty())
    }

    /// Bytes of the smallest ring.
    pub fn ring_bytes(&self) -> usize {
        let rings = self.processors.iter().filter_map(|processor| processor.ring.as_ref());
        rings.map(|ring| ring.pages().data_bytes()).min().unwrap_or(0)
    }

    /// Starts sampling, where no exec does.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn enable(&self) -> Result<(), Errno> {
        self.control(Control::Enable { group: false })
    }

    /// Stops sampling and counting.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn disable(&self) -> Result<(), Errno> {
        self.control(Control::Disable { group: false })
    }

    fn control(&self, control: Control) -> Result<(), Errno> {
        self.events().try_for_each(|event| self.kernel.control(event, control))
    }

    fn events(&self) -> impl Iterator<Item = &Handle> {
        self.processors.iter().flat_map(|processor| &processor.events)
    }

    /// Returns the number of events so far, in all threads and processors and in all modes, also in
    /// those that are not sampled.
    ///
    /// # Errors
    ///
    /// That of read(2); EIO if the kernel has given an event up.
    pub fn count(&self) -> Result<u64, Errno> {
        let mut sum = 0u64;
        for event in self.events() {
            let mut bytes = [0; 8];
            if self.kernel.read(event, &mut bytes)? < bytes.len() {
                return Err(Errno::IO);
            }
            sum = sum.saturating_add(u64::from_le_bytes(bytes));
        }
        Ok(sum)
    }

    /// Appends all records that are there, with their times in ns, and adds losses up. Those of one
    /// processor are in order.
    pub fn take(&mut self, records: &mut Vec<(u64, Record)>) {
        for ring in self.processors.iter_mut().filter_map(|processor| processor.ring.as_mut()) {
            loop {
                let record = match ring.next_record() {
                    Ok(None) => break,
                    Ok(Some(raw)) => {
                        let time = time_of(raw, self.format).unwrap_or(0);
                        Record::parse(raw, self.format).ok().map(|record| (time, record))
                    }
                    Err(_) => None,
                };
                match record {
                    Some((_, Record::Lost { records, .. })) => self.losses.lost += records,
                    Some((_, Record::LostSamples { samples })) => self.losses.lost += samples,
                    Some((_, Record::Throttled { .. })) => self.losses.throttled += 1,
                    Some(record) => records.push(record),
                    None => self.losses.damaged += 1,
                }
            }
        }
    }

    /// Returns the losses so far.
    pub fn losses(&self) -> Losses {
        self.losses
    }
}

impl RingsOptions {
    /// The ring of an event: of so many bytes, or fewer if the kernel locks no more.
    fn ring(
        &self,
        kernel: &dyn Kernel,
        event: &Handle,
        bytes: &mut usize,
    ) -> Result<Ring, Unavailable> {
        loop {
            match kernel.map(event, *bytes) {
                Ok(pages) => return Ok(Ring::new(pages)),
                Err(Errno::PERM | Errno::AGAIN) if *bytes > LEAST_RING => *bytes /= 2,
                Err(errno) => return Err(self.unavailable(refusal_of_ring(errno), errno)),
            }
        }
    }

    fn failed(&self, errno: Errno) -> Unavailable {
        self.unavailable(Cause::Other(errno), errno)
    }

    fn unavailable(&self, cause: Cause, errno: Errno) -> Unavailable {
        Unavailable { event: self.event.name.clone(), index: None, cause, errno: Some(errno) }
    }
}

fn refusal_of_ring(errno: Errno) -> Cause {
    match errno {
        Errno::PERM | Errno::AGAIN => Cause::Locked,
        Errno::NOMEM => Cause::Memory,
        other => Cause::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::script::{Memory, Script};
    use crate::page::{Pages, field};

    fn options() -> RingsOptions {
        RingsOptions {
            event: Event::new("cpu-clock", crate::attr::kind::SOFTWARE, 0),
            period: 1000,
            scope: Scope::Launched(7),
            children: true,
            switches: true,
            modes: Modes::USER,
            stack_bytes: 1024,
            ring_bytes: 4096,
        }
    }

    fn script() -> Script {
        Script::new().file("/sys/devices/system/cpu/online", "0,2-3\n")
    }

    #[test]
    fn each_processor_that_is_online_has_a_ring_and_counts_add_up() {
        let script = script();
        for (number, count) in [5, 6, 7].into_iter().enumerate() {
            script.set_pages(number, Ok(Memory::new(4096)));
            script.set_read(number, Ok(vec![count]));
        }
        let rings = Rings::open(Arc::new(script.clone()), &options()).unwrap();
        let opened = script.opened();
        assert_eq!(
            opened.iter().map(|it| (it.pid, it.cpu)).collect::<Vec<_>>(),
            [(7, 0), (7, 2), (7, 3)]
        );
        let wanted = Flags::INHERIT | Flags::ENABLE_ON_EXEC | Flags::EXCLUDE_KERNEL;
        assert!(opened.iter().all(|it| it.attr.flags().contains(wanted)));
        assert_eq!(rings.count(), Ok(18));
        script.set_read(1, Err(Errno::IO));
        assert_eq!(rings.count(), Err(Errno::IO));
    }

    #[test]
    fn threads_that_run_share_the_rings_of_the_processors() {
        let gone = |opened: &crate::kernel::script::Opened| match opened.pid {
            9 => Err(Errno::SRCH),
            _ => Ok(()),
        };
        let script = script().answering(gone);
        [0, 1, 2].into_iter().for_each(|number| script.set_pages(number, Ok(Memory::new(4096))));
        let running = RingsOptions { scope: Scope::Running, ..options() };
        let mut rings = Rings::open(Arc::new(script.clone()), &running).unwrap();
        assert!(rings.is_empty() && script.opened().is_empty());
        [7, 9, 8].into_iter().for_each(|tid| rings.add_thread(tid).unwrap());
        let opened = script.opened();
        let places: Vec<_> = opened.iter().map(|it| (it.pid, it.cpu)).collect();
        assert_eq!(places, [(7, 0), (7, 2), (7, 3), (8, 0), (8, 2), (8, 3)]);
        assert!(opened.iter().all(|it| !it.attr.flags().contains(Flags::ENABLE_ON_EXEC)));
        assert_eq!(script.shared(), [(3, 0), (4, 1), (5, 2)]);
        let enabled: Vec<usize> = script.controls().into_iter().map(|(number, _)| number).collect();
        assert_eq!(enabled, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn the_machine_is_sampled_save_where_it_is_idle() {
        let script = script();
        [0, 1, 2].into_iter().for_each(|number| script.set_pages(number, Ok(Memory::new(4096))));
        let machine = RingsOptions { scope: Scope::Machine, ..options() };
        let rings = Rings::open(Arc::new(script.clone()), &machine).unwrap();
        rings.enable().unwrap();
        let opened = script.opened();
        let places: Vec<_> = opened.iter().map(|it| (it.pid, it.cpu)).collect();
        assert_eq!(places, [(-1, 0), (-1, 2), (-1, 3)]);
        let flags = opened[0].attr.flags();
        assert!(flags.contains(Flags::EXCLUDE_IDLE) && !flags.contains(Flags::INHERIT));
        assert_eq!(script.controls().len(), 3);
        let paranoid = "/proc/sys/kernel/perf_event_paranoid";
        let script = self::script().file(paranoid, "2\n").answering(|_| Err(Errno::ACCESS));
        let refused = Rings::open(Arc::new(script), &machine).unwrap_err();
        assert_eq!(refused.cause, Cause::Paranoid { level: 2, needed: 0 });
    }

    #[test]
    fn losses_are_added_up_and_damage_is_one() {
        let script = script();
        let memory = Memory::new(4096);
        let record = |kind: u32, body: &[u64]| {
            let size = u16::try_from(8 + 8 * body.len()).unwrap();
            let body = body.iter().flat_map(|word| word.to_le_bytes());
            let misc = (kind >> 16).to_le_bytes();
            let head =
                [&(kind & 0xffff).to_le_bytes()[..], &misc[..2], &size.to_le_bytes()].concat();
            head.into_iter().chain(body).collect::<Vec<u8>>()
        };
        // Processor and reason of a switch stand in the upper half of the first word.
        let switch = |misc: u32| record(14 | misc << 16, &[7 | 8 << 32, 77]);
        let records = [
            record(2, &[1, 30, 0, 0]),
            record(4, &[1, 2, 3, 4, 99]),
            record(9, &[1]),
            switch(1 << 13),
            switch(0),
        ];
        script.set_pages(0, Ok(memory.clone()));
        [1, 2].into_iter().for_each(|number| script.set_pages(number, Ok(Memory::new(4096))));
        let mut rings = Rings::open(Arc::new(script), &options()).unwrap();
        memory.write(&records.concat());
        assert_ne!(memory.load64(field::DATA_HEAD), 0);
        let mut taken = Vec::new();
        rings.take(&mut taken);
        let switch = |out| (77, Record::Switch { pid_tid: (7, 8), out, preempted: false });
        assert_eq!(taken, [(99, Record::Exit { pid_tid: (1, 2) }), switch(true), switch(false)]);
        assert_eq!(rings.losses(), Losses { lost: 30, throttled: 0, damaged: 1 });
    }

    #[test]
    fn a_refusal_says_why() {
        let paranoid = "/proc/sys/kernel/perf_event_paranoid";
        let script = script().file(paranoid, "4\n").answering(|_| Err(Errno::ACCESS));
        let refused = Rings::open(Arc::new(script), &options()).unwrap_err();
        assert_eq!(refused.cause, Cause::Paranoid { level: 4, needed: 2 });
        let script = self::script();
        script.set_pages(0, Err(Errno::PERM));
        let refused = Rings::open(Arc::new(script), &options()).unwrap_err();
        assert_eq!(refused.cause, Cause::Locked);
    }
}

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
        if matches!(self.scope, Scope::Launched(_)) {
            let beside = Flags::TASK | Flags::COMM | Flags::MMAP | Flags::MMAP2;
            attr.set(Flags::INHERIT | Flags::ENABLE_ON_EXEC | beside, true);
            attr.set(Flags::INHERIT_THREAD, !self.children);
        }
        attr
    }

    /// Thread and processors, as perf_event_open(2) has them.
    fn places(&self, kernel: &dyn Kernel) -> (i32, Vec<i32>) {
        match self.scope {
            Scope::Caller => (0, vec![-1]),
            Scope::Launched(pid) => {
                let online = kernel.text("/sys/devices/system/cpu/online");
                let list = cpu_list(&online.unwrap_or_else(|_| "0".to_owned()));
                (pid, list.into_iter().filter_map(|cpu| i32::try_from(cpu).ok()).collect())
            }
        }
    }
}

/// A sampled program. Closed when dropped.
#[derive(Debug)]
pub struct Rings {
    kernel: Arc<dyn Kernel>,
    rings: Vec<(Handle, Ring)>,
    format: SampleFormat,
    losses: Losses,
}

impl Rings {
    /// Opens an event and a ring for each processor.
    ///
    /// # Errors
    ///
    /// The kernel refuses an event or its ring; the diagnosis says why.
    pub fn open(kernel: Arc<dyn Kernel>, options: &RingsOptions) -> Result<Self, Unavailable> {
        let attr = options.attr();
        let (pid, cpus) = options.places(&*kernel);
        let mut bytes = options.ring_bytes;
        let mut rings = Vec::new();
        for cpu in cpus {
            let event = kernel.open(&attr, pid, cpu, None).map_err(|errno| {
                let target = if pid == 0 { Target::CurrentThread } else { Target::Thread(pid) };
                let refused =
                    Refused { event: &options.event, attr: &attr, target, joining: false };
                options.unavailable(diagnose(&*kernel, refused, errno), errno)
            })?;
            let pages = loop {
                match kernel.map(&event, bytes) {
                    Ok(pages) => break pages,
                    Err(Errno::PERM | Errno::AGAIN) if bytes > LEAST_RING => bytes /= 2,
                    Err(errno) => return Err(options.unavailable(refusal_of_ring(errno), errno)),
                }
            };
            rings.push((event, Ring::new(pages)));
        }
        Ok(Self { kernel, rings, format: options.format(), losses: Losses::default() })
    }

    /// Bytes of the smallest ring.
    pub fn ring_bytes(&self) -> usize {
        self.rings.iter().map(|(_, ring)| ring.pages().data_bytes()).min().unwrap_or(0)
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
        self.rings.iter().try_for_each(|(event, _)| self.kernel.control(event, control))
    }

    /// Returns the number of events so far, in all threads and processors and in all modes, also in
    /// those that are not sampled.
    ///
    /// # Errors
    ///
    /// That of read(2); EIO if the kernel has given an event up.
    pub fn count(&self) -> Result<u64, Errno> {
        let mut sum = 0u64;
        for (event, _) in &self.rings {
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
        for (_, ring) in &mut self.rings {
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
    fn losses_are_added_up_and_damage_is_one() {
        let script = script();
        let memory = Memory::new(4096);
        let record = |kind: u32, body: &[u64]| {
            let size = u16::try_from(8 + 8 * body.len()).unwrap();
            let body = body.iter().flat_map(|word| word.to_le_bytes());
            let head = [&kind.to_le_bytes()[..], &[0, 0], &size.to_le_bytes()].concat();
            head.into_iter().chain(body).collect::<Vec<u8>>()
        };
        let records = [record(2, &[1, 30, 0, 0]), record(4, &[1, 2, 3, 4, 99]), record(9, &[1])];
        script.set_pages(0, Ok(memory.clone()));
        [1, 2].into_iter().for_each(|number| script.set_pages(number, Ok(Memory::new(4096))));
        let mut rings = Rings::open(Arc::new(script), &options()).unwrap();
        memory.write(&records.concat());
        assert_ne!(memory.load64(field::DATA_HEAD), 0);
        let mut taken = Vec::new();
        rings.take(&mut taken);
        assert_eq!(taken, [(99, Record::Exit { pid_tid: (1, 2) })]);
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

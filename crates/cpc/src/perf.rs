//! The back end for the kernel's perf events: those of the processor's performance monitoring unit,
//! and those that the kernel counts itself.

mod context;
mod refusal;

use std::sync::Arc;

use lwp_arch::{EventKind, Revision};
use lwp_perf::attr::kind;
use lwp_perf::{Catalog, Event, Group, Kernel, Modes, Options, SampleFormat};

use crate::backend::{Backend, Context, Description, EventInfo, Known, Planned, Target};
use crate::error::{Error, Result, Subcode};
use crate::items;
use crate::records::SpecialItem;
use crate::request::{Attribute, Capabilities, Request, RequestFlags};

use context::{PerfContext, Sampling};
use refusal::{of_event, refused};

/// Counters for the kernel's own events. The kernel has no limit; lists and `picnum` need a number.
const SOFTWARE_PICS: u32 = 8;
/// Most counters of a processor that are listed.
const MOST_PICS: u32 = 32;
/// Events of the kernel that happen in it: in user mode alone there are none.
const KERNEL_ONLY: &[u64] = &[3, 4, 11];

/// The back end of the kernel's perf events.
#[derive(Debug)]
pub(crate) struct PerfBackend {
    catalog: Catalog,
    description: Description,
}

/// Looks for perf events. With the back end, or instead of it: why the processor's counters are not
/// there, one sentence.
pub(crate) fn detect(kernel: Arc<dyn Kernel>) -> (Option<PerfBackend>, Option<String>) {
    let catalog = Catalog::read(kernel);
    let open = |name: &str| {
        let event = catalog.resolve(name).map_err(|error| error.to_string())?;
        let options = Options::new(lwp_perf::Target::CurrentThread);
        let opened =
            Group::open(Arc::clone(catalog.kernel()), options, &[lwp_perf::Request::new(event)]);
        opened.map(drop).map_err(|error| format!("{}: {}", error.cause, error.help()))
    };
    // What the kernel counts itself says whether it lets this process count at all.
    if let Err(reason) = open("task-clock") {
        return (None, Some(format!("perf events: {reason}")));
    }
    let missing = if catalog.has_pmu() { None } else { open("instructions").err() };
    let missing = missing.map(|reason| format!("hardware counters: {reason}"));
    (Some(PerfBackend::new(catalog)), missing)
}

impl PerfBackend {
    pub(crate) fn new(catalog: Catalog) -> Self {
        let description = describe(&catalog);
        Self { catalog, description }
    }

    /// Counters that can count `event`; `None` if this machine has none.
    fn pics(&self, event: &Event) -> Option<u64> {
        pics(&self.catalog, event)
    }

    /// Returns the counters of `event` for `target`, and their places: on each kind of core that a
    /// thread may come to, on the one that a processor is.
    fn places(&self, event: &Event, target: Target) -> Vec<(usize, Event)> {
        let mut places = self.catalog.on_cores(event);
        let cores = self.catalog.cores();
        if let Target::Cpu(cpu) = target
            && places.len() > 1
        {
            let has = |(place, _): &(usize, Event)| {
                cores[*place].cpus.as_ref().is_some_and(|list| lwp_perf::pmu::in_list(list, cpu))
            };
            let here = places.iter().position(has).unwrap_or(0);
            places = vec![places.swap_remove(here)];
        }
        places
    }

    /// The event of a request, with its attributes.
    fn event(&self, request: &Request) -> Result<Event> {
        let mut event = self.catalog.resolve(request.event()).map_err(of_event)?;
        for attribute in request.attributes() {
            if matches!(attribute.name(), Attribute::COUNTER | Attribute::RECORDS) {
                continue;
            }
            if request.event().len() >= 4 && request.event()[..4].eq_ignore_ascii_case("PAPI") {
                let reason = "generic events take no attribute but picnum";
                return Err(Error::coded(Subcode::AttributeOutOfRange, reason));
            }
            let changed = self.catalog.with_attribute(&event, attribute.name(), attribute.value());
            event = changed.map_err(of_event)?;
        }
        Ok(event)
    }
}

fn hardware_pics(catalog: &Catalog) -> u32 {
    catalog.counters().min(MOST_PICS)
}

/// Counters `first` to `first + number - 1`.
const fn range(first: u32, number: u32) -> u64 {
    ((1 << number) - 1) << first
}

fn pics(catalog: &Catalog, event: &Event) -> Option<u64> {
    let hardware = hardware_pics(catalog);
    if event.is_core() {
        return catalog.has_pmu().then(|| range(0, hardware.max(1)));
    }
    // Other units count in places of their own; they are listed beside the kernel's events.
    Some(range(hardware, SOFTWARE_PICS))
}

/// Returns an event in the terms of LWP, if records of it can be collected.
fn record_kind(event: &Event) -> Option<EventKind> {
    match (event.kind, event.config) {
        (kind::HARDWARE, 0) => Some(EventKind::CoreClocks),
        (kind::HARDWARE, 1) => Some(EventKind::InstructionsRetired),
        (kind::HARDWARE, 4) => Some(EventKind::BranchesRetired),
        (kind::HARDWARE, 9) | (kind::SOFTWARE, 0 | 1) => Some(EventKind::ReferenceClocks),
        (kind::HW_CACHE, 0x1_0000) => Some(EventKind::DcacheMisses),
        _ if event.name.contains("mem-loads") => Some(EventKind::DcacheMisses),
        _ => None,
    }
}

fn describe(catalog: &Catalog) -> Description {
    let mut names: Vec<String> = Vec::new();
    if catalog.has_pmu() {
        names.extend(catalog.papi().into_iter().chain(catalog.generic()).map(str::to_owned));
    }
    for (pmu, event) in catalog.platform() {
        let core = catalog.core().is_some_and(|core| core.name == pmu);
        names.push(if core { event.to_owned() } else { format!("{pmu}/{event}/") });
    }
    names.extend(catalog.software().into_iter().map(str::to_owned));
    let events = names.into_iter().filter_map(|name| {
        let event = catalog.resolve(&name).ok()?;
        let (pics, records) = (pics(catalog, &event)?, record_kind(&event).is_some());
        Some(EventInfo { name, pics, counts: true, records })
    });
    let hardware = hardware_pics(catalog);
    let core = catalog.core();
    let format = core.map(|core| core.format.keys().filter(|name| *name != "event").cloned());
    let mut special_items = vec![SpecialItem::InstructionAddress];
    if core.is_some_and(|core| core.events.contains_key("mem-loads")) {
        special_items.extend([
            SpecialItem::DataAddress,
            SpecialItem::Latency,
            SpecialItem::DataSource,
        ]);
    }
    let name = match core {
        Some(core) => format!("Linux perf events, PMU {}", core.name),
        None => "Linux software events".to_owned(),
    };
    Description {
        name,
        reference: "Events of the kernel: perf_event_open(2); of the processor: its manuals, and \
                    `perf list`."
            .to_owned(),
        npic: hardware + SOFTWARE_PICS,
        caps: Capabilities::OVERFLOW_INTERRUPT
            | Capabilities::OVERFLOW_PRECISE
            | Capabilities::RECORDS,
        events: events.collect(),
        attributes: format.into_iter().flatten().collect(),
        special_items,
    }
}

/// In which modes a request counts.
fn modes(request: &Request) -> Modes {
    let mut modes = Modes::empty();
    modes.set(Modes::USER, request.flags().contains(RequestFlags::USER));
    modes.set(Modes::KERNEL, request.flags().contains(RequestFlags::KERNEL));
    modes.set(Modes::HYPERVISOR, request.flags().contains(RequestFlags::HYPERVISOR));
    modes
}

/// Refuses what would count nothing although there is something to count.
fn check_modes(event: &Event, request: &Request) -> Result<()> {
    let in_kernel = event.is_software() && KERNEL_ONLY.contains(&event.config);
    if in_kernel && !modes(request).contains(Modes::KERNEL) {
        let reason = format!(
            "\"{}\" happens in the kernel and is counted only with CPC_COUNT_SYSTEM",
            request.event()
        );
        return Err(Error::coded(Subcode::InvalidFlags, reason));
    }
    Ok(())
}

/// Returns the sampling of an SMPL request.
fn sampling(planned: &Planned, event: Event, index: usize) -> Result<Sampling> {
    let request = &planned.request;
    let kind = record_kind(&event).ok_or_else(|| {
        let reason = format!("records of \"{}\" cannot be collected", request.event());
        Error::coded(Subcode::InvalidEvent, reason)
    })?;
    let period = request.interval().filter(|period| *period >> 63 == 0).ok_or_else(|| {
        let reason = "records are at most 2^63 - 1 occurrences apart: preset too small";
        Error::coded(Subcode::AttributeOutOfRange, reason)
    })?;
    let mut format = SampleFormat::IP | SampleFormat::TID | SampleFormat::TIME | SampleFormat::CPU;
    if matches!(kind, EventKind::DcacheMisses | EventKind::BranchesRetired) {
        format |= SampleFormat::ADDR | SampleFormat::WEIGHT | SampleFormat::DATA_SRC;
    }
    let records = request.attribute(Attribute::RECORDS).unwrap_or(crate::DEFAULT_RECORDS as u64);
    Ok(Sampling { index, event, kind, modes: modes(request), period, format, records })
}

impl Backend for PerfBackend {
    fn description(&self) -> &Description {
        &self.description
    }

    fn look_up(&self, event: &str) -> Option<Known> {
        let event = self.catalog.resolve(event).ok()?;
        Some(Known { pics: self.pics(&event)? })
    }

    fn record_items(&self, request: &Request) -> Option<Vec<usize>> {
        let event = self.catalog.resolve(request.event()).ok()?;
        Some(items::of_event(record_kind(&event)?.event_id(Revision::Shipped)?).to_vec())
    }

    fn program(&self, plan: &[Planned], target: Target) -> Result<Box<dyn Context>> {
        let (mut counted, mut sampled) = (Vec::new(), Vec::new());
        for (index, planned) in plan.iter().enumerate() {
            let request = &planned.request;
            check_notification(request, target)?;
            let event = self.event(request)?;
            check_modes(&event, request)?;
            let places = self.places(&event, target);
            if places.len() > 1 && request.notifies() {
                return Err(Error::new(
                    libc::ENOTSUP,
                    "this processor has several kinds of core, whose counters overflow each on their \
                     own: ask for an event of one kind, such as cpu_core/instructions/",
                ));
            }
            for (place, event) in places {
                if request.is_recording() {
                    sampled.push(sampling(planned, event, index)?);
                    continue;
                }
                let mut member = lwp_perf::Request::new(event).in_modes(modes(request));
                if request.notifies() {
                    member.period = Some(context::period(request.preset()));
                }
                counted.push(context::Counted { index, place, member });
            }
        }
        let kernel = Arc::clone(self.catalog.kernel());
        let target = match target {
            Target::ThisThread => lwp_perf::Target::CurrentThread,
            Target::Thread(tid) => lwp_perf::Target::Thread(tid),
            Target::Cpu(cpu) => lwp_perf::Target::Cpu(cpu),
        };
        let context = PerfContext::start(&kernel, target, counted, &sampled);
        Ok(Box::new(context.map_err(refused)?))
    }
}

/// An overflow reaches the thread itself, and none comes from a ring of samples.
fn check_notification(request: &Request, target: Target) -> Result<()> {
    let reason = match (request.notifies(), target) {
        (true, Target::Thread(_) | Target::Cpu(_)) => {
            "an overflow can be signalled only to the thread that binds the set to itself"
        }
        (true, Target::ThisThread) if request.is_recording() => {
            "the kernel's rings of samples do not signal: records of a PMU are to be sampled in time"
        }
        _ => return Ok(()),
    };
    Err(Error::new(libc::ENOTSUP, reason))
}

#[cfg(test)]
mod tests;

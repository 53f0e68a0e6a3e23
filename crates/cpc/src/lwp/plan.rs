//! From requests to a control block.

use lwp_arch::cpuid::Capabilities;
use lwp_arch::cpuid::fn8000_001c::{Ecx, Features};
use lwp_arch::filters::{Filters, LATENCY_STEP};
use lwp_arch::lwpcb::{COUNTER_MAX, EventSlot, slot_offset};
use lwp_arch::{EventFlags, EventId, Record};

use crate::backend::Planned;
use crate::error::{Error, Result, Subcode};
use crate::request::{Attribute, Request, RequestFlags};
use crate::set::{DEFAULT_RECORDS, MAX_RECORDS};

/// Records the ring has room for when something is counted: each stands for 2^25 occurrences, so an
/// event fills it after 2^43 of them.
const COUNTING_RECORDS: usize = 1 << 18;
/// Most records a ring is made for; BufferSize has 28 bits.
const MOST_RECORDS: usize = (1 << 28) / Record::SIZE - 1;

/// A request as it is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Programmed {
    pub(super) id: EventId,
    /// The offset of its slot in the block; LWPINS has none.
    pub(super) slot: Option<u64>,
    /// EventInterval.
    pub(super) interval: i32,
    /// Records to keep between two samples; `None` for a counter.
    pub(super) records: Option<usize>,
    /// An overflow is to be signalled.
    pub(super) notifies: bool,
}

/// A set as it is programmed.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) requests: Vec<Programmed>,
    pub(super) flags: EventFlags,
    pub(super) filters: Filters,
    pub(super) base_ip: u64,
    pub(super) limit_ip: u64,
    pub(super) random: u32,
    pub(super) ring_records: usize,
    pub(super) block_bytes: usize,
    /// The purpose of the threshold interrupt.
    pub(super) interrupt: Interrupt,
}

/// The purpose of a set's threshold interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    /// Nothing.
    Unused,
    /// To empty the ring while nobody samples, where that is possible: what counts loses its
    /// records in no other way than by a full ring.
    Drain,
    /// Every so many records: a request asks for a signal.
    Notify(usize),
}

/// For which events an attribute means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    CacheMisses,
    Branches,
    All,
    Records,
}

/// The field that an attribute sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// Bits of Filters, set by 1.
    Bits(Filters),
    /// MinLatency in cycles.
    MinLatency,
    BaseIp,
    LimitIp,
    Random,
    Timestamp,
}

/// An attribute, and what the unit must have for it.
struct Row {
    name: &'static str,
    class: Class,
    field: Field,
    filter: Option<Ecx>,
    feature: Option<Features>,
}

const LEVEL: Option<Ecx> = Some(Ecx::LWP_CACHE_LEVELS);
const PREDICTION: Option<Ecx> = Some(Ecx::LWP_BRANCH_PREDICTION);
const ADDRESS: Option<Ecx> = Some(Ecx::LWP_IP_FILTERING);
/// The attribute that asks for time stamps.
pub(super) const PTSC: &str = "ptsc";
const STAMPS: Option<Features> = Some(Features::LWP_PTSC);

/// The attributes: the filters of the unit under the names AMD gave them.
#[rustfmt::skip] // One attribute a line.
const ATTRIBUTES: &[Row] = &[
    row("min_latency", Class::CacheMisses, Field::MinLatency,          Some(Ecx::LWP_CACHE_LATENCY), None),
    row("nbc",         Class::CacheMisses, Field::Bits(Filters::NBC),  LEVEL,      None),
    row("rdc",         Class::CacheMisses, Field::Bits(Filters::RDC),  LEVEL,      None),
    row("ram",         Class::CacheMisses, Field::Bits(Filters::RAM),  LEVEL,      None),
    row("oth",         Class::CacheMisses, Field::Bits(Filters::OTH),  LEVEL,      None),
    row("nmb",         Class::Branches,    Field::Bits(Filters::NMB),  PREDICTION, None),
    row("npb",         Class::Branches,    Field::Bits(Filters::NPB),  PREDICTION, None),
    row("nab",         Class::Branches,    Field::Bits(Filters::NAB),  None,       None),
    row("ncb",         Class::Branches,    Field::Bits(Filters::NCB),  None,       None),
    row("nrb",         Class::Branches,    Field::Bits(Filters::NRB),  None,       None),
    row("base_ip",     Class::All,         Field::BaseIp,              ADDRESS,    None),
    row("limit_ip",    Class::All,         Field::LimitIp,             ADDRESS,    None),
    row("ipi",         Class::All,         Field::Bits(Filters::IPI),  ADDRESS,    None),
    row("random",      Class::Records,     Field::Random,              None,       None),
    row(PTSC,          Class::Records,     Field::Timestamp,           None,       STAMPS),
];

const fn row(
    name: &'static str,
    class: Class,
    field: Field,
    filter: Option<Ecx>,
    feature: Option<Features>,
) -> Row {
    Row { name, class, field, filter, feature }
}

impl Row {
    fn is_had(&self, capabilities: &Capabilities, enabled: Features) -> bool {
        self.filter.is_none_or(|filter| capabilities.ecx.contains(filter))
            && self.feature.is_none_or(|feature| enabled.contains(feature))
    }

    fn is_for(&self, id: EventId, request: &Request) -> bool {
        match self.class {
            Class::CacheMisses => id == EventId::DCACHE_MISSES,
            Class::Branches => id == EventId::BRANCHES_RETIRED,
            Class::All => id != EventId::PROGRAMMED,
            Class::Records => request.is_recording() && id != EventId::PROGRAMMED,
        }
    }
}

/// Names of the attributes this unit has.
pub(super) fn attributes(capabilities: &Capabilities, enabled: Features) -> Vec<String> {
    let had = ATTRIBUTES.iter().filter(|row| row.is_had(capabilities, enabled));
    had.map(|row| row.name.to_owned()).collect()
}

/// The values of the fields of the block that all events share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shared {
    bits: u32,
    min_latency: Option<u64>,
    base_ip: Option<u64>,
    limit_ip: Option<u64>,
    random: Option<u64>,
    timestamp: bool,
}

impl Shared {
    /// Takes over one attribute of a request. Equal requests agree; others contradict each other.
    fn take(&mut self, row: &Row, value: u64) -> Result<()> {
        let once = |field: &mut Option<u64>| match field.replace(value) {
            Some(before) if before != value => Err(Error::coded(
                Subcode::ConflictingRequests,
                format!("\"{}\" is {before} for one request and {value} for another", row.name),
            )),
            _ => Ok(()),
        };
        let most = match row.field {
            Field::Bits(_) | Field::Timestamp => 1,
            Field::MinLatency => u64::from(u8::MAX) * u64::from(LATENCY_STEP),
            Field::BaseIp | Field::LimitIp => u64::MAX,
            Field::Random => 15,
        };
        if value > most {
            let reason = format!("\"{}\" is at most {most}, not {value}", row.name);
            return Err(Error::coded(Subcode::AttributeOutOfRange, reason));
        }
        match row.field {
            Field::Bits(bits) if value == 1 => self.bits |= bits.bits(),
            Field::Bits(_) => {}
            Field::Timestamp => self.timestamp |= value == 1,
            Field::MinLatency => once(&mut self.min_latency)?,
            Field::BaseIp => once(&mut self.base_ip)?,
            Field::LimitIp => once(&mut self.limit_ip)?,
            Field::Random => once(&mut self.random)?,
        }
        Ok(())
    }

    fn filters(&self) -> Filters {
        let mut filters = Filters::from_bits_retain(self.bits);
        let levels = Filters::NBC | Filters::RDC | Filters::RAM | Filters::OTH;
        filters.set(Filters::CLF, filters.intersects(levels));
        filters.set(Filters::IPF, self.base_ip.is_some() || self.limit_ip.is_some());
        let steps = self.min_latency.unwrap_or(0).div_ceil(u64::from(LATENCY_STEP));
        filters.with_min_latency(steps as u8)
    }
}

/// Turns requests into the content of a control block.
///
/// # Errors
///
/// Subcodes: invalid flags, attribute out of range, invalid attribute, resource unavailable,
/// conflicting requests.
pub(super) fn build(
    capabilities: &Capabilities,
    enabled: Features,
    plan: &[Planned],
    ids: &[EventId],
) -> Result<Program> {
    let mut shared = Shared::default();
    let mut requests = Vec::with_capacity(plan.len());
    for (index, (planned, id)) in plan.iter().zip(ids).enumerate() {
        let request = &planned.request;
        check_flags(request)?;
        if ids[..index].contains(id) {
            let reason = "Lightweight Profiling has one counter for each event, and two requests \
                          ask for the same";
            return Err(Error::coded(Subcode::ResourceUnavailable, reason));
        }
        take_attributes(&mut shared, capabilities, enabled, request, *id)?;
        requests.push(programmed(capabilities, request, *id)?);
    }
    check_random(&shared, plan)?;
    check_interrupts(&requests)?;
    Ok(assemble(capabilities, requests, &shared))
}

fn check_flags(request: &Request) -> Result<()> {
    let kernel = RequestFlags::KERNEL | RequestFlags::HYPERVISOR;
    if request.flags().intersects(kernel) || !request.flags().contains(RequestFlags::USER) {
        let reason = "Lightweight Profiling counts in user mode only: ask for CPC_COUNT_USER \
                      alone, or set LWP_CPC_USER_ONLY=1 to have the rest left out";
        return Err(Error::coded(Subcode::InvalidFlags, reason));
    }
    Ok(())
}

/// With random intervals the occurrences between two records are not known, so nothing can be
/// counted.
fn check_random(shared: &Shared, plan: &[Planned]) -> Result<()> {
    let counts = plan.iter().any(|planned| !planned.request.is_recording());
    if counts && shared.random.unwrap_or(0) > 0 {
        let reason = "\"random\" changes every interval of the set, so its counters would be wrong";
        return Err(Error::coded(Subcode::ConflictingRequests, reason));
    }
    Ok(())
}

/// An overflow of a counter takes an interrupt at every record.
fn check_interrupts(requests: &[Programmed]) -> Result<()> {
    let counter = |request: &Programmed| request.notifies && request.records.is_none();
    if requests.iter().any(counter) && requests.iter().any(|request| request.records.is_some()) {
        let reason = "Lightweight Profiling signals overflows of counters only in sets without SMPL \
                      requests";
        return Err(Error::coded(Subcode::ConflictingRequests, reason));
    }
    Ok(())
}

fn take_attributes(
    shared: &mut Shared,
    capabilities: &Capabilities,
    enabled: Features,
    request: &Request,
    id: EventId,
) -> Result<()> {
    for attribute in request.attributes() {
        if matches!(attribute.name(), Attribute::COUNTER | Attribute::RECORDS) {
            continue;
        }
        let row = ATTRIBUTES.iter().find(|row| row.name == attribute.name());
        let row = row.filter(|row| row.is_had(capabilities, enabled) && row.is_for(id, request));
        let Some(row) = row else {
            let reason = format!(
                "attribute \"{}\" means nothing for \"{}\" with Lightweight Profiling",
                attribute.name(),
                request.event()
            );
            return Err(Error::coded(Subcode::InvalidAttribute, reason));
        };
        shared.take(row, attribute.value())?;
    }
    Ok(())
}

fn programmed(capabilities: &Capabilities, request: &Request, id: EventId) -> Result<Programmed> {
    let records = request.is_recording().then(|| {
        let asked = request.attribute(Attribute::RECORDS);
        asked.map_or(DEFAULT_RECORDS, |n| n.clamp(1, MAX_RECORDS) as usize)
    });
    let most = COUNTER_MAX as u64 + 1;
    let interval = match (records, id, request.interval()) {
        (None, _, _) | (_, EventId::PROGRAMMED, _) => most,
        (Some(_), _, Some(interval)) if interval <= most => interval,
        _ => {
            let reason = format!("records are at most {most} occurrences apart: preset too small");
            return Err(Error::coded(Subcode::AttributeOutOfRange, reason));
        }
    };
    let interval = (interval - 1) as i32;
    let notifies = request.notifies();
    Ok(Programmed { id, slot: slot_of(capabilities, id), interval, records, notifies })
}

fn slot_of(capabilities: &Capabilities, id: EventId) -> Option<u64> {
    let ebx = capabilities.ebx;
    slot_offset(ebx.event_offset().into(), ebx.max_events(), id)
}

fn assemble(capabilities: &Capabilities, requests: Vec<Programmed>, shared: &Shared) -> Program {
    let of_event =
        |id: EventId| EventFlags::from_bits_truncate(1u32.checked_shl(id.0.into()).unwrap_or(0));
    let mut flags: EventFlags = requests.iter().map(|request| of_event(request.id)).collect();
    flags.set(EventFlags::PTSC, shared.timestamp);
    let interrupt = interrupt(&requests);
    flags.set(EventFlags::INT, matches!(interrupt, Interrupt::Notify(_)));
    let counts = requests.iter().any(|request| request.records.is_none());
    let kept: usize = requests.iter().filter_map(|request| request.records).sum();
    let least = (capabilities.min_ring_bytes() as usize).div_ceil(Record::SIZE);
    // One slot of a ring never holds a record that can be read.
    let wanted = kept + 1 + if counts { COUNTING_RECORDS } else { 0 };
    Program {
        requests,
        flags,
        filters: shared.filters(),
        base_ip: shared.base_ip.unwrap_or(0),
        limit_ip: shared.limit_ip.unwrap_or(u64::MAX),
        random: shared.random.unwrap_or(0) as u32,
        ring_records: wanted.clamp(least.max(2), MOST_RECORDS),
        block_bytes: capabilities.ebx.lwpcb_bytes() as usize,
        interrupt,
    }
}

/// A counter that signals interrupts at each record. Records are looked at often enough to see the
/// room of a request fill before it overflows.
fn interrupt(requests: &[Programmed]) -> Interrupt {
    let notifying = requests.iter().filter(|request| request.notifies);
    let every = notifying.map(|request| request.records.map_or(1, |room| (room / 4).max(1)));
    if let Some(every) = every.min() {
        return Interrupt::Notify(every);
    }
    let counts = requests.iter().any(|request| request.records.is_none());
    let records = requests.iter().any(|request| request.records.is_some());
    if counts && records { Interrupt::Drain } else { Interrupt::Unused }
}

impl Programmed {
    /// Returns the start of EventCounter if the counter starts at `preset`: a request that signals
    /// its overflow has a record made exactly there, any other one after each whole interval.
    pub(super) fn first(&self, preset: u64) -> i32 {
        if !self.notifies || self.records.is_some() {
            return self.interval;
        }
        let left = preset.wrapping_neg().wrapping_sub(1);
        (left % (self.interval as u64 + 1)) as i32
    }

    /// The slot it starts with.
    pub(super) fn initial(&self, preset: u64) -> EventSlot {
        EventSlot::new(self.interval, self.first(preset))
    }
}

//! The back end for Lightweight Profiling: 64-bit counters made from the unit's 26-bit ones, and
//! SMPL records, which are the unit's event records.

mod context;
mod events;
mod insn;
mod memory;
mod plan;
mod unit;

use std::io::Write as _;
use std::sync::{Arc, Once};

use lwp_arch::EventId;
use lwp_arch::cpuid::fn8000_001c::{Ecx, Features};

use crate::backend::{Backend, Context, Description, EventInfo, Known, Planned, Target};
use crate::error::{Error, Result, Subcode};
use crate::items;
use crate::records::SpecialItem;
use crate::request::{Capabilities, Request, RequestFlags, parse_number};

use context::LwpContext;
use unit::Unit;

/// The back end of a processor with LWP.
#[derive(Debug)]
pub(crate) struct LwpBackend {
    unit: Arc<dyn Unit>,
    description: Description,
    /// Requests that count in the kernel too count in user mode.
    user_only: bool,
}

/// The variable by which a user chooses that.
const USER_ONLY: &str = "LWP_CPC_USER_ONLY";

/// What [`USER_ONLY`] says on standard error, once.
const COUNTS_USER_ONLY: &str = "libcpc: counts of Lightweight Profiling are those of user mode, \
                                as LWP_CPC_USER_ONLY=1 asks: nothing counts the kernel's part\n";

/// Looks for LWP in this processor.
///
/// # Errors
///
/// One sentence that says why there is none.
pub(crate) fn detect() -> std::result::Result<LwpBackend, String> {
    match insn::Hardware::detect() {
        Ok(unit) => {
            let user_only = std::env::var_os(USER_ONLY).is_some_and(|value| value == "1");
            Ok(LwpBackend { user_only, ..LwpBackend::new(Arc::new(unit)) })
        }
        Err(::lwp::Error::NoLwp) => {
            Err("this processor has no Lightweight Profiling (run the program with `lwp run` to \
                     give it one)"
                .to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

impl LwpBackend {
    pub(crate) fn new(unit: Arc<dyn Unit>) -> Self {
        let description = describe(&*unit);
        Self { unit, description, user_only: false }
    }

    /// The event that `name`, or a raw EventId, stands for, if this unit counts it.
    fn event(&self, name: &str) -> Option<EventId> {
        let id = match events::by_name(name) {
            Some(id) => id,
            None => EventId(u8::try_from(parse_number(name)?).ok()?),
        };
        events::has(self.unit.enabled(), id).then_some(id)
    }

    /// Counters that can count `id`: its own; any, for an event that has none.
    fn pics(&self, id: EventId) -> u64 {
        pics(self.description.npic, id)
    }
}

fn pics(npic: u32, id: EventId) -> u64 {
    match id {
        EventId::PROGRAMMED => u64::MAX >> (64 - npic.clamp(1, 64)),
        _ => 1 << (id.0 - 1),
    }
}

fn describe(unit: &dyn Unit) -> Description {
    let (capabilities, enabled) = (unit.capabilities(), unit.enabled());
    let npic = u32::from(capabilities.ebx.max_events()).min(32);
    let listed = events::TABLE.iter().filter(|row| events::has(enabled, row.id));
    let events = listed
        .flat_map(|row| row.names.iter().map(move |name| (row, name)))
        .map(|(row, name)| EventInfo {
            name: (*name).to_owned(),
            pics: pics(npic, row.id),
            counts: row.id != EventId::PROGRAMMED,
            records: true,
        })
        .collect();
    let mut special_items = vec![SpecialItem::InstructionAddress];
    if enabled.contains(Features::LWP_DME) {
        special_items.extend([SpecialItem::Latency, SpecialItem::DataSource]);
        if capabilities.ecx.contains(Ecx::LWP_DATA_ADDRESS) {
            special_items.push(SpecialItem::DataAddress);
        }
    }
    let mut caps = Capabilities::RECORDS;
    if unit.interrupts() {
        caps |= Capabilities::OVERFLOW_INTERRUPT | Capabilities::OVERFLOW_PRECISE;
    }
    Description {
        name: format!("AMD Lightweight Profiling, version {}", capabilities.ecx.version()),
        reference: "Events of Lightweight Profiling: AMD publication 43724, and chapter 13.4 of \
                    publication 24593."
            .to_owned(),
        npic,
        caps,
        events,
        attributes: plan::attributes(&capabilities, enabled),
        special_items,
    }
}

/// Returns whether a request counts in user mode, and elsewhere too.
fn counts_kernel(planned: &Planned) -> bool {
    let flags = planned.request.flags();
    flags.contains(RequestFlags::USER)
        && flags.intersects(RequestFlags::KERNEL | RequestFlags::HYPERVISOR)
}

/// The part of such a request that LWP counts. Others stay as they are.
fn in_user_mode_only(planned: &Planned) -> Planned {
    if !counts_kernel(planned) {
        return planned.clone();
    }
    let flags = planned.request.flags() - (RequestFlags::KERNEL | RequestFlags::HYPERVISOR);
    Planned { request: planned.request.clone().with_flags(flags) }
}

/// Says once in this process that the kernel's part is missing.
fn say_user_only() {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let _ = std::io::stderr().write_all(COUNTS_USER_ONLY.as_bytes());
    });
}

impl Backend for LwpBackend {
    fn description(&self) -> &Description {
        &self.description
    }

    fn look_up(&self, event: &str) -> Option<Known> {
        Some(Known { pics: self.pics(self.event(event)?) })
    }

    fn record_items(&self, request: &Request) -> Option<Vec<usize>> {
        let stamped = request.attribute(plan::PTSC).is_some_and(|asked| asked != 0);
        let addresses = self.unit.capabilities().ecx.contains(Ecx::LWP_DATA_ADDRESS);
        let had = |item: &usize| {
            (stamped || *item != items::TIMESTAMP)
                && (addresses || !items::DATA_ADDRESS.contains(item))
        };
        let all = items::of_event(self.event(request.event())?).iter().copied();
        Some(all.filter(had).collect())
    }

    fn program(&self, plan: &[Planned], target: Target) -> Result<Box<dyn Context>> {
        if target != Target::ThisThread {
            let reason = "Lightweight Profiling counts only the thread that binds the set to itself: \
                          cpc_bind_curlwp can, and `cputrack --lwp` counts other programs";
            return Err(
                Error::coded(Subcode::ResourceUnavailable, reason).with_errno(libc::ENOTSUP)
            );
        }
        let id = |planned: &Planned| {
            let name = &planned.request.event();
            self.event(name)
                .ok_or_else(|| Error::described(libc::EINVAL, format!("no event {name}")))
        };
        let ids = plan.iter().map(id).collect::<Result<Vec<_>>>()?;
        let in_user_mode: Vec<Planned>;
        let plan = match self.user_only && plan.iter().any(counts_kernel) {
            true => {
                say_user_only();
                in_user_mode = plan.iter().map(in_user_mode_only).collect();
                &in_user_mode
            }
            false => plan,
        };
        let programmed = plan::build(&self.unit.capabilities(), self.unit.enabled(), plan, &ids)?;
        let presets: Vec<u64> = plan.iter().map(|planned| planned.request.preset()).collect();
        Ok(Box::new(LwpContext::start(Arc::clone(&self.unit), programmed, &presets)?))
    }
}

#[cfg(test)]
mod tests;

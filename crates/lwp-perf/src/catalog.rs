//! Names of events, and what they stand for on this machine.

use std::sync::Arc;

use crate::attr::{Modes, kind};
use crate::event::Event;
use crate::kernel::Kernel;
use crate::names::{self, Row};
use crate::pmu::{DEVICES, Pmu, TermError, parse_number};

/// The reason why a name is not an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// No table and no PMU has the name.
    #[error("unknown event {0:?}")]
    Unknown(String),
    /// `pmu/terms/` with a PMU that this machine does not have.
    #[error("{name:?}: there is no PMU {pmu:?} on this machine")]
    NoPmu {
        /// The whole name.
        name: String,
        /// The PMU.
        pmu: String,
    },
    /// The modifiers behind the colon are not `u`, `k`, `h` or `p`.
    #[error("{name:?}: unknown modifier {modifier:?}")]
    Modifier {
        /// The whole name.
        name: String,
        /// The first character that is none.
        modifier: char,
    },
    /// The terms do not fit the PMU.
    #[error(transparent)]
    Terms(#[from] TermError),
}

/// The events of this machine.
#[derive(Clone, Debug)]
pub struct Catalog {
    kernel: Arc<dyn Kernel>,
    pmus: Vec<Pmu>,
}

impl Catalog {
    /// Reads what the kernel lists. A machine without PMUs has a catalog too: names are known, and
    /// opening the event says what is missing.
    pub fn read(kernel: Arc<dyn Kernel>) -> Self {
        let names = kernel.names(DEVICES).unwrap_or_default();
        let pmus = names.iter().filter_map(|name| Pmu::read(&*kernel, name).ok()).collect();
        Self { kernel, pmus }
    }

    /// The PMUs, by name.
    pub fn pmus(&self) -> &[Pmu] {
        &self.pmus
    }

    /// The PMU of this name.
    pub fn pmu(&self, name: &str) -> Option<&Pmu> {
        self.pmus.iter().find(|pmu| pmu.name == name)
    }

    /// The processor's core PMU: the one that raw codes and attributes are for. On a hybrid
    /// processor the one of its large cores.
    pub fn core(&self) -> Option<&Pmu> {
        self.pmu("cpu").or_else(|| self.pmu("cpu_core"))
    }

    /// The PMUs of the processor's cores: one, or on a hybrid processor one for each kind of core,
    /// the large ones first.
    ///
    /// Spec: sysfs, "bus/event_source/devices"; hybrid processors have `cpu_core`, `cpu_atom` and
    /// so on.
    pub fn cores(&self) -> Vec<&Pmu> {
        let first = self.core().into_iter();
        let kinds = self.pmus.iter().filter(|pmu| pmu.name.starts_with("cpu_"));
        let others = kinds.filter(|pmu| self.core().is_none_or(|core| core.name != pmu.name));
        first.chain(others.filter(|_| self.pmu("cpu").is_none())).collect()
    }

    /// Returns the counters of `event` on each kind of core: the place of the kind in
    /// [`Catalog::cores`], and the event as its PMU takes it. A thread moves between kinds, and
    /// each counts only what happens there. What names a PMU, and raw codes, which are the large
    /// cores', are in one place; what is counted everywhere is in a place behind them all. Events
    /// of different places cannot be in one group.
    ///
    /// Spec: perf_event_open(2), "PERF_TYPE_HARDWARE" and "PERF_TYPE_HW_CACHE" (Linux 5.13): bits
    /// 63:32 of config are the PMU's type.
    pub fn on_cores(&self, event: &Event) -> Vec<(usize, Event)> {
        let cores = self.cores();
        if cores.len() < 2 {
            return vec![(0, event.clone())];
        }
        if !event.is_core() {
            return vec![(cores.len(), event.clone())];
        }
        let (bare, _) = split(&event.name);
        let places = cores.iter().enumerate();
        let found: Vec<(usize, Event)> = match event.kind {
            kind::HARDWARE | kind::HW_CACHE => places
                .map(|(place, pmu)| {
                    let config = event.config | u64::from(pmu.kind) << 32;
                    (place, Event { config, ..event.clone() })
                })
                .collect(),
            kind::RAW if event.pmu.is_none() => {
                vec![(0, Event { kind: cores[0].kind, ..event.clone() })]
            }
            _ if bare.contains('/') => places
                .filter(|(_, pmu)| Some(&pmu.name) == event.pmu.as_ref())
                .map(|(place, _)| (place, event.clone()))
                .collect(),
            _ => places
                .filter_map(|(place, pmu)| {
                    let named = pmu.events.contains_key(bare).then(|| pmu.event(bare, bare))?;
                    let Event { name, modes, precise, .. } = event.clone();
                    Some((place, Event { name, modes, precise, ..named.ok()? }))
                })
                .collect(),
        };
        if found.is_empty() { vec![(0, event.clone())] } else { found }
    }

    /// The event called `name`. In this order:
    ///
    /// 1. `pmu/terms/`, with fields and named events of the PMU, and perf's modifiers behind it;
    /// 2. perf's generic names and the kernel's software events;
    /// 3. PAPI presets, in Solaris' or PAPI's spelling;
    /// 4. `rNNNN`, a raw code in hexadecimal;
    /// 5. events that a PMU names in sysfs, the core PMU's first;
    /// 6. a number, as for libcpc: the raw code.
    ///
    /// `:u`, `:k`, `:h` and `:p` to `:ppp` behind the name are perf's.
    ///
    /// # Errors
    ///
    /// The name is none, or its modifiers are.
    pub fn resolve(&self, name: &str) -> Result<Event, EventError> {
        let (bare, modifiers) = split(name);
        let mut event = self.bare(name, bare)?;
        event.name = name.into();
        apply(&mut event, name, modifiers)?;
        Ok(event)
    }

    fn bare(&self, whole: &str, name: &str) -> Result<Event, EventError> {
        if let Some((pmu, terms)) = name.split_once('/') {
            let known = self
                .pmu(pmu)
                .ok_or_else(|| EventError::NoPmu { name: whole.into(), pmu: pmu.into() })?;
            return Ok(known.event(whole, terms.trim_end_matches('/'))?);
        }
        let tables = [names::GENERIC, names::SOFTWARE_EVENTS, names::PAPI];
        if let Some((_, _, kind, config)) = tables.iter().find_map(|rows| names::find(rows, name)) {
            return Ok(Event::new(whole, kind, config));
        }
        if let Some(code) = name.strip_prefix('r').and_then(hex) {
            return Ok(Event::new(whole, kind::RAW, code));
        }
        if let Some(event) = self.named_by_a_pmu(whole, name)? {
            return Ok(event);
        }
        match parse_number(name) {
            Some(code) => Ok(Event::new(whole, kind::RAW, code)),
            None => Err(EventError::Unknown(whole.into())),
        }
    }

    fn named_by_a_pmu(&self, whole: &str, name: &str) -> Result<Option<Event>, EventError> {
        let mut pmus = self.core().into_iter().chain(&self.pmus);
        let Some(pmu) = pmus.find(|pmu| pmu.events.contains_key(name)) else {
            return Ok(None);
        };
        Ok(Some(pmu.event(whole, name)?))
    }

    /// `event` with the attribute `name` set, such as `umask`, `cmask`, `inv` or `edge`, by the
    /// format of its PMU.
    ///
    /// # Errors
    ///
    /// The event's PMU has no such field, or the value does not fit.
    pub fn with_attribute(
        &self,
        event: &Event,
        name: &str,
        value: u64,
    ) -> Result<Event, EventError> {
        let pmu = match &event.pmu {
            Some(pmu) => self.pmu(pmu),
            None => self.core(),
        };
        let pmu = pmu.ok_or_else(|| EventError::NoPmu {
            name: event.name.clone(),
            pmu: event.pmu.clone().unwrap_or_else(|| "cpu".into()),
        })?;
        if event.pmu.is_none() && event.kind != kind::RAW {
            let error = TermError::Unknown { pmu: "generic events".into(), name: name.into() };
            return Err(error.into());
        }
        let mut event = event.clone();
        pmu.set_field(&mut event, name, value)?;
        Ok(event)
    }

    /// perf's generic events: names that are known everywhere, whether this machine has them or
    /// not.
    pub fn generic(&self) -> Vec<&'static str> {
        firsts(names::GENERIC)
    }

    /// PAPI presets, in Solaris' spelling.
    pub fn papi(&self) -> Vec<&'static str> {
        firsts(names::PAPI)
    }

    /// The kernel's own events.
    pub fn software(&self) -> Vec<&'static str> {
        firsts(names::SOFTWARE_EVENTS)
    }

    /// The events that PMUs name: `(pmu, event)`, by PMU.
    pub fn platform(&self) -> Vec<(&str, &str)> {
        let mut all = Vec::new();
        for pmu in &self.pmus {
            all.extend(pmu.events.keys().map(|event| (pmu.name.as_str(), event.as_str())));
        }
        all
    }

    /// Returns the number of events that a core can count at a time: general counters and fixed
    /// ones. 0 without a PMU.
    ///
    /// Spec: Intel SDM volume 2, CPUID leaf 0AH (EAX 15:8, EDX 4:0); PPR, CPUID Fn8000_0022 EBX 3:0
    /// and Fn8000_0001 ECX bit 23.
    pub fn counters(&self) -> u32 {
        if self.core().is_none() {
            return 0;
        }
        let [highest, b, c, d] = self.kernel.cpuid(0, 0);
        let vendor = [b, d, c].map(u32::to_le_bytes).concat();
        if vendor == b"GenuineIntel" && highest >= 0xa {
            let [general, _, _, fixed] = self.kernel.cpuid(0xa, 0);
            return (general >> 8 & 0xff) + (fixed & 0x1f);
        }
        let [highest, ..] = self.kernel.cpuid(0x8000_0000, 0);
        if highest >= 0x8000_0022 {
            let core = self.kernel.cpuid(0x8000_0022, 0)[1] & 0xf;
            if core != 0 {
                return core;
            }
        }
        let extended = self.kernel.cpuid(0x8000_0001, 0)[2] >> 23 & 1 == 1;
        if extended { 6 } else { 4 }
    }

    /// Returns whether a core PMU exists.
    pub fn has_pmu(&self) -> bool {
        self.core().is_some()
    }

    /// The kernel this was read from.
    pub fn kernel(&self) -> &Arc<dyn Kernel> {
        &self.kernel
    }
}

fn firsts(rows: &[Row]) -> Vec<&'static str> {
    rows.iter().map(|row| row.0).collect()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// Splits off the modifiers: behind the last colon, or behind the closing slash of `pmu/terms/`.
fn split(name: &str) -> (&str, &str) {
    if let Some(at) = name.rfind('/')
        && name[..at].contains('/')
    {
        let modifiers = &name[at + 1..];
        return (&name[..=at], modifiers.strip_prefix(':').unwrap_or(modifiers));
    }
    name.rsplit_once(':').unwrap_or((name, ""))
}

fn apply(event: &mut Event, name: &str, modifiers: &str) -> Result<(), EventError> {
    let mut modes = Modes::empty();
    for modifier in modifiers.chars() {
        match modifier {
            'u' => modes |= Modes::USER,
            'k' => modes |= Modes::KERNEL,
            'h' => modes |= Modes::HYPERVISOR,
            'p' if event.precise < 3 => event.precise += 1,
            _ => return Err(EventError::Modifier { name: name.into(), modifier }),
        }
    }
    if !modes.is_empty() {
        event.modes = Some(modes);
    }
    Ok(())
}

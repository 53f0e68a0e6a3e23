//! One event that the kernel can count.

use crate::attr::{Attr, Modes};

/// An event: which PMU, which configuration, and the name it was asked for by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// The name it was resolved from.
    pub name: String,
    /// The PMU's directory name in sysfs, where the event belongs to one by name.
    pub pmu: Option<String>,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
    /// `perf_event_attr.config1`.
    pub config1: u64,
    /// `perf_event_attr.config2`.
    pub config2: u64,
    /// `perf_event_attr.config3`.
    pub config3: u64,
    /// The modes that the name itself asked for (`:u`, `:k`, `:h`), if it did.
    pub modes: Option<Modes>,
    /// The precision that the name asked for (`:p` to `:ppp`).
    pub precise: u8,
}

impl Event {
    /// An event by its numbers.
    pub fn new(name: impl Into<String>, kind: u32, config: u64) -> Self {
        Self {
            name: name.into(),
            pmu: None,
            kind,
            config,
            config1: 0,
            config2: 0,
            config3: 0,
            modes: None,
            precise: 0,
        }
    }

    /// Returns whether the kernel counts it by itself, without a PMU.
    pub fn is_software(&self) -> bool {
        self.kind == crate::attr::kind::SOFTWARE
    }

    /// Returns whether the processor's core PMU counts it.
    pub fn is_core(&self) -> bool {
        use crate::attr::kind::{HARDWARE, HW_CACHE, RAW};
        matches!(self.kind, HARDWARE | HW_CACHE | RAW)
            || self.pmu.as_deref().is_some_and(|pmu| pmu.starts_with("cpu"))
    }

    /// The attribute that asks for this event in `modes`, where its name did not say.
    pub fn attr(&self, modes: Modes) -> Attr {
        let mut attr = Attr::new(self.kind, self.config);
        attr.config1 = self.config1;
        attr.config2 = self.config2;
        attr.config3 = self.config3;
        attr.set_modes(self.modes.unwrap_or(modes));
        attr.set_precise(self.precise);
        attr
    }
}

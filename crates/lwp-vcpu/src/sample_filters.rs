//! The IP filter of samples, for instructions that the host handles.

use lwp_dbt::IpFilter;
use lwp_process::Tid;
use lwp_run::Config;

use crate::machine::{CodeCaches, Tasks, Where};

impl Where<'_> {
    /// The IP filter at `pc`, in the address space of a thread.
    fn sampled_ip_at(&self, config: &Config, tid: Tid, pc: u64) -> Option<IpFilter> {
        let code = config.counted.code.as_ref()?;
        let of_unit = || {
            let space = self.caches.spaces.get(self.tasks.space_index(tid)?)?.as_ref()?;
            let (_, range) = space.code.at(pc)?;
            let family = self.caches.families.get(space.family)?.as_ref()?;
            family.modules.get(range.unit)?.unit.filter
        };
        code.everywhere().or_else(of_unit).or(Some(code.elsewhere()))
    }
}

impl Tasks {
    /// The host is about to deal with the instruction at `pc` of a thread whose samples are
    /// filtered.
    pub fn filter_samples_at(&mut self, config: &Config, caches: &CodeCaches, tid: Tid, pc: u64) {
        if config.counted.code.is_none() {
            return;
        }
        let ip = caches.of(self).sampled_ip_at(config, tid, pc);
        if let Some(lwp) = self.lwp_mut(tid) {
            lwp.filter_by(ip);
        }
    }
}

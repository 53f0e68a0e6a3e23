//! Changes to the initial stack and auxiliary vector of a new program.

use lwp_process::auxiliary::{
    AT_HWCAP, AT_HWCAP2, AT_IGNORE, AT_RANDOM, AT_SYSINFO_EHDR, Auxiliary,
};
use lwp_process::first_stack;
use lwp_process::maps;
use lwp_process::regs::{CS_64, Regs};
use lwp_process::{Tid, memory};
use lwp_run::addition;
use lwp_run::config::{Config, CpuModel, Target};

use crate::machine::{Observers, Processor};

impl Observers {
    /// The place that the stack of a program that begins with these registers has been moved to
    /// because something was added to its arguments and variables.
    pub fn extended_stack(&mut self, config: &Config, tid: Tid, regs: &Regs) -> Option<u64> {
        let addition = addition::for_program(tid, &config.program.additions)?;
        if regs.0.cs != CS_64 {
            return None;
        }
        let stack = addition::put(tid, regs.0.rsp, &maps::read(tid), addition)?;
        if let Some(profiler) = &mut self.profiler {
            profiler.add_addition(tid, addition);
        }
        Some(stack)
    }
}

/// The place that the stack of a program that begins with these registers has been moved to: under
/// determinism, the place where it always is.
pub fn settled_stack(config: &Config, tid: Tid, regs: &Regs) -> Option<u64> {
    let launched = matches!(config.target, Target::Launch { .. });
    if !config.program.deterministic || !launched || regs.0.cs != CS_64 {
        return None;
    }
    first_stack::settle(tid, regs.0.rsp, &maps::read(tid))
}

impl Processor {
    /// Shows the virtual processor in a new program's auxiliary vector, and under determinism takes
    /// what differs from run to run out of it: the random bytes and the vdso.
    pub(super) fn adjust_auxv(&mut self, config: &Config, tid: Tid, auxiliary: &Auxiliary) {
        let fixed = config.cpu != CpuModel::Host;
        if !fixed && !config.program.deterministic {
            return;
        }
        for (at, [kind, value]) in auxiliary.entries() {
            let new = match kind {
                AT_HWCAP if fixed => [kind, u64::from(self.cpu.cpuid(1, 0)[3])],
                AT_HWCAP2 if fixed => [kind, 0],
                AT_SYSINFO_EHDR if config.program.deterministic => [AT_IGNORE, 0],
                AT_RANDOM if config.program.deterministic => {
                    let bytes = [self.next_random(), self.next_random()].map(u64::to_le_bytes);
                    let _ = memory::write_exact(tid, value, &bytes.concat());
                    continue;
                }
                _ => continue,
            };
            let _ = memory::write_u64(tid, at, new[0]);
            let _ = memory::write_u64(tid, at + 8, new[1]);
        }
    }
}

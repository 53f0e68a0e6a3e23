//! Limits on address space and data: the calls that set and show them, and the size of lwp's
//! mappings. See [`lwp_calls::limits`].

use lwp_calls::limits::{
    NONE, RLIMIT_AS, RLIMIT_DATA, bytes_of, changed, raise_for, read_limit, subject,
};
use lwp_calls::syscalls::{Pending, nr};
use lwp_dbt::Slot;
use lwp_mailbox::memory_map::{DATA_BYTES, OVERHEAD_BYTES};
use lwp_process::{Tid, limits, memory};

use crate::machine::{CodeCaches, Machine, Where};

impl CodeCaches {
    /// Bytes of ours in an address space.
    fn bytes_of_ours(&self, base: usize) -> u64 {
        let mut ours = self.ours(base).all();
        ours.sort_unstable();
        ours.dedup();
        ours.iter().map(|(start, end)| end - start).sum()
    }
}

impl Where<'_> {
    /// Bytes of ours in the address space of a process.
    fn bytes_of_ours(&self, pid: i32) -> u64 {
        let process = self.tasks.processes.get(&pid);
        process.map_or(0, |process| self.caches.bytes_of_ours(process.space))
    }
}

/// The process that a thread calls so, if it is one of the run and has something of ours.
fn limited_process(machine: &Machine, tid: Tid, number: i32) -> Option<i32> {
    let thread = match number {
        0 => tid,
        number => machine.proc_files().thread_called(tid, number)?,
    };
    let pid = machine.tasks.threads.get(&thread).map_or(thread, |thread| thread.pid);
    machine.tasks.processes.contains_key(&pid).then_some(pid)
}

/// Arranges a call that sets a limit, so that the kernel's is higher than the program's.
pub fn arrange_limit(machine: &Machine, tid: Tid, slot: usize, pending: &mut Pending) {
    let Some((process, resource, new, _)) = subject(pending).filter(|it| it.2 != 0) else {
        return;
    };
    let Some(pid) = limited_process(machine, tid, process) else { return };
    let Some(limit) = read_limit(tid, new).filter(|[soft, hard]| soft <= hard) else { return };
    let raised = match resource {
        RLIMIT_DATA => [DATA_BYTES; 2],
        _ => {
            let hard_now = limits::address_space(pid).map(|[_, hard]| hard);
            let ours = machine.caches.of(&machine.tasks).bytes_of_ours(pid);
            raise_for(limit, ours, hard_now, machine.tasks.raised.of(pid)[1])
        }
    };
    let address = machine.contexts.context(slot).write_scratch(&bytes_of(changed(
        limit,
        raised,
        u64::saturating_add,
    )));
    let field = if pending.number == nr::SETRLIMIT { Slot::Rsi } else { Slot::Rdx };
    machine.contexts.context(slot).set(field, address);
    pending.raised = (resource == RLIMIT_AS).then_some((pid, raised));
}

/// Takes what the kernel's limits are raised by out of those that a call has returned, and
/// notes what those that it has set are raised by.
pub fn show_limit(machine: &mut Machine, tid: Tid, pending: &Pending) {
    let Some((process, resource, _, old)) = subject(pending) else { return };
    if let Some(pid) = limited_process(machine, tid, process)
        && old != 0
        && let Some(limit) = read_limit(tid, old)
    {
        let raised = match resource {
            RLIMIT_DATA => [DATA_BYTES; 2],
            _ => machine.tasks.raised.of(pid),
        };
        let own = changed(limit, raised, u64::saturating_sub);
        let _ = memory::write_exact(tid, old, &bytes_of(own));
    }
    if let Some((pid, raised)) = pending.raised {
        machine.tasks.raised.0.insert(pid, raised);
    }
}

/// Makes a change to what is ours in the address space of a thread, for which its limit leaves
/// room, and by which what the program may have does not change.
pub fn within_limit<R>(
    machine: &mut Machine,
    tid: Tid,
    change: impl FnOnce(&mut Machine) -> R,
) -> R {
    let pid = machine.tasks.threads.get(&tid).map_or(tid, |thread| thread.pid);
    let Some([soft, hard]) = limits::address_space(pid).filter(|[soft, _]| *soft != NONE) else {
        return change(machine);
    };
    let raised = machine.tasks.raised.of(pid);
    limits::raise_address_space(pid, OVERHEAD_BYTES);
    let result = change(machine);
    let own = soft.saturating_sub(raised[0]);
    let soft = own.saturating_add(machine.caches.of(&machine.tasks).bytes_of_ours(pid)).min(hard);
    limits::set_address_space(pid, [soft, hard]);
    machine.tasks.raised.0.insert(pid, [soft - own.min(soft), raised[1]]);
    result
}

//! Gives a new process its contexts.

use lwp_mailbox::contexts::FileId;
use lwp_process::Tid;
use lwp_process::maps::Status;
use lwp_process::sys::{self, Common};

use crate::machine::{Machine, Moving};

const CLONE_VM: u64 = 0x100;
const CLONE_FILES: u64 = 0x400;
/// Reasons why a copy that fork has made goes on natively.
const SHARED_DESCRIPTORS: &str = "it shares its descriptors with the process that made it (CLONE_FILES), which could exchange \
     the virtual CPU's";
const FILTERED: &str = "it has a system call filter, which may kill it for calls that lwp makes in it; with \
     CAP_SYS_ADMIN, and outside of containers, lwp suspends filters meanwhile";
const NO_CONTEXTS: &str = "lwp has no descriptor or no memory left for its contexts";

/// Returns the contexts of a copy that fork has made: new ones, which nobody else has had. Where
/// there can be none, it has a place beside its maker's for what the host notes of it, never maps
/// that, and goes on natively for the reason that is returned.
pub(super) fn contexts_for(
    machine: &mut Machine,
    child: Tid,
    makers: FileId,
    shares_descriptors: bool,
) -> (FileId, Moving) {
    let moving = match shares_descriptors {
        true => Moving::Never(SHARED_DESCRIPTORS),
        false if machine.tasks.filtered => moving_past_filter(child),
        false => Moving::Itself,
    };
    let file = machine.contexts.files.add_and_leave(lwp_process::limits::RESERVED);
    match (file, moving) {
        (Ok(file), _) => (file, moving),
        (Err(_), Moving::Never(_)) => (makers, moving),
        (Err(_), _) => (makers, Moving::Never(NO_CONTEXTS)),
    }
}

/// The way to contexts for a new process that may have a system call filter, which may kill it for
/// calls that the program does not make itself.
fn moving_past_filter(tid: Tid) -> Moving {
    let (status, host) = (Status::read(tid), host_status());
    if !status.is_filtered() || status.has_filters_of(&host) {
        return Moving::Itself;
    }
    // The process may not have stopped yet, so it cannot be tried.
    match may_suspend_filters() {
        true => Moving::FromOutside,
        false => Moving::Never(FILTERED),
    }
}

/// Returns whether the kernel lets the host suspend filters of tracees: to whom it has given
/// CAP_SYS_ADMIN, and no filter.
pub fn may_suspend_filters() -> bool {
    let host = host_status();
    host.has_admin_capability() && !host.is_filtered()
}

fn host_status() -> Status {
    Status::read(std::process::id().cast_signed())
}

/// The flags of a call that has made a process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flags {
    /// They were in a register.
    Known(u64),
    /// They were in memory, where they may be others by now, if it can be read.
    Told(Option<u64>),
}

/// Returns whether a process and the one that has made it have something in common.
pub(super) fn has_in_common(maker: i32, child: Tid, flags: Flags, what: Common) -> bool {
    let flag = match what {
        Common::Memory => CLONE_VM,
        Common::Descriptors => CLONE_FILES,
    };
    match flags {
        Flags::Known(flags) => flags & flag != 0,
        // Some containers do not let the kernel tell.
        Flags::Told(told) => sys::have_in_common(maker, child, what)
            .or(told.map(|flags| flags & flag != 0))
            .unwrap_or(what == Common::Descriptors),
    }
}

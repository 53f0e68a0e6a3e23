//! Exits: the requests of translated code, as values.
//!
//! Translated code writes a request into the mailbox of its thread's context. The program can write
//! there too, so nothing else of the server reads a request's kind: [`Exit::decode`] is the border.

use lwp_dbt::{AppPc, RequestKind, Slot};
use lwp_process::Tid;

use crate::contexts::Context;

/// The thread whose exit is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCx {
    /// Its id.
    pub tid: Tid,
    /// The slot of its context.
    pub slot: usize,
    /// The host has a single processor, so that work ahead delays the thread.
    pub alone: bool,
}

/// A request of translated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Control goes on at the request's pc.
    Dispatch,
    /// An indirect branch led to a pc that the indirect table does not have; the stack pointer
    /// after it.
    Indirect(u64),
    /// The last instruction of a marker has been executed.
    Marker,
    /// The bytes of the fragment have changed.
    Stale,
    /// A system call of interest is about to be made.
    Syscall,
    /// The system call that the thread made for the host has returned.
    SyscallDone,
    /// CPUID of a leaf and subleaf.
    Cpuid([u32; 2]),
    /// XGETBV of component 0.
    Xgetbv,
    /// An LWP instruction.
    Lwp(RequestKind),
    /// The LWP countdown ends in the block at the request's pc.
    LwpDue,
    /// There is no room among the notes of an access.
    LwpNotes,
    /// The last instruction of a cut fragment has retired; whether it was a taken branch.
    LwpStepped(bool),
    /// There is no free slot to count an indirect call in.
    Calls,
    /// There is no room to write a transfer down.
    Transfers,
    /// An instruction has stored an instruction pointer of the x87 unit; whether of 64 bits.
    Pointer(bool),
    /// The object at this address, which rdi holds, ends.
    Ends(u64),
    /// The instruction is executed natively, alone, by the tracer.
    Step,
}

impl Exit {
    /// Reads the request in a context. `None` for a kind that translated code cannot have written.
    pub fn decode(context: Context<'_>) -> Option<Self> {
        let register = |field| context.get(field) as u32;
        Some(match context.asked()? {
            RequestKind::Dispatch => Self::Dispatch,
            RequestKind::Indirect => Self::Indirect(context.get(Slot::Rsp)),
            RequestKind::Marker => Self::Marker,
            RequestKind::Stale => Self::Stale,
            RequestKind::Syscall => Self::Syscall,
            RequestKind::SyscallDone => Self::SyscallDone,
            RequestKind::Cpuid => Self::Cpuid([register(Slot::Rax), register(Slot::Rcx)]),
            RequestKind::Xgetbv if register(Slot::Rcx) == 0 => Self::Xgetbv,
            kind @ (RequestKind::Llwpcb
            | RequestKind::Slwpcb
            | RequestKind::Lwpins
            | RequestKind::Lwpval) => Self::Lwp(kind),
            RequestKind::LwpDue => Self::LwpDue,
            RequestKind::LwpNotes => Self::LwpNotes,
            RequestKind::LwpStepped => Self::LwpStepped(false),
            RequestKind::LwpTaken => Self::LwpStepped(true),
            RequestKind::Calls => Self::Calls,
            RequestKind::Transfers => Self::Transfers,
            RequestKind::Pointer32 => Self::Pointer(false),
            RequestKind::Pointer64 => Self::Pointer(true),
            RequestKind::Ends => Self::Ends(context.get(Slot::Rdi)),
            // A component that there is not faults natively.
            RequestKind::Xgetbv
            | RequestKind::Step
            | RequestKind::TrapFlag
            | RequestKind::StateSave
            | RequestKind::Tsc
            | RequestKind::Random
            | RequestKind::HostSyscallDone => Self::Step,
        })
    }

    /// The request's pc: the place at which control goes on, or the instruction that asks.
    pub fn pc(context: Context<'_>) -> AppPc {
        AppPc(context.get(Slot::Pc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contexts::Contexts;

    fn decoded(kind: u64, fields: &[(Slot, u64)]) -> Option<Exit> {
        let mut contexts = Contexts::new(0);
        let file = contexts.files.add().expect("a file in memory");
        let slot = contexts.allocate(file, 0).expect("a context");
        let context = contexts.context(slot);
        context.set(Slot::Kind, kind);
        fields.iter().for_each(|(field, value)| context.set(*field, *value));
        Exit::decode(context)
    }

    #[test]
    fn every_kind_that_translated_code_writes_is_an_exit_and_no_other_number_is() {
        let known = (0..=0xff).filter(|kind| RequestKind::from_raw(*kind).is_some()).count();
        assert!(known > 20, "{known}");
        for kind in 0..=0x1ff {
            let is_known = RequestKind::from_raw(kind).is_some();
            assert_eq!(decoded(kind.into(), &[]).is_some(), is_known, "{kind}");
        }
        for kind in [1 << 32, u64::MAX, 1 << 63] {
            assert_eq!(decoded(kind, &[]), None, "{kind:#x}");
        }
    }

    #[test]
    fn exits_have_what_their_handlers_need() {
        let stack = [(Slot::Rsp, 0x7fff_0000)];
        let indirect = RequestKind::Indirect as u64;
        assert_eq!(decoded(indirect, &stack), Some(Exit::Indirect(0x7fff_0000)));
        let registers = [(Slot::Rax, 0xdead_0000_0007), (Slot::Rcx, 1)];
        let cpuid = RequestKind::Cpuid as u64;
        assert_eq!(decoded(cpuid, &registers), Some(Exit::Cpuid([7, 1])));
        let taken = RequestKind::LwpTaken as u64;
        assert_eq!(decoded(taken, &[]), Some(Exit::LwpStepped(true)));
    }

    #[test]
    fn a_component_that_there_is_not_is_left_to_the_processor() {
        let kind = RequestKind::Xgetbv as u64;
        assert_eq!(decoded(kind, &[(Slot::Rcx, 0)]), Some(Exit::Xgetbv));
        assert_eq!(decoded(kind, &[(Slot::Rcx, 1 << 32)]), Some(Exit::Xgetbv));
        assert_eq!(decoded(kind, &[(Slot::Rcx, 5)]), Some(Exit::Step));
    }
}

//! State maps: the application's state at any instruction of translated code.
//!
//! Each instruction of translated code corresponds to an exact state of the application: a pc, and
//! perhaps a few registers in their spill slots. When a signal arrives, the host doesn't have to
//! step forward or undo anything; it applies the state map, and has the state at an instruction
//! boundary of the application.

use crate::addr::AppPc;

/// Registers whose application value is in the context, not in the register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spills {
    /// rcx is in [`crate::Slot::Rcx`].
    pub rcx: bool,
    /// r11 is in [`crate::Slot::R11`].
    pub r11: bool,
    /// rax is in [`crate::Slot::Rax`].
    pub rax: bool,
    /// rdi, rsi, rdx, r10, rbx, r8 and r9 are in their slots too.
    pub mailbox: bool,
    /// rdx, rsi and rdi are in their slots.
    pub lookup: bool,
    /// The arithmetic flags are in [`crate::Slot::LwpFlags`].
    pub flags: bool,
}

/// The source of the application pc.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcSource {
    /// Known when translating.
    Known(AppPc),
    /// In rcx.
    Rcx,
    /// rcx plus this.
    RcxPlus(AppPc),
    /// In r11.
    R11,
    /// In [`crate::Slot::Pc`].
    ContextPc,
    /// In [`crate::Slot::Next`]; rcx takes the same value, because a system call has just returned.
    ContextNext,
    /// In [`crate::Slot::SigPc`].
    ContextSigPc,
    /// That of the translated code at [`crate::Slot::LwpAfter`].
    LwpAfter,
    /// That of the translated code at [`crate::Slot::CallAfter`].
    CallAfter,
}

/// Something that translated code has half done and the host must settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Nothing.
    None,
    /// A native system call has just returned: rcx is to become the application pc.
    AfterSyscall,
    /// The run tail's system call has just returned and the host has not been told.
    RunSyscallDone,
    /// A request may be in flight in the mailbox.
    Mailbox,
    /// An insertion list is being applied; the number says how far the current triple is:
    /// 0 untouched, 1 exchanged (old head in rax), 2 stored.
    Applying(u8),
    /// The signal frame at rsp has been redirected; its rip must be put back from the context.
    SigreturnArmed,
    /// A signal handler is returning; its frame's rip has not been put back yet.
    SigreturnLanded,
    /// The LWP countdown is being dealt out anew: its high and low part are the new ones in the
    /// context and what the words say is void.
    Dealing,
    /// An LWP instruction has been executed; its result is still to be set as
    /// [`crate::Slot::LwpPending`] says.
    LwpResult,
    /// A routine is executing an LWP instruction, of which nothing is to be seen yet.
    LwpBegun,
    /// A routine has stored the record of an LWP instruction, which is thereby executed; what
    /// becomes of ring and counter stands ready in the context.
    LwpStored,
    /// An event is due, and a routine tries whether its record can be stored: a fault there is not
    /// the application's, and the host is asked instead.
    LwpTrying,
    /// A routine has stored the record of an event; what becomes of ring and countdown stands ready
    /// in the context. The cut fragment is over.
    LwpRecorded,
    /// An access is being noted, of an instruction that has not been executed: the state is the one
    /// at the access's site, which is in r11 if the pc is said to be there, and else in
    /// [`crate::Slot::Go`].
    LwpTouching,
    /// The access of an instruction that has not been executed is being noted, as in
    /// [`Self::LwpTouching`], and its line is being moved to the front of its set, as the next
    /// change says.
    LwpMoving,
    /// The access of an instruction that has not been executed is being noted, as in
    /// [`Self::LwpTouching`], and its line has been moved; if it was not in the set, the miss has
    /// been noted.
    LwpMoved,
    /// The last instruction of a cut fragment has retired, as a taken branch; the host has not been
    /// told.
    LwpBranched,
    /// A routine is about to count an indirect call, which has not been made:
    /// [`crate::Slot::CallAfter`] says which.
    Calling,
    /// A routine has counted an indirect call that has not been made, with the target in
    /// [`crate::Slot::CallTarget`].
    Called,
    /// A routine looks for a transfer between functions, which has not been made:
    /// [`crate::Slot::CallAfter`] says which.
    Transferring,
}

/// The part of a superblock's charge that is not executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remainder {
    /// Everything behind the fragment.
    Behind,
    /// Everything behind the fragment, whose branch has led elsewhere than it was charged for.
    Elsewhere,
}

/// The instruction that wrote the flags last, and what has happened to the stack pointer since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagWriter {
    /// Its address.
    pub pc: AppPc,
    /// Bytes by which the stack pointer is higher than behind it.
    pub stack: i32,
}

/// The application's state at one translated instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppState {
    /// The application pc.
    pub pc: PcSource,
    /// Registers to be taken from the context.
    pub spills: Spills,
    /// Anything else that is to be settled.
    pub commit: Commit,
    /// The number of instructions of the fragment that have been executed, and whether it has been
    /// charged for all of them; `None` when the counters are right as they are.
    pub partial: Option<(u32, bool)>,
    /// A conditional branch has fallen through and its edge has not been counted.
    pub edge_pending: bool,
    /// The LWP countdown has been charged for the whole fragment, of which this many instructions
    /// have been executed.
    pub countdown: Option<u32>,
    /// The indirect call at hand has been counted with the target in r11, and has not been made.
    pub called: bool,
    /// A transfer between functions is being [made](crate::context::trace), whose instruction has
    /// not been executed: how many bytes of its code have been.
    pub transfer: Option<u32>,
    /// The fragment has been charged, and its instructions have not been added to the thread's
    /// [sum](crate::context::trace).
    pub unsummed: bool,
    /// A superblock has been charged to its end, which is not reached from here.
    pub remainder: Option<Remainder>,
    /// The instruction whose flags are the application's, where a guard has overwritten them.
    pub flags: Option<FlagWriter>,
}

impl AppState {
    /// At `pc`, all registers in place.
    pub fn at(pc: PcSource) -> Self {
        Self {
            pc,
            spills: Spills::default(),
            commit: Commit::None,
            partial: None,
            edge_pending: false,
            countdown: None,
            called: false,
            transfer: None,
            unsummed: false,
            remainder: None,
            flags: None,
        }
    }
}

/// One entry of a fragment's point table.
///
/// A point holds from its own offset up to the next point's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateEntry {
    /// Offset from the start of the fragment's code.
    pub at: u32,
    /// Offset of the application pc from the fragment's.
    pub app: u8,
    /// Application instructions executed.
    pub index: u8,
    /// `bits::*`.
    pub state: u8,
}

/// The state byte of a point.
pub(crate) mod bits {
    pub const SPILL_RCX: u8 = 1;
    pub const SPILL_R11: u8 = 2;
    pub const SPILL_RAX: u8 = 4;
    /// The bits for the place of the pc; 0: `app` bytes into the fragment.
    pub const PC_MASK: u8 = 0x18;
    /// The pc is in rcx.
    pub const PC_RCX: u8 = 0x08;
    /// The pc is rcx plus the fragment's pc.
    pub const PC_RCX_PLUS: u8 = 0x10;
    /// The pc is the target of the fragment's terminator.
    pub const PC_TARGET: u8 = 0x18;
    /// The fragment has not been charged yet.
    pub const UNCOUNTED: u8 = 0x20;
    /// The not-taken edge has not been counted yet. With `UNCOUNTED`, where LWP is on: the
    /// countdown has been charged, the fragment has not. With rcx and r11 spilled, before an
    /// indirect call: the call has been counted and not been made. With both spilled in a fragment
    /// without a branch: a value has been counted, and its instruction has not been executed.
    pub const EDGE: u8 = 0x40;
    /// A system call has just returned, or (with `PC_RCX`) a signal frame is armed, or (with
    /// `EDGE`) an LWP instruction's result is still to be set.
    pub const SYSCALL: u8 = 0x80;
    /// The fragment has been charged, and its instructions have not been added to the thread's sum.
    pub const UNSUMMED: u8 = UNCOUNTED | SYSCALL;
    /// In a block of a superblock that ends in a guard: the flags have been overwritten, and can
    /// be had again.
    pub const LOST: u8 = SYSCALL;
}

/// Bytes of an encoded point.
pub(crate) const POINT_BYTES: usize = 4;

/// Appends `points` to `out`, each as delta, app offset, index, state.
pub(crate) fn encode(points: &[StateEntry], out: &mut Vec<u8>) {
    let mut previous = 0;
    for point in points {
        let mut delta = point.at - previous;
        while delta > 255 {
            // A filler repeats the state before it: the last encoded point's own fields.
            let fill = out.len() - POINT_BYTES;
            let (app, index, state) = (out[fill + 1], out[fill + 2], out[fill + 3]);
            out.extend_from_slice(&[255, app, index, state]);
            delta -= 255;
        }
        out.extend_from_slice(&[delta as u8, point.app, point.index, point.state]);
        previous = point.at;
    }
}

/// A point, and how far behind it a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub point: StateEntry,
    pub past: u32,
}

/// The last point at or before `offset`; of those in a row that say the same, the first.
pub(crate) fn lookup(encoded: &[u8], offset: u32) -> Option<Found> {
    let mut at = 0;
    let mut found: Option<StateEntry> = None;
    for raw in encoded.chunks_exact(POINT_BYTES) {
        at += u32::from(raw[0]);
        if at > offset {
            break;
        }
        let point = StateEntry { at, app: raw[1], index: raw[2], state: raw[3] };
        let first = found.filter(|it| StateEntry { at, ..*it } == point);
        found = Some(first.unwrap_or(point));
    }
    found.map(|point| Found { point, past: offset - point.at })
}

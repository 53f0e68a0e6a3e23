//! The routines that every arena starts with, as the rest of the crate sees them: where they are,
//! and what they agree on with the code around them and with the host. `assembly.rs` makes them.

use std::borrow::Cow;

use crate::context::{LWP_SLOTS, Slot};
use crate::state_map::AppState;

/// Byte offset of rip in the signal frame, from rsp at `rt_sigreturn`: the machine context starts
/// 40 bytes into the ucontext, and rip is its 17th register.
pub const SIGFRAME_RIP: i32 = 40 + 16 * 8;
/// Byte offset of the code segment there, behind rip and the flags.
pub const SIGFRAME_CS: i32 = 40 + 18 * 8;

/// Words of one system call in the list that [`Routines::batch`] works off: its number, which its
/// result replaces, and six arguments. Number 0 ends the list.
pub const BATCH_WORDS: usize = 7;

/// The routines' code and the places in it that others need, as offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routines {
    /// The code.
    pub code: Cow<'static, [u8]>,
    /// Those that ask the host.
    pub ask: AskRoutines,
    /// The place at which a returning signal handler arrives.
    pub sigreturn: u32,
    /// Enter the application at the pc in the context, all other registers being the application's.
    pub enter: u32,
    /// Answer: apply the insertion list, restore all registers, continue at `Go`.
    pub go: u32,
    /// Answer: restore all registers, make the system call, report its result.
    pub run: u32,
    /// Answer: restore all registers, make the system call, continue at `Go`.
    pub run_and_go: u32,
    /// Make the system calls listed at rbx, then stop at a breakpoint; see
    /// [`BATCH_WORDS`].
    pub batch: u32,
    /// Replace the contexts of a new process: see [`MoveIn`].
    pub move_in: MoveIn,
    /// Count the indirect call that the context describes; rcx and r11 are in their slots.
    pub called: u32,
    /// Look for a transfer that the thread does not know at its place, by the way to leave a
    /// function; rcx, r11 and rax are in their slots.
    pub transfers: [u32; 6],
    /// Those of Lightweight Profiling.
    pub lwp: LwpRoutines,
    pub(crate) states: Cow<'static, [(u32, AppState)]>,
}

impl Routines {
    /// The application's state at `offset`.
    pub fn state_at(&self, offset: u32) -> Option<AppState> {
        if offset as usize >= self.code.len() {
            return None;
        }
        self.states.iter().rev().find(|(at, _)| *at <= offset).map(|(_, state)| *state)
    }
}

/// The routines that ask the host, as offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskRoutines {
    /// Ask for the pc in r11, whose application value is in its slot; rcx is the application's.
    pub r11: u32,
    /// Ask for CPUID at the pc in r11, as for `r11`.
    pub cpuid: u32,
    /// Ask for the system call at the pc in r11, as for `r11`, or make it and go on as `Go`
    /// says, where it concerns nobody.
    pub call: u32,
    /// Ask for the pc in rcx; rcx and r11 are in their slots. The indirect table's empty slots and
    /// the ends of its chains point here.
    pub rcx: u32,
}

/// Bytes of the mapping below the contexts by which it is known whose they are, also in a copy that
/// fork has made. It lies behind the file's end, so that nothing can be reached through it.
pub const NAME_TAG_BYTES: u64 = 4096;

/// The routine by which a copy that fork has made gets contexts of its own, before it executes
/// anything else.
///
/// The path of their file is in r8, r9 and r10, their address in rdx, their length in rbx, the
/// offset of the file's [name tag](NAME_TAG_BYTES) in rsi, and the number in [`Slot::Secret`] in
/// rdi. Everything of the application is in the new context, where [`Routines::go`] finds it, once
/// it is mapped. The routine makes six system calls. It stops at a breakpoint where the mapping
/// fails, or shows another number: then it is of another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveIn {
    /// Its start.
    pub start: u32,
    /// Behind the first of its system calls: rax is a descriptor, or an error. From the next
    /// instruction on it is in r8.
    pub opened: u32,
    /// Behind the last of its system calls: rdx is the address of the mapping, or an error.
    pub made: u32,
    /// Behind the breakpoint, which is its end.
    pub end: u32,
}

/// The routines of Lightweight Profiling, as offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LwpRoutines {
    /// A word of the countdown has run out in the block at the pc in r11, which has not begun; rcx
    /// says where to try again. Their own values are in their slots.
    pub deal: u32,
    /// An event is due in the block at `Pc`: asks the host. All registers and flags are in their
    /// slots.
    pub due: u32,
    /// A cut fragment has ended, and goes on at the pc in r11: asked for as by
    /// [`AskRoutines::r11`], and its record stored here if the thread has led itself to it.
    pub stepped: u32,
    /// A cut fragment's last instruction was an indirect branch, to the pc in rcx; rcx and r11 are
    /// in their slots.
    pub branched: u32,
    /// Those of accesses to a data cache that is watched.
    pub touches: TouchRoutines,
    /// LWPINS, with operands staged: asked for as by [`AskRoutines::r11`], and done here if
    /// possible.
    pub insert: u32,
    /// LWPVAL whose counter has expired, likewise.
    pub sample: u32,
    /// SLWPCB, likewise; `LwpWeight` says what it counts for itself.
    pub flush: u32,
    /// LLWPCB, likewise.
    pub load: u32,
    /// Answer: read a byte at `LwpTouch`, then ask again.
    pub touch_read: u32,
    /// Answer: write a byte at `LwpTouch` as it is, then ask again.
    pub touch_write: u32,
}

/// The routines of accesses to a data cache that is watched, as offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchRoutines {
    /// The line of an access is not the one used last in its set, or not the only one: the address
    /// is in rcx, the site in r11, both of which are in their slots; where it goes on, r11 still
    /// is. By the binary logarithm of the access's length; `any` for others.
    pub quick: [u32; 6],
    /// Like `quick`, where flags are dead.
    pub quick_dead: [u32; 6],
    /// Like `quick`, for caches whose sets are not chosen by the address's own bits.
    pub any: u32,
    /// A repeated string instruction comes next, whose site is in r11; rcx and r11 are in their
    /// slots. Goes on if what it is going to access can be worked out by `repeat_walk`.
    pub repeat_ready: u32,
    /// It has been executed: works out what it has accessed.
    pub repeat_walk: u32,
}

/// In [`Slot::LwpEvents`]: what is due is no event but a sample of the high part. The known cut
/// ends before the instruction, and it is the host that takes the sample.
pub const SAMPLES: u32 = 3;

/// The slots that a recorded event changes, and those in which their new values stand ready.
pub const RECORDED: [(Slot, Slot); 7] = [
    (Slot::LwpNewHead, Slot::LwpRingHead),
    (Slot::LwpNewHigh, Slot::LwpHigh),
    (Slot::LwpNewLow, Slot::LwpLow),
    (Slot::LwpNewHighBase, Slot::LwpHighBase),
    (Slot::LwpNewLowBase, Slot::LwpLowBase),
    (Slot::LwpNewClockBase, Slot::LwpClockBase),
    (Slot::LwpNewRandom, Slot::LwpRandom),
];

/// In [`Slot::LwpNote`]: an instruction, and a branch.
///
/// A block's instruction table, behind the stub of its trip, has a byte for its length, where that
/// tells whether its branch was taken, else 0; and one for where each of its instructions begins.
pub const NOTES: [u64; 2] = [1, 2];

/// Bytes of the code that charges a block, from its begin to where the block goes on: flags dead,
/// and flags live up to where rcx comes back. Said here because the build script assembles routines
/// without the emitter.
pub(crate) const CHARGE_BYTES: [u64; 2] = [19, 50];

/// In [`Slot::LwpEvents`]: what is due is a branch, to be written down; the high part of the
/// countdown is instructions, or branches.
pub const PREDICTED: [u32; 2] = [4, 5];

/// The sum of the words when each is -1, as in [`Slot::LwpGiven`] while nothing is dealt out.
pub const NOTHING_GIVEN: i32 = -(LWP_SLOTS as i32);

/// An access's site: where its stub goes on, followed by what the routines want to know of it.
/// These are offsets.
pub mod site {
    /// The instruction's pc, 8 bytes.
    pub const PC: i32 = 5;
    /// The fragment, 4 bytes.
    pub const FRAGMENT: i32 = 13;
    /// The value of [`crate::Slot::LwpMeta`], 4 bytes.
    pub const META: i32 = 17;
    /// The number of instructions of the fragment that have been executed, one byte.
    pub const INDEX: i32 = 21;
    /// All of it.
    pub const BYTES: i32 = 22;
}

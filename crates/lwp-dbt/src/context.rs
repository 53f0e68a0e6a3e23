//! The memory that translated code touches besides the application's own.
//!
//! Every thread has a *context*: one page at its gs base, shared with the host, followed by the
//! thread's counters. Every address space has the *low window* at a fixed address below 2 GiB, so
//! that its tables can be reached with a 32-bit displacement and no base register.
//!
//! ```text
//! gs base  +0x0000  context: spill slots, mailbox          low + 0x000000  indirect table, 256 Ki x 8
//!          +0x1000  data cache, where one is watched           + 0x200000  system call classes, 64 Ki x 1
//!          +0x5000  its latest changes                         + 0x210000  argument classes, 256 x 1
//!          +0x6000  known cuts
//!         +0x106000 misses of the data cache                   + 0x210100  masks: table, cache sets, lines
//!         +0x116000 counters, 8 bytes each                     + 0x211000  a copy of the routines
//!        +0x1400000 indirect calls by where they led
//!                                                              + 0x21f000  known answers to CPUID
//!                                                              + 0x220000  chain slots, 8 bytes each
//! ```

pub mod calls;

/// A field of the thread context: its byte offset from the gs base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Slot {
    /// Application rcx while rcx is borrowed.
    Rcx = 0x00,
    /// Application r11 while r11 is borrowed.
    R11 = 0x08,
    /// Application rax, saved by the mailbox or while rax is borrowed.
    Rax = 0x10,
    /// Application rdi, saved by the mailbox.
    Rdi = 0x18,
    /// Application rsi, saved by the mailbox.
    Rsi = 0x20,
    /// Application rdx, saved by the mailbox.
    Rdx = 0x28,
    /// Application r10, saved by the mailbox.
    R10 = 0x30,
    /// Application rbx, saved and restored by the mailbox.
    Rbx = 0x38,
    /// Application r8, saved by the mailbox.
    R8 = 0x40,
    /// Application r9, saved by the mailbox.
    R9 = 0x48,
    /// The application pc that the request is about.
    Pc = 0x50,
    /// What is asked of the host: a [`RequestKind`].
    Kind = 0x58,
    /// Address of the tail that carries out the host's answer; 0 while there is none.
    Resp = 0x60,
    /// Where the go tail jumps to.
    Go = 0x68,
    /// Futex word: 1 while the thread sleeps in its mailbox.
    Wait = 0x70,
    /// How many pauses the thread spins before it sleeps.
    Spin = 0x78,
    /// The application's own gs base.
    AppGs = 0x80,
    /// Where the signal frame that is being returned from wants to go.
    SigPc = 0x88,
    /// Address of this thread's door flag, one byte.
    DoorFlag = 0x90,
    /// Address of the sleep word of this thread's address space, 4 bytes: 1 while the host sleeps.
    DoorSleep = 0x98,
    /// Linear address of this context.
    This = 0xa0,
    /// System call that the host asks for: number, six arguments, result.
    SysNr = 0xa8,
    /// First argument.
    SysA1 = 0xb0,
    /// Second argument.
    SysA2 = 0xb8,
    /// Third argument.
    SysA3 = 0xc0,
    /// Fourth argument.
    SysA4 = 0xc8,
    /// Fifth argument.
    SysA5 = 0xd0,
    /// Sixth argument.
    SysA6 = 0xd8,
    /// Result.
    SysRet = 0xe0,
    /// How many entries of the insertion list are still to be applied.
    ApplyCount = 0xe8,
    /// Non-zero forbids the mailbox to make system calls of its own (a seccomp filter is in force).
    NoSyscalls = 0xf0,
    /// The application pc after the system call that the run tail executes.
    Next = 0xf8,
    /// The state components of the virtual processor's XCR0.
    StateMask = 0x100,
    /// Where that signal frame lies, to put its rip back.
    SigFrame = 0x108,
    /// Application rsp when the request was made. This and the following five are for the host to look
    /// at; the registers themselves stay the application's.
    Rsp = 0x110,
    /// Application rbp.
    Rbp = 0x118,
    /// Application r12.
    R12 = 0x120,
    /// Application r13.
    R13 = 0x128,
    /// Application r14.
    R14 = 0x130,
    /// Application r15.
    R15 = 0x138,
    /// Which processor the thread was on when it made the request: the limit of [`PROCESSOR_SEGMENT`].
    Processor = 0x140,
    /// Descriptors that the host wants to know of when they are read from somewhere: a bit each, and the last one for all
    /// above.
    Watched = 0x148,
    /// The sum of the words when they were dealt out last.
    LwpGiven = 0x180,
    /// How many of the high part could pass then without an event.
    LwpHigh = 0x188,
    /// How many of the low part.
    LwpLow = 0x190,
    /// What the high part is about to become while the words are dealt out anew.
    LwpNewHigh = 0x198,
    /// What the low part is about to become.
    LwpNewLow = 0x1a0,
    /// What the block that ran out of its word counts: high part from bit 24 up, low part below.
    LwpWeight = 0x1a8,
    /// The word that ran out, as displacement from the gs base.
    LwpWord = 0x1b0,
    /// How many LWPVALs may still pass without a record.
    LwpValue = 0x1b8,
    /// Operand of an LWP instruction: the block address, or the second data.
    LwpOperand = 0x1c0,
    /// The first data of LWPINS or LWPVAL; the result of an LWP instruction.
    LwpData = 0x1c8,
    /// Where translated code goes on when the host has executed an LWP instruction.
    LwpAfter = 0x1d0,
    /// An address that an LWP instruction could not reach.
    LwpTouch = 0x1d8,
    /// The application's flags while the routines use them: AH as LAHF gives it, AL from SETO.
    LwpFlags = 0x1e0,
    /// What an LWP instruction that the host has executed leaves to be set from `LwpData`: 0 nothing,
    /// 1 the carry flag, 2 its register.
    LwpPending = 0x1e8,
    /// Address of the insertion list.
    ApplyAt = 0x1f0,
    /// The access being noted: its first byte in the line that is being looked for.
    LwpLine = 0x1f8,
    /// A short insertion list: triples of table slot address, chain slot address, entry address.
    ApplyList = 0x200,
    /// Address of the LWP ring where translated code stores records itself; 0 where the host does.
    LwpRing = 0x800,
    /// Bytes of it.
    LwpRingSize = 0x808,
    /// Offset in it of the next record.
    LwpRingHead = 0x810,
    /// What that is about to become.
    LwpNewHead = 0x818,
    /// Address of BufferHeadOffset.
    LwpHeadAt = 0x820,
    /// Address of BufferTailOffset.
    LwpTailAt = 0x828,
    /// The host is asked where the ring would hold this many bytes.
    LwpThreshold = 0x830,
    /// First dword of the record of an LWPINS or LWPVAL, but for the core's number.
    LwpRecord = 0x838,
    /// Selector of the segment whose limit says which core this is; 0 where records are to say 0.
    LwpCore = 0x840,
    /// Address of the control block where translated code executes SLWPCB itself; 0 where the host does.
    LwpBlock = 0x848,
    /// Address of the EventCounter that the high part is; 0 where there is none.
    LwpHighAt = 0x850,
    /// Of the low part.
    LwpLowAt = 0x858,
    /// Of the value samples.
    LwpValueAt = 0x860,
    /// How many LWPVALs could pass when that was published last.
    LwpValueBase = 0x868,
    /// What the counter of value samples is set to after a record, but for its random bits.
    LwpValueInterval = 0x870,
    /// What it is about to be set to.
    LwpNewValue = 0x878,
    /// Which of its bits are random.
    LwpRandomMask = 0x880,
    /// State of the random number generator.
    LwpRandom = 0x888,
    /// What that is about to become.
    LwpNewRandom = 0x890,
    /// Number of the register that the result of SLWPCB goes to, with [`RESULT_NARROW`].
    LwpRegister = 0x898,
    /// Non-zero in continuous mode: a full ring is nothing special.
    LwpContinuous = 0x8a0,
    /// How many misses have been noted, in its low half; in the high one how many of these count and are loads.
    LwpNotes = 0x8a8,
    /// How many may be noted before the host is asked: less than half of what 32 bits hold.
    LwpMostNotes = 0x8b0,
    /// The access being noted: its address.
    LwpAddress = 0x8b8,
    /// Its length in bits 11:0, its use in 13:12, and whether a miss counts in bit 14.
    LwpMeta = 0x8c0,
    /// The fragment that makes it.
    LwpFragment = 0x8c8,
    /// How many of its instructions have been executed.
    LwpIndex = 0x8d0,
    /// A repeated string instruction has begun, and what it has accessed has not been worked out: 1 in a cut
    /// fragment, else its pc.
    LwpRepeats = 0x8d8,
    /// rcx as it was then.
    LwpRepeatCount = 0x8e0,
    /// rsi as it was then.
    LwpRepeatFrom = 0x8e8,
    /// rdi as it was then.
    LwpRepeatTo = 0x8f0,
    /// How many changes of the data cache there have been.
    LwpUndos = 0x8f8,
    /// Where translated code stores the records of instructions and branches itself: 1 where the high
    /// part is instructions and the low one branches, 2 where the high part is branches; 3 where samples
    /// of instructions are taken ([`crate::routines::SAMPLES`]); [`crate::routines::PREDICTED`] where branches
    /// are written down for the predictor; 0 where the host does everything.
    LwpEvents = 0x900,
    /// Address of the [known cut](CUTS_AT) that the thread has led itself to; 0 where the host has.
    LwpCut = 0x908,
    /// What the high part of the countdown was when it was published or reloaded last.
    LwpHighBase = 0x910,
    /// The low part.
    LwpLowBase = 0x918,
    /// What the base of the high part is about to become.
    LwpNewHighBase = 0x920,
    /// That of the low part.
    LwpNewLowBase = 0x928,
    /// What the high part is reloaded with when its event is recorded, but for its random bits.
    LwpHighInterval = 0x930,
    /// The low part.
    LwpLowInterval = 0x938,
    /// Address of the last line that the access being noted touches.
    LwpLastLine = 0x940,
    /// Core clocks are `(65536 n + offset) / divisor` of the n instructions that were taken from the high
    /// part since it was published: the offset.
    LwpCoreOffset = 0x948,
    /// The divisor; 0 where no clock is counted.
    LwpCoreDivisor = 0x950,
    /// Reference clocks are `(rate c + remainder) / per` of the c core clocks: the rate, and `per` in the
    /// upper half.
    LwpReferenceRate = 0x958,
    /// How much more than the high part the counter of instructions is, signed, and the remainder in the
    /// upper half.
    LwpClockRest = 0x960,
    /// What the counter of core clocks was when the high part was published, and that of reference clocks in
    /// the upper half.
    LwpClockBase = 0x968,
    /// Address of the EventCounter of core clocks; 0 where there is none.
    LwpCoreClocksAt = 0x970,
    /// Of reference clocks.
    LwpReferenceClocksAt = 0x978,
    /// Where the indirect call leads that is being counted.
    CallTarget = 0x980,
    /// Which call it is: see [`calls::call_site`].
    CallSite = 0x988,
    /// Where translated code goes on when it has been counted.
    CallAfter = 0x990,
    /// Address of the [instruction table](crate::routines::NOTES) of the block that ran out of its word; 0 where
    /// an event in it cannot be noted.
    LwpTable = 0x9a0,
    /// Which event of the block at [`Slot::LwpNoteBlock`] is to be recorded when the next block begins
    /// ([`crate::routines::NOTES`]); 0 where there is none.
    LwpNote = 0x9a8,
    /// Address of that block.
    LwpNoteBlock = 0x9b0,
    /// Which of its instructions the event is on, counted from 1.
    LwpNoteIndex = 0x9b8,
    /// What it takes from the countdown, and has taken.
    LwpNoteWeight = 0x9c0,
    /// Address of the instruction.
    LwpNoteIp = 0x9c8,
    /// Address behind the block, where that tells whether its branch was taken; else 0.
    LwpNoteFall = 0x9d0,
    /// First dword of the record of an instruction, but for the core's number.
    LwpFirst = 0x9d8,
    /// Of a branch: not taken, and taken in the upper half.
    LwpFirstOfBranch = 0x9e0,
    /// How many bytes of a repeated string instruction have been gone through, counted from where it started.
    LwpRepeatDone = 0xa80,
    /// Non-zero where one has been interrupted: the host keeps what it had accessed, and wants the rest.
    LwpRepeatBegun = 0xa88,
    /// Non-zero where notes are kept, else misses are only counted.
    LwpKeeps = 0xa90,
    /// What the miss at hand adds to [`Slot::LwpNotes`].
    LwpNoted = 0xa98,
    /// How many branches have been written down for the predictor.
    LwpBranches = 0xaa0,
    /// How many may be before the host is asked.
    LwpMostBranches = 0xaa8,
}

/// Selector of the segment whose limit Linux sets to the number of the processor (and of its node): what
/// getcpu(2) reads in the vdso of processors without RDPID, and what a thread can read that makes no system call.
pub const PROCESSOR_SEGMENT: u32 = 0x7b;
/// What [`Slot::Processor`] is where there is no such segment.
pub const NO_PROCESSOR: u64 = u64::MAX;

/// In [`Slot::LwpRegister`]: only the low 32 bits of the result are to be set, and the rest cleared.
pub const RESULT_NARROW: u32 = 0x10;

/// How many words the LWP countdown is dealt out to.
pub const LWP_SLOTS: u32 = 16;
/// Displacement of the countdown of LWP events, dealt out to [`LWP_SLOTS`] words so that no chain of dependent
/// stores runs from block to block: high part from bit 24 up, and what is left of [`LWP_LOW_MAX`] of the low part
/// below.
pub const LWP_WORDS_AT: u32 = 0x5800;
/// Position of the high part in them.
pub const LWP_SHIFT: u32 = 24;
/// The low part that a word starts with, and the most that one deal may hand out of the high part.
pub const LWP_LOW_MAX: u64 = (1 << LWP_SHIFT) - 1;

/// Displacement of what each of them was dealt last, less what has been seen to be taken from it.
pub const LWP_DEALT_AT: u32 = 0x5a00;
/// Displacement of how much of the high part has been taken from each of them lately.
pub const LWP_TAKEN_AT: u32 = 0x5c00;

/// gs-relative displacement of word `index` of the LWP countdown.
pub fn lwp_slot_displacement(index: u32) -> u32 {
    LWP_WORDS_AT + index % LWP_SLOTS * 8
}

/// Most triples in an insertion list in the context.
pub const APPLY_SHORT: usize = 64;
/// Most triples in one elsewhere.
pub const APPLY_MAX: usize = 4096;

/// Displacement of [`ranges`].
pub const RANGES_AT: u32 = 0xac0;

/// Where there is code in a thread's address space, as far as the host knows, for calls that concern it. Where the
/// host has changed this meanwhile, it is asked.
pub mod ranges {
    /// Offset of how many there are, and one; 0 where the host is always to be asked.
    pub const COUNT: u32 = 0;
    /// Offset of a number that is another whenever the rest is.
    pub const STATE: u32 = 8;
    /// Offset of the first: its start, and its end.
    pub const FIRST: u32 = 16;
    /// Most of them.
    pub const MOST: usize = 40;
    /// Bytes of everything.
    pub const BYTES: u32 = FIRST + MOST as u32 * 16;
}

/// Displacement of the data cache: the lines of each set, by their addresses, negated, 8 bytes each, the one
/// used last first; [`set_bytes`] for each set.
pub const SETS_AT: u32 = 0x1000;
/// Bytes of a set of so many lines: those of a line of the usual length, so that an address's own bits say
/// where its set is; or twice as many.
pub const fn set_bytes(ways: u32) -> u32 {
    if ways <= 8 { 64 } else { 8 * MOST_WAYS }
}
/// Most lines in a set.
pub const MOST_WAYS: u32 = 16;
/// Most sets.
pub const MOST_SETS: u32 = 128;
/// What stands for a line where there is none: no line begins there, and no access can be made near it, the
/// address not being canonical.
pub const NO_LINE: u64 = 1 << 63 | 1;
/// Displacement of the misses noted, [`NOTE_BYTES`] each: the address; the pc from bit 16 up, with what
/// [`Slot::LwpMeta`] says below, and [`NOTE_GOES_ON`].
pub const NOTES_AT: u32 = 0x10_6000;
/// Bytes of a note.
pub const NOTE_BYTES: u32 = 16;
/// Most notes.
pub const MOST_NOTES: u32 = 4096;
/// Displacement of the branches written down for the predictor, [`BRANCH_BYTES`] each, where no misses are
/// noted: the address of the [known cut](CUTS_AT) that ends with it, plus 1 if it was taken; the pc after it.
pub const BRANCHES_AT: u32 = NOTES_AT;
/// Bytes of each.
pub const BRANCH_BYTES: u32 = NOTE_BYTES;
/// Most of them.
pub const MOST_BRANCHES: u32 = MOST_NOTES;
/// In [`Slot::LwpMeta`]: it is about a repeated string instruction.
pub const META_REPEATS: u32 = 1 << 17;
/// In [`Slot::LwpMeta`] of one: it reads where rsi points.
pub(crate) const META_SOURCE: u32 = 1 << 16;
/// In [`Slot::LwpMeta`], the bit of the use that loads do not have.
pub(crate) const META_NO_LOAD: u32 = 1 << 12;
/// Position in [`Slot::LwpMeta`] of whether a miss counts.
pub(crate) const META_COUNTS_SHIFT: u32 = 14;
/// In a note: it is of the same access as the note before.
pub const NOTE_GOES_ON: u64 = 1 << 15;
/// Displacement of what was changed in the data cache last, [`UNDO_BYTES`] each, [`UNDOS`] in a ring: the
/// site of the access that the routines know; the address of the line, negated; the place where it was, in bytes
/// from the start of its set, with what its miss added to [`Slot::LwpNotes`] above; the line that had to go, if it
/// was nowhere.
pub const UNDO_AT: u32 = 0x5000;
/// Bytes of each.
pub const UNDO_BYTES: u32 = 32;
/// How many are kept: more than an instruction touches lines.
pub const UNDOS: u32 = 64;

/// Displacement of the known cuts, [`KNOWN_CUTS`] of [`CUT_BYTES`]: cut fragments that the thread may lead
/// itself to when an event is due. Found by
/// [`KnownCut::places`].
pub const CUTS_AT: u32 = 0x6000;
/// Bytes of a known cut.
pub const CUT_BYTES: u32 = 64;
/// How many there are room for.
pub const KNOWN_CUTS: u32 = 16384;

/// A cut fragment that ends with the instruction on which an event expires, as emitted code finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCut {
    /// [`KnownCut::key`] of it.
    pub key: u64,
    /// Address of the fragment.
    pub head: u64,
    /// Address of the application's instruction that it ends with.
    pub ip: u64,
    /// First dword of the record, where that instruction is no taken branch.
    pub first: u32,
    /// First dword of the record, where it is a taken branch.
    pub first_taken: u32,
    /// What the record's second data is of the pc that follows: all of it or nothing.
    pub next_mask: u64,
    /// What the fragment counts of the high part of the countdown.
    pub high: u32,
    /// What it counts of the low part.
    pub low: u32,
    /// Which part has the event: 0 the high one, 1 the low one.
    pub part: u64,
}

impl KnownCut {
    /// Offset of the key.
    pub(crate) const KEY: i32 = 0;
    /// Offset of the fragment's address.
    pub(crate) const HEAD: i32 = 8;
    /// Offset of the instruction's address.
    pub(crate) const IP: i32 = 16;
    /// Offset of the first dword, that of a taken branch behind it.
    pub(crate) const FIRST: i32 = 24;
    /// Offset of the mask of the pc that follows.
    pub(crate) const NEXT_MASK: i32 = 32;
    /// Offset of what counts of the high part.
    pub(crate) const HIGH: i32 = 40;
    /// Offset of what counts of the low part.
    pub(crate) const LOW: i32 = 44;
    /// Offset of the part that has the event.
    pub(crate) const PART: i32 = 48;
    /// Position in a key of the number of instructions.
    pub(crate) const COUNT_SHIFT: u32 = 48;

    /// The key of a cut of the block at `pc`: its first `instructions`, or all of them (0) for the branch
    /// that ends it.
    pub fn key(pc: u64, instructions: u32) -> u64 {
        pc | u64::from(instructions) << Self::COUNT_SHIFT
    }

    /// What a key is multiplied with to choose its place.
    pub(crate) const HASH: u64 = 0x9e37_79b9_7f4a_7c15;
    /// How far the product is shifted to the right.
    pub(crate) const HASH_SHIFT: u32 = 64 - KNOWN_CUTS.trailing_zeros();

    /// Where a cut with this key is looked for, first and second.
    pub fn places(key: u64) -> [u32; 2] {
        let first = (key.wrapping_mul(Self::HASH) >> Self::HASH_SHIFT) as u32;
        [first, first ^ 1]
    }

    /// As it stands in memory.
    pub fn words(self) -> [u64; 7] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let first = pair(self.first, self.first_taken);
        let counts = pair(self.high, self.low);
        [self.key, self.head, self.ip, first, self.next_mask, counts, self.part]
    }
}

/// Bytes of a context; the thread's counters follow.
pub const CONTEXT_BYTES: u64 = 0x11_6000;

/// gs-relative displacement of counter `index`.
pub fn counter_displacement(index: u32) -> u32 {
    CONTEXT_BYTES as u32 + index * 8
}

/// Why translated code asks the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RequestKind {
    /// Continue at `Pc`.
    Dispatch = 0,
    /// The system call at `Pc` is about to be made and is of interest.
    Syscall = 1,
    /// The system call made by the run tail has returned.
    SyscallDone = 2,
    /// The system call that the host asked for has returned.
    HostSyscallDone = 3,
    /// CPUID at `Pc`.
    Cpuid = 4,
    /// XGETBV at `Pc`.
    Xgetbv = 5,
    /// RDTSC or RDTSCP at `Pc`.
    Tsc = 6,
    /// RDRAND or RDSEED at `Pc`.
    Random = 7,
    /// The bytes of the fragment at `Pc` have changed.
    Stale = 8,
    /// The instruction at `Pc` must be executed natively, alone.
    Step = 9,
    /// Continue at `Pc`, which an indirect branch wanted and the indirect table did not have.
    Indirect = 10,
    /// LLWPCB at `Pc`, its operand in `LwpOperand`.
    Llwpcb = 11,
    /// SLWPCB at `Pc`; the result belongs in `LwpData`.
    Slwpcb = 12,
    /// LWPINS at `Pc`; its carry flag belongs in `LwpData`.
    Lwpins = 13,
    /// LWPVAL at `Pc`, whose counter has expired.
    Lwpval = 14,
    /// The LWP countdown ends in the block at `Pc`, which has not begun.
    LwpDue = 15,
    /// The last instruction of a cut fragment has retired; control is at `Pc`.
    LwpStepped = 16,
    /// The same; it was a branch and was taken.
    LwpTaken = 17,
    /// The instruction at `Pc` makes an access for which there is no room among the notes.
    LwpNotes = 18,
    /// POPF at `Pc` is about to set the trap flag.
    TrapFlag = 19,
    /// There is no free slot to count an indirect call in, or it has led where it leads very often;
    /// [`Slot::CallAfter`] says which call it is.
    Calls = 20,
    /// XSAVE or a relative at `Pc` may request the state of Lightweight Profiling.
    StateSave = 21,
    /// The last instruction of a [`Marker`](crate::marker::Marker) at `Pc`.
    Marker = 22,
}

impl RequestKind {
    /// The kind with number `raw`, if there is one.
    pub fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            0 => Self::Dispatch,
            1 => Self::Syscall,
            2 => Self::SyscallDone,
            3 => Self::HostSyscallDone,
            4 => Self::Cpuid,
            5 => Self::Xgetbv,
            6 => Self::Tsc,
            7 => Self::Random,
            8 => Self::Stale,
            9 => Self::Step,
            10 => Self::Indirect,
            11 => Self::Llwpcb,
            12 => Self::Slwpcb,
            13 => Self::Lwpins,
            14 => Self::Lwpval,
            15 => Self::LwpDue,
            16 => Self::LwpStepped,
            17 => Self::LwpTaken,
            18 => Self::LwpNotes,
            19 => Self::TrapFlag,
            20 => Self::Calls,
            21 => Self::StateSave,
            22 => Self::Marker,
            _ => return None,
        })
    }
}

/// How the filter before a system call treats a call number; the bytes of the class table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SyscallClass {
    /// Made at once.
    Native = 0,
    /// The host is asked first.
    Host = 1,
    /// mmap(2): the host is asked where there is to be code, or where a place is asked for at which there may be code or
    /// something of the virtual CPU's; see [`ranges`].
    Map = 2,
    /// arch_prctl(2): the host is asked, unless fs is set.
    SetFs = 4,
    /// prlimit64(2): the host is asked where address space is limited.
    Limit = 5,
    /// munmap(2): the host is asked where there may be code, or something of the virtual CPU's; see [`ranges`].
    Unmap = 6,
    /// mprotect(2): likewise, and where there is to be.
    Protect = 7,
    /// lseek(2) and others that take a descriptor: the host is asked where that is watched; see [`Slot::Watched`].
    Watched = 9,
    /// open(2) and openat(2): the host is asked where the file may be one of `/proc` that shows what is the virtual CPU's.
    Open = 8,
}

/// Number of slots in the indirect table.
pub const TABLE_SLOTS: u64 = 0x4_0000;

/// Which bits of a pc choose its slot, where PEXT is there and fast. The lowest ones are left out so
/// that what lies close together shares a cache line of the table.
pub const INDEX_MASK: u32 = (TABLE_SLOTS as u32 - 1) << INDEX_SHIFT;
const INDEX_SHIFT: u32 = 3;

/// Whether emitted code finds a pc's slot by PEXT with [`INDEX_MASK`], which no flag sees. Without it,
/// the low 16 bits choose among the first 64 Ki slots.
///
/// Zen 1 and 2 have it in microcode: of AMD's processors, those with vector AES have it in hardware.
pub fn wide_index() -> bool {
    is_x86_feature_detected!("bmi2")
        && (!is_x86_feature_detected!("sse4a") || is_x86_feature_detected!("vaes"))
}

/// Whether emitted code can take bits out of an address without touching the flags.
pub fn has_bit_extract() -> bool {
    is_x86_feature_detected!("bmi2")
}

/// An answer to CPUID that does not change, as emitted code finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCpuid {
    /// The leaf asked for.
    pub leaf: u32,
    /// The subleaf, where the answer depends on it.
    pub subleaf: Option<u32>,
    /// eax, ebx, ecx, edx; `None` where it is the real processor's, and depends on which one that is.
    pub answer: Option<[u32; 4]>,
}

impl KnownCpuid {
    /// Offset of the first from [`Layout::known_cpuids`].
    pub const FIRST: u64 = 8;
    /// Bytes of one.
    pub const BYTES: u64 = 40;
    /// Most of them.
    pub const MOST: u64 = 64;
    /// Offset of the leaf, negated.
    pub(crate) const MINUS_LEAF: i32 = 0;
    /// Offset of a word that is 0 where the subleaf does not matter, 2 where the processor itself answers.
    pub(crate) const BY_SUBLEAF: i32 = 8;
    /// Offset of the subleaf, negated.
    pub(crate) const MINUS_SUBLEAF: i32 = 16;
    /// Offset of the answer.
    pub(crate) const ANSWER: i32 = 24;

    /// As it stands in memory.
    pub fn to_bytes(self) -> [u8; Self::BYTES as usize] {
        let mut out = [0; Self::BYTES as usize];
        let minus = |number: u32| u64::from(number).wrapping_neg().to_le_bytes();
        out[..8].copy_from_slice(&minus(self.leaf));
        if let Some(subleaf) = self.subleaf {
            out[8] = 1;
            out[16..24].copy_from_slice(&minus(subleaf));
        }
        let Some(answer) = self.answer else {
            out[8] = 2;
            return out;
        };
        for (word, value) in out[24..].chunks_exact_mut(4).zip(answer) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        out
    }
}

/// Where the low window lies, and what lies where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Start of the low window; below 2 GiB.
    pub low: u64,
}

impl Layout {
    /// Bytes before the chain slots.
    pub const FIXED_BYTES: u64 = 0x22_0000;
    /// Most chain slots.
    pub const MAX_ENTRIES: u64 = 0x20_0000;
    /// Bytes of the longest such path, its NUL included.
    pub const PATH_BYTES: usize = 24;
    /// Bytes of the whole window.
    pub const BYTES: u64 = Self::FIXED_BYTES + Self::MAX_ENTRIES * 8;

    /// Address of the indirect table.
    pub fn table(self) -> u64 {
        self.low
    }

    /// Address of the table slot that `pc` hashes to.
    pub fn table_slot(self, pc: u64) -> u64 {
        let index = match wide_index() {
            true => (pc & u64::from(INDEX_MASK)) >> INDEX_SHIFT,
            false => pc & 0xffff,
        };
        self.table() + index * 8
    }

    /// Address of the system call class table.
    pub fn syscall_classes(self) -> u64 {
        self.low + 0x20_0000
    }

    /// Address of [`INDEX_MASK`], 4 bytes, for emitted code.
    pub fn index_mask(self) -> u64 {
        self.low + 0x21_0100
    }

    /// Address of the mask of the address bits that choose a set of the data cache, 8 bytes.
    pub fn set_mask(self) -> u64 {
        self.low + 0x21_0108
    }

    /// Address of the mask of the address bits that name a line, 8 bytes.
    pub fn line_mask(self) -> u64 {
        self.low + 0x21_0110
    }

    /// Address of the bytes that the lines of a set take, 8 bytes.
    pub fn set_length(self) -> u64 {
        self.low + 0x21_0118
    }

    /// Address of the mask that spreads the number of a set to where it lies, 8 bytes.
    pub fn set_places(self) -> u64 {
        self.low + 0x21_0120
    }

    /// Address of a path that [`crate::routines::Routines::move_in`] opens, [`Self::PATH_BYTES`].
    pub fn path(self) -> u64 {
        self.low + 0x21_0200
    }

    /// Address of the low copy of the routines.
    pub fn routines(self) -> u64 {
        self.low + 0x21_1000
    }

    /// Address of the known answers to CPUID: their number, 8 bytes, and [`KnownCpuid::MOST`] of
    /// [`KnownCpuid`].
    pub fn known_cpuids(self) -> u64 {
        self.low + 0x21_f000
    }

    /// Address of chain slot `entry`.
    pub fn chain_slot(self, entry: u32) -> u64 {
        self.low + Self::FIXED_BYTES + u64::from(entry) * 8
    }
}

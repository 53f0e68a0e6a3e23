//! The fields at the beginning of a thread's context.

/// Declares the fields of a page, in the order of their offsets; a field has eight bytes, or as
/// many as stand behind its offset.
///
/// Input shape, which is also the documentation of the page:
///
/// ```text
/// context_page! {
///     /// Doc.
///     pub enum Field: 0x20 {
///         /// Doc.
///         0x00 => Left,
///         /// Doc.
///         0x08[0x18] => Right,
///     }
/// }
/// ```
///
/// Output: the enum `Field`, whose discriminants are the offsets, the table `Field::ALL` of fields,
/// names and lengths, and a constant assertion that no field overlaps another or the page's end.
macro_rules! context_page {
    ($(#[$meta:meta])* $vis:vis enum $Field:ident: $size:literal {
        $( $(#[$fmeta:meta])* $offset:literal $([$bytes:literal])? => $name:ident, )*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        $vis enum $Field { $( $(#[$fmeta])* $name = $offset, )* }

        impl $Field {
            /// Every field, its name and its length in bytes, in the order of the offsets.
            pub const ALL: &'static [(Self, &'static str, u32)] =
                &[ $( (Self::$name, stringify!($name), context_page!(@length $($bytes)?)), )* ];
        }

        const _: () = {
            let (mut end, mut index) = (0, 0);
            while index < $Field::ALL.len() {
                let (field, _, length) = $Field::ALL[index];
                assert!(field as u32 >= end && (field as u32).is_multiple_of(8), "fields overlap");
                end = field as u32 + length;
                index += 1;
            }
            assert!(end <= $size, "a field lies behind the page");
        };
    };
    (@length) => { 8 };
    (@length $bytes:literal) => { $bytes };
}

context_page! {
    /// A field of the thread context: its byte offset from the gs base.
    pub enum Slot: 0xac0 {
        /// Application rcx while rcx is borrowed.
        0x00 => Rcx,
        /// Application r11 while r11 is borrowed.
        0x08 => R11,
        /// Application rax, saved by the mailbox or while rax is borrowed.
        0x10 => Rax,
        /// Application rdi, saved by the mailbox.
        0x18 => Rdi,
        /// Application rsi, saved by the mailbox.
        0x20 => Rsi,
        /// Application rdx, saved by the mailbox.
        0x28 => Rdx,
        /// Application r10, saved by the mailbox.
        0x30 => R10,
        /// Application rbx, saved and restored by the mailbox.
        0x38 => Rbx,
        /// Application r8, saved by the mailbox.
        0x40 => R8,
        /// Application r9, saved by the mailbox.
        0x48 => R9,
        /// The application pc that the request is about.
        0x50 => Pc,
        /// The request to the host: a [`RequestKind`](super::RequestKind).
        0x58 => Kind,
        /// Address of the tail that carries out the host's answer; 0 while there is none.
        0x60 => Resp,
        /// The address that the go tail jumps to.
        0x68 => Go,
        /// Futex word: 1 while the thread sleeps in its mailbox.
        0x70 => Wait,
        /// The number of pauses that the thread spins before it sleeps.
        0x78 => Spin,
        /// The application's own gs base.
        0x80 => AppGs,
        /// The pc that the signal frame being returned from wants to go to.
        0x88 => SigPc,
        /// Address of this thread's door flag, one byte.
        0x90 => DoorFlag,
        /// Address of the sleep word of this thread's address space, 4 bytes: 1 while the host
        /// sleeps.
        0x98 => DoorSleep,
        /// Linear address of this context.
        0xa0 => This,
        /// System call that the host asks for: number, six arguments, result.
        0xa8 => SysNr,
        /// First argument.
        0xb0 => SysA1,
        /// Second argument.
        0xb8 => SysA2,
        /// Third argument.
        0xc0 => SysA3,
        /// Fourth argument.
        0xc8 => SysA4,
        /// Fifth argument.
        0xd0 => SysA5,
        /// Sixth argument.
        0xd8 => SysA6,
        /// Result.
        0xe0 => SysRet,
        /// The number of entries of the insertion list that are still to be applied.
        0xe8 => ApplyCount,
        /// Non-zero forbids the mailbox to make system calls of its own (a seccomp filter is in
        /// force).
        0xf0 => NoSyscalls,
        /// The application pc after the system call that the run tail executes.
        0xf8 => Next,
        /// The state components of the virtual processor's XCR0.
        0x100 => StateMask,
        /// The address of that signal frame, to put its rip back.
        0x108 => SigFrame,
        /// Application rsp when the request was made. This and the following five are for the host
        /// to look at; the registers themselves stay the application's.
        0x110 => Rsp,
        /// Application rbp.
        0x118 => Rbp,
        /// Application r12.
        0x120 => R12,
        /// Application r13.
        0x128 => R13,
        /// Application r14.
        0x130 => R14,
        /// Application r15.
        0x138 => R15,
        /// The processor that the thread was on when it made the request: the limit of
        /// [`PROCESSOR_SEGMENT`].
        0x140 => Processor,
        /// Descriptors that the host wants to know of when they are read from somewhere: a bit
        /// each, and the last one for all above.
        0x148 => Watched,
        /// Start of the guarded pages that the kernel cannot write to, and of what lies between
        /// them.
        0x150 => GuardedFrom,
        /// Their end; 0 where there are none.
        0x158 => GuardedTo,
        /// The address at which an instruction has stored an instruction pointer of the x87 unit.
        0x160 => Stored,
        /// Non-zero where the process has other threads.
        0x168 => Beside,
        /// Ticks of the performance time-stamp counter for one of the processor's, times 2³²; 0
        /// where records have no time stamps.
        0x170 => LwpStampRate,
        /// The processor's time stamp counter when the performance time-stamp counter was 0.
        0x178 => LwpStampBase,
        /// The sum of the words when they were dealt out last.
        0x180 => LwpGiven,
        /// The amount of the high part that could pass then without an event.
        0x188 => LwpHigh,
        /// The amount of the low part.
        0x190 => LwpLow,
        /// The value that the high part is about to take while the words are dealt out anew.
        0x198 => LwpNewHigh,
        /// The value that the low part is about to take.
        0x1a0 => LwpNewLow,
        /// The amount that the block takes that ran out of its word, as words have it.
        0x1a8 => LwpWeight,
        /// The word that ran out, as displacement from the gs base.
        0x1b0 => LwpWord,
        /// The number of LWPVALs that may still pass without a record.
        0x1b8 => LwpValue,
        /// Operand of an LWP instruction: the block address, or the second data.
        0x1c0 => LwpOperand,
        /// The first data of LWPINS or LWPVAL; the result of an LWP instruction.
        0x1c8 => LwpData,
        /// The address at which translated code goes on when the host has executed an LWP
        /// instruction.
        0x1d0 => LwpAfter,
        /// An address that an LWP instruction could not reach.
        0x1d8 => LwpTouch,
        /// The application's flags while the routines use them: AH as LAHF gives it, AL from SETO.
        0x1e0 => LwpFlags,
        /// The state that an LWP instruction executed by the host leaves to be set from `LwpData`:
        /// 0 nothing, 1 the carry flag, 2 its register.
        0x1e8 => LwpPending,
        /// Address of the insertion list.
        0x1f0 => ApplyAt,
        /// The access being noted: its first byte in the line that is being looked for.
        0x1f8 => LwpLine,
        /// A short insertion list: triples of table slot address, chain slot address, entry
        /// address.
        0x200[0x600] => ApplyList,
        /// Address of the LWP ring where translated code stores records itself; 0 where the host
        /// does.
        0x800 => LwpRing,
        /// Bytes of it.
        0x808 => LwpRingSize,
        /// Offset in it of the next record.
        0x810 => LwpRingHead,
        /// The value that this offset is about to take.
        0x818 => LwpNewHead,
        /// Address of BufferHeadOffset.
        0x820 => LwpHeadAt,
        /// Address of BufferTailOffset.
        0x828 => LwpTailAt,
        /// The host is asked where the ring would hold this many bytes.
        0x830 => LwpThreshold,
        /// First dword of the record of an LWPINS or LWPVAL, but for the core's number.
        0x838 => LwpRecord,
        /// Selector of the segment whose limit says which core this is, or `CORE_BY_RDPID`; 0 where
        /// records are to say 0.
        0x840 => LwpCore,
        /// Address of the control block where translated code executes SLWPCB itself; 0 where the
        /// host does.
        0x848 => LwpBlock,
        /// Address of the EventCounter that the high part is; 0 where there is none.
        0x850 => LwpHighAt,
        /// Of the low part.
        0x858 => LwpLowAt,
        /// Of the value samples.
        0x860 => LwpValueAt,
        /// The number of LWPVALs that could pass when that was published last.
        0x868 => LwpValueBase,
        /// The value that the counter of value samples is set to after a record, but for its random
        /// bits.
        0x870 => LwpValueInterval,
        /// The value that it is about to be set to.
        0x878 => LwpNewValue,
        /// The bits of it that are random.
        0x880 => LwpRandomMask,
        /// State of the random number generator.
        0x888 => LwpRandom,
        /// The value that this state is about to take.
        0x890 => LwpNewRandom,
        /// Number of the register that the result of SLWPCB goes to, with [`RESULT_NARROW`].
        0x898 => LwpRegister,
        /// Non-zero in continuous mode: a full ring is nothing special.
        0x8a0 => LwpContinuous,
        /// The number of misses that have been noted, in its low half; in the high one the number
        /// of these that count and are loads.
        0x8a8 => LwpNotes,
        /// The number that may be noted before the host is asked: less than half of what 32 bits
        /// hold.
        0x8b0 => LwpMostNotes,
        /// The access being noted: its address.
        0x8b8 => LwpAddress,
        /// Its length in bits 11:0, its use in 13:12, and whether a miss counts in bit 14.
        0x8c0 => LwpMeta,
        /// The fragment that makes it.
        0x8c8 => LwpFragment,
        /// The number of its instructions that have been executed.
        0x8d0 => LwpIndex,
        /// A repeated string instruction has begun, and what it has accessed has not been worked
        /// out: 1 in a cut fragment, else its pc.
        0x8d8 => LwpRepeats,
        /// rcx as it was then.
        0x8e0 => LwpRepeatCount,
        /// rsi as it was then.
        0x8e8 => LwpRepeatFrom,
        /// rdi as it was then.
        0x8f0 => LwpRepeatTo,
        /// The number of changes of the data cache so far.
        0x8f8 => LwpUndos,
        /// The cases in which translated code stores the records of instructions and branches
        /// itself: 1 where the high part is instructions and the low one branches, 2 where the high
        /// part is branches; 3 where samples of instructions are taken
        /// ([`crate::routines::SAMPLES`]); [`crate::routines::PREDICTED`] where branches are
        /// written down for the predictor; 0 where the host does everything.
        0x900 => LwpEvents,
        /// Address of the [known cut](super::CUTS_AT) that the thread has led itself to; 0 where
        /// the host has.
        0x908 => LwpCut,
        /// The value of the high part of the countdown when it was published or reloaded last.
        0x910 => LwpHighBase,
        /// The value of the low part of the countdown when it was published or reloaded last.
        0x918 => LwpLowBase,
        /// The value that the base of the high part is about to take.
        0x920 => LwpNewHighBase,
        /// That of the low part.
        0x928 => LwpNewLowBase,
        /// The value that the counter of the high part's event is reloaded with when that is
        /// recorded, but for its random bits: in clocks where it is a clock's.
        0x930 => LwpHighInterval,
        /// The value that the low part is reloaded with when its event is recorded, without random
        /// bits.
        0x938 => LwpLowInterval,
        /// Address of the last line that the access being noted touches.
        0x940 => LwpLastLine,
        /// Core clocks are `(65536 n + offset) / divisor` of the n instructions that were taken
        /// from the high part since it was published: the offset. Where the high part is a clock's,
        /// its events are recorded without anything being counted from their own beginning: n is
        /// still [`Slot::LwpHighBase`] less what is left.
        0x948 => LwpCoreOffset,
        /// The divisor; 0 where no clock is counted.
        0x950 => LwpCoreDivisor,
        /// Reference clocks are `(rate c + remainder) / per` of the c core clocks: the rate, and
        /// `per` in the upper half.
        0x958 => LwpReferenceRate,
        /// The excess of the counter of instructions over the high part, signed, and the remainder
        /// in the upper half.
        0x960 => LwpClockRest,
        /// The value of the counter of core clocks when the high part was published, and that of
        /// reference clocks in the upper half. Where a record has been stored since, the value that
        /// would have led to the present one.
        0x968 => LwpClockBase,
        /// Address of the EventCounter of core clocks; 0 where there is none.
        0x970 => LwpCoreClocksAt,
        /// Of reference clocks.
        0x978 => LwpReferenceClocksAt,
        /// The target of the indirect call that is being counted.
        0x980 => CallTarget,
        /// The name of that call: see [`call_site`](super::calls::call_site).
        0x988 => CallSite,
        /// The address at which translated code goes on when it has been counted.
        0x990 => CallAfter,
        /// A random number, by which a copy that fork has made knows that it has mapped its own
        /// contexts and nothing else.
        0x998 => Secret,
        /// Address of the [instruction table](crate::routines::NOTES) of the block that ran out of
        /// its word; 0 where an event in it cannot be noted.
        0x9a0 => LwpTable,
        /// The event of the block at [`Slot::LwpNoteBlock`] that is to be recorded when the next
        /// block begins ([`crate::routines::NOTES`]); 0 where there is none.
        0x9a8 => LwpNote,
        /// Address of that block.
        0x9b0 => LwpNoteBlock,
        /// The number of the block's instruction that the event is on, counted from 1.
        0x9b8 => LwpNoteIndex,
        /// The amount that it takes from the countdown, and has taken.
        0x9c0 => LwpNoteWeight,
        /// Address of the instruction.
        0x9c8 => LwpNoteIp,
        /// Address behind the block, where that tells whether its branch was taken; else 0.
        0x9d0 => LwpNoteFall,
        /// First dword of the record of an instruction, but for the core's number.
        0x9d8 => LwpFirst,
        /// Of a branch: not taken, and taken in the upper half.
        0x9e0 => LwpFirstOfBranch,
        /// Non-zero where [steps](super::gather) are to be done for a kept sample.
        0x9e8 => Gather,
        /// The share of the high part that each of the low part takes besides in the words of the
        /// countdown.
        0x9f0 => LwpShare,
        /// The sum of what has been taken from the words of the countdown lately.
        0x9f8 => LwpTakenLately,
        /// The amount left of the countdown below which it may be taken by hand.
        0xa00 => LwpLast,
        /// The value that [`Slot::LwpClockBase`] is about to take.
        0xa08 => LwpNewClockBase,
        /// The instructions, or branches, that the high part counts from one of its events to the
        /// next, at least.
        0xa10 => LwpHighSpan,
        /// Non-zero where translated code stores the records of LWPINS and LWPVAL itself.
        0xa18 => LwpInserts,
        /// What reloaded counters have more than the countdown: 1 where the event is recorded with
        /// which a counter reaches 0, as in the form of 2007.
        0xa20 => LwpCounterExcess,
        /// Whether the thread may execute LLWPCB itself: [`TOGGLES`] where it may switch its
        /// profile off, [`OFF_FOR_NOW`] where it has; else 0.
        0xa28 => LwpToggle,
        /// Address of the control block that it may load again.
        0xa30 => LwpLoadedBlock,
        /// The value of [`Slot::LwpEvents`] with its profile on.
        0xa38 => LwpLoadedEvents,
        /// What the control block said when it was loaded: Flags, and BufferSize and Random in the
        /// upper half.
        0xa40 => LwpLoadedFlags,
        /// Filters.
        0xa48 => LwpLoadedFilters,
        /// BaseIP.
        0xa50 => LwpLoadedBaseIp,
        /// LimitIP.
        0xa58 => LwpLoadedLimitIp,
        /// The interval of the high part's event, and that of the low part's in the upper half.
        0xa60 => LwpLoadedIntervals,
        /// That of value samples.
        0xa68 => LwpLoadedValueInterval,
        /// The number of bytes of a repeated string instruction that have been gone through,
        /// counted from its start.
        0xa80 => LwpRepeatDone,
        /// Non-zero where one has been interrupted: the host keeps what it had accessed, and wants
        /// the rest.
        0xa88 => LwpRepeatBegun,
        /// Non-zero where notes are kept, else misses are only counted.
        0xa90 => LwpKeeps,
        /// The amount that the miss at hand adds to [`Slot::LwpNotes`].
        0xa98 => LwpNoted,
        /// The number of branches that have been written down for the predictor.
        0xaa0 => LwpBranches,
        /// The number that may be written down before the host is asked.
        0xaa8 => LwpMostBranches,
        /// The end of the stack that a thread copies for a [kept](super::kept) sample, 0 where the
        /// host takes samples, or [`NO_STACK`](super::kept::NO_STACK).
        0xab0 => StackEnd,
        /// Kept samples: the bytes of those that are there, and from bit 32 up the number of all.
        0xab8 => Kept,
    }
}

/// Selector of the segment whose limit Linux sets to the number of the processor (and of its node):
/// what getcpu(2) reads in the vdso of processors without RDPID, and what a thread can read that
/// makes no system call.
pub const PROCESSOR_SEGMENT: u32 = 0x7b;
/// In the place of a selector: RDPID says the same. It takes 0.5 ns where reading the limit takes
/// 15, both measured on a virtual machine. No selector has so many bits.
pub const CORE_BY_RDPID: u32 = 0x1_0000;
/// The value of [`Slot::Processor`] where there is no such segment.
pub const NO_PROCESSOR: u64 = u64::MAX;

/// In [`Slot::LwpRegister`]: only the low 32 bits of the result are to be set, and the rest
/// cleared.
pub const RESULT_NARROW: u32 = 0x10;

/// In [`Slot::LwpToggle`]: the thread's profile is on, and LLWPCB with 0 needs no host.
pub const TOGGLES: u64 = 1;
/// In [`Slot::LwpToggle`]: the thread has switched its profile off, which the host does not know.
pub const OFF_FOR_NOW: u64 = 2;
/// The instructions, or branches, after which a thread whose profile is off asks the host, which
/// lets it go on without counting.
pub const PAUSE: u64 = 1 << 20;

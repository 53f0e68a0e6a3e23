//! The words through which translated code asks and the host answers.

/// Declares numbered kinds, with the way back from a number that may be any.
macro_rules! kinds {
    ($(#[$meta:meta])* $vis:vis enum $Kind:ident {
        $( $(#[$kmeta:meta])* $name:ident = $number:literal, )*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        $vis enum $Kind { $( $(#[$kmeta])* $name = $number, )* }

        impl $Kind {
            /// The kind with number `raw`, if there is one.
            pub fn from_raw(raw: u32) -> Option<Self> {
                match raw {
                    $( $number => Some(Self::$name), )*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// The reason why translated code asks the host.
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
        /// The last instruction of a cut fragment, a branch, has retired and was taken; control is
        /// at `Pc`.
        LwpTaken = 17,
        /// The instruction at `Pc` makes an access for which there is no room among the notes.
        LwpNotes = 18,
        /// POPF at `Pc` is about to set the trap flag.
        TrapFlag = 19,
        /// There is no free slot to count an indirect call in, or it has led where it leads very
        /// often; [`Slot::CallAfter`](super::Slot::CallAfter) says which call it is.
        Calls = 20,
        /// XSAVE or a relative at `Pc` may request the state of Lightweight Profiling.
        StateSave = 21,
        /// The last instruction of a [`Marker`](crate::marker::Marker) at `Pc`.
        Marker = 22,
        /// The object that rdi points to ends with the instruction at `Pc`.
        Ends = 23,
        /// The instruction before `Pc` has stored an instruction pointer of the x87 unit, of 32
        /// bits, at [`Slot::Stored`](super::Slot::Stored).
        Pointer32 = 24,
        /// The instruction before `Pc` has stored a 64-bit instruction pointer of the x87 unit at
        /// [`Slot::Stored`](super::Slot::Stored).
        Pointer64 = 25,
        /// There is no room to write down the transfer that is about to be made;
        /// [`Slot::CallAfter`](super::Slot::CallAfter) says where to go on.
        Transfers = 26,
    }
}

/// The treatment of a call number by the filter before a system call; the bytes of the class table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SyscallClass {
    /// Made at once.
    Native = 0,
    /// The host is asked first.
    Host = 1,
    /// mmap(2): the host is asked where there is to be code, or where a place is asked for at which
    /// there may be code or something of the virtual CPU's; see [`ranges`](super::ranges).
    Map = 2,
    /// rt_sigaction(2): the host is asked where the process has other threads; see
    /// [`Slot::Beside`](super::Slot::Beside).
    Beside = 3,
    /// arch_prctl(2): the host is asked, unless fs is set.
    SetFs = 4,
    /// clone(2) and clone3(2): the host is asked where the child is not to be traced.
    Clone = 5,
    /// munmap(2) and others of a range, as mincore(2): the host is asked where there may be code,
    /// or something of the virtual CPU's; see [`ranges`](super::ranges).
    Unmap = 6,
    /// mprotect(2): likewise, and where there is to be.
    Protect = 7,
    /// lseek(2), fstat(2) and others of a descriptor: the host is asked where that is watched; see
    /// [`Slot::Watched`](super::Slot::Watched).
    Watched = 9,
    /// open(2) and openat(2): the host is asked where the file may be one of `/proc` that shows
    /// what is the virtual CPU's, or is opened for writing and may hold code.
    Open = 8,
    /// A call that writes to memory at its arguments, as read(2): the host is asked where that may
    /// be a guarded page; see [`Slot::GuardedFrom`](super::Slot::GuardedFrom).
    Fills = 10,
    /// A call that writes to memory which its arguments lead to, as readv(2): the host is asked
    /// where there are guarded pages.
    FillsFar = 11,
}

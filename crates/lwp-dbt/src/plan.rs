//! Plans: which instrumentation a fragment carries, and what a counter's increment stands for.

use crate::addr::AppPc;
use crate::fragment::FragmentId;

/// The instrumentation that the fragments carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// Translation only.
    Plain,
    /// A counter per fragment and per not-taken edge.
    Exact,
    /// As [`Plan::Exact`], and indirect calls are counted by where they lead.
    Calls,
    /// As [`Plan::Calls`], and calls, returns and jumps between functions are written down: see
    /// [`crate::context::trace`].
    Contexts,
}

impl Plan {
    /// Returns whether executions are counted.
    pub fn counts(self) -> bool {
        self != Self::Plain
    }

    /// Returns whether indirect calls are counted by where they lead.
    pub fn counts_calls(self) -> bool {
        matches!(self, Self::Calls | Self::Contexts)
    }

    /// Returns whether transfers between functions are written down.
    pub fn traces(self) -> bool {
        self == Self::Contexts
    }
}

/// The translated code's knowledge of Lightweight Profiling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lwp {
    /// The processor has no LWP: its instructions are undefined opcodes.
    #[default]
    Absent,
    /// Profiling is off in the threads that run this code. LWPVAL and LWPINS do nothing.
    Off,
    /// Profiling is on in the threads that run this code.
    On(Selection),
}

/// The events that are counted down while profiling is on.
///
/// One countdown serves all events that come from retiring: it has a high part, instructions or,
/// where only branches are selected, branches; and a low part, branches, where both are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// LWPVAL counts.
    pub values: bool,
    /// Retired instructions count: for their own event, or as time.
    pub instructions: bool,
    /// The kinds of branches that count, a bit each, as in [`branch_bit`].
    pub branches: u8,
    /// Branches come due much sooner than instructions, of which each takes a share of the
    /// countdown's high part for that.
    pub scarce_branches: bool,
    /// Data cache misses count.
    pub dcache: bool,
    /// Only instructions that this admits count.
    pub ip: Option<IpFilter>,
}

/// A filter by instruction address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpFilter {
    /// First address of the range.
    pub base: u64,
    /// Last address of the range.
    pub limit: u64,
    /// True if addresses outside the range are admitted instead.
    pub inverted: bool,
}

impl IpFilter {
    /// Returns whether an instruction at `ip` counts.
    pub fn admits(self, ip: u64) -> bool {
        (self.base <= ip && ip <= self.limit) != self.inverted
    }
}

impl Selection {
    /// Returns whether an instruction at `ip` counts.
    pub fn admits(&self, ip: u64) -> bool {
        self.ip.is_none_or(|filter| filter.admits(ip))
    }

    /// The amount that a branch takes from the countdown's high part besides from the low one.
    ///
    /// The words of the countdown tell when their high part has run out, not the low one, so no
    /// more of the high one is dealt out than there is of the low one left: every branch is an
    /// instruction too. With a share, a deal is so many times as large and lasts for nearly all of
    /// the branches that are left, not for the few that are among so many instructions.
    pub fn branch_share(&self) -> u8 {
        if self.scarce_branches { SCARCE_SHARE } else { 0 }
    }

    /// Returns whether anything is counted down by retiring instructions.
    pub fn counts_down(&self) -> bool {
        self.instructions || self.branches != 0
    }

    /// Returns whether it matters which instructions the filter admits.
    pub fn filters(&self) -> bool {
        self.counts_down() || self.dcache
    }
}

/// The share of each branch where branches are scarce: large beside the instructions from one to
/// the next, and small enough for what a block takes to fit.
const SCARCE_SHARE: u8 = 16;

/// Bits of [`Selection::branches`].
pub mod branch_bit {
    /// Jcc, JRCXZ, LOOP.
    pub const CONDITIONAL: u8 = 1;
    /// JMP relative to rip.
    pub const DIRECT_JUMP: u8 = 1 << 1;
    /// CALL relative to rip.
    pub const DIRECT_CALL: u8 = 1 << 2;
    /// JMP through a register or memory.
    pub const INDIRECT_JUMP: u8 = 1 << 3;
    /// CALL through a register or memory.
    pub const INDIRECT_CALL: u8 = 1 << 4;
    /// Near RET.
    pub const RETURN: u8 = 1 << 5;
    /// Far JMP, CALL, RET.
    pub const FAR_TRANSFER: u8 = 1 << 6;
}

/// The way a unit's fragments guard against changes of their application bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checks {
    /// The bytes cannot change: a private, read-only file mapping.
    None,
    /// The bytes change only together with a notice (mprotect, mmap): fragments can be cut off at
    /// their head.
    Notified,
    /// The bytes may change at any time: each fragment compares its own bytes before it runs, save
    /// where the source of the code gives notice of writes.
    SelfCheck,
}

/// The meaning of a counter, so that sums can be traced back to where they arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Executions of a fragment.
    Runs(FragmentId),
    /// Executions of `into`, which lies behind the not-taken edge of `from`; those by way of its
    /// head, counted apart, did not come over the edge.
    RunsBehind {
        /// The fragment that is executed.
        into: FragmentId,
        /// The fragment that ends in the conditional branch.
        from: FragmentId,
    },
    /// Conditional branches at the end of this fragment that were not taken.
    NotTaken(FragmentId),
    /// Executions of a fragment behind a not-taken edge that did not come over it.
    Head(FragmentId),
    /// Counts nothing: the complement of where the indirect call at the end of this fragment led
    /// first, or 0.
    CallTarget(FragmentId),
    /// The counter that follows: how often that call led there.
    Called(FragmentId),
    /// Counts nothing: where the indirect branch at the end of this fragment led last, or 0.
    Target(FragmentId),
    /// Counts nothing: its number names the end of this fragment among
    /// [transfers](crate::context::trace).
    Transfer(FragmentId),
    /// Executions of the superblock that begins with this fragment.
    Superblock(FragmentId),
    /// Executions that left a superblock at the end of this fragment.
    SideExit(FragmentId),
    /// Executions that left a superblock in front of this fragment, which was cut off.
    CutOff(FragmentId),
    /// Executions that left a superblock in front of the branch at the end of this fragment,
    /// because the one behind it was cut off.
    CutOffBranch(FragmentId),
}

impl Role {
    /// Returns the address that a counter of this role has where it is `value`: where an indirect
    /// branch led. `None` where it counts.
    pub fn held(self, value: u64) -> Option<AppPc> {
        match self {
            Self::Target(_) => Some(AppPc(value)),
            Self::CallTarget(_) => Some(AppPc(!value)),
            _ => None,
        }
    }
}

/// The amount that one increment of a counter slot adds to each event.
///
/// `conditional_taken` is signed: a fragment that ends in a conditional branch is charged as taken
/// when it is entered, and the counter on its not-taken edge takes that back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventDeltas {
    /// Retired instructions.
    pub instructions: i32,
    /// Near branches of every kind.
    pub branches: i32,
    /// Conditional branches.
    pub conditional: i32,
    /// Conditional branches taken.
    pub conditional_taken: i32,
    /// Near calls.
    pub calls: i32,
    /// Near returns.
    pub returns: i32,
    /// Indirect jumps and calls.
    pub indirect: i32,
}

impl EventDeltas {
    /// The delta of each event, in the order of the fields.
    pub fn by_event(self) -> [i32; 7] {
        [
            self.instructions,
            self.branches,
            self.conditional,
            self.conditional_taken,
            self.calls,
            self.returns,
            self.indirect,
        ]
    }

    /// The sum of two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            branches: self.branches + other.branches,
            conditional: self.conditional + other.conditional,
            conditional_taken: self.conditional_taken + other.conditional_taken,
            calls: self.calls + other.calls,
            returns: self.returns + other.returns,
            indirect: self.indirect + other.indirect,
        }
    }

    /// The deltas that take these back.
    #[must_use]
    pub fn negated(self) -> Self {
        Self {
            instructions: -self.instructions,
            branches: -self.branches,
            conditional: -self.conditional,
            conditional_taken: -self.conditional_taken,
            calls: -self.calls,
            returns: -self.returns,
            indirect: -self.indirect,
        }
    }
}

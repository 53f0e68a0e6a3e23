//! `Retired`: what a processor reports to its LWP unit about a retired instruction.
//!
//! This is the interface between whatever executes instructions (an interpreter, the virtual CPU, a
//! test) and the unit that counts them. It is a plain value, so the same stream can be fed to two
//! units to compare them.

use crate::record::DataSource;
use crate::{AppPc, LinearAddr};

/// The effect of an instruction on the flow of control.
///
/// Traps, interrupts and instructions that change the privilege level (SYSCALL, INT n, IRET to
/// another level …) are not branches here.
///
/// Spec: P07 §4.2; LWP §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BranchKind {
    /// Jcc, J(E/R)CXZ, LOOPcc.
    Conditional,
    /// JMP relative to RIP, short or near.
    DirectJump,
    /// CALL relative to RIP.
    DirectCall,
    /// JMP through a register or memory.
    IndirectJump,
    /// CALL through a register or memory.
    IndirectCall,
    /// Near RET.
    Return,
    /// Far JMP, CALL or RET that stays at the same privilege level.
    FarTransfer,
}

/// The three classes that the shipped branch filters distinguish.
///
/// Spec: LWP §3.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BranchClass {
    /// Filter bit NCB.
    Conditional,
    /// Unconditional and relative to RIP: filter bit NRB.
    Relative,
    /// The rest: filter bit NAB. That RET and far transfers belong here is unconfirmed: DEV-5.
    Absolute,
}

impl BranchKind {
    /// Every kind, for tables and tests.
    pub const ALL: [Self; 7] = [
        Self::Conditional,
        Self::DirectJump,
        Self::DirectCall,
        Self::IndirectJump,
        Self::IndirectCall,
        Self::Return,
        Self::FarTransfer,
    ];

    /// The class to which this kind belongs in the shipped filters.
    ///
    /// Spec: LWP §3.3.
    pub const fn class(self) -> BranchClass {
        match self {
            Self::Conditional => BranchClass::Conditional,
            Self::DirectJump | Self::DirectCall => BranchClass::Relative,
            Self::IndirectJump | Self::IndirectCall | Self::Return | Self::FarTransfer => {
                BranchClass::Absolute
            }
        }
    }
}

/// A transfer of control that retired. Its target is [`Retired::next_ip`].
///
/// Spec: P07 §4.2; LWP §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Branch {
    /// The kind of branch.
    pub kind: BranchKind,
    /// True if control went to the target. Always true unless the kind is conditional.
    pub taken: bool,
    /// True if the predictor was right; `None` without a prediction.
    pub predicted: Option<bool>,
}

/// The way in which an instruction used memory.
///
/// Spec: P07 §4.3; LWP §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// A demand load, including the load of a read-modify-write operand.
    Load,
    /// A store. Never counted by the DCache event.
    Store,
    /// A software prefetch. Never counted.
    Prefetch,
}

/// A miss in the data cache.
///
/// Spec: P07 §4.3; LWP §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheMiss {
    /// Lowest address of the access that missed. An access across two lines that misses both is one
    /// miss.
    pub address: LinearAddr,
    /// The source of the data.
    pub source: DataSource,
    /// Time until the data arrived, in core cycles, neither rounded nor capped.
    pub latency_cycles: u32,
}

/// One memory access of an instruction.
///
/// Spec: P07 §4.3; LWP §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Load, store or prefetch.
    pub kind: AccessKind,
    /// Linear address of the lowest byte.
    pub address: LinearAddr,
    /// The miss, if the data cache did not have all of it.
    pub miss: Option<CacheMiss>,
}

/// One retired instruction.
///
/// Feed instructions to the unit in program order, each one once, after it has retired. An
/// instruction that faults doesn't retire. A repeated string instruction is one instruction,
/// however often it repeats; all its accesses are listed.
///
/// Spec: P07 §3, §4; LWP §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired<'a> {
    /// Linear address of the instruction.
    pub ip: AppPc,
    /// Linear address of the instruction executed next.
    pub next_ip: AppPc,
    /// Set if the instruction is a branch.
    pub branch: Option<Branch>,
    /// Its memory accesses, in the order they were made.
    pub accesses: &'a [Access],
    /// Core clocks that passed at CPL 3 since the previous instruction retired.
    pub core_cycles: u32,
    /// Reference clocks that passed at CPL 3 since the previous instruction retired.
    pub reference_cycles: u32,
    /// The instruction entered or left CPL 3 (SYSCALL, SYSRET, INT n, IRET …). Such an instruction
    /// counts for no event.
    pub crosses_privilege: bool,
}

impl Retired<'static> {
    /// An instruction at `ip` that isn't a branch, doesn't access memory and takes no time.
    pub const fn plain(ip: AppPc, next_ip: AppPc) -> Self {
        Self {
            ip,
            next_ip,
            branch: None,
            accesses: &[],
            core_cycles: 0,
            reference_cycles: 0,
            crosses_privilege: false,
        }
    }

    /// A branch at `ip` to `next_ip`, without a prediction.
    pub const fn branch(ip: AppPc, next_ip: AppPc, kind: BranchKind, taken: bool) -> Self {
        Self { branch: Some(Branch { kind, taken, predicted: None }), ..Self::plain(ip, next_ip) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LWP §3.3. DEV-5
    #[test]
    fn lwp_spec_3_3_dev_5_returns_and_indirect_branches_are_absolute() {
        use BranchKind::*;
        for (kind, class) in [
            (Conditional, BranchClass::Conditional),
            (DirectJump, BranchClass::Relative),
            (DirectCall, BranchClass::Relative),
            (IndirectJump, BranchClass::Absolute),
            (IndirectCall, BranchClass::Absolute),
            (Return, BranchClass::Absolute),
            (FarTransfer, BranchClass::Absolute),
        ] {
            assert_eq!(kind.class(), class, "{kind:?}");
            assert!(BranchKind::ALL.contains(&kind));
        }
    }
}

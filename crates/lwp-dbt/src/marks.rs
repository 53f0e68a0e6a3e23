//! Instructions of the application before which the thread asks the host. They must be known before
//! anything of their unit is translated.

use std::collections::{BTreeMap, BTreeSet};

use crate::addr::AppPc;

/// A word in memory, of which it is counted how often it had each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The register that the word is near to.
    pub base: ValueBase,
    /// The word is near to what the word at this distance from the register points to.
    pub through: Option<i32>,
    /// The distance of the word.
    pub offset: i32,
    /// A word that is set to the address of the instruction, where it is zero: this far from what
    /// the word at the first distance from rdi points to.
    pub sets: Option<[i32; 2]>,
}

/// A register that leads to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueBase {
    /// The first argument's.
    Rdi,
    /// The second one's.
    Rsi,
    /// One that programs keep global variables in.
    R14,
}

/// The instructions of a unit that the host wants to see come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Instructions that the host executes, alone.
    pub alone: BTreeSet<AppPc>,
    /// Values that are counted where these instructions are about to be executed, where indirect
    /// calls are counted by where they lead.
    pub values: BTreeMap<AppPc, Value>,
    /// Instructions before which the host is asked each time, where indirect calls are counted by
    /// where they lead: what rdi points to ends.
    pub ends: BTreeSet<AppPc>,
}

impl Marks {
    /// The first instruction behind `pc` that has a mark of any kind.
    pub(crate) fn behind(&self, pc: AppPc) -> Option<AppPc> {
        let behind = pc.offset(1)..;
        let alone = self.alone.range(behind.clone()).next().copied();
        let valued = self.values.range(behind.clone()).next().map(|(pc, _)| *pc);
        let ending = self.ends.range(behind).next().copied();
        alone.into_iter().chain(valued).chain(ending).min()
    }

    /// Returns whether the instruction at `pc` has no mark.
    pub(crate) fn has_none_at(&self, pc: AppPc) -> bool {
        !self.alone.contains(&pc) && !self.values.contains_key(&pc) && !self.ends.contains(&pc)
    }
}

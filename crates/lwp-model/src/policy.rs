//! Choices the documents leave to an implementation.

use lwp_arch::Revision;

/// The choice for one instruction that makes several counters expire.
///
/// Spec: P07 §3, §5.5.1; LWP §4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Simultaneous {
    /// One record per expired event, in the order of the slots.
    StoreAll,
    /// One record per instruction, that of the expired slot that has been passed over most often
    /// since its last record. The other events stay expired and record at their next occurrence.
    StoreOne,
}

/// The choice for a record that cannot be stored because of a page fault.
///
/// LWPINS and LWPVAL always restart, whatever the policy.
///
/// Spec: P07 §5.5.6; LWP §6.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnFault {
    /// The instruction faults, nothing is counted; it is executed again and counted then.
    Restart,
    /// The instruction retires and a trap follows; the unit forgets what the instruction did.
    Drop,
    /// The instruction retires and a trap follows; the record waits in the unit and is stored
    /// before anything else. Its event stays expired meanwhile.
    Save,
}

/// The moment at which BufferHeadOffset in memory follows the unit's own head.
///
/// Spec: P07 §5.5.3; LWP §7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeadPublication {
    /// After every record, so that a reader in another thread sees it.
    EachRecord,
    /// At the threshold, with a full ring, and at a flush.
    Late,
}

/// The choices of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Several expired counters on one instruction.
    pub simultaneous: Simultaneous,
    /// A record meets a page fault.
    pub on_fault: OnFault,
    /// The moment at which the head reaches memory.
    pub head: HeadPublication,
}

impl Policy {
    /// The choices for a form of LWP, where an implementation has to make them: those of
    /// [`Policy::default`], but in the form of 2007 one record per instruction, as its section
    /// 5.5.1 says without an alternative.
    ///
    /// Spec: P07 §3, §5.5.1; LWP §4.3.
    pub fn of(revision: Revision) -> Self {
        let simultaneous = match revision {
            Revision::Shipped => Simultaneous::StoreAll,
            Revision::Proposal2007 => Simultaneous::StoreOne,
        };
        Self { simultaneous, ..Self::default() }
    }
}

impl Default for Policy {
    /// All records, restart, head after each record: what the virtual processor does in the shipped
    /// form.
    fn default() -> Self {
        Self {
            simultaneous: Simultaneous::StoreAll,
            on_fault: OnFault::Restart,
            head: HeadPublication::EachRecord,
        }
    }
}

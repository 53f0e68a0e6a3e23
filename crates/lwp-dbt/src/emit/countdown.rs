//! Rule 16: the LWP countdown.

use iced_x86::Register;

use super::Emitter;
use crate::addr::{AppPc, CachePc};
use crate::block::{Block, Terminator};
use crate::context::{LWP_SHIFT, RequestKind, Slot, lwp_slot_displacement};
use crate::fragment::FragmentId;
use crate::plan::{Selection, branch_bit};
use crate::routines::CHARGE_BYTES;
use crate::state_map::bits;

/// The most that is taken from a part of the countdown at once: the immediate operand that holds it
/// has a sign.
const MOST_AT_ONCE: u8 = i8::MAX as u8;
/// The most of the low part, for the same reason: each may take a share of the high one.
const MOST_BRANCHES: u8 = 100;

/// The amount that a block takes from the LWP countdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Countdown {
    /// Of the high part.
    pub high: u8,
    /// Of the low part.
    pub low: u8,
    /// Of the high part besides, for each of the low one.
    share: u8,
}

impl Countdown {
    /// Returns the counts of `block` under `selection`. All of its instructions pass the filter, or
    /// none does.
    ///
    /// Instructions that change the privilege level do not count; those that are executed natively,
    /// alone, and LLWPCB and SLWPCB, which must count after they have flushed, are counted by the
    /// host.
    pub fn of(block: &Block, selection: &Selection) -> Self {
        if !selection.admits(block.pc.0) {
            return Self::default();
        }
        let kind = match block.terminator {
            Terminator::Conditional { .. } | Terminator::CountedLoop { .. } => {
                branch_bit::CONDITIONAL
            }
            Terminator::Jump { .. } => branch_bit::DIRECT_JUMP,
            Terminator::Call { .. } => branch_bit::DIRECT_CALL,
            Terminator::IndirectJump => branch_bit::INDIRECT_JUMP,
            Terminator::IndirectCall => branch_bit::INDIRECT_CALL,
            Terminator::Return { .. } => branch_bit::RETURN,
            _ => 0,
        };
        let branches = u8::from(kind & selection.branches != 0);
        if !selection.instructions {
            return Self::alone(branches);
        }
        let uncounted = matches!(
            block.terminator,
            Terminator::Syscall { .. }
                | Terminator::Step
                | Terminator::Repeat { walked: false }
                | Terminator::Lwp { kind: RequestKind::Llwpcb | RequestKind::Slwpcb }
        );
        let instructions = block.instructions() - u32::from(uncounted);
        Self { high: instructions as u8, low: branches, share: selection.branch_share() }
    }

    /// That of the high part alone.
    pub fn alone(high: u8) -> Self {
        Self { high, ..Self::default() }
    }

    /// As one number to be taken from a word.
    pub fn packed(self) -> u32 {
        let shares = u32::from(self.share) * u32::from(self.low);
        (u32::from(self.high) + shares) << LWP_SHIFT | u32::from(self.low)
    }

    /// Returns whether there is nothing to count.
    pub fn is_zero(self) -> bool {
        self.high == 0 && self.low == 0
    }

    /// Returns the sum of both, where one instruction can take it from a word.
    pub fn plus(self, other: Self) -> Option<Self> {
        let sum = |own: u8, more: u8| own.checked_add(more).filter(|sum| *sum <= MOST_AT_ONCE);
        Some(Self {
            high: sum(self.high, other.high)?,
            low: sum(self.low, other.low).filter(|sum| *sum <= MOST_BRANCHES)?,
            share: self.share.max(other.share),
        })
    }

    /// Returns both parts.
    pub fn parts(self) -> (u8, u8) {
        (self.high, self.low)
    }
}

/// A word of the countdown that has run out, to be dealt with behind the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    /// Offset of the 4-byte displacement that jumps to the stub.
    pub at: usize,
    /// The block, which has been charged.
    pub fragment: FragmentId,
    pub pc: AppPc,
    /// The amount that it counts.
    pub weight: u32,
    /// The word's displacement.
    pub word: u32,
    /// The address at which it is charged.
    pub retry: CachePc,
    /// True if the flags are dead there; where they are not, rcx has been spilled.
    pub flags_dead: bool,
    /// The state bits when it has been charged.
    pub after: u8,
    /// The place of its instruction table among those of the region, where an event in it can be
    /// noted.
    pub table: Option<(usize, usize)>,
    /// Code of its first block alone, where the block is a superblock's first: it goes on there if
    /// an event is due in the superblock.
    pub alone: Option<CachePc>,
    /// Offset of the amount where it is taken.
    weight_at: usize,
}

impl Trip {
    /// That of the fragment at `pc`, which takes `countdown`. The state bits behind the charge are
    /// `after`.
    pub fn new(
        pc: AppPc,
        fragment: FragmentId,
        countdown: Countdown,
        flags_dead: bool,
        after: u8,
    ) -> Self {
        Self {
            at: 0,
            fragment,
            pc,
            weight: countdown.packed(),
            word: lwp_slot_displacement(fragment.0),
            retry: CachePc(0),
            flags_dead,
            after,
            table: None,
            alone: None,
            weight_at: 0,
        }
    }
}

/// Rule 16. Takes what the block counts from a word of the countdown.
///
/// ```text
/// Target:  a block
/// Patch:   word := word - weight; negative --> trip        -- flags dead
///
///          slot := rcx; rcx := word; rcx := rcx - weight; word := rcx
///          ecx := sign byte of word; rcx = 0 --> ok; jmp trip
///          ok: rcx := slot                                 -- flags live
/// ```
///
/// It stands before the first instruction: an event that is due in the block must be known
/// before any of it is executed. A superblock takes what all of its blocks count.
pub fn take(emitter: &mut Emitter<'_>, mut trip: Trip) {
    let Trip { word, weight, after, flags_dead, .. } = trip;
    trip.retry = emitter.here();
    emitter.point(bits::UNCOUNTED);
    if flags_dead {
        emitter.out.bytes(&[0x65, 0x48, 0x81, 0x2c, 0x25]);
        emitter.out.imm32(word);
        trip.weight_at = emitter.out.code.len();
        emitter.out.imm32(weight);
        emitter.point(after);
        emitter.out.bytes(&[0x0f, 0x88]);
    } else {
        emitter.out.spill_rcx();
        emitter.point(bits::UNCOUNTED | bits::SPILL_RCX);
        emitter.out.load_rcx(word);
        emitter.out.add_to_rcx(weight.wrapping_neg());
        trip.weight_at = emitter.out.code.len() - 4;
        emitter.out.store_rcx(word);
        emitter.point(after | bits::SPILL_RCX);
        // movzx ecx, byte gs:[word + 7]; jrcxz +5
        emitter.out.bytes(&[0x65, 0x0f, 0xb6, 0x0c, 0x25]);
        emitter.out.imm32(word + 7);
        emitter.out.bytes(&[0xe3, 0x05, 0xe9]);
    }
    trip.at = emitter.out.code.len();
    emitter.out.trips.push(trip);
    emitter.out.imm32(0);
    let taken = emitter.here().0 - trip.retry.0;
    debug_assert_eq!(taken, CHARGE_BYTES[usize::from(!flags_dead)]);
    if !flags_dead {
        emitter.out.reload_rcx();
    }
    emitter.point(after);
}

/// Sets the amount that is taken at the place that was emitted last.
pub fn set_countdown(emitter: &mut Emitter<'_>, trip: usize, countdown: Countdown) {
    let trip = &mut emitter.out.trips[trip];
    trip.weight = countdown.packed();
    let taken = match trip.flags_dead {
        true => trip.weight,
        false => trip.weight.wrapping_neg(),
    };
    emitter.out.code[trip.weight_at..trip.weight_at + 4].copy_from_slice(&taken.to_le_bytes());
}

/// Notes where the instructions of `block` are, if an event in it can be noted: see
/// [`NOTES`](crate::routines::NOTES). Nothing in it may ask the host or make a system call.
pub fn instruction_table(emitter: &mut Emitter<'_>, block: &Block) -> Option<(usize, usize)> {
    let behind = u8::try_from(block.bytes.len()).ok()?;
    let falls = match block.terminator {
        Terminator::Conditional { target, .. } | Terminator::CountedLoop { target } => {
            // Else the place where control goes on does not tell.
            (target != block.next()).then_some(behind)?
        }
        Terminator::Fall
        | Terminator::Jump { .. }
        | Terminator::Call { .. }
        | Terminator::IndirectJump
        | Terminator::IndirectCall
        | Terminator::Return { .. } => 0,
        _ => return None,
    };
    let start = emitter.out.tables.len();
    emitter.out.tables.push(falls);
    emitter.out.tables.extend(block.insns.iter().map(|insn| insn.offset as u8));
    if block.terminator != Terminator::Fall {
        emitter.out.tables.push(block.terminator_offset as u8);
    }
    Some((start, emitter.out.tables.len()))
}

/// The stub of a trip: gives back what was taken, and has the countdown dealt out anew.
pub fn trip_stub(emitter: &mut Emitter<'_>, trip: &Trip) -> CachePc {
    emitter.start_piece();
    let stub = emitter.here();
    if trip.flags_dead {
        emitter.point(trip.after);
        emitter.out.bytes(&[0x65, 0x48, 0x81, 0x04, 0x25]);
        emitter.out.imm32(trip.word);
        emitter.out.imm32(trip.weight);
        emitter.point(bits::UNCOUNTED);
        emitter.out.spill_rcx();
    } else {
        emitter.point(trip.after | bits::SPILL_RCX);
        emitter.out.load_rcx(trip.word);
        emitter.out.add_to_rcx(trip.weight);
        emitter.out.store_rcx(trip.word);
    }
    emitter.point(bits::UNCOUNTED | bits::SPILL_RCX);
    emitter.out.spill_r11();
    emitter.point(bits::UNCOUNTED | bits::SPILL_RCX | bits::SPILL_R11);
    emitter.out.store_imm32(Slot::LwpWeight, trip.weight);
    emitter.out.store_imm32(Slot::LwpWord, trip.word);
    let table = name_table(emitter, trip);
    emitter.out.store_rcx(Slot::LwpTable as u32);
    emitter.load_address(Register::R11, trip.pc.0);
    // lea rcx, [rip + retry]
    emitter.out.bytes(&[0x48, 0x8d, 0x0d]);
    emitter.displacement_to(trip.retry.0);
    emitter.jump_to_routine(emitter.routines.lwp.deal);
    if let (Some((start, end)), Some(at)) = (trip.table, table) {
        let displacement = (emitter.out.code.len() - (at + 4)) as u32;
        emitter.out.code[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
        emitter.out.code.extend_from_slice(&emitter.out.tables[start..end]);
    }
    stub
}

/// rcx := the place where a trip's instructions are, or of its first block alone, inverted, or
/// zero. Returns the offset of the displacement of a table, which is set later.
fn name_table(emitter: &mut Emitter<'_>, trip: &Trip) -> Option<usize> {
    const LEA: [u8; 3] = [0x48, 0x8d, 0x0d];
    if let Some(alone) = trip.alone {
        emitter.out.bytes(&LEA);
        emitter.displacement_to(alone.0);
        // not rcx
        emitter.out.bytes(&[0x48, 0xf7, 0xd1]);
        return None;
    }
    match trip.table {
        Some(_) => emitter.out.bytes(&LEA),
        // mov ecx, 0
        None => emitter.out.bytes(&[0xb9]),
    }
    let at = emitter.out.code.len();
    emitter.out.imm32(0);
    trip.table.map(|_| at)
}

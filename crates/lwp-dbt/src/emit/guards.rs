//! Guards in superblocks: branches that are expected to stay in the superblock, and the side exits
//! if they don't.

use iced_x86::{OpKind, Register};

use super::{Emitter, heads, register_bits, terminators};
use crate::addr::{AppPc, CachePc};
use crate::block::{Block, Terminator};
use crate::fragment::FragmentId;
use crate::plan::{EventDeltas, Role};
use crate::recovery::Recovery;
use crate::relocation::{ROTATED_APART, Relocation, Rotated};
use crate::state_map::bits;

/// A way out of a superblock, to be emitted behind the region.
#[derive(Clone, Debug)]
pub(crate) struct SideExit {
    /// Offsets of the 4-byte displacements that jump there.
    pub at: Vec<usize>,
    /// The fragment that is left, and where it begins.
    pub fragment: FragmentId,
    pub block: AppPc,
    /// The fragment's progress.
    app: u8,
    index: u8,
    /// The exit's counts, if it counts.
    pub counts: Option<EventDeltas>,
    /// The role of that counter.
    pub role: fn(FragmentId) -> Role,
    /// The patchable place that leads there, if one does.
    pub place: Option<CachePc>,
    /// The amount that it gives back to a word of the LWP countdown, if it does.
    pub gives_back: Option<Tally>,
    pub kind: ExitKind,
}

impl SideExit {
    /// The way out of the superblock at the patchable `place`, where `emitter` stands in `block`,
    /// for the instruction at `pc`. The counts `left` of the block are still to come there.
    pub fn at_place(
        emitter: &Emitter<'_>,
        block: &Block,
        place: CachePc,
        (pc, left): (AppPc, EventDeltas),
        role: fn(FragmentId) -> Role,
    ) -> Self {
        let kind = ExitKind::Before { pc, left, recovery: None, spilled: 0 };
        Self { role, place: Some(place), ..way_out(emitter, block, Vec::new(), kind) }
    }

    /// Returns whether it counts or gives back anything.
    fn tallies(&self) -> bool {
        self.counts.is_some() || self.gives_back.is_some()
    }
}

/// A word in the thread's context to which a side exit adds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tally {
    /// A counter, which gets one more.
    Counter(u32),
    /// A word of the LWP countdown, and the amount.
    Countdown { word: u32, amount: u32 },
}

impl Tally {
    /// The displacement of the word, and the amount that is added to it.
    fn words(self) -> (u32, u32) {
        match self {
            Self::Counter(counter) => (super::counter_displacement(counter), 1),
            Self::Countdown { word, amount } => (word, amount),
        }
    }
}

/// The work that is left at a side exit.
#[derive(Clone, Debug)]
pub(crate) enum ExitKind {
    /// A conditional branch has led to `to`.
    Branch { to: AppPc, taken: bool, flags_dead: bool },
    /// The target is not the one that it was compared with, and the flags are the comparison's.
    Compared { target: Target, recovery: Recovery, push: Option<AppPc> },
    /// rcx is in its slot, and the target less the expected one, in [`Rotated`]'s way.
    Rotated { target: Target, push: Option<AppPc>, expected: AppPc },
    /// The instruction at `pc` is left to other code, as a branch is whose target is not the
    /// expected one; `left` are its counts in the fragment at hand. The flags are the comparison's
    /// where there is a `recovery`; rcx may be in its slot.
    Before { pc: AppPc, left: EventDeltas, recovery: Option<Recovery>, spilled: u8 },
}

impl ExitKind {
    /// Returns the exit that leaves the branch, at `pc` and with counts of `left`, to other code.
    pub fn before(self, pc: AppPc, left: EventDeltas) -> Self {
        match self {
            Self::Compared { target, recovery, .. } => {
                Self::Before { pc, left, recovery: Some(recovery), spilled: target.spilled() }
            }
            Self::Rotated { .. } => {
                Self::Before { pc, left, recovery: None, spilled: bits::SPILL_RCX }
            }
            other => other,
        }
    }
}

/// The place of a guarded branch's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// On top of the stack, of which so much more is released.
    Stack { release: u16 },
    /// In a register.
    Register(Register),
    /// In memory: it has been loaded into rcx, which is in its slot.
    Memory,
}

impl Target {
    /// Returns the place of the target of the branch at the end of `block`; none where no
    /// guard can look.
    pub fn of(block: &Block) -> Option<Self> {
        match block.terminator {
            Terminator::Return { release } => Some(Self::Stack { release }),
            Terminator::IndirectJump | Terminator::IndirectCall => {
                match block.last.op0_kind() == OpKind::Register {
                    true if block.last.op0_register() == Register::RSP => None,
                    true => Some(Self::Register(block.last.op0_register())),
                    false => Some(Self::Memory),
                }
            }
            _ => None,
        }
    }

    /// Returns whether a register still has the application's value behind a comparison with the
    /// target.
    pub fn keeps(self, register: Register) -> bool {
        self != Self::Memory || register != Register::RCX
    }

    /// The state bits of a guard that compares.
    fn spilled(self) -> u8 {
        if self == Self::Memory { bits::SPILL_RCX } else { 0 }
    }
}

const BOTH: u8 = bits::SPILL_RCX | bits::SPILL_R11;

/// `jcc rel32` to what is emitted later; returns the place of the displacement.
fn jump_if(emitter: &mut Emitter<'_>, condition: u8) -> usize {
    emitter.out.bytes(&[0x0f, 0x80 | condition]);
    let at = emitter.out.code.len();
    emitter.out.imm32(0);
    at
}

/// The conditional branch at the end of `block` leaves the superblock for `to` on `condition`,
/// by an exit that counts.
pub fn branch_out(
    emitter: &mut Emitter<'_>,
    block: &Block,
    condition: u8,
    kind: ExitKind,
) -> SideExit {
    emitter.point(0);
    let at = vec![jump_if(emitter, condition)];
    emitter.fell_through(block);
    emitter.point(0);
    way_out(emitter, block, at, kind)
}

fn way_out(emitter: &Emitter<'_>, block: &Block, at: Vec<usize>, kind: ExitKind) -> SideExit {
    let fragment = emitter.fragment.unwrap_or(FragmentId(0));
    let (app, index) = (emitter.place.app, emitter.place.index);
    SideExit {
        at,
        fragment,
        block: block.pc,
        app,
        index,
        counts: None,
        role: Role::SideExit,
        place: None,
        gives_back: None,
        kind,
    }
}

/// The branch at the end of `block` goes on to `expected` in the superblock if that is its
/// target. The flags are dead there where there is a `recovery`.
///
/// ```text
/// Target:  jmp r
/// Patch:   r <> expected --> exit
///
/// Target:  ret
/// Patch:   [rsp] <> expected --> exit; rsp := rsp + 8
///
/// Target:  any, where the flags cannot be had again
/// Patch:   slot := rcx; rcx := target; rcx := rotated(rcx - low half) - high half
///          rcx = 0 --> on; jmp exit
///          on: rcx := slot
/// ```
///
/// `None` where the operand cannot be reached from here, and where the processor cannot rotate
/// without touching the flags.
pub fn guard(
    emitter: &mut Emitter<'_>,
    block: &Block,
    expected: AppPc,
    recovery: Option<Recovery>,
) -> Option<SideExit> {
    let target = Target::of(block)?;
    let push = matches!(block.terminator, Terminator::IndirectCall).then(|| block.next());
    emitter.point(0);
    let (app, index) = (emitter.place.app, emitter.place.index);
    let (at, kind) = match recovery {
        Some(recovery) => {
            let at = compare(emitter, block, target, expected)?;
            (at, ExitKind::Compared { target, recovery, push })
        }
        None => {
            let at = compare_rotated(emitter, block, target, expected)?;
            (vec![at], ExitKind::Rotated { target, push, expected })
        }
    };
    take_target(emitter, target, push);
    emitter.complete(0);
    let exit = way_out(emitter, block, at, kind);
    Some(SideExit { app, index, ..exit })
}

/// The stack as the branch leaves it.
fn take_target(emitter: &mut Emitter<'_>, target: Target, push: Option<AppPc>) {
    if let Target::Stack { release } = target {
        release_stack(emitter, release);
    }
    if let Some(next) = push {
        terminators::push_return(emitter, next);
    }
}

/// `lea rsp, [rsp + 8 + release]`
fn release_stack(emitter: &mut Emitter<'_>, release: u16) {
    match u8::try_from(release + 8) {
        Ok(bytes @ ..0x80) => emitter.out.bytes(&[0x48, 0x8d, 0x64, 0x24, bytes]),
        _ => {
            emitter.out.bytes(&[0x48, 0x8d, 0xa4, 0x24]);
            emitter.out.imm32(u32::from(release) + 8);
        }
    }
}

/// Jumps out where the target is not `expected`; the flags are lost behind it.
fn compare(
    emitter: &mut Emitter<'_>,
    block: &Block,
    target: Target,
    expected: AppPc,
) -> Option<Vec<usize>> {
    const NOT_EQUAL: u8 = 5;
    let mut at = Vec::new();
    match target {
        Target::Stack { .. } if expected.0 <= 0x7fff_ffff => {
            // cmp qword [rsp], expected
            emitter.out.bytes(&[0x48, 0x81, 0x3c, 0x24]);
            emitter.out.imm32(expected.0 as u32);
            emitter.out.relocated(Relocation::Low);
        }
        Target::Stack { .. } => {
            // cmp dword [rsp], low half; jne; cmp dword [rsp + 4], high half
            emitter.out.bytes(&[0x81, 0x3c, 0x24]);
            emitter.out.imm32(expected.0 as u32);
            emitter.point(bits::LOST);
            at.push(jump_if(emitter, NOT_EQUAL));
            emitter.out.bytes(&[0x81, 0x7c, 0x24, 0x04]);
            emitter.out.imm32((expected.0 >> 32) as u32);
            emitter.out.relocated(Relocation::Halves);
        }
        Target::Register(register) => {
            let (high, low) = register_bits(register);
            // cmp r, [rip + expected]
            emitter.out.bytes(&[0x48 | high << 2, 0x3b, 0x05 | low << 3]);
            emitter.out.constants.push((emitter.out.code.len(), expected.0));
            emitter.out.imm32(0);
        }
        Target::Memory => {
            emitter.out.spill_rcx();
            emitter.point(bits::SPILL_RCX);
            if !terminators::load_target(emitter, block) {
                return None;
            }
            // cmp rcx, [rip + expected]
            emitter.out.bytes(&[0x48, 0x3b, 0x0d]);
            emitter.out.constants.push((emitter.out.code.len(), expected.0));
            emitter.out.imm32(0);
        }
    }
    emitter.point(bits::LOST | target.spilled());
    at.push(jump_if(emitter, NOT_EQUAL));
    if target == Target::Memory {
        emitter.out.reload_rcx();
        emitter.point(bits::LOST);
    }
    Some(at)
}

/// Jumps out if the target is not `expected`, without touching the flags.
fn compare_rotated(
    emitter: &mut Emitter<'_>,
    block: &Block,
    target: Target,
    expected: AppPc,
) -> Option<usize> {
    if !emitter.layout.features.bit_extract {
        return None;
    }
    emitter.out.spill_rcx();
    emitter.point(bits::SPILL_RCX);
    match target {
        // mov rcx, [rsp]
        Target::Stack { .. } => emitter.out.bytes(&[0x48, 0x8b, 0x0c, 0x24]),
        _ if !terminators::load_target(emitter, block) => return None,
        _ => {}
    }
    let words = Rotated::of(expected.0)?.words();
    rotate_between(emitter, words, Relocation::Rotated);
    // jrcxz +5; jmp exit
    emitter.out.bytes(&[0xe3, 0x05, 0xe9]);
    let at = emitter.out.code.len();
    emitter.out.imm32(0);
    emitter.out.reload_rcx();
    emitter.point(0);
    Some(at)
}

/// `lea rcx, [rcx + word]; rorx rcx, rcx, 32; lea rcx, [rcx + word]`
fn rotate_between(emitter: &mut Emitter<'_>, [first, second]: [i32; 2], kind: Relocation) {
    const LEA: [u8; 3] = [0x48, 0x8d, 0x89];
    const ROTATE: [u8; 6] = [0xc4, 0xe3, 0xfb, 0xf0, 0xc9, 0x20];
    const { assert!(4 + ROTATE.len() + LEA.len() == ROTATED_APART) };
    emitter.out.bytes(&LEA);
    emitter.out.imm32(first.cast_unsigned());
    emitter.out.bytes(&ROTATE);
    emitter.out.bytes(&LEA);
    emitter.out.imm32(second.cast_unsigned());
    emitter.out.relocated(kind);
}

/// The first part of a side exit, up to where it has been counted. Returns where it begins.
pub fn side_exit(emitter: &mut Emitter<'_>, exit: &SideExit, tally: Option<Tally>) -> CachePc {
    emitter.start_piece();
    emitter.fragment = Some(exit.fragment);
    (emitter.place.app, emitter.place.index) = (exit.app, exit.index);
    let start = emitter.here();
    match &exit.kind {
        ExitKind::Branch { taken, flags_dead, .. } => {
            let state = bits::EDGE | if *taken { bits::PC_TARGET } else { 0 };
            emitter.point(state);
            if let Some(tally) = tally {
                tally_branch(emitter, tally, *flags_dead, state);
            }
        }
        ExitKind::Compared { target, recovery, push } => {
            have_flags_again(emitter, recovery, target.spilled());
            hold_target(emitter, *target);
            take_target(emitter, *target, *push);
            tally_indirect(emitter, tally);
        }
        ExitKind::Rotated { target, push, expected } => {
            emitter.point(bits::SPILL_RCX);
            if let Some(rotated) = Rotated::of(expected.0) {
                rotate_between(emitter, rotated.words_back(), Relocation::RotatedBack);
            }
            // lea rcx, [rcx + 1]
            emitter.out.bytes(&[0x48, 0x8d, 0x49, 0x01]);
            emitter.out.spill_r11();
            emitter.point(BOTH);
            take_target(emitter, *target, *push);
            tally_indirect(emitter, tally);
        }
        ExitKind::Before { recovery, spilled, .. } => {
            if let Some(recovery) = recovery {
                have_flags_again(emitter, recovery, *spilled);
                emitter.out.reload_r11();
            }
            emitter.point(*spilled);
            if *spilled == 0 && exit.tallies() {
                emitter.out.spill_rcx();
                emitter.point(bits::SPILL_RCX);
            }
            if let Some(tally) = tally {
                tally_in_rcx(emitter, tally);
            }
        }
    }
    start
}

/// The flags as they were before they were compared, by way of r11, which goes to its slot.
fn have_flags_again(emitter: &mut Emitter<'_>, recovery: &Recovery, spilled: u8) {
    emitter.point(bits::LOST | spilled);
    emitter.out.spill_r11();
    emitter.point(bits::LOST | spilled | bits::SPILL_R11);
    emitter.out.bytes(&recovery.code);
    emitter.point(spilled | bits::SPILL_R11);
}

/// The target in rcx, whose own value goes to its slot; r11 is in its slot and void.
fn hold_target(emitter: &mut Emitter<'_>, target: Target) {
    if target != Target::Memory {
        emitter.out.spill_rcx();
        emitter.point(BOTH);
    }
    match target {
        // mov rcx, [rsp]
        Target::Stack { .. } => emitter.out.bytes(&[0x48, 0x8b, 0x0c, 0x24]),
        Target::Register(Register::R11) => emitter.out.load_rcx(super::Slot::R11 as u32),
        Target::Register(Register::RCX) | Target::Memory => {}
        Target::Register(register) => {
            let (high, low) = register_bits(register);
            emitter.out.bytes(&[0x48 | high, 0x8b, 0xc8 | low]);
        }
    }
}

/// Counts the exit of a conditional branch, up to the moment from which on it is counted.
fn tally_branch(emitter: &mut Emitter<'_>, tally: Tally, flags_dead: bool, state: u8) {
    if !flags_dead {
        emitter.out.spill_rcx();
        emitter.point(state | bits::SPILL_RCX);
        return tally_in_rcx(emitter, tally);
    }
    let (word, amount) = tally.words();
    match tally {
        Tally::Counter(_) => {
            // inc qword gs:[word]
            emitter.out.bytes(&[0x65, 0x48, 0xff, 0x04, 0x25]);
            emitter.out.imm32(word);
            emitter.out.relocated(Relocation::Counter);
        }
        Tally::Countdown { .. } => {
            // add qword gs:[word], amount
            emitter.out.bytes(&[0x65, 0x48, 0x81, 0x04, 0x25]);
            emitter.out.imm32(word);
            emitter.out.imm32(amount);
        }
    }
}

/// Counts an exit in rcx, which has been spilled. No flag changes.
fn tally_in_rcx(emitter: &mut Emitter<'_>, tally: Tally) {
    match tally {
        Tally::Counter(counter) => heads::count_in_rcx(emitter, counter),
        Tally::Countdown { word, amount } => {
            emitter.out.load_rcx(word);
            emitter.out.add_to_rcx(amount);
            emitter.out.store_rcx(word);
        }
    }
}

/// The branch has been made, with its target in rcx; counts the exit in r11.
fn tally_indirect(emitter: &mut Emitter<'_>, tally: Option<Tally>) {
    let Some(tally) = tally else { return emitter.complete(BOTH | bits::PC_RCX) };
    emitter.complete(BOTH | bits::PC_RCX | bits::EDGE);
    let (word, amount) = tally.words();
    let counts = matches!(tally, Tally::Counter(_));
    // mov r11, gs:[word]; lea r11, [r11 + amount]; mov gs:[word], r11
    emitter.out.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
    emitter.out.imm32(word);
    if counts {
        emitter.out.relocated(Relocation::Counter);
        emitter.out.bytes(&[0x4d, 0x8d, 0x5b, amount as u8]);
    } else {
        emitter.out.bytes(&[0x4d, 0x8d, 0x9b]);
        emitter.out.imm32(amount);
    }
    emitter.out.bytes(&[0x65, 0x4c, 0x89, 0x1c, 0x25]);
    emitter.out.imm32(word);
    if counts {
        emitter.out.relocated(Relocation::Counter);
    }
}

/// The rest of a side exit, which belongs to no fragment any more. Returns where it begins.
pub fn side_exit_done(emitter: &mut Emitter<'_>, exit: &SideExit) -> CachePc {
    emitter.start_piece();
    let start = emitter.here();
    match exit.kind {
        ExitKind::Branch { to, flags_dead, .. } => {
            if exit.tallies() && !flags_dead {
                emitter.point(bits::SPILL_RCX);
                emitter.out.reload_rcx();
            }
            emitter.point(0);
            emitter.jump_link(to);
        }
        ExitKind::Compared { .. } | ExitKind::Rotated { .. } => {
            emitter.point(BOTH | bits::PC_RCX);
            terminators::dispatch_spilled(emitter);
        }
        ExitKind::Before { pc, spilled, .. } => {
            if exit.tallies() || spilled != 0 {
                emitter.point(bits::SPILL_RCX);
                emitter.out.reload_rcx();
            }
            emitter.point(0);
            emitter.jump_link(pc);
        }
    }
    start
}

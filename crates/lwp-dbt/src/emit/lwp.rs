//! Rules 16 to 18: Lightweight Profiling.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use super::{Emitter, register_bits};
use crate::addr::{AppPc, CachePc};
use crate::block::{Block, Terminator};
use crate::context::{LWP_SHIFT, RESULT_NARROW, RequestKind, Slot, lwp_slot_displacement};
use crate::fragment::FragmentId;
use crate::plan::{Lwp, Selection, branch_bit};
use crate::routines::CHARGE_BYTES;
use crate::state_map::bits;

/// The most that is taken from a part of the countdown at once: the immediate operand that holds it
/// has a sign.
const MOST_AT_ONCE: u8 = i8::MAX as u8;

/// EventId of LWPVAL's records.
const VALUE_SAMPLE: u32 = 1;
/// EventId of LWPINS' records.
const PROGRAMMED: u32 = 255;

/// The amount that a block takes from the LWP countdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Countdown {
    /// Of the high part.
    pub high: u8,
    /// Of the low part.
    pub low: u8,
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
            return Self { high: branches, low: 0 };
        }
        let uncounted = matches!(
            block.terminator,
            Terminator::Syscall { .. }
                | Terminator::Step
                | Terminator::Repeat { walked: false }
                | Terminator::Lwp { kind: RequestKind::Llwpcb | RequestKind::Slwpcb }
        );
        let instructions = block.instructions() - u32::from(uncounted);
        Self { high: instructions as u8, low: branches }
    }

    /// As one number to be taken from a word.
    pub fn packed(self) -> u32 {
        u32::from(self.high) << LWP_SHIFT | u32::from(self.low)
    }

    /// Returns whether there is nothing to count.
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// Returns the sum of both, where one instruction can take it from a word.
    pub fn plus(self, other: Self) -> Option<Self> {
        let sum = |own: u8, more: u8| own.checked_add(more).filter(|sum| *sum <= MOST_AT_ONCE);
        Some(Self { high: sum(self.high, other.high)?, low: sum(self.low, other.low)? })
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

impl Emitter<'_> {
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
    pub fn countdown(&mut self, mut trip: Trip) {
        let Trip { word, weight, after, flags_dead, .. } = trip;
        trip.retry = self.here();
        self.point(bits::UNCOUNTED);
        if flags_dead {
            self.bytes(&[0x65, 0x48, 0x81, 0x2c, 0x25]);
            self.imm32(word);
            trip.weight_at = self.out.code.len();
            self.imm32(weight);
            self.point(after);
            self.bytes(&[0x0f, 0x88]);
        } else {
            self.spill_rcx();
            self.point(bits::UNCOUNTED | bits::SPILL_RCX);
            self.load_rcx(word);
            self.add_to_rcx(weight.wrapping_neg());
            trip.weight_at = self.out.code.len() - 4;
            self.store_rcx(word);
            self.point(after | bits::SPILL_RCX);
            // movzx ecx, byte gs:[word + 7]; jrcxz +5
            self.bytes(&[0x65, 0x0f, 0xb6, 0x0c, 0x25]);
            self.imm32(word + 7);
            self.bytes(&[0xe3, 0x05, 0xe9]);
        }
        trip.at = self.out.code.len();
        self.out.trips.push(trip);
        self.imm32(0);
        let taken = self.here().0 - trip.retry.0;
        debug_assert_eq!(taken, CHARGE_BYTES[usize::from(!flags_dead)]);
        if !flags_dead {
            self.reload_rcx();
        }
        self.point(after);
    }

    /// Sets the amount that is taken at the place that was emitted last.
    pub fn set_countdown(&mut self, trip: usize, countdown: Countdown) {
        let trip = &mut self.out.trips[trip];
        trip.weight = countdown.packed();
        let taken = match trip.flags_dead {
            true => trip.weight,
            false => trip.weight.wrapping_neg(),
        };
        self.out.code[trip.weight_at..trip.weight_at + 4].copy_from_slice(&taken.to_le_bytes());
    }

    /// Notes where the instructions of `block` are, if an event in it can be noted: see
    /// [`NOTES`](crate::routines::NOTES). Nothing in it may ask the host or make a system call.
    pub fn instruction_table(&mut self, block: &Block) -> Option<(usize, usize)> {
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
        let start = self.out.tables.len();
        self.out.tables.push(falls);
        self.out.tables.extend(block.insns.iter().map(|insn| insn.offset as u8));
        if block.terminator != Terminator::Fall {
            self.out.tables.push(block.terminator_offset as u8);
        }
        Some((start, self.out.tables.len()))
    }

    /// `lea rcx, [rcx + value]`
    pub(super) fn add_to_rcx(&mut self, value: u32) {
        self.bytes(&[0x48, 0x8d, 0x89]);
        self.imm32(value);
    }

    /// The stub of a trip: gives back what was taken, and has the countdown dealt out anew.
    pub fn trip_stub(&mut self, trip: &Trip) -> CachePc {
        self.start_piece();
        let stub = self.here();
        if trip.flags_dead {
            self.point(trip.after);
            self.bytes(&[0x65, 0x48, 0x81, 0x04, 0x25]);
            self.imm32(trip.word);
            self.imm32(trip.weight);
            self.point(bits::UNCOUNTED);
            self.spill_rcx();
        } else {
            self.point(trip.after | bits::SPILL_RCX);
            self.load_rcx(trip.word);
            self.add_to_rcx(trip.weight);
            self.store_rcx(trip.word);
        }
        self.point(bits::UNCOUNTED | bits::SPILL_RCX);
        self.spill_r11();
        self.point(bits::UNCOUNTED | bits::SPILL_RCX | bits::SPILL_R11);
        self.store_imm32(Slot::LwpWeight, trip.weight);
        self.store_imm32(Slot::LwpWord, trip.word);
        let table = self.name_table(trip);
        self.store_rcx(Slot::LwpTable as u32);
        self.load_address(Register::R11, trip.pc.0);
        // lea rcx, [rip + retry]
        self.bytes(&[0x48, 0x8d, 0x0d]);
        self.displacement_to(trip.retry.0);
        self.jump_to_routine(self.routines.lwp.deal);
        if let (Some((start, end)), Some(at)) = (trip.table, table) {
            let displacement = (self.out.code.len() - (at + 4)) as u32;
            self.out.code[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
            self.out.code.extend_from_slice(&self.out.tables[start..end]);
        }
        stub
    }

    /// rcx := the place where a trip's instructions are, or of its first block alone, inverted, or
    /// zero. Returns the offset of the displacement of a table, which is set later.
    fn name_table(&mut self, trip: &Trip) -> Option<usize> {
        const LEA: [u8; 3] = [0x48, 0x8d, 0x0d];
        if let Some(alone) = trip.alone {
            self.bytes(&LEA);
            self.displacement_to(alone.0);
            // not rcx
            self.bytes(&[0x48, 0xf7, 0xd1]);
            return None;
        }
        match trip.table {
            Some(_) => self.bytes(&LEA),
            // mov ecx, 0
            None => self.bytes(&[0xb9]),
        }
        let at = self.out.code.len();
        self.imm32(0);
        trip.table.map(|_| at)
    }

    /// `mov dword gs:[slot], value`
    pub(super) fn store_imm32(&mut self, slot: Slot, value: u32) {
        self.bytes(&[0x65, 0xc7, 0x04, 0x25]);
        self.imm32(slot as u32);
        self.imm32(value);
    }

    // ---- the four instructions -----------------------------------------------------------------

    /// Rule 17. `charged` are the state bits while the instruction has not been executed, `done`
    /// those when it has. Returns false where its operand cannot be reached from here.
    ///
    /// ```text
    /// Target:  LLWPCB r          Patch:  operand := r; ask the host, who goes on elsewhere
    ///          SLWPCB r                  off: r := 0;   on: ask the host; r := data
    ///          LWPINS r, r/m, i          off: CF := 0;  on: stage the operands; ask; CF := data
    ///          LWPVAL r, r/m, i          off: nothing;  on: value := value - 1, or, where it is 0
    ///                                                   already, stage the operands and ask
    /// ```
    ///
    /// Requests to the host go to a routine first, which does them without the host where it can.
    pub fn lwp_instruction(&mut self, block: &Block, kind: RequestKind, lwp: Lwp) -> bool {
        let state = self.before_bits();
        self.point(state);
        let selection = match lwp {
            Lwp::On(selection) => Some(selection),
            Lwp::Off | Lwp::Absent => None,
        };
        match (kind, selection) {
            (RequestKind::Llwpcb, _) => {
                self.store_register(block.last.op0_register(), Slot::LwpOperand);
                self.jump_ask(kind, block.terminator_pc(), false);
                true
            }
            (RequestKind::Slwpcb, None) => {
                let (high, low) = register_bits(block.last.op0_register());
                if high != 0 {
                    self.bytes(&[0x41]);
                }
                self.bytes(&[0xb8 | low]);
                self.imm32(0);
                self.executed(block, state);
                true
            }
            (RequestKind::Slwpcb, Some(selection)) => {
                self.stored_block(block, &selection, state);
                true
            }
            (RequestKind::Lwpins, None) => {
                self.bytes(&[0xf8]);
                self.executed(block, state);
                true
            }
            (RequestKind::Lwpins, Some(_)) => self.insert(block, state),
            (_, Some(selection)) if selection.values => self.value_sample(block, state),
            _ => {
                self.executed(block, state);
                if self.uncharged {
                    self.jump_ask(RequestKind::LwpStepped, block.next(), false);
                }
                true
            }
        }
    }

    /// The state bits of a terminator that has not been executed.
    pub(super) fn before_bits(&self) -> u8 {
        if self.uncharged { bits::UNCOUNTED } else { 0 }
    }

    pub(super) fn executed(&mut self, block: &Block, state: u8) {
        self.app = block.bytes.len() as u8;
        self.index = block.instructions() as u8;
        self.point(state);
    }

    /// `mov gs:[slot], register`, all 64 bits of it
    fn store_register(&mut self, register: Register, slot: Slot) {
        let (high, low) = register_bits(register.full_register());
        self.bytes(&[0x65, 0x48 | high << 2, 0x89, 0x04 | low << 3, 0x25]);
        self.imm32(slot as u32);
    }

    /// SLWPCB with profiling on.
    fn stored_block(&mut self, block: &Block, selection: &Selection, state: u8) {
        let register = block.last.op0_register();
        let narrow = register.is_gpr32();
        let (high, low) = register_bits(register.full_register());
        let counts = selection.instructions && selection.admits(block.terminator_pc().0);
        let itself = Countdown { high: u8::from(counts), low: 0 };
        self.store_imm32(Slot::LwpWeight, itself.packed());
        let number = u32::from(high << 3 | low);
        self.store_imm32(Slot::LwpRegister, if narrow { number | RESULT_NARROW } else { number });
        self.request_with_result(block, RequestKind::Slwpcb, state);
        // mov r, gs:[data]
        let wide = if narrow { 0x40 } else { 0x48 };
        self.bytes(&[0x65, wide | high << 2, 0x8b, 0x04 | low << 3, 0x25]);
        self.imm32(Slot::LwpData as u32);
        self.result_set(block, state);
    }

    /// Names the place to go on at, and asks; emits up to that place, where the result is still to
    /// be set.
    fn request_with_result(&mut self, block: &Block, kind: RequestKind, state: u8) {
        self.spill_rcx();
        self.point(state | bits::SPILL_RCX);
        let fix = self.name_after();
        self.jump_ask(kind, block.terminator_pc(), true);
        self.set_after(fix);
        self.app = block.bytes.len() as u8;
        self.index = block.instructions() as u8;
        self.point(state | bits::SYSCALL | bits::EDGE);
    }

    /// `LwpAfter := rip + …`, through rcx; the displacement is set later.
    fn name_after(&mut self) -> usize {
        self.bytes(&[0x48, 0x8d, 0x0d]);
        let at = self.out.code.len();
        self.imm32(0);
        self.store_rcx(Slot::LwpAfter as u32);
        at
    }

    fn set_after(&mut self, at: usize) {
        let displacement = (self.out.code.len() - (at + 4)) as u32;
        self.out.code[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
    }

    /// The result has been set.
    fn result_set(&mut self, block: &Block, state: u8) {
        self.executed(block, state);
        self.store_imm32(Slot::LwpPending, 0);
    }

    /// LWPINS with profiling on.
    fn insert(&mut self, block: &Block, state: u8) -> bool {
        if !self.stage(block, state) {
            return false;
        }
        self.request_with_result(block, RequestKind::Lwpins, state);
        let pending = state | bits::SYSCALL | bits::EDGE;
        self.spill_rcx();
        self.point(pending | bits::SPILL_RCX);
        self.load_rcx(Slot::LwpData as u32);
        // jrcxz clear; stc; jmp set; clear: clc; set:
        self.bytes(&[0xe3, 0x03, 0xf9, 0xeb, 0x01, 0xf8]);
        self.executed(block, state | bits::SPILL_RCX);
        self.reload_rcx();
        self.result_set(block, state);
        true
    }

    /// LWPVAL with profiling on and value samples selected.
    fn value_sample(&mut self, block: &Block, state: u8) -> bool {
        let (app, index) = (self.app, self.index);
        self.spill_rcx();
        self.point(state | bits::SPILL_RCX);
        self.load_rcx(Slot::LwpValue as u32);
        self.bytes(&[0xe3, 0]);
        let expired = self.out.code.len();
        self.add_to_rcx(u32::MAX);
        self.store_rcx(Slot::LwpValue as u32);
        self.executed(block, state | bits::SPILL_RCX);
        self.reload_rcx();
        self.point(state);
        let over = match self.uncharged {
            true => {
                self.jump_ask(RequestKind::LwpStepped, block.next(), false);
                None
            }
            false => {
                self.bytes(&[0xe9]);
                self.imm32(0);
                Some(self.out.code.len())
            }
        };
        self.out.code[expired - 1] = (self.out.code.len() - expired) as u8;
        (self.app, self.index) = (app, index);
        self.point(state | bits::SPILL_RCX);
        self.reload_rcx();
        self.point(state);
        if !self.stage(block, state) {
            return false;
        }
        self.spill_rcx();
        self.point(state | bits::SPILL_RCX);
        let fix = self.name_after();
        self.jump_ask(RequestKind::Lwpval, block.terminator_pc(), true);
        self.set_after(fix);
        if let Some(over) = over {
            let displacement = (self.out.code.len() - over) as u32;
            self.out.code[over - 4..over].copy_from_slice(&displacement.to_le_bytes());
        }
        self.executed(block, state);
        true
    }

    /// Puts the operands of LWPINS or LWPVAL where the host finds them. Reading the memory operand
    /// faults as the instruction does.
    fn stage(&mut self, block: &Block, state: u8) -> bool {
        let last = &block.last;
        let id = match last.mnemonic() {
            Mnemonic::Lwpins => PROGRAMMED,
            _ => VALUE_SAMPLE,
        };
        self.store_imm32(Slot::LwpRecord, id | (last.immediate32() & 0xffff) << 16);
        self.store_operand(last.op0_register());
        if last.op1_kind() == OpKind::Register {
            self.store_register(last.op1_register(), Slot::LwpData);
            return true;
        }
        if !self.touch_terminator(block, false) {
            return false;
        }
        self.spill_rcx();
        self.point(state | bits::SPILL_RCX);
        if !self.load_data(last, state) {
            return false;
        }
        self.store_rcx(Slot::LwpData as u32);
        self.reload_rcx();
        self.point(state);
        true
    }

    /// Stores the second data of a record, zero-extended.
    fn store_operand(&mut self, register: Register) {
        if !register.is_gpr32() {
            self.store_register(register, Slot::LwpOperand);
            return;
        }
        let (high, low) = register_bits(register.full_register());
        // mov gs:[operand], r32; mov dword gs:[operand + 4], 0
        self.bytes(&[0x65, 0x40 | high << 2, 0x89, 0x04 | low << 3, 0x25]);
        self.imm32(Slot::LwpOperand as u32);
        self.bytes(&[0x65, 0xc7, 0x04, 0x25]);
        self.imm32(Slot::LwpOperand as u32 + 4);
        self.imm32(0);
    }

    /// `mov ecx, [operand]`
    fn load_data(&mut self, last: &Instruction, state: u8) -> bool {
        let mut load = Instruction::default();
        load.set_op0_kind(OpKind::Register);
        load.set_op0_register(Register::RCX);
        load.set_op1_kind(OpKind::Memory);
        load.set_memory_base(last.memory_base());
        load.set_memory_index(last.memory_index());
        load.set_memory_index_scale(last.memory_index_scale());
        load.set_memory_displacement64(last.memory_displacement64());
        load.set_memory_displ_size(last.memory_displ_size());
        if last.segment_prefix() == Register::GS {
            load.set_code(Code::Lea_r64_m);
            if !self.encode(&load) {
                return false;
            }
            self.spill_r11();
            self.point(state | bits::SPILL_RCX | bits::SPILL_R11);
            // mov r11, gs:[app gs]; mov ecx, [rcx + r11]
            self.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
            self.imm32(Slot::AppGs as u32);
            self.bytes(&[0x42, 0x8b, 0x0c, 0x19]);
            self.reload_r11();
            self.point(state | bits::SPILL_RCX);
            return true;
        }
        load.set_code(Code::Mov_r32_rm32);
        load.set_op0_register(Register::ECX);
        load.set_segment_prefix(last.segment_prefix());
        self.encode(&load)
    }

    // ---- cut fragments -------------------------------------------------------------------------

    /// Rule 18. Ends a cut fragment: the block's last instruction is executed and the host is told,
    /// with the pc where control is then. `Err` where an operand is out of reach or the instruction
    /// cannot be executed here.
    pub fn cut_terminator(&mut self, block: &Block, lwp: Lwp) -> Result<(), ()> {
        let reached = |ok: bool| if ok { Ok(()) } else { Err(()) };
        let next = block.next();
        self.point(bits::UNCOUNTED);
        if block.touches_before_its_end() && !self.touch_terminator(block, false) {
            return Err(());
        }
        match block.terminator {
            Terminator::Repeat { .. } => {
                self.repeat(block);
                self.jump_ask(RequestKind::LwpStepped, next, false);
            }
            Terminator::Fall => {
                self.executed(block, bits::UNCOUNTED);
                self.jump_ask(RequestKind::LwpStepped, next, false);
            }
            Terminator::Jump { target } => self.report_taken(block, target),
            Terminator::Conditional { target, condition } => {
                self.bytes(&[0x0f, 0x80 | condition]);
                self.index = block.instructions() as u8;
                self.ask_from(RequestKind::LwpTaken, target, false, false);
                self.executed(block, bits::UNCOUNTED);
                self.jump_ask(RequestKind::LwpStepped, next, false);
            }
            Terminator::CountedLoop { target } => {
                let bytes = &block.bytes[usize::from(block.terminator_offset)..];
                self.bytes(&bytes[..bytes.len() - 1]);
                // Taken: over the jump of the other side.
                self.bytes(&[5]);
                self.executed(block, bits::UNCOUNTED);
                self.jump_ask(RequestKind::LwpStepped, next, false);
                self.report_taken(block, target);
            }
            Terminator::Call { target } => {
                self.push_return(next);
                self.report_taken(block, target);
            }
            Terminator::TransactionAbort { target } => {
                self.bytes(&[0xb8, 0, 0, 0, 0]);
                self.index = block.instructions() as u8;
                self.point(bits::UNCOUNTED | bits::PC_TARGET);
                self.jump_ask(RequestKind::LwpStepped, target, false);
            }
            Terminator::IndirectJump => return reached(self.cut_indirect(block, None)),
            Terminator::IndirectCall => return reached(self.cut_indirect(block, Some(next))),
            Terminator::Return { release } => {
                self.spill_rcx();
                self.point(bits::UNCOUNTED | bits::SPILL_RCX);
                self.pop_target(release);
                self.report_branched();
            }
            Terminator::Lwp { kind } => {
                if !self.lwp_instruction(block, kind, lwp) {
                    return Err(());
                }
                if kind != RequestKind::Llwpcb {
                    self.jump_link(next);
                }
            }
            Terminator::PopFlags => {
                self.bytes(&block.bytes[usize::from(block.terminator_offset)..]);
                self.executed(block, bits::UNCOUNTED);
                self.jump_ask(RequestKind::LwpStepped, next, false);
            }
            Terminator::Syscall { .. }
            | Terminator::Emulate { .. }
            | Terminator::StateSave
            | Terminator::StorePointer
            | Terminator::Step => return Err(()),
        }
        Ok(())
    }

    /// A repeated string instruction: what it starts with is left for the host, who works out what
    /// it has accessed.
    fn repeat(&mut self, block: &Block) {
        let starts = [
            (Register::RCX, Slot::LwpRepeatCount),
            (Register::RSI, Slot::LwpRepeatFrom),
            (Register::RDI, Slot::LwpRepeatTo),
        ];
        for (register, slot) in starts {
            self.store_register(register, slot);
        }
        self.store_imm32(Slot::LwpRepeats, 1);
        self.bytes(&block.bytes[usize::from(block.terminator_offset)..]);
        self.executed(block, bits::UNCOUNTED);
    }

    fn report_taken(&mut self, block: &Block, target: AppPc) {
        self.index = block.instructions() as u8;
        self.point(bits::UNCOUNTED | bits::PC_TARGET);
        self.jump_ask(RequestKind::LwpTaken, target, false);
    }

    fn cut_indirect(&mut self, block: &Block, push: Option<AppPc>) -> bool {
        self.spill_rcx();
        self.point(bits::UNCOUNTED | bits::SPILL_RCX);
        if !self.load_target(block) {
            return false;
        }
        if let Some(next) = push {
            self.push_return(next);
        }
        self.report_branched();
        true
    }

    /// Tells the host that a branch went to the pc in rcx.
    fn report_branched(&mut self) {
        self.complete(bits::UNCOUNTED | bits::SPILL_RCX | bits::PC_RCX);
        self.spill_r11();
        self.point(bits::UNCOUNTED | bits::SPILL_RCX | bits::SPILL_R11 | bits::PC_RCX);
        self.jump_to_routine(self.routines.lwp.branched);
    }
}

//! The places at which fragments are entered, and their counts there.

use super::Emitter;
use crate::addr::{AppPc, CachePc};
use crate::context::{RequestKind, counter_displacement};
use crate::fragment::FragmentId;
use crate::relocation::Relocation;
use crate::state_map::bits;

impl Emitter<'_> {
    /// The entry stub of `pc`, reached from the indirect table or along a chain.
    ///
    /// ```text
    /// Target:  rcx = wanted pc; rcx and r11 in their slots
    /// Patch:   r11 := -pc; rcx := rcx + r11; rcx = 0 --> ok
    ///          r11 := ~r11; rcx := rcx + r11 + 1; jmp [chain slot]
    ///          ok: rcx := slot; r11 := slot
    /// ```
    ///
    /// Returns the entry's address. The check stands at the target, so that the table needs one
    /// word a slot and the site one load. It may not touch the flags even where they are dead at
    /// `pc`: along a chain it is passed on the way to other targets, which may read them.
    pub fn entry_stub(&mut self, pc: AppPc, chain_slot: u64) -> CachePc {
        let spilled = bits::SPILL_RCX | bits::SPILL_R11;
        let at_rcx = spilled | bits::PC_RCX | bits::UNCOUNTED;
        self.point(at_rcx);
        let entry = self.here();
        // mov r11, -pc
        self.bytes(&[0x49, 0xbb]);
        self.imm64(pc.0.wrapping_neg());
        self.relocated(Relocation::Negated);
        self.lea_rcx_rcx_r11();
        self.point(spilled | bits::PC_RCX_PLUS | bits::UNCOUNTED);
        self.bytes(&[0xe3, 0]);
        let from = self.out.code.len();
        // not r11; lea rcx, [rcx + r11 + 1]
        self.bytes(&[0x49, 0xf7, 0xd3, 0x4a, 0x8d, 0x4c, 0x19, 0x01]);
        self.point(at_rcx);
        self.jump_chain(chain_slot);
        self.out.code[from - 1] = (self.out.code.len() - from) as u8;
        self.point(spilled | bits::UNCOUNTED);
        self.reload_rcx();
        self.point(bits::SPILL_R11 | bits::UNCOUNTED);
        self.reload_r11();
        self.point(bits::UNCOUNTED);
        entry
    }

    /// `jmp [chain slot]`
    pub(super) fn jump_chain(&mut self, chain_slot: u64) {
        self.bytes(&[0xff, 0x24, 0x25]);
        self.imm32(chain_slot as u32);
        self.relocated(Relocation::Chain);
    }

    /// Adds one to a counter. `before` is the state until it has been counted, without its two
    /// uncounted bits it is the state from then on.
    pub fn count(&mut self, counter: u32, flags_dead: bool, before: u8) {
        self.count_between(counter, flags_dead, before, before & !(bits::UNCOUNTED | bits::EDGE));
    }

    /// Adds one to a counter, which takes the state from `before` to `after`.
    pub fn count_between(&mut self, counter: u32, flags_dead: bool, before: u8, after: u8) {
        self.point(before);
        let start = self.here();
        if flags_dead {
            self.bytes(&[0x65, 0x48, 0xff, 0x04, 0x25]);
            self.imm32(counter_displacement(counter));
            self.relocated(Relocation::Counter);
        } else {
            self.spill_rcx();
            self.point(before | bits::SPILL_RCX);
            self.count_in_rcx(counter);
            self.point(after | bits::SPILL_RCX);
            self.reload_rcx();
        }
        debug_assert_eq!(self.here(), start.offset(Self::count_bytes(flags_dead)));
        self.point(after);
    }

    /// Bytes of the code that adds one to a counter.
    pub fn count_bytes(flags_dead: bool) -> u64 {
        if flags_dead { 9 } else { 9 + 9 + 4 + 9 + 9 }
    }

    /// Adds one to a counter in rcx, which has been spilled. No flag changes.
    pub(super) fn count_in_rcx(&mut self, counter: u32) {
        let displacement = counter_displacement(counter);
        self.load_rcx(displacement);
        self.relocated(Relocation::Counter);
        self.bytes(&[0x48, 0x8d, 0x49, 0x01]);
        self.store_rcx(displacement);
        self.relocated(Relocation::Counter);
    }

    /// Five bytes that one aligned store can turn into a jump, in front of a fragment; `state`
    /// holds there.
    pub fn patchable_head(&mut self, state: u8) -> CachePc {
        self.point(state);
        let at = (self.base as usize + self.out.code.len()) % 8;
        if at > 3 {
            self.bytes(NOPS[8 - at - 1]);
        }
        let head = self.here();
        self.bytes(&HEAD);
        head
    }

    /// The stub of a not-taken edge whose fragment has been cut off: counts the edge in `counter`,
    /// and goes on at `exit`. Returns the stub, and the place of the displacement that leads on.
    ///
    /// ```text
    /// Patch:   slot := rcx; rcx := counter; rcx := rcx + 1; counter := rcx; rcx := slot; jmp exit
    /// ```
    pub fn edge_stub(&mut self, fragment: FragmentId, counter: u32, exit: CachePc) -> [CachePc; 2] {
        self.start_piece();
        self.fragment = Some(fragment);
        let stub = self.here();
        let uncounted = bits::EDGE | bits::UNCOUNTED;
        self.count_between(counter, false, uncounted, bits::UNCOUNTED);
        self.pad_for_link(1);
        self.jump_to(exit);
        [stub, CachePc(self.here().0 - 4)]
    }

    /// Compares the fragment's own bytes with what was translated; a difference asks the host.
    ///
    /// The flags stay as they are: the bytes that made them dead may be the ones that have changed.
    pub fn self_check(&mut self, pc: AppPc, bytes: &[u8]) {
        self.point(bits::UNCOUNTED);
        self.spill_rcx();
        self.point(bits::UNCOUNTED | bits::SPILL_RCX);
        self.spill_r11();
        self.point(bits::UNCOUNTED | bits::SPILL_RCX | bits::SPILL_R11);
        for (offset, width) in pieces(pc.0, bytes.len(), 8) {
            let operand = pc.0 + offset as u64;
            let mut value = [0u8; 8];
            value[..width].copy_from_slice(&bytes[offset..offset + width]);
            self.load_word(width, operand);
            self.mov_r11(u64::from_le_bytes(value).wrapping_neg());
            self.lea_rcx_rcx_r11();
            self.bytes(&[0xe3, 0x05, 0xe9]);
            self.ask_from(RequestKind::Stale, pc, true, true);
        }
        self.reload_rcx();
        self.point(bits::UNCOUNTED | bits::SPILL_R11);
        self.reload_r11();
        self.point(bits::UNCOUNTED);
    }

    /// Loads up to eight bytes of the application's code into rcx.
    fn load_word(&mut self, width: usize, address: u64) {
        let opcode: &[u8] = match width {
            8 => &[0x48, 0x8b],
            4 => &[0x8b],
            2 => &[0x0f, 0xb7],
            _ => &[0x0f, 0xb6],
        };
        let next = self.here().0 + opcode.len() as u64 + 5;
        if let Ok(displacement) = i32::try_from(address.wrapping_sub(next) as i64) {
            self.bytes(opcode);
            self.bytes(&[0x0d]);
            self.imm32(displacement as u32);
        } else {
            self.mov_rcx(address);
            self.bytes(opcode);
            self.bytes(&[0x09]);
        }
    }
}

/// A patchable head as it is made: it leads into its fragment.
pub const HEAD: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];

/// No operation, in one to four bytes.
const NOPS: [&[u8]; 4] = [&[0x90], &[0x66, 0x90], &[0x0f, 0x1f, 0x00], &[0x0f, 0x1f, 0x40, 0x00]];

/// Covers `len` bytes at `address` with naturally aligned pieces of at most `widest` bytes: reading
/// code as data must work also where the application has alignment checking on.
fn pieces(address: u64, len: usize, widest: usize) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < len {
        let mut width = widest;
        while width > len - at || !(address + at as u64).is_multiple_of(width as u64) {
            width /= 2;
        }
        out.push((at, width));
        at += width;
    }
    out
}

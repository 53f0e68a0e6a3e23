//! The instruction pointer of the x87 unit, which the processor keeps: it names translated code,
//! and the program is to see its own.
//!
//! An instruction that stores it asks the host, which puts it right in memory (rule 25 of
//! `lwp-dbt`). For a signal frame and a core dump it is put right in the unit itself, before the
//! kernel saves that. The data pointer is an address of the program's anyway.

use lwp_dbt::{CachePc, Slot};
use lwp_ptrace::{Tid, memory, sys};

use crate::machine::Machine;
use crate::state::known_pc;

/// Place of the pointer in an XSAVE image.
const IN_IMAGE: usize = 8;
const IMAGE_HEADER: usize = 512;
/// The bit of the x87 state in the header of an image.
const X87: u8 = 1;
/// Opcodes of the unit: 0xd8 to 0xdf.
const OPCODES: std::ops::RangeInclusive<u8> = 0xd8..=0xdf;

impl Machine {
    /// The application's address of the instruction that is translated at `cache`. `None` for any
    /// other address.
    fn x87_instruction(&self, tid: Tid, cache: u64) -> Option<u64> {
        let pc = known_pc(self.family_at(tid, cache)?, CachePc(cache))?;
        // The place may have been used again since.
        let mut code = [0; 4];
        let read = memory::read_some(tid, pc, &mut code).unwrap_or(0);
        code[..read].iter().any(|byte| OPCODES.contains(byte)).then_some(pc)
    }

    /// The same, given the low half of `cache`.
    fn x87_instruction_by_half(&self, tid: Tid, half: u32) -> Option<u64> {
        let starts = self.all_sides(tid).into_iter().flat_map(|side| self.ours_in(side));
        let candidates = starts.flat_map(|(start, end)| {
            let high = start >> 32..=(end - 1) >> 32;
            high.map(|high| high << 32 | u64::from(half))
                .filter(move |place| (start..end).contains(place))
        });
        candidates.into_iter().find_map(|place| self.x87_instruction(tid, place))
    }

    /// Puts the pointer right that an instruction has just stored where the context says.
    pub fn put_stored_pointer_right(&self, tid: Tid, wide: bool) {
        let Some(at) = self.context(tid).map(|context| context.get(Slot::Stored)) else { return };
        self.put_pointer_right_at(tid, at, wide);
    }

    /// Puts the pointer in the program's memory right.
    pub fn put_pointer_right_at(&self, tid: Tid, at: u64, wide: bool) {
        if wide {
            let known = memory::read_u64(tid, at).ok();
            if let Some(pc) = known.and_then(|cache| self.x87_instruction(tid, cache)) {
                let _ = memory::write_u64(tid, at, pc);
            }
            return;
        }
        let half: Option<[u8; 4]> = memory::read_array(tid, at).ok();
        let half = half.map(u32::from_le_bytes);
        if let Some(pc) = half.and_then(|half| self.x87_instruction_by_half(tid, half)) {
            let _ = memory::write_exact(tid, at, &(pc as u32).to_le_bytes());
        }
    }

    /// Puts the pointer right in the unit of a thread that stands still.
    pub fn put_unit_s_pointer_right(&self, tid: Tid) {
        let Ok(mut image) = sys::get_extended_state(tid) else { return };
        if image.get(IMAGE_HEADER).is_none_or(|components| components & X87 == 0) {
            return;
        }
        let place = IN_IMAGE..IN_IMAGE + 8;
        let cache = u64::from_le_bytes(image[place.clone()].try_into().expect("eight bytes"));
        if let Some(pc) = self.x87_instruction(tid, cache) {
            image[place].copy_from_slice(&pc.to_le_bytes());
            let _ = sys::set_extended_state(tid, &image);
        }
    }
}

//! The instruction pointer of the x87 unit. The processor sets it to an address in translated code,
//! but the program must see its own address.
//!
//! An instruction that stores the pointer asks the host, which corrects it in memory (rule 25 of
//! `lwp-dbt`). For signal frames and core dumps, the host corrects it in the unit itself, before
//! the kernel saves it. The data pointer is an address of the program anyway.

use lwp_dbt::{CachePc, Slot};
use lwp_mailbox::contexts::Context;
use lwp_process::{Tid, Tracees, memory};

use crate::machine::{CodeCaches, Tasks};
use crate::state::known_pc;

/// Place of the pointer in an XSAVE image.
const IN_IMAGE: usize = 8;
const IMAGE_HEADER: usize = 512;
/// The bit of the x87 state in the header of an image.
const X87: u8 = 1;
/// Opcodes of the unit: 0xd8 to 0xdf.
const OPCODES: std::ops::RangeInclusive<u8> = 0xd8..=0xdf;

/// The instruction pointers that a thread's unit keeps and stores.
#[derive(Debug)]
pub struct Pointers<'a> {
    tid: Tid,
    caches: &'a CodeCaches,
    /// The address space of its process.
    base: usize,
}

impl<'a> Pointers<'a> {
    /// The pointers of a thread of the run.
    pub fn of(tasks: &Tasks, caches: &'a CodeCaches, tid: Tid) -> Option<Self> {
        Some(Self { tid, caches, base: tasks.base_space(tid)? })
    }

    /// The application's address of the instruction that is translated at `cache`. `None` for any
    /// other address.
    fn instruction(&self, cache: u64) -> Option<u64> {
        let pc = known_pc(self.caches.family_at(self.base, cache)?, CachePc(cache))?;
        // The place may have been used again since.
        let mut code = [0; 4];
        let read = memory::read_some(self.tid, pc, &mut code).unwrap_or(0);
        code[..read].iter().any(|byte| OPCODES.contains(byte)).then_some(pc)
    }

    /// The application's address of the instruction that is translated at an address with this low
    /// half.
    fn instruction_by_half(&self, half: u32) -> Option<u64> {
        let ours = self.caches.ours(self.base).all().into_iter();
        let mut candidates = ours.flat_map(|(start, end)| {
            let high = start >> 32..=(end - 1) >> 32;
            high.map(|high| high << 32 | u64::from(half))
                .filter(move |place| (start..end).contains(place))
        });
        candidates.find_map(|place| self.instruction(place))
    }

    /// Puts the pointer right that an instruction has just stored where the context says.
    pub fn put_stored_right(&self, context: Context<'_>, wide: bool) {
        self.put_right_at(context.get(Slot::Stored), wide);
    }

    /// Puts the pointer in the program's memory right.
    pub fn put_right_at(&self, at: u64, wide: bool) {
        let tid = self.tid;
        if wide {
            let known = memory::read_u64(tid, at).ok();
            if let Some(pc) = known.and_then(|cache| self.instruction(cache)) {
                let _ = memory::write_u64(tid, at, pc);
            }
            return;
        }
        let half: Option<[u8; 4]> = memory::read_array(tid, at).ok();
        let half = half.map(u32::from_le_bytes);
        if let Some(pc) = half.and_then(|half| self.instruction_by_half(half)) {
            let _ = memory::write_exact(tid, at, &(pc as u32).to_le_bytes());
        }
    }

    /// Puts the pointer right in the unit of the thread, which stands still.
    pub fn put_unit_right(&self, tracees: &dyn Tracees) {
        let Ok(mut image) = tracees.extended_state(self.tid) else { return };
        if image.get(IMAGE_HEADER).is_none_or(|components| components & X87 == 0) {
            return;
        }
        let place = IN_IMAGE..IN_IMAGE + 8;
        let cache = u64::from_le_bytes(image[place.clone()].try_into().expect("eight bytes"));
        if let Some(pc) = self.instruction(cache) {
            image[place].copy_from_slice(&pc.to_le_bytes());
            let _ = tracees.set_extended_state(self.tid, &image);
        }
    }
}

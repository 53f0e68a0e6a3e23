//! Words that stubs of linkage tables jump through.
//!
//! The dynamic linker writes there where a stub leads: once, as a rule before the stub is executed
//! or when it is for the first time. So one look while the process is there says where all
//! executions led. Whether a word is the linker's is left to who reads the recording, and knows the
//! file's tables.

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use lwp_dbt::{AppPc, FragmentId};
use lwp_process::{Tid, sys};
use lwp_run::sink::BlockEnd;
use rustc_hash::FxHashMap;

use crate::family::{Family, RestoredCode};
use crate::origins::block_end;

/// The words of a family's fragments.
#[derive(Debug, Default)]
pub struct Words {
    /// The number of fragments looked at, of those of the family that this run translated.
    seen: usize,
    /// Of how many of its units those have been that were restored: when a unit is made.
    seen_units: usize,
    /// Fragments that end in a jump through a word: the jump, the word.
    waiting: Vec<(FragmentId, u64, u64)>,
    /// The jump, and where it leads.
    led: FxHashMap<FragmentId, [u64; 2]>,
}

const PAGE: u64 = 4096;

impl Words {
    /// The jump that a fragment ends with, and where the word that it goes through led.
    pub fn led(&self, fragment: FragmentId) -> Option<[u64; 2]> {
        self.led.get(&fragment).copied()
    }

    /// Looks at the words in the memory of `tid`, as far as they have not been seen to lead
    /// anywhere.
    fn look(&mut self, tid: Tid) {
        let mut pages = FxHashMap::default();
        let led = &mut self.led;
        self.waiting.retain(|&(fragment, jump, word)| {
            let Some(to) = read(&mut pages, tid, word) else { return true };
            // As long as the linker has not looked the name up, the word leads back to behind the
            // jump.
            let waits = to == 0 || to.wrapping_sub(jump) <= 16;
            if !waits {
                led.insert(fragment, [jump, to]);
            }
            waits
        });
    }
}

/// Looks, in the memory of `tid`, at the words that fragments of `family` jump through.
pub fn look_at_words(family: &mut Family, tid: Tid) {
    let Some(origins) = &family.origins else { return };
    let (seen, seen_units) = (origins.words.seen, origins.words.seen_units);
    let (fragments, units) = (origins.fragments(), family.modules.len());
    let new = (seen..fragments).map(|number| FragmentId(number as u32));
    let restored = family.modules.iter_from(seen_units).flat_map(|(_, it)| it.unit.restored_ids());
    let mut code = RestoredCode::default();
    let ends_in_one = |id: FragmentId| {
        let fragment = family.code_cache.fragment(id);
        if block_end(fragment.deltas) != BlockEnd::IndirectJump {
            return None;
        }
        let (_, bytes) = code.origin_of(family, id)?;
        through_word(fragment.pc, &bytes).map(|(jump, word)| (id, jump, word))
    };
    let found: Vec<_> = new.chain(restored).filter_map(ends_in_one).collect();
    let Some(origins) = &mut family.origins else { return };
    origins.words.waiting.extend(found);
    (origins.words.seen, origins.words.seen_units) = (fragments, units);
    origins.words.look(tid);
}

/// The word at `address`, by whole pages.
fn read(pages: &mut FxHashMap<u64, Vec<u8>>, tid: Tid, address: u64) -> Option<u64> {
    let (page, offset) = (address & !(PAGE - 1), (address % PAGE) as usize);
    let bytes = pages.entry(page).or_insert_with(|| {
        let mut bytes = vec![0; PAGE as usize];
        let got = sys::read_memory(tid, page, &mut bytes).unwrap_or(0);
        bytes.truncate(got);
        bytes
    });
    let word = bytes.get(offset..offset + 8)?;
    word.try_into().ok().map(u64::from_le_bytes)
}

/// The last instruction of these bytes at `pc`.
pub fn last_of(pc: AppPc, bytes: &[u8]) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, pc.0, DecoderOptions::NONE);
    let mut last = None;
    while decoder.can_decode() {
        last = Some(decoder.decode());
    }
    last
}

fn through_word(pc: AppPc, bytes: &[u8]) -> Option<(u64, u64)> {
    let jump = last_of(pc, bytes)?;
    let memory = jump.op0_kind() == OpKind::Memory && jump.is_ip_rel_memory_operand();
    memory.then(|| (jump.ip(), jump.ip_rel_memory_address()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_through_words_are_told_from_others() {
        let pc = AppPc(0x1000);
        // endbr64; jmp [rip + 0x2fca]
        let stub = [0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0xca, 0x2f, 0, 0];
        assert_eq!(through_word(pc, &stub), Some((0x1004, 0x100a + 0x2fca)));
        // jmp rax; jmp [rax*8 + 0x1000]
        assert_eq!(through_word(pc, &[0xff, 0xe0]), None);
        assert_eq!(through_word(pc, &[0xff, 0x24, 0xc5, 0, 0x10, 0, 0]), None);
        assert_eq!(through_word(pc, &[]), None);
    }
}

//! Bounds of functions in code that neither symbols nor unwind tables know.

use lwp_profile::{BlockEnd, RecordedModule};
use rustc_hash::FxHashMap;

use super::Resolver;
use crate::bounds::{Unnamed, mapped, part_of_gap};
use crate::module::ModuleNames;

/// Bytes of a direct call: its opcode and the distance.
const CALL_BYTES: u64 = 5;
const CALL_OPCODE: u8 = 0xe8;

impl Resolver<'_> {
    /// The addresses in a file that recorded calls led to, in order.
    pub(super) fn starts_in(&self, module: u32) -> &[u64] {
        let starts = self.starts.get_or_init(|| self.starts());
        starts.get(&module).map_or(&[], Vec::as_slice)
    }

    /// Code without an ELF file: between the names of generated code, within its mapping.
    pub(super) fn without_tables(&self, module: u32, address: u64) -> Unnamed {
        let recorded = self.recording.modules.get(&module);
        let (start, end) = recorded.map_or((0, u64::MAX), |recorded| mapped(recorded, address));
        let (before, next) = match recorded.is_none_or(RecordedModule::is_anonymous) {
            true => self.generated.around(address),
            false => (0, u64::MAX),
        };
        let gap = start.max(before)..end.min(next);
        part_of_gap(&gap, address, self.starts_in(module), None)
    }

    /// Addresses that calls led to, by the module's number and in order.
    fn starts(&self) -> FxHashMap<u32, Vec<u64>> {
        let recording = self.recording;
        let calls = recording.blocks.values().filter(|block| block.end == BlockEnd::Call);
        let direct = calls.filter_map(|block| Some((block.module, block.target?)));
        let jumps = recording.threads.values().flat_map(|thread| &thread.jumps);
        let jumps = jumps
            .filter(|jump| matches!(jump.end, BlockEnd::Call | BlockEnd::IndirectCall))
            .filter_map(|jump| Some((jump.to.0?, jump.to.1)));
        let mut starts: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
        for (module, address) in direct.chain(jumps) {
            let address = self.file_address(module, address);
            starts.entry(self.same(module)).or_default().push(address);
        }
        for (module, address) in self.called_in_stacks() {
            starts.entry(module).or_default().push(address);
        }
        for starts in starts.values_mut() {
            starts.sort_unstable();
            starts.dedup();
        }
        starts
    }

    /// Targets of the direct calls in stacks.
    fn called_in_stacks(&self) -> impl Iterator<Item = (u32, u64)> {
        let frames = &self.recording.frames;
        let callers = frames.iter().filter_map(|frame| frames.get(frame.caller? as usize));
        callers.filter_map(|caller| {
            let module = caller.module?;
            let last = self.file_address(module, caller.address);
            let module = self.same(module);
            let elf = self.names.get(&module).and_then(ModuleNames::elf)?;
            let first = last.checked_sub(CALL_BYTES - 1)?;
            let (at, bytes) = *elf.code_in(first, CALL_BYTES).first()?;
            let &[CALL_OPCODE, a, b, c, d] = bytes else { return None };
            let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
            Some((module, at.wrapping_add(CALL_BYTES).wrapping_add_signed(distance)))
        })
    }
}

//! Writes held back until an operation is certain to complete.

use alloc::vec::Vec;

use lwp_arch::{LinearAddr, PageFault};

use crate::LinearMemory;

/// A view of memory in which writes are checked at once but made later, all together.
///
/// Reads see the writes held back. Faults therefore come in the order of the accesses, and an
/// operation that faults half-way has written nothing: it can be restarted.
///
/// Spec: LWP §6.4.
pub(crate) struct Staged<'m, M> {
    memory: &'m mut M,
    writes: Vec<(LinearAddr, Vec<u8>)>,
}

impl<'m, M: LinearMemory> Staged<'m, M> {
    pub(crate) fn new(memory: &'m mut M) -> Self {
        Self { memory, writes: Vec::new() }
    }

    pub(crate) fn read(&mut self, address: LinearAddr, bytes: &mut [u8]) -> Result<(), PageFault> {
        self.memory.read(address, bytes)?;
        for (start, written) in &self.writes {
            for (at, &byte) in written.iter().enumerate() {
                let distance = start.plus(at as u64).0.wrapping_sub(address.0);
                if let Some(place) = usize::try_from(distance).ok().and_then(|d| bytes.get_mut(d)) {
                    *place = byte;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn read_u32(&mut self, address: LinearAddr) -> Result<u32, PageFault> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn read_u64(&mut self, address: LinearAddr) -> Result<u64, PageFault> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn write(&mut self, address: LinearAddr, bytes: &[u8]) -> Result<(), PageFault> {
        self.memory.check_write(address, bytes.len())?;
        self.writes.push((address, bytes.to_vec()));
        Ok(())
    }

    pub(crate) fn write_u32(&mut self, address: LinearAddr, value: u32) -> Result<(), PageFault> {
        self.write(address, &value.to_le_bytes())
    }

    pub(crate) fn write_u64(&mut self, address: LinearAddr, value: u64) -> Result<(), PageFault> {
        self.write(address, &value.to_le_bytes())
    }

    /// Returns the amount that is held back now, for [`Self::forget_since`].
    pub(crate) fn mark(&self) -> usize {
        self.writes.len()
    }

    /// Gives up the writes asked for since `mark`.
    pub(crate) fn forget_since(&mut self, mark: usize) {
        self.writes.truncate(mark);
    }

    /// Makes the writes, in the order they were asked for.
    pub(crate) fn commit(self) -> Result<(), PageFault> {
        for (address, bytes) in &self.writes {
            self.memory.write(*address, bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PagedMemory;

    /// Spec: LWP §6.4
    #[test]
    fn lwp_spec_6_4_staged_writes_are_seen_before_they_are_made() {
        let mut memory = PagedMemory::new();
        memory.map(LinearAddr(0x1000), 16);
        let mut staged = Staged::new(&mut memory);
        staged.write_u64(LinearAddr(0x1000), 0x1122_3344_5566_7788).unwrap();
        staged.write_u32(LinearAddr(0x1002), 0xAABB_CCDD).unwrap();
        assert_eq!(staged.read_u32(LinearAddr(0x1004)), Ok(0x1122_AABB));
        assert_eq!(staged.read_u64(LinearAddr(0x1000)), Ok(0x1122_AABB_CCDD_7788));
        assert_eq!(staged.memory.peek_u64(LinearAddr(0x1000)), 0);
        staged.commit().unwrap();
        assert_eq!(memory.peek_u64(LinearAddr(0x1000)), 0x1122_AABB_CCDD_7788);
    }

    /// Spec: LWP §6.4
    #[test]
    fn lwp_spec_6_4_a_denied_write_is_known_at_once() {
        let mut memory = PagedMemory::new();
        let mut staged = Staged::new(&mut memory);
        assert!(staged.write_u32(LinearAddr(0x1000), 1).is_err());
        staged.commit().unwrap();
        assert_eq!(memory, PagedMemory::new());
    }
}

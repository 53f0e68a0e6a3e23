//! Memory as the unit sees it.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use lwp_arch::{LinearAddr, PageFault};

/// Linear memory with the rights of user code.
///
/// The unit reads its control block and LWPVAL operands, and writes control block and ring.
/// Everything it does to memory goes through this trait.
///
/// Spec: LWP §6.4.
pub trait LinearMemory {
    /// Fills `bytes` from `address` on.
    ///
    /// # Errors
    ///
    /// The fault of the lowest byte that cannot be read. `bytes` is then unspecified.
    fn read(&mut self, address: LinearAddr, bytes: &mut [u8]) -> Result<(), PageFault>;

    /// Says whether [`Self::write`] of `length` bytes at `address` would succeed now. Writes
    /// nothing.
    ///
    /// # Errors
    ///
    /// The fault of the lowest byte that cannot be written.
    fn check_write(&mut self, address: LinearAddr, length: usize) -> Result<(), PageFault>;

    /// Writes `bytes` at `address`. The unit asks [`Self::check_write`] first and calls this only
    /// if the answer was yes, so that an event that faults leaves nothing half written.
    ///
    /// # Errors
    ///
    /// As for [`Self::check_write`]; nothing is written then.
    fn write(&mut self, address: LinearAddr, bytes: &[u8]) -> Result<(), PageFault>;
}

const PAGE: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    bytes: Vec<u8>,
    writable: bool,
}

/// Memory of pages of 4 KiB in a map, for tests and for lock-step runs.
///
/// Spec: LWP §6.4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagedMemory {
    pages: BTreeMap<u64, Page>,
}

impl PagedMemory {
    /// Memory without any page.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the pages that `length` bytes at `address` touch present and writable, zero if new.
    pub fn map(&mut self, address: LinearAddr, length: u64) {
        for number in pages(address, length) {
            let zero = || Page { bytes: vec![0; PAGE as usize], writable: true };
            self.pages.entry(number).or_insert_with(zero).writable = true;
        }
    }

    /// Takes away the pages that `length` bytes at `address` touch, with what they hold.
    pub fn unmap(&mut self, address: LinearAddr, length: u64) {
        for number in pages(address, length) {
            self.pages.remove(&number);
        }
    }

    /// Makes the pages that `length` bytes at `address` touch read-only.
    pub fn protect(&mut self, address: LinearAddr, length: u64) {
        for number in pages(address, length) {
            if let Some(page) = self.pages.get_mut(&number) {
                page.writable = false;
            }
        }
    }

    /// Writes bytes whatever the protection says, mapping pages where there are none.
    pub fn poke(&mut self, address: LinearAddr, bytes: &[u8]) {
        for (at, &byte) in bytes.iter().enumerate() {
            let address = address.plus(at as u64);
            if !self.pages.contains_key(&(address.0 / PAGE)) {
                self.map(address, 1);
            }
            if let Some(page) = self.pages.get_mut(&(address.0 / PAGE)) {
                page.bytes[(address.0 % PAGE) as usize] = byte;
            }
        }
    }

    /// Reads bytes; where there is no page they are zero.
    pub fn peek(&self, address: LinearAddr, length: usize) -> Vec<u8> {
        (0..length as u64)
            .map(|at| {
                let address = address.plus(at).0;
                self.pages
                    .get(&(address / PAGE))
                    .map_or(0, |page| page.bytes[(address % PAGE) as usize])
            })
            .collect()
    }

    /// Reads a little-endian dword.
    pub fn peek_u32(&self, address: LinearAddr) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.peek(address, 4));
        u32::from_le_bytes(bytes)
    }

    /// Reads a little-endian quadword.
    pub fn peek_u64(&self, address: LinearAddr) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.peek(address, 8));
        u64::from_le_bytes(bytes)
    }

    fn check(&self, address: LinearAddr, length: usize, write: bool) -> Result<(), PageFault> {
        for at in 0..length as u64 {
            let address = address.plus(at);
            match self.pages.get(&(address.0 / PAGE)) {
                None => return Err(PageFault { address, write, present: false }),
                Some(page) if write && !page.writable => {
                    return Err(PageFault { address, write, present: true });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Numbers of the pages a range touches.
fn pages(address: LinearAddr, length: u64) -> impl Iterator<Item = u64> {
    let last = address.0.saturating_add(length.saturating_sub(1)) / PAGE;
    address.0 / PAGE..=last
}

impl LinearMemory for PagedMemory {
    fn read(&mut self, address: LinearAddr, bytes: &mut [u8]) -> Result<(), PageFault> {
        self.check(address, bytes.len(), false)?;
        bytes.copy_from_slice(&self.peek(address, bytes.len()));
        Ok(())
    }

    fn check_write(&mut self, address: LinearAddr, length: usize) -> Result<(), PageFault> {
        self.check(address, length, true)
    }

    fn write(&mut self, address: LinearAddr, bytes: &[u8]) -> Result<(), PageFault> {
        self.check(address, bytes.len(), true)?;
        self.poke(address, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec: LWP §6.4
    #[test]
    fn lwp_spec_6_4_faults_name_the_first_byte_out_of_reach() {
        let mut memory = PagedMemory::new();
        memory.map(LinearAddr(0x1000), 1);
        let absent = PageFault { address: LinearAddr(0x2000), write: false, present: false };
        assert_eq!(memory.read(LinearAddr(0x1FFE), &mut [0; 4]), Err(absent));
        memory.map(LinearAddr(0x2000), 1);
        memory.protect(LinearAddr(0x2000), 1);
        let denied = PageFault { address: LinearAddr(0x2000), write: true, present: true };
        assert_eq!(memory.check_write(LinearAddr(0x1FFE), 4), Err(denied));
        assert_eq!(memory.write(LinearAddr(0x1FFE), &[1; 4]), Err(denied));
        assert_eq!(memory.peek(LinearAddr(0x1FFE), 2), [0, 0], "nothing half written");
        assert_eq!(memory.read(LinearAddr(0x1FFE), &mut [0; 4]), Ok(()));
    }

    /// Spec: LWP §6.4
    #[test]
    fn lwp_spec_6_4_unmapped_pages_lose_their_bytes() {
        let mut memory = PagedMemory::new();
        memory.poke(LinearAddr(0x1FFF), &[1, 2]);
        assert_eq!(memory.peek(LinearAddr(0x1FFF), 2), [1, 2]);
        memory.unmap(LinearAddr(0x2000), 1);
        memory.map(LinearAddr(0x2000), 1);
        assert_eq!(memory.peek(LinearAddr(0x1FFF), 2), [1, 0]);
    }
}

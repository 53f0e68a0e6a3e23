//! The program's memory, with the rights that its own code has.

use lwp_arch::{LinearAddr, PageFault};
use lwp_model::LinearMemory;
use lwp_process::{Tid, sys};

/// Memory of the process to which a stopped thread belongs.
#[derive(Debug)]
pub struct TraceeMemory {
    tid: Tid,
    /// Ranges that were read.
    reads: Vec<(LinearAddr, usize)>,
    /// The mappings, once they were looked at. The process does not change them meanwhile.
    mappings: Option<Vec<Mapping>>,
}

/// A mapping and what may be done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    readable: bool,
    writable: bool,
}

impl TraceeMemory {
    /// Memory of the process of `tid`.
    pub fn of(tid: Tid) -> Self {
        Self { tid, reads: Vec::new(), mappings: None }
    }

    /// Returns whether exactly these bytes were read at once.
    pub fn has_read(&self, address: LinearAddr, length: usize) -> bool {
        self.reads.contains(&(address, length))
    }

    /// The lowest byte of a range that may not be accessed so.
    fn first_fault(
        &mut self,
        address: LinearAddr,
        length: usize,
        write: bool,
    ) -> Option<PageFault> {
        let tid = self.tid;
        let mappings = self.mappings.get_or_insert_with(|| mappings(tid));
        let mut at = address.0;
        let last = at.saturating_add(length as u64);
        while at < last {
            let found = mappings.iter().find(|mapping| mapping.start <= at && at < mapping.end);
            match found {
                Some(mapping) if mapping.writable || (mapping.readable && !write) => {
                    at = mapping.end;
                }
                _ => {
                    let present = found.is_some();
                    return Some(PageFault { address: LinearAddr(at), write, present });
                }
            }
        }
        None
    }

    /// The fault of an access that the kernel refused. Where the mappings say it is allowed (a file
    /// that ends before its mapping does), it is taken for an absent page.
    fn refused(&mut self, address: LinearAddr, length: usize, write: bool) -> PageFault {
        let absent = PageFault { address, write, present: false };
        self.first_fault(address, length, write).unwrap_or(absent)
    }
}

fn mappings(tid: Tid) -> Vec<Mapping> {
    let text = lwp_process::kernel_files::text(tid, "maps").unwrap_or_default();
    text.lines().filter_map(mapping).collect()
}

/// Parses a line of /proc/PID/maps.
fn mapping(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let rights = rest.get(..4)?;
    let writable = rights.contains('w');
    Some(Mapping { start: hex(start)?, end: hex(end)?, readable: rights.contains('r'), writable })
}

impl LinearMemory for TraceeMemory {
    fn read(&mut self, address: LinearAddr, bytes: &mut [u8]) -> Result<(), PageFault> {
        self.reads.push((address, bytes.len()));
        match sys::read_memory(self.tid, address.0, bytes) {
            Ok(read) if read == bytes.len() => Ok(()),
            _ => Err(self.refused(address, bytes.len(), false)),
        }
    }

    fn check_write(&mut self, address: LinearAddr, length: usize) -> Result<(), PageFault> {
        match self.first_fault(address, length, true) {
            Some(fault) => Err(fault),
            None => Ok(()),
        }
    }

    fn write(&mut self, address: LinearAddr, bytes: &[u8]) -> Result<(), PageFault> {
        match sys::write_memory(self.tid, address.0, bytes) {
            Ok(written) if written == bytes.len() => Ok(()),
            _ => Err(self.refused(address, bytes.len(), true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_with_their_rights() {
        let heap = Mapping { start: 0x7f00, end: 0x7f10, readable: true, writable: true };
        assert_eq!(mapping("7f00-7f10 rw-p 00000000 00:00 0 [heap]"), Some(heap));
        let none = mapping("1000-2000 ---p 0 0 0").unwrap();
        assert!(!none.readable && !none.writable);
    }

    #[test]
    fn own_memory_faults_where_it_ends() {
        let mut memory = TraceeMemory::of(std::process::id().cast_signed());
        let bytes = [1u8, 2, 3, 4];
        let mut copy = [0; 4];
        let address = LinearAddr(bytes.as_ptr() as u64);
        memory.read(address, &mut copy).unwrap();
        assert_eq!(copy, bytes);
        assert!(memory.has_read(address, 4));
        let fault = memory.read(LinearAddr(0x10), &mut copy).unwrap_err();
        assert_eq!((fault.address, fault.write, fault.present), (LinearAddr(0x10), false, false));
        let code = LinearAddr(own_memory_faults_where_it_ends as *const () as u64);
        let fault = memory.check_write(code, 1).unwrap_err();
        assert!(fault.write && fault.present);
    }
}

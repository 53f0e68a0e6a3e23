//! The unit's view of a tracee's memory.

use lwp_arch::{LinearAddr, PageFault};
use lwp_model::LinearMemory;
use lwp_process::{Tid, sys};

/// The memory of a tracee, with the rights that its own code has.
#[derive(Debug)]
pub struct TraceeMemory {
    tid: Tid,
    /// Nothing is written: only what would fault is found out.
    dry: bool,
}

impl TraceeMemory {
    /// The memory of thread `tid`.
    pub fn new(tid: Tid) -> Self {
        Self { tid, dry: false }
    }

    /// The memory of thread `tid`, for a trial: writes are left out.
    pub fn dry(tid: Tid) -> Self {
        Self { tid, dry: true }
    }
}

fn fault(address: LinearAddr, done: usize, write: bool) -> PageFault {
    PageFault { address: address.plus(done as u64), write, present: false }
}

impl LinearMemory for TraceeMemory {
    fn read(&mut self, address: LinearAddr, bytes: &mut [u8]) -> Result<(), PageFault> {
        let want = bytes.len();
        let done = sys::read_memory(self.tid, address.0, bytes).unwrap_or(0);
        if done == want { Ok(()) } else { Err(fault(address, done, false)) }
    }

    /// Writes what is there already: the unit asks this only of the record it is about to write and
    /// of the fields of the control block that are its own.
    fn check_write(&mut self, address: LinearAddr, length: usize) -> Result<(), PageFault> {
        let mut bytes = vec![0; length];
        let readable = sys::read_memory(self.tid, address.0, &mut bytes).unwrap_or(0);
        if readable < length {
            return Err(fault(address, readable, true));
        }
        let done = sys::write_memory(self.tid, address.0, &bytes).unwrap_or(0);
        if done == length { Ok(()) } else { Err(fault(address, done, true)) }
    }

    fn write(&mut self, address: LinearAddr, bytes: &[u8]) -> Result<(), PageFault> {
        if self.dry {
            return Ok(());
        }
        let done = sys::write_memory(self.tid, address.0, bytes).unwrap_or(0);
        if done == bytes.len() { Ok(()) } else { Err(fault(address, done, true)) }
    }
}

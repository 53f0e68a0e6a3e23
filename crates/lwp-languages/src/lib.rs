//! Frames of interpreted languages, read from the interpreter's memory.
//!
//! A native call stack shows an interpreter's evaluator where the program's own functions should
//! stand. The evaluator keeps those in memory, in a form that its source code tells. An
//! [`interpreter::Process`] reads them as they are at one moment, while the thread stands still,
//! and [`merge`] puts them between the native frames.
//!
//! The crate reads no process by itself: it is given its memory ([`Memory`]). Nothing that it reads
//! is believed: chains and texts have a greatest length, objects must be of the type that they are
//! taken for, and whatever does not fit ends the reading.
#![forbid(unsafe_code)]

pub mod counting;
mod file;
pub mod functions;
pub mod gather;
pub mod interpreter;
pub mod java;
pub mod lua;
pub mod luajit;
pub mod merge;
pub mod perl;
pub mod php;
pub mod python;
pub mod ruby;

/// The memory of a process.
pub trait Memory {
    /// Fills `bytes` from `address` on. Returns whether all of them could be read.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> bool;

    /// The eight bytes at `address`.
    fn word(&mut self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }

    /// The four bytes at `address`.
    fn half(&mut self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes).then(|| u32::from_le_bytes(bytes))
    }

    /// The two bytes at `address`.
    fn short(&mut self, address: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes).then(|| u16::from_le_bytes(bytes))
    }

    /// The byte at `address`.
    fn byte(&mut self, address: u64) -> Option<u8> {
        let mut bytes = [0];
        self.read(address, &mut bytes).then_some(bytes[0])
    }

    /// The address at `address`; `None` where it is null.
    fn pointer(&mut self, address: u64) -> Option<u64> {
        self.word(address).filter(|word| *word != 0)
    }
}

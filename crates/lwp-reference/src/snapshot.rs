//! Taking an instruction back: its registers and what it wrote, as they were before.

use lwp_arch::retired::AccessKind;
use lwp_process::{Errno, Regs, Tid, memory, sys};

use crate::decode::Decoded;

/// The state that an instruction may change.
#[derive(Clone, Debug)]
pub struct Snapshot {
    regs: Regs,
    /// The vector and floating-point state, if the instruction may change it.
    extended: Option<Vec<u8>>,
    written: Vec<(u64, Vec<u8>)>,
}

impl Snapshot {
    /// Keeps what the instruction that is about to be executed may change.
    ///
    /// What cannot be read cannot be written either: the instruction will fault.
    ///
    /// # Errors
    ///
    /// The thread is gone.
    pub fn take(tid: Tid, decoded: &Decoded, regs: &Regs) -> Result<Self, Errno> {
        let extended = if decoded.vector { Some(sys::get_extended_state(tid)?) } else { None };
        let stores = decoded.operands.iter().filter(|operand| operand.kind == AccessKind::Store);
        let written = stores.filter_map(|operand| {
            let mut bytes = vec![0; operand.bytes as usize];
            memory::read_exact(tid, operand.address.0, &mut bytes).ok()?;
            Some((operand.address.0, bytes))
        });
        Ok(Self { regs: *regs, extended, written: written.collect() })
    }

    /// Puts everything back.
    ///
    /// # Errors
    ///
    /// The thread is gone.
    pub fn restore(&self, tid: Tid) -> Result<(), Errno> {
        for (address, bytes) in &self.written {
            memory::write_exact(tid, *address, bytes)?;
        }
        if let Some(extended) = &self.extended {
            sys::set_extended_state(tid, extended)?;
        }
        self.regs.set(tid)
    }
}

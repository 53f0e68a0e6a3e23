//! The border between a program and the virtual CPU.
//!
//! Promise: B3

/// The host's answers to whatever a thread's context can say.
pub fn mailbox(bytes: &[u8]) {
    lwp_vcpu::attack::attack(bytes).expect("a process and memory");
}

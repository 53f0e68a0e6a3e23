//! The border between a program and the virtual CPU.

/// What a thread's context can say, and the host's answers to it.
pub fn mailbox(bytes: &[u8]) {
    lwp_vcpu::attack::attack(bytes).expect("a process and memory");
}

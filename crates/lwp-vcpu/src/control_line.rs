//! A program that switches its own counting on and off through `--control`.
//!
//! The program writes a command and continues until the answer arrives, or doesn't wait for it at
//! all. lwp reads the command in another process, after an uncertain time. So the host holds the
//! thread that has written a command until it has taken effect: in every run, counting is switched
//! exactly at the call that asks for it.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;

use lwp_calls::syscalls::{Pending, nr};
use lwp_process::{Tid, kernel_files, memory};
use lwp_run::config::ControlLine;

use crate::machine::{Machine, Need};
use crate::tracer::run_requests::Held;

/// The most that is read of one call; a command has a few bytes.
const MOST_BYTES: usize = 1 << 16;
/// The most pieces that the kernel takes.
const MOST_PIECES: u64 = 1024;

/// The state of the line behind the program's last write.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The last command has no end yet.
    unfinished: bool,
    /// Threads that stand still until their commands have taken effect, in order.
    pub held: VecDeque<Held>,
}

impl Line {
    /// Returns the number of commands that `bytes` complete. They end with newlines or zero bytes;
    /// empty ones are none.
    fn complete(&mut self, bytes: &[u8]) -> usize {
        let mut commands = 0;
        for byte in bytes {
            match byte {
                b'\n' | 0 => commands += usize::from(std::mem::take(&mut self.unfinished)),
                _ => self.unfinished = true,
            }
        }
        commands
    }
}

/// Returns whether a call of a thread writes to `line`.
pub fn is_written_by(line: ControlLine, tid: Tid, pending: &Pending) -> bool {
    if !matches!(pending.number, nr::WRITE | nr::WRITEV) {
        return false;
    }
    let file = kernel_files::metadata(tid, &format!("fd/{}", pending.args[0] as i32));
    file.is_ok_and(|it| line == ControlLine { device: it.dev(), inode: it.ino() })
}

/// Has a thread whose call has written `bytes` stand still until its commands have taken
/// effect. Returns false where they have no command.
pub fn awaits_effect(machine: &mut Machine, tid: Tid, pending: &Pending, bytes: u64) -> bool {
    if !machine.config.counted.control_line.is_some_and(|line| is_written_by(line, tid, pending)) {
        return false;
    }
    let text = written(tid, pending, (bytes as usize).min(MOST_BYTES));
    let commands = machine.line.complete(&text);
    if commands > 0 {
        machine.ask_tracer(tid, Need::Obey(commands));
    }
    commands > 0
}

/// The first `bytes` bytes that a call has written, as far as they can still be read.
fn written(tid: Tid, pending: &Pending, bytes: usize) -> Vec<u8> {
    let [_, address, number, _] = pending.args;
    let mut text = Vec::with_capacity(bytes);
    let mut add = |address: u64, most: u64| {
        let mut piece = vec![0; (bytes - text.len()).min(most as usize)];
        if memory::read_exact(tid, address, &mut piece).is_ok() {
            text.append(&mut piece);
        }
        text.len() < bytes
    };
    if pending.number == nr::WRITE {
        add(address, bytes as u64);
        return text;
    }
    for piece in 0..number.min(MOST_PIECES) {
        let at = address.wrapping_add(16 * piece);
        let word = |at| memory::read_u64(tid, at).unwrap_or(0);
        if !add(word(at), word(at.wrapping_add(8))) {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_end_with_newlines_or_zeros_also_in_pieces() {
        let mut line = Line::default();
        assert_eq!(line.complete(b"enable\n"), 1);
        assert_eq!(line.complete(b"enable\n\0disable\0\n"), 2);
        assert_eq!(line.complete(b"dis"), 0);
        assert_eq!(line.complete(b"able"), 0);
        assert_eq!(line.complete(b"\nping"), 1);
        assert_eq!(line.complete(b"\n\n"), 1);
        assert_eq!(line.complete(b""), 0);
    }
}

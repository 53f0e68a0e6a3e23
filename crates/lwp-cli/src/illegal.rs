//! Programs that die of instructions that this processor does not have.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;

use lwp_vcpu::Target;
use rustix::process::Signal;

use crate::ending::Ending;
use crate::failure::Failure;
use crate::program;

/// Bytes of a program that are searched.
const SEARCHED: u64 = 64 << 20;

/// Explains on standard error why `command` ended as it did, if it died of instructions of
/// Lightweight Profiling: what it ran on did not have them if `has_lwp` is false.
pub fn explained(
    ended: Result<Ending, Failure>,
    has_lwp: bool,
    command: &[OsString],
) -> Result<Ending, Failure> {
    if !has_lwp
        && matches!(ended, Ok(Ending::Signal(signal)) if signal == Signal::ILL.as_raw())
        && let Ok(Target::Launch { program, .. }) = program::launch(command)
        && File::open(program).is_ok_and(profiles_itself)
    {
        lwp_terminal::say!(
            "lwp: the program has instructions of AMD's Lightweight Profiling (-mlwp), which this \
             run did not offer\n  help: `lwp run`, `lwp stat` and `lwp record` without -c, -F, \
             --time and --no-lwp do"
        );
    }
    ended
}

/// Returns whether a file has instructions of Lightweight Profiling.
fn profiles_itself(file: File) -> bool {
    let mut bytes = Vec::new();
    // What cannot be read is not found in it.
    let _ = file.take(SEARCHED).read_to_end(&mut bytes);
    bytes.windows(5).any(is_of_lwp)
}

/// LLWPCB and SLWPCB, one of which every program has that profiles itself. XOP's prefix is followed
/// by the map of opcodes, with three inverted bits of register numbers, and by a second operand,
/// of which there is none.
fn is_of_lwp(code: &[u8]) -> bool {
    let &[0x8f, map, second, 0x12, modrm] = code else { return false };
    (map & 0x1f, second & 0x7f) == (0x09, 0x78) && modrm >> 6 == 3 && modrm >> 3 & 7 < 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_lightweight_profiling_are_known() {
        // llwpcb rax; slwpcb r9
        for code in [[0x8f, 0xe9, 0xf8, 0x12, 0xc0], [0x8f, 0xc9, 0xf8, 0x12, 0xc9]] {
            assert!(is_of_lwp(&code), "{code:x?}");
        }
        // blcfill, vpshab, pop, lwpins, and an operation that there is not.
        for code in [
            [0x8f, 0xe9, 0x78, 0x01, 0xc8],
            [0x8f, 0xe9, 0x78, 0x98, 0xc1],
            [0x8f, 0x00, 0x78, 0x12, 0xc0],
            [0x8f, 0xea, 0xf8, 0x12, 0xc1],
            [0x8f, 0xe9, 0x78, 0x12, 0xd0],
        ] {
            assert!(!is_of_lwp(&code), "{code:x?}");
        }
    }
}

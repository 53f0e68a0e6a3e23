//! Markers: instructions by which a program itself starts and stops counting.
//!
//! | code | bytes | elsewhere |
//! | --- | --- | --- |
//! | `nop dword [rax+disp32]`, the low 24 bits of the displacement `LWP` | `0f 1f 80 4c 57 50 NN` | does nothing |
//! | `rol rdi` by 3, 13, 61 and 51, `xchg rbx, rbx` | Valgrind's client request | does nothing but to flags |
//!
//! The last instruction of a marker ends its block, so the host sees exact counts there. In runs
//! that don't count between markers, client requests are translated like any other code. Valgrind
//! documents the encoding of its requests in `valgrind.h`, which is meant to be included in
//! programs.

use crate::addr::AppPc;
use crate::block::CodeSource;

/// A no-operation with a displacement that no assembler chooses.
const OWN: [u8; 6] = [0x0f, 0x1f, 0x80, b'L', b'W', b'P'];
/// Rotations of rdi by 128 bits in all.
const PREAMBLE: [u8; 16] = [
    0x48, 0xc1, 0xc7, 0x03, 0x48, 0xc1, 0xc7, 0x0d, 0x48, 0xc1, 0xc7, 0x3d, 0x48, 0xc1, 0xc7, 0x33,
];
/// `xchg rbx, rbx`.
const REQUEST: [u8; 3] = [0x48, 0x87, 0xdb];

/// A marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// One of our own, with its last byte.
    Own(u8),
    /// A client request of Valgrind's: rax points to its six words.
    Valgrind,
}

impl Marker {
    /// The marker that the instruction with these `bytes` is, or ends; `before` are the bytes
    /// before it.
    pub fn of(bytes: &[u8], before: impl FnOnce() -> Option<[u8; 16]>) -> Option<Self> {
        match bytes {
            [first @ .., code] if *first == OWN => Some(Self::Own(*code)),
            bytes if *bytes == REQUEST && before() == Some(PREAMBLE) => Some(Self::Valgrind),
            _ => None,
        }
    }

    /// The marker at `offset` in `code`, which begins at `pc` and was read from `source`.
    pub(crate) fn found(
        source: &mut dyn CodeSource,
        pc: AppPc,
        code: &[u8],
        (offset, end): (usize, usize),
    ) -> Option<Self> {
        Self::of(&code[offset..end], || {
            let mut preamble = [0; PREAMBLE.len()];
            match offset.checked_sub(PREAMBLE.len()) {
                Some(start) => preamble.copy_from_slice(&code[start..offset]),
                // The block begins within the marker.
                None => {
                    let at = pc.0.wrapping_add(offset as u64).wrapping_sub(PREAMBLE.len() as u64);
                    if source.read_code(AppPc(at), &mut preamble) < PREAMBLE.len() {
                        return None;
                    }
                }
            }
            Some(preamble)
        })
    }

    /// Bytes of the last instruction.
    pub fn last_bytes(self) -> u64 {
        match self {
            Self::Own(_) => 7,
            Self::Valgrind => REQUEST.len() as u64,
        }
    }

    /// Returns the distance before the last instruction at which each of the marker's own begins,
    /// itself included.
    pub fn instructions(self) -> &'static [u64] {
        match self {
            Self::Own(_) => &[0],
            Self::Valgrind => &[16, 12, 8, 4, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Block, Decoding, Emulated, Terminator};
    use crate::context::RequestKind;

    /// Code at 0x1000.
    struct Code(Vec<u8>);

    impl CodeSource for Code {
        fn read_code(&mut self, pc: AppPc, buffer: &mut [u8]) -> usize {
            let Some(rest) = pc.0.checked_sub(0x1000).and_then(|at| self.0.get(at as usize..))
            else {
                return 0;
            };
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            len
        }
    }

    fn end_of(code: &[u8], pc: u64, most: usize, markers: bool) -> (Terminator, u64) {
        let emulated = Emulated { markers, requests: markers, ..Emulated::default() };
        let how = Decoding { emulated, most, ..Decoding::default() };
        let block = Block::decode(&mut Code(code.to_vec()), AppPc(pc), how).expect("code");
        (block.terminator, block.terminator_pc().0)
    }

    const MARKER: Terminator = Terminator::Emulate { kind: RequestKind::Marker };

    #[test]
    fn markers_end_blocks_wherever_these_begin() {
        let request = [&[0x90][..], &PREAMBLE, &REQUEST, &[0x90, 0xc3]].concat();
        assert_eq!(end_of(&request, 0x1000, 0, true), (MARKER, 0x1011));
        // The block begins at the request itself, or is cut within the marker.
        assert_eq!(end_of(&request, 0x1011, 0, true), (MARKER, 0x1011));
        assert_eq!(end_of(&request, 0x100d, 2, true), (MARKER, 0x1011));
        let own = [&[0x90][..], &OWN, &[1, 0x90, 0xc3]].concat();
        assert_eq!(end_of(&own, 0x1000, 0, true), (MARKER, 0x1001));
    }

    #[test]
    fn requests_are_like_any_code_where_nobody_counts_between_them() {
        let request = [&[0x90][..], &PREAMBLE, &REQUEST, &OWN, &[1, 0xc3]].concat();
        for (markers, requests, end) in
            [(false, true, 0x1011), (true, false, 0x1014), (false, false, 0x101b)]
        {
            let emulated = Emulated { markers, requests, ..Emulated::default() };
            let how = Decoding { emulated, ..Decoding::default() };
            let block = Block::decode(&mut Code(request.clone()), AppPc(0x1000), how);
            assert_eq!(block.expect("code").terminator_pc().0, end);
        }
    }

    #[test]
    fn what_only_looks_like_a_marker_is_none() {
        let ret = Terminator::Return { release: 0 };
        let exchange = [&[0x90; 16][..], &REQUEST, &[0xc3]].concat();
        assert_eq!(end_of(&exchange, 0x1000, 0, true).0, ret);
        // Nothing is mapped before it.
        assert_eq!(end_of(&[&REQUEST[..], &[0xc3]].concat(), 0x1000, 0, true).0, ret);
        let padding = [0x0f, 0x1f, 0x80, 0, 0, 0, 0, 0xc3];
        assert_eq!(end_of(&padding, 0x1000, 0, true).0, ret);
        let own = [&OWN[..], &[1, 0xc3]].concat();
        assert_eq!(end_of(&own, 0x1000, 0, false).0, ret);
    }
}

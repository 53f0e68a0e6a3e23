//! Vector and mask registers of a stopped thread.

use std::arch::x86_64::__cpuid_count;

use crate::sys::{self, Result};

/// The kernel's copy of a thread's vector and mask registers.
///
/// Spec: Intel SDM volume 1, §13.4 and §13.5.
#[derive(Debug)]
pub struct Vectors {
    image: Vec<u8>,
}

/// Offset of the low 128 bits of the first sixteen registers.
const LEGACY: usize = 160;
/// State components: bits 255:128 of the first sixteen, mask registers, bits 511:256, and the other
/// sixteen.
const AVX: u32 = 2;
const MASKS: u32 = 5;
const UPPER: u32 = 6;
const OTHERS: u32 = 7;

impl Vectors {
    /// Those of a thread that is stopped.
    ///
    /// # Errors
    ///
    /// That of ptrace(2).
    pub fn of(tid: i32) -> Result<Self> {
        sys::get_extended_state(tid).map(Self::within)
    }

    /// Those in an XSAVE image of the kernel's.
    pub fn within(image: Vec<u8>) -> Self {
        Self { image }
    }

    /// So many bytes, at most eight, of vector register `number` from `offset` on. What the
    /// processor does not have is zero.
    pub fn lane(&self, number: usize, offset: usize, bytes: usize) -> u64 {
        let place = match (number, offset) {
            (16.., _) => component(OTHERS).map(|at| at + 64 * (number - 16) + offset),
            (_, 0..16) => Some(LEGACY + 16 * number + offset),
            (_, 16..32) => component(AVX).map(|at| at + 16 * number + offset - 16),
            _ => component(UPPER).map(|at| at + 32 * number + offset - 32),
        };
        self.bytes(place, bytes)
    }

    /// Mask register `number`.
    pub fn mask(&self, number: usize) -> u64 {
        self.bytes(component(MASKS).map(|at| at + 8 * number), 8)
    }

    fn bytes(&self, place: Option<usize>, bytes: usize) -> u64 {
        let mut word = [0; 8];
        let found = place.and_then(|at| self.image.get(at..at + bytes.min(8)));
        if let Some(found) = found {
            word[..found.len()].copy_from_slice(found);
        }
        u64::from_le_bytes(word)
    }
}

/// Returns the offset of a state component in bytes, if the processor has it.
fn component(number: u32) -> Option<usize> {
    let leaf = __cpuid_count(0xd, number);
    (leaf.eax != 0).then_some(leaf.ebx as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_found_where_the_processor_keeps_them() {
        let mut image = vec![0u8; 4096];
        image[LEGACY + 16 * 3 + 4..][..4].copy_from_slice(&[1, 2, 3, 4]);
        let upper = component(AVX);
        if let Some(at) = upper {
            image[at + 16 * 3 + 8..][..8].copy_from_slice(&[8; 8]);
        }
        let vectors = Vectors { image };
        assert_eq!(vectors.lane(3, 4, 4), 0x0403_0201);
        assert_eq!(vectors.lane(3, 4, 8), 0x0403_0201);
        assert_eq!(vectors.lane(3, 24, 8), if upper.is_some() { 0x0808_0808_0808_0808 } else { 0 });
        assert_eq!(Vectors { image: Vec::new() }.lane(31, 60, 4), 0, "what is not there is zero");
    }
}

//! Checksums of source files, as the line tables of DWARF 5 have them: MD5 (RFC 1321).

/// The addend of step `index`: the integer part of 2^32 times the absolute sine of `index` + 1
/// radians (RFC 1321, section 3.4).
fn addend(index: usize) -> u32 {
    let sine = (index as f64 + 1.0).sin().abs();
    (sine * (1u64 << 32) as f64) as u32
}

/// Bits that the steps of each round rotate by, in turn.
const ROTATIONS: [[u32; 4]; 4] =
    [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The sum before the first block.
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Returns the checksum of `bytes`.
pub fn md5(bytes: &[u8]) -> [u8; 16] {
    let addends: [u32; 64] = std::array::from_fn(addend);
    let mut sum = START;
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().for_each(|block| sum = add(sum, block, &addends));
    let mut last = rest.to_vec();
    last.push(0x80);
    last.resize(if last.len() > 56 { 120 } else { 56 }, 0);
    last.extend((bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    last.as_chunks::<64>().0.iter().for_each(|block| sum = add(sum, block, &addends));
    let mut out = [0; 16];
    for (to, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(sum) {
        *to = word.to_le_bytes();
    }
    out
}

/// Adds one block to a sum.
fn add(sum: [u32; 4], block: &[u8; 64], addends: &[u32; 64]) -> [u32; 4] {
    let words = block.as_chunks::<4>().0;
    let [mut a, mut b, mut c, mut d] = sum;
    for (step, addend) in addends.iter().enumerate() {
        let (mixed, word) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let word = u32::from_le_bytes(words[word % 16]);
        let turned = a.wrapping_add(mixed).wrapping_add(word).wrapping_add(*addend);
        let turned = turned.rotate_left(ROTATIONS[step / 16][step % 4]);
        (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
    }
    [a, b, c, d].map({
        let mut old = sum.into_iter();
        move |new| new.wrapping_add(old.next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_standard() {
        // RFC 1321, appendix A.5.
        let digits = "1234567890".repeat(8);
        for (text, sum) in [
            ("", 0xd41d_8cd9_8f00_b204_e980_0998_ecf8_427e_u128),
            ("a", 0x0cc1_75b9_c0f1_b6a8_31c3_99e2_6977_2661),
            ("message digest", 0xf96b_697d_7cb7_938d_525a_2f31_aaf1_61d0),
            ("abcdefghijklmnopqrstuvwxyz", 0xc3fc_d3d7_6192_e400_7dfb_496c_ca67_e13b),
            (&digits, 0x57ed_f4a2_2be3_c955_ac49_da2e_2107_b67a),
        ] {
            assert_eq!(md5(text.as_bytes()), sum.to_be_bytes(), "{text}");
        }
    }
}

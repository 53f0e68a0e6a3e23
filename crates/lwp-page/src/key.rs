//! Keys of functions and contexts in addresses: short, and nothing a program has chosen.

use std::fmt;

/// A hash that is the same for every build and run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub u64);

/// FNV-1a's offset and prime for 64 bits.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

impl Key {
    /// The key of the root of all contexts.
    pub const ROOT: Self = Self(OFFSET);

    /// The key of a list of texts.
    pub fn of(texts: &[&str]) -> Self {
        let bytes = texts.iter().flat_map(|text| text.bytes().chain([0xff]));
        Self(bytes.fold(OFFSET, step))
    }

    /// The key of the n-th thing of this key; of the first it is this one.
    pub fn numbered(self, n: u64) -> Self {
        if n == 0 { self } else { self.then(Self(n)) }
    }

    /// The key of `inner` within the context of this key.
    pub fn then(self, inner: Self) -> Self {
        Self(inner.0.to_le_bytes().into_iter().fold(self.0, step))
    }

    /// The key that an address has.
    pub fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(PRIME)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_things_apart_and_are_read_back() {
        let keys = [
            Key::of(&["a", "b"]),
            Key::of(&["ab", ""]),
            Key::of(&["a", "b"]).numbered(1),
            Key::of(&["a"]).then(Key::of(&["b"])),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key));
            assert_eq!(Key::parse(&key.to_string()), Some(*key));
        }
        assert_eq!(Key::of(&["a", "b"]).numbered(0), keys[0]);
        assert_eq!(Key::parse("<script>"), None);
    }
}

//! Numbers and strings of chunk payloads: LEB128 for unsigned numbers, zigzag for signed ones,
//! length-prefixed bytes.

/// The reason why a payload could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The payload ends inside a field.
    #[error("ends inside a field at byte {at}")]
    Short {
        /// Offset in the payload.
        at: usize,
    },
    /// A number does not fit its type.
    #[error("number out of range at byte {at}")]
    Range {
        /// Offset in the payload.
        at: usize,
    },
}

/// Writes fields.
#[derive(Clone, Debug, Default)]
pub struct Output(pub Vec<u8>);

impl Output {
    /// An unsigned number.
    pub fn number(&mut self, value: impl Into<u64>) {
        let mut value = value.into();
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A signed number.
    pub fn signed(&mut self, value: i64) {
        self.number((value.wrapping_shl(1) ^ (value >> 63)) as u64);
    }

    /// Bytes with their length before them.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A string.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }
}

/// Puts the low seven bits of each byte together.
#[inline]
fn joined(word: u64) -> u64 {
    let word = word & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = word & 0x007f_007f_007f_007f | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4
}

/// Reads fields.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// An unsigned number.
    #[inline]
    pub fn number(&mut self) -> Result<u64, WireError> {
        let rest = self.rest();
        if let Some(&byte) = rest.first()
            && byte < 0x80
        {
            self.at += 1;
            return Ok(byte.into());
        }
        // Up to eight bytes at once.
        if let Some(&word) = rest.first_chunk::<8>() {
            let word = u64::from_le_bytes(word);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let bits = ends.trailing_zeros() + 1;
                self.at += bits as usize / 8;
                return Ok(joined(word & (u64::MAX >> (64 - bits))));
            }
        }
        self.long_number()
    }

    /// A number near the end, or of more than eight bytes.
    #[cold]
    fn long_number(&mut self) -> Result<u64, WireError> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(WireError::Short { at: start })?;
            self.at += 1;
            let part = u64::from(byte & 0x7f);
            if shift > 63 || (shift == 63 && part > 1) {
                return Err(WireError::Range { at: start });
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Ok(value)
    }

    /// An unsigned number of a narrower type.
    pub fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, WireError> {
        let at = self.at;
        T::try_from(self.number()?).map_err(|_| WireError::Range { at })
    }

    /// A signed number.
    pub fn signed(&mut self) -> Result<i64, WireError> {
        let value = self.number()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let end = self.at.checked_add(len).ok_or(WireError::Range { at: self.at })?;
        let bytes = self.bytes.get(self.at..end).ok_or(WireError::Short { at: self.at })?;
        self.at = end;
        Ok(bytes)
    }

    /// Returns the number of bytes that have been read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the bytes that have not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or(&[])
    }

    /// Passes over bytes of [`Self::rest`].
    pub fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Bytes with their length before them.
    pub fn bytes(&mut self) -> Result<&'a [u8], WireError> {
        let len = self.narrow()?;
        self.take(len)
    }

    /// A string; what is not UTF-8 is replaced.
    pub fn text(&mut self) -> Result<String, WireError> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_survive(value: u64, signed: i64, text: String) {
            let mut output = Output::default();
            output.number(value);
            output.signed(signed);
            output.text(&text);
            let mut input = Input::new(&output.0);
            prop_assert_eq!(input.number(), Ok(value));
            prop_assert_eq!(input.signed(), Ok(signed));
            prop_assert_eq!(input.text(), Ok(text));
            prop_assert!(input.is_empty());
        }

        #[test]
        fn numbers_of_every_length_survive(bits in 0u32..64, value: u64, behind: u8) {
            let mut output = Output::default();
            output.number(value >> bits);
            let length = output.0.len();
            // Read with bytes behind it, and alone.
            output.0.extend([behind; 9]);
            prop_assert_eq!(Input::new(&output.0).number(), Ok(value >> bits));
            prop_assert_eq!(Input::new(&output.0[..length]).number(), Ok(value >> bits));
        }
    }

    #[test]
    fn bad_fields_are_errors() {
        assert_eq!(Input::new(&[0x80]).number(), Err(WireError::Short { at: 0 }));
        assert_eq!(Input::new(&[0xff; 11]).number(), Err(WireError::Range { at: 0 }));
        assert_eq!(Input::new(&[0x80, 0x02]).narrow::<u8>(), Err(WireError::Range { at: 0 }));
        assert_eq!(Input::new(&[0x05, b'a']).bytes(), Err(WireError::Short { at: 1 }));
    }
}

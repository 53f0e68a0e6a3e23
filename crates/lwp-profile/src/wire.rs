//! Numbers and strings of chunk payloads: LEB128 for unsigned numbers, zigzag for signed ones,
//! length-prefixed bytes.

/// Why a payload could not be read.
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

    /// Whether everything has been read.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// An unsigned number.
    pub fn number(&mut self) -> Result<u64, WireError> {
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
    }

    #[test]
    fn bad_fields_are_errors() {
        assert_eq!(Input::new(&[0x80]).number(), Err(WireError::Short { at: 0 }));
        assert_eq!(Input::new(&[0xff; 11]).number(), Err(WireError::Range { at: 0 }));
        assert_eq!(Input::new(&[0x80, 0x02]).narrow::<u8>(), Err(WireError::Range { at: 0 }));
        assert_eq!(Input::new(&[0x05, b'a']).bytes(), Err(WireError::Short { at: 1 }));
    }
}

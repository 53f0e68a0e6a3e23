//! Line tables of code objects.

/// The form of a line table, which versions of CPython have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Up to 3.9, `co_lnotab`: pairs of bytes to go on and lines to go on.
    Lnotab,
    /// 3.10, `co_linetable` of PEP 626: pairs of the bytes of a range and the lines from the one
    /// before.
    Ranges,
    /// From 3.11 on: entries with columns, as CPython's `InternalDocs/code_objects.md` describes
    /// them.
    Locations,
}

/// The line of the instruction at byte `offset` of code whose function is declared at `first`;
/// `None` where the table has none for it.
pub fn line_at(form: Form, table: &[u8], first: u32, offset: u64) -> Option<u32> {
    let line = match form {
        Form::Lnotab => lnotab(table, i64::from(first), offset),
        Form::Ranges => ranges(table, i64::from(first), offset)?,
        Form::Locations => locations(table, i64::from(first), offset)?,
    };
    u32::try_from(line).ok()
}

fn lnotab(table: &[u8], first: i64, offset: u64) -> i64 {
    let (mut address, mut line) = (0u64, first);
    for pair in table.chunks_exact(2) {
        address += u64::from(pair[0]);
        if address > offset {
            break;
        }
        line += i64::from(pair[1].cast_signed());
    }
    line
}

fn ranges(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    /// Stands for instructions without a line.
    const NONE: i8 = -128;
    let (mut end, mut line) = (0u64, first);
    for pair in table.chunks_exact(2) {
        let delta = pair[1].cast_signed();
        end += u64::from(pair[0]);
        line += if delta == NONE { 0 } else { i64::from(delta) };
        if offset < end {
            return (delta != NONE).then_some(line);
        }
    }
    None
}

fn locations(table: &[u8], first: i64, offset: u64) -> Option<i64> {
    let (mut end, mut line) = (0u64, first);
    let mut rest = table;
    while let Some((&head, mut body)) = rest.split_first() {
        // Bit 7 marks heads; then come four bits of kind and three of length, in units of two
        // bytes.
        let kind = head >> 3 & 15;
        end += 2 * (u64::from(head & 7) + 1);
        let delta = match kind {
            10..=12 => i64::from(kind) - 10,
            13 | 14 => signed(&mut body)?,
            _ => 0,
        };
        line = line.checked_add(delta)?;
        if offset < end {
            return (kind != 15).then_some(line);
        }
        // Columns follow, which no head looks like.
        let next = body.iter().position(|byte| byte & 0x80 != 0)?;
        rest = &body[next..];
    }
    None
}

/// A number of six bits a byte, the least first; bit 6 says that another follows, bit 0 of the
/// number its sign.
fn signed(bytes: &mut &[u8]) -> Option<i64> {
    let (mut value, mut shift) = (0u64, 0);
    loop {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x3f).checked_shl(shift)?;
        shift += 6;
        if byte & 0x40 == 0 {
            break;
        }
    }
    let size = (value >> 1).cast_signed();
    Some(if value & 1 == 0 { size } else { -size })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables that CPython's own compilers made of the function `f` below, and the lines that `dis`
    /// shows for each offset.
    ///
    /// ```python
    /// def f(a):          # line 1
    ///     b = a + 1      # line 2
    ///                    # line 3
    ///     return b       # line 4
    /// ```
    #[test]
    fn lines_are_those_that_the_compiler_meant() {
        // 3.8: co_lnotab == b'\x00\x01\x08\x02'
        let at = |offset| line_at(Form::Lnotab, &[0, 1, 8, 2], 1, offset);
        assert_eq!([0, 6, 8, 10].map(at), [2, 2, 4, 4].map(Some));
        // 3.10: co_linetable == b'\x08\x01\x04\x02'
        let at = |offset| line_at(Form::Ranges, &[8, 1, 4, 2], 1, offset);
        assert_eq!([0, 6, 8, 10].map(at), [2, 2, 4, 4].map(Some));
        assert_eq!(at(12), None);
        // 3.11: co_linetable == b'\x80\x00\xd8\x08\t\x88A\x89\x05\x80A\xe0\x0b\x0c\x80H'
        let table = b"\x80\x00\xd8\x08\t\x88A\x89\x05\x80A\xe0\x0b\x0c\x80H";
        let at = |offset| line_at(Form::Locations, table, 1, offset);
        assert_eq!([0, 2, 4, 10, 12, 14].map(at), [1, 2, 2, 2, 4, 4].map(Some));
    }

    #[test]
    fn code_without_a_line_has_none() {
        assert_eq!(line_at(Form::Ranges, &[4, 0x80, 4, 1], 7, 2), None);
        assert_eq!(line_at(Form::Ranges, &[4, 0x80, 4, 1], 7, 4), Some(8));
        // Kind 15, two units; then kind 13 with a line before the first.
        let table = [0x80 | 15 << 3 | 1, 0x80 | 13 << 3, 0b11];
        assert_eq!(line_at(Form::Locations, &table, 7, 0), None);
        assert_eq!(line_at(Form::Locations, &table, 7, 4), Some(6));
    }

    #[test]
    fn no_table_makes_it_panic() {
        let mut seed = 7u64;
        for _ in 0..20_000 {
            let mut byte = || {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 56) as u8
            };
            let table: Vec<u8> = (0..byte() % 40).map(|_| byte()).collect();
            for form in [Form::Lnotab, Form::Ranges, Form::Locations] {
                line_at(form, &table, u32::MAX, u64::from(byte()));
            }
        }
    }
}

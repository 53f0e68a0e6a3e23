//! Source lines that have other numbers now, because lines were inserted or removed above them.
//!
//! Sources may be gone, so a line is known by its code: the function that it belongs to, and the
//! opcodes of its instructions. Lines of a file keep their order, so the two lists of its lines are
//! aligned like two texts; as many lines between two known ones as before are those lines, changed.
//!
//! Promise: R153

use std::collections::BTreeMap;

use crate::diff::Keys;
use crate::profile::Profile;

/// The most pairs of lines that are compared for a file; lines of larger ones keep their numbers.
const MOST_PAIRS: usize = 1 << 24;

/// Bytes of an instruction that are its opcode, more or less: places that it names differ between
/// builds.
const OPCODE: usize = 2;

/// The numbers of lines now, by file and number before. Lines that are gone are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovedLines(BTreeMap<String, BTreeMap<u32, u32>>);

impl MovedLines {
    /// Aligns the lines of two profiles; `file` is what a file from before is named now.
    pub fn of<'a>(
        before: (&'a Profile, &'a Keys),
        after: (&'a Profile, &'a Keys),
        file: impl Fn(&'a str) -> &'a str,
    ) -> Self {
        let (old, new) = (lines(before), lines(after));
        let pairs = old.into_iter().filter_map(|(name, old)| {
            let name = file(name);
            Some((name.to_owned(), aligned(&old, new.get(name)?)))
        });
        Self(pairs.collect())
    }

    /// The number now of a line from before; `None` if the line is gone.
    pub fn now(&self, file: &str, line: u32) -> Option<u32> {
        match self.0.get(file) {
            Some(lines) => lines.get(&line).copied(),
            // The whole file is only in one of them.
            None => Some(line),
        }
    }
}

/// A line's number, and what its code is.
type Line = (u32, Vec<u8>);

/// Lines with code, by file, in order.
fn lines<'a>((profile, keys): (&'a Profile, &Keys)) -> BTreeMap<&'a str, Vec<Line>> {
    let mut all: BTreeMap<(&str, u32), Vec<u8>> = BTreeMap::new();
    // Locations are in the order of addresses.
    for location in &profile.locations {
        let Some(frame) = location.frames.first().filter(|frame| frame.line != 0) else { continue };
        let code = all
            .entry((&*frame.file, frame.line))
            .or_insert_with(|| keys.functions[frame.function.index()].clone().into_bytes());
        code.push(0);
        code.extend(location.bytes.iter().take(OPCODE));
    }
    let mut files: BTreeMap<&str, Vec<Line>> = BTreeMap::new();
    for ((file, line), code) in all {
        files.entry(file).or_default().push((line, code));
    }
    files
}

/// Pairs of lines with the same code, in order, and of those between them.
fn aligned(old: &[Line], new: &[Line]) -> BTreeMap<u32, u32> {
    let equal = |(a, b): &(&Line, &Line)| a.1 == b.1;
    let pair = |(old, new): (&Line, &Line)| (old.0, new.0);
    let head = old.iter().zip(new).take_while(equal).count();
    let mut pairs: BTreeMap<u32, u32> = old.iter().zip(new).take(head).map(pair).collect();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(equal).count();
    pairs.extend(old.iter().rev().zip(new.iter().rev()).take(tail).map(pair));
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    if old.len().saturating_mul(new.len()) > MOST_PAIRS {
        pairs.extend(old.iter().map(|line| (line.0, line.0)));
        return pairs;
    }
    let mut done = (0, 0);
    for (a, b) in common(old, new).into_iter().chain([(old.len(), new.len())]) {
        let (changed_old, changed_new) = (&old[done.0..a], &new[done.1..b]);
        if changed_old.len() == changed_new.len() {
            pairs.extend(changed_old.iter().zip(changed_new).map(pair));
        }
        pairs.extend(old.get(a).zip(new.get(b)).map(pair));
        done = (a + 1, b + 1);
    }
    pairs
}

/// Indexes of a longest common subsequence.
fn common(old: &[Line], new: &[Line]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    let mut longest = vec![0_u32; (old.len() + 1) * width];
    for a in (0..old.len()).rev() {
        for b in (0..new.len()).rev() {
            longest[a * width + b] = if old[a].1 == new[b].1 {
                longest[(a + 1) * width + b + 1] + 1
            } else {
                longest[(a + 1) * width + b].max(longest[a * width + b + 1])
            };
        }
    }
    let (mut a, mut b, mut pairs) = (0, 0, Vec::new());
    while a < old.len() && b < new.len() {
        if old[a].1 == new[b].1 {
            pairs.push((a, b));
            (a, b) = (a + 1, b + 1);
        } else if longest[(a + 1) * width + b] >= longest[a * width + b + 1] {
            a += 1;
        } else {
            b += 1;
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(lines: &[(u32, &str)]) -> Vec<Line> {
        lines.iter().map(|(number, code)| (*number, code.as_bytes().to_vec())).collect()
    }

    fn pairs(old: &[Line], new: &[Line]) -> Vec<(u32, u32)> {
        aligned(old, new).into_iter().collect()
    }

    #[test]
    fn lines_are_known_by_their_code() {
        let old = numbered(&[(3, "f"), (4, "loop"), (5, "add"), (7, "main"), (9, "end")]);
        let new = [(3, "f"), (6, "loop"), (7, "add2"), (9, "main"), (10, "new"), (12, "end")];
        assert_eq!(pairs(&old, &numbered(&new)), [(3, 3), (4, 6), (5, 7), (7, 9), (9, 12)]);
        // As many lines are the same lines, with other code.
        let new = numbered(&[(3, "f"), (4, "a"), (5, "b"), (6, "c"), (9, "end")]);
        assert_eq!(pairs(&old, &new), [(3, 3), (4, 4), (5, 5), (7, 6), (9, 9)]);
        // Where more has changed than can be told apart, lines are gone and new.
        assert_eq!(pairs(&old, &new[..3]), [(3, 3)]);
        assert_eq!(pairs(&[], &new), []);
    }
}

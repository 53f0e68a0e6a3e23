//! Puts an image's code in place: unpacks it, and adjusts it to its new address and to this run's
//! numbers of counters and entries.
//!
//! This is most of the cost of a restored unit, so several threads share a large one. Each part is
//! unpacked and relocated block by block, so that its data stays in the processor's cache.

use std::ops::Range;

use super::blocks::Blocks;
use super::{Image, ImageError, table, u32_at, u64_at};
use crate::relocation::{HALVES_APART, ROTATED_APART, Relocation, Rotated, Site};

/// The destination of a restored unit's code.
#[derive(Clone, Copy)]
pub struct CodeTarget<'a> {
    /// Writes a piece, given its offset. Pieces come in any order, from several threads. False
    /// where that is impossible.
    pub write: &'a (dyn Fn(u64, &[u8]) -> bool + Sync),
    /// The number of threads that may work on it, this one included.
    pub threads: usize,
}

impl std::fmt::Debug for CodeTarget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeTarget").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// The amounts that are added to the words of each kind.
type Deltas = [i64; Relocation::KINDS];

const OUTSIDE: ImageError = ImageError::Outside { table: table::SITES };
const DAMAGED_CODE: ImageError = ImageError::Damaged { table: table::CODE };
const DAMAGED_SITES: ImageError = ImageError::Damaged { table: table::SITES };

impl Image {
    /// Hands its code to `to`, with `deltas` added to its words.
    pub(super) fn relocate(&self, deltas: &Deltas, to: &CodeTarget<'_>) -> Result<(), ImageError> {
        let parts = self.parts(to.threads)?;
        let Some((last, others)) = parts.split_last() else { return Ok(()) };
        let work = |part: &Range<usize>| self.relocate_part(part.clone(), deltas, to.write);
        std::thread::scope(|scope| {
            let work = &work;
            let start = |part| {
                let builder = std::thread::Builder::new();
                // Where there can be no more threads, this one does it.
                builder.spawn_scoped(scope, move || work(part)).map_err(|_| work(part))
            };
            let others: Vec<_> = others.iter().map(start).collect();
            others.into_iter().fold(work(last), |done, other| {
                done.and(match other {
                    Ok(thread) => thread.join().unwrap_or(Err(DAMAGED_CODE)),
                    Err(result) => result,
                })
            })
        })
    }

    /// Divides the code into parts of about the same size, so that no word lies in two of them.
    fn parts(&self, threads: usize) -> Result<Vec<Range<usize>>, ImageError> {
        let len = self.code_len();
        let block = self.code_blocks()?.block_bytes();
        let mut parts = Vec::new();
        let mut start = 0;
        for part in 1..threads {
            let even = len / threads * part;
            // Not to unpack a block twice.
            let even = if even > block { even / block * block } else { even };
            let end = self.word_end(even)?.min(len);
            if end > start {
                parts.push(start..end);
                start = end;
            }
        }
        if start < len {
            parts.push(start..len);
        }
        Ok(parts)
    }

    /// The end of the word that contains what is before and at `place`, if there is one, else
    /// `place`.
    fn word_end(&self, place: usize) -> Result<usize, ImageError> {
        let mut sites = Sites::from(self, place.saturating_sub(Relocation::MOST_BYTES))?;
        let mut end = place;
        while let Some(site) = sites.next_if(|site| site.at() < place)? {
            end = end.max(site.end());
        }
        Ok(end)
    }

    fn code_blocks(&self) -> Result<&Blocks, ImageError> {
        self.blocks[table::CODE].as_ref().ok_or(DAMAGED_CODE)
    }

    fn relocate_part(
        &self,
        part: Range<usize>,
        deltas: &Deltas,
        write: &dyn Fn(u64, &[u8]) -> bool,
    ) -> Result<(), ImageError> {
        let blocks = self.code_blocks()?;
        let size = blocks.block_bytes();
        let mut sites = Sites::from(self, part.start)?;
        let mut buffer: Vec<u8> = Vec::with_capacity(size + Relocation::MOST_BYTES);
        // Where the buffer begins. A site that straddles two blocks waits for the second one.
        let mut start = part.start / size * size;
        for index in part.start / size..part.end.div_ceil(size) {
            blocks.unpack(self.stored(table::CODE), index, &mut buffer).ok_or(DAMAGED_CODE)?;
            if start < part.start {
                buffer.drain(..part.start - start);
                start = part.start;
            }
            let end = (start + buffer.len()).min(part.end);
            while let Some(site) = sites.next_if(|site| site.end() <= end)? {
                let kind = site.kind().ok_or(OUTSIDE)?;
                let within = site.at().checked_sub(start).ok_or(OUTSIDE)?;
                let word = &mut buffer[within..within + kind.bytes()];
                let reach = ImageError::Reach { at: site.at() };
                relocate(word, kind, deltas[kind as usize]).ok_or(reach)?;
            }
            let ready = sites.peek()?.map_or(end, |site| site.at().min(end));
            let ready = ready.checked_sub(start).ok_or(OUTSIDE)?;
            if !write(start as u64, &buffer[..ready]) {
                return Err(ImageError::NotWritten);
            }
            buffer.drain(..ready);
            start += ready;
        }
        let next = sites.peek()?;
        let rest = next.is_none_or(|site| site.at() >= part.end && part.end < self.code_len());
        if start == part.end && rest { Ok(()) } else { Err(OUTSIDE) }
    }
}

/// An image's relocations from some place on, a block at a time.
struct Sites<'a> {
    image: &'a Image,
    blocks: &'a Blocks,
    /// The next block.
    block: usize,
    unpacked: Vec<u8>,
    /// The next one in it.
    next: usize,
}

impl<'a> Sites<'a> {
    /// Those at `place` or after it.
    fn from(image: &'a Image, place: usize) -> Result<Self, ImageError> {
        let blocks = image.blocks[table::SITES].as_ref().ok_or(DAMAGED_SITES)?;
        let stored = image.stored(table::SITES);
        let (mut low, mut high) = (0, blocks.count());
        while low < high {
            let middle = low.midpoint(high);
            let first = blocks.first_word(stored, middle).ok_or(DAMAGED_SITES)?;
            if Site(first).at() < place { low = middle + 1 } else { high = middle }
        }
        let block = low.saturating_sub(1);
        let mut sites = Self { image, blocks, block, unpacked: Vec::new(), next: 0 };
        while sites.next_if(|site| site.at() < place)?.is_some() {}
        Ok(sites)
    }

    fn peek(&mut self) -> Result<Option<Site>, ImageError> {
        while self.next == self.unpacked.len() {
            if self.block == self.blocks.count() {
                return Ok(None);
            }
            self.unpacked.clear();
            self.next = 0;
            let stored = self.image.stored(table::SITES);
            let done = self.blocks.unpack(stored, self.block, &mut self.unpacked);
            done.ok_or(DAMAGED_SITES)?;
            self.block += 1;
        }
        Ok(Some(Site(u32_at(&self.unpacked, self.next))))
    }

    fn next_if(&mut self, wanted: impl Fn(Site) -> bool) -> Result<Option<Site>, ImageError> {
        let next = self.peek()?.filter(|site| wanted(*site));
        if next.is_some() {
            self.next += 4;
        }
        Ok(next)
    }
}

/// Adds `delta` to a word. `None` where the sum has no room in it.
fn relocate(word: &mut [u8], kind: Relocation, delta: i64) -> Option<()> {
    if kind == Relocation::Halves {
        let old = u64::from(u32_at(word, 0)) | u64::from(u32_at(word, HALVES_APART)) << 32;
        let new = old.wrapping_add_signed(delta).to_le_bytes();
        word[..4].copy_from_slice(&new[..4]);
        word[HALVES_APART..].copy_from_slice(&new[4..]);
        return Some(());
    }
    if let Relocation::Rotated | Relocation::RotatedBack = kind {
        let words = [0, ROTATED_APART].map(|at| u32_at(word, at).cast_signed());
        let back = kind == Relocation::RotatedBack;
        let [first, second] = Rotated::moved(words, delta, back)?.map(i32::to_le_bytes);
        word[..4].copy_from_slice(&first);
        word[ROTATED_APART..].copy_from_slice(&second);
        return Some(());
    }
    if kind.bytes() == 8 {
        let new = u64_at(word, 0).wrapping_add_signed(delta);
        word.copy_from_slice(&new.to_le_bytes());
        return Some(());
    }
    let old = u32_at(word, 0);
    let new = match kind {
        Relocation::Fragment | Relocation::CallSite => old.wrapping_add(delta as u32),
        _ => i32::try_from(i64::from(old.cast_signed()).checked_add(delta)?).ok()?.cast_unsigned(),
    };
    word.copy_from_slice(&new.to_le_bytes());
    // Its sign is extended, and there are no addresses at the other end.
    (kind != Relocation::Low || new.cast_signed() >= 0).then_some(())
}

//! Unwind tables of code that a program generates, from the jitdump file that it writes.
//!
//! The file grows while the program runs: it is read on when a walk meets generated code. It is the
//! program's, and nothing in it is believed: lengths have bounds, a table is used only for the
//! function that it was written for, and only while the function's first bytes are those of the
//! record. So code that was written anew without a word of it is walked as if there were no table.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::image::Image;
use crate::row::Row;
use crate::walk::Memory;

/// The place of a jitdump file.
pub trait Source: Debug + Send {
    /// Opens the file; `None` where it is gone, or another file has taken its place.
    fn open(&self) -> Option<File>;
}

const MAGIC: u32 = 0x4a69_5444;
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const CODE_UNWINDING_INFO: u32 = 4;

/// Bytes of the file's header, of the head of each record, and of the fields of those that matter.
const HEADER: usize = 40;
const HEAD: usize = 16;
const LOAD_FIELDS: usize = 56;
const MOVE_FIELDS: usize = 56;
const UNWINDING_FIELDS: usize = 40;

/// Most functions with tables, most bytes of their tables, and of one of them.
const FUNCTIONS: usize = 1 << 18;
const ALL_TABLES: usize = 64 << 20;
const ONE_TABLE: u64 = 64 << 10;
/// Most records that are read for one walk; the next one goes on behind them.
const RECORDS: usize = 1 << 17;
/// Bytes read at a time.
const WINDOW: usize = 64 << 10;
/// The first bytes of a function that must be those of its record.
const BEGINNING: usize = 32;

/// The tables of a process's generated code.
#[derive(Debug)]
pub struct Generated {
    source: Box<dyn Source>,
    /// The header that has been read: a file with another one was begun anew.
    header: [u8; HEADER],
    /// Offset of the first record that has not been read; zero before the header has been.
    at: u64,
    /// The walk for which the file was read last.
    walk: u64,
    /// Tables of the function that is loaded next.
    waiting: Option<Tables>,
    /// Functions with tables, by address; none overlaps another.
    functions: BTreeMap<u64, Function>,
    /// Bytes of all their tables.
    bytes: usize,
}

/// A function.
#[derive(Debug)]
struct Function {
    end: u64,
    /// The distance from where it was loaded.
    moved: u64,
    /// Its first bytes, if they are known.
    begins: Vec<u8>,
    tables: Tables,
}

/// `.eh_frame` and `.eh_frame_hdr` of a function.
#[derive(Debug)]
struct Tables {
    bytes: Vec<u8>,
    /// Bytes of the header among them.
    header: usize,
    /// The parsed tables, once a walk has needed them.
    image: Option<Box<Image>>,
}

impl Generated {
    /// The tables in the file at `source`, none of which has been read.
    pub fn new(source: Box<dyn Source>) -> Self {
        Self {
            source,
            header: [0; HEADER],
            at: 0,
            walk: 0,
            waiting: None,
            functions: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// The row for the instruction at `place`, if a table covers it. The file is read on, once for
    /// each `walk`.
    pub fn row(&mut self, place: u64, walk: u64, memory: &mut dyn Memory) -> Option<&Row> {
        if self.walk != walk {
            self.walk = walk;
            if let Some(file) = self.source.open() {
                self.read_on(&file);
            }
        }
        let (&start, function) = self.functions.range_mut(..=place).next_back()?;
        if place >= function.end || !begins_with(start, &function.begins, memory) {
            return None;
        }
        let loaded = start.wrapping_sub(function.moved);
        let size = function.end - start;
        let image = function.tables.image(loaded, size);
        image.row(place.wrapping_sub(function.moved))
    }

    /// Reads the records that are there by now.
    fn read_on(&mut self, file: &File) {
        let mut header = [0; HEADER];
        let Ok(size) = file.metadata().map(|metadata| metadata.len()) else { return };
        if file.read_exact_at(&mut header, 0).is_err() || word(&header, 0) != Some(MAGIC) {
            return;
        }
        if self.at == 0 || header != self.header {
            self.begin(header);
        }
        let mut window = Window { file, size, start: 0, bytes: Vec::new() };
        for _ in 0..RECORDS {
            let Some(head) = window.bytes(self.at, HEAD) else { return };
            let (Some(id), Some(len)) = (word(head, 0), word(head, 4)) else { return };
            let whole = self.at.checked_add(u64::from(len)).is_some_and(|end| end <= size);
            // A record that is being written, or damage: both may be gone the next time.
            if (len as usize) < HEAD || !whole {
                return;
            }
            let record = Record { at: self.at, len: u64::from(len) };
            match id {
                CODE_LOAD => drop(self.load(&mut window, record)),
                CODE_MOVE => drop(self.moves(&mut window, record)),
                CODE_UNWINDING_INFO => self.waiting = self.unwinding(&mut window, record),
                _ => {}
            }
            self.at += record.len;
        }
    }

    /// Forgets what was read of the file that was there before.
    fn begin(&mut self, header: [u8; HEADER]) {
        self.header = header;
        self.at = word(&header, 8).map_or(HEADER as u64, u64::from).max(HEADER as u64);
        self.waiting = None;
        self.functions.clear();
        self.bytes = 0;
    }

    /// A function is at an address from now on: pid, tid, vma, address, size, index, name, code.
    fn load(&mut self, window: &mut Window<'_>, record: Record) -> Option<()> {
        let tables = self.waiting.take();
        let fields = window.bytes(record.at, record.within(LOAD_FIELDS)?)?;
        let (start, size) = (long(fields, 32)?, long(fields, 40)?);
        let end = start.checked_add(size)?;
        self.replace(start, end);
        let tables = tables.filter(|_| self.functions.len() < FUNCTIONS && size > 0)?;
        let code = record.len.checked_sub(size).filter(|at| *at > LOAD_FIELDS as u64)?;
        let len = size.min(BEGINNING as u64) as usize;
        let begins = window.bytes(record.at + code, len)?.to_vec();
        self.put(start, Function { end, moved: 0, begins, tables });
        Some(())
    }

    /// A function has moved: pid, tid, vma, from, to, size, index. It may be another there in all
    /// that depends on its place.
    fn moves(&mut self, window: &mut Window<'_>, record: Record) -> Option<()> {
        let fields = window.bytes(record.at, record.within(MOVE_FIELDS)?)?;
        let (from, to, size) = (long(fields, 32)?, long(fields, 40)?, long(fields, 48)?);
        let moved = self.take(from);
        let size = moved.as_ref().map_or(size, |it| it.end - from);
        let end = to.checked_add(size)?;
        self.replace(to, end);
        let distance = to.wrapping_sub(from);
        let moved = moved.map(|it| Function {
            end,
            moved: it.moved.wrapping_add(distance),
            begins: Vec::new(),
            tables: it.tables,
        });
        self.put(to, moved?);
        Some(())
    }

    /// The tables of the function that the next record loads: bytes of all, of the header, and of
    /// what is in memory.
    fn unwinding(&self, window: &mut Window<'_>, record: Record) -> Option<Tables> {
        let fields = window.bytes(record.at, record.within(UNWINDING_FIELDS)?)?;
        let (size, header) = (long(fields, 16)?, long(fields, 24)?);
        let fits = size <= ONE_TABLE && header <= size;
        if !fits || UNWINDING_FIELDS as u64 + size > record.len {
            return None;
        }
        if self.bytes + size as usize > ALL_TABLES {
            return None;
        }
        let bytes = window.bytes(record.at + UNWINDING_FIELDS as u64, size as usize)?.to_vec();
        Some(Tables { bytes, header: header as usize, image: None })
    }

    fn put(&mut self, start: u64, function: Function) {
        self.bytes += function.tables.bytes.len();
        self.functions.insert(start, function);
    }

    fn take(&mut self, start: u64) -> Option<Function> {
        let taken = self.functions.remove(&start)?;
        self.bytes -= taken.tables.bytes.len();
        Some(taken)
    }

    /// Forgets what was between `start` and `end`.
    fn replace(&mut self, start: u64, end: u64) {
        let before = self.functions.range(..start).next_back();
        let over = before.filter(|(_, it)| it.end > start).map(|(at, _)| *at);
        while let Some(at) = over
            .filter(|at| self.functions.contains_key(at))
            .or_else(|| self.functions.range(start..end.max(start)).next().map(|(at, _)| *at))
        {
            self.take(at);
        }
    }
}

impl Tables {
    /// The parsed tables of the function of `size` bytes that was loaded at `start`.
    ///
    /// perf puts them behind the function, on the next multiple of eight bytes: first `.eh_frame`,
    /// whatever the format's description says of their order.
    fn image(&mut self, start: u64, size: u64) -> &mut Image {
        let (bytes, header) = (&self.bytes, self.header);
        self.image.get_or_insert_with(|| {
            let at = start.wrapping_add(size.wrapping_add(7) & !7);
            let code = start..start.saturating_add(size);
            let first = &bytes[..bytes.len() - header];
            let image = Image::of_table(first, at, &code);
            Box::new(image.unwrap_or_else(|| {
                let second = at.wrapping_add(header as u64);
                Image::of_table(&bytes[header..], second, &code).unwrap_or_default()
            }))
        })
    }
}

/// Returns whether a function at `start` begins with these bytes.
fn begins_with(start: u64, begins: &[u8], memory: &mut dyn Memory) -> bool {
    (start..).step_by(8).zip(begins.chunks(8)).all(|(at, bytes)| {
        memory.word(at).is_some_and(|word| word.to_le_bytes()[..bytes.len()] == *bytes)
    })
}

/// A record.
#[derive(Clone, Copy, Debug)]
struct Record {
    at: u64,
    len: u64,
}

impl Record {
    /// The number of bytes of its `fields`, if it is so long.
    fn within(self, fields: usize) -> Option<usize> {
        (fields as u64 <= self.len).then_some(fields)
    }
}

/// A part of the file.
struct Window<'f> {
    file: &'f File,
    size: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    /// The `len` bytes at `at`.
    fn bytes(&mut self, at: u64, len: usize) -> Option<&[u8]> {
        let end = at.checked_add(len as u64).filter(|end| *end <= self.size)?;
        if at < self.start || end > self.start + self.bytes.len() as u64 {
            let wanted = (self.size - at).min(WINDOW.max(len) as u64) as usize;
            self.bytes.resize(wanted, 0);
            let read = self.file.read_exact_at(&mut self.bytes, at);
            if read.is_err() {
                self.bytes.clear();
                return None;
            }
            self.start = at;
        }
        let from = (at - self.start) as usize;
        self.bytes.get(from..from + len)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;

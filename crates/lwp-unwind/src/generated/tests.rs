//! Promise: R112
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use super::*;
use crate::row::{Cfa, RSP};

/// Code that consists of these bytes, from `0x1000` on.
struct Code(Vec<u8>);

impl Memory for Code {
    fn word(&mut self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(0x1000)?).ok()?;
        let bytes = self.0.get(at..at.checked_add(8)?)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

/// A file that is removed with it.
#[derive(Clone, Debug)]
struct Dump(PathBuf);

impl Dump {
    fn new(name: &str) -> Self {
        let name = format!("lwp-unwind-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn write(&self, bytes: &[u8]) {
        fs::write(&self.0, bytes).unwrap();
    }

    fn append(&self, bytes: &[u8]) {
        File::options().append(true).open(&self.0).unwrap().write_all(bytes).unwrap();
    }
}

#[derive(Debug)]
struct Place(PathBuf);

impl Source for Place {
    fn open(&self) -> Option<File> {
        File::open(&self.0).ok()
    }
}

fn header(timestamp: u64) -> Vec<u8> {
    let mut file: Vec<u8> = [MAGIC, 1, 40, 62, 0, 7].map(u32::to_le_bytes).concat();
    file.extend(timestamp.to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file
}

fn record(id: u32, body: &[u8]) -> Vec<u8> {
    let mut record = [id, (HEAD + body.len()) as u32].map(u32::to_le_bytes).concat();
    record.extend(5u64.to_le_bytes());
    record.extend(body);
    record
}

/// The function of these bytes is at `start`.
fn load(start: u64, code: &[u8]) -> Vec<u8> {
    let mut body = [7, 8].map(u32::to_le_bytes).concat();
    body.extend([start, start, code.len() as u64, 1].map(u64::to_le_bytes).concat());
    body.extend(b"a function\0");
    body.extend(code);
    record(CODE_LOAD, &body)
}

fn moves(from: u64, to: u64, size: u64) -> Vec<u8> {
    let mut body = [7, 8].map(u32::to_le_bytes).concat();
    body.extend([to, from, to, size, 1].map(u64::to_le_bytes).concat());
    record(CODE_MOVE, &body)
}

/// An `.eh_frame` for a function of `size` bytes that begins `before` bytes before it: its frame is
/// `frame` bytes behind the stack pointer.
fn eh_frame(before: u64, size: u32, frame: u8) -> Vec<u8> {
    // Length, CIE, version 1, "zR", code 1, data -8, return address 16, addresses relative and of
    // four bytes; DW_CFA_def_cfa rsp+frame, DW_CFA_offset 16 at cfa-8.
    let mut bytes: Vec<u8> = 20u32.to_le_bytes().to_vec();
    bytes.extend([0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, frame, 0x90, 1]);
    bytes.resize(24, 0);
    // Length, distance to the CIE, address, size, no augmentation; a zero length.
    bytes.extend([16u32, 28].map(u32::to_le_bytes).concat());
    bytes.extend((-(before as i64 + 32) as i32).to_le_bytes());
    bytes.extend(size.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend([0; 4]);
    bytes
}

/// As perf reads it, and as its description says: with the header behind and before.
fn unwinding(eh_frame: &[u8], header_first: bool) -> Vec<u8> {
    let header = [1, 0x1b, 3, 0x3b, 9, 9, 9, 9, 1, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9];
    let all = eh_frame.len() as u64 + header.len() as u64;
    let mut body = [all, header.len() as u64, all].map(u64::to_le_bytes).concat();
    let parts = if header_first { [&header[..], eh_frame] } else { [eh_frame, &header[..]] };
    body.extend(parts.concat());
    body.extend([0; 3]);
    record(CODE_UNWINDING_INFO, &body)
}

/// The distance of the frame from the stack pointer at `place`.
fn frame(generated: &mut Generated, place: u64, memory: &mut Code) -> Option<i64> {
    let walk = generated.walk + 1;
    match generated.row(place, walk, memory)?.cfa {
        Cfa::Register(register, offset) => (register == RSP).then_some(offset),
        Cfa::Expression(_) => None,
    }
}

const SIZE: usize = 0x2d;

/// A function whose frame has this size, at `start`.
fn function(start: u64, frame: u8) -> Vec<u8> {
    let table = eh_frame(0x30, SIZE as u32, frame);
    [unwinding(&table, false), load(start, &[0x90; SIZE])].concat()
}

#[test]
fn a_file_is_read_while_it_grows() {
    let dump = Dump::new("grows");
    let mut generated = Generated::new(Box::new(Place(dump.0.clone())));
    let mut code = Code(vec![0x90; 0x1000]);
    assert_eq!(frame(&mut generated, 0x1000, &mut code), None, "there is no file");
    let first = function(0x1100, 0x20);
    dump.write(&header(1));
    let (some, rest) = first.split_at(first.len() - 5);
    dump.append(some);
    assert_eq!(frame(&mut generated, 0x1110, &mut code), None, "the record is not complete");
    dump.append(rest);
    assert_eq!(frame(&mut generated, 0x1110, &mut code), Some(0x20));
    let last = 0x1100 + SIZE as u64;
    let places = [0x10ff, 0x1100, last - 1, last];
    let found = places.map(|at| frame(&mut generated, at, &mut code));
    assert_eq!(found, [None, Some(0x20), Some(0x20), None]);
    // With a table in the other order, and one without any over a part of another.
    let other = unwinding(&eh_frame(0x30 + 20, SIZE as u32, 0x28), true);
    dump.append(&[other, load(0x1200, &[0x90; SIZE])].concat());
    dump.append(&load(0x1120, &[0x90; 4]));
    assert_eq!(frame(&mut generated, 0x1210, &mut code), Some(0x28));
    assert_eq!(frame(&mut generated, 0x1110, &mut code), None);
    assert_eq!(generated.functions.len(), 1);
    // A program that begins the file anew.
    dump.write(&[header(2), function(0x1300, 0x30)].concat());
    assert_eq!(frame(&mut generated, 0x1310, &mut code), Some(0x30));
    assert_eq!(frame(&mut generated, 0x1210, &mut code), None);
    fs::remove_file(&dump.0).unwrap();
    assert_eq!(frame(&mut generated, 0x1310, &mut code), Some(0x30), "what is known stays");
}

#[test]
fn code_that_moves_takes_its_table_along() {
    let dump = Dump::new("moves");
    let mut generated = Generated::new(Box::new(Place(dump.0.clone())));
    let mut code = Code(vec![0x90; 0x1000]);
    dump.write(&[header(1), function(0x1100, 0x20), function(0x1400, 0x40)].concat());
    dump.append(&moves(0x1100, 0x1410, SIZE as u64));
    code.0[0x410] = 0xcc;
    assert_eq!(frame(&mut generated, 0x1420, &mut code), Some(0x20));
    assert_eq!(frame(&mut generated, 0x1110, &mut code), None);
    assert_eq!(frame(&mut generated, 0x1404, &mut code), None, "overwritten");
    dump.append(&moves(0x1410, 0x1800, SIZE as u64));
    dump.append(&function(0x1100, 0x50));
    assert_eq!(frame(&mut generated, 0x1820, &mut code), Some(0x20));
    assert_eq!(frame(&mut generated, 0x1110, &mut code), Some(0x50));
    // Other code, of which nothing was said.
    code.0[0x100 + 9] = 0xcc;
    assert_eq!(frame(&mut generated, 0x1110, &mut code), None);
    fs::remove_file(&dump.0).unwrap();
}

#[test]
fn no_file_makes_it_panic() {
    let dump = Dump::new("damage");
    let whole =
        [header(1), function(0x1100, 0x20), moves(0x1100, u64::MAX - 8, 16), function(0x1100, 8)]
            .concat();
    let mut seed = 1u64;
    for round in 0..400usize {
        let mut bytes = whole.clone();
        for _ in 0..=round % 4 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = HEADER + (seed >> 33) as usize % (bytes.len() - HEADER);
            bytes[at] = if round % 3 == 0 { 0xff } else { (seed >> 24) as u8 };
        }
        bytes.truncate(whole.len() - round % whole.len() / 7);
        dump.write(&bytes);
        let mut generated = Generated::new(Box::new(Place(dump.0.clone())));
        for place in [0, 0x1100, 0x1110, u64::MAX - 4, u64::MAX] {
            let _ = frame(&mut generated, place, &mut Code(vec![0x90; 0x1000]));
        }
        let all: usize = generated.functions.values().map(|it| it.tables.bytes.len()).sum();
        assert_eq!(generated.bytes, all);
    }
    fs::remove_file(&dump.0).unwrap();
}

//! Hashes the translator's source, so that code emitted by an earlier version is never reused. Also
//! assembles the routines: at run time, that would take a millisecond, more than everything else at
//! a program's start.
#![allow(
    dead_code,
    unused_imports,
    reason = "of the modules shared with the library, a part is used here"
)]

use std::path::{Path, PathBuf};
use std::{env, fs};

mod addr;
mod assembly;
mod context;
mod routines;
mod state_map;

use context::{Layout, TargetFeatures};

fn main() {
    hash_source();
    let assembled = [("NARROW", false), ("WIDE", true)].map(|(name, wide)| assembled(name, wide));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where output goes"));
    fs::write(out.join("routines.rs"), assembled.concat()).expect("output can be written");
}

fn hash_source() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=Cargo.toml");
    let mut files = Vec::new();
    collect(Path::new("src"), &mut files);
    files.sort();
    let mut hash = Fnv::default();
    for file in &files {
        hash.write(file.to_string_lossy().as_bytes());
        hash.write(&fs::read(file).expect("source files can be read"));
    }
    // Also the versions of what it is built on, where this is built as part of its workspace.
    let lock = Path::new("../../Cargo.lock");
    if lock.exists() {
        println!("cargo::rerun-if-changed={}", lock.display());
        let text = fs::read_to_string(lock).expect("the lock file can be read");
        let iced = text.split("[[package]]").find(|package| package.contains("\"iced-x86\""));
        hash.write(iced.unwrap_or_default().as_bytes());
    }
    hash.write(env::var("CARGO_PKG_VERSION").unwrap_or_default().as_bytes());
    println!("cargo::rustc-env=LWP_DBT_SOURCE_HASH={}", hash.0);
}

/// The address of the low window that the routines are assembled for, and another, with which they
/// differ in a byte of every word that depends on it.
const LOWS: [u64; 2] = [0x4000_0000, 0x4100_0000];
/// The addresses with which it is tried whether that was all.
const TRIED: [u64; 2] = [0x10_0000, 0x7e00_0000];

/// The routines as the source of a static, for a low window at 0.
fn assembled(name: &str, wide_index: bool) -> String {
    let features = TargetFeatures { wide_index, bit_extract: wide_index };
    let assemble =
        |low| assembly::assemble(Layout { low, features }).expect("the routines are constant");
    let [mut routines, other] = LOWS.map(assemble);
    let pairs = routines.code.iter().zip(other.code.iter()).enumerate();
    // The highest byte differs.
    let places: Vec<usize> = pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| at - 3).collect();
    let mut code = routines.code.to_vec();
    relocate(&mut code, &places, LOWS[0].wrapping_neg());
    for low in TRIED {
        let mut moved = code.clone();
        relocate(&mut moved, &places, low);
        assert_eq!(moved, *assemble(low).code, "more depends on where the low window lies");
    }
    let states = format!("{:?}", routines.states)
        .replace("pc: ", "pc: PcSource::")
        .replace("commit: ", "commit: Commit::");
    (routines.code, routines.states) = (Vec::new().into(), Vec::new().into());
    let routines = format!("{routines:?}")
        .replace("code: []", &format!("code: Cow::Borrowed(&{code:?})"))
        .replace("states: []", &format!("states: Cow::Borrowed(&{states})"));
    format!("static {name}: Prepared = Prepared {{ routines: {routines}, places: &{places:?} }};\n")
}

/// Adds `low` to the words of `code` at `places`.
fn relocate(code: &mut [u8], places: &[usize], low: u64) {
    for &at in places {
        let word: &mut [u8; 4] = (&mut code[at..at + 4]).try_into().expect("four bytes");
        *word = u32::from_le_bytes(*word).wrapping_add(low as u32).to_le_bytes();
    }
}

/// Adds the files below `directory`.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("the crate has a source directory") {
        let path = entry.expect("the source directory can be read").path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}

/// FNV-1a.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

//! Hashes the source of the translator: what it emitted before a change must not be used after it.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
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

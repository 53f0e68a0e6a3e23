//! Links the commands so that they start fast: they are started once for each program that is
//! measured.
//!
//! They lie at a fixed address, or else some hundred pages of pointers would have to be relocated
//! every time. And what they need of GCC's library is in them: the shared one is a file more to
//! map, and asks the processor what it is, which takes a virtual one a tenth of a millisecond.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-bins=-no-pie");
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        // The compiler asks for a static program without a fixed address; this is one with. GCC's
        // library is in it.
        println!("cargo::rustc-link-arg-bins=-static");
        return;
    }
    let gnu = env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|it| it == "gnu");
    if gnu && has_static_unwinder() {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where output goes"));
        // What the linker finds first where it looks for the shared library.
        fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n")
            .expect("output can be written");
        println!("cargo::rustc-link-arg-bins=-L{}", out.display());
    }
}

/// Returns whether the unwinder is there as an archive, as it is wherever GCC is.
fn has_static_unwinder() -> bool {
    let asked = Command::new("cc").arg("-print-file-name=libgcc_eh.a").output();
    // Where it is not, the name is given back as it is.
    asked.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_file())
}

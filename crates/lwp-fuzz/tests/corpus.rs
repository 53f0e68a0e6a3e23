//! The stored corpus, and mutations of it. `LWP_FUZZ_ROUNDS` asks for more of them, `LWP_FUZZ_SEED`
//! for others.
//!
//! Promise: R45

use std::path::{Path, PathBuf};

use lwp_fuzz::{drive, target};

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a target; where it fails, its bytes stay behind.
fn attack(name: &str, rounds: u32) {
    let target = target(name).expect("a target");
    let rounds = number("LWP_FUZZ_ROUNDS").map_or(rounds, |rounds| rounds as u32);
    let seed = number("LWP_FUZZ_SEED").unwrap_or(1);
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
    let files = drive(target, &corpus(name), &scratch, rounds, seed).expect("a corpus");
    assert!(files > 0, "{name} has a corpus");
}

macro_rules! targets {
    ($($name:ident $rounds:literal),* $(,)?) => {
        $(#[test] fn $name() { attack(stringify!($name), $rounds); })*
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

// Each as often as takes about a second.
targets! {
    image 400, store 400, archive 1000, recording 1000, chunks 2000, elf 150, unwind 2000,
    perf_map 2000, jitdump 2000, control 5000, gate 5000, mailbox 200,
}

#[test]
fn every_target_is_attacked_here_and_by_cargo_fuzz() {
    let all: Vec<&str> = lwp_fuzz::TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(all, NAMES);
    let programs = std::fs::read_dir(corpus("../fuzz_targets")).expect("programs");
    let mut names: Vec<String> = programs
        .map(|entry| {
            entry.expect("a program").path().file_stem().expect("a name").to_string_lossy().into()
        })
        .collect();
    names.sort();
    let mut all = all;
    all.sort_unstable();
    assert_eq!(names, all);
    let nightly = corpus("../../.github/workflows/fuzz.yml");
    let nightly = std::fs::read_to_string(nightly).expect("the workflow of every night");
    assert!(nightly.contains(&format!("target: [{}]", all.join(", "))), "{nightly}");
}

/// Images depend on the translator: after a change of their format `LWP_BLESS=1` writes the corpus'
/// anew.
#[test]
fn the_corpus_has_an_image_of_this_translator() {
    let file = corpus("image").join("good");
    let image = lwp_fuzz::good_image();
    assert!(image.len() > 1000, "{}", image.len());
    if std::env::var_os("LWP_BLESS").is_some() {
        std::fs::write(&file, &image).expect("it can be written");
    }
    let stored = std::fs::read(&file).expect("an image");
    assert!(lwp_dbt::Image::parse(Box::new(stored)).is_ok(), "LWP_BLESS=1 writes it anew");
}

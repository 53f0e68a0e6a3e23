//! A driver for toolchains without coverage: the stored corpus, then mutations of it.

use std::path::Path;

use crate::mutate::Mutations;

/// A parser under attack.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its corpus' folder and of its program for cargo-fuzz.
    pub name: &'static str,
    /// The function under attack.
    pub body: fn(&[u8]),
}

/// Runs `target` on every file of `corpus`, and on `rounds` mutations of them that `seed` decides.
/// The bytes of what is being run stand in `scratch`, so that a crash leaves them behind; returns
/// how many files the corpus has.
///
/// # Errors
///
/// Where the corpus cannot be read or the scratch file not written.
pub fn drive(
    target: &Target,
    corpus: &Path,
    scratch: &Path,
    rounds: u32,
    seed: u64,
) -> std::io::Result<usize> {
    let mut files: Vec<_> = std::fs::read_dir(corpus)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    let seeds = files.iter().map(std::fs::read).collect::<std::io::Result<Vec<_>>>()?;
    for bytes in &seeds {
        std::fs::write(scratch, bytes)?;
        (target.body)(bytes);
    }
    let mut mutations = Mutations::new(&seeds, seed);
    for _ in 0..rounds {
        let bytes = mutations.next_bytes();
        std::fs::write(scratch, &bytes)?;
        (target.body)(&bytes);
    }
    std::fs::remove_file(scratch)?;
    Ok(seeds.len())
}

//! The compilers that a program was built with, as its file names them.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use lwp_profile::Profile;
use lwp_terminal::escape::printable;

/// The most bytes that are read of a table of sections, of names, and of compilers.
const MOST: u64 = 1 << 18;

/// Most characters that are kept.
const LONGEST: usize = 256;

/// The compilers' own words in the file at `path`, as in `GCC: (Debian 12.2.0-14) 12.2.0; rustc
/// version 1.95.0`. Their order means nothing.
pub fn of(path: &Path) -> Option<String> {
    let file = File::open(path).ok()?;
    let comment = section(&file, b".comment")?;
    let words: BTreeSet<String> = comment
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).trim().to_owned())
        .filter(|word| !word.is_empty())
        .collect();
    let words = words.into_iter().collect::<Vec<_>>().join("; ");
    (!words.is_empty()).then(|| words.chars().take(LONGEST).collect())
}

/// The contents of a section of an ELF file of 64 bits.
fn section(file: &File, name: &[u8]) -> Option<Vec<u8>> {
    const HEADER: u64 = 64;
    let header = read(file, (0, HEADER))?;
    header.starts_with(b"\x7fELF\x02\x01").then_some(())?;
    let [size, number, names] = [0x3a, 0x3c, 0x3e].map(|at| u64::from(half(&header, at)));
    (size == HEADER).then_some(())?;
    let table = read(file, (word(&header, 0x28), size * number))?;
    let sections: Vec<&[u8]> = table.chunks_exact(size as usize).collect();
    let contents = |section: &[u8]| read(file, (word(section, 0x18), word(section, 0x20)));
    let names = contents(sections.get(names as usize)?)?;
    let is_named = |section: &&&[u8]| {
        let at = u32::from_le_bytes([section[0], section[1], section[2], section[3]]) as usize;
        let rest = names.get(at..).and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    };
    contents(sections.iter().find(is_named)?)
}

/// So many bytes at a place.
fn read(file: &File, (at, length): (u64, u64)) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok().filter(|_| length <= MOST)?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// What is to be known of two builds by different compilers.
pub fn difference(before: &Profile, after: &Profile) -> Option<String> {
    let [old, new] = [before, after].map(|it| it.info("compilers"));
    let differ = !old.is_empty() && !new.is_empty() && old != new;
    let (old, new) = (printable(old), printable(new));
    differ.then(|| format!("the programs were built by different compilers: {old} -> {new}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_name_their_compilers() {
        let own = std::env::current_exe().expect("a path");
        assert!(of(&own).is_some_and(|words| words.contains("rustc version")));
        assert_eq!(of(Path::new("/etc/passwd")), None);
        assert_eq!(of(Path::new("/dev/null")), None);
    }

    #[test]
    fn other_files_are_no_trouble() {
        let place = std::env::temp_dir().join(format!("lwp-compilers-{}", std::process::id()));
        let own = std::fs::read(std::env::current_exe().expect("a path")).expect("a file");
        for at in [0x28, 0x3a, 0x3c, 0x3e] {
            let mut header = own[..4096].to_vec();
            header[at..at + 2].fill(0xff);
            std::fs::write(&place, &header).expect("a file");
            assert_eq!(of(&place), None, "{at:#x}");
        }
        std::fs::remove_file(&place).expect("a file");
    }
}

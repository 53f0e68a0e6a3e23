//! Tests of archives, and of what is taken from them.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::path::{Path, PathBuf};

use super::*;
use crate::file_identity::Segment;

/// A place for a store, and a store in it.
fn store(name: &str) -> (PathBuf, Store) {
    let place = std::env::temp_dir().join(format!("lwp-travel-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    let store = Store::open(&place, 64 << 20).unwrap();
    (place, store)
}

/// The description of an execution profile of this very test's file, the `number`th.
fn about_this(number: u128) -> Description {
    let path = std::env::current_exe().unwrap();
    let file = File::open(&path).unwrap();
    let stamp = Stamp::of(&file).unwrap();
    let start = (number << 12) as u64;
    let segments = vec![Segment { start, end: start + 0x8000, offset: 0x1000 }];
    let content = file_identity::content(&file, &segments).unwrap();
    let name = file_identity::name_of(&file, &stamp);
    assert!(name.1, "tests are linked with a build id");
    Description {
        stamp,
        content,
        address: 7,
        fragments: 8,
        path: path.to_str().unwrap().into(),
        code_bytes: (0, 0),
        origin: Origin::here(name, 0, segments).of_profile(),
    }
}

/// Bytes that can be compressed, but not away.
fn profile(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 29) as u8).collect()
}

fn exported(store: &Store) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.export(&mut bytes, &|_, _| true).unwrap();
    bytes
}

/// The fates of all entries, in their order, as far as the archive can be read.
fn imported(store: &Store, bytes: &[u8], all: bool) -> Result<Vec<String>, ArchiveError> {
    let mut fates = Vec::new();
    let mut said = |_: &Header, fate| {
        fates.push(match fate {
            Fate::Left(reason) => reason.to_string(),
            fate => format!("{fate:?}"),
        });
    };
    store.import(&mut Reader::new(bytes)?, all, &|_| true, &mut said)?;
    Ok(fates)
}

/// Promise: K14
#[test]
fn entries_arrive_as_they_were() {
    let (from, there) = store("there");
    let (to, here) = store("here");
    for number in [9, 3, 1 << 40] {
        let about = about_this(number);
        let image = profile(200_000 + number as usize % 100);
        there.save(about.origin.key(), &about, &[image]).unwrap();
    }
    let about = about_this(3);
    let key = about.origin.key();
    let bytes = exported(&there);
    assert!(bytes.len() < 400_000, "three times 200,000 bytes of three bits: {}", bytes.len());
    assert_eq!(imported(&here, &bytes, false).unwrap(), ["Taken"; 3]);
    let (header, image) = here.load(key, |header| header.stamp == about.stamp).unwrap();
    assert_eq!(image, profile(200_003));
    assert_eq!((header.fragments, &header.origin), (8, &about.origin));
    // Again, nothing is new; the same entries make the same bytes, wherever and in whatever order
    // they were written.
    assert_eq!(imported(&here, &bytes, false).unwrap(), ["Known"; 3]);
    assert_eq!(exported(&here), bytes);
    // More of the same is taken.
    there.save(key, &Description { fragments: 9, ..about }, &[profile(10)]).unwrap();
    let mut fates = imported(&here, &exported(&there), false).unwrap();
    fates.sort();
    assert_eq!(fates, ["Known", "Known", "Taken"]);
    [from, to].iter().for_each(|place| std::fs::remove_dir_all(place).unwrap());
}

/// Promise: K15, K18
#[test]
fn what_is_of_no_use_here_is_left() {
    let (from, there) = store("elsewhere");
    let (to, here) = store("left");
    let good = about_this(1);
    let with = |change: &dyn Fn(&mut Description)| {
        let mut about = good.clone();
        change(&mut about);
        there.clear().unwrap();
        there.save(about.origin.key(), &about, &[profile(100)]).unwrap();
        let bytes = exported(&there);
        let fates = [false, true].map(|all| imported(&here, &bytes, all).unwrap());
        here.clear().unwrap();
        fates.map(|fates| fates.join(" "))
    };
    assert_eq!(with(&|_| {}), ["Taken", "Known"]);
    let left = |reason: &str| [reason.to_owned(), reason.to_owned()];
    assert_eq!(with(&|it| it.origin.processor ^= 1), left(&Reason::Processor.to_string()));
    // They do not get into an archive.
    assert_eq!(with(&|it| it.origin.translator ^= 1), left(""));
    // A file without a build id is known by its code; this one has one.
    assert_eq!(with(&|it| it.origin.travels = false), left(&Reason::Changed.to_string()));
    let unless_all = |reason: Reason| [reason.to_string(), "Taken".to_owned()];
    assert_eq!(with(&|it| it.origin.module ^= 1), unless_all(Reason::Changed));
    assert_eq!(with(&|it| it.content ^= 1), unless_all(Reason::Changed));
    assert_eq!(with(&|it| it.path.push('x')), unless_all(Reason::Missing));
    assert_eq!(with(&|it| it.path = "[vdso]".into()), unless_all(Reason::Changed));
    assert_eq!(with(&|it| it.path = "../x".into()), unless_all(Reason::Missing));
    // Neither an image, though its hash is right, nor anything else that is not a profile and says
    // that it is one.
    let damaged = left(&Reason::Damaged.to_string());
    let code = |it: &mut Description| (it.code_bytes, it.origin.rest) = ((1, 1), 1);
    assert_eq!(with(&code), damaged);
    assert_eq!(with(&|it| it.code_bytes = (1, 1)), damaged);
    assert_eq!(with(&|it| it.origin.rest = 1), damaged);
    [from, to].iter().for_each(|place| std::fs::remove_dir_all(place).unwrap());
}

/// Promise: K14
#[test]
fn a_file_without_a_build_id_is_known_by_its_code() {
    let (from, there) = store("nameless");
    let (to, here) = store("found");
    let path = from.join("program");
    let about = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        let file = File::open(&path).unwrap();
        let stamp = Stamp::of(&file).unwrap();
        let segments = vec![Segment { start: 0, end: 0x1000, offset: 0 }];
        let content = file_identity::content(&file, &segments).unwrap();
        let name = file_identity::name_of(&file, &stamp);
        assert!(!name.1);
        let origin = Origin::here(name, 0, segments).of_profile();
        let path = path.to_str().unwrap().to_owned();
        Description { stamp, content, origin, path, ..about_this(1) }
    };
    let first = about(b"code of a program");
    there.save(first.origin.key(), &first, &[profile(100)]).unwrap();
    let bytes = exported(&there);
    // The same content in another inode, as on another machine.
    std::fs::rename(&path, from.join("other")).unwrap();
    let second = about(b"code of a program");
    assert_ne!(first.origin.key(), second.origin.key());
    assert_eq!(imported(&here, &bytes, false).unwrap(), ["Taken"]);
    assert!(here.header(first.origin.key()).is_none());
    assert_eq!(here.header(second.origin.key()).unwrap().origin, second.origin);
    assert_eq!(exported(&here), bytes);
    // Other content, or none: no name would be the right one.
    here.clear().unwrap();
    about(b"code of another one");
    assert_eq!(imported(&here, &bytes, true).unwrap(), [Reason::Changed.to_string()]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(imported(&here, &bytes, true).unwrap(), [Reason::Missing.to_string()]);
    [from, to].iter().for_each(|place| std::fs::remove_dir_all(place).unwrap());
}

/// Promise: K15
#[test]
fn files_that_do_things_when_opened_are_not_opened() {
    let (place, _) = store("things");
    let pipe = place.join("pipe");
    fs::mknodat(fs::CWD, &pipe, fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    assert!(ordinary_file(&text(&pipe)).is_none());
    assert!(ordinary_file("/dev/null").is_none() && ordinary_file(&text(&place)).is_none());
    assert!(ordinary_file("Cargo.toml").is_none(), "not absolute");
    assert!(ordinary_file(&text(&std::env::current_exe().unwrap())).is_some());
    std::fs::remove_dir_all(&place).unwrap();
}

/// Promise: K15
#[test]
fn no_damage_of_an_archive_gets_into_the_store() {
    let (from, there) = store("whole");
    let (to, here) = store("damaged");
    for (number, len) in [(1, 700), (2, 900)] {
        let about = about_this(number);
        there.save(about.origin.key(), &about, &[profile(len)]).unwrap();
    }
    let good = exported(&there);
    let same = |number: u128, len: usize| {
        let kept = here.load(about_this(number).origin.key(), |_| true);
        kept.is_none_or(|(_, image)| image == profile(len))
    };
    let noticed = |bytes: &[u8], what: &str| {
        here.clear().unwrap();
        let fates = imported(&here, bytes, false);
        assert!(same(1, 700) && same(2, 900), "{what}");
        !fates.is_ok_and(|fates| fates == ["Taken", "Taken"])
    };
    let mut unnoticed = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        unnoticed += usize::from(!noticed(&bad, &format!("a bit changed in byte {at}")));
    }
    // The last byte of a packed image has bits that mean nothing.
    assert!(unnoticed <= 2, "{unnoticed}");
    for len in 0..good.len() {
        assert!(noticed(&good[..len], &format!("cut off at {len}")), "cut off at {len}");
    }
    assert_eq!(imported(&here, &good, false).unwrap().len(), 2);
    [from, to].iter().for_each(|place| std::fs::remove_dir_all(place).unwrap());
}

/// Promise: K15
#[test]
fn lengths_are_not_believed() {
    let head = [&b"LWPCACHE"[..], &1u32.to_le_bytes()].concat();
    for (length, packed) in [(u32::MAX, 8), (4097, 8), (64, u64::MAX), (64, 1 << 40)] {
        let bytes = [&head[..], &u32::to_le_bytes(length), &u64::to_le_bytes(packed)].concat();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        assert!(matches!(reader.next_header(), Err(ArchiveError::Damaged { at: 12 })));
    }
    assert!(matches!(
        Reader::new(&b"LWPCACHE\x02\0\0\0"[..]),
        Err(ArchiveError::Version { found: 2 })
    ));
    assert!(matches!(Reader::new(&b"no"[..]), Err(ArchiveError::Foreign)));
}

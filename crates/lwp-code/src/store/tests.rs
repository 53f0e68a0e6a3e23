//! Tests of the store.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::file_identity::Stamp;

fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("lwp-store-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    place
}

fn about(path: &str) -> Description {
    let stamp = Stamp { device: 1, inode: 2, size: 3, modified: 4, changed: 5 };
    Description {
        stamp,
        content: 6,
        address: 7,
        fragments: 8,
        path: path.into(),
        code_bytes: (9, 30),
        origin: Origin::default(),
    }
}

/// Bytes that differ from each other.
fn image(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32)
        .map(|at| (at.wrapping_mul(0x9e37_79b1).wrapping_add(seed) >> 24) as u8)
        .collect()
}

fn path_of(place: &Path, key: Key) -> PathBuf {
    place.join("units").join(name_of(key).to_str().unwrap())
}

fn age(path: &Path, seconds: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

#[test]
fn what_was_saved_is_loaded() {
    let place = place("round");
    let store = Store::open(&place, 1 << 20).unwrap();
    let key = Key(0xabc);
    assert!(store.load(key, |_| true).is_none());
    store.save(key, &about("/bin/true"), &[image(10_000, 1)]).unwrap();
    let (header, loaded) = store.load(key, |header| header.stamp.inode == 2).unwrap();
    assert_eq!(loaded, image(10_000, 1));
    assert_eq!((header.key, header.content, header.address), (key, 6, 7));
    assert_eq!((header.fragments, &*header.path), (8, "/bin/true"));
    // A newer one replaces it; one that does not fit any more is removed.
    store.save(key, &about("/bin/true"), &[image(20_000, 2)]).unwrap();
    assert_eq!(store.load(key, |_| true).unwrap().1, image(20_000, 2));
    assert!(store.load(key, |_| false).is_none());
    assert!(store.load(key, |_| true).is_none());
    std::fs::remove_dir_all(&place).unwrap();
}

/// Promise: K2
#[test]
fn no_damage_goes_unnoticed() {
    let place = place("damage");
    let store = Store::open(&place, 1 << 20).unwrap();
    let key = Key(5);
    store.save(key, &about("/bin/true"), &[image(3000, 3)]).unwrap();
    let path = path_of(&place, key);
    let good = std::fs::read(&path).unwrap();
    let refused = |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(store.load(key, |_| true).is_none(), "{what}");
        assert!(!path.exists(), "{what}: not removed");
    };
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        refused(&bad, &format!("a bit changed in byte {at}"));
    }
    for len in (0..good.len()).step_by(61) {
        refused(&good[..len], &format!("cut off at {len}"));
    }
    refused(&[&good[..], &[0]].concat(), "a byte longer");
    // Under another key's name it is not that key's.
    let other = Key(6);
    std::fs::write(path_of(&place, other), &good).unwrap();
    assert!(store.load(other, |_| true).is_none());
    std::fs::write(&path, &good).unwrap();
    assert!(store.load(key, |_| true).is_some());
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn what_was_loaded_stays_when_its_file_is_written_over() {
    let place = place("over");
    let store = Store::open(&place, 1 << 20).unwrap();
    let key = Key(7);
    store.save(key, &about("/bin/true"), &[image(20_000, 1)]).unwrap();
    let path = path_of(&place, key);
    let good = std::fs::read(&path).unwrap();
    let (_, loaded) = store.load(key, |_| true).unwrap();
    // As `cp` does: the file is shortened, and written again, maybe with other bytes.
    std::fs::write(&path, []).unwrap();
    assert_eq!(loaded, image(20_000, 1));
    let flipped: Vec<u8> = good.iter().map(|byte| byte ^ 1).collect();
    std::fs::write(&path, flipped).unwrap();
    assert_eq!(loaded, image(20_000, 1));
    std::fs::remove_dir_all(&place).unwrap();
}

/// Promise: K2
#[test]
fn files_of_others_are_not_used() {
    let place = place("others");
    let store = Store::open(&place, 1 << 20).unwrap();
    let key = Key(9);
    let path = path_of(&place, key);
    for mode in [0o620, 0o602, 0o666] {
        store.save(key, &about("/bin/true"), &[image(100, 1)]).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert!(store.load(key, |_| true).is_none(), "mode {mode:o}");
        assert!(!path.exists());
    }
    store.save(key, &about("/bin/true"), &[image(100, 1)]).unwrap();
    let elsewhere = place.join("elsewhere");
    std::fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert!(store.load(key, |_| true).is_none(), "a symbolic link");
    std::fs::set_permissions(&elsewhere, std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::rename(&elsewhere, &path).unwrap();
    assert!(store.load(key, |_| true).is_some(), "readable by others");
    rustix::fs::mknodat(
        fs::CWD,
        path_of(&place, Key(10)),
        fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    assert!(store.load(Key(10), |_| true).is_none(), "a pipe, which nobody writes to");
    std::fs::remove_dir_all(&place).unwrap();
}

/// Promise: K5
#[test]
fn a_directory_that_others_may_write_to_is_no_store() {
    for outer in [true, false] {
        let place = place(if outer { "outer" } else { "inner" });
        drop(Store::open(&place, 1 << 20).unwrap());
        let open = if outer { place.clone() } else { place.join("units") };
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Store::open(&place, 1 << 20), Err(StoreError::Foreign { .. })));
        std::fs::remove_dir_all(&place).unwrap();
    }
    // A place for everybody, as /tmp is: links of one's own are followed, but that is where they
    // may not lead.
    let (link, target) = (place("link"), place("shared"));
    std::fs::create_dir(&target).unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o1777)).unwrap();
    symlink(&target, &link).unwrap();
    assert_eq!(refused(&link), link);
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0, "nothing is made there");
    std::fs::remove_file(&link).unwrap();
    std::fs::remove_dir(&target).unwrap();
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let place = place("prune");
    let store = Store::open(&place, 100 << 10).unwrap();
    for number in 0..10u32 {
        let key = Key(u128::from(number));
        store.save(key, &about("/bin/true"), &[image(10 << 10, number)]).unwrap();
        age(&path_of(&place, key), 100_000 - 1000 * u64::from(number));
    }
    // Use makes the oldest the youngest.
    assert!(store.load(Key(0), |_| true).is_some());
    std::fs::write(place.join("units/.new-1-1"), "left behind").unwrap();
    std::fs::write(place.join("units/.new-1-2"), "in the making").unwrap();
    age(&place.join("units/.new-1-1"), 3600);
    // 14 KiB each, 140 KiB together: six are 84 KiB.
    let (files, bytes) = store.prune().unwrap();
    assert_eq!((files, bytes), (5, 4 * (14 << 10) + 11));
    let left: Vec<u128> = (0..10).filter(|key| store.header(Key(*key)).is_some()).collect();
    assert_eq!(left, [0, 5, 6, 7, 8, 9]);
    assert!(place.join("units/.new-1-2").exists());
    assert_eq!(store.prune().unwrap(), (0, 0));
    assert_eq!(store.items().unwrap().len(), 6);
    assert_eq!(store.clear().unwrap().0, 7);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn what_is_too_large_is_not_kept() {
    let place = place("large");
    let store = Store::open(&place, 16 << 10).unwrap();
    assert!(store.save(Key(1), &about("/bin/true"), &[image(8 << 10, 1)]).is_err());
    assert_eq!(store.files().unwrap().len(), 0);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn many_may_write_the_same_unit() {
    let place = place("race");
    std::thread::scope(|scope| {
        for number in 0..8u32 {
            let place = &place;
            scope.spawn(move || {
                let store = Store::open(place, 64 << 20).unwrap();
                for round in 0..50 {
                    let len = 1000 + 100 * number as usize + round;
                    store.save(Key(1), &about("/bin/true"), &[image(len, number)]).unwrap();
                    let (_, loaded) = store.load(Key(1), |_| true).expect("whole at any time");
                    assert!(loaded.len() >= 1000);
                }
            });
        }
    });
    std::fs::remove_dir_all(&place).unwrap();
}

/// The path that keeps a store from being opened at `place`.
fn refused(place: &Path) -> PathBuf {
    match Store::open(place, 1 << 20) {
        Err(StoreError::Foreign { path }) => path,
        other => panic!("{other:?}"),
    }
}

/// Promise: K5
#[test]
fn the_way_to_the_store_is_closed_to_others() {
    let top = place("way");
    std::fs::create_dir(&top).unwrap();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let home = top.join("home");
    std::fs::create_dir(&home).unwrap();
    mode(&home, 0o777);
    assert_eq!(refused(&home.join("cache/lwp")), home);
    assert!(!home.join("cache").exists(), "nothing is made there");
    mode(&home, 0o1777);
    assert!(Store::open(&home.join("cache/lwp"), 1 << 20).is_ok(), "as in /tmp");
    mode(&home, 0o755);
    // Links of one's own are followed, step by step.
    symlink("home/../home", top.join("link")).unwrap();
    assert!(Store::open(&top.join("link/cache/lwp"), 1 << 20).is_ok());
    symlink("loop", top.join("loop")).unwrap();
    assert!(matches!(Store::open(&top.join("loop/lwp"), 1 << 20), Err(StoreError::Io { .. })));
    std::fs::remove_dir_all(&top).unwrap();
}

/// Promise: K5
#[test]
fn root_leaves_nothing_in_the_home_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make files of other users");
        return;
    }
    const NOBODY: u32 = 65534;
    let top = place("home");
    let home = top.join("home");
    std::fs::create_dir_all(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(NOBODY), None).unwrap();
    assert_eq!(refused(&home.join(".cache/lwp")), home);
    assert!(!home.join(".cache").exists());
    // A link of theirs is not followed, wherever it lies.
    std::fs::create_dir(top.join("mine")).unwrap();
    symlink("mine", top.join("theirs")).unwrap();
    std::os::unix::fs::lchown(top.join("theirs"), Some(NOBODY), None).unwrap();
    assert_eq!(refused(&top.join("theirs/lwp")), top.join("theirs"));
    assert!(!top.join("mine/lwp").exists());
    std::fs::remove_dir_all(&top).unwrap();
}

#[test]
fn what_is_verified_is_whole_or_removed() {
    let place = place("verify");
    let store = Store::open(&place, 1 << 20).unwrap();
    let origin = Origin::default().of_profile();
    let profile = Description { origin, code_bytes: (0, 0), ..about("/bin/true") };
    let key = profile.origin.key();
    store.save(key, &profile, &[image(3000, 1)]).unwrap();
    // Nothing that could be executed.
    store.save(Key(7), &about("/bin/true"), &[image(3000, 2)]).unwrap();
    let items = store.items().unwrap();
    let verified = |key: Key| {
        let item = items.iter().find(|item| item.name.as_c_str() == &*name_of(key)).unwrap();
        store.verify(item)
    };
    assert!(verified(key).is_ok());
    assert!(matches!(verified(Key(7)), Err(Fault::Damaged)));
    assert!(path_of(&place, key).exists() && !path_of(&place, Key(7)).exists());
    // It is gone by now, or cut off.
    assert!(verified(Key(7)).is_err());
    let path = path_of(&place, key);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(verified(key).is_err());
    assert_eq!(store.files().unwrap().len(), 0);
    std::fs::remove_dir_all(&place).unwrap();
}

#[test]
fn writers_that_are_left_behind_hold_the_store_together() {
    let place = place("held");
    let store = Store::open(&place, 1 << 20).unwrap();
    // Nobody writes.
    store.settle();
    let (one, other) = (store.lock_shared().unwrap(), store.lock_shared().unwrap());
    drop(one);
    let dir = fs::openat(&store.dir, c".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
    let dir = dir.unwrap();
    let alone = || fs::flock(&dir, fs::FlockOperation::NonBlockingLockExclusive);
    assert!(alone().is_err(), "the other one is still writing");
    drop(other);
    assert!(alone().is_ok());
    assert!(store.lock_shared().is_err());
    std::fs::remove_dir_all(&place).unwrap();
}

/// Promise: K19
#[test]
fn two_at_a_time_are_left_behind_to_write() {
    let place = place("writers");
    let store = Store::open(&place, 1 << 20).unwrap();
    let (one, other) = (store.writer_place().unwrap(), store.writer_place().unwrap());
    let again = Store::open(&place, 1 << 20).unwrap();
    assert!(store.writer_place().is_none() && again.writer_place().is_none());
    drop(one);
    let next = again.writer_place().expect("a place is free");
    assert!(store.writer_place().is_none());
    drop((other, next));
    // No unit, and nothing that is left unfinished.
    assert_eq!(store.files().unwrap().len(), 0);
    assert!(store.writer_place().is_some());
    std::fs::remove_dir_all(&place).unwrap();
}

/// Promise: K19
#[test]
fn changes_that_processes_make_at_a_time_all_take_effect() {
    let place = place("changes");
    let store = Store::open(&place, 1 << 20).unwrap();
    let key = Key(3);
    let longer = |found: Option<Vec<u8>>, by: u8| {
        let mut image = found.unwrap_or_default();
        image.push(by);
        Some((about("/bin/true"), image))
    };
    let add = |by: u8| Unplaced::update(&store, key, |_| true, |found| longer(found, by)).unwrap();
    // Another one writes between the look at what is there and the end of the change.
    let mut looks = 0;
    let slow = |found: Option<Vec<u8>>| {
        looks += 1;
        if looks == 1 {
            add(1);
        }
        longer(found, 0)
    };
    Unplaced::update(&store, key, |_| true, slow).unwrap();
    assert_eq!(store.load(key, |_| true).unwrap().1, [1, 0]);
    assert_eq!(looks, 2);
    std::thread::scope(|scope| {
        for by in 2..6 {
            scope.spawn(move || (0..25).for_each(|_| add(by)));
        }
    });
    let (_, all) = store.load(key, |_| true).unwrap();
    for by in 2..6 {
        assert_eq!(all.iter().filter(|it| **it == by).count(), 25, "{all:?}");
    }
    // What needs no change is left alone, and nothing is left unfinished.
    Unplaced::update(&store, key, |_| true, |_| None).unwrap();
    assert_eq!(store.load(key, |_| true).unwrap().1, all);
    assert_eq!(store.files().unwrap().len(), 1);
    std::fs::remove_dir_all(&place).unwrap();
}

/// Promise: K19
#[test]
fn a_file_that_is_worth_more_is_kept() {
    let place = place("worth");
    let store = Store::open(&place, 1 << 20).unwrap();
    let write = |fragments: u64, seed: u32| {
        let about = Description { fragments, ..about("/bin/true") };
        let new = store.write(Key(4), &about, &[image(3000, seed)]).unwrap();
        new.replace(|there| there.fragments > fragments).unwrap()
    };
    assert!(write(20, 1) && !write(10, 2));
    assert_eq!(store.load(Key(4), |_| true).unwrap().1, image(3000, 1));
    assert!(write(20, 3) && write(30, 4));
    assert_eq!(store.load(Key(4), |_| true).unwrap().1, image(3000, 4));
    // A file that gets no place does not stay.
    drop(store.write(Key(5), &about("/bin/true"), &[image(9, 5)]).unwrap());
    assert_eq!(store.files().unwrap().len(), 1);
    std::fs::remove_dir_all(&place).unwrap();
}

/// Promise: K19
#[test]
fn a_process_that_keeps_the_lock_keeps_nobody_waiting_for_long() {
    let place = place("stuck");
    let store = Store::open(&place, 1 << 20).unwrap();
    let file = File::create(place.join("replacing")).unwrap();
    fs::flock(&file, fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    for number in 0..100 {
        store.save(Key(number), &about("/bin/true"), &[image(100, 1)]).unwrap();
    }
    assert!(store.is_stuck.load(Ordering::Relaxed));
    assert_eq!(store.files().unwrap().len(), 100);
    std::fs::remove_dir_all(&place).unwrap();
}

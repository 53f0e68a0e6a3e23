//! Files of `/proc` in whose place a program has ours.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use lwp_calls::syscalls::{Pending, nr};
use lwp_dbt::Slot;

use super::needs::needs;
use super::script::Done::Called;
use super::stage::Stage;
use super::{leaf, pc_of};
use crate::machine::Need;

const PROC_SUPER_MAGIC: u32 = 0x9fa0;

/// Has what a thread has open at a descriptor hidden.
fn hide(stage: &Stage, file: &File) {
    let fd = file.as_raw_fd();
    let done = needs(stage, Need::Hide(fd), pc_of(leaf), |_| ());
    let replaced = |it: &_| matches!(it, Called(nr::DUP3, [_, to, ..]) if *to == fd as u64);
    assert!(done.iter().any(replaced), "{done:?}");
    stage.expect_entered(stage.tid, pc_of(leaf), &done);
}

/// The descriptor at which this process has our file of this name: no other test makes one.
fn ours(name: &str) -> i32 {
    let named = |fd: &i32| {
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        link.to_str() == Some(&format!("/memfd:{name} (deleted)"))
    };
    (0..4096).find(named).expect("our file")
}

/// Words that a call writes to.
fn room() -> Box<[AtomicU64; 64]> {
    Box::new([const { AtomicU64::new(u64::MAX) }; 64])
}

/// The call's description of what is open at `fd`, in the place where it puts it.
fn described(stage: &Stage, number: u64, fd: i32) -> Vec<u8> {
    let (told, empty) = (room(), Box::new(AtomicU64::new(0)));
    let (at, path) = (told.as_ptr() as u64, empty.as_ptr() as u64);
    let args = match number {
        nr::FSTAT | nr::FSTATFS | nr::FSTAT_32 | nr::FSTAT64_32 | nr::FSTATFS_32 => [at, 0, 0],
        nr::FSTATFS64_32 => [84, at, 0],
        nr::STATX => [path, 0, 0x7ff],
        _ => [path, at, 0],
    };
    let machine = stage.machine();
    machine.context(stage.tid).expect("it lives").set(Slot::R8, at);
    let call = Pending::new(number, [fd as u64, args[0], args[1], args[2]]);
    machine.proc_files().describe(stage.tid, &call);
    let words = told.iter().map(|word| word.load(Ordering::SeqCst).to_le_bytes());
    words.collect::<Vec<_>>().concat()
}

#[test]
fn what_a_call_says_of_our_file_is_what_it_says_of_the_real_one() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let file = File::open("/proc/self/limits").expect("a process has limits");
    hide(&stage, &file);
    let fd = ours("limits");
    let inode = file.metadata().expect("its metadata").ino();
    let half = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let word =
        |bytes: &[u8], at: usize| u64::from(half(bytes, at)) | u64::from(half(bytes, at + 4)) << 32;
    for (number, at) in [(nr::FSTAT, 8), (nr::NEWFSTATAT, 8), (nr::STATX, 32), (nr::FSTAT64_32, 88)]
    {
        assert_eq!(word(&described(&stage, number, fd), at), inode, "{number}");
        // Of another file nothing is to be said.
        let other = described(&stage, number, file.as_raw_fd());
        assert!(other.iter().all(|byte| *byte == 0xff), "{number}");
    }
    assert_eq!(half(&described(&stage, nr::FSTAT_32, fd), 4), inode as u32);
    for number in [nr::FSTATFS, nr::FSTATFS_32, nr::FSTATFS64_32] {
        let told = described(&stage, number, fd);
        assert_eq!(half(&told, 0), PROC_SUPER_MAGIC, "{number}");
    }
    // Nothing is written behind the end of a structure.
    for (number, bytes) in
        [(nr::FSTAT, 144), (nr::FSTATFS, 120), (nr::STATX, 256), (nr::FSTAT_32, 64)]
    {
        let told = described(&stage, number, fd);
        assert!(told[bytes..].iter().all(|byte| *byte == 0xff), "{number}");
    }
}

#[test]
fn our_file_is_read_anew_from_its_beginning_and_has_no_end() {
    const EINVAL: i64 = -22;
    const SEEK_END: u64 = 2;
    let (stage, _) = Stage::at(pc_of(leaf));
    let file = File::open("/proc/self/statm").expect("a process has sizes");
    hide(&stage, &file);
    let fd = ours("statm") as u64;
    let machine = stage.machine();
    let read =
        |number, args| machine.proc_files().about_to_read(stage.tid, &Pending::new(number, args));
    assert_eq!(read(nr::LSEEK, [fd, 0, 0, 0]), None);
    assert_eq!(read(nr::PREAD64, [fd, 0, 64, 0]), None);
    assert_eq!(read(nr::LSEEK, [fd, 0, SEEK_END, 0]), Some(EINVAL));
    let text = std::fs::read_to_string(format!("/proc/self/fd/{fd}")).expect("our file");
    assert_eq!(text.split_whitespace().filter(|word| word.parse::<u64>().is_ok()).count(), 7);
    // The kernel answers for other files.
    let other = file.as_raw_fd() as u64;
    assert_eq!(read(nr::LSEEK, [other, 0, SEEK_END, 0]), None);
}

#[test]
fn copies_of_our_file_are_watched_until_something_else_is_there() {
    let (stage, _) = Stage::at(pc_of(leaf));
    let file = File::open("/proc/self/personality").expect("a process has a personality");
    hide(&stage, &file);
    let (fd, tid) = (ours("personality"), stage.tid);
    let machine = stage.machine();
    let context = machine.context(tid).expect("it lives");
    let files = machine.proc_files();
    let tells =
        |number, fd: i32| files.tells_of_ours(tid, &Pending::new(number, [fd as u64, 0, 0, 0]));
    context.set(Slot::Watched, 0);
    files.note_copy(tid, -1);
    files.note_copy(tid, file.as_raw_fd());
    assert_eq!(context.get(Slot::Watched), 0);
    files.note_copy(tid, fd);
    assert_ne!(context.get(Slot::Watched), 0);
    assert!(tells(nr::FSTAT, fd) && tells(nr::DUP, fd));
    assert!(!tells(nr::GETPID, fd) && !tells(nr::FSTAT, file.as_raw_fd()));
    context.set(Slot::Watched, 0);
    files.watch_inherited(tid);
    assert_ne!(context.get(Slot::Watched), 0);
}

#[test]
fn every_file_that_shows_us_is_replaced_by_one_that_does_not() {
    let (stage, _) = Stage::at(pc_of(leaf));
    for name in ["smaps", "smaps_rollup", "numa_maps", "stat", "status", "syscall", "wchan"] {
        // Some kernels have fewer.
        let Ok(file) = File::open(format!("/proc/self/{name}")) else { continue };
        hide(&stage, &file);
        let fd = ours(&name.replace('_', ""));
        let text = std::fs::read(format!("/proc/self/fd/{fd}")).expect("our file");
        let text = String::from_utf8_lossy(&text);
        assert!(!text.is_empty(), "{name}");
        if name == "status" {
            assert!(text.lines().any(|line| line == "TracerPid:\t0"), "{text}");
            assert!(text.lines().any(|line| line == "State:\tR (running)"), "{text}");
        }
    }
}

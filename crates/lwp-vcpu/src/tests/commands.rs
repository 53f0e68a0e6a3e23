//! Commands that a program writes to its control line.

use std::io::pipe;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use lwp_calls::syscalls::nr;
use lwp_dbt::{RequestKind, Slot};
use lwp_run::config::{ControlLine, Plan};

use super::{Answer, Scene, leaf, pc_of};
use crate::machine::Need;

/// A run whose control line is the pipe at a descriptor.
fn with_line(fd: i32) -> Scene {
    let file = std::fs::metadata(format!("/proc/self/fd/{fd}")).expect("it is open");
    let line = ControlLine { device: file.dev(), inode: file.ino() };
    Scene::of(|config| config.counted.control_line = Some(line), Plan::Exact)
}

/// The thread makes a call that returns `result`; what comes of it.
fn written(scene: &mut Scene, number: u64, args: [u64; 3], result: i64) -> Answer {
    let [a1, a2, a3] = args;
    scene.set(Slot::Rax, number).set(Slot::Rdi, a1).set(Slot::Rsi, a2).set(Slot::Rdx, a3);
    assert_eq!(scene.ask(RequestKind::Syscall, pc_of(leaf)), Answer::Does);
    if scene.thread().pending.is_none() {
        return Answer::Nothing;
    }
    scene.set(Slot::Rax, result as u64);
    scene.ask(RequestKind::SyscallDone, pc_of(leaf) + 2)
}

/// A place in the program's memory.
fn at<T: ?Sized>(it: &T) -> u64 {
    std::ptr::from_ref(it).cast::<u8>() as u64
}

#[test]
fn a_thread_that_has_written_commands_waits_until_they_have_taken_effect() {
    let (_reader, writer) = pipe().expect("a pipe");
    let fd = writer.as_raw_fd() as u64;
    let goes = Answer::Goes(pc_of(leaf) + 2);
    let mut scene = with_line(writer.as_raw_fd());
    let text: Box<[u8]> = (*b"enable\n\ndisable\0ena").into();
    let all = text.len() as i64;
    let write = |scene: &mut Scene, fd, from: usize, bytes: i64| {
        let place = at(&text[from..]);
        written(scene, nr::WRITE, [fd, place, (text.len() - from) as u64], bytes)
    };
    assert_eq!(write(&mut scene, fd, 0, all), Answer::Needs(Need::Obey(2)));
    // The third goes on where it was left; of a call, only what has been written counts.
    assert_eq!(write(&mut scene, fd, 0, 3), goes);
    assert_eq!(write(&mut scene, fd, 6, 1), Answer::Needs(Need::Obey(1)));
    assert_eq!(write(&mut scene, fd, 0, -11), goes, "nothing has been written");
    // Other files take no commands.
    let (_other, elsewhere) = pipe().expect("a pipe");
    let other = write(&mut scene, elsewhere.as_raw_fd() as u64, 0, all);
    assert!(matches!(other, Answer::Nothing) || other == goes, "{other:?}");
}

#[test]
fn commands_may_be_written_in_pieces() {
    let (_reader, writer) = pipe().expect("a pipe");
    let fd = writer.as_raw_fd() as u64;
    let mut scene = with_line(writer.as_raw_fd());
    let (one, two): (Box<[u8]>, Box<[u8]>) = ((*b"ena").into(), (*b"ble\ndisable\n").into());
    let parts = Box::new([at(&*one), 3, 8, 0, at(&*two), 12]);
    let writes = |scene: &mut Scene, bytes| written(scene, nr::WRITEV, [fd, at(&*parts), 3], bytes);
    assert_eq!(writes(&mut scene, 15), Answer::Needs(Need::Obey(2)));
    assert_eq!(writes(&mut scene, 7), Answer::Needs(Need::Obey(1)));
    // Buffers that are gone by then say nothing, however many there are said to be.
    let gone = written(&mut scene, nr::WRITEV, [fd, 8, u64::MAX], 15);
    assert_eq!(gone, Answer::Goes(pc_of(leaf) + 2));
    let gone = written(&mut scene, nr::WRITE, [fd, 8, u64::MAX], i64::MAX);
    assert_eq!(gone, Answer::Goes(pc_of(leaf) + 2));
}

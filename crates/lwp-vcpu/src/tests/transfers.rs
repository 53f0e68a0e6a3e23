//! System calls that have moved a part of their bytes when they are interrupted.
//!
//! Promise: F17

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use lwp_calls::syscalls::Transfer;
use lwp_calls::syscalls::nr::{GETRANDOM, WRITE, WRITEV};
use lwp_dbt::Slot;
use lwp_process::regs::Regs;

use super::Scene;

const READ: u64 = 0;
const READV: u64 = 19;
const SENDFILE: u64 = 40;
const RECVFROM: u64 = 45;
const SENDMSG: u64 = 46;
const RECVMSG: u64 = 47;
const RECVMMSG: u64 = 299;
const SENDMMSG: u64 = 307;
const IO_URING_ENTER: u64 = 426;
const MSG_WAITALL: u64 = 0x100;
const MSG_WAITFORONE: u64 = 0x1_0000;
const GETEVENTS: u64 = 1;
const MMSGHDR: u64 = 64;

/// The number of a call, its result, its first four arguments and the fifth.
type Call = (u64, u64, [u64; 4], u64);

/// The arguments for the rest of a call.
fn rest(scene: &Scene, (number, done, args, fifth): Call) -> Option<[u64; 4]> {
    let mut regs = Regs::default();
    (regs.0.orig_rax, regs.0.rax, regs.0.r8) = (number, done, fifth);
    [regs.0.rdi, regs.0.rsi, regs.0.rdx, regs.0.r10] = args;
    let transfer = Transfer::interrupted(scene.context(), scene.tid, &regs)?;
    transfer.pass_on(&mut regs);
    let rest = [regs.0.rdi, regs.0.rsi, regs.0.rdx, regs.0.r10];
    transfer.put_back(scene.tid, &mut regs, 1);
    assert_eq!([regs.0.rdi, regs.0.rsi, regs.0.rdx, regs.0.r10], args);
    assert_eq!(regs.0.rax, done + 1);
    Some(rest)
}

fn fd(file: &impl AsRawFd) -> u64 {
    file.as_raw_fd() as u64
}

/// A place in the program's memory.
fn at<T: ?Sized>(it: &T) -> u64 {
    std::ptr::from_ref(it).cast::<u8>() as u64
}

/// Words of a vector: buffers of 10, 0 and 20 bytes.
const VECTOR: [u64; 6] = [0x1000, 10, 0x2000, 0, 0x3000, 20];

#[test]
fn only_what_would_have_moved_all_of_its_bytes_goes_on() {
    let scene = Scene::exact();
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    let (socket, _other) = UnixDatagram::pair().expect("sockets");
    let file = File::open(std::env::current_exe().expect("a path")).expect("this program");
    let zero = File::open("/dev/zero").expect("a device");
    let null = File::open("/dev/null").expect("a device");
    let [pipe, socket, file, zero, null] =
        [fd(&writer), fd(&socket), fd(&file), fd(&zero), fd(&null)];
    let bytes = |fd: u64| [fd, 0x1000, 100, 0];
    let left = |fd: u64| Some([fd, 0x1000 + 30, 70, 0]);
    for (number, fd, expected) in [
        (WRITE, pipe, left(pipe)),
        (WRITE, socket, left(socket)),
        (WRITE, null, left(null)),
        (WRITE, file, None),
        (READ, zero, left(zero)),
        (READ, null, None),
        (READ, pipe, None),
        // Nobody knows what is not open.
        (WRITE, u64::from(u32::MAX), None),
        (SENDFILE, pipe, None),
    ] {
        assert_eq!(rest(&scene, (number, 30, bytes(fd), 0)), expected, "{number} of {fd}");
    }
    let sends = [socket, file, 0, 100];
    assert_eq!(rest(&scene, (SENDFILE, 30, sends, 0)), Some([socket, file, 0, 70]));
    let random = [0x1000, 100, 7, 0];
    assert_eq!(rest(&scene, (GETRANDOM, 30, random, 0)), Some([0x1030 - 18, 70, 7, 0]));
    let waits = [socket, 0x1000, 100, MSG_WAITALL];
    let expected = Some([socket, 0x1000 + 30, 70, MSG_WAITALL]);
    assert_eq!(rest(&scene, (RECVFROM, 30, waits, 0)), expected);
    // Nothing has been moved, or more than any call moves, or the call has failed.
    for done in [0, 100, 0x7fff_f001, -4_i64 as u64] {
        assert_eq!(rest(&scene, (WRITE, done, bytes(pipe), 0)), None, "{done:#x}");
    }
}

#[test]
fn the_rest_of_a_vector_is_put_into_the_context() {
    let scene = Scene::exact();
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    let zero = File::open("/dev/zero").expect("a device");
    let vector = Box::new(VECTOR);
    let place = scene.context().vector_address();
    for (number, fd) in [(WRITEV, fd(&writer)), (READV, fd(&zero))] {
        let call = |done, at, parts| (number, done, [fd, at, parts, 0], 0);
        let own = at(&*vector);
        assert_eq!(rest(&scene, call(4, own, 3)), Some([fd, place, 2, 0]));
        assert_eq!(rest(&scene, call(10, own, 3)), Some([fd, place, 1, 0]));
        assert_eq!(rest(&scene, call(30, own, 3)), None);
        assert_eq!(rest(&scene, call(4, own, 0)), None);
        // A vector that cannot be read.
        assert_eq!(rest(&scene, call(4, 8, 3)), None);
    }
}

/// A message of that vector, with so much ancillary data at a place.
fn message(vector: &[u64; 6], control: (u64, u64)) -> Box<[u64; 8]> {
    Box::new([0, 0, at(vector), 3, control.0, control.1, 0, 30])
}

#[test]
fn the_rest_of_a_message_is_one_of_its_own() {
    let scene = Scene::exact();
    let (vector, ancillary) = (Box::new(VECTOR), Box::new([24_u64, 1 | 1 << 32, 7]));
    let place = scene.context().vector_address();
    let plain = message(&vector, (0, 0));
    let descriptors = message(&vector, (at(&*ancillary), 24));
    let endless = message(&vector, (at(&*ancillary), 1 << 20));
    let call = |number, message: &[u64; 8], flags| (number, 4, [9, at(message), flags, 0], 0);
    let expected = |flags| Some([9, place, flags, 0]);
    assert_eq!(rest(&scene, call(SENDMSG, &plain, 0)), expected(0));
    assert_eq!(rest(&scene, call(SENDMSG, &descriptors, 0)), expected(0));
    assert_eq!(rest(&scene, call(SENDMSG, &endless, 0)), None);
    assert_eq!(rest(&scene, call(RECVMSG, &plain, 0)), None);
    assert_eq!(rest(&scene, call(RECVMSG, &descriptors, MSG_WAITALL)), None);
    assert_eq!(rest(&scene, (SENDMSG, 4, [9, 8, 0, 0], 0)), None);
    // Where the flags of the rest cannot be read, those of the first part stay.
    assert_eq!(rest(&scene, call(RECVMSG, &plain, MSG_WAITALL)), expected(MSG_WAITALL));
    assert_eq!(plain[6], 0);
}

#[test]
fn messages_behind_those_that_have_been_moved_are_left() {
    let scene = Scene::exact();
    let vector = Box::new(VECTOR);
    let (whole, mut part) = (message(&vector, (0, 0)), message(&vector, (0, 0)));
    part[7] = 29;
    let messages: Box<[[u64; 8]; 2]> = Box::new([*whole, *part]);
    let own = at(&*messages);
    let call = |number, done, many, flags, fifth| (number, done, [9, own, many, flags], fifth);
    let left = |many, flags| Some([9, own + MMSGHDR, many, flags]);
    assert_eq!(rest(&scene, call(SENDMMSG, 1, 5, 0, 0)), left(4, 0));
    assert_eq!(rest(&scene, call(SENDMMSG, 1, 1, 0, 0)), None);
    // A part of the last one has been sent: the kernel has reported that.
    assert_eq!(rest(&scene, call(SENDMMSG, 2, 5, 0, 0)), None);
    assert_eq!(rest(&scene, call(RECVMMSG, 1, 5, 0, 0)), left(4, 0));
    assert_eq!(rest(&scene, call(RECVMMSG, 1, 5, MSG_WAITFORONE, 0)), None);
    let (time, over) = (Box::new([1_u64, 0]), Box::new([0_u64, 0]));
    assert_eq!(rest(&scene, call(RECVMMSG, 1, 5, 0, at(&*time))), left(4, 0));
    assert_eq!(rest(&scene, call(RECVMMSG, 1, 5, 0, at(&*over))), None);
    assert_eq!(rest(&scene, call(RECVMMSG, 1, 5, 0, 8)), None);
}

#[test]
fn a_wait_for_completions_submits_nothing_again() {
    let scene = Scene::exact();
    assert_eq!(scene.context().get(Slot::Resp), 0);
    let call = |done, submits, waits, flags| (IO_URING_ENTER, done, [9, submits, waits, flags], 0);
    assert_eq!(rest(&scene, call(2, 2, 3, GETEVENTS)), Some([9, 0, 3, GETEVENTS]));
    for (done, waits, flags) in [(1, 3, GETEVENTS), (2, 0, GETEVENTS), (2, 3, 0)] {
        assert_eq!(rest(&scene, call(done, 2, waits, flags)), None, "{done} {waits} {flags}");
    }
}

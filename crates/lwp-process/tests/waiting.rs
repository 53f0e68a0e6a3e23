//! Waiting for a tracee's stop ends, whatever the tracee does.
//!
//! Promise: B4

use std::ffi::OsStr;

use lwp_process::limits::Room;
use lwp_process::sys::{self, Errno};
use lwp_process::{Tracee, spawn};

const SIGKILL: i32 = 9;
const ETIMEDOUT: Errno = Errno(110);

fn started(argv: &[&str]) -> Tracee {
    let tracee = spawn::spawn(OsStr::new(argv[0]), argv, None, false, Room::default());
    let tracee = tracee.unwrap_or_else(|error| panic!("{argv:?}: {error:?}"));
    tracee.cont(0).expect("it stands at its exec");
    tracee
}

#[test]
fn a_tracee_that_does_not_stop_is_not_waited_for_for_ever() {
    let tracee = started(&["/bin/sleep", "1000"]);
    assert_eq!(sys::wait_stop(tracee.0), Err(ETIMEDOUT));
    // It is still there, and its stop is found when there is one.
    sys::interrupt(tracee.0).expect("it runs");
    assert!(sys::wait_stop(tracee.0).is_ok());
    sys::kill(tracee.0, SIGKILL).expect("it is there");
}

#[test]
fn the_end_of_a_tracee_is_left_to_be_waited_for() {
    let tracee = started(&["/bin/sh", "-c", "exit 7"]);
    let end = loop {
        match sys::wait_stop(tracee.0) {
            Ok(_) => tracee.cont(0).expect("it stands still"),
            Err(error) => break error,
        }
    };
    assert_eq!(end, Errno::ESRCH);
    assert_eq!(sys::wait_one(tracee.0), Ok(7 << 8));
}

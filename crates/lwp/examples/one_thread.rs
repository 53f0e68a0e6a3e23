//! A profile that several threads share runs on one of them at a time.
//!
//!     lwp run -- target/debug/examples/one_thread
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example is short")]
#![allow(clippy::disallowed_methods, reason = "an example is short")]

use std::sync::mpsc::channel;
use std::thread;

use lwp::{Active, Error, EventKind, Lwp, Profile};

/// A structure can hold a profile and its run, because an [`Active`] borrows nothing.
struct Session {
    running: Option<Active>,
    profile: Profile,
}

impl Session {
    fn start(&mut self) -> Result<(), Error> {
        self.running = Some(self.profile.activate()?);
        Ok(())
    }

    fn stop(&mut self) {
        if let Some(active) = self.running.take() {
            active.stop();
        }
    }
}

fn main() -> Result<(), Error> {
    let lwp = Lwp::detect()?;
    let (profile, _reader) = lwp.profile().event(EventKind::BranchesRetired, 100).build()?;
    let (started, is_started) = channel();
    let (stop, is_stopped) = channel::<()>();
    thread::scope(|scope| {
        let profile = &profile;
        let other = scope.spawn(move || {
            let active = profile.activate()?;
            let _ = started.send(());
            // Until the main thread hangs up.
            let _ = is_stopped.recv();
            active.stop();
            Ok::<(), Error>(())
        });
        let _ = is_started.recv();
        assert_eq!(profile.activate().err(), Some(Error::Running), "the other thread runs it");
        drop(stop);
        other.join().expect("the other thread ends")
    })?;

    let mut session = Session { running: None, profile };
    session.start()?;
    assert_eq!(session.profile.activate().err(), Some(Error::Busy), "this thread runs it");
    session.stop();
    session.start()?;
    println!("one thread at a time, and again afterwards");
    Ok(())
}

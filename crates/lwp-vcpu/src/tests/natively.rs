//! Programs that run without the virtual CPU.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use lwp_run::config::{Config, Control, Plan, Request, Target};
use lwp_run::outcome::{Error, ExitStatus};

use crate::native_run;

/// The variable that says to a test program that it is one of these.
const WAITS: &str = "LWP_TEST_WAITS";
const SIGTERM: i32 = 15;

/// This test's own program, which does nothing, or waits to be ended.
fn program(waits: bool) -> Config {
    let program = std::env::current_exe().expect("a path");
    let only = "tests::natively::a_program_that_takes_too_long_is_ended";
    let words: &[&str] =
        if waits { &["test", "--exact", only] } else { &["test", "--list", "--format=terse", "-"] };
    let argv = words.iter().map(Into::into).collect();
    let mut config = Config::launch(program, argv, Plan::Exact);
    let variables = if waits { vec![(WAITS.into(), "1".into())] } else { Vec::new() };
    config.program.environment = Some(variables);
    config
}

#[test]
fn a_program_that_runs_natively_is_reported_as_not_counted() {
    let outcome = native_run::run(&program(false), None, "no room").expect("it runs");
    assert_eq!(outcome.status, ExitStatus::Code(0));
    let [process] = &outcome.processes[..] else { panic!("{:?}", outcome.processes) };
    assert_eq!(process.command, "test --list --format=terse -");
    assert_eq!(process.uncounted.as_deref(), Some("ran natively: no room"));
    assert!(process.threads.is_empty() && outcome.host.is_zero());
}

#[test]
fn a_program_that_takes_too_long_is_ended() {
    if std::env::var_os(WAITS).is_some() {
        loop {
            std::thread::park();
        }
    }
    let mut config = program(true);
    config.program.timeout = Some(Duration::ZERO);
    let outcome = native_run::run(&config, None, "no room").expect("it runs");
    assert_eq!(outcome.status, ExitStatus::Signal { signal: SIGTERM, core: false });
}

#[test]
fn a_program_that_runs_natively_can_be_ended_on_request() {
    let (requests, asked) = channel();
    let (heard, acknowledged) = channel();
    let control = Control { requests: asked, done: heard, reports: None };
    for request in [Request::Disable, Request::Stop] {
        requests.send(request).expect("somebody listens");
    }
    let outcome = native_run::run(&program(true), Some(control), "no room").expect("it runs");
    assert_eq!(outcome.status, ExitStatus::Signal { signal: SIGTERM, core: false });
    assert_eq!(acknowledged.try_iter().collect::<Vec<_>>(), [Request::Disable, Request::Stop]);
}

#[test]
fn what_cannot_be_started_is_refused() {
    let mut config = program(false);
    let nowhere = std::env::temp_dir().join("lwp-there-is-no-such-program");
    config.target = Target::Launch { program: nowhere.clone(), argv: vec!["it".into()] };
    match native_run::run(&config, None, "no room") {
        Err(Error::NotFound { program }) => assert_eq!(PathBuf::from(program), nowhere),
        other => panic!("{other:?}"),
    }
    // What runs already does so natively, or not at all.
    config.target = Target::Attach { pid: 1 };
    let refused = native_run::run(&config, None, "no room");
    assert!(matches!(refused, Err(Error::Machine { what, .. }) if what == "no room"));
}

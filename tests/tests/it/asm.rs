//! The assembly programs of `tests/asm` on the reference runner, and on a second processor if there
//! is one: both must leave the same bytes.
//!
//! Promise: W3

use lwp_tests::asm::{SecondRunner, asm_programs, run, without_time_stamps};
use lwp_tests::{End, TempDir};
use std::path::Path;

/// The reference runner.
const REFERENCE: &str = env!("CARGO_BIN_EXE_lwp-reference");

/// Runs every program whose name begins with `prefix`.
fn check(prefix: &str) {
    let dir = TempDir::new();
    let second = SecondRunner::find(dir.path());
    let mut faults = String::new();
    for program in asm_programs(prefix) {
        let built = program.build(dir.path());
        let (found, outcome) = program.check_on_reference(&built, Path::new(REFERENCE), dir.path());
        faults += &found;
        let Some(second) = &second else { continue };
        let only_reference = program.value("only") == Some("reference");
        let options: Vec<&str> = program.options().collect();
        let command = second.command_with(program.cpu(), &options, &built.path);
        let Some(command) = command.filter(|_| !only_reference) else { continue };
        let other = run(command, dir.path());
        if other.end != outcome.end || other.end == End::TimedOut {
            faults += &format!(
                "{}: the second processor ended with {:?}, the reference with {:?}\n",
                program.name, other.end, outcome.end
            );
        } else if without_time_stamps(&other.stdout) != without_time_stamps(&outcome.stdout) {
            let found = program.faults(&built, &other);
            faults += &format!("{}: the second processor differs\n{found}", program.name);
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
}

/// One test per first word of the file names.
macro_rules! groups {
    ($($group:ident,)*) => {
        $(#[test]
        fn $group() {
            check(concat!(stringify!($group), "_"));
        })*

        /// No program is left out.
        #[test]
        fn every_program_is_in_a_group() {
            for program in asm_programs("") {
                let group = program.name.split('_').next().unwrap_or_default();
                assert!([$(stringify!($group)),*].contains(&group), "{}", program.name);
                assert!(program.value("spec").is_some(), "{}: no spec line", program.name);
            }
        }
    };
}

groups! {
    event,
    filter,
    ring,
    insn,
    block,
    fault,
    system,
    proposal,
}

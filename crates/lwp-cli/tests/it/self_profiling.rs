//! Programs that profile themselves with Lightweight Profiling, while they are counted.
//!
//! Promise: W26

use std::path::{Path, PathBuf};

use crate::shared::{recorded, tools};

use recorded::lwp;

/// Events, as in Flags, and an interval.
const PROFILES: [[&str; 2]; 5] =
    [["0x4", "99"], ["0x8", "7"], ["0xe", "9"], ["0xe", "1000"], ["0x0", "0"]];

/// The functions whose instructions are told apart.
const FUNCTIONS: [&str; 4] = ["deep", "large", "leaf", "small"];

/// The program, in a directory of its own; `None` where there is no compiler.
fn program(name: &str) -> Option<PathBuf> {
    let dir = tools::fresh("self-profiling", name);
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let include = format!("-I{}", include.display());
    recorded::compile(&dir, "selfmade.c", &["-O1", "-static", &include]).then_some(dir)
}

/// Runs lwp on the program; what that printed, and what lwp did.
fn printed(dir: &Path, options: &[&str], profile: [&str; 2]) -> (String, String) {
    let words = [options, &["--deterministic", "--", "./program"], &profile].concat();
    lwp(dir, &words)
}

/// The numbers of events that `stat` says, in its order.
fn counts(dir: &Path, options: &[&str], profile: [&str; 2]) -> Vec<u64> {
    let (_, stderr) = printed(dir, &[&["stat", "-x,"], options].concat(), profile);
    let numbers = stderr.lines().filter_map(|line| line.split(',').next()?.parse().ok());
    numbers.collect()
}

/// A program has its records under every command that counts it.
#[test]
fn a_program_that_is_counted_keeps_its_records() {
    let Some(dir) = program("records") else { return };
    for profile in PROFILES {
        let alone = printed(&dir, &["run"], profile).0;
        assert_eq!(alone.len(), 17, "{alone}");
        for options in [
            &["stat"][..],
            &["stat", "-e", "instructions,branches"],
            &["record", "-q", "-o", "exact"],
            &["record", "-q", "-o", "inferred", "--call-graph", "inferred"],
        ] {
            assert_eq!(printed(&dir, options, profile).0, alone, "{options:?} {profile:?}");
        }
    }
}

/// Nothing counts but what the program executes: as many instructions as if its profiles had no
/// events.
#[test]
fn a_program_s_own_profile_does_not_change_its_counts() {
    let Some(dir) = program("counts") else { return };
    for profile in PROFILES {
        let own = counts(&dir, &[], profile);
        let none = counts(&dir, &["--lwp-events", "none"], profile);
        assert!(own.len() > 2 && own[0] > 100_000, "{own:?}");
        assert_eq!(own, none, "{profile:?}");
        let two = counts(&dir, &["-e", "branches,instructions"], profile);
        assert_eq!(two, [own[1], own[0]], "{profile:?}");
    }
}

/// A recording has each function's instructions, with what it called, as they are without events.
#[test]
fn recordings_of_a_program_that_profiles_itself_are_exact() {
    let Some(dir) = program("recordings") else { return };
    let functions = |options: &[&str], profile| {
        printed(&dir, &[&["record", "-q", "-o", "exact"], options].concat(), profile);
        let report = lwp(&dir, &["report", "-i", "exact", "--format", "csv"]).0;
        let is_one = |line: &&str| FUNCTIONS.iter().any(|name| line.ends_with(name));
        let mut lines: Vec<String> = report.lines().filter(is_one).map(str::to_owned).collect();
        lines.sort_by_key(|line| line.rsplit(',').next().map(str::to_owned));
        lines
    };
    for profile in PROFILES {
        let own = functions(&[], profile);
        assert_eq!(own.len(), FUNCTIONS.len(), "{own:?}");
        assert_eq!(own, functions(&["--lwp-events", "none"], profile), "{profile:?}");
    }
}

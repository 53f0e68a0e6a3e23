//! Facts: the rows that a store of many recordings keeps.

use lwp_facts::Facts;
use lwp_profile::{Profile, Recording};
use lwp_symbols::stable_function_name;

/// The facts of a recording and its profile.
pub fn of(recording: &Recording, profile: &Profile) -> Facts {
    let mut facts = Facts::of(profile, &stable_function_name);
    facts.run.complete = recording.complete;
    facts
}

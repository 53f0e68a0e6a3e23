//! A profile's places for the numbers of a sampled recording.

use std::collections::BTreeMap;

use lwp_profile::{Mode, Recording, StackId, ThreadId};
use rustc_hash::FxHashMap;

use super::{Options, Resolved, Resolver, sampled_events};

/// The numbers in a profile of what a sampled recording numbers in its own way.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Threads by serial number.
    pub threads: BTreeMap<u32, ThreadId>,
    /// Stacks by their innermost frame.
    pub stacks: FxHashMap<u32, StackId>,
}

/// Finds the names for everything in a sampled `recording`, and where its threads and stacks are in
/// the profile.
pub fn profile_with_places(recording: &Recording, options: &Options) -> (Resolved, Places) {
    let events = sampled_events(recording);
    let mut resolver = Resolver::new(recording, options, Mode::Sampled, events);
    resolver.samples();
    let (warnings, debug_files) = (resolver.warnings(), resolver.files.used());
    let (threads, stacks) = (resolver.threads, resolver.stacks);
    let (profile, now) = resolver.builder.finish_renumbered();
    let places = Places {
        threads: threads.iter().map(|(serial, id)| (*serial, now.threads[id.index()])).collect(),
        stacks: stacks.iter().map(|(frame, id)| (*frame, now.stacks[id.index()])).collect(),
    };
    (Resolved { profile, warnings, debug_files }, places)
}

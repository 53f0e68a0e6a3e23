//! Threads of a profile, for formats whose viewers show one at a time.

use std::collections::BTreeSet;

use lwp_profile::{Inferred, Profile, ThreadId};

use crate::one_line;

/// A thread, its title, and its stacks.
pub struct OfThread {
    /// The thread.
    pub id: ThreadId,
    /// Its name and number, as in `worker (8)`.
    pub title: String,
    /// Its stacks.
    pub stacks: Inferred,
}

/// The threads that have counted something, each with its stacks.
pub fn by_thread(profile: &Profile, event: usize) -> Vec<OfThread> {
    let threads: BTreeSet<ThreadId> = profile.samples.iter().map(|it| it.thread).collect();
    let of = |id: ThreadId| {
        let thread = &profile.threads[id.index()];
        let title = format!("{} ({})", one_line(&thread.comm), thread.tid);
        OfThread { id, title, stacks: Inferred::of_thread(profile, event, id) }
    };
    threads.into_iter().map(of).collect()
}

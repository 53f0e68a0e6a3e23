//! Samples are added up: all of them, or those that a selection leaves.

use std::sync::Arc;

use lwp_profile::{Sampled, Samples, Shape, StackId, ThreadId, Tree};
use lwp_report::annotate::Counts;

use crate::language::Language;
use crate::selection::{Selection, Who};
use crate::subject::Subject;

/// Samples of one thread and event, or a part of them.
struct Run<'a> {
    event: usize,
    /// Events that a sample stands for.
    unit: u64,
    stacks: &'a [(StackId, u32)],
}

/// Returns true if a thread meets all conditions of a selection on threads.
pub fn meets(subject: &Subject, selection: &Selection, thread: ThreadId) -> bool {
    let number = thread.index();
    let Some(thread) = subject.profile().threads.get(number) else { return false };
    selection.who.iter().all(|who| match who {
        Who::Language(_) => true,
        who => who.meets(number, thread, Language::Unknown),
    })
}

/// Adds samples up by context, and by location in `counts`.
pub fn add_up(
    subject: &Subject,
    samples: &Samples,
    selection: &Selection,
    mut counts: Option<&mut Counts>,
) -> Tree {
    let runs = match selection.range {
        Some(range) => spans(subject, selection, range),
        None => wholes(subject, samples, selection),
    };
    let spoken = spoken(subject, selection);
    let of_event = runs.iter().filter(|run| run.event == selection.event);
    let mut own = Own::new(of_event, samples.shape.len());
    for run in &runs {
        for (stack, times) in run.stacks {
            let Sampled { context, leaf } = samples.stacks[stack.index()];
            if spoken.as_ref().is_some_and(|spoken| !spoken[leaf.index()]) {
                continue;
            }
            if let Some(counts) = &mut counts {
                counts.add(leaf, run.event, u64::from(*times).saturating_mul(run.unit));
            }
            if run.event == selection.event {
                own.add(context, *times, run.unit);
            }
        }
    }
    own.tree(&samples.shape)
}

/// All samples of the threads that are selected.
fn wholes<'a>(subject: &Subject, samples: &'a Samples, selection: &Selection) -> Vec<Run<'a>> {
    let taken = samples.taken.iter().filter(|taken| meets(subject, selection, taken.thread));
    let run = |taken: &'a lwp_profile::Taken| Run {
        event: taken.event,
        unit: samples.units[taken.event],
        stacks: &taken.stacks,
    };
    taken.map(run).collect()
}

/// The parts of lanes that lie in a range of the event's counts, whole ones.
fn spans<'a>(subject: &'a Subject, selection: &Selection, (from, to): (u64, u64)) -> Vec<Run<'a>> {
    let event = selection.event;
    let interval = subject.profile().events.get(event).and_then(|event| event.interval);
    let mut runs = Vec::new();
    let chosen =
        |lane: &&crate::Lane| lane.event == event && meets(subject, selection, lane.thread);
    for lane in subject.of.lanes.iter().filter(chosen) {
        let mut start = 0u64;
        for part in &lane.parts {
            let end = start.saturating_add(lane.width);
            if end > from && start < to {
                runs.push(Run { event, unit: interval.unwrap_or(1).max(1), stacks: part });
            }
            start = end;
        }
    }
    runs
}

/// Returns true for each location whose innermost function is in the language that is selected;
/// `None` if any language will do.
fn spoken(subject: &Subject, selection: &Selection) -> Option<Vec<bool>> {
    let languages: Vec<Language> = selection
        .who
        .iter()
        .filter_map(|who| match who {
            Who::Language(language) => Some(*language),
            _ => None,
        })
        .collect();
    let meets = |location: &lwp_profile::Location| {
        let language = subject.labels[location.frames[0].function.index()].language;
        languages.iter().all(|wanted| *wanted == language)
    };
    let locations = &subject.profile().locations;
    (!languages.is_empty()).then(|| locations.iter().map(meets).collect())
}

/// Counts of contexts that are being added up.
enum Own {
    /// One for each context.
    Dense(Vec<u64>),
    /// Samples of each context, and the events that each stands for.
    Samples(Vec<u32>, u64),
    /// Contexts with counts, in any order: of a small part of a recording there are few.
    Sparse(Vec<(u32, u64)>),
}

impl Own {
    /// Nothing yet, for these samples.
    fn new<'a>(runs: impl Iterator<Item = &'a Run<'a>> + Clone, contexts: usize) -> Self {
        let entries: usize = runs.clone().map(|run| run.stacks.len()).sum();
        if entries < contexts / 8 {
            return Self::Sparse(Vec::with_capacity(entries));
        }
        let times = runs.clone().flat_map(|run| run.stacks).map(|(_, times)| u64::from(*times));
        let unit = runs.clone().next().map_or(1, |run| run.unit);
        let one_unit = runs.clone().all(|run| run.unit == unit);
        match one_unit && times.sum::<u64>() <= u64::from(u32::MAX) {
            true => Self::Samples(vec![0; contexts], unit),
            false => Self::Dense(vec![0; contexts]),
        }
    }

    fn add(&mut self, context: u32, times: u32, unit: u64) {
        let count = u64::from(times).saturating_mul(unit);
        match self {
            Self::Dense(own) => {
                let own = &mut own[context as usize];
                *own = own.saturating_add(count);
            }
            // Their sum is known to be a number.
            Self::Samples(own, _) => own[context as usize] += times,
            Self::Sparse(own) => match own.last_mut().filter(|last| last.0 == context) {
                Some(last) => last.1 = last.1.saturating_add(count),
                None => own.push((context, count)),
            },
        }
    }

    fn tree(self, shape: &Arc<Shape>) -> Tree {
        match self {
            Self::Dense(own) => Tree::counted(shape, own, true),
            Self::Samples(own, unit) => Tree::sampled(shape, own, unit),
            Self::Sparse(mut own) => {
                // Each run is in order: this sort merges them.
                own.sort_by_key(|(context, _)| *context);
                own.dedup_by(|next, kept| {
                    let same = next.0 == kept.0;
                    kept.1 = if same { kept.1.saturating_add(next.1) } else { kept.1 };
                    same
                });
                shape.part(&own, true)
            }
        }
    }
}

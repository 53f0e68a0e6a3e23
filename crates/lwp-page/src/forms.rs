//! Trees of a part, in a form that everything has been brought into already.
//!
//! Turning a tree inside out, or folding it, takes seconds where no stack is there twice. Of
//! everything that is done once, and the place of each context is kept beside the tree that comes
//! out: the tree of a part has the same contexts, and its samples are added up at these places.

use lwp_profile::{NOWHERE, Samples, Tree};

use crate::adding::{chosen, sides, unit};
use crate::picked::{Shape, Shaped};
use crate::selection::Selection;
use crate::subject::Subject;

/// Parts of less than one of so many of everything are brought into their form by themselves: that
/// is soon done, and what is hardly anything in everything may be much in them.
const SHARE: u64 = 200;

/// The tree of a selection that has `total` of its event, in a form; `None` if its samples cannot
/// be added up at known places.
pub fn of_part(subject: &Subject, selection: &Selection, total: u64, shape: Shape) -> Option<Tree> {
    let everything = Selection { event: selection.event, ..Selection::default() };
    let whole = subject.known(&everything).filter(|_| everything != *selection)?;
    let whole = whole.known(shape)?;
    let samples = subject.samples.as_ref()?;
    if total < whole.tree.root().total / SHARE {
        return None;
    }
    let sums = match selection.range {
        None => of_threads(subject, samples, selection, &whole),
        Some(range) => of_span(subject, samples, (selection, range), &whole),
    };
    Some(whole.tree.with_samples(sums?, *samples.units.get(selection.event)?))
}

/// Samples at their places in a tree.
struct Placed<'a> {
    places: &'a [u32],
    own: Vec<u32>,
    /// All of them, which a number of `own` can hold.
    all: u32,
}

impl<'a> Placed<'a> {
    fn new(whole: &'a Shaped) -> Option<Self> {
        Some(Self { places: whole.places.as_ref()?, own: vec![0; whole.tree.len()], all: 0 })
    }

    /// All samples of the tree itself.
    fn full(whole: &'a Shaped, unit: u64) -> Option<Self> {
        let (mut placed, total) = (Self::new(whole)?, whole.tree.root().total);
        placed.all = u32::try_from(total / unit).ok().filter(|_| total.is_multiple_of(unit))?;
        for (node, own) in placed.own.iter_mut().enumerate() {
            *own = (whole.tree.own(node) / unit) as u32;
        }
        Some(placed)
    }

    /// Adds samples of contexts.
    fn add(&mut self, samples: impl Iterator<Item = (u32, u32)>) -> Option<()> {
        for (context, times) in samples {
            let place = self.places[context as usize];
            if place == NOWHERE {
                return None;
            }
            self.all = self.all.checked_add(times)?;
            self.own[place as usize] += times;
        }
        Some(())
    }

    /// Takes samples away again.
    fn remove(&mut self, samples: impl Iterator<Item = (u32, u32)>) -> Option<()> {
        for (context, times) in samples {
            let own = self.own.get_mut(self.places[context as usize] as usize)?;
            *own = own.checked_sub(times)?;
        }
        Some(())
    }
}

/// The samples of some threads, or of a language.
fn of_threads(
    subject: &Subject,
    samples: &Samples,
    selection: &Selection,
    whole: &Shaped,
) -> Option<Vec<u32>> {
    let unit = *samples.units.get(selection.event)?;
    let mut placed = Placed::new(whole)?;
    for portion in chosen(subject, selection).filter(|it| it.event == selection.event) {
        placed.add(portion.run.samples(unit)?)?;
    }
    Some(placed.own)
}

/// The samples of a span: those in it, or all without those outside it.
fn of_span(
    subject: &Subject,
    samples: &Samples,
    (selection, range): (&Selection, (u64, u64)),
    whole: &Shaped,
) -> Option<Vec<u32>> {
    let unit = Some(unit(subject.profile(), selection.event))
        .filter(|unit| samples.units.get(selection.event) == Some(unit))?;
    let sides = sides(subject, samples, selection, range);
    let context = |&(stack, times): &(lwp_profile::StackId, u32)| {
        (samples.stacks[stack.index()].context, times)
    };
    if selection.who.is_empty() && sides.complete && sides.entries(1) < sides.entries(0) {
        let mut placed = Placed::full(whole, unit)?;
        for part in &sides.outside {
            placed.remove(part.iter().map(context))?;
        }
        return Some(placed.own);
    }
    let mut placed = Placed::new(whole)?;
    for part in sides.inside(subject, selection).parts() {
        placed.add(part.iter().map(context))?;
    }
    Some(placed.own)
}

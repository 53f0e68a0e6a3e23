//! Branch stacks, as a processor's last-branch records would have them, drawn from exact counts.
//!
//! A recording holds how often each branch went where, and not in which order. So stacks are drawn:
//! each begins with a branch, chosen as often as it was taken, and goes on along code as often as
//! it did from there. So every branch and every straight piece of code between two has its share,
//! and calls come back to where they were made. How a branch depends on those before it is not in
//! the recording.
//!
//! Nothing is random: the *n*-th choice at a place is the one that is most behind its share.
//!
//! Promise: R146

use std::collections::BTreeMap;

use iced_x86::{FlowControl, Instruction};

use super::Binary;
use super::executed::{Executed, Target};
use super::flow::{self, Flow};

/// Branches in a stack: as many as Intel's processors keep.
const DEPTH: usize = 32;
/// A file holds at most so many stacks.
const MOST_STACKS: u64 = 20_000;
/// Straight pieces of code that overlap at one place; more come from forged recordings alone.
const MOST_OPEN: usize = 64;
/// A stub of a linkage table ends within so many bytes.
const STUB: u64 = 32;

/// Choices with their counts.
#[derive(Debug)]
struct Choices<T> {
    all: Vec<Choice<T>>,
    times: u64,
    drawn: u64,
}

#[derive(Debug)]
struct Choice<T> {
    what: T,
    times: u64,
    drawn: u64,
}

impl<T> Default for Choices<T> {
    fn default() -> Self {
        Self { all: Vec::new(), times: 0, drawn: 0 }
    }
}

impl<T: Copy + PartialEq> Choices<T> {
    fn add(&mut self, what: T, times: u64) {
        self.times = self.times.saturating_add(times);
        match self.all.iter_mut().find(|choice| choice.what == what) {
            Some(choice) => choice.times = choice.times.saturating_add(times),
            None if times > 0 => self.all.push(Choice { what, times, drawn: 0 }),
            None => {}
        }
    }

    /// Returns the choice that is most behind its share.
    fn draw(&mut self) -> Option<T> {
        let turn = u128::from(self.drawn) + 1;
        let behind = |choice: &Choice<T>| {
            let due = u128::from(choice.times) * turn;
            due as i128 - u128::from(choice.drawn).saturating_mul(self.times.into()) as i128
        };
        // The first of several.
        let most = (0..self.all.len()).rev().max_by_key(|at| behind(&self.all[*at]))?;
        self.drawn += 1;
        self.all[most].drawn += 1;
        Some(self.all[most].what)
    }
}

/// Another file's place in a process: the last page below the system's half, where nothing can be
/// mapped.
const ELSEWHERE: u64 = 0x7fff_ffff_f000;

/// A branch that was taken: where from, and where to. `None` is another file.
type Taken = (Target, Target);

/// Stacks, and the number of taken branches that each stands for.
#[derive(Debug, Default)]
pub(super) struct BranchStacks {
    /// Oldest entries first.
    stacks: Vec<Vec<Taken>>,
    period: u64,
}

/// How control moved, with counts.
#[derive(Debug, Default)]
struct Ways {
    /// Where a straight piece of code ended that began here: at this branch.
    straight: BTreeMap<u64, Choices<u64>>,
    /// Where branches led. Those of returns are none.
    branches: BTreeMap<u64, Choices<Target>>,
    /// Calls by the instructions behind them.
    calls: BTreeMap<u64, u64>,
    /// Returns by the start of their function.
    returns: BTreeMap<u64, u64>,
    /// Where each function returned to.
    callers: BTreeMap<u64, Choices<Target>>,
    /// Where branches and entries from elsewhere began, with counts.
    starts: Vec<(Start, u64)>,
}

/// How a stack begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Start {
    Branch(u64),
    /// Another file called a function of this one.
    Entered(u64),
}

/// Code that was executed in one go, so far, by where it began.
type Open = Vec<(u64, u64)>;

impl Ways {
    fn of(executed: &Executed, flow: &Flow<'_>, binary: &Binary) -> Self {
        let mut out = Self::default();
        for (&(from, to), &times) in &executed.taken {
            out.branches.entry(from).or_default().add(to, flow::positive(times));
        }
        // Those of jumps whose targets were worked out.
        let edges = flow.functions().iter().flat_map(|function| &function.edges);
        for edge in edges.filter(|edge| executed.indirect_jumps.contains_key(&edge.from)) {
            if !executed.taken.contains_key(&(edge.from, edge.to)) {
                out.branches.entry(edge.from).or_default().add(edge.to, edge.times);
            }
        }
        for function in flow.functions() {
            let symbol = function.symbol;
            let code = flow::decode(binary.code(symbol), symbol.address);
            out.function(symbol.address, &code, executed);
            if function.entered > 0 {
                let callers = out.callers.entry(symbol.address).or_default();
                callers.add(None, function.entered);
                out.starts.push((Start::Entered(symbol.address), function.entered));
            }
        }
        let branches = out.branches.iter().filter(|(from, _)| !out.returns.contains_key(from));
        out.starts.extend(branches.map(|(from, to)| (Start::Branch(*from), to.times)));
        out.starts.sort_unstable();
        out.find_callers(executed);
        out
    }

    /// Divides a function into straight pieces. Where pieces overlap, each ends at a branch as
    /// often as all of them do on average.
    fn function(&mut self, start: u64, code: &[Instruction], executed: &Executed) {
        let mut open = Open::new();
        for instruction in code {
            let at = instruction.ip();
            let times = executed.instructions.get(&at).copied().map_or(0, flow::positive);
            let came = sum(&open);
            match times.checked_sub(came) {
                Some(0) => {}
                Some(entered) if open.len() < MOST_OPEN => open.push((at, entered)),
                // A thread ended before.
                _ => drop(take(&mut open, came.saturating_sub(times))),
            }
            let fell = executed.falls.get(&at).copied().map_or(0, flow::positive);
            let leaves = match instruction.flow_control() {
                FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception => continue,
                FlowControl::ConditionalBranch => times.saturating_sub(fell),
                FlowControl::Call | FlowControl::IndirectCall => {
                    // A system call is a call to the decoder.
                    if !self.branches.contains_key(&at) {
                        continue;
                    }
                    self.calls.insert(at, instruction.next_ip());
                    times
                }
                FlowControl::Return => {
                    self.returns.insert(at, start);
                    self.starts.push((Start::Branch(at), times));
                    times
                }
                _ => times,
            };
            for (began, times) in take(&mut open, leaves) {
                self.straight.entry(began).or_default().add(at, times);
            }
        }
    }

    fn find_callers(&mut self, executed: &Executed) {
        for (call, next) in &self.calls {
            let back = executed.falls.get(call).copied().map_or(0, flow::positive);
            let targets = self.branches.get(call).map(|choices| &choices.all);
            for target in targets.into_iter().flatten() {
                if let Some(to) = target.what {
                    let callers = self.callers.entry(to).or_default();
                    callers.add(Some(*next), target.times.min(back));
                }
            }
        }
    }
}

fn sum(open: &Open) -> u64 {
    open.iter().fold(0, |sum, (_, times)| sum.saturating_add(*times))
}

/// Takes `times` out of what is open, from each by its share, and returns them.
fn take(open: &mut Open, times: u64) -> Open {
    let mut all = sum(open);
    let mut times = times.min(all);
    let mut taken = Open::new();
    for (began, left) in open.iter_mut() {
        let part = (u128::from(times) * u128::from(*left)).checked_div(all.into()).unwrap_or(0);
        all = all.saturating_sub(*left);
        // Of what is not even, the last ones have the rest.
        let part = (part as u64).max(times.saturating_sub(all)).min(*left).min(times);
        times -= part;
        *left -= part;
        taken.push((*began, part));
    }
    open.retain(|(_, left)| *left > 0);
    taken
}

/// A walk along the ways.
struct Walk<'a> {
    ways: &'a mut Ways,
    stack: Vec<Taken>,
    /// Places behind the calls that have not come back.
    calls: Vec<u64>,
}

impl Walk<'_> {
    /// Fills the stack, from its beginning on, until it is full or nothing is known.
    fn go(&mut self, start: Start) {
        let mut next = match start {
            Start::Branch(from) => Some(from),
            Start::Entered(function) => {
                self.stack.push((None, Some(function)));
                self.end_of(function)
            }
        };
        while let Some(from) = next.filter(|_| self.stack.len() < DEPTH) {
            next = self.branch(from).and_then(|to| self.end_of(to));
        }
    }

    /// Adds a branch. Returns where control is in this file afterwards.
    fn branch(&mut self, from: u64) -> Target {
        let to = match self.ways.returns.get(&from) {
            Some(function) => match self.calls.pop() {
                Some(back) => Some(back),
                None => self.ways.callers.get_mut(function).and_then(Choices::draw)?,
            },
            None => self.ways.branches.get_mut(&from).and_then(Choices::draw)?,
        };
        self.stack.push((Some(from), to));
        if let Some(next) = self.ways.calls.get(&from) {
            self.calls.push(*next);
        }
        match to {
            Some(to) => Some(to),
            None => self.back(),
        }
    }

    /// Another file comes back to where this one called.
    fn back(&mut self) -> Target {
        let to = self.calls.pop()?;
        self.stack.push((None, Some(to)));
        Some(to)
    }

    /// The branch by which code that begins at `start` ends.
    fn end_of(&mut self, start: u64) -> Option<u64> {
        if let Some(ends) = self.ways.straight.get_mut(&start) {
            return ends.draw();
        }
        // A stub of a linkage table.
        let mut near = self.ways.branches.range(start..start.saturating_add(STUB));
        near.next().map(|(from, _)| *from)
    }
}

impl BranchStacks {
    pub(super) fn of(executed: &Executed, flow: &Flow<'_>, binary: &Binary) -> Self {
        let mut ways = Ways::of(executed, flow, binary);
        let starts = std::mem::take(&mut ways.starts);
        let all = starts.iter().fold(0u64, |sum, (_, times)| sum.saturating_add(*times));
        let count = all.div_ceil(DEPTH as u64).min(MOST_STACKS);
        let mut stacks = Vec::new();
        let (mut passed, mut at) = (0u64, 0);
        for number in 0..count {
            // In the middle of its part of all branches.
            let place = u128::from(all) * (2 * u128::from(number) + 1) / (2 * u128::from(count));
            while u128::from(passed) + u128::from(starts[at].1) <= place {
                passed += starts[at].1;
                at += 1;
            }
            let mut walk = Walk { ways: &mut ways, stack: Vec::new(), calls: Vec::new() };
            walk.go(starts[at].0);
            let mut stack = walk.stack;
            stack.truncate(DEPTH);
            stacks.push(stack);
        }
        stacks.retain(|stack| !stack.is_empty());
        Self { stacks, period: all.checked_div(count).unwrap_or(0) }
    }

    /// The number of taken branches that each stack stands for.
    pub(super) fn period(&self) -> u64 {
        self.period
    }

    /// The stacks at their addresses in a process, newest branches first.
    pub(super) fn placed(&self, place: impl Fn(u64) -> Option<u64>) -> Vec<Vec<(u64, u64)>> {
        let place = |at: Target| at.and_then(&place).unwrap_or(ELSEWHERE);
        let placed = |stack: &Vec<Taken>| {
            stack.iter().rev().map(|(from, to)| (place(*from), place(*to))).collect()
        };
        self.stacks.iter().map(placed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_drawn_by_their_shares() {
        let mut choices = Choices::default();
        choices.add('a', 6);
        choices.add('b', 3);
        choices.add('c', 1);
        let drawn: String = (0..10).filter_map(|_| choices.draw()).collect();
        let times = |letter| drawn.matches(letter).count();
        assert_eq!([times('a'), times('b'), times('c')], [6, 3, 1], "{drawn}");
        assert!(drawn.starts_with("ab"), "{drawn}");
        assert_eq!(Choices::<char>::default().draw(), None);
    }

    #[test]
    fn pieces_end_by_their_shares_and_nothing_is_lost() {
        let mut open = vec![(0x10, 30), (0x20, 10)];
        assert_eq!(take(&mut open, 20), [(0x10, 15), (0x20, 5)]);
        assert_eq!(open, [(0x10, 15), (0x20, 5)]);
        assert_eq!(sum(&take(&mut open, 7)), 7);
        assert_eq!(sum(&open), 13);
        assert_eq!(sum(&take(&mut open, 99)), 13);
        assert!(open.is_empty());
    }
}

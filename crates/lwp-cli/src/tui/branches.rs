//! The call tree of the interactive view: branches that are opened and closed.

use std::collections::BTreeSet;

use lwp_profile::{FunctionId, Profile, Tree};
use lwp_report::escape::printable;
use lwp_report::number::percent;
use lwp_symbols::{fitted, function_name};

/// Branches of less than this part of the whole are left out.
const LEAST: f64 = 0.001;

/// Characters of the two shares and the blanks behind them.
const NUMBERS: usize = 18;

/// Characters of the sign that tells whether a branch is open, and the blank behind it.
const MARK: usize = 2;

/// A tree with its open branches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branches {
    tree: Tree,
    /// True if callers stand below callees.
    pub inverted: bool,
    open: BTreeSet<usize>,
    /// The nodes that are shown, with how many are around each.
    shown: Vec<(usize, usize)>,
}

impl Branches {
    /// The contexts of an event: from callers to callees, or the other way. The heaviest way down
    /// is open.
    pub fn new(profile: &Profile, event: usize, inverted: bool) -> Self {
        let tree = Tree::of(profile, event);
        let tree = match inverted {
            true => tree.inverted((tree.root().total as f64 * LEAST) as u64),
            false => tree,
        };
        let mut branches = Self { tree, inverted, open: BTreeSet::new(), shown: Vec::new() };
        let mut node = 0;
        while let Some(next) = branches.inside(node).first().copied().filter(|_| !inverted) {
            branches.open.insert(node);
            // Further down nothing stands out.
            if branches.total(next) * 2 < branches.total(0) {
                break;
            }
            node = next;
        }
        branches.list();
        branches
    }

    fn total(&self, node: usize) -> u64 {
        self.tree.total(node)
    }

    /// Returns the nodes below a node, the greatest first.
    fn inside(&self, node: usize) -> Vec<usize> {
        let least = self.total(0) as f64 * LEAST;
        let seen = |node: &usize| self.total(*node) > 0 && self.total(*node) as f64 >= least;
        let mut inside: Vec<usize> = self.tree.called(node).filter(seen).collect();
        inside.sort_by_key(|node| std::cmp::Reverse(self.total(*node)));
        inside
    }

    /// Lists what is shown anew.
    fn list(&mut self) {
        self.shown.clear();
        let mut waiting: Vec<(usize, usize)> =
            self.inside(0).into_iter().rev().map(|node| (node, 0)).collect();
        while let Some((node, depth)) = waiting.pop() {
            self.shown.push((node, depth));
            if self.open.contains(&node) {
                let inside = self.inside(node).into_iter().rev();
                waiting.extend(inside.map(|node| (node, depth + 1)));
            }
        }
    }

    /// Opens or closes the branch on a line; `None` turns it round.
    pub fn set_open(&mut self, line: usize, open: Option<bool>) {
        let Some(&(node, _)) = self.shown.get(line) else { return };
        let open = open.unwrap_or_else(|| !self.open.contains(&node));
        let _ = if open { self.open.insert(node) } else { self.open.remove(&node) };
        self.list();
    }

    /// The function on a line.
    pub fn function(&self, line: usize) -> Option<FunctionId> {
        self.shown.get(line).map(|(node, _)| self.tree.node(*node).function)
    }

    /// The lines.
    pub fn lines(&self, profile: &Profile) -> Vec<String> {
        let whole = self.total(0);
        let line = |&(node, depth): &(usize, usize)| {
            let of = self.tree.node(node);
            let mark = match (self.inside(node).is_empty(), self.open.contains(&node)) {
                (true, _) => ' ',
                (false, false) => '+',
                (false, true) => '-',
            };
            let own = if of.own > 0 { percent(of.own as f64, whole) } else { String::new() };
            let (total, indent) = (percent(of.total as f64, whole), 2 * depth);
            let name = printable(&function_name(profile, of.function, true));
            format!("{total:>8} {own:>7}  {:indent$}{mark} {name}", "")
        };
        self.shown.iter().map(line).collect()
    }

    /// A line of [`Self::lines`] in a width: branches move closer together, and the name loses what
    /// is around the function's own.
    pub fn fitting(&self, at: usize, line: &str, width: usize) -> String {
        let Some(&(_, depth)) = self.shown.get(at) else { return line.to_owned() };
        let parts = line.split_at_checked(NUMBERS).and_then(|(numbers, rest)| {
            let (mark, name) = rest.get(2 * depth..)?.split_at_checked(MARK)?;
            Some((numbers, mark, name))
        });
        let Some((numbers, mark, name)) = parts.filter(|_| line.chars().count() > width) else {
            return line.to_owned();
        };
        let room = width.saturating_sub(NUMBERS + MARK);
        let indent = (2 * depth).min(room / 3);
        format!("{numbers}{:indent$}{mark}{}", "", fitted(name, room - indent))
    }

    /// Returns whether contexts are inferred and not recorded.
    pub fn inferred(&self) -> bool {
        !self.tree.recorded
    }
}

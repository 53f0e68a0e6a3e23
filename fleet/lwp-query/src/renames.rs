//! Functions that have another name on the other side of a comparison.
//!
//! Promise: FL30

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// A function of one side that the other one does not have under its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Its module.
    pub module: String,
    /// Its name.
    pub function: String,
    /// Everything that was counted in it, its entries among them.
    pub counts: Vec<i64>,
    /// The file that declares it; empty if that is not known.
    pub file: String,
    /// The line.
    pub line: i64,
}

impl Body {
    /// The place of the declaration, where it is known.
    fn place(&self) -> Option<(&str, &str, i64)> {
        (!self.file.is_empty() && self.line > 0).then_some((
            self.module.as_str(),
            self.file.as_str(),
            self.line,
        ))
    }

    fn counted(&self) -> Option<(&str, &[i64])> {
        let is_something = self.counts.iter().any(|count| *count != 0);
        is_something.then_some((self.module.as_str(), self.counts.as_slice()))
    }

    /// Its own name, without scopes and template arguments.
    fn leaf(&self) -> &str {
        let name = match self.function.find(['<', '(']) {
            Some(at) if at > 0 => &self.function[..at],
            _ => &self.function,
        };
        name.rsplit([':', '.', '/']).next().unwrap_or(name)
    }
}

/// Pairs functions that are gone with new ones, by their indices. The most certain evidence comes
/// first: a name that only moved to another module, equal counts at one place, equal counts, one
/// place, one file and the last part of the name, and at last the change that other names had.
pub fn paired(gone: &[Body], new: &[Body]) -> Vec<(usize, usize)> {
    let mut pairing = Pairing::new(gone, new);
    pairing.by(Count::One, |body| Some(body.function.as_str()));
    pairing.by(Count::Same, |body| body.counted().zip(body.place()));
    pairing.by(Count::Same, Body::counted);
    pairing.by(Count::One, Body::place);
    pairing.by(Count::One, |body| {
        let file = Some(body.file.as_str()).filter(|file| !file.is_empty())?;
        Some((body.module.as_str(), file, body.leaf()))
    });
    pairing.as_others();
    pairing.pairs
}

/// The number of functions that may share a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    /// One on each side.
    One,
    /// As many on one side as on the other; they are paired in the order of their names.
    Same,
}

struct Pairing<'a> {
    gone: &'a [Body],
    new: &'a [Body],
    /// Indices without a partner, by name.
    left: (Vec<usize>, Vec<usize>),
    pairs: Vec<(usize, usize)>,
}

impl<'a> Pairing<'a> {
    fn new(gone: &'a [Body], new: &'a [Body]) -> Self {
        let by_name = |all: &[Body]| {
            let mut order: Vec<usize> = (0..all.len()).collect();
            order.sort_by(|a, b| all[*a].function.cmp(&all[*b].function));
            order
        };
        Self { gone, new, left: (by_name(gone), by_name(new)), pairs: Vec::new() }
    }

    /// Pairs functions with one key.
    fn by<K: Hash + Eq>(&mut self, count: Count, key: impl Fn(&'a Body) -> Option<K>) {
        let groups = |all: &'a [Body], left: &[usize]| {
            let mut groups: HashMap<K, Vec<usize>> = HashMap::new();
            for index in left {
                if let Some(key) = key(&all[*index]) {
                    groups.entry(key).or_default().push(*index);
                }
            }
            groups
        };
        let (old, mut new) = (groups(self.gone, &self.left.0), groups(self.new, &self.left.1));
        let before = self.pairs.len();
        for (key, old) in old {
            let Some(new) = new.remove(&key) else { continue };
            if old.len() == new.len() && (count == Count::Same || old.len() == 1) {
                self.pairs.extend(old.into_iter().zip(new));
            }
        }
        self.pairs[before..].sort_unstable();
        self.forget();
    }

    /// Pairs functions whose names differ as those of pairs do, the most frequent change first.
    fn as_others(&mut self) {
        let mut changes: HashMap<(&str, &str), usize> = HashMap::new();
        for (old, new) in &self.pairs {
            let change = difference(&self.gone[*old].function, &self.new[*new].function);
            *changes.entry(change).or_default() += 1;
        }
        let mut changes: Vec<_> =
            changes.into_iter().filter(|(pair, _)| pair.0 != pair.1).collect();
        changes.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        for ((old_part, new_part), _) in changes.into_iter().take(10) {
            let new: HashMap<(&str, &str), usize> = self
                .left
                .1
                .iter()
                .map(|index| {
                    let body = &self.new[*index];
                    ((body.module.as_str(), body.function.as_str()), *index)
                })
                .collect();
            let mut taken = HashSet::new();
            for index in &self.left.0 {
                let body = &self.gone[*index];
                let Some(name) = replaced(&body.function, old_part, new_part) else { continue };
                let partner = new.get(&(body.module.as_str(), name.as_str()));
                if let Some(partner) = partner.filter(|partner| taken.insert(**partner)) {
                    self.pairs.push((*index, *partner));
                }
            }
            self.forget();
        }
    }

    /// Takes those that have a partner out of those that have none.
    fn forget(&mut self) {
        let old: HashSet<usize> = self.pairs.iter().map(|pair| pair.0).collect();
        let new: HashSet<usize> = self.pairs.iter().map(|pair| pair.1).collect();
        self.left.0.retain(|index| !old.contains(index));
        self.left.1.retain(|index| !new.contains(index));
    }
}

/// The parts in which two names differ, between what they share at both ends.
fn difference<'a>(old: &'a str, new: &'a str) -> (&'a str, &'a str) {
    let shared = old.char_indices().zip(new.chars()).find(|((_, a), b)| a != b);
    let start = shared.map_or(old.len().min(new.len()), |((at, _), _)| at);
    let (old, new) = (&old[start..], &new[start..]);
    let ends = old.chars().rev().zip(new.chars().rev()).take_while(|(a, b)| a == b);
    let end: usize = ends.map(|(c, _)| c.len_utf8()).sum();
    (&old[..old.len() - end], &new[..new.len() - end])
}

/// The name with its first `old` replaced; what is only put in is put before the name.
fn replaced(name: &str, old: &str, new: &str) -> Option<String> {
    if old.is_empty() {
        Some(format!("{new}{name}"))
    } else {
        name.contains(old).then(|| name.replacen(old, new, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(function: &str, counts: &[i64], place: (&str, i64)) -> Body {
        Body {
            module: "m".into(),
            function: function.into(),
            counts: counts.to_vec(),
            file: place.0.into(),
            line: place.1,
        }
    }

    fn names(gone: &[Body], new: &[Body]) -> Vec<(String, String)> {
        let pairs = paired(gone, new).into_iter();
        let name = |(old, new_at): (usize, usize)| {
            (gone[old].function.clone(), new[new_at].function.clone())
        };
        let mut all: Vec<_> = pairs.map(name).collect();
        all.sort();
        all
    }

    fn is(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn equal_counts_make_a_pair_whatever_the_names() {
        let gone = [body("a", &[7, 1], ("", 0)), body("b", &[9, 2], ("", 0))];
        let new = [body("x", &[9, 2], ("", 0)), body("y", &[7, 1], ("", 0))];
        assert_eq!(names(&gone, &new), is(&[("a", "y"), ("b", "x")]));
        // Two of one side and one of the other: nobody can tell which.
        let new = [body("x", &[7, 1], ("", 0)), body("y", &[7, 1], ("", 0))];
        assert_eq!(names(&gone[..1], &new), is(&[]));
        // Nothing was counted in either: that is no likeness.
        let zero = |name| [body(name, &[0, 0], ("", 0))];
        assert_eq!(names(&zero("a"), &zero("b")), is(&[]));
    }

    #[test]
    fn a_function_that_grew_is_found_by_its_place_or_by_its_name() {
        let gone = [body("n::f<T>", &[7], ("a.rs", 3))];
        assert_eq!(
            names(&gone, &[body("core::f<T>", &[900], ("a.rs", 3))]),
            is(&[("n::f<T>", "core::f<T>")])
        );
        assert_eq!(
            names(&gone, &[body("core::f<U>", &[900], ("a.rs", 30))]),
            is(&[("n::f<T>", "core::f<U>")])
        );
        assert_eq!(names(&gone, &[body("core::g<T>", &[900], ("b.rs", 30))]), is(&[]));
    }

    #[test]
    fn a_function_that_grew_is_found_by_the_change_of_the_other_names() {
        let gone = [body("ns1::a", &[1], ("", 0)), body("ns2::b", &[2], ("", 0))];
        let new = [body("core_ns1::a", &[1], ("", 0)), body("core_ns2::b", &[5000], ("", 0))];
        assert_eq!(names(&gone, &new), is(&[("ns1::a", "core_ns1::a"), ("ns2::b", "core_ns2::b")]));
        let gone = [body("x::old::a", &[1], ("", 0)), body("y::old::b", &[2], ("", 0))];
        let new = [body("x::new::a", &[1], ("", 0)), body("y::new::b", &[5000], ("", 0))];
        assert_eq!(
            names(&gone, &new),
            is(&[("x::old::a", "x::new::a"), ("y::old::b", "y::new::b")])
        );
    }

    #[test]
    fn a_function_of_another_module_keeps_its_name() {
        let gone = [body("f", &[1], ("", 0))];
        let mut new = [body("f", &[2], ("", 0))];
        new[0].module = "m.so.2".into();
        assert_eq!(names(&gone, &new), is(&[("f", "f")]));
    }

    #[test]
    fn names_differ_between_what_they_share() {
        assert_eq!(difference("ns1::a", "core_ns1::a"), ("", "core_"));
        assert_eq!(difference("a::old::b", "a::new::b"), ("old", "new"));
        assert_eq!(difference("é", "è"), ("é", "è"));
        assert_eq!(difference("aa", "aaa"), ("", "a"));
    }
}

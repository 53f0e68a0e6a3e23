//! The order of commits where git does not tell it: recordings name the parents of their commits.
//!
//! Promise: FL31

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::error::Result;
use crate::session::Session;

/// The parent of each commit, as far as recordings name it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parents(HashMap<String, String>);

impl Parents {
    /// The parents that a version of a store knows. A commit that has several counts with its
    /// least.
    pub(crate) async fn of(session: &Session) -> Result<Self> {
        let from = |table: &str| {
            format!(
                "select \"commit\", parent_commit from {table} \
                 where \"commit\" is not null and parent_commit is not null"
            )
        };
        let sql = format!(
            "select \"commit\", min(parent_commit) as parent from ({} union all {}) group by 1",
            from("recordings"),
            from("rollups")
        );
        let rows = session.ask(&sql).await?;
        Ok(Self(rows.texts("commit").into_iter().zip(rows.texts("parent")).collect()))
    }

    /// Puts `points`, pairs of a commit and its time, into an order in which no commit stands
    /// before its ancestor; otherwise by time. Returns their indices.
    pub(crate) fn order(&self, points: &[(&str, &str)]) -> Vec<usize> {
        let places: HashMap<&str, usize> =
            points.iter().enumerate().map(|(index, point)| (point.0, index)).collect();
        let ancestors = self.nearest(points, &places);
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); points.len()];
        let key = |index: usize| Reverse((points[index].1, points[index].0, index));
        let mut ready = BinaryHeap::new();
        for (index, ancestor) in ancestors.iter().enumerate() {
            match ancestor {
                Some(ancestor) => children[*ancestor].push(index),
                None => ready.push(key(index)),
            }
        }
        let mut order = Vec::with_capacity(points.len());
        while let Some(Reverse((.., index))) = ready.pop() {
            order.push(index);
            ready.extend(children[index].iter().map(|child| key(*child)));
        }
        // Commits that claim to be ancestors of each other.
        let done: HashSet<usize> = order.iter().copied().collect();
        let mut rest: Vec<usize> =
            (0..points.len()).filter(|index| !done.contains(index)).collect();
        rest.sort_by_key(|index| Reverse(key(*index)));
        order.extend(rest);
        order
    }

    /// The nearest ancestor among `points` of each one. Commits between them may have no point.
    fn nearest(
        &self,
        points: &[(&str, &str)],
        places: &HashMap<&str, usize>,
    ) -> Vec<Option<usize>> {
        let mut known: HashMap<&str, Option<usize>> = HashMap::new();
        let mut nearest = |start: &str| {
            let (mut path, mut seen) = (Vec::new(), HashSet::new());
            let mut next = self.0.get(start).map(String::as_str);
            let mut found = None;
            while let Some(commit) = next {
                found = places.get(commit).copied();
                if found.is_some() || !seen.insert(commit) {
                    break;
                }
                if let Some(answer) = known.get(commit) {
                    found = *answer;
                    break;
                }
                path.push(commit);
                next = self.0.get(commit).map(String::as_str);
            }
            known.extend(path.into_iter().map(|commit| (commit, found)));
            found
        };
        let own = points.iter().enumerate();
        own.map(|(index, point)| nearest(point.0).filter(|ancestor| *ancestor != index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(parents: &[(&str, &str)], points: &[(&str, &str)]) -> String {
        let parents = parents.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        Parents(parents).order(points).into_iter().map(|index| points[index].0).collect()
    }

    #[test]
    fn no_commit_stands_before_its_ancestor() {
        let parents = [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d")];
        // d was recorded before c.
        let points = [("a", "1"), ("b", "2"), ("d", "3"), ("c", "4"), ("e", "5")];
        assert_eq!(order(&parents, &points), "abcde");
        // c has no recording of this benchmark.
        let points = [("a", "4"), ("b", "3"), ("d", "2"), ("e", "1")];
        assert_eq!(order(&parents, &points), "abde");
    }

    #[test]
    fn what_parents_do_not_tell_is_told_by_time() {
        assert_eq!(order(&[], &[("a", "3"), ("b", "1"), ("c", "2")]), "bca");
        let parents = [("c", "a"), ("d", "b")];
        assert_eq!(order(&parents, &[("a", "1"), ("b", "2"), ("c", "4"), ("d", "3")]), "abdc");
    }

    #[test]
    fn circles_end() {
        let circle = [("a", "b"), ("b", "a"), ("c", "x"), ("x", "y"), ("y", "x"), ("d", "d")];
        assert_eq!(order(&circle, &[("a", "2"), ("b", "1"), ("c", "3"), ("d", "4")]), "cdba");
    }
}

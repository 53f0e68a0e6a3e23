//! Results, printed one per line and saved as JSON.

use std::collections::BTreeMap;
use std::path::Path;

/// The number of instructions that a benchmark took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The fewest.
    pub least: u64,
    /// The most; another where the benchmark itself does not do the same every time.
    pub most: u64,
}

impl Count {
    /// Of several measurements.
    pub fn of(counts: &[u64]) -> Option<Self> {
        Some(Self { least: *counts.iter().min()?, most: *counts.iter().max()? })
    }
}

/// The results of a run.
#[derive(Debug, Default)]
pub struct Results {
    counts: Vec<(String, Option<Count>)>,
}

/// Columns of a name.
const NAME: usize = 32;

impl Results {
    /// Takes in a result; the line about it. `before` is what it was when results were kept.
    pub fn add(&mut self, name: &str, count: Option<Count>, before: Option<u64>) -> String {
        self.counts.push((name.to_owned(), count));
        let Some(count) = count else { return format!("{name:NAME$}      not counted\n") };
        let mut line = format!("{name:NAME$} {:>16} instructions", grouped(count.least));
        if count.most != count.least {
            line.push_str(&format!(" to {}", grouped(count.most)));
        }
        match before {
            Some(before) if before == count.least => line.push_str("  unchanged"),
            Some(before) => {
                line.push_str(&format!("  {:+.2} %", change(before, count.least)));
            }
            None => {}
        }
        line.push('\n');
        line
    }

    /// Returns whether there were benchmarks, and none could be counted.
    pub fn is_uncounted(&self) -> bool {
        !self.counts.is_empty() && self.counts.iter().all(|(_, count)| count.is_none())
    }

    /// Keeps them in a file, as an object of numbers by name.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let counted =
            self.counts.iter().filter_map(|(name, count)| Some((name, count.as_ref()?.least)));
        let counts: BTreeMap<&String, u64> = counted.collect();
        let text = serde_json::to_string_pretty(&counts).unwrap_or_default();
        std::fs::write(path, text + "\n")
    }

    /// Says which benchmarks have grown by more than `limit` per cent.
    pub fn grown(&self, before: &BTreeMap<String, u64>, limit: Option<f64>) -> Vec<String> {
        let Some(limit) = limit else { return Vec::new() };
        let grown = |(name, count): &(String, Option<Count>)| {
            let (before, now) = (*before.get(name)?, count.as_ref()?.least);
            let change = change(before, now);
            (change > limit).then(|| {
                let grown = format!("{before} to {now} instructions, {change:+.2} %");
                format!("{name}: {grown}: limit exceeded, at most +{limit} % are allowed")
            })
        };
        self.counts.iter().filter_map(grown).collect()
    }
}

/// Results that were kept.
pub fn read(path: &Path) -> Result<BTreeMap<String, u64>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The change from `before` to `now`, in per cent.
fn change(before: u64, now: u64) -> f64 {
    if before == now {
        return 0.0;
    }
    (now as f64 - before as f64) / before as f64 * 100.0
}

/// A number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_has_changed() {
        let mut results = Results::default();
        let mut line = |count, before| {
            results.add("a", count, before).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let same = Count::of(&[12345, 12345]);
        assert_eq!(line(same, None), "a 12,345 instructions");
        assert_eq!(line(same, Some(12345)), "a 12,345 instructions unchanged");
        assert_eq!(line(Count::of(&[110, 120]), Some(100)), "a 110 instructions to 120 +10.00 %");
        assert_eq!(line(None, Some(100)), "a not counted");
    }

    #[test]
    fn what_has_grown_too_much_is_named() {
        let mut results = Results::default();
        results.add("a", Count::of(&[102]), None);
        results.add("b", Count::of(&[100]), None);
        results.add("new", Count::of(&[7]), None);
        let before = BTreeMap::from([("a".to_owned(), 100), ("b".to_owned(), 100)]);
        assert_eq!(results.grown(&before, Some(2.0)), Vec::<String>::new());
        let grown = results.grown(&before, Some(1.5));
        assert_eq!(grown.len(), 1);
        assert!(grown[0].starts_with("a: 100 to 102 instructions, +2.00 %"), "{grown:?}");
        assert!(results.grown(&BTreeMap::from([("a".to_owned(), 0)]), Some(1e9)).len() == 1);
    }
}

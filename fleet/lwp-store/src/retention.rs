//! Rules of retention: what goes when.

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::store::Store;

/// The file that has the rules.
const FILE: &str = "store.toml";

/// Rules of retention. Totals of recordings are kept unless a rule names them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// The rules.
    #[serde(default)]
    pub retention: Vec<Rule>,
}

/// A rule: rows of some kinds, of some recordings, go after some days.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Words of kinds. `recording` means all of a recording, `raw` the file that was kept of it,
    /// which has a rule of its own.
    pub kinds: Vec<String>,
    /// Days after which they go.
    pub days: u32,
    /// Only of recordings that this filter chooses, as `lwp fleet report` takes it:
    /// `branch=topic/*`.
    #[serde(default)]
    pub filter: Vec<String>,
    /// True if the totals of recordings that go stay, added up by commit and by whatever a filter
    /// can tell recordings apart by.
    #[serde(default)]
    pub roll_up: bool,
    /// True if raw recordings of commits at which a count changed stay, and those of the commits
    /// before.
    #[serde(default)]
    pub keep_steps: bool,
}

/// The word for raw recordings, which are no rows.
const RAW: &str = "raw";

fn wrong(why: &str) -> Error {
    Error::Settings(FILE.to_owned(), why.to_owned())
}

impl Rule {
    /// Returns true if the rule is about raw recordings.
    pub fn is_raw(&self) -> bool {
        self.kinds == [RAW]
    }

    /// The kinds of row that go. With a recording, everything of it goes; with raw recordings, no
    /// row.
    ///
    /// # Errors
    ///
    /// If a word stands for no kind, or kinds do not go together.
    pub fn of_kinds(&self) -> Result<Vec<Kind>> {
        let mut kinds = Vec::new();
        if self.keep_steps && !self.is_raw() {
            return Err(wrong("keep_steps is about raw recordings: kinds = [\"raw\"] is wanted"));
        }
        for word in self.kinds.iter().filter(|_| !self.is_raw()) {
            if word == RAW {
                return Err(wrong("raw recordings want a rule of their own: kinds = [\"raw\"]"));
            }
            match Kind::of_word(word) {
                Some(Kind::Note) | None => {
                    return Err(wrong(&format!("no rows of kind '{word}' can go")));
                }
                Some(Kind::Recording) => {
                    kinds.push(Kind::Recording);
                    kinds.extend(Kind::COUNTED);
                }
                Some(kind) => kinds.push(kind),
            }
        }
        if kinds.is_empty() && !self.is_raw() {
            return Err(wrong("a rule names the kinds that go: kinds = [\"line\", \"call\"]"));
        }
        kinds.sort_unstable();
        kinds.dedup();
        if self.roll_up && !kinds.contains(&Kind::Recording) {
            return Err(wrong(
                "roll_up is about recordings that go: kinds = [\"recording\"] is wanted",
            ));
        }
        if kinds.contains(&Kind::Rollup) && kinds.len() > 1 {
            return Err(wrong("roll-ups want a rule of their own: kinds = [\"rollup\"]"));
        }
        Ok(kinds)
    }
}

impl Retention {
    /// Rules from TOML.
    ///
    /// # Errors
    ///
    /// If it is none, or a key is unknown.
    pub fn parse(text: &str) -> Result<Self> {
        let rules: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            wrong(&format!("line {line}: {}", error.message()))
        })?;
        rules.retention.iter().try_for_each(|rule| rule.of_kinds().map(drop))?;
        Ok(rules)
    }
}

impl Store {
    /// The rules of the store; none where it has no file with rules.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub async fn retention(&self) -> Result<Retention> {
        match self.settings(FILE).await? {
            Some(text) => Retention::parse(&text),
            None => Ok(Retention::default()),
        }
    }

    /// Sets the rules.
    ///
    /// # Errors
    ///
    /// If they are none, or the storage fails.
    pub async fn set_retention(&self, text: &str) -> Result<()> {
        Retention::parse(text)?;
        self.set_settings(FILE, text).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_wrong_ones_are_refused() {
        let text = "[[retention]]\nkinds = ['line', 'call']\ndays = 90\nfilter = ['branch=x/*']";
        let rules = Retention::parse(text).unwrap();
        assert_eq!(rules.retention[0].of_kinds().unwrap(), [Kind::Line, Kind::Call]);
        let all = Rule { kinds: vec!["recording".into()], ..Rule::default() };
        assert_eq!(all.of_kinds().unwrap().len(), 7);
        let raw = Rule { kinds: vec!["raw".into()], keep_steps: true, ..Rule::default() };
        assert!(raw.is_raw() && raw.of_kinds().unwrap().is_empty());
        for wrong in [
            "[[retention]]\nkinds = ['lines']\ndays = 90",
            "[[retention]]\nkinds = ['note']\ndays = 90",
            "[[retention]]\nkinds = ['line']\ndays = -1",
            "[[retention]]\nkinds = ['line']\ndays = 1\nroll_up = true",
            "[[retention]]\nkinds = ['rollup', 'recording']\ndays = 1",
            "[[retention]]\nkinds = ['raw', 'line']\ndays = 1",
            "[[retention]]\nkinds = ['raw']\ndays = 1\nroll_up = true",
            "[[retention]]\nkinds = ['line']\ndays = 1\nkeep_steps = true",
            "[[retention]]\nkinds = []\ndays = 1",
            "[[retention]]\nkinds = ['line']\nday = 1",
            "retention = 1",
        ] {
            assert!(Retention::parse(wrong).is_err(), "{wrong}");
        }
    }
}

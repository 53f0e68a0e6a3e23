//! Addresses and their meaning.

use std::collections::BTreeMap;
use std::sync::Arc;

use lwp_profile::FunctionId;

use crate::key::Key;
use crate::picked::Picked;
use crate::selection::{Selection, Who};
use crate::subject::{Label, Subject};

/// Subjects that can be asked for.
pub trait Shelf: Send + Sync {
    /// The names of all subjects.
    fn names(&self) -> Vec<String>;

    /// The subject with this number in the list.
    fn subject(&self, number: usize) -> Option<Arc<Subject>>;

    /// The name and address of the page that leads to these, where there is one.
    fn home(&self) -> Option<(String, String)> {
        None
    }
}

impl Shelf for Vec<Arc<Subject>> {
    fn names(&self) -> Vec<String> {
        self.iter().map(|subject| subject.of.name.clone()).collect()
    }

    fn subject(&self, number: usize) -> Option<Arc<Subject>> {
        self.get(number).cloned()
    }
}

/// A page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// The run, and the functions with the greatest counts.
    #[default]
    Summary,
    /// A table of functions.
    Functions,
    /// Contexts as a tree.
    Tree,
    /// One function's callers and callees.
    Calls,
    /// Contexts as a picture.
    Flame,
    /// One function's source and instructions.
    Code,
    /// Executions over time.
    Time,
}

impl View {
    /// All views: the last part of their address, their title, the key that leads there.
    #[rustfmt::skip] // A table: one view a line.
    pub const ALL: [(Self, &'static str, &'static str); 7] = [
        (Self::Summary,   "summary",   "Summary"),
        (Self::Functions, "functions", "Functions"),
        (Self::Tree,      "tree",      "Call tree"),
        (Self::Calls,     "calls",     "Callers & callees"),
        (Self::Flame,     "flame",     "Flame graph"),
        (Self::Code,      "code",      "Code"),
        (Self::Time,      "time",      "Time line"),
    ];

    /// The view with this word at the end of its address.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|row| row.1 == word).map(|row| row.0)
    }

    /// The last part of its address.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("summary", |row| row.1)
    }
}

/// Words that stay when the view changes: the recording and the one compared with, the event,
/// thread or process, range of time, the function.
const KEPT: [&str; 7] = ["r", "base", "e", "who", "from", "to", "f"];

/// The words behind an address's question mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads the part of an address behind the question mark. Of several values of a name the last
    /// counts.
    pub fn parse(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes());
        Self(pairs.into_owned().filter(|(_, value)| !value.is_empty()).collect())
    }

    /// The value of a name, empty where there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns true if a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name) == "1"
    }

    /// The value of a name as a number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).parse().ok()
    }

    /// All names and values.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// These words with others in their place; an empty one takes its name away.
    fn with(&self, keep: impl Fn(&str) -> bool, changes: &[(&str, &str)]) -> String {
        let mut out = form_urlencoded::Serializer::new(String::new());
        let changed = |name: &str| changes.iter().any(|change| change.0 == name);
        for (name, value) in self.pairs().filter(|(name, _)| keep(name) && !changed(name)) {
            out.append_pair(name, value);
        }
        for (name, value) in changes.iter().filter(|(_, value)| !value.is_empty()) {
            out.append_pair(name, value);
        }
        out.finish()
    }
}

/// A subject compared with, and what is selected of it.
pub type Base = (Arc<Subject>, Arc<Picked>);

/// The page that an address requests, with its subject.
#[derive(Debug)]
pub struct Request {
    /// The page.
    pub view: View,
    /// The words.
    pub query: Query,
    /// The names of all subjects.
    pub names: Vec<String>,
    /// The number of the one that is asked for.
    pub number: usize,
    /// The subject.
    pub subject: Arc<Subject>,
    /// The selected part of the subject.
    pub picked: Arc<Picked>,
    /// The subject that it is compared with.
    pub base: Option<Base>,
    /// The name and address of the page that leads here.
    pub home: Option<(String, String)>,
}

impl Request {
    /// Finds what is asked for; `None` if there is no such subject.
    pub fn new(shelf: &dyn Shelf, view: View, query: Query) -> Option<Self> {
        let names = shelf.names();
        // Of several recordings the last is the newest, by the order of `lwp diff`.
        let number = query.number("r").unwrap_or(names.len().checked_sub(1)?);
        let subject = shelf.subject(number)?;
        let selection = selection(&subject, &query);
        let base = query.number("base").filter(|base| *base != number);
        let base =
            base.and_then(|base: usize| compared(&subject, &selection, shelf.subject(base)?));
        let picked = subject.pick(&selection);
        let home = shelf.home();
        Some(Self { view, query, names, number, subject, picked, base, home })
    }

    /// The index of the event.
    pub fn event(&self) -> usize {
        self.picked.selection.event
    }

    /// The name of the event.
    pub fn event_name(&self) -> &str {
        self.subject.profile().events.get(self.event()).map_or("", |event| &event.name)
    }

    /// The address of another view of the same.
    pub fn link(&self, view: View, changes: &[(&str, &str)]) -> String {
        let words = self.query.with(|name| KEPT.contains(&name), changes);
        if words.is_empty() { view.word().to_owned() } else { format!("{}?{words}", view.word()) }
    }

    /// The address of this page with other words.
    pub fn here(&self, changes: &[(&str, &str)]) -> String {
        let words = self.query.with(|_| true, changes);
        format!("{}?{words}", self.view.word())
    }

    /// The address of a file to keep.
    pub fn export(&self, format: &str) -> String {
        format!("export?{}", self.query.with(|_| true, &[("format", format)]))
    }

    /// The address of a view of one function.
    pub fn function_link(&self, view: View, id: FunctionId) -> String {
        self.link(view, &[("f", &self.subject.keys[id.index()].to_string())])
    }

    /// The function that is asked for, or the one with the greatest own count.
    pub fn function(&self) -> Option<FunctionId> {
        let asked = Key::parse(self.query.get("f"));
        let known = asked.and_then(|key| self.subject.functions.get(&key).copied());
        known.or_else(|| self.hottest())
    }

    /// The function with the greatest own count.
    pub fn hottest(&self) -> Option<FunctionId> {
        let event = self.event();
        let own = self.picked.own.iter().enumerate();
        let hottest =
            own.max_by_key(|(index, values)| (values.get(event), std::cmp::Reverse(*index)));
        hottest.map(|(index, _)| FunctionId(index as u32))
    }

    /// A function's names.
    pub fn label(&self, id: FunctionId) -> &Label {
        &self.subject.labels[id.index()]
    }

    /// The function of the subject compared with that is the same as this one.
    pub fn in_base(&self, id: FunctionId) -> Option<FunctionId> {
        let (base, _) = self.base.as_ref()?;
        base.functions.get(&self.subject.keys[id.index()]).copied()
    }
}

fn selection(subject: &Subject, query: &Query) -> Selection {
    let profile = subject.profile();
    let range = query.number("from").unwrap_or(0)..query.number("to").unwrap_or(u64::MAX);
    let limited = (range.start, range.end) != (0, u64::MAX) && !range.is_empty();
    Selection {
        event: profile.event(query.get("e")).unwrap_or(0),
        who: Who::parse(query.get("who")).into_iter().collect(),
        range: (limited && !subject.of.lanes.is_empty()).then_some((range.start, range.end)),
    }
}

/// Selects the same part of `base`, by the event of the same name; `None` if it has none.
fn compared(subject: &Subject, selection: &Selection, base: Arc<Subject>) -> Option<Base> {
    let name = &subject.profile().events.get(selection.event)?.name;
    let selection = Selection {
        event: base.profile().event(name)?,
        who: selection.who.iter().map(|who| who.elsewhere(subject.profile())).collect(),
        range: selection.range.filter(|_| !base.of.lanes.is_empty()),
    };
    let picked = base.pick(&selection);
    Some((base, picked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written_whatever_they_hold() {
        let query = Query::parse("r=1&e=a%26b%3D%22&q=&f=1&x=%3Cscript%3E&x=2");
        assert_eq!((query.get("r"), query.get("e"), query.get("q")), ("1", "a&b=\"", ""));
        assert_eq!(query.number::<u64>("x"), Some(2));
        let words = query.with(|name| KEPT.contains(&name), &[("f", ""), ("q", "<&\">")]);
        assert_eq!(words, "e=a%26b%3D%22&r=1&q=%3C%26%22%3E");
        assert_eq!(Query::parse(&words).get("q"), "<&\">");
    }

    #[test]
    fn views_are_found_by_their_words() {
        for (view, word, _) in View::ALL {
            assert_eq!((View::of_word(word), view.word()), (Some(view), word));
        }
        assert_eq!(View::of_word("../etc"), None);
    }
}

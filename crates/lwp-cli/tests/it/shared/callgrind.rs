//! Names in files of callgrind's format.

use std::collections::BTreeMap;

/// Names by their kind and number: a name is written out where it first occurs.
#[derive(Default)]
pub struct Names(BTreeMap<(char, String), String>);

impl Names {
    /// The name that `text` stands for, of this kind.
    pub fn of(&mut self, kind: char, text: &str) -> String {
        match text.split_once(' ') {
            Some((number, name)) if number.starts_with('(') => {
                self.0.insert((kind, number.to_owned()), name.to_owned());
                name.to_owned()
            }
            _ => self.0.get(&(kind, text.to_owned())).cloned().unwrap_or(text.to_owned()),
        }
    }
}

//! Strings by number, as protocol buffers of profiles have them.

use std::collections::HashMap;

/// The strings of a message; the first one is empty.
#[derive(Debug)]
pub struct Strings {
    /// All of them, by number.
    pub all: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl Strings {
    /// Only the empty string.
    pub fn new() -> Self {
        let mut strings = Self { all: Vec::new(), numbers: HashMap::new() };
        strings.add("");
        strings
    }

    /// The number of `text`.
    pub fn add(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

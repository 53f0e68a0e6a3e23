//! The measure of a question: the counts of one event.

use crate::filter::Filter;
use crate::views::{count_column, quoted};

/// An event, in exact or in sampled recordings; the two are never added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The event's name.
    pub event: String,
    column: Option<&'static str>,
}

impl Measure {
    /// The counts of `event`; estimates, where the filter asks for sampled recordings or no exact count has that name.
    pub fn new(event: &str, filter: &Filter) -> Self {
        let column = count_column(event).filter(|_| !filter.is_sampled());
        Self { event: event.to_owned(), column }
    }

    /// Returns true if counts are exact.
    pub fn is_exact(&self) -> bool {
        self.column.is_some()
    }

    /// The value in a row of functions, lines or stacks.
    pub fn value(&self) -> String {
        self.column.map_or_else(|| "\"value\"".to_owned(), |column| format!("\"{column}\""))
    }

    /// The condition for rows that have it.
    pub fn condition(&self) -> String {
        match self.column {
            Some(column) => format!("\"{column}\" is not null"),
            None => format!("event = {}", quoted(&self.event)),
        }
    }

    /// The table of totals that has it.
    pub fn totals(&self) -> &'static str {
        if self.is_exact() { "recordings" } else { "totals" }
    }
}

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
    /// The counts of `event`; estimates, where the filter asks for sampled recordings or no exact
    /// count has that name.
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

    /// The condition for roll-ups that have it.
    pub fn of_rollups(&self) -> String {
        let exact = "mode = 'exact' and \"interval\" is null";
        let event = quoted(&self.event);
        match self.is_exact() {
            true => format!("event = {event} and {exact}"),
            // What has a column of its own is no estimate.
            false if count_column(&self.event).is_some() => {
                format!("event = {event} and not ({exact})")
            }
            false => format!("event = {event}"),
        }
    }
}

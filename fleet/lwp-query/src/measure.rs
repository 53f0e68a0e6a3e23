//! The measure of a question: the counts of one event.

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::views::{count_column, quoted};

/// An event, in exact or in sampled recordings; the two are never added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The event's name.
    pub event: String,
    column: Option<&'static str>,
    is_inclusive: bool,
}

impl Measure {
    /// The counts of `event`; estimates, where the filter asks for sampled recordings or no exact
    /// count has that name.
    pub fn new(event: &str, filter: &Filter) -> Self {
        let column = count_column(event).filter(|_| !filter.is_sampled());
        Self { event: event.to_owned(), column, is_inclusive: false }
    }

    /// The inclusive counts of the event: of a function and of everything that it called.
    ///
    /// # Errors
    ///
    /// If the event is an exact one that calling contexts are not measured in.
    pub fn inclusive(&self) -> Result<Self> {
        match self.column {
            Some("instructions") => {
                Ok(Self { column: Some("inclusive"), is_inclusive: true, ..self.clone() })
            }
            Some(_) => Err(Error::Question(format!(
                "inclusive counts are measured in instructions, not in {}",
                self.event
            ))),
            None => Ok(Self { is_inclusive: true, ..self.clone() }),
        }
    }

    /// Returns true if counts are inclusive.
    pub fn is_inclusive(&self) -> bool {
        self.is_inclusive
    }

    /// Returns true if counts are exact.
    pub fn is_exact(&self) -> bool {
        self.column.is_some()
    }

    /// The value in a row of functions, lines or stacks.
    pub fn value(&self) -> String {
        self.column.map_or_else(|| "\"value\"".to_owned(), |column| format!("\"{column}\""))
    }

    /// The interval between samples in a row of functions or totals.
    pub fn interval(&self) -> &'static str {
        if self.is_exact() { "cast(null as bigint)" } else { "\"interval\"" }
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

//! Facts from text, which comes from anywhere.

mod row;

use std::collections::HashSet;
use std::io::{self, BufRead, Read};

use flate2::bufread::MultiGzDecoder;
use serde_json::Value;

use self::row::Row;
use crate::{Facts, Limits, VERSION};

/// The reason why facts were refused, and where.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ReadError {
    /// The line, from 1 on.
    pub line: u64,
    /// The fault in that line.
    pub reason: Reason,
}

/// The reason why facts were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The bytes could not be read or unpacked.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The line is no JSON object.
    #[error("no JSON object: {0}")]
    Json(String),
    /// The first line does not say that these are facts.
    #[error("no facts: the first line has no key \"facts\"")]
    NoFacts,
    /// The text has a version that this reader does not know.
    #[error("facts of version {0}, known is {VERSION}")]
    Version(String),
    /// A key is missing, or has another type or range than it must.
    #[error("key \"{key}\": {wanted} is wanted")]
    Key {
        /// The key.
        key: &'static str,
        /// The type or range that the key must have.
        wanted: &'static str,
    },
    /// A kind of row that this reader does not know.
    #[error("unknown kind '{0}'")]
    Kind(String),
    /// More than a limit allows.
    #[error("more than {most} {of}")]
    Limit {
        /// The limit.
        most: u64,
        /// The limited quantity.
        of: &'static str,
    },
    /// The text ends before its last line, which counts the others.
    #[error("cut off: the line with \"end\" is missing")]
    CutOff,
    /// The last line counts other lines than there are.
    #[error("\"end\" counts {said} lines, there are {found}")]
    Count {
        /// As the last line has it.
        said: u64,
        /// As it is.
        found: u64,
    },
    /// There is more after the last line.
    #[error("something follows the line with \"end\"")]
    Trailing,
    /// A second row for what may have one only.
    #[error("a second row for {0}")]
    Twice(String),
    /// Functions do not add up to the total.
    #[error("functions add up to {sum} {event}, the total is {total}")]
    Sum {
        /// The event.
        event: String,
        /// The sum of its functions.
        sum: u128,
        /// The total as the first line has it.
        total: u64,
    },
}

impl Facts {
    /// Reads facts, compressed by gzip or not, completely or not at all.
    ///
    /// # Errors
    ///
    /// The first line that is not what it must be.
    pub fn read(mut input: impl BufRead, limits: &Limits) -> Result<Self, ReadError> {
        let at_first = |error| ReadError { line: 1, reason: Reason::Io(error) };
        if input.fill_buf().map_err(at_first)?.starts_with(&[0x1f, 0x8b]) {
            let unpacked = io::BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input));
            return Reader::new(limits).read(unpacked);
        }
        Reader::new(limits).read(input)
    }
}

/// A reader between two lines.
struct Reader<'a> {
    limits: &'a Limits,
    facts: Facts,
    line: u64,
    bytes: u64,
    rows: usize,
    modules: HashSet<String>,
    functions: HashSet<(u32, String)>,
}

impl<'a> Reader<'a> {
    fn new(limits: &'a Limits) -> Self {
        Self {
            limits,
            facts: Facts::default(),
            line: 0,
            bytes: 0,
            rows: 0,
            modules: HashSet::new(),
            functions: HashSet::new(),
        }
    }

    fn read(mut self, mut input: impl BufRead) -> Result<Facts, ReadError> {
        match self.all(&mut input) {
            Ok(()) => Ok(self.facts),
            Err(reason) => Err(ReadError { line: self.line.max(1), reason }),
        }
    }

    fn all(&mut self, input: &mut impl BufRead) -> Result<(), Reason> {
        let mut buffer = Vec::new();
        let head = self.next(input, &mut buffer)?.ok_or(Reason::CutOff)?;
        self.head(&head)?;
        loop {
            let value = self.next(input, &mut buffer)?.ok_or(Reason::CutOff)?;
            if let Some(end) = value.get("end") {
                let said = end.as_u64().ok_or(Reason::Key { key: "end", wanted: "a number" })?;
                let found = self.line - 1;
                if said != found {
                    return Err(Reason::Count { said, found });
                }
                break;
            }
            self.row(&Row(&value))?;
        }
        self.sums()?;
        self.inclusive()?;
        match input.fill_buf()?.is_empty() {
            true => Ok(()),
            false => Err(Reason::Trailing),
        }
    }

    /// The next line; `None` at the end.
    fn next(
        &mut self,
        input: &mut impl BufRead,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Value>, Reason> {
        self.line += 1;
        buffer.clear();
        let most = self.limits.line_bytes;
        let read = input.take(most + 1).read_until(b'\n', buffer)? as u64;
        if read == 0 {
            return Ok(None);
        }
        if read > most {
            return Err(Reason::Limit { most, of: "bytes in a line" });
        }
        self.bytes += read;
        if self.bytes > self.limits.bytes {
            return Err(Reason::Limit { most: self.limits.bytes, of: "bytes" });
        }
        // A text that was cut off in a number would be another number.
        if buffer.last() != Some(&b'\n') {
            return Err(Reason::CutOff);
        }
        let value: Value =
            serde_json::from_slice(buffer).map_err(|error| Reason::Json(error.to_string()))?;
        match value.is_object() {
            true => Ok(Some(value)),
            false => Err(Reason::Json("another value".to_owned())),
        }
    }

    fn head(&mut self, value: &Value) -> Result<(), Reason> {
        match value.get("facts") {
            None => return Err(Reason::NoFacts),
            Some(version) if version.as_u64() == Some(VERSION) => {}
            Some(version) => return Err(Reason::Version(version.to_string())),
        }
        Row(value).head(&mut self.facts, self.limits)
    }

    fn row(&mut self, row: &Row<'_>) -> Result<(), Reason> {
        self.rows += 1;
        if self.rows > self.limits.rows {
            return Err(Reason::Limit { most: self.limits.rows as u64, of: "rows" });
        }
        let facts = &mut self.facts;
        let (modules, functions) = (facts.modules.len(), facts.functions.len());
        let (events, limits) = (facts.events.len(), self.limits);
        match row.kind()? {
            "module" => {
                let module = row.module(limits)?;
                if !self.modules.insert(module.name.clone()) {
                    return Err(Reason::Twice(format!("module '{}'", module.name)));
                }
                facts.modules.push(module);
            }
            "function" => {
                let function = row.function(limits, modules, events)?;
                if !self.functions.insert((function.module, function.name.clone())) {
                    return Err(Reason::Twice(format!("function '{}'", function.name)));
                }
                facts.functions.push(function);
            }
            "line" => facts.lines.push(row.line(limits, functions, events)?),
            "call" => facts.calls.push(row.call(functions)?),
            "stack" => facts.stacks.push(row.stack(limits, functions, events)?),
            other => return Err(Reason::Kind(other.chars().take(64).collect())),
        }
        Ok(())
    }

    /// An inclusive count lies between the function's own one and the total.
    fn inclusive(&self) -> Result<(), Reason> {
        let counted = self.facts.counted_instructions();
        for row in &self.facts.functions {
            let Some(inclusive) = row.inclusive else { continue };
            let fits =
                |event: usize| (row.own[event]..=self.facts.total[event]).contains(&inclusive);
            if !counted.is_some_and(fits) {
                let wanted = "a number of counted instructions from own to total";
                return Err(Reason::Key { key: "inclusive", wanted });
            }
        }
        Ok(())
    }

    /// Functions must add up to the total, if there are any.
    fn sums(&self) -> Result<(), Reason> {
        if self.facts.functions.is_empty() {
            return Ok(());
        }
        for (index, event) in self.facts.events.iter().enumerate() {
            let own = self.facts.functions.iter().map(|row| u128::from(row.own[index]));
            let (sum, total) = (own.sum::<u128>(), self.facts.total[index]);
            if sum != u128::from(total) {
                return Err(Reason::Sum { event: event.name.clone(), sum, total });
            }
        }
        Ok(())
    }
}

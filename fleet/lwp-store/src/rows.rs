//! Facts as rows of the table.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, ListBuilder, MapBuilder, MapFieldNames,
    RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use arrow::array::{Int64Builder, new_null_array};
use lwp_facts::{Facts, Id, call_word, stack_key};
use lwp_profile::{Event, Mode};

use crate::error::Result;
use crate::schema::{self, arrow_schema, columns};
use crate::{COUNTS, Kind};

/// The rows of one recording.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub facts: &'a Facts,
    pub id: Id,
}

/// A cell's row: a row of the facts, and the event for cells that have one.
#[derive(Clone, Copy)]
struct Place {
    /// The index of the row among those of its kind.
    row: usize,
    /// The event, where the row has `event` and `value`.
    event: Option<usize>,
}

impl<'a> Rows<'a> {
    /// The rows of a kind; `None` where there are none.
    pub fn batch(&self, kind: Kind) -> Result<Option<RecordBatch>> {
        let places = self.places(kind);
        if places.is_empty() {
            return Ok(None);
        }
        let cells = columns(kind).map(|(name, of)| {
            self.column(kind, name, &places)
                .unwrap_or_else(|| new_null_array(&of.arrow(), places.len()))
        });
        Ok(Some(RecordBatch::try_new(arrow_schema(kind), cells.collect())?))
    }

    /// The column of the table that an event's exact counts are in.
    fn count_column(&self, event: &Event) -> Option<usize> {
        let exact = self.facts.mode == Mode::Exact && event.interval.is_none();
        let position = Event::EXACT.iter().position(|known| *known == event.name);
        position.filter(|_| exact && !event.modelled)
    }

    /// Events that have no column of their own.
    fn long_events(&self) -> Vec<usize> {
        let events = self.facts.events.iter().enumerate();
        let long = events.filter(|(_, event)| self.count_column(event).is_none());
        long.map(|(index, _)| index).collect()
    }

    /// One row for all events that have columns, one for each other event.
    fn of_events(&self, rows: usize, own: impl Fn(usize, usize) -> u64) -> Vec<Place> {
        let long = self.long_events();
        let wide = long.len() < self.facts.events.len();
        let mut places = Vec::with_capacity(rows);
        for row in 0..rows {
            if wide {
                places.push(Place { row, event: None });
            }
            let some = long.iter().filter(|event| own(row, **event) != 0);
            places.extend(some.map(|event| Place { row, event: Some(*event) }));
        }
        places
    }

    fn places(&self, kind: Kind) -> Vec<Place> {
        let facts = self.facts;
        let each = |rows: usize| (0..rows).map(|row| Place { row, event: None }).collect();
        match kind {
            Kind::Recording => each(1),
            Kind::Total => {
                let events = self.long_events().into_iter();
                events.map(|event| Place { row: 0, event: Some(event) }).collect()
            }
            Kind::Function => {
                let mut places = self
                    .of_events(facts.functions.len(), |row, event| facts.functions[row].own[event]);
                // A function of a stack has a name, also where it has no value of its own.
                let mut named = vec![false; facts.functions.len()];
                places.iter().for_each(|place| named[place.row] = true);
                let rest = (0..named.len()).filter(|row| !named[*row]);
                places.extend(rest.map(|row| Place { row, event: None }));
                places
            }
            Kind::Line => {
                self.of_events(facts.lines.len(), |row, event| facts.lines[row].own[event])
            }
            Kind::Call => each(facts.calls.len()),
            Kind::Stack => {
                let events: Vec<usize> = (0..facts.events.len()).collect();
                let pairs = (0..facts.stacks.len()).flat_map(|row| {
                    events.iter().map(move |event| Place { row, event: Some(*event) })
                });
                pairs
                    .filter(|at| at.event.is_some_and(|event| facts.stacks[at.row].own[event] != 0))
                    .collect()
            }
            Kind::Module => each(facts.modules.len()),
            Kind::Note | Kind::Rollup => Vec::new(),
        }
    }

    /// A column; `None` where it is null in every row.
    fn column(&self, kind: Kind, name: &str, places: &[Place]) -> Option<ArrayRef> {
        self.run_column(name, places.len())
            .or_else(|| self.recording_column(name).filter(|_| kind == Kind::Recording))
            .or_else(|| self.name_column(kind, name, places))
            .or_else(|| self.value_column(kind, name, places))
    }

    /// The columns that every row of a recording has.
    fn run_column(&self, name: &str, rows: usize) -> Option<ArrayRef> {
        let run = &self.facts.run;
        let text = match name {
            "recording" => return Some(Arc::new(Int64Array::from(vec![self.id.key(); rows]))),
            "started" => return Some(time(run.started, rows)),
            "project" => &run.project,
            "benchmark" => &run.benchmark,
            "branch" => &run.branch,
            "commit" => &run.commit,
            "host" => &run.host,
            _ => return None,
        };
        Some(Arc::new(StringArray::from_iter(vec![filled(text); rows])))
    }

    fn recording_column(&self, name: &str) -> Option<ArrayRef> {
        let (facts, run) = (self.facts, &self.facts.run);
        let mode = if facts.mode == Mode::Exact { "exact" } else { "sampled" };
        let text = match name {
            "id" => self.id.to_string(),
            "content" => facts.content().to_string(),
            "command" => run.command.clone(),
            "mode" => mode.to_owned(),
            "source" => run.source.word().to_owned(),
            "tool_version" => run.tool.clone(),
            "kernel" => run.kernel.clone(),
            "cpu" => run.cpu.clone(),
            "parent_commit" => run.parent.clone(),
            "run_url" => run.run_url.clone(),
            "deterministic" => return Some(flag(run.deterministic)),
            "complete" => return Some(flag(run.complete)),
            "labels" => return Some(self.labels()),
            "pull_request" => {
                let number = Some(signed(run.pull_request)).filter(|number| *number != 0);
                return Some(Arc::new(Int64Array::from(vec![number])));
            }
            _ => {
                let kind = Kind::of_word(name.strip_prefix("rows_")?)?;
                let rows = i32::try_from(self.places(kind).len()).unwrap_or(i32::MAX);
                return Some(Arc::new(Int32Array::from(vec![rows])));
            }
        };
        Some(Arc::new(StringArray::from(vec![filled(&text)])))
    }

    fn labels(&self) -> ArrayRef {
        let names = MapFieldNames {
            entry: "key_value".to_owned(),
            key: "key".to_owned(),
            value: "value".to_owned(),
        };
        let mut map = MapBuilder::new(Some(names), StringBuilder::new(), StringBuilder::new());
        for (key, value) in &self.facts.run.labels {
            map.keys().append_value(key);
            map.values().append_value(value);
        }
        // As many keys as values: appending cannot fail.
        let _ = map.append(true);
        Arc::new(map.finish())
    }

    /// The function that a row is about.
    fn function_of(&self, kind: Kind, row: usize) -> Option<u32> {
        let facts = self.facts;
        match kind {
            Kind::Function => u32::try_from(row).ok(),
            Kind::Line => Some(facts.lines[row].function),
            Kind::Call => facts.calls[row].caller,
            Kind::Stack => facts.stacks[row].frames.last().copied(),
            _ => None,
        }
    }

    fn name_column(&self, kind: Kind, name: &str, places: &[Place]) -> Option<ArrayRef> {
        let facts = self.facts;
        let texts = |text: &dyn Fn(usize) -> Option<&'a str>| -> ArrayRef {
            let cells = places.iter().map(|at| text(at.row).filter(|text| !text.is_empty()));
            Arc::new(StringArray::from_iter(cells))
        };
        let longs = |long: &dyn Fn(usize) -> Option<i64>| -> ArrayRef {
            Arc::new(Int64Array::from_iter(places.iter().map(|at| long(at.row))))
        };
        let name_of = |function: u32| facts.functions[function as usize].name.as_str();
        Some(match (kind, name) {
            (Kind::Module, "module") => texts(&|row| Some(&facts.modules[row].name)),
            (Kind::Module, "build_id") => texts(&|row| Some(&facts.modules[row].build_id)),
            (Kind::Module, "path") => texts(&|row| Some(&facts.modules[row].path)),
            (_, "func") => longs(&|row| self.function_of(kind, row).map(|f| facts.func(f))),
            (_, "module") => {
                texts(&|row| self.function_of(kind, row).map(|f| facts.module_name(f)))
            }
            (_, "function") => texts(&|row| self.function_of(kind, row).map(name_of)),
            (Kind::Function, "file") => texts(&|row| Some(&facts.functions[row].file)),
            (Kind::Line, "file") => texts(&|row| Some(&facts.lines[row].file)),
            (Kind::Call, "callee") => longs(&|row| Some(facts.func(facts.calls[row].callee))),
            (Kind::Call, "callee_module") => {
                texts(&|row| Some(facts.module_name(facts.calls[row].callee)))
            }
            (Kind::Call, "callee_function") => texts(&|row| Some(name_of(facts.calls[row].callee))),
            (Kind::Call, "call_kind") => texts(&|row| Some(call_word(facts.calls[row].how))),
            (Kind::Call, "entered") => longs(&|row| Some(signed(facts.calls[row].count))),
            _ => return None,
        })
    }

    fn value_column(&self, kind: Kind, name: &str, places: &[Place]) -> Option<ArrayRef> {
        let facts = self.facts;
        let own = |row: usize| match kind {
            Kind::Recording | Kind::Total => Some(&facts.total),
            Kind::Function => Some(&facts.functions[row].own),
            Kind::Line => Some(&facts.lines[row].own),
            Kind::Stack => Some(&facts.stacks[row].own),
            _ => None,
        };
        let longs = |long: &dyn Fn(&Place) -> Option<i64>| -> Option<ArrayRef> {
            Some(Arc::new(Int64Array::from_iter(places.iter().map(long))))
        };
        // A row of an event has neither the counts of the row beside it nor its calls.
        let wide = |at: &Place| at.event.is_none();
        if let Some(column) = COUNTS.iter().position(|count| *count == name) {
            let event = facts.events.iter().position(|e| self.count_column(e) == Some(column))?;
            return longs(&|at| own(at.row).filter(|_| wide(at)).map(|own| signed(own[event])));
        }
        let line = |row: usize| match kind {
            Kind::Line => facts.lines[row].line,
            _ => facts.functions[row].line,
        };
        match name {
            "entered" => {
                longs(&|at| Some(signed(facts.functions[at.row].entered)).filter(|_| wide(at)))
            }
            "inclusive" => {
                longs(&|at| facts.functions[at.row].inclusive.filter(|_| wide(at)).map(signed))
            }
            "value" => longs(&|at| Some(signed(own(at.row)?[at.event?]))),
            "interval" => longs(&|at| facts.events[at.event?].interval.map(signed)),
            "event" => Some(Arc::new(StringArray::from_iter(
                places.iter().map(|at| at.event.map(|event| facts.events[event].name.as_str())),
            ))),
            "line" => Some(Arc::new(Int32Array::from_iter(
                places.iter().map(|at| i32::try_from(line(at.row)).ok().filter(|line| *line != 0)),
            ))),
            "stack" => longs(&|at| Some(stack_key(&self.frames(at.row)))),
            "frames" => {
                let mut lists = ListBuilder::new(Int64Builder::new()).with_field(schema::frame());
                for at in places {
                    lists.append_value(self.frames(at.row).into_iter().map(Some));
                }
                Some(Arc::new(lists.finish()))
            }
            _ => None,
        }
    }

    fn frames(&self, row: usize) -> Vec<i64> {
        self.facts.stacks[row].frames.iter().map(|frame| self.facts.func(*frame)).collect()
    }
}

/// Seconds since 1970, once for each row.
fn time(seconds: i64, rows: usize) -> ArrayRef {
    moment(seconds.saturating_mul(1_000_000), rows)
}

/// Microseconds since 1970, once for each row.
pub fn moment(micros: i64, rows: usize) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(vec![micros; rows]).with_timezone("UTC"))
}

fn flag(value: bool) -> ArrayRef {
    Arc::new(BooleanArray::from(vec![value]))
}

/// Null in place of nothing.
fn filled(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// Tables of other engines have no unsigned numbers.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

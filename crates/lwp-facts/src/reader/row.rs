//! One line of facts.

use std::collections::BTreeMap;

use lwp_profile::{Event, Mode};
use lwp_terminal::escape::is_hostile;
use serde_json::Value;

use super::Reason;
use crate::run::Source;
use crate::{CallFact, Facts, FunctionFact, Limits, LineFact, ModuleFact, StackFact, call_kind};

/// A JSON object.
pub struct Row<'a>(pub &'a Value);

impl Row<'_> {
    pub fn kind(&self) -> Result<&str, Reason> {
        self.0["kind"].as_str().ok_or(Reason::Key { key: "kind", wanted: "a text" })
    }

    pub fn head(&self, facts: &mut Facts, limits: &Limits) -> Result<(), Reason> {
        let run = &mut facts.run;
        for key in run.texts().map(|(key, _)| key) {
            let text = self.text(key, limits)?;
            if let Some(place) = run.text_mut(key) {
                *place = text;
            }
        }
        for key in ["project", "benchmark"] {
            if run.text_mut(key).is_some_and(|text| text.is_empty()) {
                return Err(Reason::Key { key, wanted: "a text that is not empty" });
            }
        }
        let source = self.0["source"].as_str().and_then(Source::of_word);
        run.source = source.ok_or(Reason::Key { key: "source", wanted: "a known source" })?;
        facts.mode = match self.0["mode"].as_str() {
            Some("exact") => Mode::Exact,
            Some("sampled") => Mode::Sampled,
            _ => return Err(Reason::Key { key: "mode", wanted: "exact or sampled" }),
        };
        let started = self.0["started"].as_i64().filter(|at| limits.is_time(*at));
        let wanted = "seconds since 1970, after 1999 and not in the future";
        run.started = started.ok_or(Reason::Key { key: "started", wanted })?;
        run.pull_request = self.number_or("pull_request", 0)?;
        run.deterministic = self.flag("deterministic")?;
        run.complete = self.flag("complete")?;
        run.labels = self.labels(limits)?;
        facts.events = self.events(limits)?;
        facts.total = self.numbers("total", facts.events.len())?;
        Ok(())
    }

    pub fn module(&self, limits: &Limits) -> Result<ModuleFact, Reason> {
        Ok(ModuleFact {
            name: self.name("name", limits)?,
            path: self.text("path", limits)?,
            build_id: self.text("build_id", limits)?,
        })
    }

    pub fn function(
        &self,
        limits: &Limits,
        modules: usize,
        events: usize,
    ) -> Result<FunctionFact, Reason> {
        Ok(FunctionFact {
            module: self.index("module", &self.0["module"], modules)?,
            name: self.name("name", limits)?,
            file: self.text("file", limits)?,
            line: self.source_line()?,
            entered: self.number_or("entered", 0)?,
            own: self.numbers("own", events)?,
            inclusive: match self.0["inclusive"].is_null() {
                true => None,
                false => Some(self.number("inclusive")?),
            },
        })
    }

    pub fn line(
        &self,
        limits: &Limits,
        functions: usize,
        events: usize,
    ) -> Result<LineFact, Reason> {
        Ok(LineFact {
            function: self.index("function", &self.0["function"], functions)?,
            file: self.text("file", limits)?,
            line: self.source_line()?,
            own: self.numbers("own", events)?,
        })
    }

    pub fn call(&self, functions: usize) -> Result<CallFact, Reason> {
        let how = self.0["how"].as_str().and_then(call_kind);
        let caller = match &self.0["caller"] {
            Value::Null => None,
            caller => Some(self.index("caller", caller, functions)?),
        };
        Ok(CallFact {
            caller,
            callee: self.index("callee", &self.0["callee"], functions)?,
            how: how.ok_or(Reason::Key { key: "how", wanted: "a kind of call" })?,
            count: self.number("count")?,
        })
    }

    pub fn stack(
        &self,
        limits: &Limits,
        functions: usize,
        events: usize,
    ) -> Result<StackFact, Reason> {
        let frames = self.0["frames"].as_array().filter(|frames| !frames.is_empty());
        let frames = frames.ok_or(Reason::Key { key: "frames", wanted: "a list of functions" })?;
        if frames.len() > limits.frames {
            return Err(Reason::Limit { most: limits.frames as u64, of: "frames" });
        }
        let frames = frames.iter().map(|frame| self.index("frames", frame, functions));
        Ok(StackFact {
            frames: frames.collect::<Result<_, _>>()?,
            own: self.numbers("own", events)?,
        })
    }

    /// A text; empty where the key is missing. Control characters are replaced.
    fn text(&self, key: &'static str, limits: &Limits) -> Result<String, Reason> {
        match &self.0[key] {
            Value::Null => Ok(String::new()),
            Value::String(text) => cleaned(text, limits),
            _ => Err(Reason::Key { key, wanted: "a text" }),
        }
    }

    fn name(&self, key: &'static str, limits: &Limits) -> Result<String, Reason> {
        let name = self.text(key, limits)?;
        match name.is_empty() {
            true => Err(Reason::Key { key, wanted: "a text that is not empty" }),
            false => Ok(name),
        }
    }

    fn number(&self, key: &'static str) -> Result<u64, Reason> {
        self.0[key].as_u64().ok_or(Reason::Key { key, wanted: "a number" })
    }

    fn number_or(&self, key: &'static str, otherwise: u64) -> Result<u64, Reason> {
        match self.0[key].is_null() {
            true => Ok(otherwise),
            false => self.number(key),
        }
    }

    fn flag(&self, key: &'static str) -> Result<bool, Reason> {
        self.0[key].as_bool().ok_or(Reason::Key { key, wanted: "true or false" })
    }

    fn source_line(&self) -> Result<u32, Reason> {
        let line = i32::try_from(self.number_or("line", 0)?).ok();
        let line = line.and_then(|line| u32::try_from(line).ok());
        line.ok_or(Reason::Key { key: "line", wanted: "a number of 31 bits" })
    }

    fn index(&self, key: &'static str, value: &Value, of: usize) -> Result<u32, Reason> {
        let index = value.as_u64().filter(|index| *index < of as u64);
        let index = index.and_then(|index| u32::try_from(index).ok());
        index.ok_or(Reason::Key { key, wanted: "the number of an earlier row" })
    }

    fn numbers(&self, key: &'static str, of: usize) -> Result<Vec<u64>, Reason> {
        let wanted = "a number for each event";
        let list = self.0[key].as_array().filter(|list| list.len() == of);
        let list = list.ok_or(Reason::Key { key, wanted })?;
        let numbers: Option<Vec<u64>> = list.iter().map(Value::as_u64).collect();
        numbers.ok_or(Reason::Key { key, wanted })
    }

    fn labels(&self, limits: &Limits) -> Result<BTreeMap<String, String>, Reason> {
        let key = "labels";
        let labels = match &self.0[key] {
            Value::Null => return Ok(BTreeMap::new()),
            Value::Object(labels) => labels,
            _ => return Err(Reason::Key { key, wanted: "an object of texts" }),
        };
        if labels.len() > limits.labels {
            return Err(Reason::Limit { most: limits.labels as u64, of: "labels" });
        }
        let pair = |(name, value): (&String, &Value)| {
            let text = value.as_str().ok_or(Reason::Key { key, wanted: "an object of texts" })?;
            Ok((cleaned(name, limits)?, cleaned(text, limits)?))
        };
        labels.iter().map(pair).collect()
    }

    fn events(&self, limits: &Limits) -> Result<Vec<Event>, Reason> {
        let key = "events";
        let wanted = "a list of events with names";
        let list = self.0[key].as_array().filter(|list| !list.is_empty());
        let list = list.ok_or(Reason::Key { key, wanted })?;
        if list.len() > limits.events {
            return Err(Reason::Limit { most: limits.events as u64, of: key });
        }
        let mut events: Vec<Event> = Vec::new();
        for value in list {
            let row = Row(value);
            let name = row.name("name", limits)?;
            let interval = value.get("interval").map(|_| row.number("interval")).transpose()?;
            let modelled = value["modelled"].as_bool().unwrap_or(false);
            if events.iter().any(|event| event.name == name) {
                return Err(Reason::Twice(format!("event '{name}'")));
            }
            events.push(Event { name, interval, modelled });
        }
        Ok(events)
    }
}

fn cleaned(text: &str, limits: &Limits) -> Result<String, Reason> {
    if text.len() > limits.name_bytes {
        return Err(Reason::Limit { most: limits.name_bytes as u64, of: "bytes in a name" });
    }
    Ok(text.chars().map(|c| if is_hostile(c) { '\u{fffd}' } else { c }).collect())
}

//! Facts as text: one JSON object a line.

use std::fmt::Write;

use lwp_profile::Mode;
use lwp_terminal::escape;
use serde_json::{Value, json};

use crate::{Facts, VERSION, call_word};

impl Facts {
    /// The text, which [`Facts::read`] reads.
    pub fn write(&self) -> String {
        let mut out = String::new();
        let mut lines = 0_u64;
        let mut line = |value: &Value| {
            lines += 1;
            let _ = writeln!(out, "{}", escape::json(&value.to_string()));
        };
        line(&self.head());
        for row in &self.modules {
            line(&json!({
                "kind": "module", "name": row.name, "path": row.path, "build_id": row.build_id,
            }));
        }
        for row in &self.functions {
            let mut function = json!({
                "kind": "function", "module": row.module, "name": row.name, "file": row.file,
                "line": row.line, "entered": row.entered, "own": row.own,
            });
            if let Some(inclusive) = row.inclusive {
                function["inclusive"] = json!(inclusive);
            }
            line(&function);
        }
        for row in &self.lines {
            line(&json!({
                "kind": "line", "function": row.function, "file": row.file, "line": row.line,
                "own": row.own,
            }));
        }
        for row in &self.calls {
            line(&json!({
                "kind": "call", "caller": row.caller, "callee": row.callee,
                "how": call_word(row.how), "count": row.count,
            }));
        }
        for row in &self.stacks {
            line(&json!({ "kind": "stack", "frames": row.frames, "own": row.own }));
        }
        let _ = writeln!(out, "{}", json!({ "end": lines }));
        out
    }

    fn head(&self) -> Value {
        let mut head = json!({
            "facts": VERSION,
            "source": self.run.source.word(),
            "mode": if self.mode == Mode::Exact { "exact" } else { "sampled" },
            "started": self.run.started,
            "pull_request": self.run.pull_request,
            "deterministic": self.run.deterministic,
            "complete": self.run.complete,
            "labels": self.run.labels,
            "total": self.total,
        });
        for (key, text) in self.run.texts() {
            head[key] = json!(text);
        }
        let event = |event: &lwp_profile::Event| {
            let mut value = json!({ "name": event.name });
            if let Some(interval) = event.interval {
                value["interval"] = json!(interval);
            }
            if event.modelled {
                value["modelled"] = json!(true);
            }
            value
        };
        head["events"] = self.events.iter().map(event).collect();
        head
    }
}

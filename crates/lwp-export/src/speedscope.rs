//! Speedscope's file format: one profile an event and thread.

use lwp_profile::{Inferred, Profile};
use lwp_symbols::function_name;
use lwp_terminal::escape;
use serde_json::{Value, json};

use crate::threads::{OfThread, by_thread};
use crate::{estimate, one_line};

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// The profile as JSON.
pub fn render(profile: &Profile) -> String {
    let threads = by_thread(profile, 0);
    let frames: Vec<Value> = (0..profile.functions.len())
        .map(|index| {
            let id = lwp_profile::FunctionId(index as u32);
            let function = profile.function(id);
            let mut frame = json!({ "name": function_name(profile, id, true) });
            if !function.file.is_empty() {
                frame["file"] = json!(function.file);
                if function.line > 0 {
                    frame["line"] = json!(function.line);
                }
            }
            frame
        })
        .collect();
    let of_event = |event: usize| {
        let one = |thread: &OfThread| {
            let name = match threads.len() {
                1 => profile.events[event].name.clone(),
                _ => format!("{}: {}", thread.title, profile.events[event].name),
            };
            sampled(&name, &thread.stacks, event)
        };
        threads.iter().filter_map(one).collect::<Vec<Value>>()
    };
    let profiles: Vec<Value> = (0..profile.events.len()).flat_map(of_event).collect();
    let mut name = one_line(&profile.command);
    // Contexts are measured in the first event; the file has the others too.
    if profile.has_contexts() || threads.iter().any(|thread| !thread.stacks.recorded) {
        name.push_str(&format!(" ({})", estimate(profile)));
    }
    let file = json!({
        "$schema": SCHEMA,
        "exporter": format!("lwp@{}", env!("CARGO_PKG_VERSION")),
        "name": name,
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
        "profiles": profiles,
    });
    escape::json(&file.to_string())
}

fn sampled(name: &str, inferred: &Inferred, event: usize) -> Option<Value> {
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    let mut end = 0u64;
    for stack in &inferred.stacks {
        let value = stack.values.get(event);
        if value > 0 {
            let indices: Vec<u32> = stack.functions.iter().map(|id| id.0).collect();
            samples.push(indices);
            weights.push(value);
            end = end.saturating_add(value);
        }
    }
    (!samples.is_empty()).then(|| {
        json!({
            "type": "sampled",
            "name": name,
            "unit": "none",
            "startValue": 0,
            "endValue": end,
            "samples": samples,
            "weights": weights,
        })
    })
}

//! Tables for programs: JSON and CSV. Counts are whole numbers in both.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::escape::{self, csv as field};
use crate::table::{Row, Table};

/// The table as one JSON document.
pub fn json(table: &Table) -> String {
    let rows: Vec<Value> = table
        .rows
        .iter()
        .map(|row| {
            let mut object = Map::new();
            for (key, value) in table.sort.iter().zip(&row.keys) {
                object.insert(key.name().to_owned(), json!(value));
            }
            object.insert("self".to_owned(), json!(row.own));
            if let Some(margin) = table.margin(row) {
                object.insert("margin_percent".to_owned(), json!(margin));
            }
            if let Some(inclusive) = row.inclusive {
                let name = if table.inclusive_exact { "total" } else { "total_estimated" };
                object.insert(name.to_owned(), json!(inclusive.round() as u64));
            }
            if let Some(cycles) = row.cycles {
                object.insert("modelled_cycles".to_owned(), json!(cycles));
            }
            if let Some(calls) = row.calls {
                object.insert("calls".to_owned(), json!(calls));
            }
            for (name, value) in beside(table, row) {
                object.insert(name.to_owned(), value);
            }
            Value::Object(object)
        })
        .collect();
    let mut document = json!({
        "command": table.command,
        "event": table.event,
        "exact": table.interval.is_none() || table.off_cpu,
        "modelled": table.modelled,
        "interval": table.interval,
        "unit": if table.time || table.off_cpu { "nanoseconds" } else { "count" },
        "total": table.total,
        "rows": rows,
        "rows_left_out": table.hidden,
    });
    if let Some(beside) = &table.beside {
        document["beside"] = json!({ "event": beside.event, "total": beside.total });
        document["differences"] = json!(table.differences);
    }
    escape::json(&format!("{document:#}\n"))
}

/// Names of what a row has where time and instructions are both known.
const BESIDE: [&str; 6] = [
    "cpu_time",
    "instructions",
    "ns_per_call_estimated",
    "ns_per_call_margin_percent",
    "ns_per_instruction_estimated",
    "ns_per_instruction_margin_percent",
];

/// These, as far as they are known.
fn beside(table: &Table, row: &Row) -> Vec<(&'static str, Value)> {
    let Some((time, instructions)) = table.time_and_instructions(row) else { return Vec::new() };
    let (call, instruction) = (table.per_call(row), table.per_instruction(row));
    let values = [
        Some(json!(time)),
        Some(json!(instructions)),
        call.map(|it| json!(it.ns)),
        call.map(|it| json!(it.margin)),
        instruction.map(|it| json!(it.ns)),
        instruction.map(|it| json!(it.margin)),
    ];
    BESIDE.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The table as CSV with a line of headings.
pub fn csv(table: &Table) -> String {
    let mut out = String::new();
    let mut heads: Vec<&str> = vec!["self"];
    let margins = table.rows.iter().any(|row| table.margin(row).is_some());
    if margins {
        heads.push("margin_percent");
    }
    let inclusive = table.rows.iter().any(|row| row.inclusive.is_some());
    let calls = table.rows.iter().any(|row| row.calls.is_some());
    if inclusive {
        heads.push(if table.inclusive_exact { "total" } else { "total_estimated" });
    }
    let cycles = table.rows.iter().any(|row| row.cycles.is_some());
    if cycles {
        heads.push("modelled_cycles");
    }
    if calls {
        heads.push("calls");
    }
    if table.beside.is_some() {
        heads.extend(BESIDE);
    }
    heads.extend(table.sort.iter().map(|key| key.name()));
    let _ = writeln!(out, "{}", heads.join(","));
    for row in &table.rows {
        let mut cells = vec![row.own.to_string()];
        if margins {
            cells.push(table.margin(row).map_or(String::new(), |it| format!("{it:.4}")));
        }
        if inclusive {
            cells.push(row.inclusive.map_or(String::new(), |n| (n.round() as u64).to_string()));
        }
        if cycles {
            cells.push(row.cycles.map_or(String::new(), |cycles| cycles.to_string()));
        }
        if calls {
            cells.push(row.calls.map_or(String::new(), |calls| calls.to_string()));
        }
        if table.beside.is_some() {
            let known = beside(table, row);
            let value =
                |name: &str| known.iter().find(|it| it.0 == name).map(|it| it.1.to_string());
            cells.extend(BESIDE.map(|name| value(name).unwrap_or_default()));
        }
        cells.extend(row.keys.iter().map(|key| field(key)));
        let _ = writeln!(out, "{}", cells.join(","));
    }
    out
}

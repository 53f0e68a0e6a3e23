//! Tables and views, the same for every engine that reads the files.

use lwp_store::{COUNTS, Kind};

/// The name of a kind's table.
pub fn table_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Recording => "recordings",
        Kind::Total => "totals",
        Kind::Function => "functions",
        Kind::Line => "lines",
        Kind::Call => "calls",
        Kind::Stack => "stacks",
        Kind::Module => "modules",
        Kind::Note => "notes",
    }
}

/// Views in standard SQL, beside the tables. Counts are rows here, so that exact and sampled ones are asked alike.
pub const VIEWS: &[(&str, &str)] = &[
    ("recording_values", include_str!("views/recording_values.sql")),
    ("function_values", include_str!("views/function_values.sql")),
];

/// An engine that can read the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// DuckDB, by its own Parquet reader.
    Duckdb,
    /// Spark SQL with Delta Lake.
    Spark,
    /// Trino with a Delta Lake catalog.
    Trino,
}

/// Statements that make the tables and views of a store in another engine. `files` are those of the version that DuckDB sees; the others
/// read the Delta log themselves.
pub fn statements(engine: Engine, url: &str, files: &dyn Fn(Kind) -> Vec<String>) -> String {
    let mut out = String::new();
    for (kind, word) in Kind::ALL {
        let name = table_name(kind);
        let columns: Vec<String> = lwp_store::arrow_schema(kind)
            .fields()
            .iter()
            .map(|field| format!("\"{}\"", field.name()))
            .collect();
        let columns = columns.join(", ");
        match engine {
            Engine::Duckdb => {
                let files: Vec<String> = files(kind).iter().map(|file| quoted(file)).collect();
                if files.is_empty() {
                    continue;
                }
                let list = files.join(", ");
                let from = format!("read_parquet([{list}], hive_partitioning = true)");
                out += &format!(
                    "create or replace view {name} as select {columns}, \"date\" from {from};\n"
                );
            }
            Engine::Spark => {
                let columns = columns.replace('"', "`");
                let url = url.trim_end_matches('/');
                out += &format!(
                    "create or replace temporary view {name} as select {columns}, `date` from delta.`{url}` where kind = '{word}';\n"
                );
            }
            Engine::Trino => {
                out += &format!(
                    "create or replace view {name} as select {columns}, \"date\" from facts where kind = '{word}';\n"
                );
            }
        }
    }
    for (name, text) in VIEWS {
        let text = match engine {
            Engine::Spark => {
                text.replace('"', "`").replace("create view", "create or replace temporary view")
            }
            _ => text.replace("create view", "create or replace view"),
        };
        let is_there = engine != Engine::Duckdb
            || !files(Kind::Function).is_empty()
            || *name == "recording_values";
        if is_there {
            out += text.trim_end();
            out += ";\n";
        }
    }
    out
}

/// A text as a literal of SQL.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The name of the column with an exact event's counts.
pub fn count_column(event: &str) -> Option<&'static str> {
    let name = event.replace('-', "_");
    COUNTS.into_iter().find(|column| *column == name)
}

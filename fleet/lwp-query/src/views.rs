//! Tables and views, the same for every engine that reads the files.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
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
        Kind::Rollup => "rollups",
    }
}

/// The views, beside the tables: name, columns that tell whose values they are, table of exact
/// counts, table of other values.
const VIEWS: [(&str, &str, &str, &str); 2] = [
    (
        "recording_values",
        "recording, started, project, benchmark, branch, \"commit\", host",
        "recordings",
        "totals",
    ),
    (
        "function_values",
        "recording, started, project, benchmark, branch, \"commit\", host, func, module, function",
        "functions",
        "functions",
    ),
];

/// The name and the text of each view, in standard SQL. Counts are rows here, so that exact and
/// sampled ones are asked alike.
pub fn views() -> Vec<(&'static str, String)> {
    let view = |(name, columns, exact, other): (&'static str, _, _, _)| {
        let of_column = |column: &str| {
            let event = column.replace('_', "-");
            format!(
                "select {columns}, '{event}' as event, \"{column}\" as \"value\", \
                 cast(null as bigint) as \"interval\", \"date\" from {exact} where \"{column}\" is not null"
            )
        };
        let long = format!(
            "select {columns}, event, \"value\", \"interval\", \"date\" from {other} where event is not null"
        );
        let all: Vec<String> = COUNTS.into_iter().map(of_column).chain([long]).collect();
        (name, format!("create view {name} as\n{}", all.join("\nunion all\n")))
    };
    let mut all = Vec::from(VIEWS.map(view));
    all.push(("series", series()));
    all
}

/// The view of totals, those of recordings that have expired among them.
fn series() -> String {
    const COLUMNS: &str =
        "started, project, benchmark, branch, \"commit\", host, event, \"interval\"";
    format!(
        "create view series as\nselect {COLUMNS}, cast(1 as bigint) as runs, \"value\" as least, \
         \"value\" as greatest, \"value\", \"date\" from recording_values\nunion all\n\
         select {COLUMNS}, runs, least, greatest, \"value\", \"date\" from rollups"
    )
}

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

/// Statements that make the tables and views of a store in another engine. `files` are those of the
/// version that DuckDB sees; the others read the Delta log themselves.
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
                    out += &format!("create or replace view {name} as {};\n", nothing(kind));
                    continue;
                }
                let list = files.join(", ");
                let from = format!(
                    "read_parquet([{list}], hive_partitioning = true, union_by_name = true)"
                );
                // Files that an earlier version has written may lack columns.
                let all = format!("(from {from} union all by name {})", nothing(kind));
                out += &format!(
                    "create or replace view {name} as select {columns}, \"date\" from {all};\n"
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
    for (_, text) in views() {
        let text = match engine {
            Engine::Spark => {
                text.replace('"', "`").replace("create view", "create or replace temporary view")
            }
            _ => text.replace("create view", "create or replace view"),
        };
        out += &format!("{text};\n");
    }
    out
}

/// A question of DuckDB's that has the columns of a kind and no rows.
fn nothing(kind: Kind) -> String {
    let column = |field: &Arc<Field>| {
        let of = match field.data_type() {
            DataType::Int32 => "integer",
            DataType::Int64 => "bigint",
            DataType::Boolean => "boolean",
            DataType::Timestamp(..) => "timestamptz",
            DataType::List(_) => "bigint[]",
            DataType::Map(..) => "map(varchar, varchar)",
            _ => "varchar",
        };
        format!("cast(null as {of}) as \"{}\"", field.name())
    };
    let schema = lwp_store::arrow_schema(kind);
    let columns: Vec<String> = schema.fields().iter().map(column).collect();
    format!("select {}, cast(null as date) as \"date\" where false", columns.join(", "))
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

//! Answers as text.

use arrow::json::writer::{JsonArray, WriterBuilder};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use lwp_terminal::escape::{self, printable};

use crate::error::{Error, Result};
use crate::session::Rows;

/// A format of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Columns for people.
    #[default]
    Table,
    /// Comma-separated values with a head.
    Csv,
    /// A JSON array of objects.
    Json,
}

/// An answer as text, without control characters.
///
/// # Errors
///
/// If a column has a type that the format cannot show.
pub fn render(rows: &Rows, format: Format) -> Result<String> {
    match format {
        Format::Json => {
            let mut out = Vec::new();
            let builder = WriterBuilder::new().with_explicit_nulls(true);
            let mut writer = builder.build::<_, JsonArray>(&mut out);
            for batch in &rows.batches {
                writer.write(batch)?;
            }
            writer.finish()?;
            let text = String::from_utf8(out).map_err(|e| Error::Engine(e.to_string()))?;
            let text = if text.is_empty() { "[]".to_owned() } else { text };
            Ok(escape::json(&text) + "\n")
        }
        Format::Csv => {
            let cells = cells(rows)?;
            let line = |cells: &Vec<String>| {
                cells.iter().map(|cell| escape::csv(cell)).collect::<Vec<_>>().join(",") + "\n"
            };
            Ok(cells.iter().map(line).collect())
        }
        Format::Table => Ok(table(rows, &cells(rows)?)),
    }
}

/// Every cell as text, the columns' names first.
fn cells(rows: &Rows) -> Result<Vec<Vec<String>>> {
    let options =
        FormatOptions::default().with_null("").with_timestamp_tz_format(Some("%Y-%m-%dT%H:%M:%SZ"));
    let names = rows.schema.fields().iter().map(|field| printable(field.name()));
    let mut all: Vec<Vec<String>> = vec![names.collect()];
    for batch in &rows.batches {
        let columns = batch.columns().iter();
        let columns: Vec<ArrayFormatter<'_>> = columns
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<std::result::Result<_, _>>()?;
        for row in 0..batch.num_rows() {
            let cell = |column: &ArrayFormatter<'_>| match column.value(row).try_to_string() {
                Ok(text) => Ok(printable(&text)),
                Err(error) => Err(Error::from(error)),
            };
            all.push(columns.iter().map(cell).collect::<Result<_>>()?);
        }
    }
    Ok(all)
}

/// Columns of equal width; numbers stand right.
fn table(rows: &Rows, cells: &[Vec<String>]) -> String {
    let width = |text: &str| text.chars().count();
    let columns = rows.schema.fields().len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| cells.iter().map(|row| width(&row[column])).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in cells {
        let mut line = String::new();
        for (column, (text, wide)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(wide - width(text));
            let right = rows.schema.field(column).data_type().is_numeric();
            line += &if right { format!("{pad}{text}  ") } else { format!("{text}{pad}  ") };
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}

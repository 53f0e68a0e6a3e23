//! Data files in the making.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::{
    SortColumn, concat, interleave_record_batch, lexsort_to_indices, max, max_string, min,
    min_string,
};
use arrow::datatypes::{DataType, Int64Type, TimestampMicrosecondType};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use serde_json::{Value, json};

use crate::Kind;
use crate::error::Result;
use crate::schema::arrow_schema;

/// The columns that rows are sorted by, as far as their kind has them: counts repeat from commit to
/// commit, and so rows of one function stand together, by time.
pub const SORT: [&str; 9] = [
    "project",
    "benchmark",
    "module",
    "function",
    "file",
    "line",
    "callee",
    "started",
    "recording",
];

/// Columns whose least and greatest values the log has.
const BOUNDED: [&str; 7] =
    ["project", "benchmark", "commit", "branch", "host", "started", "recording"];

/// The longest text among them: the log is read by everybody.
const LONGEST_BOUND: usize = 128;

/// Rows of a row group.
const GROUP: usize = 1 << 20;

/// Rows that are put into order at once.
const PART: usize = 1 << 15;

/// A Parquet file that is being written, in memory.
pub struct FileWriter {
    kind: Kind,
    writer: ArrowWriter<Vec<u8>>,
    rows: usize,
    bounds: BTreeMap<&'static str, Option<(Value, Value)>>,
}

/// A Parquet file.
#[derive(Clone, Debug)]
pub struct Written {
    /// The kind of its rows.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its rows.
    pub rows: usize,
    /// True if it was ended because it is as large as a file may be; others may be written anew.
    pub is_full: bool,
    /// The statistics that the log keeps of its rows.
    pub(crate) stats: String,
}

impl std::fmt::Debug for FileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileWriter").field("kind", &self.kind).field("rows", &self.rows).finish()
    }
}

impl FileWriter {
    /// An empty file of rows of a kind.
    ///
    /// # Errors
    ///
    /// If the Parquet writer refuses the schema.
    pub fn new(kind: Kind) -> Result<Self> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
            .set_max_row_group_row_count(Some(GROUP))
            .set_created_by(concat!("lwp-fleet ", env!("CARGO_PKG_VERSION")).to_owned());
        for unique in ["id", "content", "frames"] {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(unique), false);
        }
        // The schema that Arrow would add makes readers build dictionaries that they do not need.
        let options = ArrowWriterOptions::new()
            .with_properties(properties.build())
            .with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(Vec::new(), arrow_schema(kind), options)?;
        Ok(Self { kind, writer, rows: 0, bounds: BTreeMap::new() })
    }

    /// Appends rows, whose columns are those of the kind in any order.
    ///
    /// # Errors
    ///
    /// If a column is missing or has another type.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let schema = arrow_schema(self.kind);
        let columns = schema.fields().iter().map(|field| {
            let index = batch.schema_ref().index_of(field.name())?;
            arrow::compute::cast(batch.column(index), field.data_type())
        });
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        let batch = RecordBatch::try_new(schema, columns)?;
        for name in BOUNDED {
            if let Some(column) = batch.column_by_name(name) {
                let entry = self.bounds.entry(name).or_insert_with(|| bounds(column));
                if self.rows > 0 {
                    *entry = entry.take().zip(bounds(column)).map(joined);
                }
            }
        }
        self.rows += batch.num_rows();
        Ok(self.writer.write(&batch)?)
    }

    /// Appends the rows of some batches in the order of [`SORT`], a part of them at a time: a
    /// sorted copy of all would take as much memory again.
    ///
    /// # Errors
    ///
    /// If a column is missing or has another type.
    pub fn write_sorted(&mut self, batches: &[RecordBatch]) -> Result<()> {
        let all: Vec<&RecordBatch> = batches.iter().collect();
        let rows_of = |(index, batch): (usize, &RecordBatch)| {
            (0..batch.num_rows()).map(move |row| (index, row))
        };
        let places: Vec<(usize, usize)> = batches.iter().enumerate().flat_map(rows_of).collect();
        let order = lexsort_to_indices(&sort_columns(batches)?, None)?;
        for part in order.values().chunks(PART) {
            let part: Vec<(usize, usize)> = part.iter().map(|row| places[*row as usize]).collect();
            self.write(&interleave_record_batch(&all, &part)?)?;
        }
        Ok(())
    }

    /// Bytes so far, about.
    pub fn size(&self) -> usize {
        self.writer.bytes_written() + self.writer.in_progress_size()
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The file.
    ///
    /// # Errors
    ///
    /// If the last rows cannot be encoded.
    pub fn finish(self) -> Result<Written> {
        let (kind, rows) = (self.kind, self.rows);
        let mut least = serde_json::Map::new();
        let mut greatest = serde_json::Map::new();
        for (name, bounds) in self.bounds {
            if let Some((from, to)) = bounds {
                least.insert(name.to_owned(), from);
                greatest.insert(name.to_owned(), to);
            }
        }
        let stats = json!({ "numRecords": rows, "minValues": least, "maxValues": greatest });
        let bytes = self.writer.into_inner()?;
        Ok(Written { kind, bytes, rows, is_full: false, stats: stats.to_string() })
    }
}

/// The least and greatest value of a column; `None` where they are not to be told.
fn bounds(column: &dyn Array) -> Option<(Value, Value)> {
    if column.null_count() > 0 || column.is_empty() {
        return None;
    }
    match column.data_type() {
        DataType::Utf8 => {
            let texts = column.as_string::<i32>();
            let (from, to) = (min_string(texts)?, max_string(texts)?);
            let short = from.len().max(to.len()) <= LONGEST_BOUND;
            short.then(|| (json!(from), json!(to)))
        }
        DataType::Int64 => {
            let longs = column.as_primitive::<Int64Type>();
            Some((json!(min(longs)?), json!(max(longs)?)))
        }
        DataType::Timestamp(..) => {
            let times = column.as_primitive::<TimestampMicrosecondType>();
            let text = |micros: i64| {
                let at = jiff::Timestamp::from_microsecond(micros).ok()?;
                Some(json!(format!("{at:.3}")))
            };
            Some((text(min(times)?)?, text(max(times)?)?))
        }
        _ => None,
    }
}

fn joined(((a, b), (c, d)): ((Value, Value), (Value, Value))) -> (Value, Value) {
    let less = |one: &Value, other: &Value| match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => one < other,
        _ => one.as_str() < other.as_str(),
    };
    (if less(&c, &a) { c } else { a }, if less(&b, &d) { d } else { b })
}

/// The columns of some batches of one kind that rows are sorted by.
fn sort_columns(batches: &[RecordBatch]) -> Result<Vec<SortColumn>> {
    let mut columns = Vec::new();
    for name in SORT {
        let parts = batches.iter().filter_map(|batch| batch.column_by_name(name));
        let parts: Vec<&dyn Array> = parts.map(AsRef::as_ref).collect();
        if !parts.is_empty() {
            columns.push(SortColumn { values: concat(&parts)?, options: None });
        }
    }
    Ok(columns)
}

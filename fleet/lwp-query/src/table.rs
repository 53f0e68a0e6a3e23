//! The table of one kind of row, in one version of a store.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result, ScalarValue, Statistics};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use lwp_store::{DataFile, Kind};
use serde_json::Value;

use crate::place::Place;

/// All rows of a kind; what the log knows about files keeps those closed that cannot matter.
#[derive(Debug)]
pub struct KindTable {
    kind: Kind,
    place: Place,
    schema: TableSchema,
    files: Vec<PartitionedFile>,
    rows: u64,
}

impl KindTable {
    /// The table of `kind` with these files of the store that is at `place`.
    pub fn new<'a>(kind: Kind, files: impl Iterator<Item = &'a DataFile>, place: &Place) -> Self {
        let schema = table_schema(kind, place);
        let columns = schema.file_schema();
        let (mut rows, mut partitions) = (0, Vec::new());
        for file in files {
            rows += file.rows;
            partitions.push(partitioned(file, columns));
        }
        Self { kind, place: place.clone(), schema, files: partitions, rows }
    }

    /// The kind of its rows.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The number of its rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The place of its files.
    pub fn place(&self) -> &Place {
        &self.place
    }
}

/// The columns of the table of `kind`, for a store that is at `place`.
pub fn schema_of(kind: Kind, place: &Place) -> SchemaRef {
    table_schema(kind, place).table_schema().clone()
}

fn table_schema(kind: Kind, place: &Place) -> TableSchema {
    let columns = match place.is_shared() {
        // Views of texts make messages between machines as large as the batches that they look
        // into.
        true => lwp_store::arrow_schema(kind),
        false => viewed(&lwp_store::arrow_schema(kind)),
    };
    let date = Arc::new(Field::new("date", DataType::Date32, true));
    TableSchema::builder(columns).with_table_partition_cols(vec![date]).build()
}

/// The schema with texts as the engine likes them.
fn viewed(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8 => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)),
        _ => field.clone(),
    };
    Arc::new(Schema::new(schema.fields().iter().map(field).collect::<Vec<_>>()))
}

fn partitioned(file: &DataFile, columns: &Schema) -> PartitionedFile {
    let days = file.date.parse::<jiff::civil::Date>().ok().and_then(|date| {
        let since = date.since(jiff::civil::date(1970, 1, 1)).ok()?;
        Some(since.get_days())
    });
    let mut statistics = Statistics::new_unknown(columns)
        .with_num_rows(Precision::Exact(usize::try_from(file.rows).unwrap_or(usize::MAX)));
    for (field, about) in columns.fields().iter().zip(&mut statistics.column_statistics) {
        let value = |of: &Value| scalar(field, &of[field.name().as_str()]);
        if let Some((least, greatest)) = value(&file.least).zip(value(&file.greatest)) {
            *about = ColumnStatistics::new_unknown()
                .with_null_count(Precision::Exact(0))
                .with_min_value(Precision::Exact(least))
                .with_max_value(Precision::Exact(greatest));
        }
    }
    PartitionedFile::new(file.path.to_string(), file.size)
        .with_partition_values(vec![ScalarValue::Date32(days)])
        .with_statistics(Arc::new(statistics))
}

fn scalar(field: &Field, value: &Value) -> Option<ScalarValue> {
    match field.data_type() {
        DataType::Utf8 => Some(ScalarValue::Utf8(Some(value.as_str()?.to_owned()))),
        DataType::Utf8View => Some(ScalarValue::Utf8View(Some(value.as_str()?.to_owned()))),
        DataType::Int64 => Some(ScalarValue::Int64(Some(value.as_i64()?))),
        DataType::Timestamp(_, zone) => {
            let at: jiff::Timestamp = value.as_str()?.parse().ok()?;
            Some(ScalarValue::TimestampMicrosecond(Some(at.as_microsecond()), zone.clone()))
        }
        _ => None,
    }
}

#[async_trait]
impl TableProvider for KindTable {
    fn schema(&self) -> SchemaRef {
        self.schema.table_schema().clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.files.is_empty() {
            let schema = match projection {
                Some(indices) => Arc::new(self.schema().project(indices)?),
                None => self.schema(),
            };
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let options = state.table_options().parquet.clone();
        let source = ParquetSource::new(self.schema.clone())
            .with_table_parquet_options(options)
            .with_pushdown_filters(true)
            .with_reorder_filters(true)
            .with_enable_page_index(true);
        let config = FileScanConfigBuilder::new(self.place.url(), Arc::new(source))
            .with_file_groups(groups(&self.files, state.config().target_partitions()))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// The files in as many groups as there are processors, of about the same size.
fn groups(files: &[PartitionedFile], number: usize) -> Vec<FileGroup> {
    let mut groups: Vec<(u64, Vec<PartitionedFile>)> = vec![(0, Vec::new()); number.max(1)];
    let mut files: Vec<_> = files.to_vec();
    files.sort_by_key(|file| std::cmp::Reverse(file.object_meta.size));
    for file in files {
        if let Some(least) = groups.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            least.0 += file.object_meta.size;
            least.1.push(file);
        }
    }
    let full = groups.into_iter().filter(|(_, files)| !files.is_empty());
    full.map(|(_, files)| FileGroup::new(files)).collect()
}

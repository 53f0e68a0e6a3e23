//! Sessions: one version of a store, and SQL over it.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{DataFrame, SQLOptions, SessionConfig, SessionContext};
use futures::StreamExt;
use lwp_store::{Kind, Snapshot, Store};
use url::Url;

use crate::error::{Error, Result};
use crate::table::{KindTable, STORE};
use crate::views;

/// The most that a question may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// MiB of memory; what sorts and joins need beyond goes to temporary files.
    pub memory_mib: usize,
    /// Seconds.
    pub seconds: u64,
    /// Rows of an answer.
    pub rows: usize,
    /// Threads.
    pub threads: usize,
}

impl Default for Budget {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { memory_mib: 1024, seconds: 600, rows: 10_000_000, threads }
    }
}

/// One version of a store, with a table for each kind of row.
pub struct Session {
    context: SessionContext,
    snapshot: Snapshot,
    budget: Budget,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("version", &self.snapshot.version()).finish_non_exhaustive()
    }
}

impl Session {
    /// A session with the latest version of `store`.
    ///
    /// # Errors
    ///
    /// If the store's log cannot be read.
    pub async fn new(store: &Store, budget: Budget) -> Result<Self> {
        let snapshot = store.snapshot().await?;
        Self::of(store, snapshot, budget).await
    }

    /// A session with a version of `store`.
    ///
    /// # Errors
    ///
    /// If the engine refuses its settings.
    pub async fn of(store: &Store, snapshot: Snapshot, budget: Budget) -> Result<Self> {
        let mut config = SessionConfig::new()
            .with_target_partitions(budget.threads.max(1))
            .with_information_schema(true);
        // Views are made before a question is asked, never by one.
        config.options_mut().execution.parquet.pushdown_filters = true;
        let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::OsTmpDirectory);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(budget.memory_mib << 20)))
            .with_disk_manager_builder(disk)
            .build_arc()?;
        let url = Url::parse(STORE).map_err(|error| Error::Engine(error.to_string()))?;
        runtime.register_object_store(&url, store.checked(&snapshot));
        let context = SessionContext::new_with_config_rt(config, runtime);
        for (kind, _) in Kind::ALL {
            let table = KindTable::new(kind, snapshot.files_of(kind));
            context.register_table(views::table_name(kind), Arc::new(table))?;
        }
        for (_, text) in views::views() {
            context.sql(&text).await?;
        }
        Ok(Self { context, snapshot, budget })
    }

    pub(crate) fn context(&self) -> &SessionContext {
        &self.context
    }

    /// The version that is asked.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The answer to a question in SQL. Only questions are answered: nothing can be created, changed or set.
    ///
    /// # Errors
    ///
    /// If it is no question, cannot be answered within the session's budget, or meets damaged files.
    pub async fn ask(&self, sql: &str) -> Result<Rows> {
        let seconds = self.budget.seconds;
        let asked = self.answer(sql);
        match tokio::time::timeout(Duration::from_secs(seconds), asked).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Time(seconds)),
        }
    }

    async fn answer(&self, sql: &str) -> Result<Rows> {
        let frame = self.frame(sql).await?;
        let schema: SchemaRef = Arc::new(frame.schema().as_arrow().clone());
        let most = self.budget.rows;
        // In a task of its own: a panic of the engine is an error of this question.
        let collected = tokio::spawn(async move {
            let mut stream = frame.execute_stream().await?;
            let (mut batches, mut rows) = (Vec::new(), 0);
            while let Some(batch) = stream.next().await {
                let batch = batch?;
                rows += batch.num_rows();
                if rows > most {
                    return Err(Error::Rows(most));
                }
                batches.push(batch);
            }
            Ok(batches)
        });
        // A question that nobody waits for any more ends.
        let mut collected = Aborting(collected);
        match (&mut collected.0).await {
            Ok(batches) => Ok(Rows { schema, batches: batches? }),
            Err(error) => Err(Error::Engine(error.to_string())),
        }
    }

    /// The plan of a question.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub async fn frame(&self, sql: &str) -> Result<DataFrame> {
        let options = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        // Nothing is read before there is a plan: what is wrong is the question.
        let frame = self.context.sql_with_options(sql, options).await;
        frame.map_err(|error| match Error::from(error) {
            Error::Engine(why) if !why.starts_with("damaged") => Error::Question(why),
            error => error,
        })
    }
}

/// A task that ends with whoever waits for it.
struct Aborting<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Aborting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Its columns.
    pub schema: SchemaRef,
    /// Its rows.
    pub batches: Vec<RecordBatch>,
}

impl Rows {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn cells(&self, name: &str, wanted: &DataType) -> Vec<ArrayRef> {
        let cell = |batch: &RecordBatch| {
            let column = batch.column_by_name(name)?;
            arrow::compute::cast(column, wanted).ok()
        };
        self.batches.iter().filter_map(cell).collect()
    }

    /// A column of texts; null is the empty text.
    pub fn texts(&self, name: &str) -> Vec<String> {
        let cells = self.cells(name, &DataType::Utf8);
        let texts = cells.iter().flat_map(|cells| cells.as_string::<i32>().iter());
        texts.map(|text| text.unwrap_or("").to_owned()).collect()
    }

    /// A column of numbers.
    pub fn longs(&self, name: &str) -> Vec<Option<i64>> {
        let cells = self.cells(name, &DataType::Int64);
        cells.iter().flat_map(|cells| cells.as_primitive::<Int64Type>().iter()).collect()
    }

    /// A column of lists of numbers.
    pub fn lists(&self, name: &str) -> Vec<Vec<i64>> {
        let columns = self.batches.iter().filter_map(|batch| batch.column_by_name(name));
        let lists = columns.filter_map(|column| column.as_list_opt::<i32>()).flat_map(|lists| {
            (0..lists.len()).map(|row| {
                let list = lists.value(row);
                let numbers = list.as_primitive_opt::<Int64Type>();
                numbers.map(|numbers| numbers.values().to_vec()).unwrap_or_default()
            })
        });
        lists.collect()
    }
}

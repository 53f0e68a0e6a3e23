//! Sessions: one version of a store, and SQL over it.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::Optimizer;
use datafusion::prelude::{DataFrame, SQLOptions, SessionConfig, SessionContext};
use futures::StreamExt;
use lwp_store::{Kind, Snapshot, Store};

use crate::conditions::with_shared_conditions;
use crate::error::{Error, Result};
use crate::place::Place;
use crate::remote::Remote;
use crate::table::KindTable;
use crate::texts::TextsOnce;
use crate::threads;
use crate::views;

/// Rows of a batch, twice as many as the engine's, which it has where memory is scarce; and the MiB
/// from which on memory isn't.
const LARGE_BATCH: usize = 16 << 10;
const MEMORY_FOR_LARGE_BATCHES: usize = 256;

/// The most that a question may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// MiB of memory; what sorts and joins need beyond goes to temporary files.
    pub memory_mib: usize,
    /// MiB of temporary files.
    pub disk_mib: u64,
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
        Self { memory_mib: 1024, disk_mib: 100 << 10, seconds: 600, rows: 10_000_000, threads }
    }
}

/// One version of a store, with a table for each kind of row.
pub struct Session {
    context: SessionContext,
    snapshot: Snapshot,
    budget: Budget,
    remote: Option<Arc<dyn Remote>>,
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
        if budget.memory_mib >= MEMORY_FOR_LARGE_BATCHES {
            config = config.with_batch_size(LARGE_BATCH);
        }
        // Views are made before a question is asked, never by one.
        config.options_mut().execution.parquet.pushdown_filters = true;
        let rules = with_shared_conditions(Optimizer::new().rules);
        let state = SessionStateBuilder::new()
            .with_default_features()
            .with_config(config)
            .with_runtime_env(runtime(budget)?)
            .with_optimizer_rules(rules)
            .with_optimizer_rule(Arc::new(TextsOnce::default()));
        let context = SessionContext::new_with_state(state.build());
        let session = Self { context, snapshot, budget, remote: None };
        session.prepared(store, &Place::own()).await
    }

    /// A session with the latest version of `store`, whose questions other machines answer.
    ///
    /// # Errors
    ///
    /// If the store's log cannot be read, or the engine refuses its settings.
    pub async fn on(remote: Arc<dyn Remote>, store: &Store, budget: Budget) -> Result<Self> {
        let snapshot = store.snapshot().await?;
        let context = SessionContext::new_with_state(remote.state(runtime(budget)?));
        let place = Place::shared(&store.location().url, snapshot.version());
        Self { context, snapshot, budget, remote: Some(remote) }.prepared(store, &place).await
    }

    /// Makes tables and views.
    async fn prepared(self, store: &Store, place: &Place) -> Result<Self> {
        let runtime = self.context.runtime_env();
        runtime.register_object_store(place.url().as_ref(), store.checked(&self.snapshot));
        for (kind, _) in Kind::ALL {
            let table = KindTable::new(kind, self.snapshot.files_of(kind), place);
            self.context.register_table(views::table_name(kind), Arc::new(table))?;
        }
        for (_, text) in views::views() {
            self.context.sql(&text).await?;
        }
        Ok(self)
    }

    pub(crate) fn context(&self) -> &SessionContext {
        &self.context
    }

    /// The version that is asked.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The answer to a question in SQL. Only questions are answered: nothing can be created,
    /// changed or set.
    ///
    /// # Errors
    ///
    /// If it is no question, cannot be answered within the session's budget, or meets damaged
    /// files.
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
        if let Some(remote) = &self.remote {
            let plan = frame.clone().into_optimized_plan()?;
            // What reads few rows of the store, or none, is answered here.
            let rows = rows_read(&plan)?;
            if rows > 0 && rows >= remote.least_rows() {
                let batches = remote.answer(&plan, most).await?;
                return Ok(Rows { schema, batches });
            }
        }
        let batches = threads::execute(async move {
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
        Ok(Rows { schema, batches: batches.await? })
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
        let (context, question) = (self.context.clone(), sql.to_owned());
        let frame =
            threads::execute(async move { Ok(context.sql_with_options(&question, options).await) });
        // Nothing is read before there is a plan: what is wrong is the question.
        frame.await?.map_err(|error| match Error::from(error) {
            Error::Engine(why) if why.starts_with("damaged") => Error::Engine(why),
            Error::Engine(why) | Error::Execution(why) | Error::Question(why) => {
                Error::Question(why + hint(sql))
            }
            error => error,
        })
    }
}

/// A hint for queries that can't be understood and have a column named like a keyword of SQL.
fn hint(sql: &str) -> &'static str {
    let lower = sql.to_ascii_lowercase();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '"' | '\'');
    if lower.split(|c| !is_part(c)).any(|word| word == "interval") {
        "; the column interval needs quotes: \"interval\""
    } else {
        ""
    }
}

/// Memory, temporary files and storage of a session.
fn runtime(budget: Budget) -> Result<Arc<RuntimeEnv>> {
    let disk = DiskManagerBuilder::default()
        .with_mode(DiskManagerMode::OsTmpDirectory)
        .with_max_temp_directory_size(budget.disk_mib << 20);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(FairSpillPool::new(budget.memory_mib << 20)))
        .with_disk_manager_builder(disk);
    Ok(runtime.build_arc()?)
}

/// The rows of the tables of the store that a plan reads, before any are left out.
fn rows_read(plan: &LogicalPlan) -> Result<u64> {
    let mut rows = 0;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::TableScan(scan) = plan
            && let Ok(table) = source_as_provider(&scan.source)
            && let Some(table) = (table.as_ref() as &dyn std::any::Any).downcast_ref::<KindTable>()
        {
            rows += table.rows();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(rows)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_with_a_name_of_sql_s_is_explained() {
        for sql in ["select interval, event from totals", "select event, Interval from x"] {
            assert!(hint(sql).contains("needs quotes"), "{sql}");
        }
        for sql in ["select \"interval\" from totals", "select intervals from x", "select 1"] {
            assert_eq!(hint(sql), "", "{sql}");
        }
    }
}

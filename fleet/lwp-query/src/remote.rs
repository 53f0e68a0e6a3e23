//! Other machines that answer questions.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::LogicalPlan;

use crate::error::Result;

/// Machines that answer questions together. They open the same version of the same store
/// themselves.
#[async_trait]
pub trait Remote: std::fmt::Debug + Send + Sync {
    /// The state in which questions for them are planned.
    fn state(&self, runtime: Arc<RuntimeEnv>) -> SessionState;

    /// The fewest rows of the store that a question reads which they are asked. One machine answers
    /// others sooner.
    fn least_rows(&self) -> u64;

    /// The rows that an optimized plan has, at most so many.
    async fn answer(&self, plan: &LogicalPlan, most: usize) -> Result<Vec<RecordBatch>>;
}

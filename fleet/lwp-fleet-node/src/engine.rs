//! The engine as every machine of a cluster has it, and whoever asks one.

use std::path::PathBuf;
use std::sync::Arc;

use ballista_core::ConfigProducer;
use ballista_core::config::{
    BALLISTA_CLIENT_IO_RETRIES_TIMES, BALLISTA_CLIENT_IO_RETRY_WAIT_TIME_MS,
};
use ballista_core::extension::{
    SessionConfigExt, ballista_aggregate_functions, ballista_scalar_functions,
    ballista_window_functions,
};
use ballista_core::optimizer::ballista_default_optimizer_rules;
use datafusion::error::Result;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::prelude::SessionConfig;
use lwp_query::with_shared_conditions;

use crate::credentials::Credentials;
use crate::versions::Versions;

/// The most bytes of a message: a plan names its files.
pub const MESSAGE: usize = 256 << 20;

/// The settings of a session that divides questions into so many parts.
pub fn config(parts: usize, credentials: &Credentials) -> SessionConfig {
    let mut config = SessionConfig::new_with_ballista()
        .with_target_partitions(parts)
        .with_ballista_adaptive_query_planner(false)
        .with_ballista_grpc_client_max_message_size(MESSAGE)
        .with_ballista_override_create_grpc_client_endpoint(credentials.for_ballista());
    config.options_mut().execution.parquet.pushdown_filters = true;
    // A machine that cannot be reached is lost soon, and the question asked again.
    config
        .set_usize(BALLISTA_CLIENT_IO_RETRIES_TIMES, 2)
        .set_usize(BALLISTA_CLIENT_IO_RETRY_WAIT_TIME_MS, 500)
}

/// The settings of such a session, for Ballista.
pub fn producer(parts: usize, credentials: &Credentials) -> ConfigProducer {
    let credentials = credentials.clone();
    Arc::new(move || config(parts, &credentials))
}

/// A session's state.
pub fn state(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> SessionState {
    SessionStateBuilder::new()
        .with_default_features()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_optimizer_rules(with_shared_conditions(ballista_default_optimizer_rules()))
        .with_scalar_functions(ballista_scalar_functions())
        .with_aggregate_functions(ballista_aggregate_functions())
        .with_window_functions(ballista_window_functions())
        .build()
}

/// Memory and storage of a machine: it reads versions of its store, and no other files. What does
/// not fit into memory goes to temporary files in `directory`.
///
/// # Errors
///
/// If the engine refuses the directory.
pub fn runtime(
    versions: Versions,
    memory_mib: usize,
    directory: PathBuf,
) -> Result<Arc<RuntimeEnv>> {
    let disk = DiskManagerMode::Directories(vec![directory]);
    RuntimeEnvBuilder::new()
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(disk))
        .with_object_store_registry(Arc::new(versions))
        .with_memory_pool(Arc::new(FairSpillPool::new(memory_mib << 20)))
        .build_arc()
}

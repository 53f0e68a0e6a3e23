//! Commits: each is made for one version, and decides anew when another one came before.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use deltalake_core::kernel::transaction::{CommitBuilder, TransactionError};
use deltalake_core::kernel::{Action, Remove};
use deltalake_core::protocol::{DeltaOperation, SaveMode, checkpoints};
use deltalake_core::{DeltaTable, DeltaTableError};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::guard::KEY;
use crate::snapshot::{DataFile, Snapshot};
use crate::store::{Store, now_millis};

/// Attempts before a writer gives up.
const ATTEMPTS: u32 = 200;
/// Commits from one checkpoint to the next.
const CHECKPOINTS: u64 = 50;

/// The content of a commit.
#[derive(Debug, Default)]
pub struct Change {
    /// Actions of the log.
    pub actions: Vec<Action>,
    /// True if rows came or went, and did not only move to other files.
    pub of_data: bool,
}

/// Decides on a commit.
#[async_trait]
pub trait Plan: Send {
    /// The commit for the version of `snapshot`; `None` if there is nothing to do. Asked again when
    /// another commit came before.
    async fn change(&mut self, store: &Store, snapshot: &Snapshot) -> Result<Option<Change>>;
}

/// Makes the commit that `plan` wants for the latest version, again and again until no other came
/// in between.
///
/// Returns the version, that of the snapshot if there was nothing to do.
pub async fn commit(store: &Store, plan: &mut dyn Plan) -> Result<u64> {
    for attempt in 0..ATTEMPTS {
        let snapshot = store.snapshot().await?;
        let Some(change) = plan.change(store, &snapshot).await? else {
            return Ok(snapshot.version());
        };
        let next = snapshot.version() + 1;
        let mode = if change.of_data { SaveMode::Append } else { SaveMode::Overwrite };
        let operation = DeltaOperation::Write { mode, partition_by: None, predicate: None };
        let prepared = builder(change.actions)?
            .build(Some(snapshot.reference()), store.log.clone(), operation)
            .into_prepared_commit_future()
            .await?;
        match prepared.await {
            Ok(done) => {
                store.settle(&path(done.version))?;
                if done.version.is_multiple_of(CHECKPOINTS) {
                    checkpoint(store, done.version).await;
                }
                return Ok(done.version);
            }
            Err(error) if is_lost_race(&error) => {
                // Whoever is second reads the log again; some wait longer than others.
                let most = 20 * u64::from(attempt.min(20)) + 5;
                let wait = Uuid::new_v4().as_u128() as u64 % most;
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            // A storage may have taken the commit before its answer was lost.
            Err(error) => {
                if store.log.get_latest_version(next - 1).await.unwrap_or(0) < next {
                    return Err(error.into());
                }
            }
        }
    }
    Err(Error::Contention(ATTEMPTS))
}

/// Makes the first commit of a store.
pub async fn first(store: &Store, actions: Vec<Action>, operation: DeltaOperation) -> Result<()> {
    let done = builder(actions)?.build(None, store.log.clone(), operation);
    done.into_prepared_commit_future().await?.await?;
    store.settle(&path(0))
}

/// The path of a commit.
fn path(version: u64) -> String {
    format!("_delta_log/{version:020}.json")
}

/// A commit for one version and no other.
fn builder(actions: Vec<Action>) -> Result<CommitBuilder> {
    let lines = actions.iter().map(serde_json::to_string);
    let lines = lines.collect::<std::result::Result<Vec<_>, _>>()?.join("\n");
    let sum: Value = json!(crc32c::crc32c(lines.as_bytes()));
    let about = HashMap::from([(KEY.to_owned(), sum)]);
    Ok(CommitBuilder::default().with_actions(actions).with_app_metadata(about).with_max_retries(0))
}

fn is_lost_race(error: &DeltaTableError) -> bool {
    matches!(
        error,
        DeltaTableError::VersionAlreadyExists(_)
            | DeltaTableError::Transaction {
                source: TransactionError::MaxCommitAttempts(_)
                    | TransactionError::VersionAlreadyExists(_)
                    | TransactionError::CommitConflict(_),
            }
    )
}

/// Writes a checkpoint. Without it, everything is read all the same, and the next one is soon.
async fn checkpoint(store: &Store, version: u64) {
    let mut table = DeltaTable::new(store.log.clone());
    if table.load_version(version).await.is_ok() {
        let _ = checkpoints::create_checkpoint(&table, None).await;
    }
}

/// The action that removes a file.
pub fn removal(file: &DataFile, of_data: bool) -> Action {
    Action::Remove(Remove {
        path: file.view.path.clone(),
        data_change: of_data,
        deletion_timestamp: Some(now_millis()),
        extended_file_metadata: Some(true),
        partition_values: Some(file.view.partition_values.clone()),
        size: Some(file.view.size),
        ..Remove::default()
    })
}

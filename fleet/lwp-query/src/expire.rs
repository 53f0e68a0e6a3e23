//! Removing rows: by rules of retention, or because what they belong to is damaged.

use std::collections::BTreeSet;

use datafusion::prelude::col;
use lwp_store::object_store::path::Path;
use lwp_store::{DataFile, Kind, Rule, Store};

use crate::compact;
use crate::error::Result;
use crate::filter::Filter;
use crate::session::{Budget, Session};

/// The rows that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Rows.
    pub rows: u64,
    /// Files that had such rows.
    pub files: usize,
}

/// Removes what the store's rules say, each rule in one commit. Totals of recordings stay unless a rule names recordings.
///
/// # Errors
///
/// If a rule is wrong, a file is damaged or the storage fails. What earlier rules removed stays removed.
pub async fn expire(store: &Store, budget: Budget) -> Result<Expired> {
    let mut all = Expired::default();
    for rule in store.retention().await?.retention {
        let session = Session::new(store, budget).await?;
        let kinds = rule.of_kinds()?;
        let condition = condition(&rule)?;
        let done = remove(store, &session, &kinds, &condition).await?;
        all.rows += done.rows;
        all.files += done.files;
    }
    Ok(all)
}

fn condition(rule: &Rule) -> Result<String> {
    let filter = Filter::parse(&rule.filter)?;
    let old = Filter::parse(&[format!("until={}d", rule.days)])?;
    Ok(format!(
        "recording in (select recording from recordings where {} and {})",
        old.sql(),
        filter.sql()
    ))
}

/// Removes the rows of some kinds that meet a condition, in one commit.
///
/// # Errors
///
/// If a file is damaged, the storage fails, or somebody has rewritten one of the files meanwhile: then nothing was removed.
pub(crate) async fn remove(
    store: &Store,
    session: &Session,
    kinds: &[Kind],
    condition: &str,
) -> Result<Expired> {
    let sql = format!("select distinct recording from recordings where {condition}");
    let going: BTreeSet<i64> =
        session.ask(&sql).await?.longs("recording").into_iter().flatten().collect();
    remove_recordings(store, session, kinds, &going, &[]).await
}

/// Removes the rows of some recordings, and whole files, in one commit.
///
/// # Errors
///
/// As [`remove`].
pub(crate) async fn remove_recordings(
    store: &Store,
    session: &Session,
    kinds: &[Kind],
    going: &BTreeSet<i64>,
    broken: &[Path],
) -> Result<Expired> {
    let mut done = Expired { rows: 0, files: broken.len() };
    let (mut old, mut new) = (broken.to_vec(), Vec::new());
    let files = session.snapshot().files().iter();
    for file in files.filter(|file| kinds.contains(&file.kind) && !broken.contains(&file.path)) {
        if !may_have(file, going) {
            continue;
        }
        let list = going.iter().map(|key| datafusion::prelude::lit(*key)).collect();
        let kept =
            session.files(file.kind, &[file])?.filter(col("recording").in_list(list, true))?;
        let written = compact::write(file.kind, kept).await?;
        let rows: u64 = written.iter().map(|file| file.rows as u64).sum();
        if rows == file.rows {
            continue;
        }
        done.rows += file.rows - rows;
        done.files += 1;
        old.push(file.path.clone());
        new.extend(written.into_iter().map(|new| (file.date.clone(), new, file.level.max(1))));
    }
    if !old.is_empty() {
        store.replace(&old, new, true).await?;
    }
    Ok(done)
}

/// Returns true if a file may have rows of one of the recordings, as far as the log tells.
fn may_have(file: &DataFile, recordings: &BTreeSet<i64>) -> bool {
    let bound = |of: &serde_json::Value| of["recording"].as_i64();
    match (bound(&file.least), bound(&file.greatest)) {
        (Some(least), Some(greatest)) => recordings.range(least..=greatest).next().is_some(),
        _ => !recordings.is_empty(),
    }
}

//! Deleting files that no version needs any more.

use std::collections::HashSet;
use std::path::PathBuf;

use deltalake_core::table::state::DeltaTableState;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use crate::error::Result;
use crate::raw::{is_raw, raw_path};
use crate::store::{Store, millis, now_millis};

/// The files that were deleted, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vacuumed {
    /// Files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Store {
    /// Deletes data files that the latest version does not have and that were put and removed more
    /// than `hours` ago: nobody can be reading or adding them any more. So go raw recordings whose
    /// recordings are not there, and files of the log that only versions need which were replaced
    /// before. With `dry`, they are only counted.
    ///
    /// # Errors
    ///
    /// If the storage fails. What was deleted until then was not needed.
    pub async fn vacuum(&self, hours: u32, dry: bool) -> Result<Vacuumed> {
        let before = now_millis() - i64::from(hours) * 3_600_000;
        // The list first: what is put later is not in it.
        let all: Vec<_> = self.files.list(None).try_collect().await?;
        let snapshot = self.snapshot().await?;
        let mut needed: HashSet<Path> =
            snapshot.files().iter().map(|file| file.path.clone()).collect();
        let state = DeltaTableState::new(snapshot.table.clone());
        let mut removed = state.all_tombstones(self.log.as_ref());
        while let Some(gone) = removed.try_next().await? {
            if gone.deletion_timestamp().unwrap_or(i64::MAX) > before {
                needed.insert(Path::from(gone.path().as_ref()));
            }
        }
        let old = |object: &ObjectMeta| object.last_modified.timestamp_millis() <= before;
        // Ids are in data files, which are read only where there is a question.
        if all.iter().any(|object| is_raw(&object.location) && old(object)) {
            let ids = self.all_ids().await?;
            needed.extend(ids.into_iter().map(raw_path));
        }
        let is_ours = |path: &Path| path.as_ref().starts_with("kind=") || is_raw(path);
        let going = all.iter().filter(|object| {
            old(object) && is_ours(&object.location) && !needed.contains(&object.location)
        });
        let outdated = self.outdated(&all, before).await?;
        let mut done = Vacuumed::default();
        for object in going.chain(&outdated) {
            done.files += 1;
            done.bytes += object.size;
            if !dry {
                self.files.delete(&object.location).await?;
            }
        }
        for (path, bytes) in self.halves(before)? {
            done.files += 1;
            done.bytes += bytes;
            if !dry {
                remove(&path)?;
            }
        }
        Ok(done)
    }

    /// Files of a directory in whose middle a writer was killed, and their bytes; a bucket has
    /// none. They are beside the ones that they were to become, and no list has them.
    fn halves(&self, before: i64) -> Result<Vec<(PathBuf, u64)>> {
        let mut folders: Vec<PathBuf> = self.location.directory.clone().into_iter().collect();
        let mut halves = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?;
                // Whoever writes it may have finished meanwhile.
                let Ok(about) = entry.metadata() else { continue };
                let is_old = about.modified().is_ok_and(|at| millis(at) <= before);
                match about.is_dir() {
                    true => folders.push(entry.path()),
                    false if is_old && is_half(&entry.path()) => {
                        halves.push((entry.path(), about.len()));
                    }
                    false => {}
                }
            }
        }
        Ok(halves)
    }
}

/// Deletes a file that may have gone.
fn remove(path: &std::path::Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if a file has a name that only files in the making have: `x.parquet#1`.
fn is_half(path: &std::path::Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let number = name.rsplit_once('#').map_or("", |(_, number)| number);
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

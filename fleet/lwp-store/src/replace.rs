//! Files in place of others: put one by one, and then there all at once.

use async_trait::async_trait;
use deltalake_core::kernel::{Action, Add};
use object_store::ObjectStoreExt;
use object_store::path::Path;

use crate::commit::{Change, Plan, commit, removal};
use crate::error::{Error, Result};
use crate::file::Written;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// A data file that was put, and that no version has yet.
#[derive(Debug)]
pub struct Placed {
    add: Add,
    /// Its rows.
    pub rows: u64,
}

impl Placed {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.add.size.unsigned_abs()
    }

    fn path(&self) -> Path {
        Path::from(self.add.path.as_str())
    }
}

impl Store {
    /// Puts a data file of a day, for [`Store::replace`]. Nobody looks at it before that; whoever
    /// is killed in between leaves it to [`Store::vacuum`].
    ///
    /// # Errors
    ///
    /// If the storage refuses it.
    pub async fn place(&self, date: &str, written: Written, level: u32) -> Result<Placed> {
        let rows = written.rows as u64;
        Ok(Placed { add: self.put(date, "c", written, level).await?, rows })
    }

    /// Deletes files that were put and that no version will have. Those that cannot be deleted are
    /// left to [`Store::vacuum`].
    pub async fn discard(&self, files: &[Placed]) {
        for file in files {
            let _ = self.files.delete(&file.path()).await;
        }
    }

    /// Replaces files by others that were put, at once. `of_data`: whether rows went, and not only
    /// moved.
    ///
    /// # Errors
    ///
    /// If one of the old files has gone in between: then nothing has changed.
    pub async fn replace(&self, old: &[Path], mut new: Vec<Placed>, of_data: bool) -> Result<u64> {
        for file in &mut new {
            file.add.data_change = of_data;
        }
        let done = commit(self, &mut Replacing { old, new: &new, of_data }).await;
        // After any other fault, a commit that has the files may be there.
        if matches!(done, Err(Error::Gone(_))) {
            self.discard(&new).await;
        }
        done
    }
}

/// Files in place of others.
struct Replacing<'a> {
    old: &'a [Path],
    new: &'a [Placed],
    of_data: bool,
}

#[async_trait]
impl Plan for Replacing<'_> {
    async fn change(&mut self, _: &Store, snapshot: &Snapshot) -> Result<Option<Change>> {
        // A storage took the commit before its answer was lost.
        if self.new.iter().any(|file| snapshot.file(&file.path()).is_some()) {
            return Ok(None);
        }
        let mut actions = Vec::new();
        for path in self.old {
            let file = snapshot.file(path).ok_or_else(|| Error::Gone(path.to_string()))?;
            actions.push(removal(file, self.of_data));
        }
        actions.extend(self.new.iter().map(|file| Action::Add(file.add.clone())));
        let change = Change { actions, of_data: self.of_data };
        Ok(Some(change).filter(|change| !change.actions.is_empty()))
    }
}

//! The log as files: which of them is damaged, and which versions can be read all the same.

use std::collections::{BTreeMap, BTreeSet};

use deltalake_core::kernel::EagerSnapshot;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use crate::error::{Error, Result};
use crate::guard::{FOLDER, Part, numbered, summed};
use crate::location::Location;
use crate::snapshot::Snapshot;
use crate::store::Store;

/// The files of a log.
#[derive(Debug, Default)]
struct LogFiles {
    commits: BTreeSet<u64>,
    checkpoints: BTreeMap<u64, Path>,
}

impl LogFiles {
    /// The latest version that there is a file of.
    fn last(&self) -> u64 {
        let checkpoint = self.checkpoints.keys().next_back().copied();
        self.commits.last().copied().max(checkpoint).unwrap_or(0)
    }

    /// The first version that can be read if no file is damaged.
    fn first(&self) -> u64 {
        match self.commits.contains(&0) {
            true => 0,
            false => self.checkpoints.keys().next().copied().unwrap_or(0),
        }
    }
}

impl Store {
    /// A version, the latest unless one is wanted.
    pub(crate) async fn version(&self, wanted: Option<u64>) -> Result<Snapshot> {
        let error = match EagerSnapshot::try_new(self.log.as_ref(), wanted).await {
            Ok(table) => return Snapshot::new(table),
            Err(error) => Error::from(error),
        };
        match error.is_temporary() {
            true => Err(error),
            false => Err(self.log_fault(wanted).await?.unwrap_or(error)),
        }
    }

    /// The latest version that can be read of a store whose log is damaged, if there is one.
    ///
    /// # Errors
    ///
    /// If the storage fails.
    pub async fn last_good(location: Location) -> Result<Option<u64>> {
        let store = Self::at(location)?;
        let mut next = Some(store.log_files().await?.last());
        while let Some(version) = next {
            next = match store.snapshot_at(version).await {
                Ok(_) => return Ok(Some(version)),
                // Nothing from there on until here can be read.
                Err(Error::Log { version, .. }) => version.checked_sub(1),
                Err(Error::NoVersion { .. }) => None,
                Err(error) => return Err(error),
            };
        }
        Ok(None)
    }

    /// The files of the log in `all` that no version needs which was the latest at a time, in
    /// milliseconds since 1970, or later: those before the checkpoint that these begin with.
    /// First commits come first: without them, no version is made of what is left.
    pub(crate) async fn outdated(&self, all: &[ObjectMeta], at: i64) -> Result<Vec<ObjectMeta>> {
        let is_old = |object: &ObjectMeta| object.last_modified.timestamp_millis() <= at;
        let numbers = |wanted: Part| {
            let number = move |object: &ObjectMeta| match numbered(&object.location) {
                Some((version, part)) if part == wanted => Some((version, is_old(object))),
                _ => None,
            };
            all.iter().filter_map(number)
        };
        let last = numbers(Part::Commit).map(|(version, _)| version).max();
        let young = numbers(Part::Commit).filter(|(_, is_old)| !is_old).map(|(version, _)| version);
        let needed = young.min().map_or(last, |young| young.checked_sub(1));
        let checkpoints = numbers(Part::Checkpoint).map(|(version, _)| version);
        let kept = needed.and_then(|needed| checkpoints.filter(|version| *version <= needed).max());
        let Some(kept) = kept else { return Ok(Vec::new()) };
        // What it says is nowhere else then.
        if self.snapshot_at(kept).await.is_err() {
            return Ok(Vec::new());
        }
        let outdated = |object: &&ObjectMeta| {
            let number = numbered(&object.location).map(|(version, _)| version);
            let version = number.or_else(|| summed(&object.location));
            version.is_some_and(|version| version < kept) && is_old(object)
        };
        let mut outdated: Vec<_> = all.iter().filter(outdated).cloned().collect();
        // Without its checksum, a checkpoint is taken for damaged.
        outdated.sort_by_key(|object| {
            (summed(&object.location).is_some(), object.location.as_ref().to_owned())
        });
        Ok(outdated)
    }

    async fn log_files(&self) -> Result<LogFiles> {
        let mut files = LogFiles::default();
        let mut all = self.files.list(Some(&Path::from(FOLDER)));
        while let Some(object) = all.try_next().await? {
            match numbered(&object.location) {
                Some((version, Part::Commit)) => drop(files.commits.insert(version)),
                Some((version, Part::Checkpoint)) => {
                    drop(files.checkpoints.insert(version, object.location));
                }
                _ => {}
            }
        }
        Ok(files)
    }

    /// The fault of the files that make a version; `None` if each of them is there and whole.
    async fn log_fault(&self, wanted: Option<u64>) -> Result<Option<Error>> {
        let files = self.log_files().await?;
        let (first, last) = (files.first(), files.last());
        let end = wanted.unwrap_or(last);
        if end < first || end > last {
            return Ok(Some(Error::NoVersion { wanted: end, first, last }));
        }
        let checkpoint = files.checkpoints.range(..=end).next_back();
        if let Some((version, path)) = checkpoint
            && let Some(fault) = self.fault_in(*version, path).await?
        {
            return Ok(Some(fault));
        }
        let from = checkpoint.map_or(0, |(version, _)| version + 1);
        for version in from..=end {
            let path = Path::from(format!("{FOLDER}/{version:020}.json"));
            if let Some(fault) = self.fault_in(version, &path).await? {
                return Ok(Some(fault));
            }
        }
        Ok(None)
    }

    /// The fault of a file of the log.
    async fn fault_in(&self, version: u64, path: &Path) -> Result<Option<Error>> {
        match self.log.object_store(None).get(path).await {
            Ok(_) => Ok(None),
            Err(object_store::Error::NotFound { .. }) => {
                let (file, why) = (path.to_string(), "it is missing".to_owned());
                Ok(Some(Error::Log { file, version, why }))
            }
            Err(object_store::Error::Generic { store, source }) => match source.downcast() {
                Ok(own) => Ok(Some(*own)),
                Err(source) => Err(object_store::Error::Generic { store, source }.into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}

//! Opening and making stores.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use deltalake_core::DeltaTableError;
use deltalake_core::kernel::{Action, Add, Protocol, new_metadata};
use deltalake_core::logstore::{LogStoreRef, StorageConfig, default_logstore};
use deltalake_core::protocol::{DeltaOperation, SaveMode};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use uuid::Uuid;

use crate::blocks::Blocks;
use crate::commit;
use crate::error::{Error, Result};
use crate::file::Written;
use crate::guard::Guard;
use crate::location::Location;
use crate::schema;
use crate::snapshot::{BLOCKS, FULL, LEVEL, Snapshot};

/// The version of the layout that this program writes.
const LAYOUT: &str = "1";
/// The key of the layout in the table's properties.
const LAYOUT_KEY: &str = "lwp.layout";

/// A store.
#[derive(Clone)]
pub struct Store {
    pub(crate) location: Location,
    pub(crate) log: LogStoreRef,
    /// Everything in it, as it lies there.
    pub(crate) files: Arc<dyn ObjectStore>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("location", &self.location).finish_non_exhaustive()
    }
}

impl Store {
    pub(crate) fn at(location: Location) -> Result<Self> {
        let prefix = location.prefix()?;
        let guarded: Arc<dyn ObjectStore> = Arc::new(Guard::new(location.root.clone()));
        let inside: Arc<dyn ObjectStore> =
            Arc::new(PrefixStore::new(guarded.clone(), prefix.clone()));
        let config = StorageConfig::default();
        let log = if location.directory.is_some() {
            // The log's reader decodes addresses twice, which `%20` in a directory's name doesn't
            // survive: it reads from a storage that begins with the store.
            let mut top = location.url.clone();
            top.set_path("/");
            default_logstore(inside.clone(), inside, &top, &config)
        } else {
            default_logstore(inside, guarded, &location.url, &config)
        };
        let files = Arc::new(PrefixStore::new(location.root.clone(), prefix));
        Ok(Self { location, log, files })
    }

    /// Makes a store.
    ///
    /// # Errors
    ///
    /// If there is one already, or the storage does not refuse to overwrite.
    pub async fn init(location: Location) -> Result<Self> {
        let url = location.url.to_string();
        if let Some(directory) = &location.directory {
            let wrong = |error: std::io::Error| Error::Location {
                url: url.clone(),
                why: error.to_string(),
            };
            std::fs::create_dir_all(directory).map_err(wrong)?;
        }
        let store = Self::at(location)?;
        if store.log.is_delta_table_location().await? {
            return Err(Error::Exists(url));
        }
        store.probe(&url).await?;
        let schema = schema::delta_schema().map_err(Error::Version)?;
        let properties = [(LAYOUT_KEY, LAYOUT), ("delta.logRetentionDuration", "interval 30 days")];
        let metadata =
            new_metadata(&schema, ["kind", "date"], properties).map_err(DeltaTableError::from)?;
        let protocol = serde_json::from_value::<Protocol>(
            serde_json::json!({ "minReaderVersion": 1, "minWriterVersion": 2 }),
        )?;
        let operation = DeltaOperation::Create {
            mode: SaveMode::ErrorIfExists,
            location: store.location.url.clone(),
            protocol: protocol.clone(),
            metadata: metadata.clone(),
        };
        let actions = vec![Action::Protocol(protocol), Action::Metadata(metadata)];
        match commit::first(&store, actions, operation).await {
            Ok(()) => Ok(store),
            Err(_) if store.log.is_delta_table_location().await? => Err(Error::Exists(url)),
            Err(error) => Err(error),
        }
    }

    /// Puts an object twice, the second time only if it is absent.
    async fn probe(&self, url: &str) -> Result<()> {
        let path = Path::from(format!("_lwp/probe-{}", Uuid::new_v4()));
        let create = || PutMode::Create.into();
        self.files.put_opts(&path, PutPayload::from("a"), create()).await?;
        let second = self.files.put_opts(&path, PutPayload::from("b"), create()).await;
        self.files.delete(&path).await?;
        match second {
            Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(Error::Unconditional(url.to_owned())),
        }
    }

    /// Opens a store.
    ///
    /// # Errors
    ///
    /// If there is none, or it has a layout that this program does not know.
    pub async fn open(location: Location) -> Result<Self> {
        Ok(Self::open_at(location, None).await?.0)
    }

    /// Opens a store with one of its versions, the latest unless one is wanted. An earlier one may
    /// be whole where the latest is damaged.
    ///
    /// # Errors
    ///
    /// If there is none, or it has a layout that this program does not know.
    pub async fn open_at(location: Location, wanted: Option<u64>) -> Result<(Self, Snapshot)> {
        let store = Self::at(location)?;
        if !store.log.is_delta_table_location().await? {
            return Err(Error::Missing(store.location.url.to_string()));
        }
        let snapshot = store.version(wanted).await?;
        let layout = snapshot.table.metadata().configuration().get(LAYOUT_KEY).cloned();
        match layout.as_deref() {
            Some(LAYOUT) => Ok((store, snapshot)),
            other => Err(Error::Version(other.unwrap_or("none").to_owned())),
        }
    }

    /// The address.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The latest version.
    ///
    /// # Errors
    ///
    /// If the log is damaged or cannot be read.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.version(None).await
    }

    /// An earlier version, as long as its log and files are kept.
    ///
    /// # Errors
    ///
    /// If there is no such version, or its log is damaged or cannot be read.
    pub async fn snapshot_at(&self, version: u64) -> Result<Snapshot> {
        self.version(Some(version)).await
    }

    /// The storage of the files of a version, checked.
    pub fn checked(&self, snapshot: &Snapshot) -> Arc<dyn ObjectStore> {
        Arc::new(snapshot.checked(self.files.clone()))
    }

    /// Everything in the store as it lies there, unchecked.
    pub fn unchecked(&self) -> Arc<dyn ObjectStore> {
        self.files.clone()
    }

    /// Puts a data file where nobody looks before a commit says so.
    ///
    /// # Errors
    ///
    /// If the storage refuses it.
    pub(crate) async fn put(
        &self,
        date: &str,
        name: &str,
        written: Written,
        level: u32,
    ) -> Result<Add> {
        let kind = written.kind.word();
        // A name of its own: a file that vacuum is about to delete must never come back.
        let unique = Uuid::new_v4().simple().to_string();
        let path = format!("kind={kind}/date={date}/{name}-{}.parquet", &unique[..12]);
        let mut tags = HashMap::from([
            (BLOCKS.to_owned(), Some(Blocks::of(&written.bytes).text())),
            (LEVEL.to_owned(), Some(level.to_string())),
        ]);
        tags.extend(written.is_full.then(|| (FULL.to_owned(), Some("true".to_owned()))));
        let size = written.bytes.len() as i64;
        self.files.put(&Path::from(path.as_str()), written.bytes.into()).await?;
        self.settle(&path)?;
        Ok(Add {
            path,
            partition_values: HashMap::from([
                ("kind".to_owned(), Some(kind.to_owned())),
                ("date".to_owned(), Some(date.to_owned())),
            ]),
            size,
            modification_time: now_millis(),
            data_change: level == 0,
            stats: Some(written.stats),
            tags: Some(tags),
            deletion_vector: None,
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
        })
    }

    /// Waits until a file of a directory is on the disk; a bucket has it when it says so.
    pub(crate) fn settle(&self, path: &str) -> Result<()> {
        let Some(directory) = &self.location.directory else { return Ok(()) };
        let file = directory.join(path);
        std::fs::File::open(&file)?.sync_all()?;
        for folder in file.ancestors().skip(1).take_while(|folder| folder.starts_with(directory)) {
            std::fs::File::open(folder)?.sync_all()?;
        }
        Ok(())
    }
}

/// Now, in milliseconds since 1970.
pub fn now_millis() -> i64 {
    millis(SystemTime::now())
}

/// A time in milliseconds since 1970.
pub fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The day of a second since 1970, in UTC, as 2026-11-23.
pub fn day(seconds: i64) -> Result<String> {
    let at = jiff::Timestamp::from_second(seconds).map_err(|_| Error::Date(seconds))?;
    Ok(at.to_zoned(jiff::tz::TimeZone::UTC).date().to_string())
}

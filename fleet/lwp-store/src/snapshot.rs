//! One version of a store.

use std::collections::HashMap;
use std::sync::Arc;

use deltalake_core::kernel::transaction::TableReference;
use deltalake_core::kernel::{Add, EagerSnapshot, LogicalFileView};
use object_store::ObjectStore;
use object_store::path::Path;
use serde_json::Value;

use crate::blocks::Blocks;
use crate::checked::CheckedFiles;
use crate::error::{Error, Result};
use crate::kind::Kind;

/// The key of the blocks' checksums among a file's tags.
pub(crate) const BLOCKS: &str = "lwp.crc32c.256k";
/// The key of a file's level: how often its rows were compacted.
pub(crate) const LEVEL: &str = "lwp.level";
/// The key of a file that was ended because it is full.
pub(crate) const FULL: &str = "lwp.full";

/// A version of a store: files that are all there and never change.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) table: EagerSnapshot,
    files: Arc<Vec<DataFile>>,
}

/// A data file of a version.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// Its path in the store.
    pub path: Path,
    /// The kind of its rows.
    pub kind: Kind,
    /// The day of its recordings, as 2026-11-23.
    pub date: String,
    /// Its bytes.
    pub size: u64,
    /// Its rows.
    pub rows: u64,
    /// The number of times that its rows were compacted: 0 for what was added.
    pub level: u32,
    /// True if it was ended because it is as large as a file may be.
    pub is_full: bool,
    /// Least values of some columns, as JSON.
    pub least: Value,
    /// Greatest values of some columns.
    pub greatest: Value,
    /// The checksums of its blocks.
    pub blocks: Arc<Blocks>,
    pub(crate) view: Arc<Add>,
}

impl Snapshot {
    pub(crate) fn new(table: EagerSnapshot) -> Result<Self> {
        let files = table.log_data().iter().map(|view| file(&view)).collect::<Result<Vec<_>>>()?;
        Ok(Self { table, files: Arc::new(files) })
    }

    /// The version's number.
    pub fn version(&self) -> u64 {
        self.table.version()
    }

    /// All files.
    pub fn files(&self) -> &[DataFile] {
        &self.files
    }

    /// Files of a kind.
    pub fn files_of(&self, kind: Kind) -> impl Iterator<Item = &DataFile> {
        self.files.iter().filter(move |file| file.kind == kind)
    }

    /// This version as it would be without some files.
    pub fn without(&self, paths: &[Path]) -> Self {
        let files = self.files.iter().filter(|file| !paths.contains(&file.path));
        Self { table: self.table.clone(), files: Arc::new(files.cloned().collect()) }
    }

    /// The file at a path.
    pub fn file(&self, path: &Path) -> Option<&DataFile> {
        self.files.iter().find(|file| file.path == *path)
    }

    /// The storage of its files, which `inner` has, checked.
    pub fn checked(&self, inner: Arc<dyn ObjectStore>) -> CheckedFiles {
        let blocks: HashMap<_, _> =
            self.files.iter().map(|file| (file.path.clone(), file.blocks.clone())).collect();
        CheckedFiles::new(inner, blocks)
    }

    pub(crate) fn reference(&self) -> &dyn TableReference {
        &self.table
    }
}

#[expect(deprecated, reason = "tags are nowhere else")]
fn file(view: &LogicalFileView) -> Result<DataFile> {
    let add = view.add_action();
    let path = view.object_store_path();
    let damaged = |why: &str| Error::File { file: path.to_string(), why: why.to_owned() };
    let partition = |key: &str| add.partition_values.get(key).cloned().flatten();
    let tag = |key: &str| add.tags.as_ref().and_then(|tags| tags.get(key)?.clone());
    let kind = partition("kind").and_then(|word| Kind::of_word(&word));
    let size = u64::try_from(add.size).map_err(|_| damaged("the log has a size below zero"))?;
    let blocks = tag(BLOCKS).and_then(|text| Blocks::parse(&text, size));
    let stats: Value = serde_json::from_str(add.stats.as_deref().unwrap_or("{}"))?;
    Ok(DataFile {
        kind: kind.ok_or_else(|| damaged("the log has an unknown kind"))?,
        date: partition("date").ok_or_else(|| damaged("the log has no date"))?,
        rows: stats["numRecords"].as_u64().ok_or_else(|| damaged("the log has no rows"))?,
        level: tag(LEVEL).and_then(|level| level.parse().ok()).unwrap_or(0),
        is_full: tag(FULL).is_some(),
        blocks: Arc::new(blocks.ok_or_else(|| damaged("the log has no checksums of it"))?),
        least: stats["minValues"].clone(),
        greatest: stats["maxValues"].clone(),
        size,
        path: path.clone(),
        view: Arc::new(add.clone()),
    })
}

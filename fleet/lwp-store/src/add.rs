//! Adding recordings, each once.

use std::collections::{BTreeMap, HashSet};

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::Int64Type;
use async_trait::async_trait;
use deltalake_core::kernel::Action;
use lwp_facts::{Facts, Id};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::commit::{Change, Plan, commit};
use crate::error::Result;
use crate::file::FileWriter;
use crate::kind::Kind;
use crate::rows::Rows;
use crate::snapshot::{DataFile, Snapshot};
use crate::store::{Store, day};

/// The fate of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its id.
    pub id: Id,
    /// True if it was not there before.
    pub new: bool,
    /// A version of the store that has it.
    pub version: u64,
}

impl Store {
    /// Adds recordings, all in one commit; those that are there already stay as they are. When this
    /// returns, they are on the disk.
    ///
    /// # Errors
    ///
    /// If the storage fails: then nothing was added. The same facts may be added again.
    pub async fn add(&self, facts: &[Facts]) -> Result<Vec<Added>> {
        let mut adding = Adding::new(facts)?;
        let version = commit(self, &mut adding).await?;
        let mut told = HashSet::new();
        let added = |(_, id): &(&Facts, Id)| Added {
            id: *id,
            new: !adding.found.contains(id) && told.insert(*id),
            version,
        };
        Ok(adding.all.iter().map(added).collect())
    }
}

/// Recordings on their way.
struct Adding<'a> {
    all: Vec<(&'a Facts, Id)>,
    /// Those that are there already.
    found: HashSet<Id>,
    /// Files that were looked through.
    seen: HashSet<Path>,
    /// Days of the recordings.
    days: HashSet<String>,
    /// Files that were written, and how many recordings had been found then.
    written: Option<(usize, Vec<Action>)>,
}

impl<'a> Adding<'a> {
    fn new(facts: &'a [Facts]) -> Result<Self> {
        let all: Vec<(&Facts, Id)> = facts.iter().map(|facts| (facts, facts.id())).collect();
        let days = all.iter().map(|(facts, _)| day(facts.run.started)).collect::<Result<_>>()?;
        Ok(Self { all, found: HashSet::new(), seen: HashSet::new(), days, written: None })
    }

    /// Finds the recordings that a version has. The day of a recording is part of its id.
    async fn find(&mut self, store: &Store, snapshot: &Snapshot) -> Result<()> {
        for file in snapshot.files_of(Kind::Recording).chain(snapshot.files_of(Kind::Rollup)) {
            if !self.days.contains(&file.date) || !self.seen.insert(file.path.clone()) {
                continue;
            }
            let there = match file.kind {
                Kind::Rollup => There::Keys(keys(store, snapshot, file).await?),
                _ => There::Ids(ids(store, snapshot, file).await?),
            };
            let known = self.all.iter().map(|(_, id)| *id).filter(|id| there.has(*id));
            self.found.extend(known);
        }
        Ok(())
    }

    /// Writes files for what was not found.
    async fn write(&mut self, store: &Store) -> Result<Option<Change>> {
        if let Some((found, actions)) = &self.written
            && *found == self.found.len()
        {
            return Ok(Some(Change { actions: actions.clone(), of_data: true }));
        }
        let mut by_day: BTreeMap<String, BTreeMap<Id, &Facts>> = BTreeMap::new();
        for (facts, id) in self.all.iter().filter(|(_, id)| !self.found.contains(id)) {
            by_day.entry(day(facts.run.started)?).or_default().insert(*id, facts);
        }
        let mut actions = Vec::new();
        for (date, facts) in &by_day {
            let name = match facts.keys().next() {
                Some(id) if facts.len() == 1 => format!("r-{id}"),
                _ => "b".to_owned(),
            };
            let rows: Vec<Rows<'_>> =
                facts.iter().map(|(id, facts)| Rows { facts, id: *id }).collect();
            for (kind, _) in Kind::ALL {
                let batches =
                    rows.iter().map(|rows| rows.batch(kind)).collect::<Result<Vec<_>>>()?;
                let batches: Vec<_> = batches.into_iter().flatten().collect();
                if batches.is_empty() {
                    continue;
                }
                let mut writer = FileWriter::new(kind)?;
                writer.write_sorted(&batches)?;
                drop(batches);
                actions.push(Action::Add(store.put(date, &name, writer.finish()?, 0).await?));
            }
        }
        if actions.is_empty() {
            return Ok(None);
        }
        self.written = Some((self.found.len(), actions.clone()));
        Ok(Some(Change { actions, of_data: true }))
    }
}

#[async_trait]
impl Plan for Adding<'_> {
    async fn change(&mut self, store: &Store, snapshot: &Snapshot) -> Result<Option<Change>> {
        self.find(store, snapshot).await?;
        self.write(store).await
    }
}

/// Recordings that a file has.
enum There {
    Ids(HashSet<Id>),
    /// Of a roll-up, which keeps their keys.
    Keys(HashSet<i64>),
}

impl There {
    fn has(&self, id: Id) -> bool {
        match self {
            Self::Ids(ids) => ids.contains(&id),
            Self::Keys(keys) => keys.contains(&id.key()),
        }
    }
}

/// The keys of the recordings whose totals a file has.
async fn keys(store: &Store, snapshot: &Snapshot, file: &DataFile) -> Result<HashSet<i64>> {
    let mut keys = HashSet::new();
    for batch in column(store, snapshot, file, "keys").await? {
        let lists = batch.as_list_opt::<i32>().into_iter().flat_map(|lists| lists.iter().flatten());
        for list in lists {
            keys.extend(list.as_primitive::<Int64Type>().iter().flatten());
        }
    }
    Ok(keys)
}

/// The ids of the recordings in a file.
pub(crate) async fn ids(
    store: &Store,
    snapshot: &Snapshot,
    file: &DataFile,
) -> Result<HashSet<Id>> {
    let name = file.path.filename().unwrap_or("");
    if let Some(id) = name.strip_prefix("r-").and_then(|rest| Id::parse(rest.split('-').next()?)) {
        return Ok(HashSet::from([id]));
    }
    let all = column(store, snapshot, file, "id").await?;
    let texts = all.iter().flat_map(|column| column.as_string::<i32>().iter().flatten());
    Ok(texts.filter_map(Id::parse).collect())
}

/// A column of a file.
async fn column(
    store: &Store,
    snapshot: &Snapshot,
    file: &DataFile,
    name: &str,
) -> Result<Vec<ArrayRef>> {
    let bytes = store.checked(snapshot).get(&file.path).await?.bytes().await?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), [name]);
    let mut columns = Vec::new();
    for batch in builder.with_projection(mask).build()? {
        columns.extend(batch?.column_by_name(name).cloned());
    }
    Ok(columns)
}

//! Compaction: many small files of a day into few large ones, sorted so that equal counts stand together.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::prelude::{DataFrame, col};
use futures::StreamExt;
use lwp_store::{DataFile, FileWriter, Kind, SORT, Store, Written};

use crate::error::Result;
use crate::place::Place;
use crate::session::{Budget, Session};
use crate::table::KindTable;

/// Bytes at which a file is full. It is in memory while it is written.
const FULL: usize = 64 << 20;
/// Compacted files of a day that are left alone.
const FEW: usize = 4;

/// The result of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Files before.
    pub old_files: usize,
    /// Files after.
    pub new_files: usize,
    /// Their bytes before.
    pub old_bytes: u64,
    /// Their bytes after.
    pub new_bytes: u64,
    /// Days and kinds that somebody else has rewritten meanwhile.
    pub skipped: usize,
}

/// Compacts every day that has small files, those with the fewest bytes first. Rows and what any question answers stay as they are.
///
/// # Errors
///
/// If a file is damaged or the storage fails. What was compacted until then stays.
pub async fn compact(store: &Store, budget: Budget) -> Result<Compacted> {
    let session = Session::new(store, budget).await?;
    let mut units: BTreeMap<(Kind, &str), Vec<&DataFile>> = BTreeMap::new();
    for file in session.snapshot().files() {
        units.entry((file.kind, &file.date)).or_default().push(file);
    }
    let mut units: Vec<(Kind, Vec<&DataFile>)> = units
        .into_iter()
        .map(|((kind, _), files)| (kind, files))
        .filter(|(_, files)| pays(files))
        .collect();
    units.sort_by_key(|(_, files)| files.iter().map(|file| file.size).sum::<u64>());
    let mut done = Compacted::default();
    for (kind, files) in units {
        unit(store, &session, kind, &files, &mut done).await?;
    }
    Ok(done)
}

/// Returns true if files of a day are to become fewer.
fn pays(files: &[&DataFile]) -> bool {
    let small = files.iter().filter(|file| file.size < FULL as u64 / 2).count();
    let fresh = files.iter().any(|file| file.level == 0);
    small > FEW || (fresh && files.len() > 1)
}

async fn unit(
    store: &Store,
    session: &Session,
    kind: Kind,
    files: &[&DataFile],
    done: &mut Compacted,
) -> Result<()> {
    let Some(first) = files.first() else { return Ok(()) };
    let frame = session.files(kind, files)?;
    let order = SORT
        .iter()
        .filter(|name| frame.schema().has_column_with_unqualified_name(name))
        .map(|name| col(format!("\"{name}\"")).sort(true, true));
    let frame = frame.clone().sort(order.collect())?;
    let written = write(kind, frame).await?;
    let level = files.iter().map(|file| file.level).max().unwrap_or(0) + 1;
    let rows: u64 = files.iter().map(|file| file.rows).sum();
    let new_rows: usize = written.iter().map(|file| file.rows).sum();
    if rows != new_rows as u64 {
        let (date, kind) = (&first.date, kind.word());
        return Err(crate::Error::Engine(format!(
            "{kind} of {date}: {rows} rows became {new_rows}"
        )));
    }
    let (new_files, new_bytes) =
        (written.len(), written.iter().map(|file| file.bytes.len() as u64).sum::<u64>());
    let old: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    let new = written.into_iter().map(|file| (first.date.clone(), file, level)).collect();
    match store.replace(&old, new, false).await {
        Ok(_) => {
            done.old_files += files.len();
            done.old_bytes += files.iter().map(|file| file.size).sum::<u64>();
            done.new_files += new_files;
            done.new_bytes += new_bytes;
        }
        Err(lwp_store::Error::Gone(_)) => done.skipped += 1,
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Rows as files, none larger than it may be.
pub(crate) async fn write(kind: Kind, frame: DataFrame) -> Result<Vec<Written>> {
    let mut stream = frame.execute_stream().await?;
    let mut files = Vec::new();
    let mut writer = FileWriter::new(kind)?;
    while let Some(batch) = stream.next().await {
        writer.write(&batch?)?;
        if writer.size() > FULL {
            files.push(std::mem::replace(&mut writer, FileWriter::new(kind)?).finish()?);
        }
    }
    if writer.rows() > 0 {
        files.push(writer.finish()?);
    }
    Ok(files)
}

impl Session {
    /// The rows of some files of a kind.
    pub(crate) fn files(&self, kind: Kind, files: &[&DataFile]) -> Result<DataFrame> {
        let table = KindTable::new(kind, files.iter().copied(), &Place::own());
        Ok(self.context().read_table(Arc::new(table))?)
    }
}

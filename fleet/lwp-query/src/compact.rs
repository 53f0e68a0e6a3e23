//! Compaction: many small files of a day into few large ones, sorted so that equal counts stand
//! together.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::prelude::{DataFrame, col};
use futures::StreamExt;
use lwp_store::{DataFile, FileWriter, Kind, Placed, SORT, Store};

use crate::error::{Error, Result};
use crate::place::Place;
use crate::session::{Budget, Session};
use crate::table::KindTable;

/// Bytes at which a file is full. It is in memory while it is written.
pub(crate) const FULL: usize = 64 << 20;
/// Compacted files of a day that are left alone, however small.
const FEW: usize = 4;
/// Fresh files of a day that are compacted, however many rows stand beside them.
const MANY: usize = 64;
/// The part of the rows that is to be fresh where fresh files are fewer. A row is rewritten some
/// four times then, however often somebody compacts.
const PART: u64 = 4;

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
    /// Their rows.
    pub rows: u64,
    /// Days and kinds that somebody else has rewritten meanwhile.
    pub skipped: usize,
}

/// Compacts every day that has enough fresh files, those with the fewest bytes first. Files that
/// were full once, or are half full, stay. Rows and what any question answers stay as they are.
///
/// # Errors
///
/// If a file is damaged or the storage fails. What was compacted until then stays.
pub async fn compact(store: &Store, budget: Budget) -> Result<Compacted> {
    compact_to(store, budget, FULL).await
}

/// Compacts as [`compact`] does, to files of another size, in bytes.
///
/// # Errors
///
/// As those of [`compact`].
pub async fn compact_to(store: &Store, budget: Budget, full: usize) -> Result<Compacted> {
    // Two threads would share the memory as it happens: a day is sorted or not by chance.
    let session = Session::new(store, Budget { threads: 1, ..budget }).await?;
    let mut units: BTreeMap<(Kind, &str), Vec<&DataFile>> = BTreeMap::new();
    let files = session.snapshot().files().iter();
    for file in files.filter(|file| !file.is_full && file.size < full as u64 / 2) {
        units.entry((file.kind, &file.date)).or_default().push(file);
    }
    let mut units: Vec<Vec<&DataFile>> = units.into_values().filter(|files| pays(files)).collect();
    units.sort_by_key(|files| files.iter().map(|file| file.size).sum::<u64>());
    let mut done = Compacted::default();
    for files in units {
        unit(store, &session, &files, full, &mut done).await?;
    }
    Ok(done)
}

/// Returns true if small files of a day are to become fewer.
fn pays(files: &[&DataFile]) -> bool {
    let rows = |fresh: bool| {
        let files = files.iter().filter(|file| (file.level == 0) == fresh);
        (files.clone().count(), files.map(|file| file.rows).sum::<u64>())
    };
    let ((fresh, fresh_rows), (old, old_rows)) = (rows(true), rows(false));
    let is_part = fresh > 0 && fresh_rows.saturating_mul(PART) >= fresh_rows + old_rows;
    old > FEW || fresh >= MANY || (is_part && fresh + old > 1)
}

async fn unit(
    store: &Store,
    session: &Session,
    files: &[&DataFile],
    full: usize,
    done: &mut Compacted,
) -> Result<()> {
    let Some(first) = files.first() else { return Ok(()) };
    let kind = first.kind;
    let frame = session.files(kind, files)?;
    let order = SORT
        .iter()
        .filter(|name| frame.schema().has_column_with_unqualified_name(name))
        .map(|name| col(format!("\"{name}\"")).sort(true, true));
    let frame = frame.clone().sort(order.collect())?;
    let level = files.iter().map(|file| file.level).max().unwrap_or(0) + 1;
    let target = Target { kind, date: &first.date, level, full };
    let new = write(store, target, frame, files.iter().map(|file| file.rows).sum()).await?;
    let old: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    let (new_files, new_bytes) = (new.len(), new.iter().map(Placed::bytes).sum::<u64>());
    match store.replace(&old, new, false).await {
        Ok(_) => {
            done.old_files += files.len();
            done.old_bytes += files.iter().map(|file| file.size).sum::<u64>();
            done.new_files += new_files;
            done.new_bytes += new_bytes;
            done.rows += files.iter().map(|file| file.rows).sum::<u64>();
        }
        Err(lwp_store::Error::Gone(_)) => done.skipped += 1,
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// The files that rows go to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub kind: Kind,
    /// Their day.
    pub date: &'a str,
    /// Their level.
    pub level: u32,
    /// Bytes at which one is full.
    pub full: usize,
}

/// Puts `rows` rows as files, none larger than it may be; each is put before the next one is begun.
/// Where that fails, or other rows come, none stays.
pub(crate) async fn write(
    store: &Store,
    target: Target<'_>,
    frame: DataFrame,
    rows: u64,
) -> Result<Vec<Placed>> {
    let mut placed = Vec::new();
    let mut done = put_all(store, target, frame, &mut placed).await;
    let found: u64 = placed.iter().map(|file| file.rows).sum();
    if done.is_ok() && found != rows {
        let (kind, date) = (target.kind.word(), target.date);
        done = Err(Error::Engine(format!("{kind} of {date}: {rows} rows became {found}")));
    }
    if done.is_err() {
        store.discard(&placed).await;
    }
    done.map(|()| placed)
}

/// Puts the rows of a plan as files, and remembers them in `placed`.
pub(crate) async fn put_all(
    store: &Store,
    target: Target<'_>,
    frame: DataFrame,
    placed: &mut Vec<Placed>,
) -> Result<()> {
    let Target { kind, date, level, full } = target;
    let mut stream = frame.execute_stream().await?;
    let mut writer = FileWriter::new(kind)?;
    while let Some(batch) = stream.next().await {
        writer.write(&batch?)?;
        if writer.size() > full {
            let mut whole = std::mem::replace(&mut writer, FileWriter::new(kind)?).finish()?;
            whole.is_full = true;
            placed.push(store.place(date, whole, level).await?);
        }
    }
    if writer.rows() > 0 {
        placed.push(store.place(date, writer.finish()?, level).await?);
    }
    Ok(())
}

impl Session {
    /// The rows of some files of a kind.
    pub(crate) fn files(&self, kind: Kind, files: &[&DataFile]) -> Result<DataFrame> {
        let table = KindTable::new(kind, files.iter().copied(), &Place::own());
        Ok(self.context().read_table(Arc::new(table))?)
    }
}

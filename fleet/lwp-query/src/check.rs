//! Checking a store, and repairing it.

use std::collections::{BTreeMap, BTreeSet};

use lwp_facts::Id;
use lwp_store::object_store::path::Path;
use lwp_store::object_store::{self, ObjectStore, ObjectStoreExt};
use lwp_store::{COUNTS, DataFile, Kind, Store, is_unanswered};

use crate::error::Result;
use crate::expire::{Change, Expired, remove_recordings};
use crate::session::{Budget, Session};
use crate::views::{quoted, table_name};

/// The findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The version that was checked.
    pub version: u64,
    /// Its files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Recordings.
    pub recordings: usize,
    /// Faults, in words.
    pub faults: Vec<String>,
    /// Recordings that lack rows or have rows twice.
    pub broken: BTreeSet<i64>,
    /// Files that are damaged or gone.
    pub damaged: Vec<Path>,
    /// Raw recordings.
    pub raws: usize,
    /// Those of them that are damaged.
    pub damaged_raws: Vec<Id>,
}

/// Checks that every file is there and has its size; with `deep`, that every byte is what was
/// written, that every recording is whole and there once, and that functions add up to totals.
///
/// # Errors
///
/// If the log cannot be read or the storage fails.
pub async fn check(store: &Store, deep: bool, budget: Budget) -> Result<Checked> {
    let session = Session::new(store, budget).await?;
    check_session(store, &session, deep).await
}

async fn check_session(store: &Store, session: &Session, deep: bool) -> Result<Checked> {
    let snapshot = session.snapshot();
    let mut checked = Checked { version: snapshot.version(), ..Checked::default() };
    let guarded = store.checked(snapshot);
    for file in snapshot.files() {
        checked.files += 1;
        checked.bytes += file.size;
        if let Some(fault) = fault_of(store, guarded.as_ref(), file, deep).await? {
            checked.faults.push(fault);
            checked.damaged.push(file.path.clone());
        }
    }
    raws(store, deep, &mut checked).await?;
    // Questions about what cannot be read would only say so again.
    if deep && checked.damaged.is_empty() {
        rows(session, &mut checked).await?;
    }
    Ok(checked)
}

/// The fault of a file, if it has one. A file that does not come is none: it may be whole.
async fn fault_of(
    store: &Store,
    guarded: &dyn ObjectStore,
    file: &DataFile,
    deep: bool,
) -> Result<Option<String>> {
    let path = &file.path;
    let size = match store.unchecked().head(path).await {
        Ok(found) => found.size,
        Err(error @ object_store::Error::NotFound { .. }) => {
            return Ok(Some(format!("{path}: {error}")));
        }
        Err(error) => return Err(lwp_store::Error::from(error).into()),
    };
    if size != file.size {
        return Ok(Some(format!("{path}: {size} bytes, the log says {}", file.size)));
    }
    let read = match deep {
        true => guarded.get(path).await.map(drop),
        false => Ok(()),
    };
    match read {
        Ok(()) => Ok(None),
        Err(error) if is_unanswered(&error) => Err(lwp_store::Error::from(error).into()),
        Err(error) => Ok(Some(root(&error))),
    }
}

/// Counts raw recordings; with `deep`, unpacks each.
async fn raws(store: &Store, deep: bool, checked: &mut Checked) -> Result<()> {
    for raw in store.raws().await? {
        checked.raws += 1;
        if !deep {
            continue;
        }
        match store.raw(raw.id).await {
            Ok(_) => {}
            Err(fault @ lwp_store::Error::File { .. }) => {
                checked.faults.push(fault.to_string());
                checked.damaged_raws.push(raw.id);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// Counts and sums of rows, recording by recording.
async fn rows(session: &Session, checked: &mut Checked) -> Result<()> {
    let sql = "select id, recording, count(*) as n from recordings group by id, recording";
    let found = session.ask(sql).await?;
    let (ids, keys, times) = (found.texts("id"), found.longs("recording"), found.longs("n"));
    checked.recordings = ids.len();
    let names: BTreeMap<i64, &String> = keys.iter().flatten().copied().zip(&ids).collect();
    let mut faults: Vec<(i64, String)> = Vec::new();
    for ((key, id), times) in keys.iter().flatten().zip(&ids).zip(times.iter().flatten()) {
        if *times != 1 {
            faults.push((*key, format!("recording {id} is there {times} times")));
        }
    }
    for kind in Kind::COUNTED {
        let (table, word) = (table_name(kind), kind.word());
        // Rows of a kind go together, when they expire.
        let sql = format!(
            "with found as (select recording, count(*) as n from {table} group by recording) \
             select coalesce(r.recording, found.recording) as recording, r.rows_{word} as said, \
             coalesce(found.n, 0) as n from recordings r \
             full join found on r.recording = found.recording \
             where r.recording is null or (coalesce(found.n, 0) <> r.rows_{word} and coalesce(found.n, 0) > 0)"
        );
        let wrong = session.ask(&sql).await?;
        let (keys, said, found) = (wrong.longs("recording"), wrong.longs("said"), wrong.longs("n"));
        for row in 0..wrong.len() {
            let key = keys[row].unwrap_or(0);
            let found = found[row].unwrap_or(0);
            faults.push(match said[row] {
                Some(said) => {
                    let id = names.get(&key).map_or("", |id| id.as_str());
                    (key, format!("recording {id} has {found} of {said} rows of kind {word}"))
                }
                None => {
                    (key, format!("{found} rows of kind {word} belong to no recording ({key})"))
                }
            });
        }
    }
    faults.extend(sums(session).await?);
    faults.extend(twice(session, &names).await?);
    for (key, fault) in faults {
        checked.broken.insert(key);
        checked.faults.push(fault);
    }
    Ok(())
}

/// Recordings that are there, and in a roll-up as well.
async fn twice(session: &Session, names: &BTreeMap<i64, &String>) -> Result<Vec<(i64, String)>> {
    let sql = "select distinct recording from recordings \
               where recording in (select unnest(keys) from rollups)";
    let found = session.ask(sql).await?.longs("recording");
    let fault = |key: i64| {
        let id = names.get(&key).map_or("", |id| id.as_str());
        (key, format!("recording {id} is there, and in a roll-up as well"))
    };
    Ok(found.into_iter().flatten().map(fault).collect())
}

/// Exact recordings whose functions do not add up to their totals.
async fn sums(session: &Session) -> Result<Vec<(i64, String)>> {
    let sums: Vec<String> = COUNTS.iter().map(|c| format!("sum(\"{c}\") as \"{c}\"")).collect();
    // Sums saturate where counts do.
    let differ: Vec<String> = COUNTS
        .iter()
        .map(|c| format!("(r.\"{c}\" <> f.\"{c}\" and r.\"{c}\" < 9223372036854775807)"))
        .collect();
    let sql = format!(
        "with f as (select recording, {} from functions where event is null group by recording) \
         select r.recording, r.id from recordings r join f on r.recording = f.recording \
         where r.mode = 'exact' and ({})",
        sums.join(", "),
        differ.join(" or ")
    );
    let wrong = session.ask(&sql).await?;
    let (keys, ids) = (wrong.longs("recording"), wrong.texts("id"));
    let fault = |(key, id): (Option<i64>, String)| {
        (key.unwrap_or(0), format!("functions of recording {id} do not add up to its totals"))
    };
    Ok(keys.into_iter().zip(ids).map(fault).collect())
}

/// Removes damaged files, and then every recording that is not whole any more, so that it can be
/// added again. Of a day that lost a file, recordings without rows of its kind go too, also those
/// whose rows had expired: nobody can tell them apart.
///
/// # Errors
///
/// If the log cannot be read or the storage fails.
pub async fn repair(store: &Store, budget: Budget) -> Result<(Expired, Vec<String>)> {
    let (mut all, mut faults) = (Expired::default(), Vec::new());
    let every: Vec<Kind> = [Kind::Recording].into_iter().chain(Kind::COUNTED).collect();
    // What is found after the first time has come in between.
    for _ in 0..4 {
        let mut session = Session::new(store, budget).await?;
        let mut found = check_session(store, &session, true).await?;
        if !found.damaged.is_empty() {
            let files = session.snapshot().files().iter();
            let damaged = files.filter(|file| found.damaged.contains(&file.path));
            let lost = damaged.map(|file| (file.kind, file.date.clone())).collect();
            // Files and recordings go in one commit: later nobody knows what was lost.
            let rest = session.snapshot().without(&found.damaged);
            session = Session::of(store, rest, budget).await?;
            rows(&session, &mut found).await?;
            found.broken.extend(without_rows(&session, &lost).await?);
        }
        faults.append(&mut found.faults);
        for id in &found.damaged_raws {
            store.remove_raw(*id).await?;
            all.raws += 1;
        }
        if found.damaged.is_empty() && found.broken.is_empty() {
            break;
        }
        let more = Change { broken: found.damaged, ..Change::default() };
        let done = remove_recordings(store, &session, &every, &found.broken, more).await?;
        all.rows += done.rows;
        all.files += done.files;
    }
    Ok((all, faults))
}

/// Recordings of some days that had rows of some kinds and have none.
async fn without_rows(session: &Session, lost: &BTreeSet<(Kind, String)>) -> Result<BTreeSet<i64>> {
    let mut all = BTreeSet::new();
    for (kind, date) in lost.iter().filter(|(kind, _)| Kind::COUNTED.contains(kind)) {
        let (table, word, date) = (table_name(*kind), kind.word(), quoted(date));
        let sql = format!(
            "select recording from recordings where \"date\" = date {date} and rows_{word} > 0 \
             and recording not in (select recording from {table} where \"date\" = date {date})"
        );
        all.extend(session.ask(&sql).await?.longs("recording").into_iter().flatten());
    }
    Ok(all)
}

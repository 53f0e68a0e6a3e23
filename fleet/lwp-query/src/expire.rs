//! Removing rows: by rules of retention, or because what they belong to is damaged.

use std::collections::{BTreeSet, HashSet};

use datafusion::prelude::{col, lit};
use lwp_store::object_store::path::Path;
use lwp_store::{DataFile, Kind, Placed, Rule, Store};

use crate::compact::{FULL, Target, write};
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::history::{Asked, history};
use crate::rollup::roll_up;
use crate::session::{Budget, Session};

/// Attempts, where somebody else rewrites the same files.
const ATTEMPTS: u32 = 10;

/// The rows that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Rows.
    pub rows: u64,
    /// Files that had such rows.
    pub files: usize,
    /// Raw recordings.
    pub raws: usize,
}

/// Removes what the store's rules say, each rule in one commit. Totals of recordings stay unless a
/// rule names recordings and does not roll them up.
///
/// # Errors
///
/// If a rule is wrong, a file is damaged or the storage fails. What earlier rules removed stays
/// removed.
pub async fn expire(store: &Store, budget: Budget) -> Result<Expired> {
    let mut all = Expired::default();
    for rule in store.retention().await?.retention {
        let mut attempt = 0;
        let done = loop {
            match follow(store, &rule, budget).await {
                Err(Error::Store(lwp_store::Error::Gone(_))) if attempt < ATTEMPTS => attempt += 1,
                done => break done?,
            }
        };
        all.rows += done.rows;
        all.files += done.files;
        all.raws += done.raws;
    }
    Ok(all)
}

/// Removes the raw recordings that a rule is about; no commit is needed for that.
async fn follow_raw(store: &Store, session: &Session, rule: &Rule) -> Result<Expired> {
    let (_, condition) = going(rule, &[])?;
    let kept = match rule.keep_steps {
        true => beside_steps(session).await?,
        false => BTreeSet::new(),
    };
    let sql = format!(
        "select id, project, benchmark, coalesce(\"commit\", id) as point from recordings \
         where {condition}"
    );
    let found = session.ask(&sql).await?;
    let names = ["project", "benchmark", "point"].map(|name| found.texts(name));
    let name = |row: usize| names.each_ref().map(|texts| texts[row].clone());
    let mut going: HashSet<String> = HashSet::new();
    for (row, id) in found.texts("id").into_iter().enumerate() {
        if !kept.contains(&name(row)) {
            going.insert(id);
        }
    }
    let mut done = Expired::default();
    for raw in store.raws().await?.iter().filter(|raw| going.contains(&raw.id.to_string())) {
        store.remove_raw(raw.id).await?;
        done.raws += 1;
    }
    Ok(done)
}

/// Project, benchmark and commit on either side of every step of instructions.
async fn beside_steps(session: &Session) -> Result<BTreeSet<[String; 3]>> {
    // Without exact recordings there is no history to ask for.
    let exact = "select count(*) as n from recordings where mode = 'exact'";
    if session.ask(exact).await?.longs("n").first() == Some(&Some(0)) {
        return Ok(BTreeSet::new());
    }
    let asked = Asked { event: "instructions", function: None, order: &[] };
    let mut kept = BTreeSet::new();
    for series in history(session, &Filter::default(), &asked).await? {
        for at in series.steps.iter().flat_map(|step| [step.at - 1, step.at]) {
            let commit = series.points[at].commit.clone();
            kept.insert([series.project.clone(), series.benchmark.clone(), commit]);
        }
    }
    Ok(kept)
}

/// Follows a rule in the latest version.
async fn follow(store: &Store, rule: &Rule, budget: Budget) -> Result<Expired> {
    let session = Session::new(store, budget).await?;
    let kinds = rule.of_kinds()?;
    if rule.is_raw() {
        return follow_raw(store, &session, rule).await;
    }
    let (table, condition) = going(rule, &kinds)?;
    let sql = format!("select distinct recording from {table} where {condition}");
    let going = session.ask(&sql).await?.longs("recording").into_iter().flatten().collect();
    let mut more = Change::default();
    if rule.roll_up
        && let Err(error) = roll_up(store, &session, &condition, &mut more.new).await
    {
        store.discard(&more.new).await;
        return Err(error);
    }
    remove_recordings(store, &session, &kinds, &going, more).await
}

/// The table of recordings or roll-ups that a rule is about, and the condition for those that go.
fn going(rule: &Rule, kinds: &[Kind]) -> Result<(&'static str, String)> {
    let filter = Filter::parse(&rule.filter)?;
    let old = Filter::parse(&[format!("until={}d", rule.days)])?.sql();
    Ok(match kinds.contains(&Kind::Rollup) {
        true => ("rollups", format!("{old} and {}", filter.of_rollups())),
        false => ("recordings", format!("{old} and {}", filter.sql())),
    })
}

/// Files of a commit that removes rows.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Files that go as a whole.
    pub broken: Vec<Path>,
    /// Files that come.
    pub new: Vec<Placed>,
}

/// Removes the rows of some recordings, and does `more`, in one commit.
///
/// # Errors
///
/// If a file is damaged, the storage fails, or somebody has rewritten one of the files meanwhile:
/// then nothing was removed.
pub(crate) async fn remove_recordings(
    store: &Store,
    session: &Session,
    kinds: &[Kind],
    going: &BTreeSet<i64>,
    more: Change,
) -> Result<Expired> {
    let Change { broken, mut new } = more;
    let mut done = Expired { files: broken.len(), ..Expired::default() };
    let mut old = broken.clone();
    let files = session.snapshot().files().iter();
    for file in files.filter(|file| kinds.contains(&file.kind) && !broken.contains(&file.path)) {
        match without(store, session, file, going).await {
            Ok((0, _)) => {}
            Ok((rows, rest)) => {
                done.rows += rows;
                done.files += 1;
                old.push(file.path.clone());
                new.extend(rest);
            }
            Err(error) => {
                store.discard(&new).await;
                return Err(error);
            }
        }
    }
    match old.is_empty() {
        true => store.discard(&new).await,
        false => drop(store.replace(&old, new, true).await?),
    }
    Ok(done)
}

/// The number of rows that some recordings have in a file, and files with its other rows.
async fn without(
    store: &Store,
    session: &Session,
    file: &DataFile,
    going: &BTreeSet<i64>,
) -> Result<(u64, Vec<Placed>)> {
    if !may_have(file, going) {
        return Ok((0, Vec::new()));
    }
    let rows_of = |is_other| {
        let list = going.iter().map(|key| lit(*key)).collect();
        let frame = session.files(file.kind, &[file])?;
        Ok::<_, Error>(frame.filter(col("recording").in_list(list, is_other))?)
    };
    let rows = rows_of(false)?.count().await? as u64;
    if rows == 0 {
        return Ok((0, Vec::new()));
    }
    let level = file.level.max(1);
    let target = Target { kind: file.kind, date: &file.date, level, full: FULL };
    Ok((rows, write(store, target, rows_of(true)?, file.rows.saturating_sub(rows)).await?))
}

/// Returns true if a file may have rows of one of the recordings, as far as the log tells.
fn may_have(file: &DataFile, recordings: &BTreeSet<i64>) -> bool {
    let bound = |of: &serde_json::Value| of["recording"].as_i64();
    match (bound(&file.least), bound(&file.greatest)) {
        (Some(least), Some(greatest)) => recordings.range(least..=greatest).next().is_some(),
        _ => !recordings.is_empty(),
    }
}

//! `lwp fleet init`, `note`, `compact`, `retention`, `expire`, `vacuum`, `check`, `repair`.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lwp_query::Budget;
use lwp_query::number::bytes;
use lwp_query::{check, compact as compaction, expire as expiry};
use lwp_store::{Location, Note, Store};

use super::print;
use crate::args::{BudgetArgs, StoreArgs};
use crate::failure::Failure;
use crate::git;

/// `lwp fleet note`.
#[derive(Args, Clone, Debug)]
pub struct NoteArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// Only this project
    #[arg(long, default_value = "")]
    pub project: String,

    /// Only this benchmark
    #[arg(long, default_value = "")]
    pub benchmark: String,

    /// The commit: its first letters, or a name that git knows (HEAD^, v1.2)
    pub commit: String,

    /// The remark
    pub text: String,
}

/// `lwp fleet expire`, `repair`.
#[derive(Args, Clone, Debug)]
pub struct MaintainArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    #[command(flatten)]
    pub budget: BudgetArgs,
}

/// `lwp fleet compact`.
#[derive(Args, Clone, Debug)]
pub struct CompactArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// Sort in at most MIB mebibytes of memory; more goes to temporary files
    #[arg(long, value_name = "MIB", default_value_t = 96)]
    pub memory: usize,
}

impl CompactArgs {
    /// As the engine wants it.
    pub fn budget(&self) -> Budget {
        Budget { memory_mib: self.memory, ..Budget::default() }
    }
}

/// `lwp fleet retention`.
#[derive(Args, Clone, Debug)]
pub struct RetentionArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// The rules
    pub file: PathBuf,
}

/// `lwp fleet vacuum`.
#[derive(Args, Clone, Debug)]
pub struct VacuumArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// Keep files that a version used within the last HOURS
    #[arg(long, value_name = "HOURS", default_value_t = 168)]
    pub hours: u32,

    /// Allow --hours of less than a day; nobody else may be using the store
    #[arg(long)]
    pub force: bool,

    /// List the files, but delete none
    #[arg(long)]
    pub dry_run: bool,
}

/// `lwp fleet check`.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    #[command(flatten)]
    pub budget: BudgetArgs,

    /// Read every byte, and count and add up every recording's rows; without this option, check
    /// only the log and the sizes of files
    #[arg(long)]
    pub deep: bool,
}

/// Makes a store.
pub async fn init(args: &StoreArgs) -> Result<(), Failure> {
    let store = Store::init(Location::parse(&args.store)?).await?;
    print(&format!("made {}\n", store.location().url))
}

/// Adds a note.
pub async fn note(args: &NoteArgs) -> Result<(), Failure> {
    let wrong = |why: &str| Failure::new(format!("'{}' {why}", args.commit));
    let commit = git::named(&args.commit)
        .ok_or_else(|| wrong("is no commit: neither hexadecimal nor a name that git knows here"))?;
    if commit.len() < 4 {
        return Err(wrong("is too short for a commit"));
    }
    let store = args.store.open().await?;
    let note = Note {
        project: args.project.clone(),
        benchmark: args.benchmark.clone(),
        commit,
        text: args.text.clone(),
        author: std::env::var("USER").unwrap_or_default(),
    };
    store.note(&note).await?;
    print(&format!("noted {}\n", note.commit))
}

/// Compacts.
pub async fn compact(args: &CompactArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let done = compaction::compact(&store, args.budget()).await?;
    if done.old_files == 0 && done.skipped == 0 {
        return print("nothing to compact\n");
    }
    print(&format!(
        "{} files of {} became {} files of {}\n",
        done.old_files,
        bytes(done.old_bytes),
        done.new_files,
        bytes(done.new_bytes)
    ))?;
    if done.skipped > 0 {
        print(&format!("{} days were rewritten by somebody else meanwhile\n", done.skipped))?;
    }
    Ok(())
}

/// Sets the rules of retention.
pub async fn retention(args: &RetentionArgs) -> Result<(), Failure> {
    let mut text = String::new();
    let place = if args.file.as_os_str() == "-" { "/dev/stdin".into() } else { args.file.clone() };
    let file = std::fs::File::open(&place);
    let read = file.and_then(|file| file.take(1 << 20).read_to_string(&mut text));
    read.map_err(|error| Failure::new(format!("{}: {error}", args.file.display())))?;
    args.store.open().await?.set_retention(&text).await?;
    Ok(())
}

/// Removes what the rules say.
pub async fn expire(args: &MaintainArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let done = expiry::expire(&store, args.budget.budget()).await?;
    print(&format!("removed {} rows from {} files\n", done.rows, done.files))?;
    raws_removed(done.raws)
}

/// Says how many raw recordings were removed, if any.
fn raws_removed(raws: usize) -> Result<(), Failure> {
    match raws {
        0 => Ok(()),
        _ => print(&format!("removed {raws} raw recordings\n")),
    }
}

/// Deletes files.
pub async fn vacuum(args: &VacuumArgs) -> Result<(), Failure> {
    if args.hours < 24 && !args.force {
        let cause = "somebody may still be reading or adding what is younger than a day";
        return Err(Failure::new(cause).with_help("use --force if nobody else uses the store"));
    }
    let done = args.store.open().await?.vacuum(args.hours, args.dry_run).await?;
    let verb = if args.dry_run { "would delete" } else { "deleted" };
    print(&format!("{verb} {} files of {}\n", done.files, bytes(done.bytes)))
}

/// Checks; 125 if something is wrong.
pub async fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let store = match Store::open(args.store.location()?).await {
        Err(fault @ lwp_store::Error::Log { .. }) => return Err(of_log(args, &fault).await?),
        store => store?,
    };
    let found = check::check(&store, args.deep, args.budget.budget()).await?;
    let mut text =
        format!("version {}: {} files of {}", found.version, found.files, bytes(found.bytes));
    if args.deep && found.damaged.is_empty() {
        text += &format!(", {} recordings", found.recordings);
    }
    if found.raws > 0 {
        text += &format!(", {} raw recordings", found.raws);
    }
    if !args.deep {
        text += "; sizes only: --deep reads every byte";
    }
    print(&format!("{text}\n"))?;
    for fault in &found.faults {
        print(&format!("fault: {fault}\n"))?;
    }
    match found.faults.len() {
        0 => Ok(ExitCode::SUCCESS),
        faults => Err(Failure::new(format!("{faults} faults")).with_help("lwp fleet repair")),
    }
}

/// Says up to which version a damaged log can be read.
async fn of_log(args: &CheckArgs, fault: &lwp_store::Error) -> Result<Failure, Failure> {
    print(&format!("fault: {fault}\n"))?;
    let failure = Failure::new("1 faults");
    Ok(match Store::last_good(args.store.location()?).await? {
        Some(version) => {
            print(&format!("version {version} is the last that can be read\n"))?;
            failure.with_help(format!(
                "put the file back from a copy; until then, --version {version} answers questions"
            ))
        }
        None => {
            print("no version can be read\n")?;
            failure.with_help("put the file back from a copy")
        }
    })
}

/// Removes what is damaged.
pub async fn repair(args: &MaintainArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let (done, faults) = check::repair(&store, args.budget.budget()).await?;
    for fault in &faults {
        print(&format!("fault: {fault}\n"))?;
    }
    print(&format!("removed {} rows and {} files\n", done.rows, done.files))?;
    raws_removed(done.raws)
}

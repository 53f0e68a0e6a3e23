//! The command line of those who take care of a store.

use std::path::PathBuf;

use clap::Args;
use lwp_query::Budget;

use super::{BudgetArgs, StoreArgs};

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
    #[arg(long, value_name = "MIB", default_value_t = 128)]
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

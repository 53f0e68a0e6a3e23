//! The command line, as clap sees it.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use lwp_fleet::{Question, StoreArgs};

const AFTER: &str = "\
The variable LWP_FLEET_TOKEN has the secret of this machine: lwp fleet token add NAME --scope node
The exit status is 0, or 125 if lwp-fleet-node failed, 75 if trying again may help.";

/// Answers queries to a store of recordings, together with other machines.
#[derive(Debug, Parser)]
#[command(
    name = "lwp-fleet-node",
    version,
    propagate_version = true,
    after_help = AFTER
)]
pub struct NodeLine {
    /// The task.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Accept queries and distribute their parts to executors
    Scheduler(SchedulerArgs),
    /// Work on parts of queries
    Executor(ExecutorArgs),
    /// A question
    #[command(flatten)]
    Ask(Question),
}

/// `lwp-fleet-node scheduler`.
#[derive(Args, Clone, Debug)]
pub struct SchedulerArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// Listen at this address; other machines can't reach a loopback address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50050")]
    pub listen: SocketAddr,

    /// Divide a query into N parts
    #[arg(long, value_name = "N", default_value = "16")]
    pub parts: NonZeroU16,
}

/// `lwp-fleet-node executor`.
#[derive(Args, Clone, Debug)]
pub struct ExecutorArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// The scheduler
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:50050")]
    pub scheduler: String,

    /// Listen at this address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:50051")]
    pub listen: SocketAddr,

    /// The name or address by which others reach this machine [default: that of --listen]
    #[arg(long, value_name = "HOST")]
    pub external_host: Option<String>,

    /// Work on N parts of queries at a time [default: the number of processors]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroU16>,

    /// Sort and join in at most MIB mebibytes of memory; more goes to temporary files
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory: usize,

    /// Directory for temporary files [default: the system's]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
}

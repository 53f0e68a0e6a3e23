//! The command lwp-fleet-node: questions to a store of recordings, answered by several machines.
//!
//! A scheduler and executors, which are Ballista's, answer the questions of `lwp fleet` together.
//! The one who asks plans the question and names a version of a store; every machine opens that
//! version itself, with its own credentials, and checks every byte that it reads. Ballista
//! authenticates nobody, so that here a [gate](gate) stands before each port.
#![forbid(unsafe_code)]

mod args;
mod asking;
mod connections;
mod credentials;
mod engine;
mod executor;
mod gate;
mod jobs;
mod listening;
mod noise;
mod scheduler;
mod tables;
mod versions;
mod watch;
mod work;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use lwp_fleet::{ClusterArgs, Failure, commands, finish, run};
use lwp_query::Remote;

use crate::args::{Command, NodeLine};
use crate::asking::Cluster;

fn main() -> ExitCode {
    finish(NodeLine::try_parse(), |line| run(execute(line)))
}

async fn execute(line: NodeLine) -> Result<ExitCode, Failure> {
    match line.command {
        Command::Scheduler(args) => scheduler::run(&args).await?,
        Command::Executor(args) => executor::run(&args).await?,
        Command::Ask(question) => {
            let remote = question.cluster().map(remote).transpose()?;
            return commands::ask(&question, remote).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn remote(args: &ClusterArgs) -> Result<Arc<dyn Remote>, Failure> {
    Ok(Arc::new(Cluster::new(args)?))
}

//! `lwp fleet serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use lwp_query::Budget;
use lwp_serve::{Limits, Program, Server, ServerError, Settings, worker};
use tokio::signal::unix::{SignalKind, signal};

use super::print;
use crate::args::StoreArgs;
use crate::failure::Failure;

/// `lwp fleet serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// Listen at this address; addresses that other machines can reach need a store with tokens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8700")]
    pub listen: SocketAddr,

    /// Keep recordings in DIR while the store does not answer
    #[arg(long, value_name = "DIR")]
    pub spool: Option<PathBuf>,

    /// Use at most MIB mebibytes of memory for all pages and canned queries together, and as many
    /// again for all SQL queries
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory: usize,

    /// Abandon a query after SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub timeout: u64,

    /// Refuse recordings of more than MIB mebibytes, measured as sent
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub largest: usize,
}

/// `lwp fleet answer`.
#[derive(Args, Clone, Debug)]
pub struct AnswerArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// Mebibytes of memory of a question
    #[arg(long)]
    pub memory: usize,

    /// Seconds of a question
    #[arg(long)]
    pub timeout: u64,

    /// Rows of an answer
    #[arg(long)]
    pub rows: usize,
}

/// Mebibytes of temporary files of a question.
const DISK_MIB: u64 = 4096;

/// Serves until it is told to end.
pub async fn execute(args: &ServeArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let limits = Limits {
        memory_mib: args.memory,
        question_seconds: args.timeout,
        body_bytes: args.largest.saturating_mul(1 << 20),
        bodies_mib: Limits::default().bodies_mib.max(args.largest),
        ..Limits::default()
    };
    let program = Some(program(store.location().url.as_str(), limits)?);
    let settings =
        Settings { listen: Some(args.listen), spool: args.spool.clone(), program, limits };
    let server = Server::bind(store, &settings).await?;
    print(&format!("{}\n", server.url()))?;
    if server.secret().is_some() {
        lwp_terminal::say!(
            "lwp-fleet: the store has no tokens: this address opens it until the server ends, to this machine only"
        );
    }
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [interrupt, terminate] = &mut signals;
    let end = async {
        match (interrupt, terminate) {
            (Ok(interrupt), Ok(terminate)) => {
                tokio::select! { _ = interrupt.recv() => (), _ = terminate.recv() => () }
            }
            _ => std::future::pending().await,
        }
    };
    server.run(end).await;
    Ok(())
}

/// This program, as it answers questions for a server.
fn program(store: &str, limits: Limits) -> Result<Program, Failure> {
    // The program as it runs, when its file has been replaced too.
    let path = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    let path = if path.exists() { path } else { std::env::current_exe()? };
    let memory = limits.memory_mib / limits.in_sql.max(1);
    let words = [
        "answer".to_owned(),
        format!("--store={store}"),
        format!("--memory={memory}"),
        format!("--timeout={}", limits.question_seconds),
        format!("--rows={}", limits.rows),
    ];
    Ok(Program { path, arguments: words.map(Into::into).to_vec() })
}

/// Answers the questions of a server.
pub async fn answer(args: &AnswerArgs) -> Result<(), Failure> {
    let budget = Budget {
        memory_mib: args.memory,
        disk_mib: DISK_MIB,
        seconds: args.timeout,
        rows: args.rows,
        ..Budget::default()
    };
    Ok(worker::answer_all(args.store.location()?, budget).await?)
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Store(error) => error.into(),
            ServerError::Open(_) => Self::new(error.to_string())
                .with_help("make one: lwp fleet token add NAME --scope read --scope write"),
            error => Self::new(error.to_string()),
        }
    }
}

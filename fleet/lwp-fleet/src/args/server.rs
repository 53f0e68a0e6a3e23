//! The command line of a server, and of those that send to one.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{FilingArgs, StoreArgs};

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

/// `lwp fleet token`.
#[derive(Clone, Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print its secret, which can't be shown again
    Add(TokenAddArgs),
    /// List tokens, without their secrets
    List(StoreArgs),
    /// Remove a token; its holders are refused within seconds
    Remove(TokenRemoveArgs),
}

/// A scope of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// Questions and pages
    Read,
    /// Adding recordings and notes
    Write,
    /// Being a machine of a cluster
    Node,
}

/// `lwp fleet token add`.
#[derive(Args, Clone, Debug)]
pub struct TokenAddArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// The token's name
    pub name: String,

    /// Allow these requests; the option may be repeated
    #[arg(long = "scope", value_enum, required = true)]
    pub scopes: Vec<ScopeArg>,

    /// Only recordings of this project; * stands for any letters. For tokens that write and do not
    /// read
    #[arg(long)]
    pub project: Option<String>,

    /// Refuse the token after DAYS
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..))]
    pub days: Option<u16>,
}

/// `lwp fleet token remove`.
#[derive(Args, Clone, Debug)]
pub struct TokenRemoveArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// The token's name
    pub name: String,
}

/// The form in which recordings are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SentArg {
    /// Facts, to a fleet server
    #[default]
    Facts,
    /// OpenTelemetry profiles, to Pyroscope or a collector
    Otlp,
}

/// `lwp fleet push`.
#[derive(Args, Clone, Debug)]
pub struct PushArgs {
    /// The server: http://HOST:PORT, https://HOST
    #[arg(long, env = "LWP_FLEET_SERVER", value_name = "URL")]
    pub to: String,

    /// The file with the server's token [default: the variable LWP_FLEET_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Send recordings in this form
    #[arg(long = "as", value_enum, default_value_t, value_name = "FORM")]
    pub form: SentArg,

    #[command(flatten)]
    pub filing: FilingArgs,

    /// Recordings, as lwp fleet add takes them
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Refuse truncated recordings
    #[arg(long)]
    pub strict: bool,

    /// Retry a busy or silent server for SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub patience: u64,
}

//! Options that several commands have.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use lwp_query::{Budget, Filter, Format as TextFormat, Remote, Session};
use lwp_store::{Location, Store};

use crate::failure::Failure;

/// The store.
#[derive(Args, Clone, Debug)]
pub struct StoreArgs {
    /// The store: a directory, file:///DIR or s3://BUCKET/PATH
    #[arg(long, env = "LWP_FLEET_STORE", value_name = "URL")]
    pub store: String,
}

impl StoreArgs {
    /// Its place.
    pub fn location(&self) -> Result<Location, Failure> {
        Ok(Location::parse(&self.store)?)
    }

    /// Opens the store.
    pub async fn open(&self) -> Result<Store, Failure> {
        Ok(Store::open(self.location()?).await?)
    }
}

/// The limits of a question.
#[derive(Args, Clone, Copy, Debug)]
pub struct BudgetArgs {
    /// Sort and join in at most MIB mebibytes of memory; more goes to temporary files
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub memory: usize,

    /// Abandon a query after SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub timeout: u64,
}

impl BudgetArgs {
    /// As the engine wants it.
    pub fn budget(&self) -> Budget {
        Budget { memory_mib: self.memory, seconds: self.timeout, ..Budget::default() }
    }
}

/// The machines that answer in place of this one.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// Send the query to the cluster with its scheduler at HOST:PORT, with the token in the
    /// variable LWP_FLEET_TOKEN
    #[arg(long, value_name = "df://HOST:PORT")]
    pub cluster: Option<String>,

    /// Use the cluster for queries that read at least ROWS rows; this machine answers the others
    #[arg(long, value_name = "ROWS", default_value_t = 100_000_000, requires = "cluster")]
    pub cluster_from: u64,

    /// Repeat a query once after SECONDS without a finished task, and fail after SECONDS more
    #[arg(long, value_name = "SECONDS", default_value_t = 45, requires = "cluster")]
    pub stall: u64,
}

/// The store, and the machines that read it.
#[derive(Args, Clone, Debug)]
pub struct SourceArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    #[command(flatten)]
    pub budget: BudgetArgs,

    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// Read version N of the store, if its files still exist [default: the latest]
    #[arg(long = "version", value_name = "N", conflicts_with = "cluster")]
    pub at: Option<u64>,
}

impl SourceArgs {
    /// Opens the store for questions.
    pub async fn session(&self, remote: Option<Arc<dyn Remote>>) -> Result<Session, Failure> {
        let budget = self.budget.budget();
        let (store, snapshot) = Store::open_at(self.store.location()?, self.at).await?;
        Ok(match remote {
            Some(remote) => Session::on(remote, &store, budget).await?,
            None => Session::of(&store, snapshot, budget).await?,
        })
    }
}

/// The store, and the recordings of it that a question is about.
#[derive(Args, Clone, Debug)]
pub struct AskedArgs {
    #[command(flatten)]
    pub source: SourceArgs,

    /// Only recordings that match all of these terms: project=P benchmark=parse* commit=abc1234
    /// branch=main host=H since=7d label.KEY=VALUE mode=sampled
    #[arg(value_name = "FILTER")]
    pub filter: Vec<String>,
}

impl AskedArgs {
    /// Opens the store for questions.
    pub async fn session(
        &self,
        remote: Option<Arc<dyn Remote>>,
    ) -> Result<(Session, Filter), Failure> {
        let filter = Filter::parse(&self.filter)?;
        Ok((self.source.session(remote).await?, filter))
    }
}

/// A format of answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// Columns for people
    #[default]
    Table,
    /// Comma-separated values
    Csv,
    /// JSON
    Json,
}

impl From<FormatArg> for TextFormat {
    fn from(arg: FormatArg) -> Self {
        match arg {
            FormatArg::Table => Self::Table,
            FormatArg::Csv => Self::Csv,
            FormatArg::Json => Self::Json,
        }
    }
}

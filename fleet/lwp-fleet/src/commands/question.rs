//! `lwp fleet list`, `report`, `sql`, `views`.

use lwp_query::events::event;
use lwp_query::render;
use lwp_query::report::{self, By};
use lwp_query::views::{self, Engine};
use lwp_store::Kind;

use super::{AskedOf, print};
use crate::args::{ByArg, EngineArg, ListArgs, ReportArgs, SqlArgs, ViewsArgs};
use crate::failure::Failure;

/// Lists recordings.
pub async fn list(args: &ListArgs, remote: AskedOf) -> Result<(), Failure> {
    let (session, filter) = args.asked.session(remote).await?;
    let sql = format!(
        "select substr(id, 1, 12) as id, started, project, benchmark, substr(\"commit\", 1, 10) as \"commit\", \
         branch, host, mode, instructions from recordings where {} order by started desc, id limit {}",
        filter.sql(),
        args.limit
    );
    print(&render(&session.ask(&sql).await?, args.format.into())?)
}

/// Shows what was executed most.
pub async fn report(args: &ReportArgs, remote: AskedOf) -> Result<(), Failure> {
    let (session, filter) = args.asked.session(remote).await?;
    let by = match args.sort {
        ByArg::Function => By::Function,
        ByArg::Module => By::Module,
        ByArg::Line => By::Line,
        ByArg::Benchmark => By::Benchmark,
        ByArg::Host => By::Host,
        ByArg::Commit => By::Commit,
    };
    let event = event(&session, &filter, args.event.as_deref()).await?;
    let rows = report::report(&session, &filter, &event, by, args.limit).await?;
    print(&render(&rows, args.format.into())?)
}

/// Answers a question.
pub async fn sql(args: &SqlArgs, remote: AskedOf) -> Result<(), Failure> {
    let session = args.source.session(remote).await?;
    print(&render(&session.ask(&args.question).await?, args.format.into())?)
}

/// Prints statements for another engine.
pub async fn views(args: &ViewsArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let snapshot = store.snapshot().await?;
    let url = &store.location().url;
    let engine = match args.engine {
        EngineArg::Duckdb => Engine::Duckdb,
        EngineArg::Spark => Engine::Spark,
        EngineArg::Trino => Engine::Trino,
    };
    let root = match url.to_file_path() {
        Ok(path) if url.scheme() == "file" => path.display().to_string(),
        _ => url.to_string(),
    };
    let files = |kind: Kind| {
        let paths = snapshot.files_of(kind).map(|file| format!("{root}/{}", file.path));
        paths.collect()
    };
    print(&views::statements(engine, url.as_str(), &files))
}

//! `lwp fleet get`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use lwp_facts::Id;
use lwp_query::{Budget, Filter, Session};

use crate::args::StoreArgs;
use crate::failure::Failure;

/// `lwp fleet get`.
#[derive(Args, Clone, Debug)]
pub struct GetArgs {
    #[command(flatten)]
    pub store: StoreArgs,

    /// The recording's id, or the first letters of it
    pub id: String,

    /// Write to FILE; - is standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// Writes the file that a recording was made of, as `lwp record` wrote it.
pub async fn execute(args: &GetArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let id = found(&Session::new(&store, Budget::default()).await?, &args.id).await?;
    let bytes = store.raw(id).await?.ok_or_else(|| {
        Failure::new(format!("the file of recording {id} is not kept"))
            .with_help("lwp fleet add --raw keeps files")
    })?;
    let named = |error| Failure::new(format!("{}: {error}", args.output.display()));
    match args.output.as_os_str() == "-" {
        true => std::io::stdout().lock().write_all(&bytes).map_err(named),
        false => std::fs::write(&args.output, bytes).map_err(named),
    }
}

/// The one recording whose id begins so.
async fn found(session: &Session, start: &str) -> Result<Id, Failure> {
    if start.is_empty() || !start.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::new(format!("'{start}' is no id")).with_help("lwp fleet list has ids"));
    }
    let filter = Filter::parse(&[format!("id={}", start.to_ascii_lowercase())])?;
    let sql = format!("select distinct id from recordings where {} limit 2", filter.sql());
    let ids = session.ask(&sql).await?.texts("id");
    match ids.as_slice() {
        [] => Err(Failure::new(format!("no recording has an id that begins with {start}"))
            .with_help("lwp fleet list has ids")),
        [one] => Id::parse(one).ok_or_else(|| Failure::new(format!("'{one}' is no id"))),
        _ => Err(Failure::new(format!("more than one id begins with {start}"))),
    }
}

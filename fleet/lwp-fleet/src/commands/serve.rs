//! `lwp fleet serve`.

use lwp_serve::{Limits, Server, ServerError, Settings};
use tokio::signal::unix::{SignalKind, signal};

use super::print;
use crate::args::ServeArgs;
use crate::failure::Failure;

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
    let settings = Settings { listen: Some(args.listen), spool: args.spool.clone(), limits };
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

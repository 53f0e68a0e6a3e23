//! The server: its settings, its connections, its end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use lwp_store::Store;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::metrics::Metrics;
use crate::routes;
use crate::site::Site;
use crate::spool::Spool;
use crate::tokens::{Scope, Token, Tokens, secret};
use crate::workers::Program;
use crate::writer::Writer;

/// The time that a head of a request may take.
const HEAD: Duration = Duration::from_secs(10);
/// The time that requests have to end when the server does.
const END: Duration = Duration::from_secs(20);

/// The most that requests may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a recording as it is sent.
    pub body_bytes: usize,
    /// Bytes of a recording, unpacked.
    pub unpacked_bytes: u64,
    /// Seconds in which a recording must have come.
    pub body_seconds: u64,
    /// Mebibytes of recordings that come at once.
    pub bodies_mib: usize,
    /// Recordings that wait for their commit.
    pub waiting: usize,
    /// Connections at once.
    pub connections: usize,
    /// Pages and canned questions at once.
    pub questions: usize,
    /// Those of one token.
    pub of_token: usize,
    /// Questions in SQL at once; one token has one of them.
    pub in_sql: usize,
    /// Seconds that a question waits for its turn.
    pub queue_seconds: u64,
    /// Seconds of a question.
    pub question_seconds: u64,
    /// Mebibytes of memory of all pages and canned questions, and as many of all those in SQL.
    pub memory_mib: usize,
    /// Rows of an answer.
    pub rows: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 64 << 20,
            unpacked_bytes: 1 << 30,
            body_seconds: 60,
            bodies_mib: 512,
            waiting: 1000,
            connections: 512,
            questions: 4,
            of_token: 2,
            in_sql: 2,
            queue_seconds: 10,
            question_seconds: 30,
            memory_mib: 1024,
            rows: 100_000,
        }
    }
}

/// A server to start.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The address to listen at.
    pub listen: Option<SocketAddr>,
    /// The directory where recordings wait while the store does not answer.
    pub spool: Option<PathBuf>,
    /// The program that answers questions in SQL. Without one this process does, and a question
    /// may take it along.
    pub program: Option<Program>,
    /// The most that requests may take.
    pub limits: Limits,
}

/// A fault that keeps a server from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store.
    #[error(transparent)]
    Store(#[from] lwp_store::Error),
    /// The system.
    #[error("{0}: {1}")]
    Io(String, std::io::Error),
    /// Without tokens the server would be open to everybody who reaches it.
    #[error("{0} can be reached by other machines, and the store has no tokens")]
    Open(SocketAddr),
}

/// A server that listens and does not answer yet.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    limits: Limits,
    secret: Option<String>,
    writing: JoinHandle<()>,
    draining: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds a server to its address.
    ///
    /// # Errors
    ///
    /// If the address is taken, the spool cannot be used, or the store has no tokens and other
    /// machines reach the address.
    pub async fn bind(store: Store, settings: &Settings) -> Result<Self, Error> {
        let tokens = Tokens::of(&store).await?;
        let wanted = settings.listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8700)));
        if tokens.token.is_empty() && !wanted.ip().is_loopback() {
            return Err(Error::Open(wanted));
        }
        let at = |error| Error::Io(wanted.to_string(), error);
        let listener = TcpListener::bind(wanted).await.map_err(at)?;
        let address = listener.local_addr().map_err(at)?;
        // A store without tokens gets one that ends with the server: other users of this machine
        // reach it too.
        let own = match tokens.token.is_empty() {
            true => Some(secret().map_err(at)?),
            false => None,
        };
        let token = own.as_ref().map(|own| Token::new("own", own, vec![Scope::Read, Scope::Write]));
        let named = |path: &PathBuf| path.display().to_string();
        let open = |path: &PathBuf| Spool::open(path).map_err(|e| Error::Io(named(path), e));
        let spool = settings.spool.as_ref().map(open).transpose()?;
        let metrics = Arc::new(Metrics::default());
        let (writer, writing) =
            Writer::start(store.clone(), Arc::clone(&metrics), settings.limits.waiting);
        let writer = Arc::new(writer);
        let draining = spool.clone().map(|spool| {
            let writer = Arc::clone(&writer);
            tokio::spawn(spool.drain(writer))
        });
        let site = Site::new(store, writer, metrics, settings.limits, (spool, (tokens, token)));
        let site = site.with_program(settings.program.clone());
        let router = routes::router(Arc::new(site));
        let limits = settings.limits;
        Ok(Self { listener, address, router, limits, secret: own, writing, draining })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of its pages, which opens them where the store has no tokens.
    pub fn url(&self) -> String {
        match &self.secret {
            Some(secret) => format!("http://{}/enter/{secret}", self.address),
            None => format!("http://{}/", self.address),
        }
    }

    /// The secret that was made for a store without tokens.
    pub fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    /// Answers until `end` is there; then requests that have begun are finished, and what waits is
    /// written.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let open = Arc::new(Semaphore::new(self.limits.connections));
        let graceful = GracefulShutdown::new();
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD);
        tokio::pin!(end);
        loop {
            let accepted = async {
                let place = Arc::clone(&open).acquire_owned().await.ok()?;
                Some((place, self.listener.accept().await.ok()?.0))
            };
            let (place, stream) = tokio::select! {
                accepted = accepted => match accepted {
                    Some(accepted) => accepted,
                    // Out of files, most likely.
                    None => { tokio::time::sleep(Duration::from_millis(50)).await; continue }
                },
                () = &mut end => break,
            };
            let service = TowerToHyperService::new(self.router.clone());
            let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
            tokio::spawn(async move {
                let _ = connection.await;
                drop(place);
            });
        }
        drop(self.listener);
        let _ = tokio::time::timeout(END, graceful.shutdown()).await;
        if let Some(draining) = self.draining {
            draining.abort();
            let _ = draining.await;
        }
        drop(self.router);
        let _ = tokio::time::timeout(END, self.writing).await;
    }
}

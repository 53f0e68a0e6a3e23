//! Connections to the scheduler: one that ends tells that its executor may have been killed, long
//! before the executor's silence does.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::server::Connected;

use crate::jobs::Jobs;

/// The machine at the other end of a connection, which each of its requests knows.
#[derive(Clone, Debug, Default)]
pub struct Peer(Arc<Mutex<Option<String>>>);

impl Peer {
    /// Names the executor that sends its reports through this connection.
    pub fn name(&self, executor: &str) {
        let mut name = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if name.as_deref() != Some(executor) {
            *name = Some(executor.to_owned());
        }
    }

    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A connection to the scheduler.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    peer: Peer,
    jobs: Jobs,
}

impl Connection {
    /// A connection whose end is reported to `jobs`.
    pub fn new(stream: TcpStream, jobs: Jobs) -> Self {
        Self { stream, peer: Peer::default(), jobs }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(executor) = self.peer.take() {
            self.jobs.cut(&executor);
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

//! Connections to the server: a bounded number of them, however many are opened.
//!
//! Whoever may reach the port can open connections and say nothing. When there are too many, the
//! one that has been silent for longest is closed, so that a browser is always let in and
//! descriptors are left for the files that pages are made from.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

/// Most connections at a time; a browser opens six.
const MOST: u64 = 64;
/// The pause before the next attempt where the system has no descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(50);

/// A listener that closes old connections for new ones.
#[derive(Debug)]
pub struct Bounded {
    listener: TcpListener,
    most: usize,
    /// Open connections, the most recently used last.
    open: Arc<Mutex<VecDeque<Weak<State>>>>,
}

impl Bounded {
    /// Accepts connections of `listener`. They take no more than a quarter of the descriptors that
    /// this process may have.
    pub fn new(listener: TcpListener) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let most = (limit.unwrap_or(u64::MAX) / 4).clamp(1, MOST) as usize;
        Self { listener, most, open: Arc::default() }
    }

    fn admit(&self, stream: TcpStream) -> Connection {
        let state = Arc::new(State::default());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|state| state.strong_count() > 0);
        while open.len() >= self.most {
            if let Some(oldest) = open.pop_front().and_then(|state| state.upgrade()) {
                oldest.close();
            }
        }
        open.push_back(Arc::downgrade(&state));
        drop(open);
        Connection { stream, state, open: Arc::clone(&self.open) }
    }
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => return (self.admit(stream), address),
                // No descriptor is free, or the other side has gone already.
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The state that a connection shares with the listener.
#[derive(Debug, Default)]
struct State {
    inner: Mutex<Closing>,
}

#[derive(Debug, Default)]
struct Closing {
    closed: bool,
    /// The reader that waits for bytes.
    waiting: Option<Waker>,
}

impl State {
    fn close(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.closed = true;
        inner.waiting.take().into_iter().for_each(Waker::wake);
    }

    /// Returns whether it is closed; if not, `context` is woken when it is.
    fn is_closed(&self, context: &Context<'_>) -> bool {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if !inner.closed {
            inner.waiting = Some(context.waker().clone());
        }
        inner.closed
    }
}

/// A connection that the listener may close.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    state: Arc<State>,
    open: Arc<Mutex<VecDeque<Weak<State>>>>,
}

impl Connection {
    /// Notes that an answer has been sent: it is the last that will be closed.
    fn note_use(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Arc::as_ptr(&self.state);
        let at = open.iter().position(|state| std::ptr::eq(state.as_ptr(), own));
        if let Some(state) = at.and_then(|at| open.remove(at)) {
            open.push_back(state);
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.state.is_closed(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.note_use();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

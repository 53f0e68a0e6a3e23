//! Ports, and the end of whoever listens at them.

use std::net::SocketAddr;

use lwp_fleet::Failure;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Listens at an address that nobody has.
///
/// # Errors
///
/// If somebody has it.
pub async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = |error| {
        let help = "name a free address of this machine with --listen";
        Failure::new(format!("{address}: {error}")).with_help(help)
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Waits until somebody ends this program.
pub async fn ended() {
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    let [interrupt, terminate] = &mut signals;
    match (interrupt, terminate) {
        (Ok(interrupt), Ok(terminate)) => {
            tokio::select! { _ = interrupt.recv() => (), _ = terminate.recv() => () }
        }
        _ => std::future::pending().await,
    }
}

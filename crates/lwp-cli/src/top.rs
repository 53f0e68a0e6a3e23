//! The display of `lwp top`: functions by their executions since the last frame.

mod feed;
mod frames;
#[cfg(feature = "tui")]
mod screen;

use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use crate::failure::Failure;
use crate::requests::Requests;

pub use feed::{Feed, Piece};
pub use frames::{Frames, Order};
#[cfg(feature = "tui")]
pub use screen::Screen;

/// Shows frames.
pub trait Viewer: Send {
    /// Shows what arrives until nothing more does. True if the end of the run was asked for here.
    fn show(self: Box<Self>, pieces: &Receiver<Piece>) -> Result<bool, Failure>;
}

/// Frames as text, one after the other.
pub struct Plain {
    /// The frames to show.
    pub frames: Frames,
    /// The output.
    pub out: Box<dyn Write + Send>,
    /// Most functions in a frame.
    pub limit: usize,
    /// As JSON instead of text.
    pub json: bool,
    /// Most frames.
    pub most: Option<u64>,
    /// Ends the run when there were enough.
    pub requests: Arc<Requests>,
}

impl Viewer for Plain {
    fn show(mut self: Box<Self>, pieces: &Receiver<Piece>) -> Result<bool, Failure> {
        let mut printed = 0;
        let mut asked = false;
        let mut failure = Ok(());
        loop {
            let over = self.gather(pieces);
            if self.most.is_none_or(|most| printed < most) && self.frames.advance(over) {
                let text = match self.json {
                    true => self.frames.json(self.limit, Order::Now),
                    false => self.frames.text(self.limit, Order::Now),
                };
                let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
                if let Err(error) = written {
                    // Whoever read the frames has gone, or there is no room for them.
                    self.most = Some(printed);
                    if error.kind() != ErrorKind::BrokenPipe {
                        failure = Err(Failure::io("the frames", &error));
                    }
                }
                printed += 1;
            }
            if over {
                return failure.map(|()| asked);
            }
            if self.most.is_some_and(|most| printed >= most) {
                asked = true;
                self.requests.stop();
            }
        }
    }
}

impl Plain {
    /// Takes in what arrives until the next frame is due. True when that was all.
    fn gather(&mut self, pieces: &Receiver<Piece>) -> bool {
        loop {
            match pieces.recv_timeout(self.frames.until_due()) {
                Ok(piece) => self.frames.take(piece),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
            if self.frames.until_due().is_zero() {
                return false;
            }
        }
    }
}

//! Progress of a recording, for its user.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lwp_report::number::grouped;

use crate::recorder::Recorder;

/// Recordings that are over sooner show nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(500);

/// Shows how far a recording is until it is dropped.
#[derive(Debug)]
pub struct Progress {
    over: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The place that progress is shown in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A line of standard error, which the program does not share.
    Line,
    /// The terminal's title: the lines are the program's.
    Title,
}

impl Progress {
    /// Shows the progress of `recorder`, where there is a terminal that can.
    pub fn start(recorder: &Recorder) -> Self {
        let Some(place) = place() else { return Self { over: None, thread: None } };
        let (over, ended) = mpsc::channel::<()>();
        let recorder = recorder.clone();
        let show = move || {
            let started = Instant::now();
            let mut shown = false;
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if started.elapsed() >= PATIENCE {
                    show(place, &words(&recorder, started.elapsed()), !shown);
                    shown = true;
                }
            }
            if shown {
                hide(place);
            }
        };
        // Nobody misses it where there may be no more threads.
        let thread = std::thread::Builder::new().name("lwp-progress".into()).spawn(show).ok();
        Self { over: Some(over), thread }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn place() -> Option<Place> {
    let plain = |name: &str| std::env::var_os(name).is_some();
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if dumb || plain("CI") || !std::io::stderr().is_terminal() {
        return None;
    }
    Some(if std::io::stdout().is_terminal() { Place::Title } else { Place::Line })
}

fn words(recorder: &Recorder, elapsed: Duration) -> String {
    let (bytes, samples) = recorder.progress();
    let mut text = format!("lwp: recording, {} s", elapsed.as_secs());
    if samples > 0 {
        text.push_str(&format!(", {} samples", grouped(samples)));
    }
    text.push_str(&format!(", {} KB", grouped(bytes.div_ceil(1024))));
    text
}

fn show(place: Place, words: &str, first: bool) {
    let text = match (place, first) {
        (Place::Line, _) => format!("\r\x1b[K{words}"),
        // The title that was there before is put aside.
        (Place::Title, true) => format!("\x1b[22;2t\x1b]2;{words}\x07"),
        (Place::Title, false) => format!("\x1b]2;{words}\x07"),
    };
    write(&text);
}

fn hide(place: Place) {
    write(match place {
        Place::Line => "\r\x1b[K",
        Place::Title => "\x1b[23;2t",
    });
}

/// One write, so that nothing of the program's comes in between. A terminal that is gone is no
/// matter.
fn write(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

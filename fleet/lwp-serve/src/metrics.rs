//! Numbers about the server, as Prometheus reads them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The counters.
#[derive(Debug, Default)]
pub struct Metrics {
    pub added: AtomicU64,
    pub known: AtomicU64,
    pub refused: AtomicU64,
    pub received_bytes: AtomicU64,
    pub commits: AtomicU64,
    pub commit_micros: AtomicU64,
    pub failures: AtomicU64,
    pub questions: AtomicU64,
    pub question_micros: AtomicU64,
    pub answers: [AtomicU64; 6],
}

/// One more, or some.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// A time that something took.
pub fn took(counter: &AtomicU64, time: Duration) {
    count(counter, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

impl Metrics {
    /// Counts an answer by the first digit of its status.
    pub fn answered(&self, status: u16) {
        count(&self.answers[usize::from(status / 100).min(5)], 1);
    }

    /// The text; `waiting` recordings are in the queue, `spooled` ones in the spool.
    pub fn text(&self, waiting: usize, spooled: usize) -> String {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| of(counter) as f64 / 1e6;
        let rows = [
            ("recordings_added_total", "counter", "Recordings added", of(&self.added) as f64),
            (
                "recordings_known_total",
                "counter",
                "Recordings that were there",
                of(&self.known) as f64,
            ),
            ("recordings_refused_total", "counter", "Recordings refused", of(&self.refused) as f64),
            (
                "received_bytes_total",
                "counter",
                "Bytes of recordings",
                of(&self.received_bytes) as f64,
            ),
            ("commits_total", "counter", "Commits to the store", of(&self.commits) as f64),
            ("commit_seconds_total", "counter", "Time of commits", seconds(&self.commit_micros)),
            ("store_failures_total", "counter", "Commits that failed", of(&self.failures) as f64),
            ("questions_total", "counter", "Questions asked", of(&self.questions) as f64),
            (
                "question_seconds_total",
                "counter",
                "Time of questions",
                seconds(&self.question_micros),
            ),
            ("recordings_waiting", "gauge", "Recordings in the queue", waiting as f64),
            ("recordings_spooled", "gauge", "Recordings in the spool", spooled as f64),
        ];
        let mut out = String::new();
        for (name, kind, help, value) in rows {
            out += &format!(
                "# HELP lwp_fleet_{name} {help}.\n# TYPE lwp_fleet_{name} {kind}\nlwp_fleet_{name} {value}\n"
            );
        }
        out += "# HELP lwp_fleet_answers_total Answers by class of status.\n# TYPE lwp_fleet_answers_total counter\n";
        for (class, counter) in self.answers.iter().enumerate().skip(1) {
            out += &format!("lwp_fleet_answers_total{{class=\"{class}xx\"}} {}\n", of(counter));
        }
        out
    }
}

//! The one task that writes: recordings that wait together share a commit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lwp_facts::Facts;
use lwp_store::{Added, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::metrics::{Metrics, count, took};
use crate::refusal::Refusal;

/// Recordings of one commit, at most.
const BATCH: usize = 64;
/// Rows that wait, at most: they are in memory.
const MOST_ROWS: usize = 10_000_000;

/// A recording on its way.
struct Job {
    facts: Facts,
    reply: oneshot::Sender<Result<Added, Refusal>>,
}

/// The way to the task.
#[derive(Debug)]
pub struct Writer {
    jobs: mpsc::Sender<Job>,
    rows: Arc<AtomicUsize>,
    /// The beginning of the commit that is being made.
    begun: Arc<Mutex<Option<Instant>>>,
}

impl Writer {
    /// Starts the task, which ends when the writer is dropped and everything that waits is written.
    /// `most` recordings may wait.
    pub fn start(store: Store, metrics: Arc<Metrics>, most: usize) -> (Self, JoinHandle<()>) {
        let (jobs, waiting) = mpsc::channel(most.max(1));
        let rows = Arc::new(AtomicUsize::new(0));
        let begun = Arc::new(Mutex::default());
        let counted = (Arc::clone(&rows), Arc::clone(&begun));
        let task = tokio::spawn(write(store, metrics, waiting, counted));
        (Self { jobs, rows, begun }, task)
    }

    /// Returns true if a commit takes longer than `most`: the store does not answer.
    pub fn is_late(&self, most: Duration) -> bool {
        let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.is_some_and(|begun| begun.elapsed() > most)
    }

    /// The number of recordings that wait.
    pub fn waiting(&self) -> usize {
        self.jobs.max_capacity() - self.jobs.capacity()
    }

    /// Adds a recording; when this returns, it is on the disk and in the log.
    pub async fn add(&self, facts: Facts) -> Result<Added, Refusal> {
        let place = self.jobs.try_reserve();
        let place = place.map_err(|_| Refusal::busy("too many recordings wait"))?;
        let rows = facts.rows();
        if self.rows.fetch_add(rows, Ordering::Relaxed) + rows > MOST_ROWS + rows {
            self.rows.fetch_sub(rows, Ordering::Relaxed);
            return Err(Refusal::busy("too many rows wait"));
        }
        let (reply, answer) = oneshot::channel();
        place.send(Job { facts, reply });
        let answer = answer.await;
        answer.unwrap_or_else(|_| Err(Refusal::unavailable("the server is about to end")))
    }
}

async fn write(
    store: Store,
    metrics: Arc<Metrics>,
    mut waiting: mpsc::Receiver<Job>,
    (rows, since): (Arc<AtomicUsize>, Arc<Mutex<Option<Instant>>>),
) {
    let mark = |at| *since.lock().unwrap_or_else(PoisonError::into_inner) = at;
    let mut jobs = Vec::new();
    while waiting.recv_many(&mut jobs, BATCH).await > 0 {
        // Who does not wait any more has put the recording elsewhere.
        let (given_up, wanted): (Vec<Job>, Vec<Job>) =
            jobs.drain(..).partition(|job| job.reply.is_closed());
        rows.fetch_sub(given_up.iter().map(|job| job.facts.rows()).sum(), Ordering::Relaxed);
        if wanted.is_empty() {
            continue;
        }
        let (facts, replies): (Vec<Facts>, Vec<_>) =
            wanted.into_iter().map(|job| (job.facts, job.reply)).unzip();
        let begun = Instant::now();
        mark(Some(begun));
        let added = store.add(&facts).await;
        mark(None);
        took(&metrics.commit_micros, begun.elapsed());
        count(&metrics.commits, 1);
        rows.fetch_sub(facts.iter().map(Facts::rows).sum(), Ordering::Relaxed);
        match added {
            Ok(added) => {
                for (added, reply) in added.into_iter().zip(replies) {
                    count(if added.new { &metrics.added } else { &metrics.known }, 1);
                    let _ = reply.send(Ok(added));
                }
            }
            Err(error) => {
                count(&metrics.failures, 1);
                lwp_terminal::say!("lwp-fleet: {error}");
                for reply in replies {
                    let _ = reply.send(Err(Refusal::unavailable("the store does not answer")));
                }
            }
        }
    }
}

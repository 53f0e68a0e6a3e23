//! Questions that are being answered: how far they got, and whether something happened to them.
//!
//! Ballista repeats the parts of a question that a lost machine had, and in doing so may count rows
//! twice: a kill in the middle of a join has been seen to give another answer. So nothing is
//! repeated in part here. A question is spoilt by any part that fails, and by any machine with a
//! part of it that falls silent; whoever asked asks it again as a whole.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ballista_core::serde::protobuf::failed_task::FailedReason;
use ballista_core::serde::protobuf::task_status::Status as Task;
use ballista_core::serde::protobuf::{FailedTask, TaskStatus};

/// The silence after which an executor is lost; it reports every five seconds at least.
pub const LOST: Duration = Duration::from_secs(20);
/// The silence after which an executor is lost whose connection has ended: one that lives comes
/// back at once.
const CUT: Duration = Duration::from_secs(1);

/// The reason why a question is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spoilt {
    /// A machine is lost.
    Machine(String),
    /// A part of it failed, for a reason that may be its own.
    Part(String),
}

/// Questions that are being answered.
#[derive(Clone, Debug, Default)]
pub struct Jobs(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    jobs: HashMap<String, Progress>,
    heard: HashMap<String, Heard>,
}

/// An executor, as far as it was heard of.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// The last time that it reported, or that its connection ended.
    at: Instant,
    /// True if its connection has ended since its last report.
    is_cut: bool,
}

impl Heard {
    fn is_lost(&self, lost: Duration) -> bool {
        self.at.elapsed() > if self.is_cut { CUT.min(lost) } else { lost }
    }
}

#[derive(Debug)]
struct Progress {
    /// The last time that somebody asked about it.
    asked: Instant,
    /// Parts that are finished.
    finished: u64,
    /// Executors that were given parts of it.
    executors: HashSet<String>,
    spoilt: Option<Spoilt>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { asked: Instant::now(), finished: 0, executors: HashSet::new(), spoilt: None }
    }
}

impl Jobs {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A question begins. Parts of it may have been given away already.
    pub fn begin(&self, job: &str) {
        self.locked().jobs.entry(job.to_owned()).or_default();
    }

    /// An executor reports. This must be known before Ballista knows it.
    pub fn hear(&self, executor: &str, tasks: &[TaskStatus]) {
        let mut state = self.locked();
        let heard = Heard { at: Instant::now(), is_cut: false };
        if state.heard.insert(executor.to_owned(), heard).is_none() {
            lwp_terminal::say!("lwp-fleet-node: executor {executor} is here");
        }
        for task in tasks {
            let Some(job) = state.jobs.get_mut(&task.job_id) else { continue };
            match &task.status {
                Some(Task::Successful(_)) => job.finished += 1,
                Some(Task::Failed(failed)) => {
                    job.spoilt.get_or_insert_with(|| reason(failed));
                }
                _ => (),
            }
        }
    }

    /// The connection of an executor has ended: it was killed, or connects again.
    pub fn cut(&self, executor: &str) {
        if let Some(heard) = self.locked().heard.get_mut(executor) {
            *heard = Heard { at: Instant::now(), is_cut: true };
        }
    }

    /// An executor is given parts of questions.
    pub fn give<'a>(&self, executor: &str, jobs: impl Iterator<Item = &'a str>) {
        let mut state = self.locked();
        for job in jobs {
            let job = state.jobs.entry(job.to_owned()).or_default();
            job.executors.insert(executor.to_owned());
        }
    }

    /// The number of parts that are finished of a question that somebody asks about.
    ///
    /// # Errors
    ///
    /// If it is spoilt: there will be no answer, whatever Ballista makes of it.
    pub fn ask(&self, job: &str, lost: Duration) -> Result<u64, Spoilt> {
        let mut state = self.locked();
        let State { jobs, heard } = &mut *state;
        let Some(job) = jobs.get_mut(job) else { return Ok(0) };
        job.asked = Instant::now();
        let is_lost =
            |executor: &&String| heard.get(*executor).is_none_or(|heard| heard.is_lost(lost));
        if job.spoilt.is_none()
            && let Some(executor) = job.executors.iter().find(is_lost)
        {
            let why = match heard.get(executor) {
                Some(heard) if heard.is_cut => "has gone".to_owned(),
                _ => format!("is silent for {} s", lost.as_secs()),
            };
            job.spoilt = Some(Spoilt::Machine(format!("executor {executor} {why}")));
        }
        job.spoilt.clone().map_or(Ok(job.finished), Err)
    }

    /// A question has been answered or given up.
    pub fn end(&self, job: &str) {
        self.locked().jobs.remove(job);
    }

    /// Takes away the questions that nobody has asked about for `patience`, and executors that are
    /// long gone.
    pub fn abandoned(&self, patience: Duration) -> Vec<String> {
        let mut state = self.locked();
        state.heard.retain(|executor, heard| {
            let is_here = heard.at.elapsed() < 2 * LOST;
            if !is_here {
                lwp_terminal::say!("lwp-fleet-node: executor {executor} is gone");
            }
            is_here
        });
        let over = state.jobs.extract_if(|_, job| job.asked.elapsed() > patience);
        over.map(|(job, _)| job).collect()
    }
}

fn reason(failed: &FailedTask) -> Spoilt {
    let text = failed.error.clone();
    match failed.failed_reason {
        Some(FailedReason::ExecutionError(_) | FailedReason::IoError(_)) => Spoilt::Part(text),
        _ => Spoilt::Machine(format!("a part of the question is lost: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use ballista_core::serde::protobuf::{ExecutionError, FetchPartitionError, SuccessfulTask};

    use super::*;

    fn task(job_id: &str, status: Task) -> TaskStatus {
        TaskStatus { job_id: job_id.to_owned(), status: Some(status), ..TaskStatus::default() }
    }

    fn failed(reason: FailedReason) -> Task {
        let error = "why".to_owned();
        Task::Failed(FailedTask { error, failed_reason: Some(reason), ..FailedTask::default() })
    }

    #[test]
    fn questions_that_nobody_asks_about_are_abandoned() {
        let jobs = Jobs::default();
        jobs.begin("a");
        let done = |job: &str| task(job, Task::Successful(SuccessfulTask::default()));
        jobs.hear("x", &[done("a"), done("other"), TaskStatus::default(), done("a")]);
        assert_eq!((jobs.ask("a", LOST), jobs.ask("other", LOST)), (Ok(2), Ok(0)));
        assert_eq!(jobs.abandoned(Duration::from_secs(30)), [""; 0]);
        jobs.begin("b");
        jobs.end("b");
        assert_eq!(jobs.abandoned(Duration::ZERO), ["a"]);
        assert_eq!(jobs.abandoned(Duration::ZERO), [""; 0]);
    }

    #[test]
    fn a_failed_part_or_a_silent_machine_spoils_a_question_for_good() {
        let jobs = Jobs::default();
        ["a", "b", "c"].into_iter().for_each(|job| jobs.begin(job));
        jobs.hear("x", &[]);
        jobs.give("x", ["a"].into_iter());
        assert_eq!(jobs.ask("a", LOST), Ok(0));
        assert!(matches!(jobs.ask("a", Duration::ZERO), Err(Spoilt::Machine(_))));
        // It comes back, and nobody knows what it has.
        jobs.hear("x", &[task("a", Task::Successful(SuccessfulTask::default()))]);
        assert!(matches!(jobs.ask("a", LOST), Err(Spoilt::Machine(_))));
        jobs.hear("y", &[task("b", failed(FailedReason::ExecutionError(ExecutionError {})))]);
        assert_eq!(jobs.ask("b", LOST), Err(Spoilt::Part("why".to_owned())));
        let lost = FailedReason::FetchPartitionError(FetchPartitionError::default());
        jobs.hear("y", &[task("c", failed(lost))]);
        assert!(matches!(jobs.ask("c", LOST), Err(Spoilt::Machine(_))));
        // One whose connection has ended is lost sooner, unless it comes back.
        for (job, executor) in [("e", "y"), ("f", "w")] {
            jobs.begin(job);
            jobs.hear(executor, &[]);
            jobs.give(executor, [job].into_iter());
            jobs.cut(executor);
            assert_eq!(jobs.ask(job, LOST), Ok(0));
        }
        jobs.hear("y", &[]);
        std::thread::sleep(CUT * 3 / 2);
        assert_eq!(jobs.ask("e", LOST), Ok(0));
        let gone = Spoilt::Machine("executor w has gone".to_owned());
        assert_eq!(jobs.ask("f", LOST), Err(gone));
        // An executor that was never heard of is lost too.
        jobs.begin("d");
        jobs.give("z", ["d"].into_iter());
        assert!(matches!(jobs.ask("d", LOST), Err(Spoilt::Machine(_))));
    }
}

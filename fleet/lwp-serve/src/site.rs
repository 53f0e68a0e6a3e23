//! Everything that answers are made from.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lwp_page::Subject;
use lwp_query::{Budget, Rows, Session};
use lwp_store::Store;
use tokio::sync::Semaphore;

use crate::keyring::{Keyring, Silent};
use crate::metrics::{Metrics, count, took};
use crate::places::{Place, Places};
use crate::refusal::Refusal;
use crate::server::Limits;
use crate::spool::Spool;
use crate::tokens::{Token, Tokens};
use crate::worker::Asked;
use crate::workers::{Program, Workers};
use crate::writer::Writer;

/// The greatest age of the version that questions are answered from.
const FRESH: Duration = Duration::from_secs(1);
/// Subjects that are kept.
const SUBJECTS: usize = 8;

/// Subjects that were made, by what they show and of which version.
type Made = VecDeque<((u64, String), Arc<Subject>)>;

/// Everything that answers are made from.
pub struct Site {
    pub store: Store,
    pub writer: Arc<Writer>,
    pub spool: Option<Spool>,
    pub metrics: Arc<Metrics>,
    pub limits: Limits,
    /// Mebibytes of recordings that are being read.
    pub bodies: Arc<Semaphore>,
    /// Recordings that are being unpacked.
    pub parsing: Semaphore,
    questions: Places,
    in_sql: Places,
    workers: Option<Workers>,
    keys: Arc<Keyring>,
    session: Mutex<Option<(Instant, Arc<Session>)>>,
    /// Whoever opens the next session.
    opening: tokio::sync::Mutex<()>,
    /// The last commit of this server.
    renewed: Mutex<Option<Instant>>,
    subjects: Mutex<Made>,
}

impl Site {
    pub fn new(
        store: Store,
        writer: Arc<Writer>,
        metrics: Arc<Metrics>,
        limits: Limits,
        (spool, tokens): (Option<Spool>, (Tokens, Option<Token>)),
    ) -> Self {
        let queue = Duration::from_secs(limits.queue_seconds);
        Self {
            keys: Keyring::new(store.clone(), tokens.0, tokens.1),
            store,
            writer,
            spool,
            metrics,
            bodies: Arc::new(Semaphore::new(limits.bodies_mib)),
            parsing: Semaphore::new(2),
            questions: Places::new(limits.questions, limits.of_token, queue),
            in_sql: Places::new(limits.in_sql, 1, queue),
            workers: None,
            limits,
            session: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            renewed: Mutex::default(),
            subjects: Mutex::default(),
        }
    }

    /// Has a program answer questions in SQL, if there is one.
    pub fn with_program(mut self, program: Option<Program>) -> Self {
        let Limits { memory_mib, in_sql, question_seconds, .. } = self.limits;
        let each = (memory_mib / in_sql.max(1), question_seconds);
        self.workers = program.map(|program| Workers::new(program, each, in_sql));
        self
    }

    /// The token with this secret, if it opens something.
    pub async fn token(&self, secret: &str) -> Result<Option<Token>, Refusal> {
        let silent = |Silent| Refusal::unavailable("the store does not answer");
        self.keys.find(secret).await.map_err(silent)
    }

    /// A place among those who ask, and a session with the store's version of now.
    pub async fn asking(&self, token: &Token) -> Result<(Place, Arc<Session>), Refusal> {
        let place = self.questions.take(&token.name).await?;
        count(&self.metrics.questions, 1);
        Ok((place, self.session().await?))
    }

    /// The answer to a question in SQL, which cannot harm the server.
    pub async fn ask(&self, token: &Token, sql: String) -> Result<Rows, Refusal> {
        let _place = self.in_sql.take(&token.name).await?;
        count(&self.metrics.questions, 1);
        let begun = Instant::now();
        let session = self.session().await?;
        let answer = match &self.workers {
            Some(workers) => {
                let version = session.snapshot().version();
                workers.ask(&Asked { version, sql }).await
            }
            None => session.ask(&sql).await,
        };
        took(&self.metrics.question_micros, begun.elapsed());
        Ok(answer?)
    }

    /// A session with the store's version of now.
    async fn session(&self) -> Result<Arc<Session>, Refusal> {
        let opened = async {
            let _turn = self.opening.lock().await;
            match self.fresh() {
                Some(session) => Ok(session),
                None => self.open().await,
            }
        };
        if let Some(session) = self.fresh() {
            return Ok(session);
        }
        let most = Duration::from_secs(self.limits.question_seconds);
        let late = |_| Refusal::unavailable("the store does not answer");
        tokio::time::timeout(most, opened).await.map_err(late)?
    }

    fn fresh(&self) -> Option<Arc<Session>> {
        let kept = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH);
        fresh.map(|(_, session)| Arc::clone(session))
    }

    async fn open(&self) -> Result<Arc<Session>, Refusal> {
        let budget = Budget {
            memory_mib: self.limits.memory_mib,
            seconds: self.limits.question_seconds,
            rows: self.limits.rows,
            ..Budget::default()
        };
        let begun = Instant::now();
        let session = Arc::new(Session::new(&self.store, budget).await?);
        let mut kept = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let renewed = *self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        // What was opened before a commit may not have it.
        if renewed.is_none_or(|renewed| renewed < begun) {
            *kept = Some((begun, Arc::clone(&session)));
        }
        Ok(session)
    }

    /// The next question sees what was written before it.
    pub fn renew(&self) {
        let mut kept = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        *kept = None;
    }

    /// A subject that was made before.
    pub fn subject(&self, key: &(u64, String)) -> Option<Arc<Subject>> {
        let kept = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(known, _)| known == key).map(|(_, subject)| Arc::clone(subject))
    }

    /// Keeps a subject for whoever asks next.
    pub fn keep(&self, key: (u64, String), subject: Arc<Subject>) {
        let mut kept = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_front((key, subject));
        kept.truncate(SUBJECTS);
    }
}

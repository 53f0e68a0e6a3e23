//! Everything that answers are made from.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lwp_page::Subject;
use lwp_query::{Budget, Session};
use lwp_store::Store;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;
use crate::refusal::Refusal;
use crate::server::Limits;
use crate::spool::Spool;
use crate::tokens::{Token, Tokens};
use crate::writer::Writer;

/// The greatest age of the version that questions are answered from.
const FRESH: Duration = Duration::from_secs(1);
/// The greatest age of tokens: one that was taken away opens nothing after that.
const TOKENS_FRESH: Duration = Duration::from_secs(5);
/// The greatest age of tokens while the store does not answer.
const TOKENS_KEPT: Duration = Duration::from_secs(900);
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
    questions: Arc<Semaphore>,
    own: Option<Token>,
    tokens: tokio::sync::Mutex<Option<(Instant, Arc<Tokens>)>>,
    session: tokio::sync::Mutex<Option<(Instant, Arc<Session>)>>,
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
        let (mut known, own) = tokens;
        known.token.extend(own.clone());
        Self {
            store,
            writer,
            spool,
            metrics,
            bodies: Arc::new(Semaphore::new(limits.bodies_mib)),
            parsing: Semaphore::new(2),
            questions: Arc::new(Semaphore::new(limits.questions)),
            limits,
            own,
            tokens: tokio::sync::Mutex::new(Some((Instant::now(), Arc::new(known)))),
            session: tokio::sync::Mutex::default(),
            subjects: Mutex::default(),
        }
    }

    /// All tokens that open something.
    pub async fn tokens(&self) -> Result<Arc<Tokens>, Refusal> {
        let mut kept = self.tokens.lock().await;
        if let Some((_, tokens)) = kept.as_ref().filter(|(at, _)| at.elapsed() < TOKENS_FRESH) {
            return Ok(Arc::clone(tokens));
        }
        let mut tokens = match Tokens::of(&self.store).await {
            Ok(tokens) => tokens,
            Err(error) => {
                lwp_terminal::say!("lwp-fleet: {error}");
                // What is taken in now goes to the spool.
                let last = kept.as_ref().filter(|(at, _)| at.elapsed() < TOKENS_KEPT);
                let none = || Refusal::unavailable("the store does not answer");
                return last.map(|(_, tokens)| Arc::clone(tokens)).ok_or_else(none);
            }
        };
        tokens.token.extend(self.own.clone());
        let tokens = Arc::new(tokens);
        *kept = Some((Instant::now(), Arc::clone(&tokens)));
        Ok(tokens)
    }

    /// A place among those who ask, and a session with the store's version of now.
    pub async fn asking(&self) -> Result<(OwnedSemaphorePermit, Arc<Session>), Refusal> {
        let waited = Arc::clone(&self.questions).acquire_owned();
        let place = tokio::time::timeout(Duration::from_secs(10), waited).await;
        let place = place.ok().and_then(Result::ok);
        let place = place.ok_or_else(|| Refusal::busy("too many questions"))?;
        crate::metrics::count(&self.metrics.questions, 1);
        Ok((place, self.session().await?))
    }

    async fn session(&self) -> Result<Arc<Session>, Refusal> {
        let mut kept = self.session.lock().await;
        if let Some((_, session)) = kept.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(Arc::clone(session));
        }
        let budget = Budget {
            memory_mib: self.limits.memory_mib,
            seconds: self.limits.question_seconds,
            rows: self.limits.rows,
            ..Budget::default()
        };
        let session = Arc::new(Session::new(&self.store, budget).await?);
        *kept = Some((Instant::now(), Arc::clone(&session)));
        Ok(session)
    }

    /// The next question sees what was written before it.
    pub async fn renew(&self) {
        *self.session.lock().await = None;
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

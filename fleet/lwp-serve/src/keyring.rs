//! The tokens of a store, as a server keeps them: a new one opens at once, one that was taken away
//! opens nothing after seconds, and a store that does not answer keeps nobody waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use lwp_store::Store;
use tokio::sync::Notify;

use crate::tokens::{Token, Tokens};

/// The greatest age of tokens: one that was taken away opens nothing after that.
const FRESH: Duration = Duration::from_secs(5);
/// The greatest age of tokens while the store does not answer.
const KEPT: Duration = Duration::from_secs(900);
/// The time that somebody with a known token waits for news from the store.
const KNOWN: Duration = Duration::from_millis(200);
/// The time that somebody with an unknown one waits.
const UNKNOWN: Duration = Duration::from_secs(5);
/// The time between two looks at the store, however many unknown tokens are shown.
const BETWEEN: Duration = Duration::from_millis(100);

/// The store with the tokens has not answered for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent;

/// The tokens.
#[derive(Debug)]
pub struct Keyring {
    store: Store,
    /// A token that is in no store.
    own: Option<Token>,
    kept: RwLock<Kept>,
    is_loading: AtomicBool,
    loaded: Notify,
}

#[derive(Clone, Debug)]
struct Kept {
    tokens: Arc<Tokens>,
    /// The time at which they were asked for.
    since: Instant,
    /// The time at which they were asked for last, whether they came or not.
    tried: Instant,
}

impl Keyring {
    /// The tokens of a store as they are now, and one more.
    pub fn new(store: Store, tokens: Tokens, own: Option<Token>) -> Arc<Self> {
        let now = Instant::now();
        let kept = Kept { tokens: Arc::new(tokens), since: now, tried: now };
        let (is_loading, loaded) = (AtomicBool::new(false), Notify::new());
        Arc::new(Self { store, own, kept: RwLock::new(kept), is_loading, loaded })
    }

    /// The token with this secret, unless its time is over.
    ///
    /// # Errors
    ///
    /// If nobody knows any more which tokens the store has.
    pub async fn find(self: &Arc<Self>, secret: &str) -> Result<Option<Token>, Silent> {
        let own = Tokens { token: self.own.clone().into_iter().collect() };
        if let Some(own) = own.find(secret) {
            return Ok(Some(own.clone()));
        }
        let asked = Instant::now();
        if self.kept().since.elapsed() > FRESH {
            self.look(asked, KNOWN).await;
        }
        let kept = self.kept();
        if kept.since.elapsed() > KEPT {
            return Err(Silent);
        }
        if let Some(known) = kept.tokens.find(secret) {
            return Ok(Some(known.clone()));
        }
        if kept.since < asked {
            self.look(asked, UNKNOWN).await;
        }
        Ok(self.kept().tokens.find(secret).cloned())
    }

    fn kept(&self) -> Kept {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks at the store, and waits until a look has ended that began after `asked`.
    async fn look(self: &Arc<Self>, asked: Instant, patience: Duration) {
        let looking = async {
            loop {
                let loaded = self.loaded.notified();
                tokio::pin!(loaded);
                loaded.as_mut().enable();
                if self.kept().tried >= asked {
                    return;
                }
                if !self.is_loading.swap(true, Ordering::AcqRel) {
                    tokio::spawn(Arc::clone(self).load());
                }
                loaded.await;
            }
        };
        let _ = tokio::time::timeout(patience, looking).await;
    }

    /// Reads the tokens, however long it takes; one such task runs at a time.
    async fn load(self: Arc<Self>) {
        let last = self.kept().tried.elapsed();
        tokio::time::sleep(BETWEEN.saturating_sub(last)).await;
        let begun = Instant::now();
        let tokens = Tokens::of(&self.store).await;
        {
            let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
            kept.tried = begun;
            match tokens {
                Ok(tokens) => (kept.tokens, kept.since) = (Arc::new(tokens), begun),
                Err(error) => lwp_terminal::say!("lwp-fleet: {error}"),
            }
        }
        self.is_loading.store(false, Ordering::Release);
        self.loaded.notify_waiters();
    }
}

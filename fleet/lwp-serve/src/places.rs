//! Places among those who ask: so many at once, and fewer of them for one token.
//!
//! Promise: FL33

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal::Refusal;

/// Questions of one token that wait; more are sent away at once.
const WAITING: usize = 16;

/// The places.
pub struct Places {
    all: Arc<Semaphore>,
    of_token: usize,
    patience: Duration,
    tokens: Mutex<HashMap<String, Arc<OfToken>>>,
}

/// The places of one token.
struct OfToken {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A place, free again when it is dropped.
#[derive(Debug)]
pub struct Place {
    _of_token: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Places {
    /// So many places, of which one token has at most `of_token`. A question waits as long as
    /// `patience` says.
    pub fn new(all: usize, of_token: usize, patience: Duration) -> Self {
        let all = Arc::new(Semaphore::new(all.max(1)));
        Self { all, of_token: of_token.max(1), patience, tokens: Mutex::default() }
    }

    /// A place for a token of this name, as soon as there is one.
    pub async fn take(&self, token: &str) -> Result<Place, Refusal> {
        let own = self.of(token);
        let _waiting = Waiting::begin(&own.waiting)?;
        let places = async {
            let of_token = Arc::clone(&own.places).acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Place { _of_token: of_token, _of_all: of_all })
        };
        let place = tokio::time::timeout(self.patience, places).await.ok().flatten();
        place.ok_or_else(|| Refusal::busy("too many questions"))
    }

    fn of(&self, token: &str) -> Arc<OfToken> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tokens.get(token) {
            return Arc::clone(known);
        }
        let places = Arc::new(Semaphore::new(self.of_token));
        let new = Arc::new(OfToken { places, waiting: AtomicUsize::new(0) });
        tokens.insert(token.to_owned(), Arc::clone(&new));
        new
    }
}

/// A question that waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Result<Self, Refusal> {
        let waiting_now = waiting.fetch_add(1, Ordering::Relaxed);
        let this = Self(waiting);
        if waiting_now < WAITING {
            Ok(this)
        } else {
            Err(Refusal::busy("too many questions of this token wait"))
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time that nobody waits for in vain.
    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_token_leaves_places_for_others() {
        let places = Places::new(3, 2, SHORT);
        let _first = places.take("a").await.unwrap();
        let _second = places.take("a").await.unwrap();
        let refusal = places.take("a").await.unwrap_err();
        assert_eq!((refusal.status.as_u16(), refusal.again), (429, Some(5)));
        let other = places.take("b").await.unwrap();
        assert!(places.take("c").await.is_err(), "all places are taken");
        drop(other);
        assert!(places.take("c").await.is_ok());
    }

    #[tokio::test]
    async fn a_question_gets_the_place_that_becomes_free() {
        let places = Arc::new(Places::new(1, 1, LONG));
        let held = places.take("a").await.unwrap();
        let next = Arc::clone(&places);
        let waiting = tokio::spawn(async move { next.take("b").await.is_ok() });
        tokio::task::yield_now().await;
        drop(held);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn more_than_may_wait_are_sent_away_at_once() {
        let places = Arc::new(Places::new(1, 1, LONG));
        let held = places.take("a").await.unwrap();
        let wait = || {
            let places = Arc::clone(&places);
            tokio::spawn(async move { places.take("a").await.map(drop) })
        };
        let waiting: Vec<_> = (0..WAITING).map(|_| wait()).collect();
        while places.of("a").waiting.load(Ordering::Relaxed) < WAITING {
            tokio::task::yield_now().await;
        }
        let refusal = places.take("a").await.unwrap_err();
        assert!(refusal.why.contains("of this token"), "{}", refusal.why);
        drop(held);
        for one in waiting {
            assert!(one.await.unwrap().is_ok());
        }
    }
}

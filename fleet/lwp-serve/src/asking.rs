//! Questions as requests bring them: who asks is known before anything else is read.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use lwp_query::{Filter, Session};
use tokio::sync::OwnedSemaphorePermit;

use crate::access::allow;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::tokens::{Scope, Token};

/// The words of an address.
#[derive(Clone, Debug, Default)]
pub struct Words(Vec<(String, String)>);

impl Words {
    pub fn new(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The value of a word, empty where there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The value of a word, or another one where there is none.
    pub fn or<'a>(&'a self, name: &str, otherwise: &'a str) -> &'a str {
        Some(self.get(name)).filter(|value| !value.is_empty()).unwrap_or(otherwise)
    }

    /// The event that is asked for.
    pub fn event(&self) -> &str {
        self.or("e", "instructions")
    }

    /// The filter: the terms of all words `filter`.
    pub fn filter(&self) -> Result<Filter, Refusal> {
        let all = self.0.iter().filter(|(name, _)| name == "filter");
        let terms: Vec<&str> = all.flat_map(|(_, value)| value.split_whitespace()).collect();
        Ok(Filter::parse(&terms)?)
    }
}

/// Somebody who may ask, and the words of the address.
pub struct Reader {
    pub token: Token,
    pub words: Words,
    site: Arc<Site>,
}

impl Reader {
    /// The way to the store, as soon as there is a place among those who ask.
    pub async fn asking(self) -> Result<Asking, Refusal> {
        let (place, session) = self.site.asking().await?;
        let Self { token, words, .. } = self;
        Ok(Asking { token, words, session, _place: place })
    }
}

impl FromRequestParts<Arc<Site>> for Reader {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Refusal> {
        let token = allow(site, &parts.headers, Scope::Read).await?;
        let words = Words::new(parts.uri.query().unwrap_or_default());
        Ok(Self { token, words, site: Arc::clone(site) })
    }
}

/// Somebody who may write.
pub struct Author(pub Token);

impl FromRequestParts<Arc<Site>> for Author {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Refusal> {
        Ok(Self(allow(site, &parts.headers, Scope::Write).await?))
    }
}

/// Somebody who asks: one of the few places, and a session with the store's version of now.
pub struct Asking {
    pub token: Token,
    pub words: Words,
    pub session: Arc<Session>,
    _place: OwnedSemaphorePermit,
}

impl FromRequestParts<Arc<Site>> for Asking {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Refusal> {
        Reader::from_request_parts(parts, site).await?.asking().await
    }
}

//! Questions as requests bring them: who asks is known before anything else is read.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use lwp_query::compare::Counted;
use lwp_query::events::{self, event};
use lwp_query::{Filter, Rows, Session};

use crate::access::allow;
use crate::places::Place;
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
        self.or("e", events::DEFAULT)
    }

    /// The event, if the address names one.
    pub fn event_asked(&self) -> Option<&str> {
        Some(self.get("e")).filter(|event| !event.is_empty())
    }

    /// The counts to compare: `children=1` asks for inclusive ones.
    pub fn counted(&self) -> Counted<'_> {
        Counted { event: self.event_asked(), inclusive: self.get("children") == "1" }
    }

    /// Names the event, where the address does not.
    pub fn set_event(&mut self, event: String) {
        if self.event_asked().is_none() {
            self.0.retain(|(name, _)| name != "e");
            self.0.push(("e".to_owned(), event));
        }
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
        let (place, session) = self.site.asking(&self.token).await?;
        let Self { token, words, .. } = self;
        Ok(Asking { token, words, session, _place: place })
    }
}

impl Reader {
    /// The answer to a question in SQL.
    pub async fn ask(&self, sql: &str) -> Result<Rows, Refusal> {
        self.site.ask(&self.token, sql.to_owned()).await
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
    _place: Place,
}

impl Asking {
    /// Puts the event into its words: the one that the address names, or the one that the
    /// recordings have.
    pub async fn with_event(mut self) -> Result<Self, Refusal> {
        if self.words.get("e").is_empty() {
            let event = event(&self.session, &self.words.filter()?, None).await?;
            self.words.set_event(event);
        }
        Ok(self)
    }
}

impl FromRequestParts<Arc<Site>> for Asking {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, site: &Arc<Site>) -> Result<Self, Refusal> {
        Reader::from_request_parts(parts, site).await?.asking().await
    }
}

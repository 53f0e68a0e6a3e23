//! Tokens: secrets that open the server, of which the store has hashes only.

use std::fmt::Write;
use std::io;

use lwp_query::matches;
use lwp_store::Store;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The file that has them.
const FILE: &str = "tokens.toml";

/// The requests that a token opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Questions and pages.
    Read,
    /// Adding recordings and notes.
    Write,
    /// Being a machine of a cluster.
    Node,
}

/// A token as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The name by which it is removed.
    pub name: String,
    /// The SHA-256 of the secret, in hexadecimal.
    pub sha256: String,
    /// The requests that it opens.
    pub scopes: Vec<Scope>,
    /// The only project that it may write to; `*` stands for any letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The day from which on it is refused, as 2027-01-31.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

/// All tokens of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// The tokens.
    #[serde(default)]
    pub token: Vec<Token>,
}

/// A secret that cannot be guessed: 256 random bits.
///
/// # Errors
///
/// If the system has no random numbers.
pub fn secret() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("lwpf_{}", hex(&bytes)))
}

/// The day that is some days after today, in UTC, as 2027-01-31.
pub fn day_after(days: u16) -> String {
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * i64::from(days));
    later.to_string().chars().take(10).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

impl Token {
    /// A token for `secret`.
    pub fn new(name: impl Into<String>, secret: &str, scopes: Vec<Scope>) -> Self {
        let sha256 = hex(&Sha256::digest(secret.as_bytes()));
        Self { name: name.into(), sha256, scopes, project: None, expires: None }
    }

    /// Returns true if it may write to a project.
    pub fn may_write_to(&self, project: &str) -> bool {
        self.project.as_ref().is_none_or(|pattern| matches(pattern, project))
    }

    fn is_over(&self, today: &str) -> bool {
        // Days as text stand in the order of time.
        self.expires.as_ref().is_some_and(|day| today >= day.as_str())
    }
}

impl Tokens {
    /// The tokens of a store.
    ///
    /// # Errors
    ///
    /// If their file cannot be read.
    pub async fn of(store: &Store) -> lwp_store::Result<Self> {
        let text = store.settings(FILE).await?.unwrap_or_default();
        let wrong = |why: String| lwp_store::Error::Settings(FILE.to_owned(), why);
        let tokens: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        for token in &tokens.token {
            let day = token.expires.as_ref().map(|day| day.parse::<jiff::civil::Date>());
            let is_day = day.is_none_or(|day| day.is_ok());
            let is_hash = token.sha256.len() == 64;
            if !is_day || !is_hash {
                return Err(wrong(format!("token '{}' is none", token.name)));
            }
        }
        Ok(tokens)
    }

    /// Writes the tokens of a store.
    ///
    /// # Errors
    ///
    /// If the storage refuses them.
    pub async fn set(&self, store: &Store) -> lwp_store::Result<()> {
        let text = toml::to_string(self);
        let wrong = |error: toml::ser::Error| {
            lwp_store::Error::Settings(FILE.to_owned(), error.to_string())
        };
        store.set_settings(FILE, &text.map_err(wrong)?).await
    }

    /// The token with this secret, unless its time is over. All hashes are compared, in a time that
    /// tells nothing.
    pub fn find(&self, secret: &str) -> Option<&Token> {
        let hash = hex(&Sha256::digest(secret.as_bytes()));
        let today = jiff::Timestamp::now().to_string();
        let mut found = None;
        for token in &self.token {
            if bool::from(token.sha256.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(token);
            }
        }
        found.filter(|token| !token.is_over(today.get(..10).unwrap_or("")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_open_what_they_are_for_until_their_day() {
        let secret = secret().unwrap();
        assert_ne!(secret, super::secret().unwrap());
        let mut token = Token::new("ci", &secret, vec![Scope::Write]);
        assert!(!token.sha256.contains(&secret[5..]));
        token.project = Some("words*".into());
        assert!(token.may_write_to("words-2") && !token.may_write_to("other"));
        let mut tokens = Tokens { token: vec![token.clone()] };
        assert_eq!(tokens.find(&secret), Some(&token));
        assert_eq!(tokens.find(&secret[..20]), None);
        assert_eq!(tokens.find(""), None);
        tokens.token[0].expires = Some("2020-01-01".into());
        assert_eq!(tokens.find(&secret), None);
        tokens.token[0].expires = Some("2999-01-01".into());
        assert!(tokens.find(&secret).is_some());
    }
}

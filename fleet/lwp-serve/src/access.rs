//! Access: who asks, and what for.

use axum::http::{HeaderMap, StatusCode, header};

use crate::refusal::Refusal;
use crate::site::Site;
use crate::tokens::{Scope, Token};

/// The cookie that a browser keeps its token in.
pub const COOKIE: &str = "lwp_fleet";

/// The token that a request shows, if it is known and good for `scope`.
pub async fn allow(site: &Site, headers: &HeaderMap, scope: Scope) -> Result<Token, Refusal> {
    let denied = || Refusal::new(StatusCode::UNAUTHORIZED, "a token is wanted");
    let shown = match bearer(headers) {
        Some(secret) => secret,
        None => {
            let secret = cookie(headers).ok_or_else(denied)?;
            // Another site's page can make a browser send its cookie, but not hide where it is
            // from.
            if !is_from_here(headers) {
                return Err(Refusal::new(StatusCode::FORBIDDEN, "not from this page"));
            }
            secret
        }
    };
    let token = site.token(shown).await?.ok_or_else(denied)?;
    if token.scopes.contains(&scope) {
        Ok(token)
    } else {
        Err(Refusal::new(StatusCode::FORBIDDEN, "the token is not good for that"))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, secret) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| secret.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.into_iter().find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

fn is_from_here(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    let origin = origin.to_str().unwrap_or("");
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("");
    origin.split_once("://").is_some_and(|(_, named)| named == host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn tokens_are_found_in_headers_and_cookies() {
        let found = headers(&[(header::AUTHORIZATION, "bearer x")]);
        assert_eq!(bearer(&found), Some("x"));
        assert_eq!(bearer(&headers(&[(header::AUTHORIZATION, "Basic x")])), None);
        let found = headers(&[(header::COOKIE, "a=b; lwp_fleet=y; c=d")]);
        assert_eq!(cookie(&found), Some("y"));
        assert_eq!(cookie(&headers(&[(header::COOKIE, "xlwp_fleet=y")])), None);
    }

    #[test]
    fn other_pages_are_not_from_here() {
        let of = |origin: &str| {
            is_from_here(&headers(&[(header::ORIGIN, origin), (header::HOST, "a:1")]))
        };
        assert!(of("http://a:1") && !of("http://b:1") && !of("null"));
        assert!(is_from_here(&HeaderMap::new()));
    }
}

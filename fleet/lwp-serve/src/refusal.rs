//! Requests that are not done, and why.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lwp_terminal::escape::printable;

/// A request that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    pub why: String,
    /// Seconds after which it may be done.
    pub again: Option<u32>,
}

impl Refusal {
    pub fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into(), again: None }
    }

    /// The request cannot be understood.
    pub fn wrong(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, why)
    }

    /// Everything is taken: later.
    pub fn busy(why: &str) -> Self {
        Self { again: Some(5), ..Self::new(StatusCode::TOO_MANY_REQUESTS, why) }
    }

    /// The store does not answer: later.
    pub fn unavailable(why: &str) -> Self {
        Self { again: Some(30), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, why) }
    }

    /// A fault that is the server's own business; what it is stands in the log only.
    pub fn failed(error: &dyn std::fmt::Display) -> Self {
        lwp_terminal::say!("lwp-fleet: {error}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed; its log tells why")
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = format!("{}\n", printable(&self.why));
        let kind = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
        let mut response = (self.status, kind, text).into_response();
        if let Some(seconds) = self.again {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

impl From<lwp_query::Error> for Refusal {
    fn from(error: lwp_query::Error) -> Self {
        use lwp_query::Error;
        match error {
            Error::Question(why) => Self::wrong(why),
            Error::Execution(_) | Error::Time(_) | Error::Rows(_) | Error::Memory | Error::Disk => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string())
            }
            error if is_unanswered(&error) => {
                lwp_terminal::say!("lwp-fleet: {error}");
                Self::unavailable("the store does not answer")
            }
            // Its place in the store is for those who have the store.
            Error::Engine(why) if why.starts_with("damaged") => {
                lwp_terminal::say!("lwp-fleet: {why}");
                let why = "the store is damaged; the server's log tells where";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
            error => Self::failed(&error),
        }
    }
}

/// Returns true if the store may answer later.
fn is_unanswered(error: &lwp_query::Error) -> bool {
    match error {
        lwp_query::Error::Store(error) => {
            error.is_temporary() || matches!(error, lwp_store::Error::Storage(_))
        }
        lwp_query::Error::Unanswered(_) => true,
        _ => false,
    }
}

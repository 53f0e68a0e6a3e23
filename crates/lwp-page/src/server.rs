//! The server: who may ask, and what every answer says about itself.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, RawQuery, Request as HttpRequest, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::connections::Bounded;
use crate::export;
use crate::request::{Query, Request, Shelf, View};
use crate::shell;
use crate::views;

/// Permissions of a page in a browser: to load this server's script and style, to send forms and
/// requests to it, and nothing else.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                          connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Everything that pages are made from.
pub struct Pages {
    /// The subjects.
    pub shelf: Box<dyn Shelf>,
    /// The first part of every address.
    pub token: String,
    /// Names that the server may be called by, with the port; all are refused but these. A page
    /// elsewhere that makes its own name lead to this machine is refused so.
    pub hosts: Vec<String>,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// A token that cannot be guessed: 128 random bits.
///
/// # Errors
///
/// If the system has no random numbers.
pub fn token() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The routes of all pages.
pub fn router(pages: Pages) -> Router {
    let pages = Arc::new(pages);
    Router::new()
        .route("/{token}/", get(front))
        .route("/{token}/{file}", get(file))
        .fallback(async || Answer::NOT_FOUND)
        .layer(middleware::from_fn_with_state(Arc::clone(&pages), guard))
        .with_state(pages)
}

/// A server that is bound and not yet running.
#[derive(Debug)]
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Binds to `port` of this machine's own address, which no other machine reaches; 0 is any free
    /// one.
    ///
    /// # Errors
    ///
    /// If the port is taken or not allowed.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self { address: listener.local_addr()?, listener })
    }

    /// The names that it may be called by.
    pub fn hosts(&self) -> Vec<String> {
        let port = self.address.port();
        vec![format!("127.0.0.1:{port}"), format!("localhost:{port}")]
    }

    /// The address of the first page.
    pub fn url(&self, token: &str) -> String {
        format!("http://{}/{token}/", self.address)
    }

    /// Answers until the process ends.
    ///
    /// # Errors
    ///
    /// If the system fails.
    pub fn run(self, pages: Pages) -> io::Result<()> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            axum::serve(Bounded::new(listener), router(pages)).await
        })
    }
}

/// An answer without a page.
struct Answer(StatusCode, &'static str);

impl Answer {
    const NOT_FOUND: Self = Self(StatusCode::NOT_FOUND, "there is no such page\n");
    const FORBIDDEN: Self =
        Self(StatusCode::FORBIDDEN, "lwp answers only to the address that it printed\n");
    const FAILED: Self = Self(StatusCode::INTERNAL_SERVER_ERROR, "lwp failed to make this page\n");
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        (self.0, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], self.1).into_response()
    }
}

/// Refuses whoever came by another name or does not know the token, and says with every answer what
/// browsers may do with it.
async fn guard(State(pages): State<Arc<Pages>>, request: HttpRequest, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let named = host.is_some_and(|host| pages.hosts.iter().any(|known| known == host));
    let given = request.uri().path().split('/').nth(1).unwrap_or("");
    let mut response = match named && same(given, &pages.token) {
        true => next.run(request).await,
        false => Answer::FORBIDDEN.into_response(),
    };
    protect(response.headers_mut());
    response
}

/// Says what browsers may do with an answer.
pub fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let own = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-resource-policy", own.clone());
    headers.insert("cross-origin-opener-policy", own);
}

/// Returns true if two texts are equal. The time that it takes does not tell where they differ.
fn same(given: &str, token: &str) -> bool {
    let differs = given.bytes().zip(token.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    given.len() == token.len() && differs == 0 && !token.is_empty()
}

async fn front(State(pages): State<Arc<Pages>>, RawQuery(query): RawQuery) -> Response {
    reply(pages, View::Summary.word().to_owned(), query).await
}

async fn file(
    State(pages): State<Arc<Pages>>,
    Path((_, file)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    reply(pages, file, query).await
}

/// Makes an answer beside the threads that talk to browsers.
async fn reply(pages: Arc<Pages>, file: String, query: Option<String>) -> Response {
    let made = tokio::task::spawn_blocking(move || {
        answer(&*pages.shelf, &file, &query.unwrap_or_default())
    });
    match made.await {
        Ok(Some(reply)) => reply.into_response(),
        Ok(None) => Answer::NOT_FOUND.into_response(),
        Err(_) => Answer::FAILED.into_response(),
    }
}

/// A reply to a browser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its media type.
    pub kind: &'static str,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The name to keep it under, where it is not to be shown.
    pub keep: Option<String>,
}

impl Reply {
    fn shown(kind: &'static str, text: impl Into<String>) -> Self {
        Self { kind, bytes: text.into().into_bytes(), keep: None }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = ([(header::CONTENT_TYPE, self.kind)], self.bytes).into_response();
        let disposition = self.keep.map(|name| format!("attachment; filename=\"{name}\""));
        if let Some(value) = disposition.and_then(|text| HeaderValue::from_str(&text).ok()) {
            response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
        }
        response
    }
}

/// The style, the script or the picture of all pages, by its name.
pub fn fixed(file: &str) -> Option<Reply> {
    Some(match file {
        "page.css" => Reply::shown("text/css; charset=utf-8", shell::STYLE),
        "page.js" => Reply::shown("text/javascript; charset=utf-8", shell::SCRIPT),
        "icon.svg" => Reply::shown("image/svg+xml", shell::ICON),
        _ => return None,
    })
}

/// The page, or what belongs to pages, whose address ends in `file` and `query`; `None` if there is
/// no such page. It is made in this thread, which may take a while.
pub fn answer(shelf: &dyn Shelf, file: &str, query: &str) -> Option<Reply> {
    if let Some(reply) = fixed(file) {
        return Some(reply);
    }
    let query = Query::parse(query);
    if file == "export" {
        let format = query.get("format").to_owned();
        let request = Request::new(shelf, View::Summary, query)?;
        let file = export::file(&request, &format)?;
        let kind = "application/octet-stream";
        return Some(Reply { kind, bytes: file.bytes, keep: Some(file.name) });
    }
    let request = Request::new(shelf, View::of_word(file)?, query)?;
    let page = shell::page(&request, views::body(&request));
    Some(Reply::shown("text/html; charset=utf-8", page.into_string()))
}

//! Addresses and who answers them.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;

use crate::access::COOKIE;
use crate::asking::Reader;
use crate::pages::links;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::{api, ingest, pages, subjects};

/// Bytes of a question or a form.
const SMALL: usize = 1 << 20;

/// The routes of everything.
pub fn router(site: Arc<Site>) -> Router {
    // What takes recordings reads them in its own time.
    let taking = Router::new()
        .route("/v1/recordings", get(api::recordings).post(ingest::recordings))
        .route("/v1development/profiles", post(ingest::profiles));
    let small = Router::new()
        .route("/v1/history", get(api::histories))
        .route("/v1/compare", get(api::comparison))
        .route("/v1/steps", get(api::all_steps))
        .route("/v1/sql", post(api::sql))
        .route("/v1/notes", post(api::note))
        .route("/healthz", get(async || "ok\n"))
        .route("/metrics", get(metrics))
        .route("/", get(pages::recordings::show))
        .route("/benchmarks", get(pages::benchmarks::show))
        .route("/history", get(pages::history::show))
        .route("/steps", get(pages::steps::show))
        .route("/compare", get(pages::compare::show))
        .route("/top", get(pages::top::show))
        .route("/sql", get(pages::sql::show))
        .route("/notes", post(api::note_form))
        .route("/enter", get(pages::enter).post(enter_form))
        .route("/enter/{secret}", get(enter))
        .route("/of/{base}/{set}/{file}", get(subjects::show))
        .route("/{file}", get(pages::file))
        .layer(middleware::from_fn_with_state(Arc::clone(&site), whole));
    taking
        .merge(small)
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "there is no such page"))
        .layer(DefaultBodyLimit::max(SMALL))
        .layer(middleware::from_fn_with_state(Arc::clone(&site), guard))
        .with_state(site)
}

/// Waits for a small request's body, but not for ever: whoever sends a byte a second holds a
/// connection.
async fn whole(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let seconds = Duration::from_secs(site.limits.body_seconds);
    let bytes = tokio::time::timeout(seconds, axum::body::to_bytes(body, SMALL)).await;
    let refusal = match bytes {
        Ok(Ok(bytes)) => return next.run(Request::from_parts(head, bytes.into())).await,
        Ok(Err(error)) if error.to_string().contains("length limit") => {
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("more than {SMALL} bytes"))
        }
        Ok(Err(_)) => Refusal::wrong("the request was cut off on its way"),
        Err(_) => Refusal::new(StatusCode::REQUEST_TIMEOUT, "the request comes too slowly"),
    };
    refusal.into_response()
}

/// Says with every answer what browsers may do with it, and sends browsers without a token where
/// they can show one.
async fn guard(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let shows_pages = request.method() == axum::http::Method::GET
        && request
            .headers()
            .get(header::ACCEPT)
            .is_some_and(|value| value.to_str().is_ok_and(|text| text.contains("text/html")));
    let page = request.uri().path_and_query().map_or("/", |it| it.as_str()).to_owned();
    let mut response = next.run(request).await;
    if response.status() == StatusCode::UNAUTHORIZED && shows_pages {
        response = Redirect::to(&links::query("enter", &[("to", &page)])).into_response();
    }
    lwp_page::protect(response.headers_mut());
    // Forms say where they are from, which a page that refers to nothing would hide.
    let own = HeaderValue::from_static("same-origin");
    response.headers_mut().insert(header::REFERRER_POLICY, own);
    site.metrics.answered(response.status().as_u16());
    response
}

async fn metrics(_: Reader, State(site): State<Arc<Site>>) -> Result<Response, Refusal> {
    let spooled = site.spool.as_ref().map_or(0, |spool| spool.files().len());
    let text = site.metrics.text(site.writer.waiting(), spooled);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

/// Opens the pages for a browser that shows a token.
async fn enter(State(site): State<Arc<Site>>, Path(secret): Path<String>) -> Response {
    entered(&site, &secret, "/").await
}

#[derive(Deserialize)]
struct Entry {
    token: String,
    #[serde(default)]
    to: String,
}

async fn enter_form(
    State(site): State<Arc<Site>>,
    axum::Form(entry): axum::Form<Entry>,
) -> Response {
    entered(&site, entry.token.trim(), &entry.to).await
}

/// Keeps the token in the browser, and shows the way to the page that was asked for.
async fn entered(site: &Arc<Site>, secret: &str, to: &str) -> Response {
    let known = match site.token(secret).await {
        Ok(token) => token.is_some(),
        Err(refusal) => return refusal.into_response(),
    };
    let cookie = format!("{COOKIE}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000");
    match HeaderValue::from_str(&cookie) {
        // A page in between: a browser keeps such a cookie to itself as long as it follows another
        // site's link.
        Ok(cookie) if known => {
            let mut response = pages::entered(links::own(to)).into_response();
            response.headers_mut().insert(header::SET_COOKIE, cookie);
            response
        }
        _ => Refusal::new(StatusCode::FORBIDDEN, "no such token").into_response(),
    }
}

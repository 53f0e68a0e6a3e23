//! Recordings that come in.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lwp_facts::{Facts, Limits, Run};
use lwp_import::Format;
use lwp_store::Added;
use lwp_terminal::escape::printable;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;

use crate::access::allow;
use crate::metrics::count;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::spool::Spool;
use crate::tokens::{Scope, Token};

/// The time that a recording waits for the store before it goes to the spool.
const LATE: Duration = Duration::from_millis(500);
/// Recordings of one request, at most.
const MOST: usize = 500;

/// Takes recordings in. Answers 201 when the store has them on its disk, 200 if they were there
/// before, and 202 when they are on the disk of the spool.
pub async fn recordings(
    State(site): State<Arc<Site>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    taken(&site, (&query.unwrap_or_default(), &headers), body).await
}

/// Takes profiles in as OpenTelemetry's collectors send them.
pub async fn profiles(
    State(site): State<Arc<Site>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    if kind != Some("application/x-protobuf") {
        let why = "application/x-protobuf is wanted";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    taken(&site, ("format=otlp", &headers), body).await?;
    // An empty message of the protocol: everything was taken.
    Ok(([(header::CONTENT_TYPE, "application/x-protobuf")], Vec::<u8>::new()).into_response())
}

async fn taken(site: &Arc<Site>, of: (&str, &HeaderMap), body: Body) -> Result<Response, Refusal> {
    let token = allow(site, of.1, Scope::Write).await?;
    let taken = take(site, &token, of, body).await;
    if taken.is_err() {
        count(&site.metrics.refused, 1);
    }
    taken
}

async fn take(
    site: &Arc<Site>,
    token: &Token,
    (query, headers): (&str, &HeaderMap),
    body: Body,
) -> Result<Response, Refusal> {
    let (room, bytes) = received(site, headers, body).await?;
    count(&site.metrics.received_bytes, bytes.len() as u64);
    let all = facts(site, query, bytes).await?;
    drop(room);
    if !all.iter().all(|facts| token.may_write_to(&facts.run.project)) {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "the token is not good for this project"));
    }
    let patient = headers.get("prefer").is_some_and(|value| value == "respond-async");
    match &site.spool {
        Some(spool) if patient || site.writer.is_late(LATE) => spooled(spool, all).await,
        Some(spool) => {
            let added = tokio::time::timeout(LATE, add(site, all.clone())).await;
            match added {
                Ok(Ok(added)) => Ok(done(site, &added)),
                Ok(Err(refusal)) if refusal.again.is_none() => Err(refusal),
                // Nobody waits for the writer: it leaves out what has not begun.
                Ok(Err(_)) | Err(_) => spooled(spool, all).await,
            }
        }
        None => Ok(done(site, &add(site, all).await?)),
    }
}

/// The answer when recordings are in the store.
fn done(site: &Arc<Site>, added: &[Added]) -> Response {
    site.renew();
    let is_new = added.iter().any(|added| added.new);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let one = |added: &Added| json!({ "id": added.id.to_string(), "new": added.new, "commit_version": added.version });
    let some: Vec<_> = added.iter().map(one).collect();
    (status, Json(json!({ "recordings": some }))).into_response()
}

/// The answer when recordings are in the spool.
async fn spooled(spool: &Spool, all: Vec<Facts>) -> Result<Response, Refusal> {
    let spool = spool.clone();
    let keep = move || -> Result<Vec<Value>, Refusal> {
        all.iter().try_for_each(|facts| spool.keep(facts))?;
        Ok(all.iter().map(|facts| json!({ "id": facts.id().to_string() })).collect::<Vec<_>>())
    };
    let kept = tokio::task::spawn_blocking(keep).await;
    let some = kept.map_err(|error| Refusal::failed(&error))??;
    Ok((StatusCode::ACCEPTED, Json(json!({ "recordings": some }))).into_response())
}

/// Adds recordings, which wait for their commits together.
async fn add(site: &Arc<Site>, all: Vec<Facts>) -> Result<Vec<Added>, Refusal> {
    let mut adding = JoinSet::new();
    for facts in all {
        let writer = Arc::clone(&site.writer);
        adding.spawn(async move { writer.add(facts).await });
    }
    let mut added = Vec::new();
    while let Some(one) = adding.join_next().await {
        added.push(one.map_err(|error| Refusal::failed(&error))??);
    }
    Ok(added)
}

/// The bytes of a recording, which have their room in memory before they come.
async fn received(
    site: &Arc<Site>,
    headers: &HeaderMap,
    body: Body,
) -> Result<(OwnedSemaphorePermit, Bytes), Refusal> {
    let most = site.limits.body_bytes;
    let large = || Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("more than {most} bytes"));
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let said = said.and_then(|text| text.parse::<usize>().ok()).unwrap_or(most);
    if said > most {
        return Err(large());
    }
    let room = u32::try_from(said.div_ceil(1 << 20).max(1)).unwrap_or(u32::MAX);
    let room = Arc::clone(&site.bodies).try_acquire_many_owned(room);
    let room = room.map_err(|_| Refusal::busy("too many recordings come at once"))?;
    let bytes = axum::body::to_bytes(body, said);
    let bytes = tokio::time::timeout(Duration::from_secs(site.limits.body_seconds), bytes).await;
    let slow = || Refusal::new(StatusCode::REQUEST_TIMEOUT, "the recording comes too slowly");
    match bytes.map_err(|_| slow())? {
        Ok(bytes) => Ok((room, bytes)),
        Err(error) if error.to_string().contains("length limit") => Err(large()),
        Err(_) => Err(Refusal::wrong("the recording was cut off on its way")),
    }
}

/// The facts of recordings, filed as the address says.
async fn facts(site: &Arc<Site>, query: &str, bytes: Bytes) -> Result<Vec<Facts>, Refusal> {
    let place = site.parsing.acquire().await.map_err(|error| Refusal::failed(&error))?;
    let limits = Limits { bytes: site.limits.unpacked_bytes, ..Limits::default() };
    let filing = Filing::parse(query)?;
    let read = tokio::task::spawn_blocking(move || {
        let run = Run {
            project: "default".to_owned(),
            started: jiff::Timestamp::now().as_second(),
            ..Run::default()
        };
        let all = lwp_import::read(&bytes, filing.format, &run, &limits);
        let mut all = all.map_err(|error| refused(&error))?;
        if all.len() > MOST {
            return Err(Refusal::wrong(format!("more than {MOST} recordings at once")));
        }
        all.iter_mut().try_for_each(|facts| filing.file(facts))?;
        Ok(all)
    });
    let read = read.await.map_err(|error| Refusal::failed(&error))?;
    drop(place);
    read
}

fn refused(error: &lwp_import::Error) -> Refusal {
    use lwp_import::Error;
    let status = match error {
        Error::Unknown | Error::PerfData => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Error::Limit { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    };
    Refusal::new(status, error.to_string())
}

/// The words of an address about the recordings that are sent to it.
#[derive(Default)]
struct Filing {
    format: Option<Format>,
    words: Vec<(String, String)>,
}

impl Filing {
    fn parse(query: &str) -> Result<Self, Refusal> {
        let mut filing = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let is_label = key.strip_prefix("label.").is_some_and(|label| !label.is_empty());
            if value.len() > 4096 || key.len() > 256 {
                return Err(Refusal::wrong("a word of the address is too long"));
            }
            match key.as_ref() {
                "format" => {
                    let format = Format::of_word(&value);
                    let why = || format!("'{value}' is no format: {}", Format::words());
                    filing.format = Some(format.ok_or_else(|| Refusal::wrong(why()))?);
                }
                "project" | "benchmark" | "commit" | "branch" | "parent" | "host" | "run_url" => {
                    filing.words.push((key.into_owned(), printable(&value)));
                }
                _ if is_label => filing.words.push((printable(&key), printable(&value))),
                _ => return Err(Refusal::wrong(format!("'{key}' is unknown"))),
            }
        }
        Ok(filing)
    }

    fn file(&self, facts: &mut Facts) -> Result<(), Refusal> {
        let run = &mut facts.run;
        for (key, value) in &self.words {
            let field = match key.as_str() {
                "project" => &mut run.project,
                "benchmark" => &mut run.benchmark,
                "commit" => &mut run.commit,
                "branch" => &mut run.branch,
                "parent" => &mut run.parent,
                "host" => &mut run.host,
                "run_url" => &mut run.run_url,
                key => {
                    let label = key.strip_prefix("label.").unwrap_or(key);
                    run.labels.insert(label.to_owned(), value.clone());
                    continue;
                }
            };
            value.clone_into(field);
        }
        // As OpenTelemetry calls a service that says no name; its collectors' address has no words.
        if run.benchmark.is_empty() && self.format == Some(Format::Otlp) {
            "unknown_service".clone_into(&mut run.benchmark);
        }
        match run.project.is_empty() || run.benchmark.is_empty() {
            true => Err(Refusal::wrong("a project and a benchmark are wanted, in the address")),
            false => Ok(()),
        }
    }
}

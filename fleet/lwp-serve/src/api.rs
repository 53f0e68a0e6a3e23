//! Questions, answered for programs.

use std::sync::Arc;

use arrow::ipc::writer::StreamWriter;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use lwp_query::comment::comment;
use lwp_query::compare::{Selector, compare};
use lwp_query::history::{Asked, history};
use lwp_query::steps::steps;
use lwp_query::{Format, Rows, json, render};
use lwp_store::Note;
use serde::Deserialize;

use crate::asking::{Asking, Author, Reader};
use crate::refusal::Refusal;
use crate::site::Site;

type Answer = Result<Response, Refusal>;

/// Functions of a benchmark or a step.
const FUNCTIONS: usize = 5;

fn wants(headers: &HeaderMap, kind: &str) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|text| text.contains(kind))
}

/// Rows as Arrow, CSV or JSON, by what is accepted.
fn rows(headers: &HeaderMap, rows: &Rows) -> Answer {
    let typed =
        |kind: &'static str, text: Vec<u8>| ([(header::CONTENT_TYPE, kind)], text).into_response();
    const ARROW: &str = "application/vnd.apache.arrow.stream";
    if wants(headers, ARROW) {
        let stream = || -> Result<Vec<u8>, arrow::error::ArrowError> {
            let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema)?;
            rows.batches.iter().try_for_each(|batch| writer.write(batch))?;
            writer.into_inner()
        };
        return Ok(typed(ARROW, stream().map_err(lwp_query::Error::from)?));
    }
    Ok(match wants(headers, "text/csv") {
        true => typed("text/csv; charset=utf-8", render(rows, Format::Csv)?.into_bytes()),
        false => typed("application/json", render(rows, Format::Json)?.into_bytes()),
    })
}

/// The recordings that a filter chooses, the latest first.
pub async fn recordings(asking: Asking, headers: HeaderMap) -> Answer {
    let (words, session) = (&asking.words, &asking.session);
    let limit =
        words.or("n", "100").parse::<u32>().map_err(|_| Refusal::wrong("n is no number"))?;
    let sql = format!(
        "select id, started, project, benchmark, \"commit\", branch, host, mode, instructions, content \
         from recordings where {} order by started desc, id limit {limit}",
        words.filter()?.sql()
    );
    rows(&headers, &session.ask(&sql).await?)
}

/// Histories.
pub async fn histories(asking: Asking) -> Answer {
    let asking = asking.with_event().await?;
    let (words, session) = (&asking.words, &asking.session);
    let function = Some(words.get("f")).filter(|name| !name.is_empty());
    let asked = Asked { event: words.event(), function, order: &[] };
    let all = history(session, &words.filter()?, &asked).await?;
    Ok(Json(json::histories(&all)).into_response())
}

/// A comparison, as JSON or as a comment on a change, by what is accepted.
pub async fn comparison(asking: Asking, headers: HeaderMap) -> Answer {
    let (words, session) = (&asking.words, &asking.session);
    let (before, after) = (Selector::parse(words.get("a"))?, Selector::parse(words.get("b"))?);
    let filter = words.filter()?;
    let compared = compare(session, (&before, &after), &filter, words.counted()).await?;
    let names = (before.text.as_str(), after.text.as_str());
    if wants(&headers, "text/markdown") {
        let kind = [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")];
        return Ok((kind, comment(&compared, names, 0, FUNCTIONS)).into_response());
    }
    Ok(Json(json::comparison(&compared, names)).into_response())
}

/// Steps.
pub async fn all_steps(asking: Asking) -> Answer {
    let asking = asking.with_event().await?;
    let (words, session) = (&asking.words, &asking.session);
    let found = steps(session, &words.filter()?, words.event(), &[], FUNCTIONS).await?;
    Ok(Json(json::steps(&found)).into_response())
}

/// A question in SQL, which is the body.
pub async fn sql(reader: Reader, headers: HeaderMap, question: String) -> Answer {
    let answer = reader.ask(&question).await?;
    // Writing many rows takes a while.
    let written = tokio::task::spawn_blocking(move || rows(&headers, &answer));
    written.await.map_err(|error| Refusal::failed(&error))?
}

/// A note as it is sent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noted {
    #[serde(default)]
    project: String,
    #[serde(default)]
    benchmark: String,
    commit: String,
    text: String,
    #[serde(default)]
    author: String,
}

/// Adds a note.
pub async fn note(
    author: Author,
    State(site): State<Arc<Site>>,
    Json(sent): Json<Noted>,
) -> Answer {
    add_note(&site, author, sent).await?;
    Ok(axum::http::StatusCode::CREATED.into_response())
}

/// Adds a note that a form of a page sends, and shows the page again.
pub async fn note_form(
    author: Author,
    State(site): State<Arc<Site>>,
    axum::Form(sent): axum::Form<Noted>,
) -> Answer {
    let (project, benchmark) = (sent.project.clone(), sent.benchmark.clone());
    add_note(&site, author, sent).await?;
    let address = crate::pages::links::history(&project, &benchmark, "");
    Ok(axum::response::Redirect::to(&address).into_response())
}

async fn add_note(site: &Arc<Site>, Author(token): Author, sent: Noted) -> Result<(), Refusal> {
    if !token.may_write_to(&sent.project) {
        let why = "the token is not good for this project";
        return Err(Refusal::new(axum::http::StatusCode::FORBIDDEN, why));
    }
    let long = [&sent.project, &sent.benchmark, &sent.commit, &sent.text, &sent.author]
        .iter()
        .any(|text| text.len() > 4096);
    if sent.commit.len() < 4 || sent.text.trim().is_empty() || long {
        return Err(Refusal::wrong("a commit of four letters or more and a text are wanted"));
    }
    let clean = |text: &str| lwp_terminal::escape::printable(text);
    let author = if sent.author.is_empty() { token.name } else { sent.author };
    let note = Note {
        project: clean(&sent.project),
        benchmark: clean(&sent.benchmark),
        commit: clean(&sent.commit),
        text: clean(&sent.text),
        author: clean(&author),
    };
    site.store.note(&note).await.map_err(|error| {
        lwp_terminal::say!("lwp-fleet: {error}");
        Refusal::unavailable("the store does not answer")
    })?;
    site.renew();
    Ok(())
}

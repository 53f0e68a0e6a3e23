//! Questions, answered for programs.

use std::sync::Arc;
use std::time::Instant;

use arrow::ipc::writer::StreamWriter;
use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use lwp_query::compare::{Selector, compare};
use lwp_query::history::{Asked, history};
use lwp_query::steps::steps;
use lwp_query::{Filter, Format, Rows, json, render};
use lwp_store::Note;
use serde::Deserialize;

use crate::access::allow;
use crate::metrics::took;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::tokens::Scope;

type Answer = Result<Response, Refusal>;

/// The words of an address.
#[derive(Clone, Debug, Default)]
pub struct Words(Vec<(String, String)>);

impl Words {
    pub fn new(query: Option<String>) -> Self {
        let query = query.unwrap_or_default();
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
        return Ok(typed(ARROW, stream().map_err(|error| Refusal::failed(&error))?));
    }
    Ok(match wants(headers, "text/csv") {
        true => typed("text/csv; charset=utf-8", render(rows, Format::Csv)?.into_bytes()),
        false => typed("application/json", render(rows, Format::Json)?.into_bytes()),
    })
}

/// The recordings that a filter chooses, the latest first.
pub async fn recordings(
    State(site): State<Arc<Site>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    allow(&site, &headers, Scope::Read).await?;
    let words = Words::new(query);
    let (_place, session) = site.asking().await?;
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
pub async fn histories(
    State(site): State<Arc<Site>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    allow(&site, &headers, Scope::Read).await?;
    let words = Words::new(query);
    let (_place, session) = site.asking().await?;
    let function = Some(words.get("f")).filter(|name| !name.is_empty());
    let asked = Asked { event: words.event(), function, order: &[] };
    let all = history(&session, &words.filter()?, &asked).await?;
    Ok(Json(json::histories(&all)).into_response())
}

/// A comparison.
pub async fn comparison(
    State(site): State<Arc<Site>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    allow(&site, &headers, Scope::Read).await?;
    let words = Words::new(query);
    let (_place, session) = site.asking().await?;
    let (before, after) = (Selector::parse(words.get("a"))?, Selector::parse(words.get("b"))?);
    let filter = words.filter()?;
    let compared = compare(&session, (&before, &after), &filter, words.event()).await?;
    Ok(Json(json::comparison(&compared, (&before.text, &after.text))).into_response())
}

/// Steps.
pub async fn all_steps(
    State(site): State<Arc<Site>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    allow(&site, &headers, Scope::Read).await?;
    let words = Words::new(query);
    let (_place, session) = site.asking().await?;
    let found = steps(&session, &words.filter()?, words.event(), &[], 5).await?;
    Ok(Json(json::steps(&found)).into_response())
}

/// A question in SQL, which is the body.
pub async fn sql(State(site): State<Arc<Site>>, headers: HeaderMap, question: String) -> Answer {
    allow(&site, &headers, Scope::Read).await?;
    let (_place, session) = site.asking().await?;
    let begun = Instant::now();
    let answer = session.ask(&question).await;
    took(&site.metrics.question_micros, begun.elapsed());
    rows(&headers, &answer?)
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
    State(site): State<Arc<Site>>,
    headers: HeaderMap,
    Json(sent): Json<Noted>,
) -> Answer {
    add_note(&site, &headers, sent).await?;
    Ok(axum::http::StatusCode::CREATED.into_response())
}

/// Adds a note that a form of a page sends, and shows the page again.
pub async fn note_form(
    State(site): State<Arc<Site>>,
    headers: HeaderMap,
    axum::Form(sent): axum::Form<Noted>,
) -> Answer {
    let (project, benchmark) = (sent.project.clone(), sent.benchmark.clone());
    add_note(&site, &headers, sent).await?;
    let address = crate::pages::links::history(&project, &benchmark, "");
    Ok(axum::response::Redirect::to(&address).into_response())
}

async fn add_note(site: &Arc<Site>, headers: &HeaderMap, sent: Noted) -> Result<(), Refusal> {
    let token = allow(site, headers, Scope::Write).await?;
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
    site.renew().await;
    Ok(())
}

//! The sum of all recordings that a filter chooses, shown as one recording is: functions, call
//! tree, callers and callees, flame graph.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use lwp_page::{Material, Shelf, Subject};
use lwp_query::flame::sums;
use lwp_query::{Filter, Session};

use crate::access::allow;
use crate::refusal::Refusal;
use crate::site::Site;
use crate::tokens::Scope;

/// The word for no subject, and that for all recordings.
pub const NONE: &str = "none";
pub const ALL: &str = "all";

/// One subject, or two that are compared.
struct Sums(Vec<(String, Arc<Subject>)>);

impl Shelf for Sums {
    fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    fn subject(&self, number: usize) -> Option<Arc<Subject>> {
        self.0.get(number).map(|(_, subject)| Arc::clone(subject))
    }

    fn home(&self) -> Option<(String, String)> {
        Some(("fleet".to_owned(), "/".to_owned()))
    }
}

/// Shows a page of one subject, compared with another one or not.
pub async fn show(
    State(site): State<Arc<Site>>,
    Path((base, set, file)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    if file == "page.css" {
        return Ok(crate::pages::style());
    }
    if let Some(reply) = lwp_page::fixed(&file) {
        return Ok(reply.into_response());
    }
    let token = allow(&site, &headers, Scope::Read).await?;
    let mut all = Vec::new();
    {
        let (_place, session) = site.asking(&token).await?;
        for terms in [base, set].into_iter().filter(|terms| terms != NONE) {
            let subject = subject(&site, &session, &terms).await?;
            all.push((subject.of.name.clone(), subject));
        }
    }
    let shelf = Sums(all);
    let made = tokio::task::spawn_blocking(move || {
        lwp_page::answer(&shelf, &file, &query.unwrap_or_default())
    });
    let missing = || Refusal::new(StatusCode::NOT_FOUND, "there is no such page");
    let reply = made.await.map_err(|error| Refusal::failed(&error))?;
    Ok(reply.ok_or_else(missing)?.into_response())
}

async fn subject(site: &Site, session: &Session, terms: &str) -> Result<Arc<Subject>, Refusal> {
    let key = (session.snapshot().version(), terms.to_owned());
    if let Some(known) = site.subject(&key) {
        return Ok(known);
    }
    let words: Vec<&str> = terms.split_whitespace().filter(|word| *word != ALL).collect();
    let filter = Filter::parse(&words)?;
    let profile = sums(session, &filter).await?;
    let material = Material {
        name: if words.is_empty() { "all recordings".to_owned() } else { words.join(" ") },
        facts: facts(session, &filter).await?,
        profile,
        ..Material::default()
    };
    let made = tokio::task::spawn_blocking(move || Arc::new(Subject::new(material)));
    let subject = made.await.map_err(|error| Refusal::failed(&error))?;
    site.keep(key, Arc::clone(&subject));
    Ok(subject)
}

/// Names and values of the recordings that a filter chooses.
async fn facts(session: &Session, filter: &Filter) -> Result<Vec<(String, String)>, Refusal> {
    let columns = [
        "project",
        "benchmark",
        "commit",
        "branch",
        "host",
        "command",
        "cpu",
        "kernel",
        "tool_version",
    ];
    let some = columns.map(|column| {
        format!("count(distinct \"{column}\") as \"n_{column}\", max(\"{column}\") as \"{column}\"")
    });
    let sql = format!(
        "select count(*) as recordings, min(started) as \"from\", max(started) as \"to\", {} \
         from recordings where {}",
        some.join(", "),
        filter.sql()
    );
    let rows = session.ask(&sql).await?;
    let text = |name: &str| rows.texts(name).first().cloned().unwrap_or_default();
    let mut facts = vec![("recordings".to_owned(), text("recordings"))];
    for name in ["from", "to"] {
        facts.push((name.to_owned(), text(name)));
    }
    for name in columns {
        let value = match text(&format!("n_{name}")).as_str() {
            "0" => continue,
            "1" => text(name),
            many => format!("{many} different ones"),
        };
        facts.push((name.replace('_', " "), value));
    }
    Ok(facts)
}

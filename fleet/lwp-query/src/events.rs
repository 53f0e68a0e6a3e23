//! The events that recordings have, and the one that a question counts.

use lwp_store::COUNTS;

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::session::Session;

/// The event that is counted unless somebody asks for another one.
pub const DEFAULT: &str = "instructions";

/// The event to count: the one that is asked for; otherwise instructions, or the only one that the
/// recordings have which `filter` chooses.
///
/// # Errors
///
/// If the store cannot be read, no recording is chosen, or there are several other events.
pub async fn event(session: &Session, filter: &Filter, asked: Option<&str>) -> Result<String> {
    if let Some(event) = asked {
        return Ok(event.to_owned());
    }
    let known = known(session, filter).await?;
    match known.as_slice() {
        [only] => Ok(only.clone()),
        some if some.is_empty() || some.iter().any(|event| event == DEFAULT) => {
            Ok(DEFAULT.to_owned())
        }
        some => Err(Error::Question(format!(
            "no chosen recording has the event '{DEFAULT}': choose one of {}",
            some.join(", ")
        ))),
    }
}

/// The events of the recordings that a filter chooses, those of their roll-ups among them.
pub(crate) async fn known(session: &Session, filter: &Filter) -> Result<Vec<String>> {
    let mut known = Vec::new();
    if !filter.is_sampled() {
        let counts = COUNTS.map(|column| format!("count(\"{column}\") as \"{column}\"")).join(", ");
        let sql = format!("select {counts} from recordings where {}", filter.sql());
        let rows = session.ask(&sql).await?;
        let has = |column: &&str| rows.longs(column).first().copied().flatten().unwrap_or(0) > 0;
        known.extend(COUNTS.iter().filter(|column| has(column)).map(|it| it.replace('_', "-")));
        if !known.is_empty() {
            return Ok(known);
        }
    }
    let sql = format!(
        "select event from totals where {} union select event from rollups where {} order by 1",
        filter.sql(),
        filter.of_rollups()
    );
    known.extend(session.ask(&sql).await?.texts("event"));
    Ok(known)
}

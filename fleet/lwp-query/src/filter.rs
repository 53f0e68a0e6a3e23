//! Filters: `project=x benchmark=parse* commit=abc1234 since=7d label.runner=arm`.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::session::Session;
use crate::views::quoted;

/// A choice of recordings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    terms: Vec<String>,
    conditions: Vec<Condition>,
    sampled: bool,
}

/// A condition of SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    /// Of columns that every table of rows has.
    Row(String),
    /// Of columns that recordings and roll-ups have.
    Recording(String),
}

/// Recordings that a question names one by one, at most.
const FEW: usize = 1000;

/// Keys that are columns of every table.
const COLUMNS: [&str; 5] = ["project", "benchmark", "branch", "host", "commit"];
/// Keys that only recordings have.
const OF_RECORDINGS: [&str; 5] = ["command", "cpu", "source", "kernel", "tool_version"];

impl Filter {
    /// The filter that some terms make; all of them must hold. In a value, `*` stands for any
    /// letters. A value with commas means any of its parts.
    ///
    /// # Errors
    ///
    /// If a term is none.
    pub fn parse<T: AsRef<str>>(terms: &[T]) -> Result<Self> {
        let mut filter = Self::default();
        for term in terms {
            filter.term(term.as_ref())?;
        }
        Ok(filter)
    }

    /// This filter and some conditions of SQL.
    pub fn and(&self, condition: &str) -> Self {
        let mut more = self.clone();
        more.conditions.push(Condition::Row(condition.to_owned()));
        more
    }

    /// This filter, for recordings alone that meet a condition of SQL.
    pub(crate) fn and_recordings(&self, condition: &str) -> Self {
        let mut more = self.clone();
        more.conditions.push(Condition::Recording(condition.to_owned()));
        more
    }

    /// This choice, with the recordings themselves in place of conditions that only the table of
    /// recordings can answer, if they are few: their keys, names and days tell which files matter.
    /// For tables of rows that belong to recordings.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    pub(crate) async fn narrowed(&self, session: &Session) -> Result<Self> {
        if self.conditions.iter().all(|condition| matches!(condition, Condition::Row(_))) {
            return Ok(self.clone());
        }
        let sql = format!(
            "select recording, project, benchmark, cast(\"date\" as varchar) as day \
             from recordings where {} limit {}",
            self.of_rollups(),
            FEW + 1
        );
        let rows = session.ask(&sql).await?;
        if rows.len() > FEW {
            return Ok(self.clone());
        }
        let keys: Vec<String> =
            rows.longs("recording").into_iter().flatten().map(|key| key.to_string()).collect();
        let mut narrow = self.clone();
        narrow.conditions.retain(|condition| matches!(condition, Condition::Row(_)));
        let mut add = |column: &str, list: Vec<String>| {
            let sql = if list.is_empty() {
                "false".to_owned()
            } else {
                format!("{column} in ({})", list.join(", "))
            };
            narrow.conditions.push(Condition::Row(sql));
        };
        add("recording", keys);
        for name in ["project", "benchmark"] {
            let all: BTreeSet<String> = rows.texts(name).into_iter().collect();
            // What has no name is null.
            if !all.contains("") {
                add(name, all.iter().map(|text| quoted(text)).collect());
            }
        }
        let days: BTreeSet<String> = rows.texts("day").into_iter().collect();
        add("\"date\"", days.iter().map(|day| format!("date {}", quoted(day))).collect());
        Ok(narrow)
    }

    fn term(&mut self, term: &str) -> Result<()> {
        let wrong = || {
            Error::Question(format!(
                "'{term}' is no filter: KEY=VALUE is wanted, where KEY is {}",
                known()
            ))
        };
        let (key, value) = term.split_once('=').ok_or_else(wrong)?;
        use Condition::{Recording, Row};
        let condition = match key {
            "mode" => {
                self.sampled = match value {
                    "exact" => false,
                    "sampled" => true,
                    _ => {
                        return Err(Error::Question(format!(
                            "mode is exact or sampled, not '{value}'"
                        )));
                    }
                };
                Recording(format!("mode = {}", quoted(value)))
            }
            "commit" => Row(any(value, |value| like("\"commit\"", &format!("{value}*")))),
            "id" => Recording(any(value, |value| like("id", &format!("{value}*")))),
            "since" => Row(format!("started >= {}", timestamp(value)?)),
            "until" => Row(format!("started < {}", timestamp(value)?)),
            "deterministic" | "complete" if matches!(value, "true" | "false") => {
                Recording(format!("{key} = {value}"))
            }
            key if COLUMNS.contains(&key) => Row(any(value, |value| like(key, value))),
            key if OF_RECORDINGS.contains(&key) => Recording(any(value, |value| like(key, value))),
            key => match key.strip_prefix("label.") {
                Some(label) if !label.is_empty() => {
                    let column = format!("labels[{}]", quoted(label));
                    Recording(any(value, |value| like(&column, value)))
                }
                _ => return Err(wrong()),
            },
        };
        self.terms.push(term.to_owned());
        self.conditions.push(condition);
        Ok(())
    }

    /// The condition, for `where` of any table of rows that belong to recordings.
    pub fn sql(&self) -> String {
        self.all(of_recordings)
    }

    /// The condition for the table of roll-ups, whose recordings no longer exist.
    pub fn of_rollups(&self) -> String {
        self.all(str::to_owned)
    }

    fn all(&self, of_recording: impl Fn(&str) -> String) -> String {
        let one = |condition: &Condition| match condition {
            Condition::Row(sql) => sql.clone(),
            Condition::Recording(sql) => of_recording(sql),
        };
        match self.conditions.is_empty() {
            true => "true".to_owned(),
            false => self.conditions.iter().map(one).collect::<Vec<_>>().join(" and "),
        }
    }

    /// Returns true if sampled recordings are asked for, and not exact ones.
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// The terms, as they were given.
    pub fn text(&self) -> String {
        self.terms.join(" ")
    }
}

fn known() -> String {
    let keys = COLUMNS.iter().chain(&OF_RECORDINGS).copied();
    let more = ["id", "mode", "since", "until", "deterministic", "complete", "label.NAME"];
    keys.chain(more).collect::<Vec<_>>().join(", ")
}

fn of_recordings(condition: &str) -> String {
    format!("recording in (select recording from recordings where {condition})")
}

fn any(value: &str, one: impl Fn(&str) -> String) -> String {
    let all: Vec<String> = value.split(',').map(one).collect();
    match all.as_slice() {
        [only] => only.clone(),
        _ => format!("({})", all.join(" or ")),
    }
}

/// The condition that a column matches a pattern.
pub fn like(column: &str, pattern: &str) -> String {
    if pattern == "*" {
        return "true".to_owned();
    }
    if !pattern.contains('*') {
        return format!("{column} = {}", quoted(pattern));
    }
    let escaped = pattern.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("{column} like {}", quoted(&escaped.replace('*', "%")))
}

/// Returns true if a text matches a pattern, in which `*` stands for any letters.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.into_iter().any(|at| matches(rest, &text[at..]))
}

/// Returns the second since 1970 that a text means: 7d or 12h ago, 2026-11-23 as it begins in UTC,
/// or 2026-11-23T12:00:00Z.
///
/// # Errors
///
/// If it means none.
pub fn moment(text: &str) -> Result<i64> {
    let wrong = || Error::Question(format!("'{text}' is no time: 7d, 12h or 2026-11-23 is wanted"));
    let hours = match (text.strip_suffix('d'), text.strip_suffix('h')) {
        (Some(days), _) => days.parse::<i64>().ok().and_then(|days| days.checked_mul(24)),
        (_, Some(hours)) => hours.parse::<i64>().ok(),
        _ => None,
    };
    let at = match hours {
        Some(hours) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let back = hours.checked_mul(3600).filter(|back| *back >= 0).ok_or_else(wrong)?;
            jiff::Timestamp::from_second(i64::try_from(now).unwrap_or(0).saturating_sub(back))
        }
        None => match text.parse::<jiff::civil::Date>() {
            Ok(date) => date.to_zoned(jiff::tz::TimeZone::UTC).map(|at| at.timestamp()),
            Err(_) => text.parse::<jiff::Timestamp>(),
        },
    };
    Ok(at.map_err(|_| wrong())?.as_second())
}

/// A moment, in SQL.
fn timestamp(text: &str) -> Result<String> {
    let at = jiff::Timestamp::from_second(moment(text)?);
    let at = at.map_err(|error| Error::Question(error.to_string()))?;
    Ok(format!("timestamp {}", quoted(&at.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(terms: &[&str]) -> String {
        Filter::parse(terms).map(|filter| filter.sql()).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn terms_become_conditions() {
        assert_eq!(sql(&[]), "true");
        assert_eq!(
            sql(&["project=a", "benchmark=par_se*,x"]),
            "project = 'a' and (benchmark like 'par\\_se%' or benchmark = 'x')"
        );
        assert_eq!(sql(&["commit=ab"]), "\"commit\" like 'ab%'");
        assert_eq!(sql(&["since=2026-11-23"]), "started >= timestamp '2026-11-23T00:00:00Z'");
        assert_eq!(
            sql(&["label.a'b=c"]),
            "recording in (select recording from recordings where labels['a''b'] = 'c')"
        );
    }

    #[test]
    fn quotes_do_not_end_the_text() {
        assert_eq!(sql(&["host=a' or 1=1 --"]), "host = 'a'' or 1=1 --'");
    }

    #[test]
    fn what_is_no_filter_is_refused() {
        for wrong in ["x", "x=1", "label.=1", "since=yesterday", "mode=both", "since=-1d"] {
            assert!(Filter::parse(&[wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stars_stand_for_any_letters() {
        for (pattern, text, is) in [
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("*b*", "abc", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} {text}");
        }
    }
}

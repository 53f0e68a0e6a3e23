//! Totals: those of recordings, and those that roll-ups keep of recordings that have expired.

use crate::filter::Filter;
use crate::measure::Measure;

/// The question for the totals that a filter chooses, a row for each recording or roll-up:
/// `project`, `benchmark`, `commit`, `host`,
/// `deterministic`, `started`; `point`, the commit or what stands for it; `runs`; `v`, the least
/// total of a run; `whole`, that of
/// all runs; `every`, the interval between samples.
pub(crate) fn totals(measure: &Measure, filter: &Filter) -> String {
    const COLUMNS: &str = "project, benchmark, \"commit\", host, deterministic, started, \
                           coalesce(\"commit\", id) as point";
    let (value, condition, chosen) = (measure.value(), measure.condition(), filter.sql());
    let recordings = match measure.is_exact() {
        true => format!(
            "select {COLUMNS}, 1 as runs, {value} as v, {value} as whole, \
             cast(null as bigint) as every from recordings where {condition} and {chosen}"
        ),
        false => format!(
            "select {COLUMNS}, 1 as runs, v, v as whole, every from \
             (select * from recordings where {chosen}) picked \
             join (select recording as of, {value} as v, \"interval\" as every from totals \
             where {condition} and {chosen}) counted on picked.recording = counted.of"
        ),
    };
    format!(
        "{recordings} union all select {COLUMNS}, runs, least as v, \"value\" as whole, \
         \"interval\" as every from rollups where {} and {}",
        measure.of_rollups(),
        filter.of_rollups()
    )
}

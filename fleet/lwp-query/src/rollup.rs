//! Roll-ups: the totals of recordings that expire, added up.

use lwp_store::{Kind, Placed, Store};

use crate::compact::{FULL, Target, put_all};
use crate::error::Result;
use crate::session::Session;
use crate::views::quoted;

/// The columns that filters tell recordings apart by. Recordings that agree in all of them share a
/// roll-up, day by day.
const SHARED: &str = "project, benchmark, branch, \"commit\", host, command, mode, source, \
                      tool_version, kernel, cpu, deterministic, complete, label_keys, \
                      label_values, parent_commit, unnamed";

/// Puts roll-ups of the recordings that meet a condition, by the day that their files belong to.
/// Remembers the files in `placed`.
pub(crate) async fn roll_up(
    store: &Store,
    session: &Session,
    condition: &str,
    placed: &mut Vec<Placed>,
) -> Result<()> {
    let days = format!(
        "select distinct cast(\"date\" as varchar) as day from recordings where {condition}"
    );
    for day in session.ask(&days).await?.texts("day") {
        let frame = session.frame(&question(condition, &day)).await?;
        let target = Target { kind: Kind::Rollup, date: &day, level: 0, full: FULL };
        put_all(store, target, frame, placed).await?;
    }
    Ok(())
}

/// The question for the roll-ups of a day.
fn question(condition: &str, day: &str) -> String {
    // Sums saturate, as counts do.
    let most = i64::MAX;
    let of_day = format!("\"date\" = date {}", quoted(day));
    format!(
        "with run as (select *, map_keys(labels) as label_keys, \
         map_values(labels) as label_values, \
         case when \"commit\" is null then id end as unnamed \
         from recordings where {of_day} and {condition}), \
         counted as (select recording as of, event, \"interval\", \"value\" \
         from recording_values where {of_day}) \
         select {SHARED}, unnamed as id, map(label_keys, label_values) as labels, event, \
         \"interval\", min(recording) as recording, min(started) as started, \
         count(*) as runs, min(\"value\") as least, max(\"value\") as greatest, \
         cast(least(sum(cast(\"value\" as decimal(38, 0))), {most}) as bigint) as \"value\", \
         array_agg(recording) as keys \
         from run join counted on run.recording = counted.of \
         group by {SHARED}, event, \"interval\" \
         order by project, benchmark, started, recording, event"
    )
}

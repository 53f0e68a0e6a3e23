//! The events that can be counted, and the syntax in which they are asked for.

use lwp_profile::Modelled;
use lwp_vcpu::Counts;

use super::perf_names;
use crate::args::usage_error;
use crate::failure::Failure;

/// Something that `lwp stat` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Retired instructions.
    Instructions,
    /// Retired branches of every kind.
    Branches,
    /// Conditional branches.
    Conditional,
    /// Taken branches of every kind.
    Taken,
    /// Conditional branches that were taken.
    ConditionalTaken,
    /// Calls.
    Calls,
    /// Returns.
    Returns,
    /// Indirect jumps and calls.
    Indirect,
    /// A value that a model adds: one of [`Modelled::values`], by its index.
    Modelled(usize),
    /// CPU time, user and system.
    TaskClock,
    /// Wall-clock time.
    Duration,
    /// User CPU time.
    UserTime,
    /// System CPU time.
    SystemTime,
}

/// One row of the event table.
#[derive(Debug)]
pub struct Row {
    /// The event.
    pub event: Event,
    /// Its name here.
    pub name: &'static str,
    /// Other names that mean the same.
    pub aliases: &'static [&'static str],
    /// The event's meaning, in one line.
    pub summary: &'static str,
}

/// Every event: number, name, other names, meaning.
#[rustfmt::skip] // A table: one event a line.
pub const EVENTS: &[Row] = &[
    row(Event::Instructions,     "instructions",         &[],                      "retired instructions; a REP string instruction counts once"),
    row(Event::Branches,         "branches",             &["branch-instructions"], "retired branches: jumps, calls and returns; not system calls"),
    row(Event::Taken,            "branches-taken",       &["taken-branches"],      "branches that went to their target"),
    row(Event::Conditional,      "conditional-branches", &[],                      "conditional branches, LOOP and JRCXZ included"),
    row(Event::ConditionalTaken, "conditional-taken",    &[],                      "conditional branches that were taken"),
    row(Event::Calls,            "calls",                &[],                      "near calls, direct and indirect"),
    row(Event::Returns,          "returns",              &[],                      "near returns"),
    row(Event::Indirect,         "indirect-branches",    &[],                      "indirect jumps and calls; returns are not included"),
    row(Event::Modelled(0),      Modelled::NAMES[0],     &[],                      "loads of what the modelled first cache did not have"),
    row(Event::Modelled(1),      Modelled::NAMES[1],     &[],                      "stores to what the modelled first cache did not have"),
    row(Event::Modelled(2),      Modelled::NAMES[2],     &[],                      "loads of what no modelled cache had"),
    row(Event::Modelled(3),      Modelled::NAMES[3],     &[],                      "stores to what no modelled cache had"),
    row(Event::Modelled(4),      Modelled::NAMES[4],     &[],                      "conditional branches that went where they go less often"),
    row(Event::Modelled(5),      Modelled::NAMES[5],     &["estimated-cycles"],   "instructions, weighted with the misses and mispredictions"),
    row(Event::TaskClock,        "task-clock",           &[],                      "CPU time of the program, user and system"),
    row(Event::Duration,         "duration_time",        &[],                      "wall-clock time of the run"),
    row(Event::UserTime,         "user_time",            &[],                      "CPU time in user mode"),
    row(Event::SystemTime,       "system_time",          &[],                      "CPU time in the kernel"),
];

const fn row(
    event: Event,
    name: &'static str,
    aliases: &'static [&'static str],
    summary: &'static str,
) -> Row {
    Row { event, name, aliases, summary }
}

/// Events that are counted without `-e`.
pub const DEFAULT: &str = "task-clock,instructions,branches,branches-taken,conditional-branches,\
                           conditional-taken,calls,returns,indirect-branches";

/// The counts among [`DEFAULT`].
pub const DEFAULT_COUNTS: &str = "instructions,branches,branches-taken,conditional-branches,conditional-taken,\
                                  calls,returns,indirect-branches";

/// Returns the events that are counted if a model is requested and no `-e` is given.
pub fn with_model(list: &str) -> String {
    format!("{list},{}", Modelled::NAMES.join(","))
}

/// Counts, and a model's values beside them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// The counts.
    pub counts: Counts,
    /// The model's values, if they were requested.
    pub modelled: Option<Modelled>,
}

impl Event {
    /// The event's count, if it is counted by the virtual CPU rather than by the clock, or
    /// modelled.
    pub fn count(self, measured: &Measured) -> Option<u64> {
        let counts = &measured.counts;
        match self {
            Self::Modelled(place) => {
                let values = measured.modelled?.values(counts.instructions);
                values.get(place).copied()
            }
            Self::Instructions => Some(counts.instructions),
            Self::Branches => Some(counts.branches),
            Self::Conditional => Some(counts.conditional),
            Self::Taken => Some(counts.taken()),
            Self::ConditionalTaken => Some(counts.conditional_taken),
            Self::Calls => Some(counts.calls),
            Self::Returns => Some(counts.returns),
            Self::Indirect => Some(counts.indirect),
            Self::TaskClock | Self::Duration | Self::UserTime | Self::SystemTime => None,
        }
    }

    /// Returns whether this is a time, not a count.
    pub fn is_time(self) -> bool {
        matches!(self, Self::TaskClock | Self::Duration | Self::UserTime | Self::SystemTime)
    }

    /// Returns whether a model supplies it.
    pub fn is_modelled(self) -> bool {
        matches!(self, Self::Modelled(_))
    }

    /// The event called `name`.
    fn named(name: &str) -> Option<Self> {
        let row = EVENTS.iter().find(|row| row.name == name || row.aliases.contains(&name));
        row.map(|row| row.event)
    }
}

/// One event as the user asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The user's own words, modifiers included.
    pub label: String,
    /// The event measured for it, or the reason why none can be.
    pub source: Result<Event, String>,
}

/// Parses the lists of all `-e` options, or the default set if there are none.
pub fn parse(lists: &[String]) -> Result<Vec<Requested>, Failure> {
    if lists.is_empty() {
        return parse_list(DEFAULT);
    }
    let mut requested = Vec::new();
    for list in lists {
        requested.extend(parse_list(list)?);
    }
    Ok(requested)
}

/// Parses one comma list. Groups in braces are read as their members: every event is counted all
/// the time here, so a group has no meaning of its own.
fn parse_list(list: &str) -> Result<Vec<Requested>, Failure> {
    let mut requested = Vec::new();
    for item in split(list)? {
        match item.strip_prefix('{') {
            Some(group) => {
                let (members, modifiers) = group.split_once('}').unwrap_or((group, ""));
                for member in members.split(',') {
                    requested.push(parse_event(&format!("{}{modifiers}", member.trim()))?);
                }
            }
            None => requested.push(parse_event(item)?),
        }
    }
    Ok(requested)
}

/// Splits at the commas that are neither in braces nor between the slashes of `pmu/.../`.
fn split(list: &str) -> Result<Vec<&str>, Failure> {
    let mut items = Vec::new();
    let (mut start, mut in_braces, mut in_slashes) = (0, false, false);
    for (at, character) in list.char_indices() {
        match character {
            '{' => in_braces = true,
            '}' => in_braces = false,
            '/' => in_slashes = !in_slashes,
            ',' if !in_braces && !in_slashes => {
                items.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if in_braces {
        return Err(usage_error(format!("no closing brace in event list '{list}'"), ""));
    }
    items.push(list[start..].trim());
    Ok(items)
}

/// Parses one event with its modifiers.
fn parse_event(label: &str) -> Result<Requested, Failure> {
    let (name, modifiers) = perf_names::split_modifiers(label);
    if let Some((event, modifier)) = name.split_once(':')
        && Event::named(event).is_some()
    {
        let cause = format!("unknown modifier '{modifier}' of event '{event}'");
        return Err(usage_error(cause, "perf's modifiers are understood, such as ':u'"));
    }
    let source = match Event::named(name) {
        Some(event) => measurable(event, modifiers),
        None => match perf_names::why_not(name) {
            Some(reason) => Err(reason.to_owned()),
            None => return Err(unknown(label, name)),
        },
    };
    Ok(Requested { label: label.to_owned(), source })
}

/// Applies perf's modifiers. Counts are of user mode and exact, so `u` and the precision levels
/// change nothing, and kernel, hypervisor and guest modes cannot be had.
fn measurable(event: Event, modifiers: &str) -> Result<Event, String> {
    for modifier in modifiers.chars() {
        let mode = match modifier {
            'k' => "kernel mode",
            'h' => "hypervisor mode",
            'G' => "guest mode",
            _ => continue,
        };
        return Err(format!("the virtual CPU executes user mode only, not {mode}"));
    }
    Ok(event)
}

/// The error for a name that neither lwp nor perf knows.
fn unknown(label: &str, name: &str) -> Failure {
    let cause = format!("unknown event '{label}'");
    let near = suggestions(name);
    if near.is_empty() {
        return usage_error(cause, "`lwp list` shows the events");
    }
    let near: Vec<String> = near.iter().map(|name| format!("'{name}'")).collect();
    let near = near.join(" or ");
    usage_error(cause, format!("did you mean {near}? `lwp list` shows all events"))
}

/// The names most like `name`, best first, at most three.
fn suggestions(name: &str) -> Vec<&'static str> {
    let names = EVENTS.iter().flat_map(|row| std::iter::once(row.name).chain(row.aliases.to_vec()));
    let mut near: Vec<(usize, &str)> = Vec::new();
    for known in names {
        let distance = edit_distance(name, known);
        let related = name.len() >= 4 && (known.contains(name) || name.contains(known));
        if distance <= 1 + known.len() / 5 || related {
            near.push((distance, known));
        }
    }
    near.sort();
    near.into_iter().take(3).map(|(_, known)| known).collect()
}

/// The number of characters to insert, delete or replace to turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for (row, left) in a.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, right) in b.iter().enumerate() {
            let replaced = previous[column] + usize::from(left != *right);
            current.push(replaced.min(previous[column + 1] + 1).min(current[column] + 1));
        }
        previous = current;
    }
    previous[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(list: &str) -> Vec<(String, Option<Event>)> {
        let requested = parse(&[list.to_owned()]).unwrap();
        requested.into_iter().map(|one| (one.label, one.source.ok())).collect()
    }

    fn reason(event: &str) -> String {
        parse(&[event.to_owned()]).unwrap()[0].source.clone().unwrap_err()
    }

    fn refusal(list: &str) -> String {
        format!("{:?}", parse(&[list.to_owned()]).unwrap_err())
    }

    #[test]
    fn names_aliases_and_modifiers() {
        assert_eq!(
            parsed("instructions:u, branch-instructions,task-clock,branches:upp"),
            [
                ("instructions:u".to_owned(), Some(Event::Instructions)),
                ("branch-instructions".to_owned(), Some(Event::Branches)),
                ("task-clock".to_owned(), Some(Event::TaskClock)),
                ("branches:upp".to_owned(), Some(Event::Branches)),
            ]
        );
    }

    /// Promise: L4
    #[test]
    fn groups_and_pmu_syntax() {
        assert_eq!(
            parsed("{instructions,cycles}:u,cpu/branch-instructions,name=x/u,calls"),
            [
                ("instructions:u".to_owned(), Some(Event::Instructions)),
                ("cycles:u".to_owned(), None),
                ("cpu/branch-instructions,name=x/u".to_owned(), None),
                ("calls".to_owned(), Some(Event::Calls)),
            ]
        );
        assert_eq!(parsed("cpu/instructions/u")[0].1, Some(Event::Instructions));
        assert!(refusal("{instructions,calls").contains("no closing brace"));
    }

    #[test]
    fn what_cannot_be_measured_has_a_reason() {
        assert!(reason("instructions:k").contains("kernel mode"));
        assert!(reason("branches:uk").contains("kernel mode"));
        assert!(reason("cycles").contains("cycle"));
        assert!(reason("cycles:u").contains("cycle"));
        assert!(reason("L1-dcache-load-misses").contains("cache"));
        assert!(reason("sched:sched_switch").contains("tracepoint"));
        assert!(reason("r00c0").contains("raw"));
    }

    #[test]
    fn unknown_names_are_errors_with_suggestions() {
        assert!(refusal("instuctions").contains("did you mean 'instructions'?"));
        assert!(refusal("branch").contains("'branches'"));
        assert!(refusal("task_clock").contains("'task-clock'"));
        assert!(refusal("frobnications").contains("`lwp list` shows the events"));
        assert!(refusal("calls:x").contains("unknown modifier 'x' of event 'calls'"));
        assert!(refusal("instructions,,calls").contains("unknown event ''"));
    }

    #[test]
    fn default_set_is_measurable() {
        for requested in parse(&[]).unwrap() {
            assert!(requested.source.is_ok(), "{requested:?}");
        }
    }

    #[test]
    fn every_count_has_its_own_field() {
        let counts = Counts {
            instructions: 100,
            branches: 30,
            conditional: 20,
            conditional_taken: 12,
            calls: 4,
            returns: 3,
            indirect: 2,
        };
        let measured = Measured { counts, modelled: None };
        let of = |event: Event| event.count(&measured);
        assert_eq!(of(Event::Modelled(0)), None);
        assert_eq!(of(Event::Instructions), Some(100));
        assert_eq!(of(Event::Branches), Some(30));
        assert_eq!(of(Event::Taken), Some(22));
        assert_eq!(of(Event::Conditional), Some(20));
        assert_eq!(of(Event::ConditionalTaken), Some(12));
        assert_eq!(of(Event::Calls), Some(4));
        assert_eq!(of(Event::Returns), Some(3));
        assert_eq!(of(Event::Indirect), Some(2));
        assert!(Event::TaskClock.is_time() && !Event::Calls.is_time());
    }

    #[test]
    fn edit_distances() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("calls", "calls"), 0);
    }
}

//! The names that perf knows and the virtual CPU has no number for.
//!
//! They are recognised so that a script written for perf gets `<not supported>` and a reason, as it
//! would from a machine without the counter, and never a zero. Names: perf-list(1) and
//! `tools/perf/util/parse-events.l` of Linux 6.1.
//!
//! Promise: I1

const NO_CYCLES: &str = "the virtual CPU has no cycle counter; translated code takes other cycles";
const NO_CACHES: &str = "the caches are not observed; --model counts misses of modelled ones";
const NO_PREDICTOR: &str =
    "the branch predictor is not observed; --model counts a modelled one's mispredictions";
const NO_PIPELINE: &str = "the pipeline is not observed";
const NO_FAULTS: &str = "page faults of the program and of its translation cannot be told apart";
const NO_SCHEDULER: &str = "the scheduler is not observed";
const NO_KERNEL: &str = "kernel events are not observed";
const NO_TRACEPOINT: &str = "tracepoints are kernel events; use perf or strace";
const NO_RAW: &str = "raw events belong to a hardware counter unit";
const NO_PMU: &str = "only instructions and branches of the cpu unit are counted";
const NO_PROBE: &str = "breakpoints and probes are not counted";

/// Names and the reason why there is no number for them.
#[rustfmt::skip] // A table: one reason a line.
const KNOWN: &[(&str, &[&str])] = &[
    (NO_CYCLES,    &["cycles", "cpu-cycles", "ref-cycles", "bus-cycles", "slots"]),
    (NO_CACHES,    &["cache-references", "cache-misses", "mem-loads", "mem-stores", "mem-loads-aux"]),
    (NO_PREDICTOR, &["branch-misses"]),
    (NO_PIPELINE,  &["stalled-cycles-frontend", "idle-cycles-frontend", "stalled-cycles-backend", "idle-cycles-backend"]),
    (NO_FAULTS,    &["page-faults", "faults", "minor-faults", "major-faults"]),
    (NO_SCHEDULER, &["context-switches", "cs", "cpu-migrations", "migrations", "cgroup-switches", "cpu-clock"]),
    (NO_KERNEL,    &["alignment-faults", "emulation-faults", "dummy", "bpf-output"]),
];

/// Cache names of perf's `CACHE-OPERATION-RESULT` events.
const CACHES: &[&str] =
    &["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "bpu", "node", "L2"];

/// The reason why an event that perf knows is not counted, or `None` if perf would not know it
/// either.
pub fn why_not(name: &str) -> Option<&'static str> {
    let row = KNOWN.iter().find(|(_, names)| names.contains(&name));
    if let Some((reason, _)) = row {
        return Some(reason);
    }
    if is_cache_event(name) {
        return Some(NO_CACHES);
    }
    if name.starts_with("topdown-") {
        return Some(NO_PIPELINE);
    }
    if is_raw(name) {
        return Some(NO_RAW);
    }
    if name.starts_with("mem:") || name.starts_with("probe:") || name.starts_with("sdt_") {
        return Some(NO_PROBE);
    }
    if name.contains('/') {
        return Some(NO_PMU);
    }
    is_tracepoint(name).then_some(NO_TRACEPOINT)
}

/// Splits perf's modifiers off: `instructions:u`, `cpu/instructions/u`.
///
/// What follows a colon is a modifier only if all its letters are; otherwise the whole is the name
/// of a tracepoint.
pub fn split_modifiers(label: &str) -> (&str, &str) {
    if let Some(inner) = label.strip_prefix("cpu/")
        && let Some((name, modifiers)) = inner.split_once('/')
        && !name.contains([',', '='])
    {
        return (name, modifiers.trim_start_matches(':'));
    }
    match label.rsplit_once(':') {
        Some((name, modifiers)) if is_modifier(modifiers) => (name, modifiers),
        _ => (label, ""),
    }
}

/// Returns whether all letters of `text` are modifiers of perf: modes, precision, scheduling.
fn is_modifier(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| "ukhpPGHIDSWeb".contains(letter))
}

/// `L1-dcache-loads`, `LLC-store-misses`, `dTLB-prefetches` …
fn is_cache_event(name: &str) -> bool {
    let rest = CACHES.iter().find_map(|cache| name.strip_prefix(cache)?.strip_prefix('-'));
    rest.is_some_and(|rest| {
        ["load", "store", "prefetch"].iter().any(|operation| rest.starts_with(operation))
    })
}

/// `r1c2`: the letter r and hexadecimal digits.
fn is_raw(name: &str) -> bool {
    let digits = name.strip_prefix('r').unwrap_or("");
    !digits.is_empty() && digits.chars().all(|digit| digit.is_ascii_hexdigit())
}

/// `subsystem:event`, stars allowed.
fn is_tracepoint(name: &str) -> bool {
    let word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_*-".contains(c))
    };
    name.split_once(':').is_some_and(|(subsystem, event)| word(subsystem) && word(event))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_names() {
        assert_eq!(why_not("cycles"), Some(NO_CYCLES));
        assert_eq!(why_not("LLC-store-misses"), Some(NO_CACHES));
        assert_eq!(why_not("branch-loads"), Some(NO_CACHES));
        assert_eq!(why_not("topdown-retiring"), Some(NO_PIPELINE));
        assert_eq!(why_not("r1A8"), Some(NO_RAW));
        assert_eq!(why_not("syscalls:sys_enter_*"), Some(NO_TRACEPOINT));
        assert_eq!(why_not("mem:0x1000:rw"), Some(NO_PROBE));
        assert_eq!(why_not("cpu/event=0xc0/"), Some(NO_PMU));
        assert_eq!(why_not("msr/tsc/"), Some(NO_PMU));
        assert_eq!(why_not("rabbits"), None);
        assert_eq!(why_not("branch"), None);
        assert_eq!(why_not("instructions:xyz!"), None);
    }

    #[test]
    fn modifiers_are_told_from_tracepoints() {
        assert_eq!(split_modifiers("branches:u"), ("branches", "u"));
        assert_eq!(split_modifiers("branches:ppp"), ("branches", "ppp"));
        assert_eq!(split_modifiers("sched:sched_switch"), ("sched:sched_switch", ""));
        assert_eq!(split_modifiers("cpu/instructions/uk"), ("instructions", "uk"));
        assert_eq!(split_modifiers("cpu/event=0xc0/u"), ("cpu/event=0xc0/u", ""));
        assert_eq!(split_modifiers("calls"), ("calls", ""));
    }
}

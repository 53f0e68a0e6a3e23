//! The files that callgrind leaves: one for each process and part, and messages for each process.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use lwp_export::callgrind::{Form, render_as};
use lwp_profile::{
    Event, Modelled, Profile, RecordedContexts, Recording, ThreadExecutions, Values,
};
use lwp_terminal::escape::printable;

use super::parts::{End, Part, Process};
use super::{Log, Options};
use crate::failure::{Failure, OWN_FAILURE};
use crate::profiles::{self, NameArgs};

/// `pattern` with `%p` replaced by the process, `%q{NAME}` by a variable, `%n` by 0 and `%%` by
/// `%`.
pub fn expanded(pattern: &str, pid: i32) -> Result<PathBuf, Failure> {
    let mut out = String::new();
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let variable = after.strip_prefix("q{").and_then(|after| after.split_once('}'));
        rest = match (after.chars().next(), variable) {
            (_, Some((name, rest))) => {
                out.push_str(&std::env::var(name).unwrap_or_default());
                rest
            }
            (Some('p'), _) => {
                let _ = write!(out, "{pid}");
                &after[1..]
            }
            (Some('n'), _) => {
                out.push('0');
                &after[1..]
            }
            (Some('%'), _) => {
                out.push('%');
                &after[1..]
            }
            _ => {
                return Err(Failure::new(
                    OWN_FAILURE,
                    format!("{}: % stands for nothing here", printable(pattern)),
                )
                .with_help("%p is the process, %q{NAME} a variable, %% a percent sign"));
            }
        };
    }
    out.push_str(rest);
    Ok(PathBuf::from(out))
}

/// A path with something behind its name.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Writes everything about a process; what it counted, by event.
pub fn write(
    options: &Options,
    recording: &Recording,
    process: &Process,
) -> Result<Values, Failure> {
    let main = expanded(&options.output, process.pid)?;
    let mut sum = Values::zero(Event::EXACT.len() + Modelled::NAMES.len());
    let mut combined = String::new();
    let last = process.parts.len();
    for part in &process.parts {
        let part_of = match part.number == last || options.combine {
            true => main.clone(),
            false => with_suffix(&main, &format!(".{}", part.number)),
        };
        if options.by_thread && !options.combine {
            let mut by_thread: BTreeMap<usize, Vec<_>> = BTreeMap::new();
            for (number, thread) in &part.threads {
                by_thread.entry(*number).or_default().push(thread.clone());
            }
            for (number, threads) in by_thread {
                let profile = profile_of(&main, recording, threads);
                sum.add(&profile.total());
                let text = dumped(options, process, part, Some(number), &profile);
                let path = with_suffix(&part_of, &format!("-{number:02}"));
                profiles::write(&path, text.as_bytes())?;
            }
            continue;
        }
        let threads = part.threads.iter().map(|(_, thread)| thread.clone()).collect();
        let profile = profile_of(&main, recording, threads);
        sum.add(&profile.total());
        let text = dumped(options, process, part, None, &profile);
        match options.combine {
            true if part.number > 1 => {
                // The header of the file is written once.
                let body = text.split_once("\npart:").map_or(&*text, |(_, body)| body);
                let _ = write!(combined, "\npart:{body}");
            }
            true => combined.push_str(&text),
            false => profiles::write(&part_of, text.as_bytes())?,
        }
    }
    if options.combine {
        profiles::write(&main, combined.as_bytes())?;
    } else if options.by_thread {
        // Callgrind leaves an empty file by the name that it was given.
        profiles::write(&main, b"")?;
    }
    Ok(sum)
}

/// Returns the profile of these threads, with names.
fn profile_of(path: &Path, all: &Recording, threads: Vec<ThreadExecutions>) -> Profile {
    // A thread that switched counting itself has no contexts. Its calls would be missing beside
    // those of threads that have them.
    let complete =
        threads.iter().all(|thread| thread.blocks.is_empty() || !thread.contexts.is_empty());
    let numbered = |thread: ThreadExecutions| {
        let contexts = if complete { thread.contexts } else { RecordedContexts::default() };
        (thread.serial, ThreadExecutions { contexts, ..thread })
    };
    let threads = threads.into_iter().map(numbered).collect();
    let recording = Recording { threads, ..all.clone() };
    profiles::resolve(path, &recording, &NameArgs::offline())
}

/// A profile as callgrind dumps it.
fn dumped(
    options: &Options,
    process: &Process,
    part: &Part,
    thread: Option<usize>,
    profile: &Profile,
) -> String {
    let mut header = format!(
        "creator: lwp-{}\npid: {}\ncmd:  {}\npart: {}\n",
        env!("CARGO_PKG_VERSION"),
        process.pid,
        one_line(&process.command),
        part.number
    );
    if let Some(thread) = thread {
        let _ = writeln!(header, "thread: {thread}");
    }
    header.push('\n');
    for missing in &options.missing {
        let _ = writeln!(header, "desc: Not counted: {missing}");
    }
    if options.models_caches() {
        let [first, last] = options.shapes;
        let (first, last) = (cache("D1", first), cache("LL", last));
        let _ = writeln!(header, "desc: {first}\ndesc: {last}");
    }
    if options.branches {
        header.push_str("desc: Bcm is modelled: branches that went where they go less often\n");
    }
    let trigger = match &part.end {
        End::Program => "Program termination".to_owned(),
        End::Request(label) if label.is_empty() => "Client Request".to_owned(),
        End::Request(label) => format!("Client Request: {}", one_line(label)),
    };
    let inclusive = match profile.has_contexts() {
        true => "measured for each call",
        false => "shared out by numbers of calls",
    };
    let _ = writeln!(
        header,
        "desc: Instructions are counted exactly; inclusive costs are {inclusive}\n\
         desc: Trigger: {trigger}\n"
    );
    render_as(
        profile,
        Form {
            addresses: options.addresses,
            lines: options.lines,
            numbers_for_names: options.numbers_for_names,
            events: events(options).iter().map(|(name, _)| *name).collect(),
            header: Some(header),
            totals: true,
        },
    )
}

/// The events that are written, with Valgrind's names for them.
fn events(options: &Options) -> Vec<(&'static str, &'static str)> {
    const CACHES: [(&str, &str); 4] = [
        ("modelled-load-misses", "D1mr"),
        ("modelled-store-misses", "D1mw"),
        ("modelled-llc-load-misses", "DLmr"),
        ("modelled-llc-store-misses", "DLmw"),
    ];
    const BRANCHES: [(&str, &str); 2] =
        [("conditional-branches", "Bc"), ("indirect-branches", "Bi")];
    // The order of a profile's events, which is that of the file.
    let mut events = vec![("instructions", "Ir")];
    events.extend(BRANCHES.iter().filter(|_| options.branches));
    events.extend(CACHES.iter().filter(|_| options.models_caches()));
    events.extend(options.branches.then_some(("modelled-mispredictions", "Bcm")));
    events
}

/// Describes a cache in callgrind's words.
fn cache(name: &str, [size, ways, line]: [u64; 3]) -> String {
    format!("{name} cache: {size} B, {line} B, {ways}-way associative, modelled")
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// What was asked for and is not done, a line each.
pub fn unmet(options: &Options) -> Vec<String> {
    let missing = options.missing.iter().map(|missing| format!("Not counted: {missing}"));
    let ignored = options.ignored.join(" ");
    let ignored = (!ignored.is_empty()).then(|| format!("Without effect here: {ignored}"));
    missing.chain(ignored).collect()
}

/// Returns callgrind's messages about a process.
pub fn messages(options: &Options, process: &Process, counted: &Values) -> String {
    let value = |name: &str| {
        let mut all = Event::EXACT.iter().chain(&Modelled::NAMES);
        all.position(|event| *event == name).map_or(0, |event| counted.get(event))
    };
    let events = events(options);
    let names: Vec<&str> = events.iter().map(|(_, short)| *short).collect();
    let values: Vec<String> = events.iter().map(|(name, _)| value(name).to_string()).collect();
    let instructions = lwp_report::number::grouped(value("instructions"));
    let mut lines = vec![
        format!(
            "Callgrind's part, played by lwp {}: exact counts on a virtual CPU",
            env!("CARGO_PKG_VERSION")
        ),
        format!("Command: {}", printable(&process.command)),
    ];
    if options.log != Log::Usual {
        lines.push(format!("Parent PID: {}", process.parent));
    }
    lines.push(String::new());
    lines.extend(unmet(options));
    lines.extend([
        format!("Events    : {}", names.join(" ")),
        format!("Collected : {}", values.join(" ")),
        String::new(),
        format!("I   refs:      {instructions}"),
    ]);
    if options.models_caches() {
        let sum = |names: [&str; 2]| lwp_report::number::grouped(value(names[0]) + value(names[1]));
        let first = sum(["modelled-load-misses", "modelled-store-misses"]);
        let last = sum(["modelled-llc-load-misses", "modelled-llc-store-misses"]);
        lines.push(format!("D1  misses:    {first} (modelled)"));
        lines.push(format!("LLd misses:    {last} (modelled)"));
    }
    let pid = process.pid;
    lines.iter().map(|line| format!("=={pid}== {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_have_places_for_processes() {
        let path = |pattern| expanded(pattern, 42).map(|path| path.display().to_string());
        assert_eq!(path("callgrind.out.%p").ok().as_deref(), Some("callgrind.out.42"));
        assert_eq!(path("a%%b.#%p").ok().as_deref(), Some("a%b.#42"));
        assert_eq!(path("x%q{NO_SUCH_VARIABLE}y").ok().as_deref(), Some("xy"));
        assert!(path("%z").is_err() && path("100%").is_err());
        assert_eq!(with_suffix(Path::new("a/b.out"), ".1-02"), Path::new("a/b.out.1-02"));
    }
}

//! Stacks of samples and of sleeping threads, and the bytes that they take.

use anyhow::{Context, Result};

use super::{Place, Recorded, Table, has, json, profiled, said};

/// The functions of `sleeps.c`, which sleep for several milliseconds.
const SLEEPERS: [&str; 4] = ["by_clock", "for_lock", "for_input", "in_poll"];

/// Time off the processor, with its stacks.
pub fn off_cpu(place: &Place, table: &mut Table) -> Result<()> {
    let recorded = place.record(&[], &[], &["./sleeps", "20"])?;
    let truth = said(&recorded.printed);
    let found = place.inclusive("off-cpu", &SLEEPERS)?;
    let parts = SLEEPERS.iter().filter_map(|name| {
        let slept = truth.get(*name)?;
        Some(found.get(*name).copied().unwrap_or(0.0) / slept)
    });
    let parts: Vec<f64> = parts.collect();
    let least = parts.iter().copied().fold(f64::MAX, f64::min);
    let most = parts.iter().copied().fold(0.0, f64::max);
    let stacks = recorded.number("asleep-with-stack") / recorded.number("asleep").max(1.0);
    table.add(
        "sleeps of more than 1 ms with their function, of what the program measures",
        format!("{:.1} to {:.1} %", 100.0 * least, 100.0 * most),
    );
    table.add("all sleep of its threads with stacks", format!("{:.1} %", 100.0 * stacks));
    Ok(())
}

/// Endless work for some seconds of other languages.
const SCRIPTS: [(&str, &str); 5] = [
    (
        "work.pl",
        "sub work { my %h; $h{$_ % 97} .= sprintf '%x', $_ for 1 .. 3000; join ',', map { $h{$_} } \
         sort keys %h } my $n = 0; $n += length work() for 1 .. 400; print \"$n\\n\";",
    ),
    (
        "work.js",
        "const work = n => JSON.parse(JSON.stringify([...Array(n).keys()].map(i => ({ i, s: \
         String(i) })))).reduce((t, o) => t + o.s.length, 0); let t = 0; for (let i = 0; i < 400; \
         i++) t += work(3000); console.log(t);",
    ),
    (
        "work.rb",
        "t = 0; 400.times { t += (1..3000).map { |i| i.to_s(16) }.sort.join.size }; puts t",
    ),
    (
        "work.php",
        "<?php $t = 0; for ($j = 0; $j < 400; $j++) { $a = array_map('dechex', range(1, 3000)); \
         sort($a); $t += strlen(implode($a)); } echo $t;",
    ),
    (
        "work.lua",
        "local t = 0 for j = 1, 400 do local a = {} for i = 1, 3000 do a[i] = \
         string.format('%x', i) end table.sort(a) t = t + #table.concat(a) end print(t)",
    ),
];

/// Complete stacks of programs that are installed.
pub fn complete(place: &Place, table: &mut Table) -> Result<()> {
    for (name, text) in SCRIPTS {
        std::fs::write(place.dir.join(name), text)?;
    }
    let source = |name: &str| profiled(name).display().to_string();
    let (words, timed, java) = (source("words.cpp"), source("timed.py"), source("Weights.java"));
    let pace = crate::workspace::root().join("crates/lwp-time/src/stops/pace.rs");
    let pace = pace.to_str().context("a path that is no text")?;
    let frames = "-XX:+PreserveFramePointer";
    let node = ["node", "--perf-basic-prof", "--interpreted-frames-native-stack", "work.js"];
    let rustc = ["rustc", "--edition=2024", "-O", "--crate-type=lib", pace];
    let programs: [&[&str]; 11] = [
        &["g++", "-O2", "-c", &words],
        &rustc,
        &["python3", &timed, "2", "c"],
        &["perl", "work.pl"],
        &["ruby", "work.rb"],
        &["php", "work.php"],
        &["lua", "work.lua"],
        &node,
        &["node", "work.js"],
        &["java", frames, &java],
        &["java", &java],
    ];
    for command in programs {
        let name = command[..command.len() - 1].iter().filter(|it| !it.starts_with('/'));
        let name = name.copied().collect::<Vec<_>>().join(" ");
        if has(command[0]) {
            table.add(format!("complete stacks, `{name}`"), stacks_of(place, command)?);
        } else {
            eprintln!("not installed: {name}");
        }
    }
    Ok(())
}

/// Complete stacks by default, and if whole stacks are asked for.
fn stacks_of(place: &Place, command: &[&str]) -> Result<String> {
    let default = place.record(&[], &["-F", "997"], command)?;
    let (samples, mechanism) = (default.number("samples"), default.fact("mechanism").to_owned());
    let whole = ["-F", "997", "--call-graph", "dwarf,65536"];
    let whole = complete_of(&place.record(&[], &whole, command)?);
    let part = complete_of(&default);
    Ok(format!("{part:.1} % of {samples:.0} by {mechanism}, {whole:.1} % as a whole"))
}

fn complete_of(recorded: &Recorded) -> f64 {
    let [complete, cut, lost] =
        ["complete-stacks", "cut-stacks", "lost-stacks"].map(|key| recorded.number(key));
    100.0 * complete / (complete + cut + lost).max(1.0)
}

/// Bytes of a recording by its samples, with the names of all functions: those are written once.
pub fn bytes(place: &Place, table: &mut Table) -> Result<()> {
    let words = profiled("words.cpp").display().to_string();
    let timed = profiled("timed.py").display().to_string();
    let programs: [(&[&str], &str); 3] = [
        (&["./timed", "20", "k"], "997"),
        (&["python3", &timed, "20", "c"], "997"),
        (&["g++", "-O2", "-c", &words], "9973"),
    ];
    for (command, rate) in
        programs.into_iter().filter(|(it, _)| it[0].starts_with("./") || has(it[0]))
    {
        let recorded = place.record(&[], &["-F", rate], command)?;
        let samples = recorded.number("samples");
        let lwp = place.lwp.to_str().context("a path that is no text")?;
        let report = json(place, &[lwp, "report", "-i", "time.data", "--json"])?;
        let functions = report["rows"].as_array().map_or(0, Vec::len);
        table.add(
            format!("bytes a sample, `{}`", command[0]),
            format!(
                "{:.0}: {} bytes, {samples:.0} samples, names of {functions} functions",
                recorded.bytes as f64 / samples.max(1.0),
                recorded.bytes,
            ),
        );
    }
    Ok(())
}

//! Code that a program generates while it runs: counted, named by what the program says of it, and
//! annotated from the bytes that were executed.
//!
//! Promise: R31

use crate::shared::recorded;
use crate::shared::stacks;
use crate::shared::tools;

use serde_json::Value;

use recorded::{LWP, compile, lwp, run};
use stacks::{Stack, share, stacks};

#[test]
fn generated_code_is_named_and_annotated_when_the_program_is_gone() {
    let dir = tools::fresh("generated", "names");
    if !compile(&dir, "generator.c", &["-O1"]) {
        return;
    }
    assert!(run(&dir, &[LWP, "record", "-q", "--", "./program"]).status.success());
    // Nothing of it is needed any more.
    for place in [dir.as_path(), std::path::Path::new("/tmp")] {
        for file in std::fs::read_dir(place).expect("directory").flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            // Others have pipes there, which nobody may ever write to.
            let is_file = file.file_type().is_ok_and(|it| it.is_file());
            let ours = || {
                std::fs::read_to_string(file.path()).is_ok_and(|text| text.contains(" first loop"))
            };
            let map = name.starts_with("perf-") && is_file;
            if name.starts_with("jit-") && place == dir || map && ours() {
                std::fs::remove_file(file.path()).expect("file");
            }
        }
    }
    std::fs::remove_file(dir.join("program")).expect("program");
    let (json, _) = lwp(&dir, &["report", "--json"]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    for (name, instructions) in [("first loop", 2002), ("second loop", 6002)] {
        let row =
            rows.iter().find(|row| row["sym"].as_str().is_some_and(|sym| sym.starts_with(name)));
        let row = row.unwrap_or_else(|| panic!("no {name}: {json}"));
        assert_eq!(row["self"], instructions, "{name}");
        let sym = row["sym"].as_str().expect("a name");
        let (listing, _) = lwp(&dir, &["annotate", sym]);
        assert!(listing.contains("dec ") || listing.contains("decl"), "{listing}");
        // The jitdump file has lines, the perf map has none.
        assert_eq!(listing.contains("loop.gen :42"), name == "second loop", "{listing}");
    }
    let (json, _) = lwp(&dir, &["report", "--json", "-s", "srcline"]);
    let document: Value = serde_json::from_str(&json).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    let line = |line: &str| {
        rows.iter().find(|row| row.to_string().contains(line)).map(|row| row["self"].clone())
    };
    assert_eq!(line("loop.gen :41"), Some(1.into()), "{json:.2000}");
    assert_eq!(line("loop.gen :42"), Some(6001.into()));
}

/// Promise: R112
#[test]
fn stacks_lead_through_generated_code_by_the_tables_that_its_program_writes() {
    let dir = tools::fresh("generated", "unwound");
    if !compile(&dir, "unwound.c", &["-O1", "-fomit-frame-pointer"]) {
        return;
    }
    let alone = run(&dir, &["./program"]);
    let recorded = run(&dir, &[LWP, "record", "-q", "-c", "1009", "--", "./program"]);
    assert!(alone.status.success() && recorded.status.success());
    assert_eq!(recorded.stdout, alone.stdout);
    let all = stacks(&dir, "lwp.data", &[]);
    // Which function generated code was called by, and what it is called: the last function at a
    // place names all samples there.
    for (caller, name) in
        [("loaded", "gen second"), ("moved", "gen first"), ("written_anew", "gen second")]
    {
        let within = |stack: &Stack| stack.frames.iter().any(|it| it.function == caller);
        let right = |stack: &Stack| {
            let names: Vec<&str> = stack.frames.iter().map(|it| &*it.function).collect();
            let names = names.strip_prefix(&["work"]).unwrap_or(&names);
            names.starts_with(&[name, caller, "main"]) && stack.is_complete()
        };
        let shares = (share(&all, within), share(&all, right));
        assert!((shares.0 / (1.0 / 3.0) - 1.0).abs() < 0.05, "{caller}: {shares:?}");
        // The rest are the few samples in which it writes to the file.
        assert!(shares.1 / shares.0 > 0.99, "{caller}: {shares:?}");
    }
    let complete = share(&all, Stack::is_complete);
    assert!(complete > 0.999, "{complete}");
}

//! Code that a program generates while it runs: counted, named by what the program says of it, and
//! annotated from the bytes that were executed.

#[path = "shared/recorded.rs"]
mod recorded;
#[path = "shared/tools.rs"]
mod tools;

use serde_json::Value;

use recorded::{LWP, compile, lwp, run};

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
            let ours =
                std::fs::read_to_string(file.path()).is_ok_and(|text| text.contains(" first loop"));
            if name.starts_with("jit-") && place == dir || name.starts_with("perf-") && ours {
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

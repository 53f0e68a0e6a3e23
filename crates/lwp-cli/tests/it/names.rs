//! Names, lines and inlined functions, wherever the debug information is kept: they are those of a
//! build that has everything in one file. A test whose tool is missing is skipped and says so.
//!
//! Promise: R23

use crate::shared::tools;

use std::path::{Path, PathBuf};
use std::process::Output;

use lwp_testkit::files::copy_program;
use serde_json::Value;

use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

/// A place in the source, and what was executed there.
type Line = (String, String, u64);

fn run(dir: &Path, command: &[&str]) -> Output {
    let output = limited(dir, command).output().expect("timeout starts");
    assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
    output
}

/// The two sources, compiled with `flags` and linked as `program` in a directory of its own; `None`
/// where there is no compiler.
fn built(name: &str, flags: &[&str]) -> Option<PathBuf> {
    if !has("g++") {
        return None;
    }
    let dir = tools::fresh("names", name);
    for unit in ["units_main.cpp", "units_other.cpp"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiled").join(unit);
        std::fs::copy(source, dir.join(unit)).expect("source");
    }
    let compile = ["g++", "-O2", "-c", "units_main.cpp", "units_other.cpp"];
    run(&dir, &[&compile, flags].concat());
    let link = ["g++", "-no-pie", "-Wl,--build-id", "-o", "program"];
    run(&dir, &[&link, &["units_main.o", "units_other.o"][..]].concat());
    Some(dir)
}

/// What was executed in the program, by function and line, inlined functions apart; and what lwp
/// complained of.
fn lines(dir: &Path, options: &[&str]) -> (Vec<Line>, String) {
    let keys = ["report", "--json", "--inline", "-s", "dso,sym,srcline"];
    let output = run(dir, &[&[LWP], &keys[..], options].concat());
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    let word = |row: &Value, key: &str| row[key].as_str().expect("text").to_owned();
    let own = rows.iter().filter(|row| row["dso"] == "program");
    let mut lines: Vec<Line> = own
        .map(|row| (word(row, "sym"), word(row, "srcline"), row["self"].as_u64().expect("count")))
        .collect();
    lines.sort();
    (lines, text(&output.stderr))
}

fn recorded(dir: &Path, options: &[&str]) -> (Vec<Line>, String) {
    run(dir, &[LWP, "record", "-q", "./program"]);
    lines(dir, options)
}

/// The lines of a build that has everything in one file.
fn whole(name: &str, flags: &[&str]) -> Option<Vec<Line>> {
    let dir = built(&format!("{name}-whole"), flags)?;
    let (lines, complaints) = recorded(&dir, &[]);
    assert_eq!(complaints, "");
    let names: Vec<&str> = lines.iter().map(|line| line.0.as_str()).collect();
    for name in ["twice", "rotate", "Mixer::step(unsigned int)", "hidden(unsigned int)", "by_hand"]
    {
        let found = names.iter().any(|known| known.starts_with(name));
        assert!(found, "{name} is not in {names:?}");
    }
    Some(lines)
}

/// `program` without its debug information, which goes to `program.debug`.
fn part(dir: &Path) {
    run(dir, &["objcopy", "--only-keep-debug", "program", "program.debug"]);
    run(dir, &["strip", "program"]);
}

#[test]
fn units_beside_their_objects_are_read() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let name = format!("units{version}");
        let Some(expected) = whole(&name, &["-g", version]) else { return };
        let dir = built(&name, &["-g", version, "-gsplit-dwarf"]).expect("compiler");
        assert_eq!(recorded(&dir, &[]), (expected.clone(), String::new()), "{version}");

        // The whole of it is taken elsewhere, while something else is where it was.
        let moved = tools::fresh("names", &format!("{name}-moved"));
        for unit in ["units_main.dwo", "units_other.dwo"] {
            std::fs::rename(dir.join(unit), moved.join(unit)).expect("unit");
        }
        std::fs::copy(moved.join("units_main.dwo"), dir.join("units_other.dwo")).expect("unit");
        // The recording has what was there when it was made.
        assert_eq!(lines(&dir, &[]), (expected.clone(), String::new()), "{version}, kept");
        let (lines, complaints) = recorded(&dir, &[]);
        assert_ne!(lines, expected);
        assert!(
            complaints.contains("debug information in units_main.dwo and 1 more"),
            "{complaints}"
        );
        copy_program(&dir.join("program"), &moved.join("program"));
        assert_eq!(recorded(&moved, &[]), (expected, String::new()), "{version}, moved");
    }
}

#[test]
fn packages_beside_the_program_are_read() {
    for (version, tool) in [("-gdwarf-4", "dwp"), ("-gdwarf-5", "objcopy")] {
        if !has(tool) {
            continue;
        }
        let name = format!("package{version}");
        let Some(expected) = whole(&name, &[version]) else { return };
        let dir = built(&name, &[version, "-gsplit-dwarf"]).expect("compiler");
        let units = ["units_main.dwo", "units_other.dwo"];
        match tool {
            "dwp" => drop(run(&dir, &["dwp", "-o", "program.dwp", units[0], units[1]])),
            // What packages DWARF 5 is rarer than what makes it.
            _ => package(&dir, &units),
        }
        for unit in units {
            std::fs::remove_file(dir.join(unit)).expect("unit");
        }
        assert_eq!(recorded(&dir, &[]), (expected.clone(), String::new()), "{name}");
        // Of a program that was parted from its debug information too.
        part(&dir);
        run(&dir, &["objcopy", "--add-gnu-debuglink=program.debug", "program"]);
        assert_eq!(recorded(&dir, &[]), (expected, String::new()), "{name}, parted");
    }
}

/// Makes a package of DWARF 5, `program.dwp`, of `units`, each with one compilation unit.
///
/// Spec: DWARF 5, 7.3.5.
fn package(dir: &Path, units: &[&str]) {
    // In the order of the index's columns, with their numbers there.
    const COLUMNS: [(u32, &str); 6] = [
        (1, ".debug_info.dwo"),
        (3, ".debug_abbrev.dwo"),
        (4, ".debug_line.dwo"),
        (5, ".debug_loclists.dwo"),
        (6, ".debug_str_offsets.dwo"),
        (8, ".debug_rnglists.dwo"),
    ];
    let section = |unit: &str, name: &str| {
        let out = dir.join("section");
        std::fs::write(&out, b"").expect("file");
        let dump = format!("{name}=section");
        let _ = limited(dir, &["objcopy", "--dump-section", &dump, unit, "/dev/null"]).output();
        std::fs::read(out).expect("section")
    };
    let mut sections = vec![Vec::new(); COLUMNS.len()];
    let (mut strings, mut ids, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for unit in units {
        let mut row = Vec::new();
        for ((_, name), together) in COLUMNS.iter().zip(&mut sections) {
            let mut bytes = section(unit, name);
            match *name {
                // Behind length, version, kind, size of addresses, and place of abbreviations: the
                // unit's id.
                ".debug_info.dwo" => {
                    assert_eq!(bytes[6], 5, "a split compilation unit");
                    ids.push(u64::from_le_bytes(bytes[12..20].try_into().expect("id")));
                }
                // Strings of all units follow each other.
                ".debug_str_offsets.dwo" => {
                    for at in (8..bytes.len()).step_by(4) {
                        let word = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("word"));
                        let moved = word + strings.len() as u32;
                        bytes[at..at + 4].copy_from_slice(&moved.to_le_bytes());
                    }
                }
                _ => {}
            }
            row.push((together.len() as u32, bytes.len() as u32));
            together.extend(bytes);
        }
        strings.extend(section(unit, ".debug_str.dwo"));
        rows.push(row);
    }
    let slots = (units.len() * 2).next_power_of_two() as u64;
    let mut table = vec![(0u64, 0u32); slots as usize];
    for (index, id) in ids.iter().enumerate() {
        let step = id >> 32 & (slots - 1) | 1;
        let mut slot = id & (slots - 1);
        while table[slot as usize].1 != 0 {
            slot = (slot + step) & (slots - 1);
        }
        table[slot as usize] = (*id, index as u32 + 1);
    }
    let mut index = Vec::new();
    index.extend(5u32.to_le_bytes()); // Version, and two bytes of nothing.
    for number in [COLUMNS.len() as u32, units.len() as u32, slots as u32] {
        index.extend(number.to_le_bytes());
    }
    index.extend(table.iter().flat_map(|(id, _)| id.to_le_bytes()));
    index.extend(table.iter().flat_map(|(_, row)| row.to_le_bytes()));
    index.extend(COLUMNS.iter().flat_map(|(number, _)| number.to_le_bytes()));
    index.extend(rows.iter().flatten().flat_map(|(offset, _)| offset.to_le_bytes()));
    index.extend(rows.iter().flatten().flat_map(|(_, size)| size.to_le_bytes()));
    let named = COLUMNS.iter().map(|(_, name)| *name).zip(&sections);
    let all = named.chain([(".debug_str.dwo", &strings), (".debug_cu_index", &index)]);
    run(dir, &["gcc", "-c", "-x", "c", "/dev/null", "-o", "program.dwp"]);
    for (name, bytes) in all {
        std::fs::write(dir.join("section"), bytes).expect("file");
        let add = format!("{name}=section");
        run(dir, &["objcopy", "--add-section", &add, "program.dwp"]);
    }
}

#[test]
fn debug_files_are_found_by_build_id_and_by_link() {
    let Some(expected) = whole("parted", &["-g"]) else { return };
    let dir = built("parted", &["-g"]).expect("compiler");
    part(&dir);
    let (lost, _) = recorded(&dir, &[]);
    assert_ne!(lost, expected);
    let notes = text(&run(&dir, &["readelf", "-n", "program"]).stdout);
    let id = notes.split("Build ID: ").nth(1).and_then(|rest| rest.lines().next()).expect("id");
    let place = dir.join("debug/.build-id").join(&id[..2]);
    std::fs::create_dir_all(&place).expect("directory");
    std::fs::rename(dir.join("program.debug"), place.join(format!("{}.debug", &id[2..])))
        .expect("debug file");
    assert_eq!(lines(&dir, &["--debug-dir", "debug"]), (expected, String::new()));
}

#[test]
fn a_debug_file_of_another_build_is_known_by_its_checksum() {
    let Some(expected) = whole("linked", &["-g"]) else { return };
    let dir = built("linked", &["-g"]).expect("compiler");
    run(&dir, &["objcopy", "--remove-section", ".note.gnu.build-id", "program"]);
    part(&dir);
    run(&dir, &["objcopy", "--add-gnu-debuglink=program.debug", "program"]);
    assert_eq!(recorded(&dir, &[]), (expected.clone(), String::new()));
    let mut bytes = std::fs::read(dir.join("program.debug")).expect("debug file");
    bytes.push(0);
    std::fs::write(dir.join("program.debug"), bytes).expect("debug file");
    assert_ne!(recorded(&dir, &[]).0, expected);
}

#[test]
fn symbols_of_mini_debug_info_are_read() {
    if !has("xz") {
        return;
    }
    let Some(dir) = built("mini", &[]) else { return };
    let (expected, _) = recorded(&dir, &[]);
    run(&dir, &["objcopy", "--only-keep-debug", "program", "symbols"]);
    run(&dir, &["xz", "symbols"]);
    run(&dir, &["strip", "program"]);
    let (stripped, _) = recorded(&dir, &[]);
    assert_ne!(stripped, expected);
    run(&dir, &["objcopy", "--add-section", ".gnu_debugdata=symbols.xz", "program"]);
    assert_eq!(recorded(&dir, &[]), (expected, String::new()));
    // A damaged one is none.
    let packed = std::fs::read(dir.join("symbols.xz")).expect("symbols");
    std::fs::write(dir.join("symbols.xz"), &packed[..packed.len() / 2]).expect("symbols");
    let section = ".gnu_debugdata=symbols.xz";
    run(&dir, &["objcopy", "--update-section", section, "program"]);
    assert_eq!(recorded(&dir, &[]).0, stripped);
}

#[test]
fn entries_that_several_files_share_are_read() {
    if !has("dwz") {
        return;
    }
    let Some(expected) = whole("shared", &["-g"]) else { return };
    let dir = built("shared", &["-g"]).expect("compiler");
    copy_program(&dir.join("program"), &dir.join("twin"));
    run(&dir, &["dwz", "-m", "shared.debug", "-r", "program", "twin"]);
    assert_eq!(recorded(&dir, &[]), (expected.clone(), String::new()));
    // The name is relative to the file with the debug information, wherever the program is.
    run(&dir, &["objcopy", "--only-keep-debug", "program", "program.debug"]);
    run(&dir, &["strip", "program"]);
    std::fs::create_dir_all(dir.join(".debug")).expect("directory");
    for file in ["program.debug", "shared.debug"] {
        std::fs::rename(dir.join(file), dir.join(".debug").join(file)).expect(file);
    }
    run(&dir, &["objcopy", "--add-gnu-debuglink=.debug/program.debug", "program"]);
    assert_eq!(recorded(&dir, &[]), (expected, String::new()));
    std::fs::remove_file(dir.join(".debug/shared.debug")).expect("shared");
    let (_, complaints) = recorded(&dir, &[]);
    assert!(complaints.contains("shared.debug, which has a part"), "{complaints}");
}

#[test]
fn archives_have_the_debug_files_too() {
    let Some(expected) = whole("archive", &["-g"]) else { return };
    let dir = built("archive", &["-g", "-gsplit-dwarf"]).expect("compiler");
    part(&dir);
    run(&dir, &["objcopy", "--add-gnu-debuglink=program.debug", "program"]);
    run(&dir, &[LWP, "record", "-q", "--no-names", "./program"]);
    assert_eq!(lines(&dir, &[]), (expected.clone(), String::new()));
    run(&dir, &[LWP, "archive"]);
    for file in ["program", "program.debug", "units_main.dwo", "units_other.dwo", "lwp.data"] {
        std::fs::remove_file(dir.join(file)).expect(file);
    }
    assert_eq!(lines(&dir, &["-i", "lwp.archive"]), (expected, String::new()));
    // Sources are in it as well.
    std::fs::remove_file(dir.join("units_other.cpp")).expect("source");
    let listing = run(&dir, &[LWP, "annotate", "-i", "lwp.archive", "other"]);
    assert!(text(&listing.stdout).contains("x ^= rotate(x, i);"), "{}", text(&listing.stdout));
}

/// Promise: R74
#[test]
fn libraries_are_named_whatever_bytes_their_paths_have() {
    use std::os::unix::ffi::OsStrExt;
    if !has("gcc") {
        return;
    }
    let dir = tools::fresh("names", "odd-paths");
    let library = "int odd(int n) { int s = 0; while (n-- > 0) s += n & 3; return s; }\n";
    std::fs::write(dir.join("odd.c"), library).expect("source");
    std::fs::write(dir.join("main.c"), "int odd(int); int main(void) { return odd(5000) & 1; }\n")
        .expect("source");
    run(&dir, &["gcc", "-g", "-O1", "-shared", "-fPIC", "-o", "libodd.so", "odd.c"]);
    run(&dir, &["gcc", "-O1", "-o", "program", "main.c", "libodd.so"]);
    std::fs::rename(dir.join("libodd.so"), dir.join("libodd.so.moved")).expect("library");
    let cases =
        [(&b"new\nline"[..], "new\nline/"), (b"byte\xff", "byte\\xff/"), (b"a\\012b", "a\\012b/")];
    for (bytes, shown) in cases {
        let place = dir.join(std::ffi::OsStr::from_bytes(bytes));
        std::fs::create_dir_all(&place).expect("directory");
        std::fs::copy(dir.join("libodd.so.moved"), place.join("libodd.so")).expect("library");
        for options in [&["-q"][..], &["-q", "-c", "100"], &["-q", "--no-names"]] {
            let mut command = limited(&dir, &[&[LWP, "record"], options, &["./program"]].concat());
            command.env("LD_LIBRARY_PATH", &place);
            let output = command.output().expect("timeout starts");
            assert!(output.status.success(), "{shown}: {}", text(&output.stderr));
            let report = run(&dir, &[LWP, "report", "--json", "--inline", "-s", "dso,sym,srcline"]);
            let document: Value = serde_json::from_slice(&report.stdout).expect("JSON");
            let mut rows = document["rows"].as_array().expect("rows").iter();
            let found = rows.any(|row| row["sym"] == "odd" && row["srcline"] == "odd.c:1");
            assert!(found, "{shown} {options:?}: {}", text(&report.stderr));
            let recording = std::fs::read(dir.join("lwp.data")).expect("recording");
            let text = shown.as_bytes();
            assert!(recording.windows(text.len()).any(|bytes| bytes == text), "{shown}");
        }
    }
}

//! Generated code in its steady state: programs of JIT compilers, by their own clocks.
//!
//! Each program does the same work in rounds and prints a sum, and the microseconds that the second
//! half of the rounds took: what is measured is code that the compiler is done with, and not how
//! the runtime starts.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::table::Cell;
use super::ways::Way;
use super::workloads::Workload;
use super::{table, watched};

/// A runtime with its program. In commands, `{dir}` stands for the folder of the files.
struct Runtime {
    name: &'static str,
    /// Commands that succeed where the runtime is installed and can run the program.
    probes: &'static [&'static [&'static str]],
    /// The command that compiles the program, if one does.
    compile: &'static [&'static str],
    command: &'static [&'static str],
    /// The names and the contents of the program's files.
    files: &'static [(&'static str, &'static str)],
}

const JAVA: &[(&str, &str)] = &[("Numbers.java", include_str!("steady/Numbers.java"))];

/// Says in one line why the module cannot be imported.
const IMPORT_WASMTIME: &str = "
try:
    import wasmtime
except Exception as error:
    raise SystemExit(error)
";

const RUNTIMES: &[Runtime] = &[
    Runtime {
        name: "node",
        probes: &[&["node", "--version"]],
        compile: &[],
        command: &["node", "{dir}/numbers.js"],
        files: &[("numbers.js", include_str!("steady/numbers.js"))],
    },
    Runtime {
        name: "java, serial collector",
        probes: &[&["javac", "-version"], &["java", "-XX:+UseSerialGC", "-version"]],
        compile: &["javac", "Numbers.java"],
        command: &["java", "-XX:+UseSerialGC", "-cp", "{dir}", "Numbers"],
        files: JAVA,
    },
    Runtime {
        name: "java, ZGC",
        probes: &[&["javac", "-version"], &["java", "-XX:+UseZGC", "-version"]],
        compile: &["javac", "Numbers.java"],
        command: &["java", "-XX:+UseZGC", "-cp", "{dir}", "Numbers"],
        files: JAVA,
    },
    Runtime {
        name: ".NET",
        probes: &[&["mcs", "--version"], &["dotnet", "--list-runtimes"]],
        // Mono's compiler: what it makes runs without a package of the SDK.
        compile: &["mcs", "-optimize+", "-out:Numbers.dll", "Numbers.cs"],
        command: &["dotnet", "{dir}/Numbers.dll"],
        files: &[
            ("Numbers.cs", include_str!("steady/Numbers.cs")),
            ("Numbers.runtimeconfig.json", include_str!("steady/Numbers.runtimeconfig.json")),
        ],
    },
    Runtime {
        name: "LuaJIT",
        probes: &[&["luajit", "-v"]],
        compile: &[],
        command: &["luajit", "{dir}/numbers.lua"],
        files: &[("numbers.lua", include_str!("steady/numbers.lua"))],
    },
    Runtime {
        name: "PyPy",
        probes: &[&["pypy3", "--version"]],
        compile: &[],
        command: &["pypy3", "{dir}/numbers.py"],
        files: &[("numbers.py", include_str!("steady/numbers.py"))],
    },
    Runtime {
        name: "wasmtime",
        probes: &[&["python3", "-c", IMPORT_WASMTIME]],
        compile: &[],
        command: &["python3", "{dir}/wasm.py"],
        files: &[
            ("wasm.py", include_str!("steady/wasm.py")),
            ("numbers.wat", include_str!("steady/numbers.wat")),
        ],
    },
];

/// Measures the runtimes that are installed, and returns a table: native times, and for the other
/// ways the ratio to them; then the reason for each row that is missing.
pub fn measure(ways: &[Way], rounds: u32, dir: &Path, limit: Duration) -> Result<String> {
    let ways: Vec<&Way> = ways.iter().filter(|way| !way.first).collect();
    let mut text = String::from("\ngenerated code, steady state:\n\n| program |");
    for way in &ways {
        let _ = write!(text, " {} |", way.name);
    }
    let _ = writeln!(text, "\n| --- |{}", " ---: |".repeat(ways.len()));
    let mut notes = String::new();
    for runtime in RUNTIMES {
        if let Some(reason) = missing(runtime.probes) {
            let _ = write!(notes, "\n* {}: skipped: {reason}", runtime.name);
            continue;
        }
        eprintln!("steady state of {}", runtime.name);
        let cells = row(&prepare(runtime, dir)?, &ways, rounds, dir, limit);
        let _ = write!(text, "| {} |", runtime.name);
        for (way, cell) in ways.iter().zip(&cells) {
            let _ = write!(text, " {} |", table::shown(cell, &cells[0], way.name == "native"));
            if let Cell::Failed(cause) = cell {
                let _ = write!(notes, "\n* {}, {}: {cause}", runtime.name, way.name);
            }
        }
        text.push('\n');
    }
    if !notes.is_empty() {
        let _ = writeln!(text, "{notes}");
    }
    Ok(text)
}

/// The reason why one of the commands does not succeed: there is no such program, or the first line
/// that it says.
fn missing(probes: &[&[&str]]) -> Option<String> {
    probes.iter().find_map(|probe| {
        let [program, arguments @ ..] = probe else { return None };
        let said = match Command::new(program).args(arguments).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return None,
            Ok(output) => [output.stderr, output.stdout].concat(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Some(format!("no {program} is installed"));
            }
            Err(error) => error.to_string().into_bytes(),
        };
        let said = String::from_utf8_lossy(&said);
        let line = said.lines().map(str::trim).find(|line| !line.is_empty());
        Some(format!("{program}: {}", line.unwrap_or("it fails and says nothing")))
    })
}

/// Writes and compiles the program.
fn prepare(runtime: &Runtime, dir: &Path) -> Result<Workload> {
    let dir = dir.join("steady");
    fs::create_dir_all(&dir)?;
    for (name, text) in runtime.files {
        fs::write(dir.join(name), text)?;
    }
    if let [compiler, arguments @ ..] = runtime.compile {
        let status = Command::new(compiler).args(arguments).current_dir(&dir).status()?;
        if !status.success() {
            bail!("{compiler}: {status}");
        }
    }
    let dir = dir.to_str().context("the folder's name is not UTF-8")?;
    let command = runtime.command.iter().map(|word| word.replace("{dir}", dir).into()).collect();
    Ok(Workload { name: runtime.name, short: false, many_processes: false, command })
}

/// The times of the program in each way. The first round only warms up. A way that fails, or that
/// prints another sum than the ways before it, is not measured any further.
fn row(workload: &Workload, ways: &[&Way], rounds: u32, dir: &Path, limit: Duration) -> Vec<Cell> {
    let mut expected = None;
    let mut cells: Vec<Cell> = ways.iter().map(|_| Cell::Times(Vec::new())).collect();
    for round in 0..=rounds {
        for (way, cell) in ways.iter().zip(&mut cells) {
            let Cell::Times(times) = cell else { continue };
            match clocked(way, workload, dir, limit) {
                Err(error) => *cell = Cell::Failed(format!("{error:#}")),
                Ok((sum, _)) if *expected.get_or_insert(sum) != sum => {
                    *cell = Cell::Failed("prints another sum".to_owned());
                }
                Ok((_, time)) if round > 0 => times.push(time),
                Ok(_) => {}
            }
        }
    }
    cells
}

/// Runs the program; returns its sum and the time that it has taken itself.
fn clocked(way: &Way, workload: &Workload, dir: &Path, limit: Duration) -> Result<(u64, Duration)> {
    let file = dir.join("printed");
    let mut command = way.command(workload, dir);
    watched(command.stdout(fs::File::create(&file)?), limit)?;
    let printed = fs::read_to_string(&file)?;
    let numbers: Vec<u64> = printed.lines().filter_map(|line| line.parse().ok()).collect();
    match numbers[..] {
        [sum, micros] => Ok((sum, Duration::from_micros(micros))),
        _ => bail!("prints no sum and time: {printed:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_runtimes_have_a_reason() {
        assert_eq!(missing(&[&["true"], &["sh", "-c", "echo fine"]]), None);
        let reason = missing(&[&["true"], &["no-such-runtime", "--version"]]);
        assert_eq!(reason.as_deref(), Some("no no-such-runtime is installed"));
        let reason = missing(&[&["sh", "-c", "echo one; echo two >&2; exit 1"]]);
        assert_eq!(reason.as_deref(), Some("sh: two"));
        let reason = missing(&[&["false"]]);
        assert_eq!(reason.as_deref(), Some("false: it fails and says nothing"));
    }

    #[test]
    fn a_way_that_fails_has_no_figure_and_the_others_have_theirs() {
        let dir = std::env::temp_dir().join(format!("lwp-steady-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (ways, _) = super::super::ways::all("false".as_ref(), false, false);
        let ways: Vec<&Way> = ways.iter().take(2).collect();
        let measure = |script: &str| {
            let command = ["sh", "-c", script].map(Into::into).to_vec();
            let workload = Workload { name: "sh", short: false, many_processes: false, command };
            row(&workload, &ways, 2, &dir, Duration::from_secs(60))
        };
        let cells = measure("echo 1; echo 5000");
        let five = vec![Duration::from_millis(5); 2];
        assert!(matches!(&cells[0], Cell::Times(times) if *times == five), "{cells:?}");
        assert!(matches!(&cells[1], Cell::Failed(cause) if cause == "exit status: 1"), "{cells:?}");
        let cells = measure("echo $$; echo 5000");
        let other = "prints another sum";
        assert!(matches!(&cells[0], Cell::Failed(cause) if cause == other), "{cells:?}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn programs_have_all_their_files() {
        for runtime in RUNTIMES {
            let program = runtime.command.last().unwrap().rsplit('/').next().unwrap();
            let made = program.strip_suffix(".dll").unwrap_or(program);
            let is_there = |(name, _): &(&str, &str)| *name == program || name.starts_with(made);
            assert!(runtime.files.iter().any(is_there), "{}", runtime.name);
            assert!(!runtime.probes.is_empty(), "{}", runtime.name);
        }
    }
}

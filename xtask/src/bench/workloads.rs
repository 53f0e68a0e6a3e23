//! The programs, and their inputs, which are made on the spot.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::ways::find;
use crate::workspace;

/// A program to measure.
#[derive(Debug)]
pub struct Workload {
    /// Its name in the table.
    pub name: &'static str,
    /// True if it measures starting rather than running.
    pub short: bool,
    /// True if most of it happens in child processes.
    pub many_processes: bool,
    /// The command.
    pub command: Vec<OsString>,
}

/// Makes the command and the input of one program; `None` if the program is not installed.
type Prepare = fn(&Path) -> Result<Option<Vec<OsString>>>;

/// All programs: name, whether short, whether of many processes, how to prepare.
#[rustfmt::skip] // A table: one program a line.
const ALL: &[(&str, bool, bool, Prepare)] = &[
    ("gzip",     false, false, gzip),
    ("xz",       false, false, xz),
    ("py-loop",  false, false, |_| python(PYTHON_LOOP)),
    ("py-mixed", false, false, |_| python(PYTHON_MIXED)),
    ("sqlite",   false, false, |_| installed("sqlite3", &["-batch", ":memory:", SQL])),
    ("cc1",      false, false, cc1),
    ("perl",     false, false, |_| installed("perl", &["-e", PERL])),
    ("true",     true,  false, |_| installed("true", &[])),
    ("py-start", true,  false, |_| python("print(1)")),
    ("node",     true,  false, |_| installed("node", &["-e", "0"])),
    ("bash",     true,  true,  |_| installed("bash", &["-c", BASH])),
    ("gcc",      true,  true,  gcc),
    ("java",     true,  false, java),
    ("cargo",    true,  true,  cargo),
];

/// Prepares the programs named in `only`, or all, in `dir`; for `none`, none. Says which are not
/// installed.
pub fn prepare(dir: &Path, only: &[String]) -> Result<(Vec<Workload>, Vec<String>)> {
    if only == ["none"] {
        return Ok((Vec::new(), Vec::new()));
    }
    for name in only {
        if !ALL.iter().any(|(known, ..)| known == name) {
            let known: Vec<&str> = ALL.iter().map(|(known, ..)| *known).collect();
            bail!("no program {name}; there are {}", known.join(", "));
        }
    }
    let (mut workloads, mut notes) = (Vec::new(), Vec::new());
    for (name, short, many_processes, prepare) in ALL {
        if !only.is_empty() && !only.iter().any(|wanted| wanted == name) {
            continue;
        }
        match prepare(dir).with_context(|| format!("cannot prepare {name}"))? {
            Some(command) => workloads.push(Workload {
                name,
                short: *short,
                many_processes: *many_processes,
                command,
            }),
            None => notes.push(format!("{name}: skipped, not installed")),
        }
    }
    Ok((workloads, notes))
}

/// `program` with `arguments`, if it is installed.
fn installed(program: &str, arguments: &[&str]) -> Result<Option<Vec<OsString>>> {
    Ok(find(program).map(|file| {
        let arguments = arguments.iter().map(OsString::from);
        std::iter::once(file.into_os_string()).chain(arguments).collect()
    }))
}

fn gzip(dir: &Path) -> Result<Option<Vec<OsString>>> {
    text_file(dir, "gzip.txt", 10_000_000)?;
    installed("gzip", &["-9", "-c", "gzip.txt"])
}

fn xz(dir: &Path) -> Result<Option<Vec<OsString>>> {
    text_file(dir, "xz.txt", 3_000_000)?;
    installed("xz", &["-T1", "-k", "-c", "xz.txt"])
}

fn python(script: &str) -> Result<Option<Vec<OsString>>> {
    let Some(interpreter) = python_file() else {
        return Ok(None);
    };
    Ok(Some(vec![interpreter.into_os_string(), "-c".into(), script.into()]))
}

/// The interpreter itself: what `PATH` has may be a script that looks for it.
fn python_file() -> Option<PathBuf> {
    Some(PathBuf::from(ask("python3", &["-c", "import sys; print(sys.executable)"])?))
}

/// Returns the output of `program`, without the last newline.
fn ask(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(find(program)?);
    command.args(arguments);
    let text = String::from_utf8(workspace::output(command).ok()?).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Writes `size` bytes of program text: Python's library, or the C headers, over and over.
fn text_file(dir: &Path, name: &str, size: usize) -> Result<()> {
    let library = ask("python3", &["-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"]);
    let source = library.map_or(PathBuf::from("/usr/include"), PathBuf::from);
    let mut text = Vec::with_capacity(size);
    collect(&source, &mut text, size)?;
    if text.is_empty() {
        bail!("no text in {}", source.display());
    }
    while text.len() < size {
        let missing = (size - text.len()).min(text.len());
        text.extend_from_within(..missing);
    }
    text.truncate(size);
    fs::write(dir.join(name), text)?;
    Ok(())
}

/// Appends the sources below `dir`, in the order of their names, up to `size` bytes.
fn collect(dir: &Path, text: &mut Vec<u8>, size: usize) -> Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.sort();
    for path in entries {
        if text.len() >= size {
            break;
        }
        if path.is_dir() && !path.is_symlink() {
            collect(&path, text, size)?;
        } else if path.extension().is_some_and(|kind| kind == "py" || kind == "h") {
            text.extend(fs::read(&path).unwrap_or_default());
        }
    }
    Ok(())
}

/// gcc's compiler proper: the driver would spend the time in three other processes.
fn cc1(dir: &Path) -> Result<Option<Vec<OsString>>> {
    let Some(file) = ask("gcc", &["-print-prog-name=cc1"]).filter(|file| file.contains('/')) else {
        return Ok(None);
    };
    fs::write(dir.join("input.c"), c_source(140))?;
    installed(&file, &["-quiet", "-O2", "input.c", "-o", "-"])
}

/// The driver, with its preprocessor, compiler and assembler.
fn gcc(dir: &Path) -> Result<Option<Vec<OsString>>> {
    fs::write(dir.join("short.c"), c_source(12))?;
    installed("gcc", &["-O2", "-c", "short.c", "-o", "short.o"])
}

fn java(dir: &Path) -> Result<Option<Vec<OsString>>> {
    let Some(compiler) = find("javac") else { return Ok(None) };
    fs::write(
        dir.join("Hello.java"),
        "class Hello { public static void main(String[] a) { System.out.println(\"hello\"); } }",
    )?;
    let mut command = Command::new(compiler);
    command.arg("Hello.java").current_dir(dir);
    workspace::run(command)?;
    installed("java", &["-cp", ".", "Hello"])
}

/// A build from nothing of a program with ten libraries, all of them on the spot.
fn cargo(dir: &Path) -> Result<Option<Vec<OsString>>> {
    let root = dir.join("crates");
    let package = |name: &str| {
        format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\n"
        )
    };
    let (mut manifest, mut main) = (package("bench"), String::from("fn main() {\n"));
    for number in 0..10 {
        let name = format!("part{number}");
        let part = root.join(&name);
        fs::create_dir_all(part.join("src"))?;
        fs::write(part.join("Cargo.toml"), package(&name))?;
        fs::write(
            part.join("src/lib.rs"),
            "use std::collections::BTreeMap;\n\
             pub fn count(text: &str) -> BTreeMap<String, usize> {\n\
             \x20   let mut out = BTreeMap::new();\n\
             \x20   for word in text.split_whitespace() { *out.entry(word.to_string()).or_insert(0) += 1; }\n\
             \x20   out\n\
             }\n",
        )?;
        let _ = writeln!(manifest, "{name} = {{ path = \"{name}\" }}");
        let _ = writeln!(main, "    println!(\"{{:?}}\", {name}::count(\"a b a\"));");
    }
    main.push_str("}\n");
    manifest.push_str("[workspace]\n");
    fs::create_dir_all(root.join("src"))?;
    fs::write(root.join("Cargo.toml"), manifest)?;
    fs::write(root.join("src/main.rs"), main)?;
    let script = "rm -rf target && exec cargo build -q --offline --target-dir target";
    installed("sh", &["-c", &format!("cd crates && {script}")])
}

/// A C file of `functions` functions, each with a loop, a switch and a call of the one before.
fn c_source(functions: u32) -> String {
    let mut text = String::from("unsigned f0(unsigned x, unsigned *p) { return x + p[0]; }\n");
    for number in 1..=functions {
        let before = number - 1;
        let _ = writeln!(
            text,
            "unsigned f{number}(unsigned x, unsigned *p) {{\n\
             \x20 unsigned sum = {number};\n\
             \x20 for (unsigned i = 0; i < x % 64; i++) {{\n\
             \x20   switch ((p[i] + {number}) % 7) {{\n\
             \x20   case 0: sum += p[i] * {number}; break;\n\
             \x20   case 1: sum ^= p[i] << (i & 7); break;\n\
             \x20   case 2: sum -= f{before}(i, p + 1); break;\n\
             \x20   case 3: p[i] = sum / (x | 1); break;\n\
             \x20   case 4: sum = (sum >> 3) | (sum << 29); break;\n\
             \x20   default: sum += i & x; if (sum > {number}000u) sum %= 977;\n\
             \x20   }}\n\
             \x20 }}\n\
             \x20 return sum + (x > 9 ? f{before}(x - 1, p) : p[2]);\n\
             }}"
        );
    }
    text
}

const PYTHON_LOOP: &str = "
def f(n):
    a = 0
    for i in range(n):
        a = (a * 3 + i) & 0xffffff
    return a
print(f(20_000_000))
";

const PYTHON_MIXED: &str = "
import json, re, random
random.seed(1)
class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def length(self):
        return (self.x * self.x + self.y * self.y) ** 0.5
words = ['%08x' % random.getrandbits(32) for _ in range(250_000)]
counts = {}
for word in words:
    for at in range(0, 8, 2):
        key = word[at:at + 2]
        counts[key] = counts.get(key, 0) + 1
points = sorted((Point(int(w[:4], 16), int(w[4:], 16)) for w in words), key=Point.length)
pattern = re.compile(r'([0-9]+)([a-f]+)')
found = sum(len(pattern.findall(word)) for word in words)
text = json.dumps({'words': words, 'counts': counts, 'found': found})
again = json.loads(text)
lines = '\\n'.join(','.join(words[at:at + 8]) for at in range(0, len(words), 8))
table = [line.split(',') for line in lines.split('\\n')]
print(found, len(text), again['found'], round(points[-1].length()), len(table))
";

const SQL: &str = "
CREATE TABLE t(id INTEGER PRIMARY KEY, k INTEGER, name TEXT);
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 700000)
INSERT INTO t SELECT x, (x * 7919) % 10007, 'name' || (x * 31 % 5003) FROM c;
CREATE INDEX t_k ON t(k, name);
SELECT count(*), sum(k), max(name) FROM t WHERE name LIKE '%9%';
SELECT k % 100 AS g, count(*), avg(id) FROM t GROUP BY g ORDER BY 2 DESC, 1 LIMIT 5;
SELECT count(*) FROM t AS a JOIN t AS b ON a.k = b.k AND a.id < b.id WHERE a.k < 1500;
";

const PERL: &str = r#"
my (%seen, $sum, @words);
my $x = 12345;
for my $i (1 .. 2_000_000) {
    $x = ($x * 1103515245 + 12345) & 0x7fffffff;
    my $word = sprintf "%x", $x;
    $seen{substr $word, 0, 3}++;
    $sum += length $1 if $word =~ /([0-9]+)[a-f]/;
    push @words, $word if $i % 10 == 0;
}
my @sorted = sort { $seen{$b} <=> $seen{$a} || $a cmp $b } keys %seen;
print "$sum $sorted[0] ", scalar(@words), " ", join("", sort @words) =~ tr/a/a/, "\n";
"#;

/// 300 forks without, and 100 with an exec.
const BASH: &str = "
for i in {1..300}; do ( : $i ); done
for i in {1..100}; do /bin/true; done
echo done
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_their_own_names() {
        let mut names: Vec<&str> = ALL.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn unknown_programs_are_refused() {
        let error = prepare(Path::new("."), &["doom".to_owned()]).unwrap_err();
        assert!(error.to_string().starts_with("no program doom; there are gzip, "));
    }

    #[test]
    fn none_is_no_program() {
        let (workloads, notes) = prepare(Path::new("."), &["none".to_owned()]).unwrap();
        assert!(workloads.is_empty() && notes.is_empty());
    }

    #[test]
    fn generated_source_has_every_function() {
        let text = c_source(3);
        assert!(text.contains("unsigned f3(") && !text.contains("unsigned f4("));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}

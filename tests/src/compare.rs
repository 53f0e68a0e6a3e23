//! Judges a native run, then compares the other modes with it.

use crate::compile::{Executable, compile};
use crate::directives::Compare;
use crate::lwp::{Mode, modes, repeat};
use crate::run::{End, Job, Outcome, TempDir};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How much longer than native a run on the virtual CPU may take.
const SLOWDOWN_LIMIT: u32 = 3;

/// Rewrites captured output before comparison, to drop what may differ between any two runs.
pub type Normalize = fn(&[u8]) -> Vec<u8>;

/// Runs every variant of the test program `GROUP/NAME` in every mode.
///
/// # Panics
///
/// With a report, if a variant fails natively or differs in another mode.
pub fn check_program(name: &str) {
    let mut report = String::new();
    for executable in compile(name) {
        check_executable(&executable, &mut report);
    }
    assert!(report.is_empty(), "\n{report}");
}

fn check_executable(executable: &Executable, report: &mut String) {
    let directives = &executable.directives;
    let expected = directives.signal.map_or(End::Code(directives.exit), End::Signal);
    let mut argv = vec![executable.path.clone().into_os_string()];
    argv.extend(directives.args.iter().map(OsString::from));
    let title = format!("{} ({})", executable.name, executable.variant.name());
    let mut reference = None;
    for mode in modes(&executable.name) {
        let limit = directives.timeout * if mode == Mode::Native { 1 } else { SLOWDOWN_LIMIT };
        for round in 0..repeat() {
            let outcome = run_in(mode, &argv, limit, |_| ());
            let mut found = judge(&outcome, expected);
            match &reference {
                None => reference = Some(outcome.clone()),
                Some(native) if directives.compare == Compare::All => {
                    found += &differences(native, &outcome, without_notes);
                }
                Some(_) => (),
            }
            if !found.is_empty() {
                let at = format!("== {title}: {}, run {round}", mode.name());
                let _ = writeln!(report, "{at}\n{found}{}", show(&outcome));
                break;
            }
        }
        if mode == Mode::Native && !report.is_empty() {
            return;
        }
    }
}

/// A command to compare: what it is, what it needs, and what of its output counts.
#[derive(Debug)]
pub struct Comparison<'a> {
    argv: Vec<OsString>,
    limit: Duration,
    files: Vec<(&'a str, Vec<u8>)>,
    normalize: Normalize,
    expected: End,
}

impl<'a> Comparison<'a> {
    /// A command that succeeds, with no input files, all of whose output must agree.
    pub fn new<S: AsRef<OsStr>>(argv: &[S]) -> Self {
        Self {
            argv: argv.iter().map(|word| word.as_ref().to_owned()).collect(),
            limit: Duration::from_secs(120),
            files: Vec::new(),
            normalize: <[u8]>::to_vec,
            expected: End::Code(0),
        }
    }

    /// Changes the time limit of one native run.
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Puts a file into the fresh current folder of each run.
    pub fn file(mut self, name: &'a str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push((name, bytes.into()));
        self
    }

    /// Rewrites output before it is compared.
    pub fn normalize(mut self, normalize: Normalize) -> Self {
        self.normalize = normalize;
        self
    }

    /// Expects this end instead of success.
    pub fn ends(mut self, expected: End) -> Self {
        self.expected = expected;
        self
    }

    /// Runs the command natively and in the other modes.
    ///
    /// # Panics
    ///
    /// With a report, if the native run fails or another mode differs.
    pub fn check(&self) {
        let mut reference: Option<Outcome> = None;
        let name = self.argv.iter().map(|word| word.to_string_lossy()).collect::<String>();
        for mode in modes(&name) {
            for round in 0..repeat() {
                let limit = self.limit * if mode == Mode::Native { 1 } else { SLOWDOWN_LIMIT };
                let outcome = run_in(mode, &self.argv, limit, |work| self.write_files(work));
                let mut found = judge(&outcome, self.expected);
                match &reference {
                    None => {
                        if std::env::var_os("LWP_TEST_SHOW").is_some() {
                            eprintln!("{}", show(&outcome));
                        }
                        reference = Some(outcome.clone());
                    }
                    Some(native) => found += &differences(native, &outcome, self.normalize),
                }
                let at = format!("== {:?}: {}, run {round}", self.argv, mode.name());
                assert!(found.is_empty(), "\n{at}\n{found}{}", show(&outcome));
            }
        }
    }

    fn write_files(&self, work: &Path) {
        for (name, bytes) in &self.files {
            let path = work.join(name);
            let folder = path.parent().expect("a file has a folder");
            fs::create_dir_all(folder).expect("create a folder for input");
            fs::write(&path, bytes).expect("write an input file");
        }
    }
}

fn run_in(mode: Mode, argv: &[OsString], limit: Duration, prepare: impl Fn(&Path)) -> Outcome {
    let capture = TempDir::new();
    let work = TempDir::new();
    prepare(work.path());
    Job::new(mode.command(argv, capture.path()), limit).run(work.path(), capture.path())
}

/// What is wrong with an outcome on its own.
fn judge(outcome: &Outcome, expected: End) -> String {
    let mut found = String::new();
    if !same_end(expected, outcome.end) {
        let _ = writeln!(found, "ended with {:?}, expected {expected:?}", outcome.end);
    }
    for line in &outcome.leftovers {
        let _ = writeln!(found, "process left: {line}");
    }
    found
}

/// A program killed by a signal may be reported the way a shell does.
fn same_end(expected: End, got: End) -> bool {
    expected == got || matches!((expected, got), (End::Signal(s), End::Code(c)) if c == 128 + s)
}

/// What differs between two outcomes; empty if nothing does.
pub fn differences(native: &Outcome, other: &Outcome, normalize: Normalize) -> String {
    let mut found = String::new();
    if !same_end(native.end, other.end) {
        let _ = writeln!(found, "ended with {:?}, natively {:?}", other.end, native.end);
    }
    let streams =
        [("stdout", &native.stdout, &other.stdout), ("stderr", &native.stderr, &other.stderr)];
    for (name, native, other) in streams {
        let (native, other) = (normalize(native), normalize(other));
        if native != other {
            found += &first_difference(name, &native, &other);
        }
    }
    found
}

fn first_difference(name: &str, native: &[u8], other: &[u8]) -> String {
    let native_lines: Vec<&[u8]> = native.split(|&b| b == b'\n').collect();
    let other_lines: Vec<&[u8]> = other.split(|&b| b == b'\n').collect();
    let shared = native_lines.len().max(other_lines.len());
    let line = |lines: &[&[u8]], at: usize| match lines.get(at) {
        Some(text) => String::from_utf8_lossy(&text[..text.len().min(400)]).into_owned(),
        None => "(end of output)".to_owned(),
    };
    let differs = |&at: &usize| native_lines.get(at) != other_lines.get(at);
    let at = (0..shared).find(differs).expect("the streams differ");
    let (native, other) = (line(&native_lines, at), line(&other_lines, at));
    format!("{name} line {}:\n  native {native:?}\n  here   {other:?}\n", at + 1)
}

/// Drops lines that begin with `# `, which are notes of a program, such as an instruction set that
/// is missing, and the lines in which lwp names the processes that went on natively.
pub fn without_notes(output: &[u8]) -> Vec<u8> {
    const NATIVE: &[u8] = b"lwp: not on the virtual CPU: ";
    let lines = output.split_inclusive(|&b| b == b'\n');
    let is_note = |line: &&[u8]| line.starts_with(b"# ") || line.starts_with(NATIVE);
    lines.filter(|line| !is_note(line)).flatten().copied().collect()
}

fn show(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (name, bytes) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        let tail = &bytes[bytes.len().saturating_sub(2000)..];
        let _ = writeln!(text, "-- {name} (end) --\n{}", String::from_utf8_lossy(tail).trim_end());
    }
    let _ = writeln!(text, "-- {:.3} s --", outcome.elapsed.as_secs_f64());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(end: End, stdout: &str, stderr: &str) -> Outcome {
        Outcome {
            end,
            stdout: stdout.into(),
            stderr: stderr.into(),
            leftovers: Vec::new(),
            elapsed: Duration::ZERO,
        }
    }

    #[test]
    fn equal_outcomes_have_no_differences() {
        let a = outcome(End::Code(0), "# note one\nx\n", "");
        let b = outcome(End::Code(0), "x\n", "");
        assert_eq!(differences(&a, &b, without_notes), "");
    }

    #[test]
    fn each_part_of_an_outcome_is_compared() {
        let a = outcome(End::Code(0), "x\ny\n", "e\n");
        let code = outcome(End::Code(1), "x\ny\n", "e\n");
        let out = outcome(End::Code(0), "x\nz\n", "e\n");
        let err = outcome(End::Code(0), "x\ny\n", "");
        assert!(differences(&a, &code, without_notes).contains("Code(1)"));
        assert!(differences(&a, &out, without_notes).contains("stdout line 2"));
        assert!(differences(&a, &err, without_notes).contains("stderr line 1"));
    }

    #[test]
    fn a_shell_style_signal_code_is_the_signal() {
        assert!(same_end(End::Signal(11), End::Code(139)));
        assert!(!same_end(End::Signal(11), End::Code(138)));
        assert!(!same_end(End::Code(139), End::Signal(11)));
    }

    #[test]
    fn an_outcome_is_judged_alone() {
        let mut bad = outcome(End::TimedOut, "", "");
        bad.leftovers.push("1 x".to_owned());
        let found = judge(&bad, End::Code(0));
        assert!(found.contains("TimedOut") && found.contains("process left"), "{found}");
        assert_eq!(judge(&outcome(End::Code(3), "", ""), End::Code(3)), "");
    }
}

//! Programs for Windows, under Wine: a PE that profiles itself has Lightweight Profiling under `lwp
//! run`, and ends as natively where it has not. Skipped, and said so, where Wine or the compiler is
//! missing.
//!
//! Promise: W23: if Wine and MinGW are installed

#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use lwp_tests::{End, Job, Outcome, TempDir, find_tool, lwp_binary};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An installed Wine with a configuration of its own, which has been made.
struct Wine {
    loader: PathBuf,
    server: PathBuf,
    dir: TempDir,
}

impl Wine {
    /// `None`, and a message, where there is none.
    fn set_up() -> Option<Self> {
        let find = |names: &[&str], place: &str| {
            let installed = Path::new(place).join(names[0]);
            let known = || names.iter().find_map(|name| find_tool(name));
            installed.is_file().then_some(installed).or_else(known)
        };
        // Debian's command is a script around the loader.
        let place = "/usr/lib/wine";
        let (Some(loader), Some(server)) =
            (find(&["wine64", "wine"], place), find(&["wineserver64", "wineserver"], place))
        else {
            eprintln!("skipped: no wine64");
            return None;
        };
        let wine = Self { loader, server, dir: TempDir::new() };
        let script = "\"$0\" wineboot --init; \"$1\" --wait";
        let made = wine.job(vec![
            "sh".into(),
            "-c".into(),
            script.into(),
            wine.loader.clone().into(),
            wine.server.clone().into(),
        ]);
        if made.end != End::Code(0) || !wine.prefix().join("system.reg").is_file() {
            eprintln!("skipped: Wine makes no configuration here: {made:?}");
            return None;
        }
        Some(wine)
    }

    fn prefix(&self) -> PathBuf {
        self.dir.path().join("prefix")
    }

    fn job(&self, argv: Vec<OsString>) -> Outcome {
        let mut job = Job::new(argv, Duration::from_secs(300));
        job.env = vec![
            ("WINEPREFIX".to_owned(), self.prefix().into()),
            ("WINEDEBUG".to_owned(), "-all".into()),
            // Nothing is downloaded, and nobody is asked.
            ("WINEDLLOVERRIDES".to_owned(), "mscoree,mshtml=".into()),
        ];
        job.run(self.dir.path(), self.dir.path())
    }

    /// Runs a program natively, or by `lwp` with these words, from the start of Wine's server on.
    fn run(&self, lwp: &[&str], program: &Path) -> Outcome {
        let mut argv: Vec<OsString> = Vec::new();
        if !lwp.is_empty() {
            argv.push(lwp_binary().into());
            argv.extend(lwp.iter().map(OsString::from));
        }
        argv.extend([self.loader.clone().into(), program.as_os_str().to_owned()]);
        let outcome = self.job(argv);
        self.end_server();
        outcome
    }

    fn end_server(&self) {
        self.job(vec![self.server.clone().into(), "--kill".into()]);
    }

    /// Compiles a C program, if there is a compiler.
    fn compile(&self, source: &str) -> Option<PathBuf> {
        const COMPILER: &str = "x86_64-w64-mingw32-gcc";
        if find_tool(COMPILER).is_none() {
            eprintln!("skipped: no {COMPILER}");
            return None;
        }
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace");
        let program = self.dir.path().join("program.exe");
        let built = Command::new(COMPILER)
            .args(["-O2", "-mlwp", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(workspace.join("include"))
            .arg("-o")
            .args([&program, &workspace.join(source)])
            .output()
            .expect("the compiler starts");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(program)
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        self.end_server();
    }
}

fn lines(outcome: &Outcome) -> Vec<String> {
    String::from_utf8_lossy(&outcome.stdout).lines().map(str::to_owned).collect()
}

/// Wine reserves most of the first 2 GiB, and spreads code over 9: the side for threads with a
/// profile finds its place.
///
/// Spec: LWP §10
#[test]
fn lwp_spec_10_the_published_sequence_as_a_program_for_windows() {
    let Some(wine) = Wine::set_up() else { return };
    let Some(program) = wine.compile("tests/lwp/sequence.c") else { return };
    let native = wine.run(&[], &program);
    if native.end != End::Code(1) || lines(&native) != ["LWP is not available"] {
        eprintln!(
            "skipped: this processor has LWP, or Wine does not run programs here: {native:?}"
        );
        return;
    }
    let profiled = wine.run(&["run", "--no-cache", "--"], &program);
    let printed = lines(&profiled);
    assert_eq!(profiled.end, End::Code(0), "{profiled:?}");
    let summary = ["17 entries in ring buffer", "7 LWPVAL instructions, 10 LWPINS instructions"];
    assert_eq!(printed.len(), 20, "{profiled:?}");
    assert_eq!(printed[18..], summary, "{profiled:?}");
    // Where the processor has none, it is as natively.
    let without = wine.run(&["stat", "--no-cache", "--"], &program);
    assert_eq!((without.end, lines(&without)), (native.end, lines(&native)), "{without:?}");
}

//! The install script and the GitHub action, on a release that has this build's command and nothing
//! else. What a whole release holds is tried by `packaging/test.sh`.
//!
//! Promise: R55, R57
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::tools;

use std::path::{Path, PathBuf};
use std::process::Output;

use tools::{has, limited, text};

const LWP: &str = env!("CARGO_BIN_EXE_lwp");

fn run(dir: &Path, command: &[&str]) -> Output {
    limited(dir, command).output().expect("timeout starts")
}

fn packaging(file: &str) -> String {
    format!("{}/../../packaging/{file}", env!("CARGO_MANIFEST_DIR"))
}

/// A directory with a release in `dist`; `None` where a tool is missing.
fn release(name: &str) -> Option<PathBuf> {
    let dir = tools::fresh("packaging", name);
    if !has("tar") || !has("sha256sum") {
        return None;
    }
    let script = "name=lwp-0.0.0-x86_64-linux; mkdir -p dist $name/bin && cp \"$1\" $name/bin/lwp && \
                  tar -czf dist/$name.tar.gz $name && rm -r $name && \
                  (cd dist && sha256sum *.tar.gz > SHA256SUMS)";
    let made = run(&dir, &["sh", "-euc", script, "sh", LWP]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    Some(dir)
}

#[test]
fn the_install_script_installs_what_the_checksum_says_and_nothing_else() {
    let Some(dir) = release("script") else { return };
    let install = |prefix: &str| {
        let mut command = limited(&dir, &["sh", &packaging("install.sh")]);
        command.env("PREFIX", dir.join(prefix)).env("LWP_FROM", dir.join("dist"));
        command.output().expect("timeout starts")
    };
    let done = install("one");
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("installed lwp "), "{}", text(&done.stdout));
    let lwp = dir.join("one/bin/lwp");
    assert!(run(&dir, &[lwp.to_str().expect("text"), "--version"]).status.success());

    let archive = dir.join("dist/lwp-0.0.0-x86_64-linux.tar.gz");
    let mut bytes = std::fs::read(&archive).expect("an archive");
    *bytes.last_mut().expect("bytes") ^= 1;
    std::fs::write(&archive, bytes).expect("it can be written");
    let refused = install("two");
    assert!(!refused.status.success());
    assert!(
        text(&refused.stderr).contains("not what the release says"),
        "{}",
        text(&refused.stderr)
    );
    assert!(!dir.join("two").exists());
}

/// A Python that has PyYAML: the viewers', or the system's.
fn python(dir: &Path) -> Option<String> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/viewers");
    let viewers = std::env::var_os("LWP_VIEWERS").map_or(beside, PathBuf::from);
    let own = viewers.join("python/bin/python").display().to_string();
    let found = [own.as_str(), "python3"]
        .into_iter()
        .find(|python| run(dir, &[python, "-c", "import yaml"]).status.success());
    if found.is_none() {
        eprintln!("skipped: no Python with PyYAML; tests/viewers.sh installs it");
    }
    found.map(str::to_owned)
}

#[test]
fn the_action_compares_with_the_base_branch_and_comments() {
    let Some(dir) = release("action") else { return };
    let Some(python) = python(&dir).filter(|_| has("cc") && has("bash")) else { return };
    let played = run(&dir, &[&python, &packaging("action/play.py"), "dist"]);
    assert!(played.status.success(), "{}", text(&played.stderr));
    assert_eq!(text(&played.stdout), "ok: nine runs of the action\n");
}

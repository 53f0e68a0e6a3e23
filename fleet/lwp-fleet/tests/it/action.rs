//! The action's step that sends recordings to a fleet, and what it says below a pull request's verdict. Skipped with a message where lwp, git,
//! a compiler or curl are missing; `LWP` names the lwp to take.
//!
//! Promise: FL18
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::http;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use http::Served;

fn lwp() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("LWP") {
        return Some(PathBuf::from(named));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let built = ["debug", "release"].map(|profile| root.join(profile).join("lwp"));
    built.into_iter().find(|path| path.is_file())
}

/// A working tree in which the action's steps are run.
struct Tree {
    dir: tempfile::TempDir,
    path: String,
}

impl Tree {
    fn new() -> Option<Self> {
        let Some(lwp) = lwp() else {
            eprintln!("skipped: no lwp in ../target, and LWP names none");
            return None;
        };
        for tool in ["cc", "git", "curl"] {
            let mut command = Command::new(tool);
            if !command.arg("--version").output().is_ok_and(|output| output.status.success()) {
                eprintln!("skipped: no {tool}");
                return None;
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(lwp.canonicalize().unwrap(), bin.join("lwp")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_lwp-fleet"), bin.join("lwp-fleet")).unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        Some(Self { dir, path })
    }

    fn shell(&self, script: &str, more: &[(&str, &str)]) -> Output {
        self.shell_in(self.dir.path(), script, more)
    }

    fn shell_in(&self, directory: &Path, script: &str, more: &[(&str, &str)]) -> Output {
        let mut command = Command::new("sh");
        command.args(["-e", "-c", script]).current_dir(directory).env("PATH", &self.path);
        command.env("LWP_DIRECTORY", directory.join(".lwp-gate")).stdin(Stdio::null());
        for name in
            ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"]
        {
            command.env(name, "a@b");
        }
        // The variables of whoever runs the tests are none of the action's.
        for name in ["LWP_FLEET_TOKEN", "GITHUB_SHA", "GITHUB_REF", "GITHUB_HEAD_REF"] {
            command.env_remove(name);
        }
        command.env("LIMITS", "instructions=+1000%").env("RUN_URL", "https://example.com/run");
        for (name, file) in [("GITHUB_STEP_SUMMARY", "summary"), ("GITHUB_OUTPUT", "outputs")] {
            command.env(name, self.dir.path().join(file));
        }
        command.env("BENCHMARKS", "small: ./w\nbig/one: ./w x\n").env("EVENT", "push");
        command.envs(more.iter().copied()).output().expect("sh starts")
    }

    /// A commit of the program, without a recording.
    #[track_caller]
    fn source(&self, work: u32) {
        let source = format!(
            "__attribute__((noinline)) int work(int n) {{ volatile int s = 0; \
             while (n--) s += n; return s; }}\nint main(void) {{ return work({work}) == 1; }}\n"
        );
        std::fs::write(self.dir.path().join("w.c"), source).unwrap();
        said(&self.shell("git add w.c; git commit -q --allow-empty -m x; cc -O1 -g -o w w.c", &[]));
    }

    /// A commit of the program, recorded, compared and sent as the action does it.
    #[track_caller]
    fn commit(&self, work: u32, fleet: &str, more: &[(&str, &str)]) -> String {
        self.source(work);
        self.sent(fleet, more)
    }

    /// What the action's steps say, from the recording to the fleet.
    #[track_caller]
    fn sent(&self, fleet: &str, more: &[(&str, &str)]) -> String {
        let script = ["record", "compare", "fleet"].map(step).join("; ");
        said(&self.shell(&script, &[&[("FLEET", fleet)], more].concat()))
    }

    /// The verdict as it is commented.
    fn comment(&self) -> String {
        std::fs::read_to_string(self.dir.path().join(".lwp-gate/comment.md")).unwrap()
    }

    /// A working tree with a store beside it.
    fn with_store() -> Option<(Self, PathBuf)> {
        let tree = Self::new()?;
        let store = tree.dir.path().join("store");
        said(&tree.shell("git init -q -b main .; lwp fleet init --store store", &[]));
        Some((tree, store))
    }
}

/// A change to the branch `main`.
const CHANGE: [(&str, &str); 2] = [("EVENT", "pull_request"), ("BASE_REF", "main")];

/// Makes the branch that changes are made for of the tree's commit, and leaves it.
const LEAVE: &str = "git update-ref refs/remotes/origin/main HEAD; git checkout -q -b topic";

/// The command of a step.
fn step(name: &str) -> String {
    format!("sh {}/../../packaging/action/{name}.sh", env!("CARGO_MANIFEST_DIR"))
}

/// The output of a command that succeeds.
#[track_caller]
fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{error}");
    said
}

#[test]
fn recordings_go_to_a_store_and_a_change_is_compared_with_its_nearest_ancestor() {
    let Some((tree, store)) = Tree::with_store() else { return };
    let fleet = store.to_str().unwrap();
    tree.commit(100_000, fleet, &[]);
    tree.shell(LEAVE, &[]);
    tree.commit(150_000, fleet, &CHANGE);
    let comment = tree.comment();
    assert!(comment.starts_with("<!-- lwp gate -->"), "{comment}");
    assert!(comment.contains("\n\n### lwp: 2 of 2 benchmarks changed"), "{comment}");
    assert!(comment.contains("| big/one | ") && comment.contains("work (w)"), "{comment}");
}

#[test]
fn recordings_go_to_a_server_without_any_other_program_of_the_fleet_and_it_compares_them() {
    let Some((tree, store)) = Tree::with_store() else { return };
    tree.shell("rm bin/lwp-fleet", &[]);
    let server = Served::start(&store, &[]);
    let url = format!("http://{}/", server.address);
    let with = [("LWP_FLEET_TOKEN", server.secret.as_str())];
    let text = tree.commit(1000, &url, &with);
    assert_eq!(text.matches("\"new\":true").count(), 2, "{text}");
    let question = b"select benchmark from recordings order by 1";
    let (_, _, body) = server.ask("POST", "/v1/sql", question);
    assert_eq!(body.trim(), r#"[{"benchmark":"big/one"},{"benchmark":"small"}]"#);
    // The nearest ancestor has no recording; the one before has.
    tree.source(1000);
    tree.shell(LEAVE, &[]);
    let text = tree.commit(1500, &url, &[&with[..], &CHANGE].concat());
    assert!(!text.contains("title=lwp fleet"), "{text}");
    let comment = tree.comment();
    assert!(comment.contains("\n\n### lwp: 2 of 2 benchmarks changed"), "{comment}");
    assert!(comment.contains("work (w)"), "{comment}");
    // A token that is only good for sending still sends.
    let add = ["token", "add", "ci", "--scope", "write", "--store", store.to_str().unwrap()];
    let made = Command::new(env!("CARGO_BIN_EXE_lwp-fleet")).args(add).output().unwrap();
    let (server, secret) = (Served::start(&store, &[]), said(&made).trim().to_owned());
    let url = format!("http://{}", server.address);
    let writing = [("LWP_FLEET_TOKEN", secret.as_str())];
    let text = tree.commit(1600, &url, &[&writing[..], &CHANGE].concat());
    assert_eq!(text.matches("\"new\":true").count(), 2, "{text}");
    assert!(text.contains("::notice title=lwp fleet::nothing is compared"), "{text}");
    assert!(text.contains("--scope read") && !text.contains(&secret), "{text}");
}

/// Promise: FL28
#[test]
fn a_fleet_that_cannot_be_reached_costs_no_verdict() {
    let Some((tree, store)) = Tree::with_store() else { return };
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = format!("http://{dead}");
    let server = Served::start(&store, &[]);
    let living = format!("http://{}", server.address);
    let missing = tree.dir.path().join("missing").display().to_string();
    tree.commit(1000, &missing, &[]);
    tree.shell(LEAVE, &[]);
    for (fleet, token, why) in [
        (dead.as_str(), "", "no token"),
        (dead.as_str(), "lwpf_x", "connect"),
        (living.as_str(), "lwpf_x", "401"),
        (missing.as_str(), "", "there is no store"),
        ("s3://bucket/store", "", "no credentials"),
    ] {
        let none = [("AWS_ACCESS_KEY_ID", ""), ("AWS_WEB_IDENTITY_TOKEN_FILE", "")];
        let more = [&[("LWP_FLEET_TOKEN", token)][..], &none, &CHANGE].concat();
        let text = tree.commit(1000, fleet, &more);
        let warning = text.lines().find(|line| line.starts_with("::warning title=lwp fleet::"));
        assert!(warning.is_some_and(|line| line.contains(why)), "{fleet} {why}: {text}");
        let comment = tree.comment();
        assert!(comment.starts_with("<!-- lwp gate -->\n### 2 benchmarks"), "{comment}");
        assert!(!comment.contains("### lwp:"), "{comment}");
        assert!(!tree.dir.path().join(".lwp-gate/curl").exists(), "the token stays behind");
    }
    tree.shell("rm bin/lwp-fleet", &[]);
    let text = tree.commit(1000, store.to_str().unwrap(), &CHANGE);
    assert!(text.contains("lwp-fleet is neither beside lwp nor on the path"), "{text}");
    let outputs = std::fs::read_to_string(tree.dir.path().join("outputs")).unwrap();
    assert_eq!(outputs.matches("passed=true").count(), 7, "{outputs}");
}

#[test]
fn a_shallow_checkout_says_why_nothing_is_compared() {
    let Some((tree, store)) = Tree::with_store() else { return };
    let fleet = store.to_str().unwrap();
    tree.commit(1000, fleet, &[]);
    tree.source(1500);
    let clone = "git clone -q --depth 1 file://$PWD shallow; cp w shallow/";
    said(&tree.shell(clone, &[]));
    let server = Served::start(&store, &[]);
    let url = format!("http://{}", server.address);
    for fleet in [fleet, &url] {
        let more = [&[("FLEET", fleet), ("LWP_FLEET_TOKEN", &server.secret)][..], &CHANGE].concat();
        let script = ["record", "compare", "fleet"].map(step).join("; ");
        let shallow = tree.dir.path().join("shallow");
        let text = said(&tree.shell_in(&shallow, &script, &more));
        let warned = "::warning title=lwp fleet::nothing is compared: the checkout has no history";
        assert!(text.contains(warned) && text.contains("fetch-depth: 0"), "{text}");
    }
}

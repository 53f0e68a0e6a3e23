//! The action's step that sends recordings to a fleet, and what it says below a pull request's verdict. Skipped with a message where lwp, git,
//! a compiler or curl are missing; `LWP` names the lwp to take.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

#[path = "shared/http.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod http;

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
        let mut command = Command::new("sh");
        command.args(["-e", "-c", script]).current_dir(self.dir.path()).env("PATH", &self.path);
        command.env("LWP_DIRECTORY", self.dir.path().join(".lwp-gate")).stdin(Stdio::null());
        for name in
            ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"]
        {
            command.env(name, "a@b");
        }
        command.envs(more.iter().copied()).output().expect("sh starts")
    }

    /// A commit of the program, recorded and sent as the action does it.
    #[track_caller]
    fn commit(&self, work: u32, fleet: &str, more: &[(&str, &str)]) -> String {
        let steps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/action");
        let source = format!(
            "__attribute__((noinline)) int work(int n) {{ volatile int s = 0; while (n--) s += n; return s; }}\nint main(void) {{ return work({work}) == 1; }}\n"
        );
        std::fs::write(self.dir.path().join("w.c"), source).unwrap();
        let script = format!(
            "git add w.c; git commit -q --allow-empty -m x; cc -O1 -g -o w w.c; mkdir -p .lwp-gate; echo '### gate' > .lwp-gate/comment.md; sh {0}/record.sh; sh {0}/fleet.sh",
            steps.display()
        );
        let given =
            [("BENCHMARKS", "small: ./w\nbig/one: ./w x\n"), ("FLEET", fleet), ("EVENT", "push")];
        let output = self.shell(&script, &[&given, more].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}{error}");
        said
    }
}

#[test]
fn recordings_go_to_a_store_and_a_change_is_compared_with_its_nearest_ancestor() {
    let Some(tree) = Tree::new() else { return };
    let store = tree.dir.path().join("store");
    let fleet = store.to_str().unwrap();
    let begun = tree.shell("git init -q -b main .; lwp fleet init --store store", &[]);
    assert!(begun.status.success(), "{}", String::from_utf8_lossy(&begun.stderr));
    tree.commit(100_000, fleet, &[]);
    tree.shell("git update-ref refs/remotes/origin/main HEAD; git checkout -q -b topic", &[]);
    tree.commit(150_000, fleet, &[("EVENT", "pull_request"), ("BASE_REF", "main")]);
    let comment = std::fs::read_to_string(tree.dir.path().join(".lwp-gate/comment.md")).unwrap();
    assert!(comment.starts_with("### gate\n\n### lwp: 2 of 2 benchmarks changed"), "{comment}");
    assert!(comment.contains("| big/one | ") && comment.contains("work (w)"), "{comment}");
}

#[test]
fn recordings_go_to_a_server_without_any_other_program_of_the_fleet() {
    let Some(tree) = Tree::new() else { return };
    let store = tree.dir.path().join("store");
    tree.shell("git init -q -b main .; lwp fleet init --store store; rm bin/lwp-fleet", &[]);
    let server = Served::start(&store, &[]);
    let url = format!("http://{}/", server.address);
    let said = tree.commit(1000, &url, &[("LWP_FLEET_TOKEN", &server.secret)]);
    assert_eq!(said.matches("\"new\":true").count(), 2, "{said}");
    let question = b"select benchmark from recordings order by 1";
    let (_, _, body) = server.ask("POST", "/v1/sql", question);
    assert_eq!(body.trim(), r#"[{"benchmark":"big/one"},{"benchmark":"small"}]"#);
    // Without a token nothing is sent, and the step says so.
    let refused = tree.shell(
        &format!("sh {}/../../packaging/action/fleet.sh", env!("CARGO_MANIFEST_DIR")),
        &[("FLEET", &url), ("LWP_FLEET_TOKEN", "wrong"), ("EVENT", "push")],
    );
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stdout).contains("was not sent"));
}

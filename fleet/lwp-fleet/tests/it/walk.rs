//! The walk of docs/fleet.md, from an empty directory to a step found, with recordings that lwp makes. Skipped with a message where
//! there is no lwp, compiler or git; `LWP` names the lwp to take.
//!
//! Promise: FL8
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

use crate::shared::recorder;

use std::process::{Command, Stdio};

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The first block of a language behind the mark, and the text block behind it.
fn walk() -> (String, String) {
    let text = include_str!("../../../../docs/fleet.md");
    let (_, behind) = text.split_once("<!-- walk:").expect("a mark");
    let (_, behind) = behind.split_once("```sh no-run\n").expect("commands");
    let (commands, behind) = behind.split_once("```").expect("an end");
    let (_, behind) = behind.split_once("```text\n").expect("output");
    let (output, _) = behind.split_once("```").expect("an end");
    (commands.to_owned(), output.to_owned())
}

#[test]
fn the_walk_of_the_chapter_finds_its_step_in_ten_commands() {
    let Some(recorder) = recorder::Recorder::find() else { return };
    if let Some(missing) = ["cc", "git"].into_iter().find(|tool| !has(tool)) {
        eprintln!("skipped: no {missing}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = recorder.path_in(dir.path());
    let (commands, wanted) = walk();
    assert_eq!(commands.lines().count(), 10);
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let names = [
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@b"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@b"),
    ];
    let output = Command::new("sh")
        .args(["-e", "-c", &commands])
        .current_dir(&empty)
        .env("PATH", path)
        .envs(names)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{error}");
    for line in wanted.lines() {
        assert!(out.contains(line), "{line}\n{out}\n{error}");
    }
    // One step: that of the third commit.
    let head = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(empty.join("words"))
        .output()
        .unwrap();
    let head = String::from_utf8_lossy(&head.stdout);
    let steps: Vec<&str> = out.lines().filter(|line| line.contains(" words words: ")).collect();
    assert_eq!(steps.len(), 1, "{out}");
    assert!(steps[0].starts_with(&head[..12]), "{out}");
}

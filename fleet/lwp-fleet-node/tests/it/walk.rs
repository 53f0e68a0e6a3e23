//! The commands of docs/fleet.md that start a cluster and query it, with a bucket, a scheduler and
//! two executors. Addresses of this machine stand for those of the document, and each machine is a
//! process in the background. Skipped with a message where there is no moto_server or lwp-fleet.
//!
//! Promise: FL19
#![allow(clippy::print_stderr, reason = "tests say what they skip")]
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]

use crate::shared::bucket;
use crate::shared::cluster;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bucket::Buckets;
use cluster::{Stored, lwp_fleet};

/// The time after which something hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// The blocks of commands that start machines, and that query them.
fn blocks() -> [String; 2] {
    let text = include_str!("../../../../docs/fleet.md");
    let (_, behind) = text.split_once("## Past one machine").expect("a chapter");
    let mut blocks = behind.split("```sh no-run\n").skip(1);
    [(); 2].map(|()| {
        let block = blocks.next().expect("commands");
        block.split_once("```").expect("an end").0.to_owned()
    })
}

/// A shell with everything that it has started; all of it ends with the test.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

/// The script of the walk: queries are answered by the client, and then by the machines.
fn script(addresses: &str) -> String {
    let [start, ask] = blocks().map(|block| {
        let block = block.replace("10.0.0.", addresses);
        block.replace("s3://perf/lwp", "s3://bucket/some/store")
    });
    let mut lines = vec!["lwp() { shift; lwp-fleet \"$@\"; }".to_owned()];
    for line in start.lines().filter(|line| !line.starts_with("cargo install")) {
        let is_machine = line.starts_with("lwp-fleet-node");
        let line = line.split("  #").next().unwrap_or(line);
        lines.push(if is_machine { format!("{line} 2>> said &") } else { line.to_owned() });
        if line.contains(" executor ") {
            // "On each machine".
            let second = format!("{addresses}3:");
            lines.push(format!("{} 2>> said &", line.replace(&format!("{addresses}2:"), &second)));
        }
    }
    lines.push("until [ $(grep -c 'is here' said) = 2 ]; do sleep 0.1; done".to_owned());
    for line in ask.lines() {
        lines.push(line.to_owned());
    }
    lines.push("echo by the machines:".to_owned());
    for line in ask.lines().filter(|line| line.contains("--cluster")) {
        lines.push(line.replace("--cluster ", "--cluster-from 0 --cluster "));
    }
    lines.join("\n")
}

#[test]
fn the_commands_of_the_chapter_start_a_cluster_of_a_bucket_and_query_it() {
    let Some(program) = lwp_fleet() else {
        eprintln!("skipped: lwp-fleet was not built");
        return;
    };
    let Some(buckets) = Buckets::start() else { return };
    let stored = Stored::new(20);
    buckets.copy(&stored.path(), "some/store");
    // All of 127.0.0.0/8 is this machine, and no other test listens there.
    let addresses =
        format!("127.{}.{}.", 1 + std::process::id() / 250 % 250, 1 + std::process::id() % 250);
    let path = std::env::var("PATH").unwrap_or_default();
    let beside = program.parent().expect("a directory").display().to_string();
    let out = stored.dir.path().join("out");
    let mut shell = Command::new("bash");
    shell.args(["-e", "-c", &script(&addresses)]).current_dir(stored.dir.path());
    shell.env("PATH", format!("{beside}:{path}"));
    shell.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", buckets.port));
    shell.envs([("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")]);
    shell.env("AWS_REGION", "us-east-1").stdin(Stdio::null()).process_group(0);
    shell.stdout(std::fs::File::create(&out).unwrap());
    let mut shell = Shell(shell.spawn().expect("bash starts"));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = shell.0.try_wait().unwrap() {
            break status;
        }
        assert!(begun.elapsed() < PATIENCE, "it hangs: {}", said(&stored));
        std::thread::sleep(Duration::from_millis(50));
    };
    let out = std::fs::read_to_string(out).unwrap();
    assert!(status.success(), "{out}{}", said(&stored));
    let (alone, machines) = out.split_once("by the machines:\n").expect("both");
    assert_eq!(sorted(alone), sorted(machines));
    let steps = alone.matches("\n    after ").count();
    assert!(steps > 0 && alone.contains("sum(recordings.instructions)"), "{alone}");
}

/// The lines of answers: queries without an order have their rows in any.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The words of the machines.
fn said(stored: &Stored) -> String {
    std::fs::read_to_string(stored.dir.path().join("said")).unwrap_or_default()
}

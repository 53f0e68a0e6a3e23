//! Machines that are killed in the middle of a question: its answer is the right one, or there is an error in time.
#![allow(clippy::disallowed_methods, reason = "a test without threads has failed")]
#![allow(clippy::print_stdout, reason = "shown with a test that fails")]

use crate::shared::cluster;

use std::process::Output;
use std::time::{Duration, Instant};

use cluster::{Cluster, Stored};

/// The time in which a question ends, whatever happens.
const ENDS: Duration = Duration::from_secs(90);
/// Clusters that are disturbed at the same time.
const LANES: usize = 3;
/// A question with joins, groups and an order.
const QUESTION: [&str; 4] = [
    "sql",
    "--format",
    "csv",
    "select f.host, f.function, count(*) as n, sum(f.instructions) as i, sum(c.entered) as e, \
     rank() over (partition by f.host order by sum(f.instructions) desc, f.function) as place \
     from functions f join calls c on c.callee = f.func and c.recording = f.recording \
     join lines l on l.func = f.func and l.recording = f.recording \
     group by f.host, f.function order by f.host, place",
];

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asserts that a question ended in time, with the right answer or a temporary failure; returns true if it was answered.
#[track_caller]
fn ended_well((output, time): &(Output, Duration), truth: &str, what: &str) -> bool {
    assert!(*time < ENDS, "{what}: {time:?}: {}", error(output));
    match output.status.code() {
        Some(0) => assert_eq!(String::from_utf8_lossy(&output.stdout), truth, "{what}"),
        Some(75) => assert!(error(output).contains("help: "), "{what}: {}", error(output)),
        code => panic!("{what}: {code:?} {}", error(output)),
    }
    output.status.success()
}

/// Kills an executor some time after the question, and puts another one in its place.
fn kill_one(cluster: &mut Cluster<'_>, round: usize, after: Duration, truth: &str) -> bool {
    let victim = round % cluster.executors.len();
    let mut victim = cluster.executors.swap_remove(victim);
    let ended = cluster.disturbed(&QUESTION, || {
        std::thread::sleep(after);
        victim.child.kill().unwrap();
    });
    let what = format!("killed after {after:?}, ended after {:?}", ended.1);
    println!("{what}: {:?}", ended.0.status.code());
    cluster.add_executor();
    // Its connection ends with it; nobody waits for its silence.
    assert!(!error(&ended.0).contains("is silent"), "{what}: {}", error(&ended.0));
    ended_well(&ended, truth, &what)
}

/// Promise: FL20
#[test]
fn one_of_two_executors_may_be_killed_at_any_moment() {
    let stored = Stored::new(10);
    let truth = stored.embedded(&QUESTION);
    let kills = std::env::var("LWP_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_u32);
    let clusters: Vec<Cluster<'_>> = (0..LANES).map(|_| stored.cluster(2)).collect();
    // How long it takes undisturbed, while all of them ask.
    let whole = std::thread::scope(|scope| {
        let ask = |cluster| {
            let truth = &truth;
            scope.spawn(move || {
                let begun = Instant::now();
                assert_eq!(Cluster::ask(cluster, &QUESTION), *truth);
                begun.elapsed()
            })
        };
        let all: Vec<_> = clusters.iter().map(ask).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    });
    let answered: usize = std::thread::scope(|scope| {
        let mut lanes = Vec::new();
        for (lane, mut cluster) in clusters.into_iter().enumerate() {
            let truth = &truth;
            lanes.push(scope.spawn(move || {
                let mine = (0..kills).filter(|n| *n as usize % LANES == lane);
                let kill = |n: u32| kill_one(&mut cluster, n as usize, whole * n / kills, truth);
                mine.map(kill).filter(|answered| *answered).count()
            }));
        }
        lanes.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{answered} of {kills} answered, {whole:?} undisturbed");
    // The one that is left can do all of it.
    assert_eq!(answered, kills as usize);
}

/// Promise: FL20
#[test]
fn a_killed_scheduler_is_a_failure_in_time_and_one_that_comes_back_answers() {
    let stored = Stored::new(10);
    let truth = stored.embedded(&QUESTION);
    let mut cluster = stored.cluster(1);
    let address = cluster.scheduler.address.clone();
    let ended = {
        let pid = cluster.scheduler.child.id();
        cluster.disturbed(&QUESTION, || {
            std::thread::sleep(Duration::from_millis(900));
            kill(pid, "KILL");
        })
    };
    if !ended_well(&ended, &truth, "scheduler killed") {
        assert!(error(&ended.0).contains("the cluster does not answer"), "{}", error(&ended.0));
    }
    // The executor comes to the next one by itself.
    let scheduler = stored.start(&["scheduler", "--listen", &address, "--parts", "4"]);
    cluster.scheduler = scheduler;
    assert_eq!(cluster.ask(&QUESTION), truth);
}

/// Promise: FL20
#[test]
fn a_cluster_that_does_not_get_on_is_given_up() {
    let stored = Stored::new(10);
    let mut cluster = stored.cluster(0);
    let words = [&QUESTION[..], &["--stall", "3"]].concat();
    let ended = cluster.disturbed(&words, || ());
    assert!(!ended_well(&ended, "", "no executor"));
    assert!(error(&ended.0).contains("no part of the question was finished for 3 s"));
    // An executor that stands still has connections, and answers nothing.
    cluster.add_executor();
    let pid = cluster.executors[0].child.id();
    assert!(!cluster.ask(&QUESTION).is_empty());
    kill(pid, "STOP");
    let ended = cluster.disturbed(&words, || ());
    assert!(!ended_well(&ended, "", "a still executor"));
    kill(pid, "CONT");
    assert_eq!(cluster.ask(&QUESTION), stored.embedded(&QUESTION));
}

fn kill(pid: u32, signal: &str) {
    let done = std::process::Command::new("kill").args(["-s", signal, &pid.to_string()]).status();
    assert!(done.unwrap().success());
}

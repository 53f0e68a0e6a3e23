//! `cputrack --lwp` against the virtual CPU itself. A test program of its own: the virtual CPU
//! waits for every child of its process.
//!
//! Promise: T6

use std::process::Command;

const CPUTRACK: &str = env!("CARGO_BIN_EXE_cputrack");

/// On the virtual CPU the counts are those of the same run without this command.
#[test]
fn the_virtual_cpu_s_counts_are_its_own() {
    let events = "instructions,branches,branches-taken,conditional-branches,calls,returns";
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "300", CPUTRACK, "--lwp", "-T0", "-n", "-c", events]);
    let output = command.args(["/bin/true"]).output().unwrap();
    let row = String::from_utf8_lossy(&output.stdout);
    let numbers = row.split_whitespace().skip(3);
    let ours: Vec<u64> = numbers.map(|word| word.parse().unwrap()).collect();
    // A shell would look at the number of its parent, and count by its digits.
    let argv = vec!["/bin/true".into()];
    let mut config = lwp_vcpu::Config::launch("/bin/true".into(), argv, lwp_vcpu::Plan::Exact);
    config.program.follow_children = false;
    let counts = lwp_vcpu::run(&config, None).unwrap().counts();
    let theirs = [
        counts.instructions,
        counts.branches,
        counts.taken(),
        counts.conditional,
        counts.calls,
        counts.returns,
    ];
    assert_eq!(ours, theirs);
}

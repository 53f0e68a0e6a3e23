//! The slowest tests, each with its reason, and those that run every night only.

use std::time::Duration;

use super::binaries::Test;
use super::process::Ended;

/// As many are named.
const NAMED: usize = 30;

/// The beginning of a full name, and the reason why tests of that name take long. The first that
/// fits counts.
#[rustfmt::skip] // A table: one kind of test a line.
const REASONS: &[(&str, &str)] = &[
    ("lwp-cli::it::benches::",        "cargo compiles harnesses of others"),
    ("lwp-cli::it::harnesses::",      "cargo compiles harnesses of others"),
    ("lwp-cli::it::boundaries::",     "thousands of threads or processes"),
    ("lwp-cli::it::beginnings::",     "thousands of threads or processes"),
    ("lwp-cli::it::unnoticed::",      "thousands of threads or processes"),
    ("lwp-cli::it::cache::",          "hundreds of runs of one program"),
    ("lwp-cli::it::languages::",      "interpreters, sampled or counted several times"),
    ("lwp-cli::it::interpreters::",   "interpreters, sampled or counted several times"),
    ("lwp-cli::it::kept_samples::",   "interpreters, sampled or counted several times"),
    ("lwp-cli::it::marked::",         "the oracle steps the program"),
    ("lwp-cli::it::names::",          "compilers, linkers and packagers of debug information"),
    ("lwp-cli::it::outputs::",        "every command, with every stream closed or full"),
    ("lwp-cli::it::packaging::",      "whole walks through the action and the installer"),
    ("lwp-cli::it::",                 "many runs of the command"),
    ("lwp-tests::it::asm_random::",   "random programs, each stepped with the reference beside it"),
    ("lwp-tests::it::cachegrind::",   "cachegrind simulates the same program"),
    ("lwp-tests::it::core_dumps::",   "dumps of whole processes, read by gdb"),
    ("lwp-tests::it::counts::",       "the oracle steps the program"),
    ("lwp-tests::it::hostile::",      "hundreds of programs that no linker made"),
    ("lwp-tests::it::limits::",       "programs at their limits, and all threads stopped for them"),
    ("lwp-tests::it::programs::",     "what may race is repeated, natively and in each mode"),
    ("lwp-tests::it::real::",         "compilers, servers and runtimes, natively and in each mode"),
    ("lwp-tests::it::self_profiling::", "every record is compared with a program that is stepped"),
    ("lwp-tests::it::unprivileged::", "what may race is repeated, natively and in each mode"),
    ("lwp-dbt::it::",                 "random code, executed natively and translated"),
    ("lwp-fuzz::",                    "thousands of damaged files"),
    ("lwp-export::",                  "every format, of random recordings"),
    ("lwp-model::",                   "every state of small machines"),
    ("lwp-cpc::",                     "clients of the library, on the virtual CPU too"),
    ("lwp-capi::",                    "clients of the library, on the virtual CPU too"),
    ("lwp-pctx",                      "processes that are waited for"),
    ("cpc-tools::",                   "processes that are waited for"),
    ("lwp-vcpu::",                    "thousands of threads or processes"),
    ("lwp-fleet::",                   "stores that are killed, damaged and served"),
    ("lwp-fleet-node::",              "clusters of several processes"),
    ("lwp-",                          "random inputs"),
];

/// Tests for which the others stand by day. CONTRIBUTING.md names the reasons.
const NIGHTLY: &[&str] = &[
    "lwp-cli::it::harnesses::benchmarks_for_codspeed_s_runner_have_their_parts",
    "lwp-tests::it::real::build_a_crate_with_cargo",
    "lwp-tests::it::real::java_from_source",
];

/// Returns whether a test runs every night only.
pub fn is_nightly(name: &str) -> bool {
    NIGHTLY.contains(&name)
}

fn reason(name: &str) -> &'static str {
    let row = REASONS.iter().find(|(begin, _)| name.starts_with(begin));
    row.map_or("no reason is known", |(_, reason)| reason)
}

/// Prints the slowest tests: time by the clock, processor time, name, reason.
pub fn print(ended: &[(&Test<'_>, Ended)]) {
    let mut slowest: Vec<_> = ended.iter().collect();
    slowest.sort_by_key(|(_, result)| std::cmp::Reverse(result.elapsed));
    let all: Duration = ended.iter().map(|(_, result)| result.elapsed).sum();
    let processor: Duration = ended.iter().map(|(_, result)| result.processor).sum();
    println!(
        "{} tests: {:.0} s one by one, {:.0} s of processor time; the slowest:",
        ended.len(),
        all.as_secs_f64(),
        processor.as_secs_f64()
    );
    for (test, result) in slowest.into_iter().take(NAMED) {
        let name = test.full_name();
        let (elapsed, used) = (result.elapsed.as_secs_f64(), result.processor.as_secs_f64());
        println!("{elapsed:7.1} s {used:7.1} s  {name}  ({})", reason(&name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_slow_test_has_a_reason() {
        assert!(REASONS.iter().all(|(begin, reason)| begin.contains('-') && !reason.is_empty()));
        assert_eq!(reason("lwp-tests::it::counts::hello"), "the oracle steps the program");
        assert_eq!(reason("no-such-package::test"), "no reason is known");
    }

    #[test]
    fn tests_of_the_night_exist() {
        for name in NIGHTLY {
            let [package, .., module, test] = name.split("::").collect::<Vec<_>>()[..] else {
                panic!("{name}")
            };
            let folder =
                if package == "lwp-tests" { "tests".into() } else { format!("crates/{package}") };
            let file = crate::workspace::root().join(folder).join(format!("tests/it/{module}.rs"));
            let text = std::fs::read_to_string(&file).expect("a file of tests");
            assert!(text.contains(&format!("fn {test}()")), "{name}");
        }
    }
}

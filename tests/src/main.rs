//! Builds test programs and prints where they are, to run one by hand: `lwp-corpus
//! [GROUP/NAME]...`; or prints the assembly of a random case: `lwp-corpus random NUMBER`, or
//! `random-clocks` or `random-models`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "tests say what they skip, and why")]

use lwp_tests::asm_random::{Events, random_program};
use lwp_tests::{compile, source_files};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let events = match wanted.first().map(String::as_str) {
        Some("random") => Some(Events::Facts),
        Some("random-clocks") => Some(Events::Clocks),
        Some("random-models") => Some(Events::Modelled),
        _ => None,
    };
    if let Some(events) = events {
        let number =
            wanted.get(1).and_then(|text| text.parse().ok()).expect("the number of a case");
        print!("{}", random_program(events, number, 1));
        return;
    }
    let names = source_files();
    for name in &wanted {
        assert!(names.contains(name), "no test program {name}");
    }
    for name in names.iter().filter(|n| wanted.is_empty() || wanted.contains(n)) {
        for executable in compile(name) {
            println!("{name} {} {}", executable.variant.name(), executable.path.display());
        }
    }
}

//! Builds test programs and prints where they are, to run one by hand: `lwp-corpus [GROUP/NAME]...`.

use lwp_tests::{compile, source_files};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
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

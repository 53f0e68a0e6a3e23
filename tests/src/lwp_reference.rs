//! `lwp-reference [OPTION]... -- PROGRAM [ARGUMENT]...`: runs a native program step by step with
//! the reference LWP unit beside it, and ends as it does; 125 is a failure of its own.
#![forbid(unsafe_code)]

use clap::Parser;
use lwp_reference::{End, Options, run};
use rustix::process::{Signal, getpid, kill_process};

#[allow(clippy::print_stderr, reason = "the oracle is a tool of tests")]
fn main() {
    let code = match run(&Options::parse()) {
        Ok(End::Code(code)) => code,
        Ok(End::Signal { signal, .. }) => {
            if let Some(signal) = Signal::from_named_raw(signal) {
                // The first SIGSEGV only resets the handler that the language's runtime has for it.
                for _ in 0..2 {
                    let _ = kill_process(getpid(), signal);
                }
            }
            128 + signal
        }
        Err(error) => {
            eprintln!("lwp-reference: {error}");
            125
        }
    };
    std::process::exit(code);
}

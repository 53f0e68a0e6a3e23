//! Prints what happens to a program, its threads and its children.
//!
//!     cargo run --example follow -- sh -c 'ls | wc -l'
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example is short")]

use std::ffi::OsString;
use std::process::ExitStatus;

use pctx::{Error, Flow, Handlers, LwpId, Pctx, Pid};

struct Printer;

impl Handlers for Printer {
    fn lwp_create(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        println!("{}: thread {} starts", pctx.pid(), lwp);
        Flow::Continue
    }

    fn lwp_exit(&mut self, pctx: &Pctx, lwp: LwpId) -> Flow {
        println!("{}: thread {} ends", pctx.pid(), lwp);
        Flow::Continue
    }

    fn follows_exec(&self) -> bool {
        true
    }

    fn exec(&mut self, pctx: &Pctx, _: LwpId, command: &str) -> Flow {
        println!("{}: executes {command}", pctx.pid());
        Flow::Continue
    }

    fn follows_forks(&self) -> bool {
        true
    }

    /// Called in a copy of this process.
    fn fork(&mut self, child: Pctx, parent: Pid, _: LwpId) {
        println!("{}: is a child of {parent}", child.pid());
        if let Err(error) = child.run(None, None, self) {
            eprintln!("{}: {error}", child.pid());
        }
        child.copies().wait();
    }

    fn not_followed(&mut self, _: &Pctx, child: Pid, error: &Error) {
        eprintln!("{child}: not followed: {error}");
    }

    fn exit(&mut self, pctx: &Pctx, _: LwpId, status: ExitStatus) {
        println!("{}: {}", pctx.pid(), status);
    }
}

fn main() -> Result<(), Error> {
    let argv: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some(program) = argv.first() else {
        eprintln!("usage: follow PROGRAM [ARGUMENT...]");
        return Ok(());
    };
    let pctx = Pctx::create(program, &argv)?;
    pctx.run(None, None, &mut Printer)?;
    pctx.copies().wait();
    Ok(())
}

//! `lwp run`: the program on the virtual CPU, uncounted.

use std::io::Write;
use std::sync::Arc;

use lwp_terminal::escape::printable;
use lwp_vcpu::Plan;

use crate::args::RunArgs;
use crate::ending::Ending;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::program;
use crate::requests::Requests;
use crate::signals::{self, Program};
use crate::stat::report;

/// Runs the program and ends as it does.
pub fn execute(args: &RunArgs) -> Result<Ending, Failure> {
    let mut config = args.machine.config(program::launch(&args.command)?, Plan::Plain);
    config.reports.fold = true;
    config.program.lets_go = [true; 2];
    let engine = Engine::choose(&config)?;
    let requests = Arc::new(Requests::default());
    let control = requests.connect();
    signals::answer(requests, Program::Launched)?;
    engine.warn(&config);
    let outcome = engine.run(&config, control, None)?;
    let native = outcome.processes.iter().filter(|process| process.ran_natively());
    for process in native.filter_map(report::uncounted) {
        lwp_terminal::say!("lwp: not on the virtual CPU: {}", printable(&process));
    }
    if args.machine.verbose
        && let Some(remark) = outcome.alone.remark()
    {
        // Where nobody reads it there is nothing to be done.
        let _ = writeln!(std::io::stderr(), "lwp: {remark}");
    }
    Ok(outcome.status.into())
}

//! What `stat` and `record` have in common: which program is counted, and from when on.

use std::ffi::OsString;
use std::time::Duration;

use lwp_vcpu::config::Request;
use lwp_vcpu::{Config, Plan, Target};

use crate::args::{MachineArgs, usage_error};
use crate::failure::Failure;
use crate::program;
use crate::requests::Requests;

/// A program to be counted, as its command line says.
#[derive(Clone, Copy, Debug)]
pub struct Counting<'a> {
    /// The processor and its surroundings.
    pub machine: &'a MachineArgs,
    /// A process to attach to, instead of the command.
    pub pid: Option<i32>,
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// Milliseconds to wait before counting; -1 waits for a request.
    pub delay: Option<i64>,
    /// Children are not counted.
    pub no_inherit: bool,
    /// Translate for counting, or for sampling, which counts by itself.
    pub plan: Plan,
}

impl Counting<'_> {
    /// The configuration of the run.
    pub fn configuration(&self) -> Result<Config, Failure> {
        if self.delay.is_some_and(|delay| delay < -1) {
            return Err(usage_error(
                "the delay is negative",
                "give milliseconds, or -1 to wait for --control",
            ));
        }
        let target = match self.pid {
            Some(pid) => Target::Attach { pid },
            None => program::launch(self.command)?,
        };
        let mut config = self.machine.config(target, self.plan);
        config.follow_children = !self.no_inherit;
        config.start_enabled = self.delay.is_none();
        if self.pid.is_some() {
            config.timeout = None;
        }
        Ok(config)
    }

    /// Starts the clocks of `--delay` and, when attached, of `--timeout`: a launched program's timeout is
    /// the virtual CPU's business, because it ends the program.
    pub fn schedule(&self, requests: &Requests) {
        let delay = self.delay.and_then(|ms| u64::try_from(ms).ok());
        let stop = self.machine.timeout().filter(|_| self.pid.is_some());
        let times = [(delay.map(Duration::from_millis), Request::Enable), (stop, Request::Stop)];
        for (time, request) in times {
            if let (Some(time), Some(sender)) = (time, requests.current()) {
                std::thread::spawn(move || {
                    std::thread::sleep(time);
                    let _ = sender.send(request);
                });
            }
        }
    }
}

//! Requests to the run (`--control`), and the threads that wait until their request has taken
//! effect.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use lwp_process::Tid;
use lwp_process::regs::Regs;
use lwp_run::config::{Request, Target};

use super::stopped_work::go_on;
use super::{Handled, SIGTERM, Tracer, passed_signals};
use crate::machine::Machine;
use crate::server::lock;

/// The longest time that a program's command may take. The reader of the commands is gone or held
/// up if it takes longer: then nobody waits any more.
const LONGEST: Duration = Duration::from_secs(1);

/// A thread that stands still.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    tid: Tid,
    /// The registers with which it goes on.
    app: Regs,
    /// The number of its commands that have not been heard of.
    commands: usize,
}

/// Leaves a thread, which stands still, so until as many commands have been heard.
pub fn hold(machine: &mut Machine, tid: Tid, app: &Regs, commands: usize) -> Handled {
    machine.tracees.set_regs(tid, app)?;
    machine.line.held.push_back(Held { tid, app: *app, commands });
    Ok(())
}

impl Tracer<'_> {
    /// Lets requests take effect, and threads go on that have waited for that.
    pub fn requests(&mut self) {
        let attached = matches!(lock(self.machine).config.target, Target::Attach { .. });
        let mut detach = false;
        loop {
            self.release();
            let Some(request) = self.next_request() else { break };
            let Some(control) = &self.control else { break };
            match request {
                Request::Enable => lock(self.machine).counting().set_enabled(true),
                Request::Disable => lock(self.machine).counting().set_enabled(false),
                Request::Heard => self.heard += 1,
                Request::Stop if attached => detach = true,
                Request::Stop => {
                    let _ = lock(self.machine).tracees.kill(self.first, SIGTERM);
                }
                Request::Signal(_) if attached => {}
                Request::Signal(info) => {
                    passed_signals::pass_on(&mut lock(self.machine), self.first, info);
                }
                Request::Report => {
                    if let Some(reports) = &control.reports {
                        let _ = reports.send(lock(self.machine).counting().so_far());
                    }
                }
            }
            let _ = control.done.send(request);
        }
        if detach {
            self.detach_all();
        }
    }

    /// The next request, which is waited for where a thread waits for it.
    fn next_request(&mut self) -> Option<Request> {
        let waited_for = !lock(self.machine).line.held.is_empty();
        let control = self.control.as_ref()?;
        if !waited_for {
            return control.requests.try_recv().ok();
        }
        match control.requests.recv_timeout(LONGEST) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                lock(self.machine).config.counted.control_line = None;
                self.release();
                None
            }
        }
    }

    /// Lets threads go on whose commands have been heard; all, where nobody hears them.
    fn release(&mut self) {
        let mut machine = lock(self.machine);
        let deaf = self.control.is_none() || machine.config.counted.control_line.is_none();
        while let Some(held) = machine.line.held.front_mut() {
            let heard = held.commands.min(self.heard);
            self.heard -= heard;
            held.commands -= heard;
            if held.commands > 0 && !deaf {
                break;
            }
            let Held { tid, app, .. } = *held;
            machine.line.held.pop_front();
            // One that is gone reports its end by itself.
            if machine.tasks.threads.contains_key(&tid) {
                let _ = go_on(&mut machine, tid, &app);
            }
        }
    }
}

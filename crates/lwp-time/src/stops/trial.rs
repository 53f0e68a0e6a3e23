//! What a stop costs the thread that is stopped, as tried on a process of lwp's own.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::time::{Duration, Instant};

use lwp_perf::{Linux, Modes, Trap};
use lwp_process::sys::{self, Errno};
use lwp_process::{Stop, Tracee};

use super::bell::{Bell, soon};
use super::priority::Raised;
use super::thread::Stood;
use crate::cost::{CostOfSample, median, pauses_with, watch_clock};
use crate::{Error, now_ns};

/// The time that the trial takes: on a busy machine stops come late.
const DURATION_NS: u64 = 120_000_000;
/// The time between two stops.
const BETWEEN: Duration = Duration::from_micros(300);
/// The trial is given up after this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// No stop is shorter: the thread loses its processor and gets one again.
const LEAST_NS: u64 = 4_000;
/// The most pauses that are told: they fit into a pipe that nobody reads yet.
const MOST: usize = 4000;

/// The samples that are tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    /// Bytes of a stack that are read; 0 if stacks are left out.
    pub stack_bytes: usize,
    /// Events of the kernel's clock stop the process, in these modes, and not lwp.
    pub traps: Option<Modes>,
}

/// Pieces of an interpreter's memory that are read for a sample: most need fewer.
const PIECES: usize = 32;

/// Stops a process of lwp's own again and again, which looks at the clock meanwhile, and takes the
/// samples that a program's threads would be stopped for.
///
/// # Errors
///
/// [`Error::NoStops`] if ptrace(2) is refused, [`Error::NoTraps`] if the kernel has no such events.
pub(crate) fn measure(trial: Trial) -> Result<CostOfSample, Error> {
    let call = |what| move |errno: Errno| Error::call(what, errno);
    let (reader, writer) =
        pipe().map_err(|error| call("pipe")(Errno(error.raw_os_error().unwrap_or(0))))?;
    let Some(pid) = sys::fork_controller().map_err(call("fork"))? else { tell(writer) };
    drop(writer);
    let _priority = Raised::begin();
    let stops = match trial.traps {
        Some(modes) => stop_by_events(pid, trial.stack_bytes, modes),
        None => stop_again_and_again(pid, trial.stack_bytes).map_err(Error::NoStops),
    };
    if stops.is_err() {
        let _ = sys::kill(pid, libc::SIGKILL);
        let _ = sys::wait_one(pid);
    }
    let times = stops?;
    Ok(CostOfSample::of(median(pauses_with(&pauses(reader), &times))))
}

/// The process that is stopped: tells the beginnings and ends of its pauses.
fn tell(mut writer: PipeWriter) -> ! {
    let pauses = watch_clock(DURATION_NS);
    let long = pauses.iter().filter(|(start, end)| end - start >= LEAST_NS);
    let words = long.take(MOST).flat_map(|(start, end)| [*start, *end]);
    let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
    let _ = writer.write_all(&bytes);
    sys::exit_controller(0)
}

fn pauses(mut reader: PipeReader) -> Vec<(u64, u64)> {
    let mut bytes = Vec::new();
    let _ = reader.read_to_end(&mut bytes);
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    bytes.chunks_exact(16).map(|pair| (word(&pair[..8]), word(&pair[8..]))).collect()
}

/// Times at which the process stood.
fn stop_again_and_again(pid: i32, stack_bytes: usize) -> Result<Vec<u64>, Errno> {
    sys::seize(pid, 0)?;
    let start = Instant::now();
    let mut times = Vec::new();
    loop {
        std::thread::sleep(BETWEEN);
        // One that has ended is waited for all the same.
        let _ = sys::interrupt(pid);
        let status = match soon(|| sys::wait_now(pid).transpose()) {
            Some(status) => status?,
            None => sys::wait_one(pid)?,
        };
        match Stop::from_status(status) {
            Stop::Exited(_) | Stop::Killed { .. } => return Ok(times),
            stop => {
                times.push(now_ns());
                let _ = Stood::look(pid, stop, stack_bytes);
                let _ = Tracee(pid).cont(0);
            }
        }
        if start.elapsed() > PATIENCE {
            return Err(Errno(libc::ETIMEDOUT));
        }
    }
}

/// Times at which events stopped the process, each as long as a sample of an interpreter takes.
fn stop_by_events(pid: i32, stack_bytes: usize, modes: Modes) -> Result<Vec<u64>, Error> {
    let bell = Bell::new().map_err(|errno| Error::call("listening for stops", errno))?;
    sys::seize(pid, 0).map_err(Error::NoStops)?;
    let period = u64::try_from(BETWEEN.as_nanos()).unwrap_or(u64::MAX);
    let trap = Trap::open(&Linux, pid, (&crate::clock(), period), modes);
    let trap = trap.map_err(Error::NoTraps)?;
    let start = Instant::now();
    let mut times = Vec::new();
    loop {
        bell.wait(PATIENCE);
        while let Some(status) = sys::wait_now(pid).map_err(Error::NoStops)? {
            match Stop::from_status(status) {
                Stop::Exited(_) | Stop::Killed { .. } => return Ok(times),
                stop => {
                    times.push(now_ns());
                    take_sample(pid, stack_bytes);
                    let _ = Tracee(pid).cont(unasked(stop));
                }
            }
        }
        if start.elapsed() > PATIENCE {
            drop(trap);
            return Err(Error::NoStops(Errno(libc::ETIMEDOUT)));
        }
    }
}

/// The signal that the process is to get after a stop.
fn unasked(stop: Stop) -> i32 {
    match stop {
        Stop::Signal(libc::SIGTRAP) => 0,
        Stop::Signal(signal) => signal,
        _ => 0,
    }
}

/// Reads what a sample of an interpreter's thread takes.
fn take_sample(pid: i32, stack_bytes: usize) {
    let Some(stood) = Stood::at_rest(pid, stack_bytes) else { return };
    let sp = stood.registers().map_or(0, |registers| registers[7]);
    let starts: Vec<u64> = (0..PIECES as u64).map(|at| sp + 64 * at).collect();
    let mut pieces = vec![[0; 1024]; PIECES];
    sys::read_pieces(pid, &starts, &mut pieces);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_costs_time() {
        for traps in [None, Some(Modes::USER)] {
            match measure(Trial { stack_bytes: 16 << 10, traps }) {
                Ok(cost) => assert!(cost.ns().is_none_or(|ns| ns > 1_000), "{cost:?}"),
                Err(Error::NoStops(_)) => eprintln!("skipped: ptrace is refused here"),
                Err(Error::NoTraps(_)) => eprintln!("skipped: there are no such events here"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

//! The control line of `--control`: another program switches counting on and off.
//!
//! The protocol is perf's: commands end with a newline or a zero byte; `enable`, `disable` and
//! `ping` are answered with [`ACK`] once they have taken effect, `stop` ends the run, and anything
//! else is reported and not answered.
//!
//! Promise: I4

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use lwp_terminal::escape::printable;
use lwp_vcpu::config::{ControlLine, Request};

mod line;

use line::{Command, next_line, understand};

use crate::args::usage_error;
use crate::failure::Failure;
use crate::requests::Requests;
use crate::threads;

/// The answer to a command, with the zero byte that perf sends too.
const ACK: &[u8] = b"ack\n\0";

/// Paths of the control line.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    commands: PathBuf,
    acknowledgements: Option<PathBuf>,
    fifo: bool,
}

/// Opens the control line described by `text` and serves it until lwp ends. Returns the file from
/// which commands come.
pub fn serve(text: &str, requests: Arc<Requests>) -> Result<ControlLine, Failure> {
    let place = parse(text)?;
    let commands = open(&place.commands, place.fifo, false)?;
    let file = commands.metadata();
    let file = file.map_err(|error| Failure::io(place.commands.display(), &error))?;
    let mut acknowledgements =
        place.acknowledgements.map(|path| open(&path, place.fifo, true)).transpose()?;
    threads::start("lwp-control", move || {
        if let Err(error) = answer(commands, &mut acknowledgements, &requests) {
            lwp_terminal::say!("lwp: control line: {error}");
        }
    })?;
    Ok(ControlLine { device: file.dev(), inode: file.ino() })
}

/// Parses `fd:CTL[,ACK]` or `fifo:CTL[,ACK]`.
///
/// A descriptor is reached through `/proc/self/fd`: opening it anew shares the pipe but not the
/// descriptor, which stays the program's to inherit.
fn parse(text: &str) -> Result<Place, Failure> {
    let form = || {
        usage_error(
            format!("invalid control line '{text}'"),
            "write fd:CTL[,ACK] with open descriptors, or fifo:CTL[,ACK] with names of fifos",
        )
    };
    let (kind, places) = text.split_once(':').ok_or_else(form)?;
    let (first, second) = match places.split_once(',') {
        Some((first, second)) => (first, Some(second)),
        None => (places, None),
    };
    let fifo = match kind {
        "fifo" => true,
        "fd" => false,
        _ => return Err(form()),
    };
    let path = |place: &str| {
        if place.is_empty() {
            return Err(form());
        }
        if fifo {
            return Ok(PathBuf::from(place));
        }
        let descriptor: u32 = place.parse().map_err(|_| form())?;
        Ok(PathBuf::from(format!("/proc/self/fd/{descriptor}")))
    };
    Ok(Place { commands: path(first)?, acknowledgements: second.map(path).transpose()?, fifo })
}

/// Opens one end. A fifo is opened both ways, so that this does not wait for a peer and a departing
/// peer does not end the line.
fn open(path: &std::path::Path, fifo: bool, write: bool) -> Result<File, Failure> {
    let opened = OpenOptions::new().read(fifo || !write).write(fifo || write).open(path);
    opened.map_err(|error| Failure::io(path.display(), &error))
}

/// Reads commands to the end of the line and answers them.
fn answer(
    mut commands: impl Read,
    acknowledgements: &mut Option<impl Write>,
    requests: &Requests,
) -> io::Result<()> {
    while let Some(line) = next_line(&mut commands)? {
        let Some(command) = understand(&line) else {
            lwp_terminal::say!("lwp: control line: '{}' is not understood", printable(&line));
            requests.send(Request::Heard);
            continue;
        };
        match command {
            Command::Ask(request) => {
                requests.ask(request);
            }
            Command::Ping => {}
            Command::Stop => requests.stop(),
        }
        requests.send(Request::Heard);
        if let Some(acknowledgements) = acknowledgements {
            acknowledgements.write_all(ACK)?;
            acknowledgements.flush()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let place = parse("fd:10,11").unwrap();
        assert_eq!(place.commands, PathBuf::from("/proc/self/fd/10"));
        assert_eq!(place.acknowledgements, Some(PathBuf::from("/proc/self/fd/11")));
        let place = parse("fifo:ctl.fifo").unwrap();
        assert_eq!(place.commands, PathBuf::from("ctl.fifo"));
        assert_eq!(place.acknowledgements, None);
        for wrong in ["", "10", "fd:", "fd:x", "fd:1,", "pipe:3", "fifo:", "fd:-1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn commands_are_acknowledged_after_they_took_effect() {
        let requests = Requests::default();
        let control = requests.connect();
        let machine = threads::start("machine", move || {
            let mut seen = Vec::new();
            for request in &control.requests {
                seen.push(request);
                let _ = control.done.send(request);
            }
            seen
        })
        .unwrap();
        let mut acknowledgements = Some(Vec::new());
        let commands = &b"enable\nping\nfly\ndisable\nenable calls\nstop\n"[..];
        answer(commands, &mut acknowledgements, &requests).unwrap();
        requests.disconnect();
        let seen = machine.join().unwrap();
        assert_eq!(seen.iter().filter(|it| **it == Request::Heard).count(), 6);
        let others = seen.into_iter().filter(|it| *it != Request::Heard).collect::<Vec<_>>();
        assert_eq!(others, [Request::Enable, Request::Disable, Request::Stop]);
        assert_eq!(acknowledgements.unwrap(), ACK.repeat(4));
    }
}

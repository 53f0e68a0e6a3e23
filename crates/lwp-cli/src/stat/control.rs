//! The control line of `--control`: another program switches counting on and off.
//!
//! The protocol is perf's: commands end with a newline or a zero byte; `enable`, `disable` and `ping`
//! are answered with [`ACK`] once they have taken effect, `stop` ends the run, and anything else is
//! reported and not answered.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use lwp_vcpu::config::Request;

use crate::args::usage_error;
use crate::failure::Failure;
use crate::requests::Requests;

/// The answer to a command, with the zero byte that perf sends too.
const ACK: &[u8] = b"ack\n\0";

/// The longest command worth reading; anything longer is cut.
const LONGEST: usize = 256;

/// Where the control line is.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    commands: PathBuf,
    acknowledgements: Option<PathBuf>,
    fifo: bool,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Ask(Request),
    Ping,
    Stop,
}

/// Opens the control line described by `text` and serves it until lwp ends.
pub fn serve(text: &str, requests: Arc<Requests>) -> Result<(), Failure> {
    let place = parse(text)?;
    let commands = open(&place.commands, place.fifo, false)?;
    let mut acknowledgements =
        place.acknowledgements.map(|path| open(&path, place.fifo, true)).transpose()?;
    std::thread::spawn(move || {
        if let Err(error) = answer(commands, &mut acknowledgements, &requests) {
            eprintln!("lwp: control line: {error}");
        }
    });
    Ok(())
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
            eprintln!("lwp: control line: '{line}' is not understood");
            continue;
        };
        match command {
            Command::Ask(request) => {
                requests.ask(request);
            }
            Command::Ping => {}
            Command::Stop => requests.stop(),
        }
        if let Some(acknowledgements) = acknowledgements {
            acknowledgements.write_all(ACK)?;
            acknowledgements.flush()?;
        }
    }
    Ok(())
}

/// Reads up to the next newline or zero byte; `None` at the end.
fn next_line(commands: &mut impl Read) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        match commands.read(&mut byte) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => break,
            Ok(_) if matches!(byte[0], b'\n' | 0) && line.is_empty() => {}
            Ok(_) if matches!(byte[0], b'\n' | 0) => break,
            Ok(_) if line.len() < LONGEST => line.push(byte[0]),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(String::from_utf8_lossy(&line).trim().to_owned()))
}

/// The command on `line`. perf can switch one event by its name; here all are switched together, so
/// a command with a name is refused rather than half obeyed.
fn understand(line: &str) -> Option<Command> {
    match line {
        "enable" => Some(Command::Ask(Request::Enable)),
        "disable" => Some(Command::Ask(Request::Disable)),
        "ping" => Some(Command::Ping),
        "stop" => Some(Command::Stop),
        _ => None,
    }
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
    fn lines_end_with_newlines_or_zeros() {
        let mut bytes = &b"enable\n\0disable\0ping\r\nst"[..];
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut bytes).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["enable", "disable", "ping", "st"]);
    }

    #[test]
    fn commands_are_acknowledged_after_they_took_effect() {
        let requests = Requests::default();
        let control = requests.connect();
        let machine = std::thread::spawn(move || {
            let mut seen = Vec::new();
            for request in &control.requests {
                seen.push(request);
                let _ = control.done.send(request);
            }
            seen
        });
        let mut acknowledgements = Some(Vec::new());
        let commands = &b"enable\nping\nfly\ndisable\nenable calls\nstop\n"[..];
        answer(commands, &mut acknowledgements, &requests).unwrap();
        requests.disconnect();
        assert_eq!(machine.join().unwrap(), [Request::Enable, Request::Disable, Request::Stop]);
        assert_eq!(acknowledgements.unwrap(), ACK.repeat(4));
    }
}

//! The commands of a control line, as another program has written them. Nothing here knows a run.

use std::io::{self, Read};

use lwp_vcpu::config::Request;

/// The longest command worth reading; anything longer is cut.
const LONGEST: usize = 256;

/// A command on the control line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A request to the run.
    Ask(Request),
    /// Nothing but the answer.
    Ping,
    /// The end of the run.
    Stop,
}

/// Reads up to the next newline or zero byte; `None` at the end.
pub fn next_line(commands: &mut impl Read) -> io::Result<Option<String>> {
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
pub fn understand(line: &str) -> Option<Command> {
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
    fn lines_end_with_newlines_or_zeros() {
        let mut bytes = &b"enable\n\0disable\0ping\r\nst"[..];
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut bytes).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["enable", "disable", "ping", "st"]);
    }
}

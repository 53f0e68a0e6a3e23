//! The words of tests that fail, out of all that `cargo test` prints.

use std::io::{self, BufRead, BufReader, Write, stdout};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Lines between which the test harness prints the words of tests that have failed.
const BEGIN: &[u8] = b"failures:\n";
const END: &[u8] = b"test result: ";

/// The time for which output is waited for after the end: what tests have left behind may hold its
/// pipe open for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs tests.
///
/// # Errors
///
/// If one fails, with its words.
pub fn run(command: Command) -> Result<()> {
    run_to(command, stdout())
}

fn run_to(mut command: Command, to: impl Write + Send + 'static) -> Result<()> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cargo")?;
    let output = BufReader::new(child.stdout.take().context("cargo's output")?);
    let words = Arc::new(Mutex::new(Vec::new()));
    let (ended, end) = mpsc::channel();
    let kept = Arc::clone(&words);
    thread::spawn(move || ended.send(copy(output, to, &kept)));
    let status = child.wait()?;
    if let Ok(copied) = end.recv_timeout(PATIENCE) {
        copied?;
    }
    if !status.success() {
        let words = words.lock().unwrap_or_else(PoisonError::into_inner);
        bail!("{status}\n{}", String::from_utf8_lossy(&words));
    }
    Ok(())
}

/// Copies the output of tests, and adds the words of those that have failed to `words`.
fn copy(mut from: impl BufRead, mut to: impl Write, words: &Mutex<Vec<u8>>) -> io::Result<()> {
    let (mut line, mut within) = (Vec::new(), false);
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        within = (within || line == BEGIN) && !line.starts_with(END);
        if within {
            words.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&line);
        }
        line.clear();
    }
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_failed_tests_are_kept_and_all_are_copied() {
        let words = "failures:\n\n---- a stdout ----\nwhy\n\nfailures:\n    a\n\n";
        let good = "test b ... ok\ntest result: ok.\n";
        let all = format!("test a ... FAILED\n\n{words}test result: FAILED.\n{good}{words}");
        let (mut copied, kept) = (Vec::new(), Mutex::default());
        copy(all.as_bytes(), &mut copied, &kept).unwrap();
        assert_eq!(String::from_utf8(copied).unwrap(), all);
        assert_eq!(String::from_utf8(kept.into_inner().unwrap()).unwrap(), words.repeat(2));
    }

    #[test]
    fn failing_tests_fail_with_their_words() {
        let mut command = Command::new("sh");
        command.args(["-c", r"printf 'failures:\nwhy\n'; exit 101"]);
        let error = run_to(command, io::sink()).unwrap_err().to_string();
        assert!(error.contains("101") && error.contains("why"), "{error}");
        assert!(run_to(Command::new("true"), io::sink()).is_ok());
    }
}

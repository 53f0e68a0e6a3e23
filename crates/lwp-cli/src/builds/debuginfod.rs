//! Asking debuginfod servers: HTTP, done by curl, which knows the machine's proxies and
//! certificates.
//!
//! Spec: debuginfod(8) and debuginfod_find_debuginfo(3) of elfutils.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use lwp_terminal::escape::printable;

use super::Kind;

/// Servers, and those among them that have failed: nobody waits for the same one twice.
#[derive(Debug)]
pub struct Servers {
    urls: Vec<String>,
    /// Seconds in which nothing arrives before one is given up.
    patience: u64,
    /// Seconds that a file may take.
    most: Option<u64>,
    failed: Mutex<BTreeSet<String>>,
}

/// Outcome of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The file was written.
    Sent,
    /// No server has it.
    Missing,
    /// A server could not be asked.
    Failed,
}

/// The largest file that is fetched, in bytes.
const LARGEST: u64 = 4 << 30;
/// Seconds until a connection must stand.
const CONNECT: &str = "10";

impl Servers {
    /// Those of `DEBUGINFOD_URLS`, with the times of `DEBUGINFOD_TIMEOUT` (90 s) and
    /// `DEBUGINFOD_MAXTIME` (none).
    pub fn of_environment() -> Option<Self> {
        let number = |name: &str| std::env::var(name).ok()?.trim().parse::<u64>().ok();
        let urls = urls(&std::env::var("DEBUGINFOD_URLS").ok()?);
        let patience = number("DEBUGINFOD_TIMEOUT").filter(|seconds| *seconds > 0).unwrap_or(90);
        let most = number("DEBUGINFOD_MAXTIME").filter(|seconds| *seconds > 0);
        (!urls.is_empty()).then(|| Self { urls, patience, most, failed: Mutex::default() })
    }

    /// Asks for a file of the build `id`, which was at `path`, and has it written to `to`.
    pub fn fetch(&self, id: &str, kind: Kind, path: &Path, to: &Path) -> Answer {
        let mut answer = Answer::Missing;
        for url in &self.urls {
            if self.failed().contains(url) {
                answer = Answer::Failed;
                continue;
            }
            let of = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            let what = match kind {
                Kind::Executable => "this build",
                Kind::DebugInformation => "the debug information",
            };
            lwp_terminal::say!("lwp: asking {} for {what} of {}", printable(url), printable(&of));
            match self.ask(&format!("{url}/buildid/{id}/{}", kind.name()), to) {
                Ok(true) => {
                    let bytes = std::fs::metadata(to).map_or(0, |metadata| metadata.len());
                    lwp_terminal::say!("lwp: got {} KiB", bytes.div_ceil(1024));
                    return Answer::Sent;
                }
                Ok(false) => {}
                Err(why) => {
                    lwp_terminal::say!(
                        "lwp: {}: {}; lwp does not ask it again (--no-debuginfod asks no server)",
                        printable(url),
                        printable(&why)
                    );
                    self.failed().insert(url.clone());
                    answer = Answer::Failed;
                }
            }
        }
        answer
    }

    /// Says that an answer was about something else.
    pub fn say_wrong(&self, path: &Path) {
        let path = printable(&path.display().to_string());
        lwp_terminal::say!(
            "lwp: the file received for {path} is a different build, and is not used"
        );
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file to `to` and returns true if the server has it; the error says why it could
    /// not be asked.
    fn ask(&self, url: &str, to: &Path) -> Result<bool, String> {
        const HTTP: &str = "=http,https";
        let mut curl = Command::new("curl");
        curl.args(["--proto", HTTP, "--proto-redir", HTTP, "--location", "--max-redirs", "5"])
            .args(["--connect-timeout", CONNECT, "--speed-limit", "1"])
            .args(["--speed-time", &self.patience.to_string()])
            .args(["--max-filesize", &LARGEST.to_string(), "--fail", "--show-error"])
            .args(["--write-out", "%{http_code}", "--globoff"]);
        if let Some(most) = self.most {
            curl.args(["--max-time", &most.to_string()]);
        }
        curl.arg(if std::io::stderr().is_terminal() { "--progress-bar" } else { "--silent" });
        curl.arg("--output").arg(to).args(["--url", url]);
        let quiet = if std::io::stderr().is_terminal() { Stdio::inherit() } else { Stdio::piped() };
        let output = curl.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(quiet).output();
        let output = output.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "curl, which asks, is not installed".to_owned(),
            _ => format!("curl: {error}"),
        })?;
        if output.status.success() {
            return Ok(true);
        }
        match String::from_utf8_lossy(&output.stdout).trim() {
            "404" => Ok(false),
            code => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.lines().last().unwrap_or_default().trim().to_owned();
                let status = output.status.to_string();
                Err(if said.is_empty() { format!("curl: {status}, HTTP {code}") } else { said })
            }
        }
    }
}

/// The servers in a list; what is none is left out.
fn urls(list: &str) -> Vec<String> {
    let is_url = |word: &&str| word.starts_with("http://") || word.starts_with("https://");
    let words = list.split_whitespace().filter(is_url);
    words.map(|word| word.trim_end_matches('/').to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_words_that_are_addresses() {
        let list = "https://a.example/ ima:enforcing\thttp://b.example:8002//  file:///etc";
        assert_eq!(urls(list), ["https://a.example", "http://b.example:8002"]);
        assert!(urls("").is_empty());
    }
}

//! What root and nobody get at each `kernel.perf_event_paranoid`, and where calls are refused.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{Place, Table};

const PARANOIA: &str = "/proc/sys/kernel/perf_event_paranoid";
const NOBODY: u32 = 65534;

/// The setting of the machine, restored at the end.
struct Paranoia(String);

impl Paranoia {
    fn set(level: i32) -> Result<()> {
        std::fs::write(PARANOIA, level.to_string()).context("perf_event_paranoid is for root")
    }
}

impl Drop for Paranoia {
    fn drop(&mut self) {
        let _ = std::fs::write(PARANOIA, &self.0);
    }
}

/// Measures the rows. The machine's setting is another one meanwhile.
pub fn measure(lwp: &Path, dir: &Path) -> Result<String> {
    let place = Place::new(lwp, dir)?;
    chown(dir, Some(NOBODY), Some(NOBODY))?;
    std::fs::copy(lwp, dir.join("lwp"))?;
    let before = Paranoia(std::fs::read_to_string(PARANOIA)?.trim().to_owned());
    let mut table = Table::default();
    let root: [&str; 0] = [];
    let drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    for level in [-1, 0, 1, 2, 3, 4] {
        Paranoia::set(level)?;
        let rows = [("root", &root[..]), ("nobody", &drop[..])];
        for (who, before) in rows.into_iter().filter(|(who, _)| *who != "root" || level == 4) {
            let what = format!("{who}, kernel.perf_event_paranoid {level}");
            table.add(what, row(&place, before));
        }
    }
    std::mem::drop(before);
    for filter in [&["./filter"][..], &["./filter", "--no-ptrace"]] {
        let what = format!("nobody, under `{}`", filter.join(" "));
        table.add(what, row(&place, &[&drop[..], filter].concat()));
    }
    Ok(table.markdown())
}

/// What this user gets, by its own process and by the machine.
fn row(place: &Place, before: &[&str]) -> String {
    let time = ["./lwp", "record", "--time", "-o", "own.data", "--", "./timed", "0.5", "k"];
    let own = said(place, &[before, &time].concat());
    let kernel = match () {
        () if own.contains("time cannot be sampled here") => return refusal(&own),
        () if own.contains("lwp stops threads for samples instead") => "by stops, no kernel",
        () if own.contains("the kernel is not visible") => "by events, the kernel as a sum",
        () => "by events, the kernel's functions",
    };
    let off = if own.contains("# off-cpu") { "off-cpu" } else { "no off-cpu" };
    let all = ["./lwp", "record", "--time", "-q", "-o", "all.data", "-a", "--duration", "0.2"];
    let all = if said(place, &[before, &all].concat()).is_empty() { "`-a`" } else { "no `-a`" };
    format!("{kernel}, {off}, {all}")
}

fn refusal(said: &str) -> String {
    let line = said.lines().find(|line| line.contains("cannot be sampled here"));
    line.unwrap_or_default().trim_start_matches("lwp: ").to_owned()
}

/// What a command says on standard error.
fn said(place: &Place, words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(&place.dir).stdin(Stdio::null());
    command.output().map_or_else(
        |error| error.to_string(),
        |output| String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

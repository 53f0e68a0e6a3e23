//! Loops as text.

use std::fmt::Write;

use lwp_profile::{FunctionId, LocationId, Profile};
use lwp_symbols::function_name;

use super::{Loop, Loops};
use crate::beside::Estimate;
use crate::escape::printable;
use crate::number::{grouped, percent};
use crate::paint::{Paint, part};

/// The place of a loop's header in the source.
pub(super) struct Place {
    /// The function that the code belongs to, which was not inlined.
    pub function: String,
    /// The innermost source file; empty where it is not known.
    pub file: String,
    /// Its line, 0 where it is not known.
    pub line: u32,
}

impl Place {
    pub fn of(profile: &Profile, header: LocationId) -> Self {
        let location = profile.location(header);
        let frame = location.frames.first();
        Self {
            function: function_name(profile, location.function(), true),
            file: frame.map_or(String::new(), |frame| frame.file.to_string()),
            line: frame.map_or(0, |frame| frame.line),
        }
    }

    /// `file:line`, the file without its directories; empty where it is not known.
    fn in_source(&self) -> String {
        let name = self.file.rsplit('/').next().unwrap_or(&self.file);
        if self.line == 0 { String::new() } else { format!("{name}:{}", self.line) }
    }
}

/// The table, at most `limit` rows of it.
pub fn table(profile: &Profile, loops: &Loops, limit: Option<usize>, paint: Paint) -> String {
    let mut out = String::new();
    if !profile.command.is_empty() {
        let _ = writeln!(out, "# {}", printable(&profile.command));
    }
    let _ = writeln!(out, "# {} instructions, {} loops", grouped(loops.total), loops.loops.len());
    if loops.irreducible > 0 {
        let count = loops.irreducible;
        let _ =
            writeln!(out, "# {count} edges back belong to cycles with several entries: no loops");
    }
    let time = if loops.has_time() { "  ~ns/iteration      ±" } else { "" };
    let heading =
        format!("#   Self    Total       Entries     Iterations    per entry{time}  Depth  Loop");
    let _ = writeln!(out, "#\n{}", paint.heading(&heading));
    let shown = limit.unwrap_or(usize::MAX).min(loops.loops.len());
    for it in &loops.loops[..shown] {
        let place = Place::of(profile, it.header);
        let of_whole = |count: u64| percent(count as f64, loops.total);
        let own = paint.heat(part(it.own, loops.total), &format!("{:>8}", of_whole(it.own)));
        let estimate = match loops.has_time() {
            true => times(loops.per_iteration(it)),
            false => String::new(),
        };
        let _ = writeln!(
            out,
            "{own} {:>8} {:>13} {:>14} {:>12}{estimate}  {:>5}  {} {}",
            of_whole(it.all),
            grouped(it.entries),
            grouped(it.iterations),
            per_entry(it),
            it.depth,
            printable(&place.function),
            printable(&place.in_source()),
        );
    }
    if shown < loops.loops.len() {
        let _ = writeln!(out, "# {} loops not shown", loops.loops.len() - shown);
    }
    out
}

/// The loops of one function, as remarks above its listing.
pub fn brief(profile: &Profile, loops: &Loops, function: FunctionId) -> String {
    let mut out = String::new();
    for it in loops.in_function(profile, function) {
        let place = Place::of(profile, it.header);
        let indent = 2 * (it.depth - 1);
        let address = profile.location(it.header).address;
        let _ = write!(
            out,
            "# {:indent$}loop at {address:x} {}: {} entries, {} iterations",
            "",
            printable(&place.in_source()),
            grouped(it.entries),
            grouped(it.iterations),
        );
        if let Some(Estimate { ns, margin }) = loops.per_iteration(it) {
            let _ = write!(out, ", ~{ns:.2} ns each ± {margin:.0} %");
        }
        out.push('\n');
    }
    out
}

fn per_entry(it: &Loop) -> String {
    it.per_entry().map_or("-".to_owned(), |each| format!("{each:.1}"))
}

fn times(estimate: Option<Estimate>) -> String {
    match estimate {
        Some(Estimate { ns, margin }) => format!("  {ns:>13.2} {margin:>4.0} %"),
        None => format!("  {:>13} {:>6}", "-", ""),
    }
}

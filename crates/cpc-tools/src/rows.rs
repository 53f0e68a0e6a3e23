//! The columns of both commands.
//!
//! Promise: T5

use std::fmt::Write;

use lwp_terminal::escape::printable;

/// The optional columns of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The process id, where children are followed.
    pub pid: bool,
    /// Clock cycles while counting.
    pub tsc: bool,
    /// The name of the groups that rows of `cpustat` stand for instead of processors; the number of
    /// processors in each has a column too.
    pub group: Option<&'static str>,
}

/// Text behind the counts of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note<'a> {
    /// Nothing.
    None,
    /// ` # ` and this.
    Text(&'a str),
}

/// A row of `cputrack`, about one thread.
#[derive(Clone, Copy, Debug)]
pub struct TrackRow<'a> {
    /// Seconds since the start.
    pub seconds: f64,
    /// The process.
    pub pid: i32,
    /// The thread.
    pub lwp: i32,
    /// The event of the thread: `tick`, `exit` and so on.
    pub tag: &'a str,
    /// Clock cycles and counts; `None` leaves two columns blank.
    pub counts: Option<(u64, &'a [u64])>,
    /// Text behind the counts.
    pub note: Note<'a>,
}

/// A row of `cpustat`, about one processor or group.
#[derive(Clone, Copy, Debug)]
pub struct StatRow<'a> {
    /// Seconds since the start.
    pub seconds: f64,
    /// The processor or group, or how many processors there are in a total.
    pub cpu: u32,
    /// Number of processors in the group.
    pub size: u64,
    /// `tick` or `total`.
    pub tag: &'a str,
    /// Clock cycles.
    pub tsc: u64,
    /// Counts.
    pub counts: &'a [u64],
    /// Text behind the counts.
    pub note: Note<'a>,
}

impl Columns {
    /// The title of `cputrack`. `pics` are the numbers of the counters.
    pub fn track_title(self, pics: &[u32]) -> String {
        let mut text = format!("{:>7} ", "time");
        if self.pid {
            let _ = write!(text, "{:>6} ", "pid");
        }
        let _ = write!(text, "{:>3} {:>10} ", "lwp", "event");
        self.finish_title(text, pics)
    }

    /// The title of `cpustat`.
    pub fn stat_title(self, pics: &[u32]) -> String {
        let of = self.group.unwrap_or("cpu");
        let text = format!("{:>7} {of:>3} {:>5} ", "time", "event");
        self.finish_title(text, pics)
    }

    fn finish_title(self, mut text: String, pics: &[u32]) -> String {
        if self.tsc {
            let _ = write!(text, "{:>9} ", "tsc");
        }
        for pic in pics {
            let _ = write!(text, "{:>8}{pic:<2}", "pic");
        }
        if self.group.is_some() {
            text += "sze";
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }

    /// A row of `cputrack`.
    pub fn track(self, row: TrackRow<'_>) -> String {
        let mut text = format!("{:7.3} ", row.seconds);
        if self.pid {
            let _ = write!(text, "{:6} ", row.pid);
        }
        let _ = write!(text, "{:3} {:>10} ", row.lwp, row.tag);
        match row.counts {
            None => {
                let _ = write!(text, "{:9} {:9} ", "", "");
            }
            Some((tsc, counts)) => self.counts(&mut text, tsc, counts),
        }
        finish(text, row.note)
    }

    /// A row of `cpustat`.
    pub fn stat(self, row: StatRow<'_>) -> String {
        let mut text = format!("{:7.3} {:3} {:>5} ", row.seconds, row.cpu, row.tag);
        self.counts(&mut text, row.tsc, row.counts);
        if self.group.is_some() {
            let _ = write!(text, "{:3} ", row.size);
        }
        finish(text, row.note)
    }

    fn counts(self, text: &mut String, tsc: u64, counts: &[u64]) {
        if self.tsc {
            let _ = write!(text, "{tsc:9} ");
        }
        for count in counts {
            let _ = write!(text, "{count:9} ");
        }
    }
}

fn finish(mut text: String, note: Note<'_>) -> String {
    match note {
        Note::None => text.truncate(text.trim_end().len()),
        Note::Text(note) => {
            let _ = write!(text, "# {}", printable(note));
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Columns = Columns { pid: false, tsc: false, group: None };

    fn row<'a>(seconds: f64, tag: &'a str, counts: &'a [u64]) -> TrackRow<'a> {
        TrackRow { seconds, pid: 4711, lwp: 1, tag, counts: Some((99, counts)), note: Note::None }
    }

    /// The example of a run of two counters, to the column.
    #[test]
    fn cputrack_looks_as_documented() {
        let mut text = PLAIN.track_title(&[0, 1]);
        text += &PLAIN.track(row(1.004, "tick", &[81_234_567, 24_680_135]));
        text += &PLAIN.track(row(2.004, "tick", &[80_991_234, 24_601_357]));
        text += &PLAIN.track(row(2.310, "exit", &[187_002_345, 56_783_421]));
        let expected = "   time lwp      event      pic0      pic1
  1.004   1       tick  81234567  24680135
  2.004   1       tick  80991234  24601357
  2.310   1       exit 187002345  56783421
";
        assert_eq!(text, expected);
    }

    #[test]
    fn cpustat_looks_as_documented() {
        let stat = |seconds, cpu, tag, counts| {
            PLAIN.stat(StatRow { seconds, cpu, size: 1, tag, tsc: 1, counts, note: Note::None })
        };
        let mut text = PLAIN.stat_title(&[0, 1]);
        text += &stat(1.003, 0, "tick", &[51_234_511, 1_234_567]);
        text += &stat(1.003, 1, "tick", &[49_820_317, 1_190_022]);
        text += &stat(1.003, 2, "total", &[101_054_828, 2_424_589]);
        let expected = "   time cpu event      pic0      pic1
  1.003   0  tick  51234511   1234567
  1.003   1  tick  49820317   1190022
  1.003   2 total 101054828   2424589
";
        assert_eq!(text, expected);
    }

    #[test]
    fn groups_have_a_size() {
        let columns = Columns { group: Some("BIN"), ..PLAIN };
        let mut text = columns.stat_title(&[0, 1]);
        let (counts, note) = (&[51_234_511, 1_234_567][..], Note::None);
        text += &columns.stat(StatRow {
            seconds: 1.003,
            cpu: 0,
            size: 16,
            tag: "tick",
            tsc: 1,
            counts,
            note,
        });
        let expected = "   time BIN event      pic0      pic1 sze
  1.003   0  tick  51234511   1234567  16
";
        assert_eq!(text, expected);
    }

    #[test]
    fn more_columns_and_notes() {
        let all = Columns { pid: true, tsc: true, group: None };
        assert_eq!(
            all.track_title(&[0, 10]),
            "   time    pid lwp      event       tsc      pic0      pic10\n"
        );
        assert_eq!(
            all.track(row(0.5, "tick", &[7])),
            "  0.500   4711   1       tick        99         7\n"
        );
        let exec = TrackRow { counts: None, note: Note::Text("'ls -l'"), ..row(0.5, "exec", &[]) };
        assert_eq!(PLAIN.track(exec), "  0.500   1       exec                     # 'ls -l'\n");
        let several = TrackRow { note: Note::Text("cycles"), ..row(0.5, "tick", &[7]) };
        assert_eq!(PLAIN.track(several), "  0.500   1       tick         7 # cycles\n");
    }
}

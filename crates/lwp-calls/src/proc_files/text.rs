//! The texts of `/proc/PID` without what is ours.
//!
//! They are taken as bytes: names may hold any.

use lwp_mailbox::memory_map::is_ours;
use lwp_process::maps::{self, Mapping};
use rustc_hash::FxHashSet;

use crate::limits::Raised;
use crate::syscalls::nr;

const PAGE: u64 = 4096;
/// The state of a thread that runs.
pub const RUNNING: &str = "R (running)";

/// The additions of our mappings to a process's sums, in bytes, and to the lines of smaps, in kB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ours {
    /// The number of mappings.
    mappings: u64,
    /// Address space.
    bytes: u64,
    /// The start of the first mapping that is not one of them.
    first: Option<u64>,
    /// That of it which is private and may be written.
    data: u64,
    /// That of it which may be executed and not written.
    code: u64,
    /// Memory.
    resident: u64,
    /// That of it which is of no file.
    anonymous: u64,
    /// The lines of smaps.
    lines: Vec<(String, u64)>,
}

impl Ours {
    /// Adds up what is ours in the text of smaps.
    pub fn sum(smaps: &str) -> Self {
        let mut sum = Self::default();
        let mut ours = false;
        for line in smaps.lines() {
            if let Some(mapping) = maps::parse(line) {
                ours = is_ours(&mapping);
                if ours {
                    sum.add(&mapping);
                } else {
                    sum.first.get_or_insert(mapping.start);
                }
            } else if ours && let Some((name, value)) = kilobytes(line) {
                sum.add_line(name, value);
            }
        }
        sum.resident = sum.line("Rss") << 10;
        sum.anonymous = sum.line("Anonymous") << 10;
        sum
    }

    fn add(&mut self, mapping: &Mapping) {
        let bytes = mapping.end - mapping.start;
        self.mappings += 1;
        self.bytes += bytes;
        if mapping.write && !mapping.shared {
            self.data += bytes;
        }
        if mapping.execute && !mapping.write {
            self.code += bytes;
        }
    }

    fn add_line(&mut self, name: &str, value: u64) {
        match self.lines.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += value,
            None => self.lines.push((name.to_owned(), value)),
        }
    }

    fn line(&self, name: &str) -> u64 {
        self.lines.iter().find(|(known, _)| known == name).map_or(0, |(_, value)| *value)
    }
}

/// Name and value of a line such as "Rss:    12 kB".
pub(super) fn kilobytes(line: &str) -> Option<(&str, u64)> {
    let (name, value) = line.split_once(':')?;
    Some((name, value.trim().strip_suffix(" kB")?.parse().ok()?))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

/// The mapping that a line of maps or smaps begins with.
fn mapping_of(line: &[u8]) -> Option<Mapping> {
    maps::parse(String::from_utf8_lossy(line).trim_end_matches('\n'))
}

/// Maps without our mappings.
pub fn maps(text: &[u8]) -> Vec<u8> {
    let theirs = |line: &&[u8]| !mapping_of(line).is_some_and(|mapping| is_ours(&mapping));
    lines(text).filter(theirs).flatten().copied().collect()
}

/// Smaps without our mappings.
pub fn smaps(text: &[u8]) -> Vec<u8> {
    let mut ours = false;
    let mut out = Vec::with_capacity(text.len());
    for line in lines(text) {
        if let Some(mapping) = mapping_of(line) {
            ours = is_ours(&mapping);
        }
        if !ours {
            out.extend_from_slice(line);
        }
    }
    out
}

/// The mappings' policies without those of ours, which are among `mappings`.
pub fn numa_maps(text: &[u8], mappings: &[Mapping]) -> Vec<u8> {
    let ours = starts_of_ours(mappings);
    let theirs = |line: &&[u8]| {
        let line = String::from_utf8_lossy(line);
        let start = line.split(' ').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        !start.is_some_and(|start| ours.contains(&start))
    };
    lines(text).filter(theirs).flatten().copied().collect()
}

/// The addresses at which mappings of ours begin.
fn starts_of_ours(mappings: &[Mapping]) -> FxHashSet<u64> {
    mappings.iter().filter(|mapping| is_ours(mapping)).map(|mapping| mapping.start).collect()
}

/// The sums of smaps without our mappings' part in them.
pub fn rollup(text: &[u8], ours: &Ours) -> Vec<u8> {
    each_line(text, |line| {
        if let (Some((_, rest)), Some(first)) = (line.split_once('-'), ours.first)
            && line.ends_with("[rollup]\n")
        {
            return Some(format!("{first:08x}-{rest}"));
        }
        let (name, value) = kilobytes(line)?;
        let less = match name {
            // They are of this file alone.
            "Pss_Anon" => ours.line("Anonymous"),
            // Each mapping's share has been rounded by itself.
            "Pss_Shmem" => ours.mappings + ours.line("Pss").saturating_sub(ours.line("Anonymous")),
            name => ours.line(name),
        };
        Some(with_number(line, value.saturating_sub(less)))
    })
}

/// Sizes in pages: whole, resident, of that shared, code, nothing, data and stack, nothing.
pub fn statm(text: &[u8], ours: &Ours) -> Vec<u8> {
    let less = [ours.bytes, ours.resident, ours.resident - ours.anonymous, 0, 0, ours.data, 0];
    let words = String::from_utf8_lossy(text);
    let numbers = words.split_whitespace().zip(less).map(|(word, less)| {
        let pages: u64 = word.parse().unwrap_or(0);
        pages.saturating_sub(less / PAGE).to_string()
    });
    let mut out = numbers.collect::<Vec<String>>().join(" ");
    out.push('\n');
    out.into_bytes()
}

/// One line of everything. `shown` returns, for a state's letter, the state that the thread has
/// natively, where that is another one; `random` says that its layout is random without us.
pub fn stat(
    text: &[u8],
    ours: &Ours,
    random: bool,
    shown: impl Fn(&str) -> Option<&'static str>,
) -> Vec<u8> {
    /// The flag of a random layout (PF_RANDOMIZE).
    const RANDOM: u64 = 0x40_0000;
    /// Places behind the name, which may hold blanks and parentheses.
    const STATE: usize = 0;
    const FLAGS: usize = 6;
    const VSIZE: usize = 20;
    const RSS: usize = 21;
    const WAITS: usize = 32;
    let Some(end) = text.iter().rposition(|byte| *byte == b')') else { return text.to_vec() };
    let rest = String::from_utf8_lossy(&text[end + 1..]);
    let changed = |word: &str, change: &dyn Fn(u64) -> u64| {
        word.parse().map_or(word.to_owned(), |value: u64| change(value).to_string())
    };
    let less = |word: &str, less: u64| changed(word, &|value| value.saturating_sub(less));
    let state = rest.split_whitespace().next().and_then(shown);
    let words = rest.split_whitespace().enumerate().map(|(place, word)| match (place, state) {
        (STATE, Some(state)) => state[..1].to_owned(),
        (WAITS, Some(RUNNING)) => "0".to_owned(),
        (FLAGS, _) if random => changed(word, &|flags| flags | RANDOM),
        (VSIZE, _) => less(word, ours.bytes),
        (RSS, _) => less(word, ours.resident / PAGE),
        _ => word.to_owned(),
    });
    let mut out = text[..=end].to_vec();
    for word in words {
        out.push(b' ');
        out.extend(word.bytes());
    }
    out.push(b'\n');
    out
}

/// Corrects the text of a `status` file, line by line; `traced` leaves its tracer in place.
pub fn status(
    text: &[u8],
    ours: &Ours,
    shown: impl Fn(&str) -> Option<&'static str>,
    traced: bool,
) -> Vec<u8> {
    each_line(text, |line| {
        let (name, value) = line.split_once(':')?;
        let less = match name {
            "State" => return Some(format!("State:\t{}\n", shown(value.trim().get(..1)?)?)),
            "TracerPid" if !traced => return Some("TracerPid:\t0\n".to_owned()),
            "VmPeak" | "VmSize" => ours.bytes,
            "VmHWM" | "VmRSS" => ours.resident,
            "RssAnon" => ours.anonymous,
            "RssShmem" => ours.resident - ours.anonymous,
            "VmData" => ours.data,
            "VmLib" => ours.code,
            _ => return None,
        };
        let (_, value) = kilobytes(line)?;
        Some(with_number(line, value.saturating_sub(less >> 10)))
    })
}

/// Limits without what those on address space and data are raised by.
pub fn limits(text: &[u8], address_space: Raised, data: Raised) -> Vec<u8> {
    const WIDTH: usize = 21;
    let rooms = [("Max address space", address_space), ("Max data size", data)];
    each_line(text, |line| {
        let (name, raised) = rooms.into_iter().find(|(name, _)| line.starts_with(name))?;
        let mut words = line[name.len()..].split_whitespace();
        let mut less = |raised: u64| {
            let word = words.next()?;
            Some(
                word.parse()
                    .map_or(word.to_owned(), |limit: u64| limit.saturating_sub(raised).to_string()),
            )
        };
        let (soft, hard) = (less(raised[0])?, less(raised[1])?);
        Some(format!("{name:<26}{soft:<WIDTH$}{hard:<WIDTH$}bytes     \n"))
    })
}

/// Entries of map_files, as the call with this number returns them, without those of our mappings.
pub fn entries(entries: &[u8], number: u64, mappings: &[Mapping]) -> Vec<u8> {
    let (length_at, name_at) = match number {
        nr::GETDENTS => (16, 18),
        nr::GETDENTS_32 => (8, 10),
        _ => (16, 19),
    };
    let starts = starts_of_ours(mappings);
    let ours = |entry: &[u8]| {
        let name = String::from_utf8_lossy(&entry[name_at..]);
        let start = name.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        start.is_some_and(|start| starts.contains(&start))
    };
    let mut out = Vec::with_capacity(entries.len());
    let mut rest = entries;
    while rest.len() > name_at {
        let length = u16::from_le_bytes([rest[length_at], rest[length_at + 1]]);
        let length = usize::from(length).clamp(name_at, rest.len());
        let (entry, others) = rest.split_at(length);
        if !ours(entry) {
            out.extend_from_slice(entry);
        }
        rest = others;
    }
    out
}

/// Replaces lines by what `change` makes of them. What is not of characters stays.
fn each_line(text: &[u8], change: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for line in lines(text) {
        match std::str::from_utf8(line).ok().and_then(&change) {
            Some(new) => out.extend(new.bytes()),
            None => out.extend_from_slice(line),
        }
    }
    out
}

/// A line with another number, which ends where the old one did.
fn with_number(line: &str, number: u64) -> String {
    let digits = |byte: &u8| byte.is_ascii_digit();
    let end = line.bytes().rposition(|byte| digits(&byte)).map_or(0, |at| at + 1);
    let begin = line[..end].bytes().rposition(|byte| !digits(&byte)).map_or(0, |at| at + 1);
    let (before, after) = (&line[..begin], &line[end..]);
    let blanks = before.len() - before.trim_end_matches(' ').len();
    let width = blanks + end - begin;
    format!("{}{number:>width$}{after}", before.trim_end_matches(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(state: &str) -> Option<&'static str> {
        (state == "t").then_some(RUNNING)
    }
    use lwp_mailbox::memory_map::LOW;

    /// A mapping like that of a table in a huge page, and one of the program.
    fn header(ours: bool) -> String {
        let start = if ours { LOW } else { 0x10_0000 };
        let end = start + 0x10_0000;
        format!("{start:08x}-{end:08x} rw-p 00000000 00:00 0 \n")
    }

    fn smaps_text() -> String {
        let theirs =
            "Size:               1024 kB\nRss:                 100 kB\nAnonymous:   60 kB\n";
        let table =
            "Size:               1024 kB\nRss:                 512 kB\nAnonymous:  512 kB\n";
        format!("{}{theirs}{}{table}", header(false), header(true))
    }

    #[test]
    fn our_mappings_are_left_out() {
        let text = format!("{}{}", header(false), header(true));
        assert_eq!(maps(text.as_bytes()), header(false).as_bytes());
        let whole = smaps_text();
        let left = whole.split(&header(true)).next().unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&smaps(whole.as_bytes())), left);
    }

    #[test]
    fn sums_are_without_ours() {
        let ours = Ours::sum(&smaps_text());
        assert_eq!((ours.bytes, ours.data, ours.code), (1 << 20, 1 << 20, 0));
        assert_eq!((ours.resident, ours.anonymous), (512 << 10, 512 << 10));
        assert_eq!(statm(b"1000 300 20 5 0 700 0\n", &ours), b"744 172 20 5 0 444 0\n");
        let text = "Name:\ta\nState:\tt (tracing stop)\nTracerPid:\t77\nVmSize:\t    4000 kB\nVmLib:\t 5 kB\n";
        let want =
            "Name:\ta\nState:\tR (running)\nTracerPid:\t0\nVmSize:\t    2976 kB\nVmLib:\t 5 kB\n";
        assert_eq!(String::from_utf8_lossy(&status(text.as_bytes(), &ours, stopped, false)), want);
        let sums = "00100000-7fff00000000 ---p 00000000 00:00 0    [rollup]\nRss:                 612 kB\n";
        let want = "00100000-7fff00000000 ---p 00000000 00:00 0    [rollup]\nRss:                 100 kB\n";
        assert_eq!(String::from_utf8_lossy(&rollup(sums.as_bytes(), &ours)), want);
    }

    #[test]
    fn a_name_may_look_like_fields() {
        let ours = Ours { bytes: 4096, resident: 4096, ..Ours::default() };
        let fields = |state: &str, vsize: u64, rss: u64| {
            let middle = "1 ".repeat(19);
            format!("7 (a) b (c) {state} {middle}{vsize} {rss} 9\n")
        };
        let out = stat(fields("S", 8192, 5).as_bytes(), &ours, false, |_| Some(RUNNING));
        assert_eq!(String::from_utf8_lossy(&out), fields("R", 4096, 4));
        let out = stat(fields("t", 8192, 5).as_bytes(), &ours, false, |_| Some("T (stopped)"));
        assert_eq!(String::from_utf8_lossy(&out), fields("T", 4096, 4));
        let out = stat(fields("S", 8192, 5).as_bytes(), &ours, false, stopped);
        assert_eq!(String::from_utf8_lossy(&out), fields("S", 4096, 4));
    }

    #[test]
    fn a_layout_that_we_have_fixed_is_random() {
        let line = |flags: u64| format!("7 (a) 5 (b) R 1 2 3 0 -1 {flags} 9 9\n");
        let shown = stat(line(0x100).as_bytes(), &Ours::default(), true, |_| None);
        assert_eq!(String::from_utf8_lossy(&shown), line(0x40_0100));
    }

    #[test]
    fn a_raised_limit_is_shown_as_it_was_set() {
        let line = |soft: &str| {
            format!("{:<26}{soft:<21}{:<21}bytes     \n", "Max address space", "unlimited")
        };
        let text = line("15000");
        let shown = |text: &str, raised| limits(text.as_bytes(), raised, [0; 2]);
        assert_eq!(String::from_utf8_lossy(&shown(&text, [10000, 90])), line("5000"));
        assert_eq!(String::from_utf8_lossy(&shown(&text, [0; 2])), text);
        let none = line("unlimited");
        assert_eq!(String::from_utf8_lossy(&shown(&none, [10000, 90])), none);
    }

    #[test]
    fn policies_of_our_mappings_are_left_out() {
        let mappings: Vec<Mapping> =
            [false, true].map(header).iter().filter_map(|it| mapping_of(it.as_bytes())).collect();
        let line =
            |ours: bool| format!("{:08x} default anon=3\n", if ours { LOW } else { 0x10_0000 });
        let text = [line(false), line(true), "odd line\n".into()].concat();
        let shown = numa_maps(text.as_bytes(), &mappings);
        assert_eq!(String::from_utf8_lossy(&shown), [line(false), "odd line\n".into()].concat());
    }

    /// An entry of a directory, as a call with its length and its name at these places tells it.
    fn entry((length_at, name_at): (usize, usize), name: &str) -> Vec<u8> {
        let length = (name_at + name.len() + 2).next_multiple_of(8);
        let mut bytes = vec![0; length];
        bytes[length_at..length_at + 2].copy_from_slice(&(length as u16).to_le_bytes());
        bytes[name_at..name_at + name.len()].copy_from_slice(name.as_bytes());
        bytes
    }

    #[test]
    fn files_of_our_mappings_are_not_listed() {
        let mappings: Vec<Mapping> =
            [false, true].map(header).iter().filter_map(|it| mapping_of(it.as_bytes())).collect();
        for (number, at) in
            [(nr::GETDENTS, (16, 18)), (nr::GETDENTS_32, (8, 10)), (nr::GETDENTS64, (16, 19))]
        {
            let dot = entry(at, ".");
            let theirs = entry(at, &format!("{:x}-{:x}", 0x10_0000, 0x20_0000));
            let ours = entry(at, &format!("{:x}-{:x}", LOW, LOW + 0x10_0000));
            let all = [&dot[..], &ours, &theirs, &ours].concat();
            assert_eq!(entries(&all, number, &mappings), [&dot[..], &theirs].concat(), "{number}");
            assert_eq!(entries(&ours, number, &mappings), []);
            // What is cut off, or says that it has no length, ends.
            for end in 0..all.len() {
                assert!(entries(&all[..end], number, &mappings).len() <= end);
            }
            let mut endless = theirs.clone();
            endless[at.0..at.0 + 2].fill(0);
            assert!(entries(&endless, number, &mappings).len() <= endless.len());
        }
    }
}

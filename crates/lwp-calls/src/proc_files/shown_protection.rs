//! The texts of `/proc/PID` with the protection that the program has set, where pages with code are
//! guarded by another one.

use lwp_process::maps::{self, Mapping, joins, pieces};

use super::text::kilobytes;

/// Maps; `pages` are those that are protected for our sake, in order.
pub fn maps(text: &[u8], pages: &[u64]) -> Vec<u8> {
    let Some(text) = changed(text, pages) else { return text.to_vec() };
    let mut shown: Vec<(Mapping, &str)> = Vec::new();
    for line in text.lines() {
        let Some(mapping) = maps::parse(line) else { continue };
        for piece in pieces(mapping, pages) {
            match shown.last_mut().filter(|(last, _)| joins(last, &piece)) {
                Some((last, _)) => last.end = piece.end,
                None => shown.push((piece, line)),
            }
        }
    }
    shown.iter().flat_map(|(mapping, line)| with_header(mapping, line).into_bytes()).collect()
}

/// Smaps. A mapping that holds other pages too is shown as it is: nothing says how much of it is of
/// which.
pub fn smaps(text: &[u8], pages: &[u64]) -> Vec<u8> {
    let Some(text) = changed(text, pages) else { return text.to_vec() };
    let mut shown: Vec<Block> = Vec::new();
    for line in text.lines() {
        let Some(mapping) = maps::parse(line) else {
            if let Some(block) = shown.last_mut() {
                block.details.push(line.to_owned());
            }
            continue;
        };
        join_last(&mut shown);
        let whole = pieces(mapping.clone(), pages);
        let mapping = if let [piece] = &whole[..] { piece.clone() } else { mapping };
        shown.push(Block { header: line.to_owned(), mapping, details: Vec::new() });
    }
    join_last(&mut shown);
    shown.iter().flat_map(|block| block.text().into_bytes()).collect()
}

/// The text, unless no page is protected or it holds more than characters.
fn changed<'a>(text: &'a [u8], pages: &[u64]) -> Option<&'a str> {
    std::str::from_utf8(text).ok().filter(|_| !pages.is_empty())
}

/// A mapping's first line.
fn with_header(mapping: &Mapping, line: &str) -> String {
    let (_, rest) = line.split_once(' ').unwrap_or_default();
    let write = if mapping.write { "w" } else { "-" };
    let (read, rest) = (rest.get(..1).unwrap_or("-"), rest.get(2..).unwrap_or_default());
    format!("{:08x}-{:08x} {read}{write}{rest}\n", mapping.start, mapping.end)
}

/// A mapping in smaps.
#[derive(Debug)]
struct Block {
    header: String,
    mapping: Mapping,
    details: Vec<String>,
}

impl Block {
    fn text(&self) -> String {
        let mut text = with_header(&self.mapping, &self.header);
        for line in &self.details {
            let flags = line.strip_prefix("VmFlags: rd ").filter(|_| self.mapping.write);
            let missing = flags.filter(|flags| !flags.starts_with("wr "));
            match missing {
                Some(rest) => text.push_str(&format!("VmFlags: rd wr {rest}\n")),
                None => text.push_str(&format!("{line}\n")),
            }
        }
        text
    }

    /// Adds the numbers of a neighbour that is a part of the same mapping.
    fn join(&mut self, other: &Self) {
        self.mapping.end = other.mapping.end;
        for (line, more) in self.details.iter_mut().zip(&other.details) {
            if let (Some((name, a)), Some((_, b))) = (kilobytes(line), kilobytes(more))
                && !name.ends_with("PageSize")
            {
                *line = format!("{:<16}{:>8} kB", format!("{name}:"), a + b);
            }
        }
    }
}

/// Joins the last two blocks where they are parts of one mapping.
fn join_last(shown: &mut Vec<Block>) {
    let Some(last) = shown.pop() else { return };
    match shown.last_mut().filter(|before| joins(&before.mapping, &last.mapping)) {
        Some(before) => before.join(&last),
        None => shown.push(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "00001000-00002000 r-xp 00000000 00:00 0 \n\
                        00002000-00004000 rwxp 00000000 00:00 0 \n\
                        00004000-00005000 r--p 00000000 00:00 0                  [a b]\n";

    #[test]
    fn maps_show_what_the_program_has_set() {
        let want = "00001000-00004000 rwxp 00000000 00:00 0 \n\
                    00004000-00005000 r--p 00000000 00:00 0                  [a b]\n";
        assert_eq!(String::from_utf8_lossy(&maps(MAPS.as_bytes(), &[0x1000])), want);
        assert_eq!(maps(MAPS.as_bytes(), &[]), MAPS.as_bytes());
    }

    #[test]
    fn smaps_of_a_mapping_are_added_up() {
        let lines: Vec<&str> = MAPS.lines().collect();
        let details = |size: u64, flags: &str| {
            format!(
                "Size:           {size:>8} kB\nKernelPageSize:        4 kB\nVmFlags: rd {flags}\n"
            )
        };
        let text = format!(
            "{}\n{}{}\n{}{}\n{}",
            lines[0],
            details(4, "ex mr"),
            lines[1],
            details(8, "wr ex mr"),
            lines[2],
            details(4, "mr")
        );
        let want = format!(
            "00001000-00004000 rwxp 00000000 00:00 0 \n{}{}\n{}",
            details(12, "wr ex mr"),
            lines[2],
            details(4, "mr")
        );
        assert_eq!(String::from_utf8_lossy(&smaps(text.as_bytes(), &[0x1000])), want);
    }

    #[test]
    fn a_mapping_of_several_pages_of_ours_is_one() {
        let text = "00001000-00003000 r-xp 00000000 00:00 0 \nVmFlags: rd ex mr\n";
        let want = "00001000-00003000 rwxp 00000000 00:00 0 \nVmFlags: rd wr ex mr\n";
        let shown = smaps(text.as_bytes(), &[0x1000, 0x2000]);
        assert_eq!(String::from_utf8_lossy(&shown), want);
        // Who knows which of its bytes are of the page that the program has protected?
        assert_eq!(smaps(text.as_bytes(), &[0x2000]), text.as_bytes());
    }
}

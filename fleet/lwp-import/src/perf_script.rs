//! The text that `perf script` prints: a head for each sample, and its stack below, innermost
//! function first.

use std::collections::BTreeMap;

use lwp_facts::{Facts, Limits, Run, Source};

use crate::making::{Making, page, sampled};
use crate::{Error, Result};

/// The head of a sample.
#[derive(Debug, PartialEq, Eq)]
pub struct Head<'a> {
    period: u64,
    event: &'a str,
    /// The innermost function, where it stands in the same line.
    rest: &'a str,
}

/// Reads `prog 1234 [000] 12.345678: 250000 cycles:u: …`. The program's name may have spaces, and
/// any of processor, time, period and event may be missing.
pub fn head(line: &str) -> Option<Head<'_>> {
    let is_time = |token: &str| {
        let digits = token.strip_suffix(':').and_then(|token| token.split_once('.'));
        digits.is_some_and(|(a, b)| [a, b].iter().all(|part| is_number(part)))
    };
    let tokens = || line.split_whitespace();
    let is_of_stack = line.starts_with([' ', '\t']) && is_address(tokens().next()?);
    // The token's place in the line: tokens are parts of it.
    let behind =
        |token: &str| &line[token.as_ptr() as usize - line.as_ptr() as usize + token.len()..];
    if let Some(time) = tokens().find(|token| is_time(token)) {
        return event(behind(time)).filter(|_| !is_of_stack);
    }
    let is_thread = |token: &str| match token.split_once('/') {
        Some((process, thread)) => is_number(process) && is_number(thread),
        None => is_number(token),
    };
    let thread = tokens().skip(1).find(|token| is_thread(token))?;
    let mut rest = behind(thread);
    if let Some((first, more)) = token(rest).filter(|(first, _)| first.starts_with('[')) {
        let processor = first.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        rest = processor.filter(|text| is_number(text)).map(|_| more)?;
    }
    event(rest).filter(|head| !is_of_stack || head.event != NO_EVENT)
}

/// The event of a head that names none.
const NO_EVENT: &str = "samples";

/// Reads `250000 cycles:u: …`, the end of a head.
fn event(text: &str) -> Option<Head<'_>> {
    let Some((first, rest)) = token(text) else {
        return Some(Head { period: 1, event: NO_EVENT, rest: "" });
    };
    let (period, name, rest) = match first.parse::<u64>() {
        Ok(period) => match token(rest) {
            Some((name, rest)) => (period, name, rest),
            None => return Some(Head { period, event: NO_EVENT, rest: "" }),
        },
        Err(_) => (1, first, rest),
    };
    let event = name.strip_suffix(':').filter(|event| !event.is_empty())?;
    Some(Head { period, event, rest: rest.trim() })
}

/// Returns true for a line about the recording or about its processes, which perf prints if it is
/// asked to: `# hostname : a`, `prog 12 [000] 1.5: PERF_RECORD_EXIT(12:12):(1:1)`.
pub fn is_beside(line: &str) -> bool {
    let is_record = |token: &str| token.starts_with("PERF_RECORD_");
    line.starts_with('#') || !is_of_stack(line) && line.split_whitespace().any(is_record)
}

/// Returns true for a line of a stack.
pub fn is_of_stack(line: &str) -> bool {
    line.starts_with([' ', '\t']) && frame(line).is_some()
}

/// Returns true for a head that names no event, as which any line with a number may be read.
pub fn is_bare(line: &str) -> bool {
    head(line).is_some_and(|head| head.event == NO_EVENT)
}

/// The first token of a text, and what is behind it.
fn token(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_address(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A line of a stack: `7f12 function+0x12 (/path/module)`.
struct FrameLine<'a> {
    address: u64,
    name: &'a str,
    module: &'a str,
}

/// Reads a line of a stack without an address: `function+0x12 (/path/module)`.
fn frame_without_address(line: &str) -> Option<FrameLine<'_>> {
    let named = with_symbol(0, line);
    (line.starts_with([' ', '\t']) && !named.module.is_empty()).then_some(named)
}

fn frame(line: &str) -> Option<FrameLine<'_>> {
    let (address, rest) = token(line)?;
    let address = u64::from_str_radix(address, 16).ok()?;
    Some(with_symbol(address, rest))
}

/// The function at `address` that a text names, with its module.
fn with_symbol(address: u64, text: &str) -> FrameLine<'_> {
    let (symbol, module) = parts(text.trim());
    let name = match symbol.rsplit_once("+0x") {
        Some((name, offset)) if is_address(offset) => name,
        _ => symbol,
    };
    FrameLine { address, name, module: module.strip_suffix(" (deleted)").unwrap_or(module) }
}

/// The symbol and the module of `f(int)+0x2 (/path (deleted))`. Both may have parentheses.
fn parts(text: &str) -> (&str, &str) {
    let Some(inside) = text.strip_suffix(')') else { return (text, "") };
    // A distance stands between the two, in most lines.
    let distance = inside.match_indices(" (").find(|(at, _)| {
        let before = inside[..*at].rsplit_once("+0x");
        before.is_some_and(|(_, offset)| is_address(offset))
    });
    if let Some((at, _)) = distance {
        return (inside[..at].trim(), &inside[at + 2..]);
    }
    // Otherwise the module begins with the parenthesis that the last one closes.
    let mut open = 1;
    for (at, byte) in inside.bytes().enumerate().rev() {
        match byte {
            b')' => open += 1,
            b'(' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return (inside[..at].trim(), &inside[at + 1..]);
        }
    }
    (text, "")
}

/// A line of the source: `a.c:12`.
fn source_line(text: &str) -> Option<(&str, u32)> {
    let (file, line) = text.trim().rsplit_once(':')?;
    Some((file, line.parse().ok()?)).filter(|(file, _)| !file.is_empty())
}

/// Reads samples.
pub fn read(text: &str, run: &Run, limits: &Limits) -> Result<Vec<Facts>> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for head in text.lines().filter(|line| !is_beside(line)).filter_map(head) {
        let next = names.len();
        names.entry(head.event).or_insert(next);
    }
    let mut order: Vec<(&str, usize)> = names.iter().map(|(name, at)| (*name, *at)).collect();
    order.sort_by_key(|(_, at)| *at);
    let events = order.iter().map(|(name, _)| sampled(name, 1)).collect();
    let run = Run { source: Source::Perf, ..run.clone() };
    let mut reading = Reading { making: Making::new(run, events, limits)?, open: Open::default() };
    for (number, line) in text.lines().enumerate() {
        let wrong = |why: &str| Error::Line { line: number + 1, why: why.to_owned() };
        if line.trim().is_empty() || is_beside(line) {
            reading.end()?;
        } else if let Some(head) = head(line) {
            reading.end()?;
            reading.open.sample = names.get(head.event).map(|event| (*event, head.period));
            // Tracepoints have their fields there.
            let is_frame = head.rest.ends_with(')');
            if let Some(frame) = frame(head.rest).filter(|_| is_frame) {
                reading.frame(&frame)?;
            }
        } else if reading.open.sample.is_some() {
            match frame(line).or_else(|| frame_without_address(line)) {
                Some(frame) => reading.frame(&frame)?,
                None => reading.line(line),
            }
        } else {
            return Err(wrong("no head of a sample"));
        }
    }
    reading.end()?;
    Ok(vec![reading.making.finish()?])
}

/// The sample that is being read.
#[derive(Default)]
struct Open<'t> {
    /// Its event and period.
    sample: Option<(usize, u64)>,
    /// Functions, innermost first.
    frames: Vec<u32>,
    /// The line of the innermost one.
    line: Option<(&'t str, u32)>,
}

struct Reading<'a, 't> {
    making: Making<'a>,
    open: Open<'t>,
}

impl<'t> Reading<'_, 't> {
    fn frame(&mut self, frame: &FrameLine<'_>) -> Result<()> {
        let path = if frame.module == "[unknown]" { "" } else { frame.module };
        let module = self.making.module(path, "");
        let unnamed = frame.name.is_empty() || frame.name == "[unknown]";
        let name = if unnamed { page("", frame.address) } else { frame.name.to_owned() };
        // What was inlined has its caller's address and stands before it: "(inlined)" in place of a
        // module.
        self.open.frames.push(self.making.function(module, &name, ("", 0))?);
        Ok(())
    }

    /// A line of a stack that is no function: the source line of the function before it, or a field
    /// that somebody has asked for.
    fn line(&mut self, text: &'t str) {
        if self.open.frames.len() == 1 && self.open.line.is_none() {
            self.open.line = source_line(text);
        }
    }

    fn end(&mut self) -> Result<()> {
        let Open { sample, mut frames, line } = std::mem::take(&mut self.open);
        let Some((event, period)) = sample else { return Ok(()) };
        if frames.is_empty() {
            let module = self.making.module("", "");
            frames.push(self.making.function(module, "", ("", 0))?);
        }
        frames.reverse();
        let mut values = vec![0; self.making.facts.events.len()];
        values[event] = period;
        self.making.sample(&frames, line, &values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_told_from_stacks() {
        let found = head("Web Content 12/34 [001] 1234.567890:     250000 cpu/cycles/u: ").unwrap();
        assert_eq!(found, Head { period: 250_000, event: "cpu/cycles/u", rest: "" });
        let found = head("ls 7 1.5: cycles:  7f12 main+0x2 (/bin/ls)").unwrap();
        assert_eq!((found.period, found.event), (1, "cycles"));
        assert!(head("\t    7f12ab main+0x2 (/bin/ls)").is_none());
        let found = head("             cc1 99 cycles:  7f12 main+0x2 (/bin/ls)").unwrap();
        assert_eq!((found.event, found.rest), ("cycles", "7f12 main+0x2 (/bin/ls)"));
        assert_eq!(head("over  2555 ").unwrap().event, "samples");
        assert!(head("a text with 12 words").is_none());
    }

    #[test]
    fn symbols_and_modules_may_have_parentheses() {
        for (line, name, module) in [
            ("7f12 std::f<a (b)>+0x2 (/bin/l s (deleted))", "std::f<a (b)>", "/bin/l s"),
            ("7f12 f(int) const+0x2 (/tmp/a (1)/b)", "f(int) const", "/tmp/a (1)/b"),
            ("7f12 f(int) (/tmp/a (1)/b (deleted))", "f(int)", "/tmp/a (1)/b"),
            ("7f12 main (/bin/ls)", "main", "/bin/ls"),
            ("7f12 f<x> (inlined)", "f<x>", "inlined"),
            ("7f12 [unknown] ([kernel.kallsyms])", "[unknown]", "[kernel.kallsyms]"),
            ("7f12 main", "main", ""),
        ] {
            let found = frame(line).unwrap();
            assert_eq!((found.address, found.name, found.module), (0x7f12, name, module), "{line}");
        }
    }

    fn facts(text: &str) -> Facts {
        let run = Run { benchmark: "b".into(), ..Run::default() };
        let all = read(text, &run, &Limits::default());
        all.unwrap_or_else(|error| panic!("{error}: {text}")).remove(0)
    }

    /// The names of the innermost functions and their own counts.
    fn leaves(facts: &Facts) -> Vec<(&str, u64)> {
        let functions = facts.functions.iter().filter(|function| function.own[0] > 0);
        functions.map(|function| (function.name.as_str(), function.own[0])).collect()
    }

    #[test]
    fn heads_without_a_time_begin_samples() {
        let text = "over  2555 \n\t 19839 f (/lib/ld.so)\n\t 1a2e7 main (/a)\n\nover  2555 \n\t 1 main (/a)\n";
        let read = facts(text);
        assert_eq!(leaves(&read), [("f", 1), ("main", 1)]);
        assert_eq!(read.events[0].name, "samples");
        assert_eq!(crate::Format::of(text.as_bytes()), Some(crate::Format::PerfScript));
        assert_eq!(crate::Format::of(b"a text with 12 words\n\tand more\n"), None);
    }

    #[test]
    fn fields_of_tracepoints_and_probes_are_no_functions() {
        let sched = "cc1 99 [000] 5.000001: 1 sched:sched_switch: prev_comm=cc1 prev_pid=99 ==> next_pid=0\n";
        let stack =
            "\tffffffff8100 __schedule+0x1 ([kernel.kallsyms])\n\t 7f12 main+0x2 (/bin/cc1)\n\n";
        let probe = "swapper 0 [000] 5.000001: 1 probe_prog:f: (55d4c0 <- 55d4d0)\n\t 7f12 main+0x2 (/bin/a)\n";
        let read = facts(&format!("{sched}{stack}{probe}"));
        let names: Vec<_> = read.events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["sched:sched_switch", "probe_prog:f"]);
        assert_eq!(read.functions.iter().map(|f| f.own[0]).sum::<u64>(), 1);
        assert_eq!(read.functions.iter().map(|f| f.own[1]).sum::<u64>(), 1);
        assert_eq!(leaves(&read), [("__schedule", 1)]);
    }

    #[test]
    fn source_lines_are_those_of_the_function_before() {
        let text = "a 9 [000] 5.000001: 7 cycles: \n\t 7f12 main+0x2 (/bin/a)\n  a.c:12\n\t 7f22 start+0x2 (/bin/a)\n  a.c:20\n\n";
        let read = facts(text);
        assert_eq!(leaves(&read), [("main", 7)]);
        let lines: Vec<_> = read.lines.iter().map(|row| (row.file.as_str(), row.line)).collect();
        assert_eq!(lines, [("a.c", 12)]);
        assert_eq!(read.stacks[0].frames.len(), 2);
    }

    #[test]
    fn lines_beside_samples_are_none() {
        let text = "# data offset : 264\n# cmdline : perf record 12\n\
            :1 1 [000] 0.5: PERF_RECORD_MMAP2 -1/0: [0x1(0x2) @ 0 fe:00 12 34]: r-xp /bin/a\n\
            perf 9 [000] 1.5: PERF_RECORD_COMM: a:9/9\n\
            a 9 [000] 2.5: 7 cycles: \n\t 7f12 main+0x2 (/bin/a)\n\
            a 9 [000] 3.5: PERF_RECORD_EXIT(9:9):(1:1)\n";
        assert_eq!(crate::Format::of(text.as_bytes()), Some(crate::Format::PerfScript));
        let read = facts(text);
        assert_eq!(read.events.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["cycles"]);
        assert_eq!(leaves(&read), [("main", 7)]);
    }

    #[test]
    fn heads_with_a_period_alone_and_stacks_without_addresses_are_read() {
        let text = "over  2555     250000 \n\t 19839 f\n\t 1a2e7 main\n\n";
        assert_eq!(crate::Format::of(text.as_bytes()), Some(crate::Format::PerfScript));
        assert_eq!(leaves(&facts(text)), [("f", 250_000)]);
        let text =
            "a 9 [000] 2.5: 7 cycles: \n\tf(int)+0x2 (/bin/a)\n  a.c:12\n\tmain (/bin/a)\n\n";
        assert_eq!(crate::Format::of(text.as_bytes()), Some(crate::Format::PerfScript));
        let read = facts(text);
        assert_eq!(leaves(&read), [("f(int)", 7)]);
        assert_eq!((read.lines.len(), read.stacks[0].frames.len()), (1, 2));
    }

    #[test]
    fn long_heads_and_first_lines_hide_nothing() {
        let head = "# sibling sockets : 1-2,padding padding padding\n".repeat(200);
        let text = format!("{head}prog 12 45.6: 1 cycles: \n\t 55e0 main (/a)\n");
        assert_eq!(crate::Format::of(text.as_bytes()), Some(crate::Format::PerfScript));
        let text = format!("{} 3\nmain;a 3\n", "com/example/Long.name_0;".repeat(400));
        assert_eq!(crate::Format::of(text.as_bytes()), Some(crate::Format::Folded));
    }
}

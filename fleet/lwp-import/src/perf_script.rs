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

/// Reads `prog 1234 [000] 12.345678: 250000 cycles:u: …`. The program's name may have spaces.
pub fn head(line: &str) -> Option<Head<'_>> {
    if line.starts_with([' ', '\t']) && is_address(line.split_whitespace().next()?) {
        return None;
    }
    let is_time = |token: &str| {
        let digits = token.strip_suffix(':').and_then(|token| token.split_once('.'));
        digits.is_some_and(|(a, b)| [a, b].iter().all(|part| is_number(part)))
    };
    let time = line.split_whitespace().find(|token| is_time(token))?;
    // The token's place in the line: tokens are parts of it.
    let behind = time.as_ptr() as usize - line.as_ptr() as usize + time.len();
    let (first, rest) = token(&line[behind..])?;
    let (period, event, rest) = match first.parse::<u64>() {
        Ok(period) => {
            let (event, rest) = token(rest)?;
            (period, event, rest)
        }
        Err(_) => (1, first, rest),
    };
    let event = event.strip_suffix(':')?;
    (!event.is_empty()).then(|| Head { period, event, rest: rest.trim() })
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

fn frame(line: &str) -> Option<FrameLine<'_>> {
    let (address, rest) = token(line)?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let rest = rest.trim();
    let (symbol, module) = match rest.strip_suffix(')').and_then(|rest| rest.rsplit_once('(')) {
        Some((symbol, module)) => (symbol.trim(), module),
        None => (rest, ""),
    };
    let name = match symbol.rsplit_once("+0x") {
        Some((name, offset)) if is_address(offset) => name,
        _ => symbol,
    };
    Some(FrameLine { address, name, module: module.strip_suffix(" (deleted)").unwrap_or(module) })
}

/// Reads samples.
pub fn read(text: &str, run: &Run, limits: &Limits) -> Result<Vec<Facts>> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for head in text.lines().filter_map(head) {
        let next = names.len();
        names.entry(head.event).or_insert(next);
    }
    let mut order: Vec<(&str, usize)> = names.iter().map(|(name, at)| (*name, *at)).collect();
    order.sort_by_key(|(_, at)| *at);
    let events = order.iter().map(|(name, _)| sampled(name, 1)).collect();
    let run = Run { source: Source::Perf, ..run.clone() };
    let mut reading = Reading { making: Making::new(run, events, limits)?, frames: Vec::new() };
    let mut open: Option<(usize, u64)> = None;
    for (number, line) in text.lines().enumerate() {
        let wrong = |why: &str| Error::Line { line: number + 1, why: why.to_owned() };
        if line.trim().is_empty() {
            reading.end(open.take())?;
        } else if let Some(head) = head(line) {
            reading.end(open.take())?;
            open = names.get(head.event).map(|event| (*event, head.period));
            if !head.rest.is_empty() {
                let frame = frame(head.rest).ok_or_else(|| wrong("no function"))?;
                reading.frame(&frame)?;
            }
        } else if open.is_some() {
            reading.frame(&frame(line).ok_or_else(|| wrong("no line of a stack"))?)?;
        } else if !line.starts_with('#') {
            return Err(wrong("no head of a sample"));
        }
    }
    reading.end(open)?;
    Ok(vec![reading.making.finish()?])
}

struct Reading<'a> {
    making: Making<'a>,
    /// Functions of the open sample, innermost first.
    frames: Vec<u32>,
}

impl Reading<'_> {
    fn frame(&mut self, frame: &FrameLine<'_>) -> Result<()> {
        let path = if frame.module == "[unknown]" { "" } else { frame.module };
        let module = self.making.module(path, "");
        let unnamed = frame.name.is_empty() || frame.name == "[unknown]";
        let name = if unnamed { page("", frame.address) } else { frame.name.to_owned() };
        // What was inlined has its caller's address and stands before it: "(inlined)" in place of a
        // module.
        self.frames.push(self.making.function(module, &name, ("", 0))?);
        Ok(())
    }

    fn end(&mut self, open: Option<(usize, u64)>) -> Result<()> {
        let mut frames = std::mem::take(&mut self.frames);
        let Some((event, period)) = open else { return Ok(()) };
        if frames.is_empty() {
            let module = self.making.module("", "");
            frames.push(self.making.function(module, "", ("", 0))?);
        }
        frames.reverse();
        let mut values = vec![0; self.making.facts.events.len()];
        values[event] = period;
        self.making.sample(&frames, None, &values)
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
        let line = frame("7f12ab std::f<a (b)>+0x2 (/bin/l s (deleted))").unwrap();
        assert_eq!((line.address, line.name), (0x7f_12ab, "std::f<a (b)>+0x2 (/bin/l s"));
    }
}

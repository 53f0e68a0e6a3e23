//! Folded stacks: one line a stack, outermost function first, and its count.

use lwp_facts::{Facts, Limits, Run, Source};

use crate::making::{Making, sampled};
use crate::{Error, Result};

/// The stack and the count of a line.
pub fn line(text: &str) -> Option<(&str, u64)> {
    let (stack, count) = text.trim_end().rsplit_once(' ')?;
    let count = count.parse().ok()?;
    (!stack.trim().is_empty()).then_some((stack.trim(), count))
}

/// Reads stacks.
pub fn read(text: &str, run: &Run, limits: &Limits) -> Result<Vec<Facts>> {
    let run = Run { source: Source::Folded, ..run.clone() };
    let mut making = Making::new(run, vec![sampled("samples", 1)], limits)?;
    let module = making.module("", "");
    for (number, text) in text.lines().enumerate() {
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let why = || "a stack and a count are wanted".to_owned();
        let (stack, count) =
            line(text).ok_or_else(|| Error::Line { line: number + 1, why: why() })?;
        let frames = stack.split(';').map(|name| making.function(module, name, ("", 0)));
        let frames = frames.collect::<Result<Vec<u32>>>()?;
        making.sample(&frames, None, &[count])?;
    }
    Ok(vec![making.finish()?])
}

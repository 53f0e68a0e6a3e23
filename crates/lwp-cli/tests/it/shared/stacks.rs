//! Sampled stacks, as `lwp script` prints them.

use std::path::Path;

use super::recorded::lwp;

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub function: String,
    /// The file's name, of a source file of a language behind that in brackets.
    pub module: String,
    pub line: u32,
}

impl Frame {
    pub fn is_of(&self, language: &str) -> bool {
        self.module.starts_with(&format!("[{language}]"))
    }
}

/// A stack, innermost first, and how many events it stands for.
#[derive(Clone, Debug)]
pub struct Stack {
    pub weight: u64,
    pub frames: Vec<Frame>,
}

impl Stack {
    /// Names of the functions of `language`, outermost first, without what classes and functions
    /// they are in.
    pub fn chain(&self, language: &str) -> Vec<&str> {
        let of_it = self.frames.iter().rev().filter(|frame| frame.is_of(language));
        of_it.map(|frame| frame.function.rsplit('.').next().unwrap_or_default()).collect()
    }

    /// Returns whether the walk came to where threads and programs begin.
    pub fn is_complete(&self) -> bool {
        let Some(last) = self.frames.last() else { return false };
        let begins = ["_start", "clone", "__clone", "clone3", "__clone3", "start_thread"];
        // Programs without symbols begin at an address: java+0x1280.
        begins.contains(&last.function.as_str())
            || last.function.contains("+0x") && last.module.contains("/bin/")
    }
}

/// The stacks of the recording `file` in `dir`, as `lwp script` with these arguments shows them.
pub fn stacks(dir: &Path, file: &str, arguments: &[&str]) -> Vec<Stack> {
    let (text, _) = lwp(dir, &[&["script", "-i", file], arguments].concat());
    let mut stacks: Vec<Stack> = Vec::new();
    for line in text.lines() {
        if let Some(line) = line.strip_prefix('\t') {
            let stack = stacks.last_mut().expect("a head before the frames");
            stack.frames.push(frame(line));
        } else if line.ends_with(':') {
            let words: Vec<&str> = line.trim_end_matches(':').rsplitn(3, ' ').collect();
            if let Some(weight) = words.get(1).and_then(|word| word.parse().ok()) {
                stacks.push(Stack { weight, frames: Vec::new() });
            }
        }
    }
    stacks
}

/// `ADDRESS FUNCTION+0xOFFSET (MODULE) FILE:LINE`.
fn frame(line: &str) -> Frame {
    let rest = line.split_once(' ').map_or("", |(_, rest)| rest);
    let at = rest.rfind("+0x").unwrap_or(rest.len());
    let module = rest[at..].split_once('(').map_or("", |(_, module)| module);
    let (module, place) = module.rsplit_once(')').unwrap_or((module, ""));
    let line = place.rsplit_once(':').and_then(|(_, line)| line.parse().ok()).unwrap_or(0);
    Frame { function: rest[..at].to_owned(), module: module.to_owned(), line }
}

/// The share of all events whose stacks answer to `is`.
pub fn share(stacks: &[Stack], is: impl Fn(&Stack) -> bool) -> f64 {
    let sum = |all: &mut dyn Iterator<Item = &Stack>| all.map(|stack| stack.weight).sum::<u64>();
    let of_them = sum(&mut stacks.iter().filter(|stack| is(stack)));
    of_them as f64 / sum(&mut stacks.iter()).max(1) as f64
}

//! Arguments and variables that programs begin with beside their own.
//!
//! Runtimes write down the names of the code that they generate if an option or a variable says so.
//! The additions reach only the programs that they are meant for: each is put on its program's
//! first stack, and no parent or other child has it in its environment.
//!
//! Promise: R83

use std::path::Path;

use lwp_process::kernel_files;
use lwp_process::maps::Mapping;
use lwp_process::{Tid, memory};

/// Arguments and variables that some programs begin with in addition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addition {
    /// File names of the programs; a version may follow, as in `python3.12`.
    pub programs: Vec<String>,
    /// Arguments, behind the program's own name.
    pub arguments: Vec<String>,
    /// Variables. What one of them holds already stays, and a blank comes between.
    pub variables: Vec<(String, String)>,
}

impl Addition {
    /// The addition as a shell has it.
    pub fn text(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value}"));
        let words: Vec<String> = variables.chain(self.arguments.iter().cloned()).collect();
        words.join(" ")
    }

    fn is_for(&self, name: &str) -> bool {
        let version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || ".t".contains(c));
        self.programs.iter().any(|program| name.strip_prefix(program.as_str()).is_some_and(version))
    }
}

/// The addition that is for the program of `tid`, if one is.
pub fn for_program(tid: Tid, additions: &[Addition]) -> Option<&Addition> {
    if additions.is_empty() {
        return None;
    }
    let exe = kernel_files::link(tid, "exe").ok()?;
    let name = Path::file_name(&exe)?.to_str()?;
    additions.iter().find(|addition| addition.is_for(name))
}

/// Most bytes of a variable that is added to.
const LONGEST: usize = 64 << 10;
/// Bytes of the stack that must be left below.
const LEAST: u64 = 16 << 10;

/// Puts `addition` on the stack of `tid`, which is stopped at its first instruction with the stack
/// pointer at `stack`. Returns where the stack begins then; `None`, and nothing changed, where
/// there is no room or the stack is not as the kernel leaves it.
pub fn put(tid: Tid, stack: u64, mappings: &[Mapping], addition: &Addition) -> Option<u64> {
    let mapping = mappings.iter().find(|m| m.start <= stack && stack < m.end)?;
    let mut bytes = vec![0; usize::try_from(mapping.end - stack).ok()?];
    memory::read_exact(tid, stack, &mut bytes).ok()?;
    let string = |at: u64| {
        let at = usize::try_from(at.checked_sub(stack)?).ok()?;
        let rest = bytes.get(at..)?;
        let len = rest.iter().take(LONGEST).position(|byte| *byte == 0)?;
        Some(&rest[..len])
    };
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    let words: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    let (place, bytes) = begun(&words, stack, addition, &string)?;
    if place < mapping.start.checked_add(LEAST)? {
        return None;
    }
    memory::write_exact(tid, place, &bytes).ok()?;
    Some(place)
}

/// The stack pointer and the bytes from it on of a stack that begins with `words` at `stack`, with
/// an addition.
fn begun<'s>(
    words: &[u64],
    stack: u64,
    addition: &Addition,
    string: &dyn Fn(u64) -> Option<&'s [u8]>,
) -> Option<(u64, Vec<u8>)> {
    let count = usize::try_from(*words.first()?).ok()?;
    let arguments = words.get(1..count.checked_add(1)?)?;
    let (program, others) = arguments.split_first()?;
    let rest = words.get(count + 2..)?;
    let length = rest.iter().position(|word| *word == 0)?;
    let (variables, auxiliary) = rest.split_at(length);
    let pairs = auxiliary[1..].chunks_exact(2).position(|pair| pair[0] == 0)?;
    let auxiliary = &auxiliary[1..][..2 * (pairs + 1)];

    let mut strings = Strings::default();
    let added: Vec<Word> = addition.arguments.iter().map(|it| strings.add(it.as_bytes())).collect();
    let mut variables: Vec<Word> = variables.iter().map(|at| Word::Known(*at)).collect();
    for (name, value) in &addition.variables {
        let prefix = format!("{name}=");
        let held = |word: &Word| match word {
            Word::Known(at) => string(*at).filter(|it| it.starts_with(prefix.as_bytes())),
            Word::Added(_) => None,
        };
        let known = variables.iter().position(|word| held(word).is_some());
        let old = known.and_then(|at| held(&variables[at]));
        let text = match old {
            Some(old) if old.len() > prefix.len() => [old, b" ", value.as_bytes()].concat(),
            _ => format!("{prefix}{value}").into_bytes(),
        };
        let word = strings.add(&text);
        match known {
            Some(at) => variables[at] = word,
            None => variables.push(word),
        }
    }
    let mut all = vec![Word::Known((count + added.len()) as u64), Word::Known(*program)];
    all.extend(added);
    all.extend(others.iter().map(|at| Word::Known(*at)));
    all.push(Word::Known(0));
    all.extend(variables);
    all.push(Word::Known(0));
    all.extend(auxiliary.iter().map(|word| Word::Known(*word)));

    let old_end = stack.checked_add(8 * (words.len() - rest.len() + length + 1) as u64)?;
    let old_end = old_end.checked_add(8 * auxiliary.len() as u64)?;
    let place = old_end.checked_sub(8 * all.len() as u64 + strings.0.len() as u64)? & !15;
    let first = place + 8 * all.len() as u64;
    let mut bytes: Vec<u8> = all.iter().flat_map(|word| word.value(first).to_le_bytes()).collect();
    bytes.extend(strings.0);
    Some((place, bytes))
}

/// A word of the stack.
#[derive(Clone, Copy, Debug)]
enum Word {
    Known(u64),
    /// The address of an added string, from the first one's.
    Added(u64),
}

impl Word {
    fn value(self, first: u64) -> u64 {
        match self {
            Self::Known(word) => word,
            Self::Added(offset) => first + offset,
        }
    }
}

/// Strings, each with a zero behind it.
#[derive(Debug, Default)]
struct Strings(Vec<u8>);

impl Strings {
    fn add(&mut self, text: &[u8]) -> Word {
        let at = self.0.len() as u64;
        self.0.extend(text);
        self.0.push(0);
        Word::Added(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addition() -> Addition {
        Addition {
            programs: vec!["node".into(), "python3".into()],
            arguments: vec!["-a".into(), "--bb".into()],
            variables: vec![("NEW".into(), "1".into()), ("OLD".into(), "more".into())],
        }
    }

    #[test]
    fn programs_are_known_by_their_names() {
        let addition = addition();
        for name in ["node", "python3", "python3.12", "python3.13t", "node20"] {
            assert!(addition.is_for(name), "{name}");
        }
        for name in ["nodejs-helper", "python", "python3-config", "node_exporter", ""] {
            assert!(!addition.is_for(name), "{name}");
        }
        assert_eq!(addition.text(), "NEW=1 OLD=more -a --bb");
    }

    /// The stack of `prog x` with OLD=x in its environment, added to.
    #[test]
    fn the_stack_has_what_was_there_and_what_was_added() {
        let stack = 0x7000;
        let words = [2, 0x8000, 0x8008, 0, 0x8010, 0x8018, 0, 6, 4096, 0, 0, 0xaaaa, 0xbbbb];
        let string = |at: u64| -> Option<&'static [u8]> {
            match at {
                0x8010 => Some(b"OLDER=y"),
                0x8018 => Some(b"OLD=x"),
                _ => None,
            }
        };
        let (place, bytes) = begun(&words, stack, &addition(), &string).expect("a stack");
        assert_eq!(place % 16, 0);
        let end = stack + 8 * 11;
        assert!(place + bytes.len() as u64 <= end && place + bytes.len() as u64 > end - 16);
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
        let text = |at: u64| {
            let rest = &bytes[(at - place) as usize..];
            String::from_utf8_lossy(rest.split(|byte| *byte == 0).next().unwrap()).into_owned()
        };
        assert_eq!([word(0), word(1), word(4), word(5)], [4, 0x8000, 0x8008, 0]);
        assert_eq!([text(word(2)), text(word(3))], ["-a", "--bb"]);
        assert_eq!(word(6), 0x8010);
        assert_eq!([text(word(7)), text(word(8))], ["OLD=x more", "NEW=1"]);
        assert_eq!((9..14).map(word).collect::<Vec<_>>(), [0, 6, 4096, 0, 0]);
    }

    #[test]
    fn what_is_no_first_stack_is_left_alone() {
        let string = |_| None;
        for words in [&[][..], &[0, 0, 0], &[1, 5, 0, 7, 0, 6, 1], &[u64::MAX, 1], &[9, 1, 0]] {
            assert_eq!(begun(words, 0x7000, &addition(), &string), None, "{words:?}");
        }
    }
}

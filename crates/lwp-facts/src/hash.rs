//! Keys and hashes of facts.

use std::fmt;

use lwp_profile::Mode;
use twox_hash::{XxHash3_64, XxHash3_128};

use crate::{Facts, call_word};

/// A hash of 128 bits, written as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub u128);

impl Id {
    /// The id that 32 hexadecimal digits stand for.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(Self)
    }

    /// Its first 63 bits: the key of the recording in tables of signed numbers.
    pub fn key(self) -> i64 {
        (self.0 >> 65) as i64
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The key of a function: 63 bits of a hash of its module's name and its own.
pub fn func_key(module: &str, function: &str) -> i64 {
    let text = [module.as_bytes(), b"\0", function.as_bytes()].concat();
    (XxHash3_64::oneshot(&text) >> 1) as i64
}

/// The key of a stack: 63 bits of a hash of its functions' keys, outermost first.
pub fn stack_key(frames: &[i64]) -> i64 {
    let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_le_bytes()).collect();
    (XxHash3_64::oneshot(&bytes) >> 1) as i64
}

/// Bytes to hash: fields behind their lengths, so that no two sequences of fields are the same
/// bytes.
struct Digest(Vec<u8>);

impl Digest {
    fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn numbers(&mut self, numbers: &[u64]) -> &mut Self {
        self.number(numbers.len() as u64);
        for number in numbers {
            self.number(*number);
        }
        self
    }

    fn finish(&self) -> u128 {
        XxHash3_128::oneshot(&self.0)
    }

    /// The hash of rows whose order does not matter.
    fn set<T>(rows: &[T], mut enter: impl FnMut(&mut Self, &T)) -> Vec<u8> {
        let hash = |row: &T| {
            let mut digest = Self(Vec::new());
            enter(&mut digest, row);
            digest.finish()
        };
        let mut hashes: Vec<u128> = rows.iter().map(hash).collect();
        hashes.sort_unstable();
        hashes.into_iter().flat_map(u128::to_le_bytes).collect()
    }
}

impl Facts {
    /// The hash of everything that was counted. Recordings with the same content did the same,
    /// function by function and line by line; when, where and as what they ran is left out, and so
    /// are build ids.
    pub fn content(&self) -> Id {
        let mut all = Digest(Vec::new());
        all.number(u64::from(self.mode == Mode::Exact));
        for event in &self.events {
            all.text(&event.name).number(event.interval.unwrap_or(0));
        }
        all.numbers(&self.total);
        let function = |digest: &mut Digest, index: u32| {
            digest.text(self.module_name(index)).text(&self.functions[index as usize].name);
        };
        let own = self.functions.iter().enumerate().collect::<Vec<_>>();
        let functions = Digest::set(&own, |digest, (index, row)| {
            function(digest, *index as u32);
            digest.number(row.entered).numbers(&row.own);
        });
        let lines = Digest::set(&self.lines, |digest, row| {
            function(digest, row.function);
            digest.text(file_name(&row.file)).number(u64::from(row.line)).numbers(&row.own);
        });
        let calls = Digest::set(&self.calls, |digest, row| {
            if let Some(caller) = row.caller {
                function(digest, caller);
            }
            function(digest, row.callee);
            digest.text(call_word(row.how)).number(row.count);
        });
        let stacks = Digest::set(&self.stacks, |digest, row| {
            row.frames.iter().for_each(|frame| function(digest, *frame));
            digest.numbers(&row.own);
        });
        for part in [functions, lines, calls, stacks] {
            all.number(part.len() as u64).0.extend(part);
        }
        Id(all.finish())
    }

    /// The hash of everything but labels. The same recording read twice has the same id; so do two
    /// runs of one commit of a benchmark on one machine that counted the same and started in the
    /// same second.
    pub fn id(&self) -> Id {
        let mut all = Digest(self.content().0.to_le_bytes().to_vec());
        let run = &self.run;
        for (key, text) in run.texts() {
            all.text(key).text(text);
        }
        all.text(run.source.word()).number(run.started.cast_unsigned()).number(run.pull_request);
        all.number(u64::from(run.deterministic)).number(u64::from(run.complete));
        all.0.extend(Digest::set(&self.modules, |digest, module| {
            digest.text(&module.name).text(&module.path).text(&module.build_id);
        }));
        Id(all.finish())
    }
}

/// The last part of a path: trees lie in other places on other machines.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = Id(0x00ff_0000_0000_0000_0000_0000_0000_0001);
        assert_eq!(id.to_string(), "00ff0000000000000000000000000001");
        assert_eq!(Id::parse(&id.to_string()), Some(id));
        assert_eq!([Id::parse("+0ff0000000000000000000000000001"), Id::parse("1")], [None; 2]);
        assert!(Id(u128::MAX).key() > 0);
    }

    #[test]
    fn keys_tell_where_one_name_ends() {
        assert_ne!(func_key("a", "bc"), func_key("ab", "c"));
        assert!(func_key("libc.so.6", "malloc") > 0);
        assert_ne!(stack_key(&[1, 2]), stack_key(&[2, 1]));
    }
}

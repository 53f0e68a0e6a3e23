//! Jitdump files, which have unwind tables of generated code ([`lwp_unwind::Generated`]).
//!
//! lwp finds a file as perf does: the program maps it as executable, and its name has the process's
//! number in its own namespace. The mapping is only a sign; nothing executes it.

use std::fs::File;

use lwp_process::Tid;
use lwp_process::maps::{Mapping, Status};
use lwp_unwind::{Generated, Source, Unwinder};
use rustc_hash::FxHashMap;

/// The files of all processes.
#[derive(Debug, Default)]
pub struct Dumps {
    /// The numbers of their tables, by process, device and inode.
    known: FxHashMap<(i32, (u32, u32), u64), u32>,
}

/// Files that are remembered.
const MOST: usize = 1 << 8;

impl Dumps {
    /// Returns whether so many files are known that all shall be forgotten.
    pub fn are_many(&self) -> bool {
        self.known.len() >= MOST
    }

    /// Forgets all files.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// The tables of the generated code of process `pid`, if it writes some.
    pub fn of(&mut self, pid: i32, mappings: &[Mapping], unwinder: &mut Unwinder) -> Option<u32> {
        let mut all = mappings.iter().filter(|it| it.execute && it.inode != 0);
        let mut own = None;
        let mapping = all.find(|mapping| {
            let number = number_of(&mapping.name);
            number.is_some_and(|it| it == *own.get_or_insert_with(|| number_inside(pid)))
        })?;
        let key = (pid, mapping.device, mapping.inode);
        let dump = || Dump { tid: pid, mapping: mapping.clone() };
        let add = || unwinder.add_generated(Generated::new(Box::new(dump())));
        Some(*self.known.entry(key).or_insert_with(add))
    }
}

/// The number in the name of a jitdump file.
fn number_of(path: &str) -> Option<i32> {
    let name = path.rsplit('/').next()?.strip_prefix("jit-")?.strip_suffix(".dump")?;
    name.bytes().all(|it| it.is_ascii_digit()).then(|| name.parse().ok())?
}

/// The number that process `pid` has for itself.
fn number_inside(pid: i32) -> i32 {
    Status::read(pid).last_number("NSpid:").unwrap_or(pid)
}

/// A file that a process has mapped.
#[derive(Debug)]
struct Dump {
    tid: Tid,
    mapping: Mapping,
}

impl Source for Dump {
    fn open(&self) -> Option<File> {
        self.mapping.open(self.tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_names() {
        assert_eq!(number_of("/tmp/.debug/jit/jit-42.dump"), Some(42));
        for other in ["/tmp/jit-.dump", "/tmp/jit-4x.dump", "/jit-4.dump (deleted)", "jit-4"] {
            assert_eq!(number_of(other), None, "{other}");
        }
        assert_eq!(number_of("/tmp/jit-99999999999999.dump"), None);
    }
}

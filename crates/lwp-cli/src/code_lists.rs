//! Lists of the code that runtimes generate: where they are, what they say, and which of them are
//! ours to remove.
//!
//! A runtime writes `/tmp/perf-PID.map` where it sees `/tmp`, under the number that it has for
//! itself: in a container both are others than here. So the directory is opened while the process
//! lives, and read when it is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use lwp_profile::RecordedSymbol;
use lwp_symbols::JitDump;
use rustix::fs::OFlags;

/// The lists of all processes.
#[derive(Debug, Default)]
pub struct CodeLists {
    places: BTreeMap<i32, Place>,
    /// Processes that write a list because they were asked to.
    asked: BTreeSet<i32>,
}

/// The place that a process writes its lists to.
#[derive(Debug)]
struct Place {
    /// Its `/tmp`.
    directory: File,
    /// Its number, as it sees itself.
    number: i32,
    /// Jitdump files, which a process maps so that they are found.
    dumps: BTreeSet<PathBuf>,
}

/// Most bytes of a list.
const LONGEST: u64 = 1 << 30;

impl CodeLists {
    /// Notes where process `pid`, which generates code, writes; of no use once it is gone.
    pub fn note(&mut self, pid: i32) {
        let dumps = dumps(pid);
        if let Some(place) = self.places.get_mut(&pid) {
            place.dumps.extend(dumps);
            return;
        }
        let Ok(directory) = File::open(format!("/proc/{pid}/root/tmp")) else { return };
        let number = number_inside(pid).unwrap_or(pid);
        self.places.insert(pid, Place { directory, number, dumps });
    }

    /// Notes that process `pid` was asked to write a list. One that is there already is not its.
    pub fn asked(&mut self, pid: i32) {
        self.note(pid);
        let there = self.maps(pid).iter().any(|path| path.symlink_metadata().is_ok());
        if !there {
            self.asked.insert(pid);
        }
    }

    /// The names that process `pid` has given to its code, and lines as far as a jitdump file has
    /// them.
    pub fn read(&self, pid: i32) -> JitDump {
        let mut all = JitDump::default();
        if let Some(text) = self.maps(pid).first().and_then(|path| read(path)) {
            all.symbols.extend(lwp_symbols::parse_perf_map(pid, &text));
        }
        let known = self.places.get(&pid);
        let mut dumps = known.map(|place| place.dumps.clone()).unwrap_or_default();
        if dumps.is_empty() {
            // Where perf looks.
            let name = format!("jit-{}.dump", known.map_or(pid, |place| place.number));
            dumps.extend([PathBuf::from("."), std::env::temp_dir()].map(|dir| dir.join(&name)));
        }
        for bytes in dumps.iter().filter_map(|path| read(path)) {
            let dump = lwp_symbols::parse_jitdump(&bytes);
            let of_it = |symbol| RecordedSymbol { pid, ..symbol };
            all.symbols.extend(dump.symbols.into_iter().map(of_it));
            all.lines.extend(dump.lines);
        }
        all
    }

    /// Removes the lists that would not be there without us.
    pub fn remove(&mut self) {
        for pid in std::mem::take(&mut self.asked) {
            for path in self.maps(pid) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// The map of a process, and what belongs to it.
    fn maps(&self, pid: i32) -> [PathBuf; 2] {
        let (directory, number) = match self.places.get(&pid) {
            Some(place) => (
                PathBuf::from(format!("/proc/self/fd/{}", place.directory.as_raw_fd())),
                place.number,
            ),
            None => (PathBuf::from("/tmp"), pid),
        };
        [format!("perf-{number}.map"), format!("perfinfo-{number}.map")]
            .map(|it| directory.join(it))
    }
}

/// The number of process `pid` in its own namespace.
fn number_inside(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

/// Files called `jit-NUMBER.dump` that process `pid` has mapped.
fn dumps(pid: i32) -> BTreeSet<PathBuf> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let paths = maps.lines().filter_map(|line| {
        let path = Path::new(&line[line.find('/')?..]);
        let name = path.file_name()?.to_str()?;
        let number = name.strip_prefix("jit-")?.strip_suffix(".dump")?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| lwp_vcpu::profile::path_in_process(pid, path))
    });
    // The process's root directory is out of reach when it has ended.
    paths.map(|path| path.canonicalize().unwrap_or(path)).collect()
}

/// The bytes of a file; `None` where there is none, or something else that a program has put in its
/// place.
fn read(path: &Path) -> Option<Vec<u8>> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    file.metadata().ok().filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    file.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_this_process_are_found_and_those_asked_for_removed() {
        let pid = std::process::id().cast_signed();
        let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
        let _ = fs::remove_file(&path);
        let mut lists = CodeLists::default();
        lists.asked(pid);
        fs::write(&path, "1000 20 f\n").unwrap();
        assert_eq!(lists.read(pid).symbols.len(), 1);
        // Another that was there before.
        let mut others = CodeLists::default();
        others.asked(pid);
        others.remove();
        assert!(path.exists());
        lists.remove();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_file_is_not_read() {
        assert_eq!(read(Path::new("/tmp")), None);
        assert_eq!(read(Path::new("/nonexistent")), None);
        assert_eq!(read(Path::new("/dev/zero")), None);
        assert!(number_inside(std::process::id().cast_signed()).is_some());
    }
}

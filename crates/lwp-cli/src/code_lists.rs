//! Lists of the code that runtimes generate: where they are, what they say, and which of them are
//! ours to remove.
//!
//! A runtime writes `/tmp/perf-PID.map` where it sees `/tmp`, under the number that it has for
//! itself: in a container both are others than here. So the directory is opened while the process
//! lives, and read when it is gone.
//!
//! Nobody removes the lists of ended processes, and the system gives their numbers to new ones. A
//! list that was last written before a process began is not its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lwp_profile::RecordedSymbol;
use lwp_symbols::JitDump;
use lwp_vcpu::program_files::Viewpoint;
use rustix::time::{ClockId, clock_gettime};

/// The lists of all processes.
#[derive(Debug, Default)]
pub struct CodeLists {
    places: BTreeMap<i32, Place>,
    /// Processes that write a list because they were asked to, and the times at which the lists
    /// that were there already had been written.
    asked: BTreeMap<i32, [Option<SystemTime>; 2]>,
}

/// The place that a process writes its lists to.
#[derive(Debug)]
struct Place {
    /// The files that it sees.
    view: Viewpoint,
    /// Its `/tmp`.
    directory: File,
    /// Its number, as it sees itself.
    number: i32,
    /// A time before which it had not begun; none where the system does not say.
    begin: Option<SystemTime>,
    /// Jitdump files, which a process maps so that they are found.
    dumps: BTreeSet<PathBuf>,
}

/// Most bytes of a map that are read: names of a million functions.
const LONGEST: u64 = 128 << 20;
/// Most bytes of a jitdump file, which has code too.
const LONGEST_DUMP: u64 = 1 << 30;

impl Place {
    /// The place of a process that sees what this one does.
    fn of_host(number: i32) -> Option<Self> {
        let view = Viewpoint::of(std::process::id().cast_signed())?;
        let directory = view.directory(Path::new("/tmp")).ok()?;
        Some(Self { view, directory, number, begin: None, dumps: BTreeSet::new() })
    }

    /// The jitdump files that the process has mapped; if none is known, one where perf looks.
    fn dump_files(&self) -> Vec<File> {
        let open = |path: &PathBuf| self.view.open(path).ok();
        if !self.dumps.is_empty() {
            return self.dumps.iter().filter_map(open).collect();
        }
        let name = format!("jit-{}.dump", self.number);
        let places = [PathBuf::from("."), std::env::temp_dir()];
        let directories = places.iter().filter_map(|path| File::open(path).ok());
        let found = directories.filter_map(|it| self.view.open_in(&it, Path::new(&name)).ok());
        found.collect()
    }
}

impl CodeLists {
    /// Notes where process `pid`, which generates code, writes; of no use once it is gone.
    pub fn note(&mut self, pid: i32) {
        let dumps = dumps(pid);
        if let Some(place) = self.places.get_mut(&pid) {
            place.dumps.extend(dumps);
            return;
        }
        let Some(view) = Viewpoint::of(pid) else { return };
        let Ok(directory) = view.directory(Path::new("/tmp")) else { return };
        let number = number_inside(pid).unwrap_or(pid);
        self.places.insert(pid, Place { view, directory, number, begin: begin(pid), dumps });
    }

    /// Notes that process `pid` was asked to write a list.
    pub fn asked(&mut self, pid: i32) {
        self.note(pid);
        let there = self.maps(pid).map(|path| written(&path));
        self.asked.entry(pid).or_insert(there);
    }

    /// The names that process `pid` has given to its code, and lines as far as a jitdump file has
    /// them.
    pub fn read(&self, pid: i32) -> JitDump {
        let mut all = JitDump::default();
        // One that was gone before anybody looked had our /tmp, as far as is known.
        let own = if self.places.contains_key(&pid) { None } else { Place::of_host(pid) };
        let Some(place) = self.places.get(&pid).or(own.as_ref()) else { return all };
        let map = format!("perf-{}.map", place.number);
        let map = place.view.open_in(&place.directory, Path::new(&map));
        if let Some(text) = map.ok().and_then(|file| read(file, LONGEST, place.begin)) {
            all.symbols.extend(lwp_symbols::parse_perf_map(pid, &text));
        }
        for file in place.dump_files() {
            let Some(bytes) = read(file, LONGEST_DUMP, place.begin) else { continue };
            let dump = lwp_symbols::parse_jitdump(&bytes);
            let of_it = |symbol| RecordedSymbol { pid, ..symbol };
            all.symbols.extend(dump.symbols.into_iter().map(of_it));
            all.lines.extend(dump.lines);
        }
        all
    }

    /// Removes the lists that would not be there without us.
    pub fn remove(&mut self) {
        for (pid, before) in std::mem::take(&mut self.asked) {
            for (path, before) in self.maps(pid).iter().zip(before) {
                if written(path) != before {
                    let _ = fs::remove_file(path);
                }
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

/// Files called `jit-NUMBER.dump` that process `pid` has mapped, by their paths in its root
/// directory.
fn dumps(pid: i32) -> BTreeSet<PathBuf> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let maps = String::from_utf8_lossy(&maps);
    let paths = maps.lines().filter_map(|line| {
        let path = Path::new(&line[line.find('/')?..]);
        let name = path.file_name()?.to_str()?;
        let number = name.strip_prefix("jit-")?.strip_suffix(".dump")?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| path.to_owned())
    });
    paths.collect()
}

/// A time before which process `pid` had not begun.
fn begin(pid: i32) -> Option<SystemTime> {
    /// Units of the kernel's times of processes in a second: USER_HZ of x86-64.
    const TICKS: u64 = 100;
    /// The times of files are those of a clock that stands still between ticks, as the unit of the
    /// process's own time does.
    const SLACK: Duration = Duration::from_millis(20);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name, which may have spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: u64 = rest.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let now = SystemTime::now();
    let since_boot = Duration::try_from(clock_gettime(ClockId::Boottime)).ok()?;
    let age = since_boot.saturating_sub(Duration::from_millis(1000 / TICKS * ticks));
    now.checked_sub(age)?.checked_sub(SLACK)
}

/// The time at which a file was last written; `None` where there is none.
fn written(path: &Path) -> Option<SystemTime> {
    path.symlink_metadata().ok()?.modified().ok()
}

/// The first `most` bytes of a file that was written after `since`.
fn read(file: File, most: u64, since: Option<SystemTime>) -> Option<Vec<u8>> {
    let modified = file.metadata().and_then(|it| it.modified());
    if since.is_some_and(|since| modified.is_ok_and(|modified| modified < since)) {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of this process in a directory of its own, and the lists that know it.
    fn list(name: &str) -> (PathBuf, CodeLists) {
        let directory = std::env::temp_dir().join(format!("lwp-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let pid = std::process::id().cast_signed();
        let place = Place {
            view: Viewpoint::of(pid).unwrap(),
            directory: File::open(&directory).unwrap(),
            number: pid,
            begin: begin(pid),
            dumps: BTreeSet::new(),
        };
        let places = BTreeMap::from([(pid, place)]);
        let path = directory.join(format!("perf-{pid}.map"));
        (path, CodeLists { places, asked: BTreeMap::new() })
    }

    fn remove(path: &Path) {
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_process_writes_to_its_tmp() {
        let pid = std::process::id().cast_signed();
        let mut lists = CodeLists::default();
        lists.note(pid);
        let [map, _] = lists.maps(pid);
        let [directory, tmp] =
            [map.parent().unwrap(), Path::new("/tmp")].map(|path| path.canonicalize().unwrap());
        assert_eq!(directory, tmp);
        assert_eq!(map.file_name().unwrap().to_str().unwrap(), format!("perf-{pid}.map"));
    }

    #[test]
    fn lists_of_this_process_are_found_and_those_asked_for_removed() {
        let pid = std::process::id().cast_signed();
        let (path, mut lists) = list("asked");
        fs::write(&path, "1000 20 f\n").unwrap();
        // It had written this one before.
        lists.asked(pid);
        lists.remove();
        assert_eq!(lists.read(pid).symbols.len(), 1);
        fs::remove_file(&path).unwrap();
        lists.asked(pid);
        fs::write(&path, "1000 20 f\n2000 20 g\n").unwrap();
        assert_eq!(lists.read(pid).symbols.len(), 2);
        lists.remove();
        assert!(!path.exists());
        remove(&path);
    }

    #[test]
    fn lists_of_an_earlier_process_of_the_same_number_are_not_its_own() {
        let pid = std::process::id().cast_signed();
        let (path, mut lists) = list("earlier");
        fs::write(&path, "1000 20 f\n").unwrap();
        let file = File::options().append(true).open(&path).unwrap();
        file.set_modified(lists.places[&pid].begin.unwrap() - Duration::from_secs(1)).unwrap();
        lists.asked(pid);
        assert!(lists.read(pid).symbols.is_empty());
        lists.remove();
        assert!(path.exists());
        // Written over because we asked, it would not be as it is without us.
        lists.asked(pid);
        fs::write(&path, "1000 20 f\n").unwrap();
        assert_eq!(lists.read(pid).symbols.len(), 1);
        lists.remove();
        assert!(!path.exists());
        remove(&path);
    }

    #[test]
    fn a_process_began_before_now() {
        let begin = begin(std::process::id().cast_signed()).unwrap();
        let built = fs::metadata(std::env::current_exe().unwrap()).unwrap().modified().unwrap();
        assert!(begin < SystemTime::now() && begin + Duration::from_secs(1) > built);
    }

    /// Promise: R120
    #[test]
    fn what_is_no_file_is_not_read() {
        let pid = std::process::id().cast_signed();
        let (path, lists) = list("pipe");
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, mode, 0).unwrap();
        assert!(lists.read(pid).symbols.is_empty());
        fs::remove_file(&path).unwrap();
        // What a link leads to is somebody else's.
        let elsewhere = path.with_extension("elsewhere");
        fs::write(&elsewhere, "1000 20 f\n").unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(lists.read(pid).symbols.is_empty());
        fs::rename(&elsewhere, &path).unwrap();
        assert_eq!(lists.read(pid).symbols.len(), 1);
        remove(&path);
        assert!(number_inside(std::process::id().cast_signed()).is_some());
    }
}

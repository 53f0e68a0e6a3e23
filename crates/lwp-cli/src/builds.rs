//! The store of builds: programs, libraries and their debug information by build id, for reports
//! that are made when the files are others or gone.
//!
//! It lies beside the translations, in `builds`, one file each. What has not been used for longest
//! goes first.
//!
//! Promise: R61

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use lwp_profile::Recording;
use lwp_symbols::Builds;

mod debuginfod;

use debuginfod::{Answer, Servers};

/// Unless `LWP_BUILDS_LIMIT` says otherwise, the files together are kept below this.
const DEFAULT_LIMIT: u64 = 2 << 30;
/// Resolution of the time of last use.
const USE_AGE: Duration = Duration::from_secs(60);
/// Time for which a server that did not have a file is not asked for it again.
const MISSING_AGE: Duration = Duration::from_secs(600);
/// Older unfinished files were left behind by a crash.
const UNFINISHED_AGE: Duration = Duration::from_secs(3600);

/// The kinds of file that a build has. Their names are debuginfod's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The program or library.
    Executable,
    /// Its debug information.
    DebugInformation,
}

impl Kind {
    /// The name, in files and in questions to servers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Executable => "executable",
            Self::DebugInformation => "debuginfo",
        }
    }
}

/// The store.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    limit: u64,
    /// Servers to ask for files that are not there.
    servers: Option<Servers>,
}

impl Store {
    /// The user's store, made if it is missing; `None` where there is no place for one, or others
    /// may change it. With `asks`, the servers of `DEBUGINFOD_URLS` are asked for what it lacks.
    pub fn of_user(asks: bool) -> Option<Self> {
        let place = lwp_vcpu::store::default_place()?;
        // Makes the directory, and looks at everybody who may write to a directory on the way.
        lwp_vcpu::store::Store::open(&place, lwp_vcpu::store::DEFAULT_LIMIT).ok()?;
        let limit = std::env::var("LWP_BUILDS_LIMIT").ok();
        let limit = limit.and_then(|text| crate::args::bytes(&text)).unwrap_or(DEFAULT_LIMIT);
        let servers = asks.then(Servers::of_environment).flatten();
        Self::open(place.join("builds"), limit, servers).ok()
    }

    fn open(dir: PathBuf, limit: u64, servers: Option<Servers>) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        Ok(Self { dir, limit, servers })
    }

    /// Keeps the executed files of a recording that have a build id and are still what they were.
    pub fn keep_all(&self, recording: &Recording) {
        let mut fresh = false;
        for module in recording.modules.values().filter(|module| !module.is_anonymous()) {
            // What cannot be kept is looked for where it was, as ever.
            fresh |= self.keep(&module.build_id, Path::new(&module.path)).unwrap_or(false);
        }
        if fresh {
            let _ = self.prune();
        }
    }

    /// Keeps the file at `path`, which is to have this build id; whether it is new.
    fn keep(&self, id: &[u8], path: &Path) -> io::Result<bool> {
        let Some(place) = self.place(id, Kind::Executable) else { return Ok(false) };
        if self.found(&place) {
            return Ok(false);
        }
        let metadata = fs::metadata(path)?;
        // One that takes half of the room would drive the others out.
        if !metadata.is_file() || metadata.len() > self.limit / 2 {
            return Ok(false);
        }
        let temporary = self.temporary()?;
        let copied = copy(path, &temporary.1);
        drop(temporary.1);
        let same = copied.is_ok() && lwp_symbols::build_id_of(&temporary.0) == id;
        self.settle(&temporary.0, &place, same)?;
        copied.map(|()| same)
    }

    /// An empty file under a name of its own.
    fn temporary(&self) -> io::Result<(PathBuf, File)> {
        let number = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!(".{}-{}", std::process::id(), number.as_nanos());
        let path = self.dir.join(name);
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok((path, file))
    }

    /// Gives a finished file its name, or removes it.
    fn settle(&self, temporary: &Path, place: &Path, good: bool) -> io::Result<()> {
        match good {
            true => fs::rename(temporary, place),
            false => fs::remove_file(temporary),
        }
    }

    /// Path of a file of a build, whether it is there or not; `None` where `id` names no build.
    fn place(&self, id: &[u8], kind: Kind) -> Option<PathBuf> {
        // Linkers make 8 to 32 bytes.
        let hex = (2..=64).contains(&id.len()).then(|| hex(id))?;
        Some(self.dir.join(format!("{hex}.{}", kind.name())))
    }

    /// Returns whether a file is there, and marks it as used.
    fn found(&self, place: &Path) -> bool {
        let Ok(file) = File::open(place) else { return false };
        let modified = file.metadata().and_then(|metadata| metadata.modified());
        let now = SystemTime::now();
        if modified.is_ok_and(|then| now.duration_since(then).unwrap_or_default() > USE_AGE) {
            let _ = file.set_modified(now);
        }
        true
    }

    /// A file of a build: from the store, or from a server.
    fn find(&self, id: &[u8], kind: Kind, path: &Path) -> Option<PathBuf> {
        let place = self.place(id, kind)?;
        if self.found(&place) {
            return Some(place);
        }
        let servers = self.servers.as_ref()?;
        let missing = place.with_extension(format!("{}.missing", kind.name()));
        let modified = fs::metadata(&missing).and_then(|metadata| metadata.modified());
        if modified.is_ok_and(|then| then.elapsed().is_ok_and(|age| age < MISSING_AGE)) {
            return None;
        }
        let (temporary, file) = self.temporary().ok()?;
        drop(file);
        let answer = servers.fetch(&hex(id), kind, path, &temporary);
        let same = answer == Answer::Sent && lwp_symbols::build_id_of(&temporary) == id;
        self.settle(&temporary, &place, same).ok()?;
        match (answer, same) {
            (Answer::Sent, true) => {
                let _ = self.prune();
                return self.found(&place).then_some(place);
            }
            (Answer::Sent, false) => {
                servers.say_wrong(path);
                let _ = fs::write(&missing, b"");
            }
            (Answer::Missing, _) => drop(fs::write(&missing, b"")),
            (Answer::Failed, _) => {}
        }
        None
    }

    /// Files with their sizes and when they were used last, that one first.
    pub fn items(&self) -> io::Result<Vec<(PathBuf, u64, SystemTime)>> {
        let mut items = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let age = metadata.modified()?.elapsed().unwrap_or_default();
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let (unfinished, missing) = (name.starts_with('.'), name.ends_with(".missing"));
            if unfinished && age > UNFINISHED_AGE || missing && age > MISSING_AGE {
                let _ = fs::remove_file(entry.path());
            } else if metadata.is_file() && !unfinished && !missing {
                items.push((entry.path(), metadata.len(), metadata.modified()?));
            }
        }
        items.sort_by_key(|(path, _, used)| (std::cmp::Reverse(*used), path.clone()));
        Ok(items)
    }

    /// Removes what has not been used for longest, down to the limit; how many files and bytes.
    pub fn prune(&self) -> io::Result<(usize, u64)> {
        self.remove_beyond(self.limit)
    }

    /// Removes everything; how many files and bytes.
    pub fn clear(&self) -> io::Result<(usize, u64)> {
        self.remove_beyond(0)
    }

    fn remove_beyond(&self, limit: u64) -> io::Result<(usize, u64)> {
        let (mut kept, mut removed) = (0u64, (0, 0));
        for (path, bytes, _) in self.items()? {
            kept = kept.saturating_add(bytes);
            if kept > limit && fs::remove_file(&path).is_ok() {
                removed = (removed.0 + 1, removed.1 + bytes);
            }
        }
        Ok(removed)
    }
}

impl Builds for Store {
    fn executable(&self, id: &[u8], path: &Path) -> Option<PathBuf> {
        self.find(id, Kind::Executable, path)
    }

    fn debug_information(&self, id: &[u8], path: &Path) -> Option<PathBuf> {
        self.find(id, Kind::DebugInformation, path)
    }
}

/// The user's store, for those who look for names; see [`Store::of_user`].
pub fn store(asks: bool) -> Option<Arc<dyn Builds>> {
    Store::of_user(asks).map(|store| Arc::new(store) as Arc<dyn Builds>)
}

/// Copies a file: its extents, where the file system can share them, or else its bytes.
fn copy(from: &Path, to: &File) -> io::Result<()> {
    let mut from = File::open(from)?;
    if rustix::fs::ioctl_ficlone(to, &from).is_ok() {
        return Ok(());
    }
    let mut to = to;
    io::copy(&mut from, &mut to).map(drop)
}

fn hex(id: &[u8]) -> String {
    use std::fmt::Write;
    id.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(name: &str, limit: u64) -> Store {
        let dir = std::env::temp_dir().join(format!("lwp-builds-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Store::open(dir, limit, None).unwrap()
    }

    #[test]
    fn a_build_is_kept_under_its_id_and_no_other() {
        let store = fresh("kept", 1 << 30);
        let own = std::env::current_exe().unwrap();
        let id = lwp_symbols::build_id_of(&own);
        if id.is_empty() {
            return;
        }
        let other: Vec<u8> = id.iter().map(|byte| !byte).collect();
        assert!(store.keep(&id, &own).unwrap());
        assert!(!store.keep(&id, &own).unwrap(), "it is there");
        assert!(!store.keep(&other, &own).unwrap(), "it is another build");
        assert!(!store.keep(&[], &own).unwrap() && !store.keep(&[1; 65], &own).unwrap());
        let found = store.executable(&id, &own).unwrap();
        assert_eq!(lwp_symbols::build_id_of(&found), id);
        assert_eq!(store.executable(&other, &own), None);
        assert_eq!(store.debug_information(&id, &own), None);
        assert_eq!(store.items().unwrap().len(), 1);
        assert_eq!(store.clear().unwrap().0, 1);
        fs::remove_dir_all(&store.dir).unwrap();
    }

    #[test]
    fn what_was_used_last_stays() {
        let store = fresh("pruned", 250);
        for (age, id) in [(50_000, [1, 1]), (40_000, [2, 2]), (30_000, [3, 3])] {
            let place = store.place(&id, Kind::Executable).unwrap();
            fs::write(&place, [0; 100]).unwrap();
            let then = SystemTime::now() - Duration::from_secs(age);
            File::open(&place).unwrap().set_modified(then).unwrap();
        }
        // The oldest is used again.
        assert!(store.executable(&[1, 1], Path::new("x")).is_some());
        assert_eq!(store.prune().unwrap(), (1, 100));
        let left = |id: [u8; 2]| store.place(&id, Kind::Executable).unwrap().exists();
        assert!(left([1, 1]) && !left([2, 2]) && left([3, 3]));
        fs::remove_dir_all(&store.dir).unwrap();
    }
}

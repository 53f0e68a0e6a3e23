//! Directories for parts of answers, which other machines fetch from there.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use lwp_fleet::Failure;
use uuid::Uuid;

/// The beginning of their names.
const PREFIX: &str = "lwp-fleet-node-";
/// The file by whose lock a directory's owner lives.
const LOCK: &str = "lock";

/// A directory that goes when this machine's work ends; if it is killed, the next one here removes
/// it.
#[derive(Debug)]
pub struct WorkDir {
    path: PathBuf,
    _lock: File,
}

impl WorkDir {
    /// A new directory in `parent`, which only this user may enter.
    ///
    /// # Errors
    ///
    /// If there can be none.
    pub fn new(parent: &Path) -> Result<Self, Failure> {
        let named = |error| Failure::new(format!("{}: {error}", parent.display()));
        let own = || -> std::io::Result<Self> {
            sweep(parent)?;
            let path = parent.join(format!("{PREFIX}{}", Uuid::new_v4().simple()));
            DirBuilder::new().mode(0o700).create(&path)?;
            let lock = File::create_new(path.join(LOCK))?;
            lock.lock()?;
            Ok(Self { path, _lock: lock })
        };
        own().map_err(named)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of those who were killed.
fn sweep(parent: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(parent)?.flatten() {
        let path = entry.path();
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_ours && File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_dead_are_removed_and_those_of_the_living_stay() {
        let parent = tempfile::tempdir().unwrap();
        let dead = parent.path().join("lwp-fleet-node-dead");
        std::fs::create_dir(&dead).unwrap();
        File::create(dead.join(LOCK)).unwrap();
        std::fs::create_dir(parent.path().join("other")).unwrap();
        let first = WorkDir::new(parent.path()).unwrap();
        assert!(!dead.exists() && parent.path().join("other").exists());
        let second = WorkDir::new(parent.path()).unwrap();
        assert!(first.path().exists() && second.path().exists());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
    }
}

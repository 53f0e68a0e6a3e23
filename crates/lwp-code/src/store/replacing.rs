//! Replacing files of the store: what others have written meanwhile is not lost.
//!
//! Several processes write to a store at a time, for other runs and for the same one. A new file
//! takes its name in one step, but what it should hold may depend on what is there. So whoever
//! replaces a file holds a lock while it looks at the old one and renames the new one.
#![expect(clippy::disallowed_methods, reason = "files of the cache, below its own directory")]

use std::ffi::{CStr, CString};
use std::io;
use std::sync::atomic::Ordering;

use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};

use super::{Description, Header, Key, SETTLE_PAUSE, Store, name_of};

/// The file that is locked, beside the directory of units.
const REPLACING: &CStr = c"../replacing";
/// The number of attempts to lock it, five seconds in all.
const TRIES: u32 = 500;

/// A file that has been written, and has no place yet. It is removed unless it gets one.
#[derive(Debug)]
pub struct Unplaced<'a> {
    /// Its store.
    store: &'a Store,
    /// Its name until it has a place.
    name: CString,
    /// What it is about.
    key: Key,
}

impl<'a> Unplaced<'a> {
    /// The file `name` of `store`, about `key`.
    pub const fn new(store: &'a Store, name: CString, key: Key) -> Self {
        Self { store, name, key }
    }

    /// Replaces what the store has for the key, unless that is to be kept. Returns whether it did.
    pub fn replace(self, keep: impl FnOnce(&Header) -> bool) -> io::Result<bool> {
        let _lock = Self::lock(self.store);
        self.replace_locked(|there| !there.is_some_and(keep))
    }

    /// Replaces what the store has for the key if that `may_go`. Returns whether it did. The caller
    /// holds the lock.
    fn replace_locked(self, may_go: impl FnOnce(Option<&Header>) -> bool) -> io::Result<bool> {
        if !may_go(self.store.header(self.key).as_ref()) {
            return Ok(false);
        }
        fs::renameat(&self.store.dir, &self.name, &self.store.dir, name_of(self.key))?;
        Ok(true)
    }

    /// Replaces the image of `key` by what `change` makes of it, or of nothing where there is none
    /// that `fits`. Changes that several processes make at a time all take effect. `change` is
    /// called again if another process has written meanwhile.
    ///
    /// # Errors
    ///
    /// If the new image can't be written; the old one stays then.
    pub fn update(
        store: &'a Store,
        key: Key,
        fits: impl Fn(&Header) -> bool,
        mut change: impl FnMut(Option<Vec<u8>>) -> Option<(Description, Vec<u8>)>,
    ) -> io::Result<()> {
        // The first time, others are not kept waiting while `change` works.
        let mut lock = None;
        loop {
            let had_lock = lock.is_some();
            let found = store.load(key, &fits);
            let base = found.as_ref().map(|(header, _)| header.image);
            let Some((about, image)) = change(found.map(|(_, image)| image)) else {
                return Ok(());
            };
            let new = store.write(key, &about, &[image])?;
            lock = lock.or_else(|| Some(Self::lock(store)));
            let is_base = |there: Option<&Header>| there.map(|it| it.image) == base;
            if new.replace_locked(|there| had_lock || is_base(there))? {
                return Ok(());
            }
        }
    }

    /// A descriptor that holds the lock of whoever replaces a file. Without it, the last one to
    /// write wins: it is not waited for twice where a process keeps it, as one that is stopped.
    fn lock(store: &Store) -> Option<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = fs::openat(&store.dir, REPLACING, flags, Mode::RUSR | Mode::WUSR).ok()?;
        let tries = if store.is_stuck.load(Ordering::Relaxed) { 1 } else { TRIES };
        for _ in 0..tries {
            match fs::flock(&fd, fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(fd),
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(SETTLE_PAUSE),
                Err(_) => return None,
            }
        }
        store.is_stuck.store(true, Ordering::Relaxed);
        None
    }
}

impl Drop for Unplaced<'_> {
    fn drop(&mut self) {
        self.store.remove(&self.name);
    }
}

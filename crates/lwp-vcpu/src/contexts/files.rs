//! The files of contexts: those in use, and spare ones.

use std::os::fd::RawFd;
use std::sync::Arc;

use lwp_ptrace::limits;
use lwp_ptrace::sys::{self, Errno};
use rustc_hash::FxHashMap;

use super::{ContextFile, Doors, FileId};
use crate::memory_map::HOST_BYTES;

/// Most spare files.
const MOST_SPARE: usize = 4;
/// Number of spare files from which on a file that is not ready is used. With two, one is made
/// ready while the other is in use.
const ENOUGH_SPARE: usize = 2;
const EMFILE: i32 = 24;

/// The files of all address spaces.
#[derive(Debug)]
pub struct Files {
    files: FxHashMap<FileId, ContextFile>,
    /// Files of address spaces that are gone, for new ones, longest left first. The host goes on
    /// listening for their threads.
    spare: Vec<FileId>,
    made: u64,
    doors: Arc<Doors>,
}

impl Files {
    /// Makes an empty set, whose address spaces ring at `doors`.
    pub fn new(doors: Arc<Doors>) -> Self {
        Self { files: FxHashMap::default(), spare: Vec::new(), made: 0, doors }
    }

    /// Returns a file for a new address space, which one process uses. It is new, or an earlier
    /// address space has left it and nobody reaches it any more.
    ///
    /// # Errors
    ///
    /// Those of [`lwp_ptrace::SharedFile::new`].
    pub fn add(&mut self) -> sys::Result<FileId> {
        self.add_and_leave(0)
    }

    /// The same, if the rest of the host keeps so many descriptors.
    ///
    /// # Errors
    ///
    /// Those of [`Files::add`], `EMFILE`, and `ENOMEM` where the host is short of address space.
    pub fn add_and_leave(&mut self, descriptors: u64) -> sys::Result<FileId> {
        // One that is ready takes no time, and while it is in use another is made ready.
        let ready = self.spare.iter().position(|id| self.is_spare(*id, true));
        let any = || self.spare.iter().position(|id| self.is_spare(*id, false));
        let enough = self.spare.len() >= ENOUGH_SPARE;
        if let Some(place) = ready.or_else(|| any().filter(|_| enough)) {
            let id = self.spare.remove(place);
            self.enter(id);
            return Ok(id);
        }
        if descriptors > 0 && limits::room().is_some_and(|room| room < HOST_BYTES / 2) {
            return Err(Errno::ENOMEM);
        }
        let file = ContextFile::new()?;
        let most = limits::descriptors().unwrap_or(u64::MAX);
        if u64::from(file.fd().unsigned_abs()) + descriptors >= most {
            return Err(Errno(EMFILE));
        }
        self.made += 1;
        let id = FileId(self.made);
        self.files.insert(id, file);
        Ok(id)
    }

    /// Returns the file of an address space.
    pub fn get(&self, id: FileId) -> Option<&ContextFile> {
        self.files.get(&id)
    }

    /// The descriptors of the files that processes use.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.files.values().filter(|file| file.users > 0).map(ContextFile::fd)
    }

    /// Returns the address space whose file has this inode.
    pub fn of_inode(&self, inode: u64) -> Option<FileId> {
        let found = self.files.iter().find(|(_, file)| file.inode() == Some(inode));
        found.map(|(id, _)| *id)
    }

    /// Notes that one more process uses or keeps a file.
    pub fn enter(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.users += 1;
        }
    }

    /// Notes that one process has left an address space. After the last one, its file is spare.
    pub fn leave(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else { return };
        file.users -= 1;
        if file.users > 0 {
            return;
        }
        if !file.is_small() {
            return self.drop(id);
        }
        self.spare.push(id);
        if self.spare.len() > MOST_SPARE {
            let oldest = self.spare.remove(0);
            self.drop(oldest);
        }
    }

    /// Returns whether a spare file is in this state, and nobody else reaches it.
    fn is_spare(&self, id: FileId, ready: bool) -> bool {
        let file = self.files.get(&id);
        file.is_some_and(|file| file.is_ready() == ready && file.can_be_used_again())
    }

    /// Returns whether nothing but the host has the file of an address space open or mapped.
    pub fn is_unreached(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(ContextFile::can_be_used_again)
    }

    /// Makes one spare file that nobody else reaches ready for a new address space.
    pub fn prepare_spare(&mut self) {
        for id in &self.spare {
            let file = self.files.get_mut(id);
            if let Some(file) = file.filter(|file| !file.is_ready() && file.can_be_used_again()) {
                return file.clean();
            }
        }
    }

    fn drop(&mut self, id: FileId) {
        self.files.remove(&id);
        self.doors.remove(id);
    }

    /// Returns the file of an address space, to be changed.
    pub(super) fn get_mut(&mut self, id: FileId) -> Option<&mut ContextFile> {
        self.files.get_mut(&id)
    }
}

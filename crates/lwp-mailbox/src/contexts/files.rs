//! The files of contexts: one for each address space, and some that are made ahead.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;

use lwp_process::limits;
use lwp_process::shm::Inode;
use lwp_process::sys::{self, Errno};
use rustc_hash::FxHashMap;

use super::{ContextFile, Doors, FileId};
use crate::memory_map::HOST_BYTES;

/// Most files that are made before they are needed.
const AHEAD: usize = 2;
/// Most files that wait to be unmapped and closed.
const MOST_LEFT: usize = 8;
/// Most files of ended address spaces by which a late copy of one is still known.
const MOST_GONE: usize = 64;
const EMFILE: i32 = 24;

/// The files of all address spaces.
#[derive(Debug)]
pub struct Files {
    files: FxHashMap<FileId, ContextFile>,
    /// Files that nobody has had yet.
    ahead: Vec<ContextFile>,
    /// Files of address spaces that are gone. None of them serves another.
    left: Vec<ContextFile>,
    /// Their names and what mappings of them show, longest gone first.
    gone: VecDeque<(FileId, Inode)>,
    made: u64,
    doors: Arc<Doors>,
}

impl Files {
    /// Makes an empty set, whose address spaces ring at `doors`.
    pub fn new(doors: Arc<Doors>) -> Self {
        Self {
            files: FxHashMap::default(),
            ahead: Vec::new(),
            left: Vec::new(),
            gone: VecDeque::new(),
            made: 0,
            doors,
        }
    }

    /// Returns a file for a new address space, which one process uses. No other has ever had it.
    ///
    /// # Errors
    ///
    /// Those of [`lwp_process::SharedFile::new`].
    pub fn add(&mut self) -> sys::Result<FileId> {
        self.add_and_leave(0)
    }

    /// Returns a file for a new address space, as [`Files::add`] does, if that leaves the rest of
    /// the host this many descriptors.
    ///
    /// # Errors
    ///
    /// Those of [`Files::add`], `EMFILE`, and `ENOMEM` where the host is short of address space.
    pub fn add_and_leave(&mut self, descriptors: u64) -> sys::Result<FileId> {
        let file = match self.ahead.pop() {
            Some(file) => file,
            None => make(descriptors)?,
        };
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
        self.files.values().map(ContextFile::fd)
    }

    /// Returns the address space, one that may be gone, whose file shows this in mappings.
    pub fn of_inode(&self, inode: Inode) -> Option<FileId> {
        let live = self.files.iter().find(|(_, file)| file.inode() == inode).map(|(id, _)| *id);
        // The latest: an inode's number may have been another file's before.
        let gone = || self.gone.iter().rev().find(|(_, it)| *it == inode).map(|(id, _)| *id);
        live.or_else(gone)
    }

    /// Notes that one more process uses a file.
    pub fn enter(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.users += 1;
        }
    }

    /// Notes that one process has left an address space. After the last one, its file is dropped.
    pub fn leave(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else { return };
        file.users -= 1;
        if file.users > 0 {
            return;
        }
        self.doors.remove(id);
        let Some(file) = self.files.remove(&id) else { return };
        self.gone.push_back((id, file.inode()));
        if self.gone.len() > MOST_GONE {
            self.gone.pop_front();
        }
        if self.left.len() < MOST_LEFT {
            self.left.push(file);
        }
    }

    /// Uses a moment in which nobody waits: makes a file for the next address space, and drops
    /// those of the last ones.
    pub fn tidy(&mut self) {
        self.left.clear();
        while self.ahead.len() < AHEAD
            && let Ok(file) = make(lwp_process::limits::RESERVED)
        {
            self.ahead.push(file);
        }
    }

    /// Returns the file of an address space, to be changed.
    pub(super) fn get_mut(&mut self, id: FileId) -> Option<&mut ContextFile> {
        self.files.get_mut(&id)
    }
}

/// Makes a file, if the rest of the host keeps so many descriptors.
fn make(descriptors: u64) -> sys::Result<ContextFile> {
    if descriptors > 0 && limits::room().is_some_and(|room| room < HOST_BYTES / 2) {
        return Err(Errno::ENOMEM);
    }
    let file = ContextFile::new()?;
    let most = limits::descriptors().unwrap_or(u64::MAX);
    if u64::from(file.fd().unsigned_abs()) + descriptors >= most {
        return Err(Errno(EMFILE));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_serves_a_second_address_space() {
        let mut files = Files::new(Arc::default());
        let mut seen = Vec::new();
        for _ in 0..2 * MOST_LEFT {
            let id = files.add().expect("memory for contexts");
            let file = files.get(id).expect("it is there");
            assert!(!seen.contains(&(file.inode(), file.secret())));
            seen.push((file.inode(), file.secret()));
            files.leave(id);
            files.tidy();
        }
        assert_eq!(files.descriptors().count(), 0);
    }

    #[test]
    fn a_late_copy_of_a_gone_address_space_is_still_known() {
        let mut files = Files::new(Arc::default());
        let id = files.add().expect("memory for contexts");
        let inode = files.get(id).expect("it is there").inode();
        assert_eq!(files.of_inode(inode), Some(id));
        files.leave(id);
        assert!(files.get(id).is_none());
        assert_eq!(files.of_inode(inode), Some(id));
    }
}

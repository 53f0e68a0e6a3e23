//! Files that a program names, opened with no more rights than its user has.
//!
//! The host often runs as root, and a program chooses what its paths lead to: it makes symbolic
//! links, mounts other file systems, and puts pipes where files are expected. So a path is resolved
//! within the program's root directory, nothing is waited for, and only a regular file is read that
//! the program's user may read, whatever the host may.
//!
//! Promise: R118, R120
#![expect(clippy::disallowed_methods, reason = "this is one of the three places that open files")]

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::maps::{Mapping, Status};
use crate::{Tid, kernel_files, limits};

/// Flags of every file that is opened.
const FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The files that a process sees, and what its user may read of them. It outlives the process.
#[derive(Debug)]
pub struct Viewpoint {
    root: OwnedFd,
    rights: Rights,
}

/// The user and the groups by which the kernel decides about files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rights {
    user: u32,
    /// All users that the process is or may become again.
    users: Vec<u32>,
    groups: Vec<u32>,
}

impl Rights {
    /// Those of a process with this status; `None` where it says nothing.
    fn of(status: &Status) -> Option<Self> {
        let numbers =
            |name| -> Vec<u32> { status.list(name).into_iter().map(i32::cast_unsigned).collect() };
        let users = numbers("Uid:");
        let mut groups = numbers("Groups:");
        groups.extend(numbers("Gid:").last());
        Some(Self { user: *users.last()?, users, groups })
    }

    /// Returns whether they suffice to read a file, as far as its mode tells.
    fn read(&self, user: u32, group: u32, mode: u32) -> bool {
        let bit = match self.user {
            0 => return true,
            own if own == user => 0o400,
            _ if self.groups.contains(&group) => 0o040,
            _ => 0o004,
        };
        mode & bit != 0
    }
}

impl Viewpoint {
    /// That of process `pid`, which lives; `None` where the kernel does not show it.
    pub fn of(pid: i32) -> Option<Self> {
        let root = kernel_files::handle(pid, "root", OFlags::DIRECTORY).ok()?;
        Some(Self { root, rights: Rights::of(&Status::read(pid))? })
    }

    /// Opens a regular file.
    ///
    /// # Errors
    ///
    /// Those of the file; it is refused if it is no regular one, or not to be read by the program's
    /// user.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        self.checked(File::from(self.resolve(path, FLAGS)?))
    }

    /// Opens a directory.
    ///
    /// # Errors
    ///
    /// Those of the directory.
    pub fn directory(&self, path: &Path) -> io::Result<File> {
        Ok(File::from(self.resolve(path, FLAGS | OFlags::DIRECTORY)?))
    }

    /// Opens a regular file in a directory. A link is not followed.
    ///
    /// # Errors
    ///
    /// As those of [`Self::open`]; and it is refused if it belongs to somebody else.
    pub fn open_in(&self, directory: &File, name: &Path) -> io::Result<File> {
        let found = fs::openat(directory, name, FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
        let file = self.checked(File::from(found))?;
        let owner = file.metadata()?.uid();
        match owner == 0 || self.rights.users.contains(&owner) {
            true => Ok(file),
            false => Err(ErrorKind::PermissionDenied.into()),
        }
    }

    /// Returns `file` if it is a regular one that the program's user may read.
    ///
    /// # Errors
    ///
    /// Otherwise.
    fn checked(&self, file: File) -> io::Result<File> {
        let metadata = file.metadata()?;
        match metadata.is_file() && self.may_read(&metadata) {
            true => Ok(file),
            false => Err(ErrorKind::PermissionDenied.into()),
        }
    }

    fn may_read(&self, metadata: &Metadata) -> bool {
        // Without root's rights, the host has opened no more than its user may.
        !rustix::process::geteuid().is_root()
            || self.rights.read(metadata.uid(), metadata.gid(), metadata.mode())
    }

    /// Opens what `path` leads to in the program's root directory. No link leads out of it.
    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match fs::openat2(&self.root, path, flags, Mode::empty(), within) {
            // Kernels before 5.6, and sandboxes; what is opened is checked all the same.
            Err(Errno::NOSYS | Errno::PERM) => {
                let inside = path.strip_prefix("/").unwrap_or(path);
                Ok(fs::openat(&self.root, inside, flags | OFlags::NOFOLLOW, Mode::empty())?)
            }
            opened => Ok(opened?),
        }
    }
}

/// Opens the file of a mapping, also where its path leads to another one by now, or to none.
pub fn mapped(tid: Tid, mapping: &Mapping) -> Option<File> {
    let file = mapping.open(tid)?;
    Viewpoint::of(tid)?.checked(file).ok()
}

/// Device and inode of a file.
type Identity = ((u32, u32), u64);

/// Files that somebody holds open.
static HELD: Mutex<BTreeMap<Identity, Weak<File>>> = Mutex::new(BTreeMap::new());

/// The file of a mapping, held open: its names are looked for when the program has ended, and it
/// may remove its file before. The same file is opened once. `None` where it cannot be had, or too
/// few descriptors would be left.
pub fn hold(tid: Tid, mapping: &Mapping) -> Option<Arc<File>> {
    let identity = (mapping.device, mapping.inode);
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(file) = held.get(&identity).and_then(Weak::upgrade) {
        return Some(file);
    }
    let file = mapped(tid, mapping)?;
    let number = u64::from(file.as_raw_fd().unsigned_abs());
    if limits::descriptors().is_some_and(|most| number + limits::RESERVED >= most / 2) {
        return None;
    }
    let file = Arc::new(file);
    held.retain(|_, file| file.strong_count() > 0);
    held.insert(identity, Arc::downgrade(&file));
    Some(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn rights_are_those_of_the_first_class_that_fits() {
        let text = "Uid:\t7\t7\t0\t7\nGid:\t8\t8\t8\t8\nGroups:\t20 30\n";
        let rights = Rights::of(&Status::of(text)).unwrap();
        assert!(rights.read(7, 1, 0o400) && !rights.read(7, 8, 0o044));
        assert!(rights.read(0, 30, 0o040) && rights.read(0, 8, 0o040));
        assert!(!rights.read(0, 30, 0o604) && !rights.read(0, 1, 0o640));
        assert!(rights.read(0, 1, 0o644));
        let root = Rights { user: 0, ..rights };
        assert!(root.read(7, 7, 0));
        assert_eq!(Rights::of(&Status::of("")), None);
    }

    #[test]
    fn only_regular_files_within_the_root_are_opened() {
        let dir = std::env::temp_dir().join(format!("lwp-viewpoint-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let view = Viewpoint::of(std::process::id().cast_signed()).unwrap();
        std::fs::write(dir.join("file"), "x").unwrap();
        symlink("file", dir.join("link")).unwrap();
        symlink("/proc/self/exe", dir.join("magic")).unwrap();
        let (kind, mode) = (fs::FileType::Fifo, Mode::RWXU);
        fs::mknodat(fs::CWD, dir.join("pipe"), kind, mode, 0).unwrap();
        let opens = |name: &str| view.open(&dir.join(name)).is_ok();
        assert!(opens("file") && opens("link"));
        assert!(!opens("magic") && !opens("pipe") && !opens("") && !opens("none"));
        let directory = view.directory(&dir).unwrap();
        let opens = |name: &str| view.open_in(&directory, Path::new(name)).is_ok();
        assert!(opens("file") && !opens("link") && !opens("pipe"));
        assert!(view.directory(&dir.join("pipe")).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_file_of_a_mapping_is_held_once() {
        let me = std::process::id().cast_signed();
        let exe = std::env::current_exe().unwrap();
        let all = crate::maps::read(me);
        let mut mapping = all.iter().find(|it| Path::new(it.path()) == exe).unwrap().clone();
        let first = hold(me, &mapping).unwrap();
        assert!(Arc::ptr_eq(&first, &hold(me, &mapping).unwrap()));
        drop(first);
        // Its path leads nowhere any more.
        mapping.name = format!("{} (deleted)", exe.display());
        assert_eq!(mapped(me, &mapping).unwrap().metadata().unwrap().ino(), mapping.inode);
        mapping.inode += 1;
        assert!(mapped(me, &mapping).is_none());
    }
}

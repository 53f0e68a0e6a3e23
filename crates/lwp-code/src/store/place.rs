//! The way to the store: only through directories that nobody else can change.
//!
//! Anyone who may write to a directory on the way, or has made one of its links, could have this
//! user make directories and files anywhere. That matters most to root with the home of another
//! user.
#![expect(clippy::disallowed_methods, reason = "files of the cache, below its own directory")]

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::StoreError;

/// Links followed on one way, as the kernel has it.
const MOST_LINKS: usize = 40;

/// Opens the directory at `path`, made if it is missing, with every directory on the way.
///
/// Each of them, and each symbolic link, must belong to this user or to root. Nobody else may write
/// to a directory, save where it lets only a file's owner remove or rename it, as `/tmp` does.
pub fn open(path: &Path) -> Result<OwnedFd, StoreError> {
    let path = std::path::absolute(path).map_err(|error| failed(path, error))?;
    let mut steps: VecDeque<OsString> = steps(&path).collect();
    let mut links = 0;
    let (mut dir, mut place) = root()?;
    while let Some(step) = steps.pop_front() {
        place.push(&step);
        match enter(&dir, &step) {
            Ok(next) => {
                check(&fs::fstat(&next).map_err(|error| failed(&place, error.into()))?, &place)?;
                dir = next;
            }
            Err(Errno::NOTDIR | Errno::LOOP) => {
                links += 1;
                let target = link(&dir, &step, &place)?;
                if links > MOST_LINKS {
                    return Err(failed(&place, Errno::LOOP.into()));
                }
                place.pop();
                if target.is_absolute() {
                    (dir, place) = root()?;
                }
                for step in self::steps(&target).collect::<Vec<_>>().into_iter().rev() {
                    steps.push_front(step);
                }
            }
            Err(error) => return Err(failed(&place, error.into())),
        }
    }
    Ok(dir)
}

fn failed(path: &Path, error: io::Error) -> StoreError {
    StoreError::Io { path: path.into(), error }
}

fn root() -> Result<(OwnedFd, PathBuf), StoreError> {
    let root = PathBuf::from("/");
    match fs::openat(fs::CWD, c"/", DIRECTORY, Mode::empty()) {
        Ok(dir) => Ok((dir, root)),
        Err(error) => Err(failed(&root, error.into())),
    }
}

/// The names in `path`; `..` is one of them, because behind a link it leads elsewhere than it seems
/// to.
fn steps(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory `name` in `dir`, made if it is missing.
fn enter(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    // Many a directory on the way may be passed and not read.
    let pass = OFlags::PATH | DIRECTORY.difference(OFlags::RDONLY);
    match fs::openat(dir, name, pass, Mode::empty()) {
        Err(Errno::NOENT) => {
            // Another run may make it at the same time.
            match fs::mkdirat(dir, name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            fs::openat(dir, name, pass, Mode::empty())
        }
        opened => opened,
    }
}

/// The target of the symbolic link `name`.
fn link(dir: &OwnedFd, name: &OsStr, place: &Path) -> Result<PathBuf, StoreError> {
    let error = |error: Errno| failed(place, error.into());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = fs::openat(dir, name, flags, Mode::empty()).map_err(error)?;
    let stat = fs::fstat(&link).map_err(error)?;
    if fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::Symlink {
        return Err(error(Errno::NOTDIR));
    }
    if !is_trusted(stat.st_uid) {
        return Err(StoreError::Foreign { path: place.into() });
    }
    let target = fs::readlinkat(&link, c"", Vec::new()).map_err(error)?;
    Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
}

fn check(stat: &fs::Stat, place: &Path) -> Result<(), StoreError> {
    const STICKY: u32 = 0o1000;
    const OTHERS_WRITE: u32 = 0o022;
    let closed = stat.st_mode & OTHERS_WRITE == 0 || stat.st_mode & STICKY != 0;
    match is_trusted(stat.st_uid) && closed {
        true => Ok(()),
        false => Err(StoreError::Foreign { path: place.into() }),
    }
}

/// Returns whether files of this user are as good as ours.
fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

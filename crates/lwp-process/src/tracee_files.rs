//! Files that programs have mapped, opened by the engine: the only way to them.
//!
//! A path of a program is a program's to choose, and so is what lies there when the host comes: a
//! link to a file that only the host may read, a FIFO, a device, an endless file, a file system that
//! answers when it pleases. So the host opens
//!
//! - below the program's root directory, which no link and no `..` leads out of;
//! - with the program's users, groups and capabilities, where it goes by a path;
//! - the very file that is mapped, where one is;
//! - regular files alone, found out before anything is opened, and without waiting;
//! - by a thread of its own, which is given up after [`PATIENCE`], wherever somebody else than the
//!   kernel may answer.
//!
//! Promise: B8
#![expect(clippy::disallowed_methods, reason = "this is one of the three places that open files")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, open, openat, openat2,
    statx,
};

use crate::kernel_files;
use crate::missing_pages;
use crate::sys::{self, Credentials};
use crate::tracee::Tid;

/// The time after which a path that leads nowhere is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most threads that have been given up. If there are more, nothing is opened by paths.
const MOST_STUCK: i32 = 8;
const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A file mapping of a program.
#[derive(Clone, Copy, Debug)]
pub struct Mapped<'a> {
    /// First address, and first address after it.
    pub range: (u64, u64),
    /// Inode.
    pub inode: u64,
    /// Path, from the root of the program.
    pub path: &'a Path,
}

/// Opens the file that `tid` has mapped: by the mapping, where the kernel allows that, and else by
/// the path, if it leads to a file with the same inode.
///
/// The caller asks before whether a program serves the file's system ([`crate::missing_pages`]).
///
/// # Errors
///
/// `NotFound` where the path leads elsewhere by now; those of open(2).
pub fn open_mapped(tid: Tid, mapped: Mapped<'_>) -> io::Result<File> {
    let (start, end) = mapped.range;
    // For CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN only. Whoever has mapped a file may read it.
    let by_mapping = open(
        format!("/proc/{tid}/map_files/{start:x}-{end:x}"),
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let same = |file: &File| file.metadata().is_ok_and(|file| file.ino() == mapped.inode);
    let file = match by_mapping {
        Ok(handle) => opened(&handle)?,
        Err(_) => match open_by_path(tid, mapped) {
            Ok(file) => file,
            // The program's own file may have no name any more.
            Err(error) => {
                let program = format!("/proc/{tid}/exe");
                let handle = open(program, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
                handle.map_err(|_| error).and_then(|handle| opened(&handle))?
            }
        },
    };
    if same(&file) { Ok(file) } else { Err(elsewhere()) }
}

/// Returns whether `path` leads `tid` to a file with this inode, as far as the kernel knows without
/// asking anybody.
pub fn leads_to(tid: Tid, path: &Path, inode: u64) -> bool {
    let known = || {
        let handle = handle_at(&root_of(tid)?, path, ResolveFlags::CACHED)?;
        statx(handle, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::INO)
    };
    known().is_ok_and(|known| known.stx_ino == inode)
}

/// Opens what the path of a mapping leads to by now, if that is the same file.
fn open_by_path(tid: Tid, mapped: Mapped<'_>) -> io::Result<File> {
    let Mapped { inode, path, .. } = mapped;
    let root = root_of(tid)?;
    match handle_at(&root, path, ResolveFlags::CACHED) {
        Ok(handle) => open_if_same(tid, inode, &handle),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INVAL) => {
            let path = path.to_path_buf();
            as_program(tid, move || {
                open_if_same(tid, inode, &handle_at(&root, &path, ResolveFlags::empty())?)
            })
        }
        Err(error) => Err(error.into()),
    }
}

fn open_if_same(tid: Tid, inode: u64, handle: &OwnedFd) -> io::Result<File> {
    // What the kernel knows by itself: nobody is asked.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let known = statx(handle, c"", flags, StatxFlags::INO)?;
    let device = (known.stx_dev_major, known.stx_dev_minor);
    if known.stx_ino != inode || missing_pages::is_served(tid, device) {
        return Err(elsewhere());
    }
    opened(handle)
}

/// Reads a file of `/proc`, of which there is a handle, as `tid` would: the kernel decides about
/// what is told to whom when it is opened and when it is read.
///
/// # Errors
///
/// Those of open(2) and read(2).
pub fn read_as(tid: Tid, handle: &OwnedFd) -> io::Result<Vec<u8>> {
    let read = |handle: &OwnedFd| {
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let mut file = File::from(open(path, OPEN, Mode::empty())?);
        let mut text = Vec::with_capacity(16 << 10);
        io::Read::read_to_end(&mut file, &mut text)?;
        Ok(text)
    };
    // The kernel answers, without waiting for anybody.
    if credentials_of(tid).is_some_and(|wanted| Some(&wanted) == own_credentials()) {
        return read(handle);
    }
    let handle = handle.try_clone()?;
    as_program(tid, move || read(&handle))
}

/// A path that leads to an open file, for libraries that take no other.
pub fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn elsewhere() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "it leads to another file")
}

/// Returns a handle of the root directory of `tid`. Only this process may have it.
fn root_of(tid: Tid) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    open(format!("/proc/{tid}/root"), flags, Mode::empty())
}

/// Looks a path up below a root directory, without opening what is there.
fn handle_at(root: &OwnedFd, path: &Path, how: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    const TRIES: usize = 8;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | how;
    let mut found = openat2(root, path, flags, Mode::empty(), resolve);
    for _ in 1..TRIES {
        // Something has been renamed on the way, unless it is not in the kernel's memory.
        let renamed = matches!(found, Err(rustix::io::Errno::AGAIN));
        if !renamed || how.contains(ResolveFlags::CACHED) {
            break;
        }
        found = openat2(root, path, flags, Mode::empty(), resolve);
    }
    match found {
        // Before Linux 5.6, and in old containers: a path without links, as those of mappings are.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            let inside = path.strip_prefix("/").unwrap_or(path);
            openat(root, inside, flags | OFlags::NOFOLLOW, Mode::empty())
        }
        found => found,
    }
}

/// Opens a regular file, of which there is a handle.
fn opened(handle: &OwnedFd) -> io::Result<File> {
    if FileType::from_raw_mode(fstat(handle)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    Ok(openat(CWD, path, OPEN, Mode::empty())?.into())
}

/// Does something in a thread with the credentials of `tid`, unless that takes too long.
fn as_program<T: Send + 'static>(
    tid: Tid,
    open: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    static STUCK: AtomicI32 = AtomicI32::new(0);
    if STUCK.load(Ordering::Relaxed) >= MOST_STUCK {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let wanted = credentials_of(tid).ok_or(io::ErrorKind::NotFound)?;
    let (done, result) = mpsc::channel();
    let work = move || {
        let lowered = if own_credentials() == Some(&wanted) {
            Ok(())
        } else {
            let lowered = sys::lower_thread_credentials(&wanted);
            let (user, group) = sys::file_credentials();
            lowered.map_err(|error| io::Error::from_raw_os_error(error.0)).and_then(|()| {
                let same = (user, group) == (wanted.user, wanted.group);
                if same { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
            })
        };
        let given_up = done.send(lowered.and_then(|()| open())).is_err();
        if given_up {
            STUCK.fetch_sub(1, Ordering::Relaxed);
        }
    };
    std::thread::Builder::new().name("lwp-open".into()).spawn(work)?;
    match result.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(_) => {
            STUCK.fetch_add(1, Ordering::Relaxed);
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

/// The credentials of this process, which do not change.
fn own_credentials() -> Option<&'static Credentials> {
    static OWN: OnceLock<Option<Credentials>> = OnceLock::new();
    OWN.get_or_init(|| credentials_of(std::process::id().cast_signed())).as_ref()
}

/// The credentials of a process, as far as files are concerned.
fn credentials_of(tid: Tid) -> Option<Credentials> {
    let status = kernel_files::text(tid, "status").ok()?;
    parse_credentials(&status)
}

fn parse_credentials(status: &str) -> Option<Credentials> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let numbers = |name: &str| -> Option<Vec<u32>> {
        field(name)?.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
    };
    Some(Credentials {
        // Real, effective, saved, and for files.
        user: *numbers("Uid:")?.get(3)?,
        group: *numbers("Gid:")?.get(3)?,
        groups: numbers("Groups:")?,
        capabilities: u64::from_str_radix(field("CapEff:")?.trim(), 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use super::*;

    fn own() -> Tid {
        std::process::id().cast_signed()
    }

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("lwp-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        directory
    }

    #[test]
    fn a_mapped_file_is_opened_whatever_its_path_leads_to() {
        let exe = std::env::current_exe().expect("a path");
        let inode = exe.metadata().expect("a file").ino();
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        let line = maps.lines().find(|line| line.ends_with(exe.to_str().expect("text")));
        let (start, end) = line
            .expect("it is mapped")
            .split(' ')
            .next()
            .expect("a range")
            .split_once('-')
            .expect("a range");
        let hex = |text| u64::from_str_radix(text, 16).expect("an address");
        let mapped = Mapped { range: (hex(start), hex(end)), inode, path: &exe };
        let file = open_mapped(own(), mapped).expect("it opens");
        assert_eq!(file.metadata().expect("a file").ino(), inode);
        let by_path = Mapped { range: (1, 2), ..mapped };
        assert!(open_mapped(own(), by_path).is_ok(), "by its path");
        let another = Mapped { inode: inode + 1, ..by_path };
        assert!(open_mapped(own(), another).is_err(), "another file");
    }

    #[test]
    fn nothing_but_regular_files_is_opened_and_nobody_waits() {
        let directory = directory("regular");
        let fifo = directory.join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).expect("a name");
        let made = rustix::fs::mknodat(CWD, &*name, FileType::Fifo, Mode::from_raw_mode(0o666), 0);
        made.expect("a FIFO");
        std::fs::write(directory.join("file"), "text").expect("a file");
        symlink("file", directory.join("link")).expect("a link");
        let by_path = |path: &Path| {
            let inode = std::fs::metadata(path).expect("a file").ino();
            // The kernel may have to ask after all, while somebody renames a file.
            let leads = || std::fs::metadata(path).is_ok() && leads_to(own(), path, inode);
            assert!((0..1000).any(|_| leads()) && !leads_to(own(), path, inode + 1));
            open_mapped(own(), Mapped { range: (1, 2), inode, path })
        };
        let file = by_path(&directory.join("link")).expect("it opens");
        assert_eq!(std::io::read_to_string(file).expect("text"), "text");
        for other in [&fifo, Path::new("/dev/zero"), &directory] {
            assert!(by_path(other).is_err(), "{}", other.display());
        }
        std::fs::remove_dir_all(directory).expect("it goes");
    }

    #[test]
    fn credentials_are_those_for_files() {
        let status =
            "Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nCapEff:\t00000000000000ff\n";
        let want = Credentials { user: 4, group: 8, groups: vec![9, 10], capabilities: 255 };
        assert_eq!(parse_credentials(status), Some(want));
        assert_eq!(parse_credentials("Uid:\t1\n"), None);
    }

    /// Needs root: it is about what root reads for others.
    #[test]
    fn the_kernel_tells_a_reader_no_more_than_it_may_know() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let mut sleeps = std::process::Command::new("sleep");
        let child = std::os::unix::process::CommandExt::uid(sleeps.arg("60"), 65534).spawn();
        let mut child = child.expect("a process");
        let reader = child.id().cast_signed();
        // Not this process itself: a thread may always look into its own memory.
        let other = std::process::Command::new("sleep").arg("60").spawn();
        let mut other = other.expect("a process");
        let of_other = format!("{}/", other.id());
        let told = |name: &str| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let handle = open(format!("/proc/{name}"), flags, Mode::empty()).expect("a file");
            [reader, own()].map(|tid| read_as(tid, &handle).is_ok())
        };
        let (maps, status) = (told(&(of_other.clone() + "maps")), told(&(of_other + "status")));
        for process in [&mut child, &mut other] {
            process.kill().and_then(|()| process.wait()).expect("it ends");
        }
        assert_eq!((maps, status), ([false, true], [true, true]));
        // This thread may still do what it could.
        assert_eq!(sys::file_credentials(), (0, 0));
    }
}

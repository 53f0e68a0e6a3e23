//! Files of `/proc` that show what the virtual CPU has in a process: its mappings, and itself as a
//! tracer.
//!
//! Whoever opens one gets, in its place, a file in memory with the text as it would be natively.
//! The kernel has found and opened the real one by then, so whatever leads to it does so here too,
//! and whoever may not read it does not get this one either. The text is that of the moment at
//! which it was opened.
//!
//! Promise: F22

use std::collections::VecDeque;
use std::fmt::Debug;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path};
use std::sync::Arc;

use lwp_dbt::Slot;
use lwp_mailbox::contexts::Context;
use lwp_mailbox::memory_map::{DATA_BYTES, is_ours};
use lwp_process::child::{layout_is_ours, without_fixed_layout};
use lwp_process::kernel_files::{self, Own, Who};
use lwp_process::maps::{self, Status};
use lwp_process::{Tid, memory};
use rustix::fs::{MemfdFlags, Mode, OFlags};

use crate::limits::Raised;
use crate::syscalls::{Pending, nr};

mod described;
mod gathered;
mod shown_protection;
mod sleeping;
mod text;

use gathered::{Arrived, Gathered, has_many_mappings};
use sleeping::{sleeps, sleeps_by_itself};
use text::RUNNING;

const PROC_SUPER_MAGIC: i64 = 0x9fa0;
/// The bit of [`Slot::Watched`] for all descriptors from it on. The next one is that of waits.
const LAST_WATCHED: i32 = 62;

/// The kind of content that a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Maps,
    Smaps,
    SmapsRollup,
    NumaMaps,
    Statm,
    Stat,
    Status,
    Limits,
    MapFiles,
    Personality,
    Syscall,
    Wchan,
    /// Memory itself, which is shown as it is.
    Mem,
}

impl Kind {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "maps" => Self::Maps,
            "smaps" => Self::Smaps,
            "smaps_rollup" => Self::SmapsRollup,
            "numa_maps" => Self::NumaMaps,
            "statm" => Self::Statm,
            "stat" => Self::Stat,
            "status" => Self::Status,
            "limits" => Self::Limits,
            "map_files" => Self::MapFiles,
            "personality" => Self::Personality,
            "syscall" => Self::Syscall,
            "wchan" => Self::Wchan,
            "mem" => Self::Mem,
            _ => return None,
        })
    }
}

/// A file of a process of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcFile {
    kind: Kind,
    /// The thread or process that it tells of.
    about: Tid,
}

/// A file that a process gets in the place of another.
#[derive(Debug)]
pub struct Stand {
    file: ProcFile,
    /// The file in memory.
    memory: OwnedFd,
    /// A handle of the file of `/proc`.
    real: OwnedFd,
}

/// The files that processes have got in the place of others: as many as are likely to be read
/// again.
#[derive(Debug, Default)]
pub struct Seen {
    stands: VecDeque<Stand>,
    arrived: Arrived,
}

impl Stand {
    /// The file in memory that the process is to get.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.memory
    }
}

impl Seen {
    /// Notes one that a process has got.
    pub fn add(&mut self, stand: Stand) {
        const MOST: usize = 64;
        self.stands.truncate(MOST - 1);
        self.stands.push_front(stand);
    }

    /// The threads for which texts have been read since the last call, and their descriptors.
    pub fn news(&self) -> Vec<(Tid, i32)> {
        self.arrived.news()
    }

    /// The one that a thread has open at `fd`.
    fn at(&self, tid: Tid, fd: i32) -> Option<&Stand> {
        let metadata = match self.stands.is_empty() {
            true => None,
            false => kernel_files::metadata(tid, &format!("fd/{fd}")).ok(),
        };
        let inode = metadata.map(|it| (it.dev(), it.ino()))?;
        let is = |stand: &&Stand| {
            rustix::fs::fstat(&stand.memory).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == inode)
        };
        self.stands.iter().find(is)
    }
}

/// What is known of the processes of a run.
pub trait Processes: Debug {
    /// The context of a thread of the run.
    fn context(&self, tid: Tid) -> Option<Context<'_>>;
    /// The contexts of all threads of the process that a thread belongs to.
    fn siblings(&self, tid: Tid) -> Vec<Context<'_>>;
    /// The process of a thread of the run.
    fn process_of(&self, tid: Tid) -> Option<i32>;
    /// Returns whether this is a thread or a process of the run.
    fn has(&self, tid: Tid) -> bool;
    /// The threads of the run.
    fn threads(&self) -> Vec<Tid>;
    /// The processes of the run.
    fn processes(&self) -> Vec<i32>;
    /// Returns whether a thread of the run is stopped as far as the program knows.
    fn is_stopped(&self, tid: Tid) -> bool;
    /// The bytes by which the kernel's limits on a process's address space are raised.
    fn raised(&self, pid: i32) -> Raised;
    /// The pages in the address space of a thread or process that are protected for our sake, in
    /// order.
    fn protected_pages(&self, tid: Tid) -> Vec<u64>;
    /// The application's pc behind the system call that a thread makes at `pc`, in translated code.
    fn pc_behind_call(&self, tid: Tid, pc: u64) -> Option<u64>;
    /// Returns whether the program finds its tracer in `/proc/PID/status`.
    fn shows_tracer(&self) -> bool;
}

/// The files of `/proc` that threads have, as a run knows them.
#[derive(Clone, Copy, Debug)]
pub struct ProcFiles<'a> {
    run: &'a dyn Processes,
    seen: &'a Seen,
}

impl<'a> ProcFiles<'a> {
    /// Those of a run whose processes have got what `seen` says.
    pub fn new(run: &'a dyn Processes, seen: &'a Seen) -> Self {
        Self { run, seen }
    }

    /// The file with the text that a thread would read natively, for the place of the file that it
    /// has open at `fd`. `None` where that may stay: what is listed of it is looked at.
    ///
    /// # Errors
    ///
    /// The reason why there is none, for people.
    pub fn stand_for(&self, tid: Tid, fd: i32) -> Result<Option<Stand>, String> {
        let real = handle_of(tid, fd).map_err(|error| error.to_string())?;
        let file = self.proc_file(tid, fd).ok_or("it is another file by now")?;
        if file.kind == Kind::MapFiles {
            self.watch(tid, fd, true);
            return Ok(None);
        }
        let gathered = match self.seen.arrived.take(tid, fd) {
            Some(gathered) => gathered,
            None => self.gather(file, tid, &real),
        };
        let text = self.text_of(file, tid, gathered).ok_or("it may not be read")?;
        let memory = file_of(file.kind, &text).map_err(|error| error.to_string())?;
        Ok(Some(Stand { file, memory, real }))
    }

    /// Has a thread of ours read the text for the place of a file, where that takes the kernel
    /// long, and then signals `wake`. False where the text is to be read at once.
    pub fn fetch(&self, tid: Tid, fd: i32, wake: Arc<OwnedFd>) -> bool {
        let large = self.proc_file(tid, fd).filter(|file| has_many_mappings(file.about));
        let (Some(file), Ok(real)) = (large, handle_of(tid, fd)) else { return false };
        let protected = self.run.protected_pages(file.about);
        let gather = move || Gathered::of(file, tid, &real, &protected);
        self.seen.arrived.fetch((tid, fd), wake, gather)
    }

    /// Returns whether the file that a thread has open at `fd` is one that shows what is ours.
    pub fn shows_us(&self, tid: Tid, fd: i32) -> bool {
        let filtered = self.run.context(tid).is_none_or(|it| it.get(Slot::NoSyscalls) != 0);
        let shows = |file: ProcFile| match file.kind {
            Kind::Mem => false,
            // A thread finds itself in the call that reads this.
            Kind::Syscall => file.about != tid,
            _ => true,
        };
        !filtered && self.proc_file(tid, fd).is_some_and(shows)
    }

    /// The thread or process of the run whose memory a thread has open at `fd`.
    pub fn memory_at(&self, tid: Tid, fd: i32) -> Option<Tid> {
        self.proc_file(tid, fd).filter(|file| file.kind == Kind::Mem).map(|file| file.about)
    }

    fn proc_file(&self, tid: Tid, fd: i32) -> Option<ProcFile> {
        let file = format!("fd/{fd}");
        let link = kernel_files::link(tid, &file).ok()?;
        let (kind, number) = named(&link)?;
        if rustix::fs::statfs(kernel_files::path(tid, &file)).ok()?.f_type != PROC_SUPER_MAGIC {
            return None;
        }
        let opened = identity(tid, &file)?;
        let of_host = identity(Own, "stat").is_some_and(|(device, _)| device == opened.0);
        let about = match of_host {
            true => self.whose(&link, number, |who, name| identity(who, name) == Some(opened))?,
            false => self.thread_known_as(number, tid)?,
        };
        self.run.has(about).then_some(ProcFile { kind, about })
    }

    /// The process or thread of which a file of the host's `/proc` tells, whose path ends like
    /// `link`. The number in that is another's if somebody has mounted one directory on the other.
    fn whose(&self, link: &Path, number: i32, is: impl Fn(Tid, &str) -> bool) -> Option<Tid> {
        let name = link.file_name()?.to_str()?;
        let of_it = |known: &Tid| is(*known, name) || is(*known, &format!("task/{known}/{name}"));
        if is_within_task(link) {
            let own = self.run.process_of(number);
            let known = own.is_some_and(|pid| is(pid, &format!("task/{number}/{name}")));
            return known.then_some(number);
        }
        let known = std::iter::once(number).chain(self.run.processes());
        known.into_iter().find(of_it)
    }

    /// The thread or process of the run that a thread calls so.
    pub fn thread_called(&self, tid: Tid, number: i32) -> Option<Tid> {
        match Status::read(tid).list("NSpid:").len() {
            1 => Some(number),
            _ => self.thread_known_as(number, tid),
        }
    }

    /// The thread that has this number where `tid` lives, which is not the host's process
    /// namespace.
    fn thread_known_as(&self, number: i32, tid: Tid) -> Option<Tid> {
        let depth = Status::read(tid).list("NSpid:").len();
        let is = |other: &Tid| Status::read(*other).list("NSpid:").get(depth - 1) == Some(&number);
        self.run.threads().into_iter().find(is)
    }

    /// Has the threads of a process tell when they read from somewhere in the file at `fd`, or no
    /// longer.
    pub fn watch(&self, tid: Tid, fd: i32, on: bool) {
        let bit = 1 << fd.clamp(0, LAST_WATCHED);
        for context in self.run.siblings(tid) {
            let watched = context.get(Slot::Watched);
            context.set(Slot::Watched, if on { watched | bit } else { watched & !bit });
        }
    }

    /// A thread is about to make a call that may read from the beginning of a file of ours: then
    /// that is to be of now. Returns the result of one that such a file natively refuses: it has
    /// no end.
    pub fn about_to_read(&self, tid: Tid, pending: &Pending) -> Option<i64> {
        const EINVAL: i64 = -22;
        const SEEK_SET: u32 = 0;
        const SEEK_CUR: u32 = 1;
        let [fd, offset, whence, from] = pending.args;
        let whence = whence as u32;
        let (begins, refused) = match pending.number {
            nr::LSEEK => (offset == 0 && whence == SEEK_SET, whence > SEEK_CUR),
            nr::PREAD64 => (from == 0, false),
            _ => return None,
        };
        let fd = fd as i32;
        let Some(stand) = self.seen.at(tid, fd) else {
            self.forget(tid, fd);
            return None;
        };
        let Stand { file, memory, real } = stand;
        if begins {
            // Who may no longer read it, as that of a program with other rights, reads nothing.
            let gathered = self.gather(*file, tid, real);
            let _ = write(memory, &self.text_of(*file, tid, gathered).unwrap_or_default());
        }
        refused.then_some(EINVAL)
    }

    /// Has nobody tell of `fd` any longer, where there is nothing that shows us: that is closed.
    fn forget(&self, tid: Tid, fd: i32) {
        // One bit may stand for several.
        let alone = fd < LAST_WATCHED;
        if alone && self.proc_file(tid, fd).is_none_or(|file| file.kind != Kind::MapFiles) {
            self.watch(tid, fd, false);
        }
    }

    /// Returns whether a call is about to tell of a file of ours, or to copy a descriptor of one.
    pub fn tells_of_ours(&self, tid: Tid, pending: &Pending) -> bool {
        let tells = matches!(
            pending.number,
            nr::FSTAT
                | nr::NEWFSTATAT
                | nr::STATX
                | nr::FSTATFS
                | nr::DUP
                | nr::DUP2
                | nr::DUP3
                | nr::FCNTL
        );
        let fd = pending.args[0] as i32;
        let found = tells && fd >= 0 && self.seen.at(tid, fd).is_some();
        if tells && fd >= 0 && !found {
            self.forget(tid, fd);
        }
        found
    }

    /// Watches a descriptor that may be a copy of one of ours.
    pub fn note_copy(&self, tid: Tid, fd: i32) {
        if fd >= 0 && self.seen.at(tid, fd).is_some() {
            self.watch(tid, fd, true);
        }
    }

    /// Watches the descriptors of a new program that are of ours: they have been left to it.
    pub fn watch_inherited(&self, tid: Tid) {
        if self.seen.stands.is_empty() {
            return;
        }
        let Ok(entries) = kernel_files::entries(tid, "fd") else { return };
        let names = entries.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).for_each(|fd| self.note_copy(tid, fd));
    }

    /// The file of `/proc` in whose place a thread has one of ours open at `fd`.
    fn real_file(&self, tid: Tid, fd: i32) -> Option<&'a OwnedFd> {
        Some(&self.seen.at(tid, fd)?.real)
    }

    /// Takes what is ours out of the entries of a directory that a thread has got; how many bytes
    /// are left.
    pub fn without_ours(&self, tid: Tid, pending: &Pending, bytes: u64) -> u64 {
        let [fd, at, ..] = pending.args;
        let file = self.proc_file(tid, fd as i32).filter(|file| file.kind == Kind::MapFiles);
        let mut entries = vec![0; bytes.min(1 << 20) as usize];
        let (Some(file), Ok(())) = (file, memory::read_exact(tid, at, &mut entries)) else {
            return bytes;
        };
        let left = text::entries(&entries, pending.number, &maps::read(file.about));
        // Nothing would mean that there are no more.
        if left.is_empty() || memory::write_exact(tid, at, &left).is_err() {
            return bytes;
        }
        left.len() as u64
    }

    /// Reads what the kernel tells of a file, of which `real` is a handle. The kernel says by the
    /// credentials of the reader what is told to whom.
    fn gather(&self, file: ProcFile, reader: Tid, real: &OwnedFd) -> Gathered {
        let protected = self.run.protected_pages(file.about);
        Gathered::of(file, reader, real, &protected)
    }

    /// The text of a file as it would be natively.
    fn text_of(&self, file: ProcFile, reader: Tid, gathered: Gathered) -> Option<Vec<u8>> {
        let ProcFile { kind, about } = file;
        let Gathered { told, ours, mappings } = gathered;
        let (told, ours) = (|| told.as_deref(), || ours.as_ref());
        let stopped = self.run.is_stopped(about);
        // A thread that is stopped for us runs natively, and so does one that waits for us.
        let shown = |state: &str| match state {
            "t" if stopped && about != reader => Some("T (stopped)"),
            "S" if about != reader && sleeps_by_itself(about) => None,
            "t" | "S" => Some(RUNNING),
            _ => (about == reader).then_some(RUNNING),
        };
        Some(match kind {
            Kind::Maps | Kind::Smaps => told()?.to_vec(),
            Kind::SmapsRollup => text::rollup(told()?, ours()?),
            Kind::NumaMaps => text::numa_maps(told()?, &mappings),
            Kind::Statm => text::statm(told()?, ours()?),
            Kind::Stat => text::stat(told()?, ours()?, layout_is_ours(about), shown),
            Kind::Status => text::status(told()?, ours()?, shown, self.run.shows_tracer()),
            Kind::Limits => {
                let data = maps::read(about).iter().any(is_ours).then_some([DATA_BYTES; 2]);
                let pid = self.run.process_of(about).unwrap_or(about);
                text::limits(told()?, self.run.raised(pid), data.unwrap_or_default())
            }
            Kind::Personality => {
                let text = std::str::from_utf8(told()?).ok()?;
                let persona = u64::from_str_radix(text.trim(), 16).ok()?;
                format!("{:08x}\n", without_fixed_layout(persona).unwrap_or(persona)).into_bytes()
            }
            Kind::Syscall => call_of(self, about, &String::from_utf8_lossy(told()?)),
            Kind::Wchan if about != reader && sleeps_by_itself(about) => told()?.to_vec(),
            Kind::Wchan => told().map(|_| b"0".to_vec())?,
            Kind::MapFiles | Kind::Mem => return None,
        })
    }
}

/// The system call of another thread, as the kernel tells it, with the application's pc. One that
/// waits for us natively runs.
fn call_of(files: &ProcFiles<'_>, about: Tid, text: &str) -> Vec<u8> {
    if !sleeps(text) {
        return b"running\n".to_vec();
    }
    let (call, pc) = text.trim_end().rsplit_once(' ').unwrap_or_default();
    let hex = pc.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    match hex.and_then(|pc| files.run.pc_behind_call(about, pc)) {
        Some(pc) => format!("{call} {pc:#x}\n").into_bytes(),
        None => text.as_bytes().to_vec(),
    }
}

/// The device and inode of a file of `/proc`, or of what it leads to.
fn identity(who: impl Who, name: &str) -> Option<(u64, u64)> {
    let metadata = kernel_files::metadata(who, name).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// A handle of the file that a thread has open at `fd`.
fn handle_of(tid: Tid, fd: i32) -> rustix::io::Result<OwnedFd> {
    kernel_files::handle(tid, &format!("fd/{fd}"), OFlags::empty())
}

/// Returns whether a path is that of a file of one thread: `/proc/PID/task/TID/NAME`.
fn is_within_task(path: &Path) -> bool {
    path.ancestors().nth(2).and_then(Path::file_name).is_some_and(|name| name == "task")
}

/// The kind of content of a file of `/proc/PID` or `/proc/PID/task/TID`, by its path, and the
/// number of the process or thread.
fn named(path: &Path) -> Option<(Kind, i32)> {
    let kind = Kind::named(path.file_name()?.to_str()?)?;
    let Component::Normal(number) = path.parent()?.components().next_back()? else { return None };
    Some((kind, number.to_str()?.parse().ok()?))
}

/// A file in memory that holds `text`, to be read by everybody.
fn file_of(kind: Kind, text: &[u8]) -> std::io::Result<OwnedFd> {
    let name = format!("{kind:?}").to_lowercase();
    let memory = rustix::fs::memfd_create(&*name, MemfdFlags::CLOEXEC)?;
    write(&memory, text)?;
    rustix::fs::fchmod(&memory, Mode::from_raw_mode(0o444))?;
    Ok(memory)
}

/// Makes `text` all that is in the file.
fn write(memory: &OwnedFd, text: &[u8]) -> std::io::Result<()> {
    let file = File::from(memory.try_clone()?);
    file.write_all_at(text, 0)?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_their_paths() {
        let named = |path: &str| named(Path::new(path));
        assert_eq!(named("/proc/12/maps"), Some((Kind::Maps, 12)));
        assert_eq!(named("/proc/12/task/13/stat"), Some((Kind::Stat, 13)));
        assert_eq!(named("/mnt/proc/1/smaps_rollup"), Some((Kind::SmapsRollup, 1)));
        assert_eq!(named("/proc/stat"), None);
        assert_eq!(named("/proc/12/mem"), Some((Kind::Mem, 12)));
        assert_eq!(named("/proc/12/memory"), None);
        assert_eq!(named("maps"), None);
    }
}

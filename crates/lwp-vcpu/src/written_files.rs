//! Files that are opened for writing while there is code in them: a file that is mapped, and
//! `/proc/PID/mem`.
//!
//! A page of a private mapping shows what is written to its file until it is copied, and what is
//! written by way of `/proc/PID/mem` is code whatever protects the page. Nothing tells of each
//! write. From the moment at which such a file is opened the code that it concerns compares itself
//! before it runs. What other programs than those of a run write is not seen.

use std::os::unix::fs::MetadataExt;

use lwp_ptrace::Tid;

use crate::machine::Machine;
use crate::proc_files::flags_of;
use crate::server::drop_code;

const O_ACCMODE: u64 = 3;
/// All that a program can have.
const EVERYTHING: (u64, u64) = (0, 1 << 47);

impl Machine {
    /// A thread has opened a file at `fd`, perhaps for writing.
    pub fn opened_for_writing(&mut self, tid: Tid, fd: i32) {
        if flags_of(tid, fd).is_none_or(|flags| flags & O_ACCMODE == 0) {
            return;
        }
        if let Some(about) = self.memory_at(tid, fd) {
            let of = |other: &&Tid| {
                self.tasks.threads.get(other).is_some_and(|it| **other == about || it.pid == about)
            };
            if let Some(inside) = self.tasks.threads.keys().find(of).copied() {
                self.memory_opened(inside);
            }
            return;
        }
        if let Ok(file) = std::fs::metadata(format!("/proc/{tid}/fd/{fd}")) {
            self.file_opened(file.ino());
        }
    }

    /// The memory of `tid` can be written to by a descriptor, whatever protects it. Such a write
    /// cannot wait until notice of it has been taken: the kernel refuses it where a page is
    /// guarded.
    fn memory_opened(&mut self, tid: Tid) {
        self.tasks.forget_cuts(&self.contexts);
        for side in self.all_sides(tid) {
            let Some((space, family)) = self.caches.side(side) else { continue };
            space.note_patched();
            space.notices.give_up();
            for unit in space.forget(EVERYTHING) {
                drop_code(tid, space, family, unit, EVERYTHING, true);
            }
        }
    }

    /// A file with this inode can be written to by a descriptor. Nothing is lost if it is of
    /// another file system than one with code.
    fn file_opened(&mut self, inode: u64) {
        if !self.caches.families.iter().flatten().any(|family| family.knows_inode(inode)) {
            return;
        }
        let has_code = |index: &usize| {
            self.caches.spaces[*index].as_ref().is_some_and(|it| !it.code_of_file(inode).is_empty())
        };
        let spaces: Vec<usize> = (0..self.caches.spaces.len()).filter(has_code).collect();
        if spaces.is_empty() {
            return;
        }
        self.tasks.forget_cuts(&self.contexts);
        for index in spaces {
            let inside =
                self.tasks.threads.keys().find(|tid| self.all_sides(**tid).contains(&index));
            let (Some(tid), Some((space, family))) = (inside.copied(), self.caches.side(index))
            else {
                continue;
            };
            for range in space.code_of_file(inode) {
                for unit in space.forget(range) {
                    drop_code(tid, space, family, unit, range, true);
                }
            }
        }
    }
}

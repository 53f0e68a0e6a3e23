//! Files with code that are opened for writing: mapped files, and `/proc/PID/mem`.
//!
//! Until a page of a private mapping is copied, it shows what is written to its file, and writes
//! through `/proc/PID/mem` change code whatever the page's protection. Nothing reports these
//! writes. So from the moment such a file is opened, the code concerned compares its own bytes
//! before it runs. lwp doesn't see writes of programs outside the run.

use lwp_process::Tid;
use lwp_process::descriptors::{flags_of, known_of};

use crate::machine::{CodeCaches, Machine};
use crate::server::drop_code;

const O_ACCMODE: u64 = 3;
/// All that a program can have.
const EVERYTHING: (u64, u64) = (0, 1 << 47);

/// A thread has opened a file at `fd`, perhaps for writing.
pub fn opened_for_writing(machine: &mut Machine, tid: Tid, fd: i32) {
    if flags_of(tid, fd).is_none_or(|flags| flags & O_ACCMODE == 0) {
        return;
    }
    if let Some(about) = machine.proc_files().memory_at(tid, fd) {
        let of = |other: &&Tid| {
            machine.tasks.threads.get(other).is_some_and(|it| **other == about || it.pid == about)
        };
        if let Some(inside) = machine.tasks.threads.keys().find(of).copied() {
            machine.tasks.forget_cuts(&machine.contexts);
            if let Some(base) = machine.tasks.base_space(inside) {
                machine.caches.memory_opened(base, inside);
            }
        }
        return;
    }
    let Some(inode) = known_of(tid, fd).map(|file| file.stx_ino) else { return };
    let spaces = machine.caches.spaces_with(inode);
    if !spaces.is_empty() {
        machine.tasks.forget_cuts(&machine.contexts);
    }
    for index in spaces {
        let lies = |tid: &&Tid| {
            let base = machine.tasks.base_space(**tid);
            base.is_some_and(|base| machine.caches.sides(base).any(|side| side == index))
        };
        if let Some(inside) = machine.tasks.threads.keys().find(lies).copied() {
            machine.caches.file_opened(index, inode, inside);
        }
    }
}

impl CodeCaches {
    /// The memory of an address space, in which `tid` is, can be written to by a descriptor,
    /// whatever protects it. Such a write cannot wait until notice of it has been taken: the kernel
    /// refuses it where a page is guarded.
    fn memory_opened(&mut self, base: usize, tid: Tid) {
        let sides: Vec<usize> = self.sides(base).collect();
        for side in sides {
            let Some((space, family)) = self.side(side) else { continue };
            space.code.note_patched();
            space.notices.give_up();
            for unit in space.forget(EVERYTHING) {
                drop_code(tid, space, family, unit, EVERYTHING, true);
            }
        }
    }

    /// Returns the address spaces with code of a file that has this inode. Nothing is lost if the
    /// file is of another file system than one with code.
    fn spaces_with(&self, inode: u64) -> Vec<usize> {
        if !self.families.iter().flatten().any(|family| family.modules.knows_inode(inode)) {
            return Vec::new();
        }
        let has_code = |index: &usize| {
            self.spaces[*index].as_ref().is_some_and(|it| !it.code.of_file(inode).is_empty())
        };
        (0..self.spaces.len()).filter(has_code).collect()
    }

    /// A file with this inode, of which there is code in an address space in which `tid` is, can be
    /// written to by a descriptor.
    fn file_opened(&mut self, index: usize, inode: u64, tid: Tid) {
        let Some((space, family)) = self.side(index) else { return };
        for range in space.code.of_file(inode) {
            for unit in space.forget(range) {
                drop_code(tid, space, family, unit, range, true);
            }
        }
    }
}

//! The one whose process it is. Processes of one owner share translated code; another owner's get
//! code of their own, in memory that nobody else has.
//!
//! Promise: X6

use std::path::PathBuf;

use crate::Tid;
use crate::kernel_files;

use crate::maps::Status;

/// Users, groups and the user namespace of a process, when its program began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Real, effective, saved, and for files.
    users: Vec<i32>,
    groups: Vec<i32>,
    namespace: Option<PathBuf>,
}

impl Owner {
    /// The owner of `tid`, which has this status.
    pub fn of(tid: Tid, status: &Status) -> Self {
        let namespace = kernel_files::link(tid, "ns/user").ok();
        Self { users: status.list("Uid:"), groups: status.list("Gid:"), namespace }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_all_users_and_groups() {
        let me = std::process::id() as i32;
        let of = |status: &str| Owner::of(me, &Status::of(status));
        let first = of("Uid:\t1\t1\t1\t1\nGid:\t5\t5\t5\t5\n");
        assert_eq!(first, of("Name:\tx\nUid:\t1\t1\t1\t1\nGid:\t5\t5\t5\t5\n"));
        assert_ne!(first, of("Uid:\t1\t0\t0\t0\nGid:\t5\t5\t5\t5\n"), "a set-user-id program");
        assert_ne!(first, of("Uid:\t1\t1\t1\t1\nGid:\t5\t8\t8\t8\n"), "a set-group-id program");
        assert!(first.namespace.is_some());
        assert_eq!(Owner::of(me, &Status::read(me)).users.len(), 4);
    }
}

//! Sizes, times and numbers of the files of `/proc` in whose places others lie: fstat(2) and its
//! relatives tell of the real ones.

use std::os::fd::OwnedFd;

use lwp_dbt::Slot;
use lwp_process::{Tid, memory};
use rustix::fs::{AtFlags, StatxFlags, StatxTimestamp};

use super::ProcFiles;
use crate::syscalls::{Pending, nr};

/// Bytes of struct stat, statx and statfs as far as they are told.
const STAT: usize = 120;
const STATX: usize = 152;
const STATFS: usize = 88;
/// Bytes of these structures as INT 0x80's fstat(2), fstat64(2), fstatfs(2) and fstatfs64(2) fill
/// them.
const STAT_32: usize = 64;
const STAT64_32: usize = 96;
const STATFS_32: usize = 64;
const STATFS64_32: usize = 84;

impl ProcFiles<'_> {
    /// Overwrites what a call has told of a file of ours by what it natively tells of the file in
    /// whose place that is. The kernel has just written there.
    pub fn describe(&self, tid: Tid, pending: &Pending) {
        let [fd, path, third, mask] = pending.args;
        let whole = match pending.number {
            nr::NEWFSTATAT | nr::STATX | nr::FSTATAT64_32 => {
                path == 0 || memory::read_array::<1>(tid, path).is_ok_and(|first| first == [0])
            }
            _ => true,
        };
        let Some(real) = self.real_file(tid, fd as i32).filter(|_| whole) else { return };
        let (at, told) = match pending.number {
            nr::FSTAT => (path, stat(real)),
            nr::NEWFSTATAT => (third, stat(real)),
            nr::FSTATFS => (path, statfs(real)),
            nr::FSTAT_32 => (path, stat_32(real)),
            nr::FSTAT64_32 => (path, stat64_32(real)),
            nr::FSTATAT64_32 => (third, stat64_32(real)),
            nr::FSTATFS_32 => (path, statfs_32(real)),
            nr::FSTATFS64_32 => (third, statfs64_32(real)),
            _ => {
                let at = self.run.context(tid).map_or(0, |context| context.get(Slot::R8));
                (at, statx(real, mask as u32))
            }
        };
        if let Ok(told) = told {
            let _ = memory::write_exact(tid, at, &told);
        }
    }
}

/// Bytes of a structure, which are written one field after the other.
#[derive(Debug, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn words(mut self, words: &[u64]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        self
    }

    fn halves(mut self, halves: &[u32]) -> Self {
        self.0.extend(halves.iter().flat_map(|half| half.to_le_bytes()));
        self
    }

    fn quarters(mut self, quarters: &[u16]) -> Self {
        self.0.extend(quarters.iter().flat_map(|quarter| quarter.to_le_bytes()));
        self
    }
}

fn stat(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let stat = rustix::fs::fstat(file)?;
    let bytes = Bytes::default()
        .words(&[stat.st_dev, stat.st_ino, stat.st_nlink])
        .halves(&[stat.st_mode, stat.st_uid, stat.st_gid, 0])
        .words(&[stat.st_rdev, stat.st_size as u64, stat.st_blksize as u64, stat.st_blocks as u64])
        .words(&[stat.st_atime as u64, stat.st_atime_nsec as u64])
        .words(&[stat.st_mtime as u64, stat.st_mtime_nsec as u64])
        .words(&[stat.st_ctime as u64, stat.st_ctime_nsec as u64]);
    debug_assert_eq!(bytes.0.len(), STAT);
    Ok(bytes.0)
}

/// The low half of each word, as the structures of INT 0x80 have it.
fn low<const N: usize>(words: [u64; N]) -> [u32; N] {
    words.map(|word| word as u32)
}

fn times(stat: &rustix::fs::Stat) -> [u32; 6] {
    low([
        stat.st_atime as u64,
        stat.st_atime_nsec as u64,
        stat.st_mtime as u64,
        stat.st_mtime_nsec as u64,
        stat.st_ctime as u64,
        stat.st_ctime_nsec as u64,
    ])
}

fn stat_32(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    /// The number of a user or group that takes more than 16 bits.
    const OVERFLOW: u16 = 65534;
    let stat = rustix::fs::fstat(file)?;
    let owner = |number: u32| u16::try_from(number).unwrap_or(OVERFLOW);
    let bytes = Bytes::default()
        .halves(&low([stat.st_dev, stat.st_ino]))
        .quarters(&[stat.st_mode as u16, stat.st_nlink as u16])
        .quarters(&[owner(stat.st_uid), owner(stat.st_gid)])
        .halves(&low([stat.st_rdev, stat.st_size as u64]))
        .halves(&low([stat.st_blksize as u64, stat.st_blocks as u64]))
        .halves(&times(&stat))
        .halves(&[0; 2]);
    debug_assert_eq!(bytes.0.len(), STAT_32);
    Ok(bytes.0)
}

fn stat64_32(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let stat = rustix::fs::fstat(file)?;
    let bytes = Bytes::default()
        .words(&[stat.st_dev])
        .halves(&[0, stat.st_ino as u32, stat.st_mode, stat.st_nlink as u32])
        .halves(&[stat.st_uid, stat.st_gid])
        .words(&[stat.st_rdev])
        .halves(&[0])
        .words(&[stat.st_size as u64])
        .halves(&[stat.st_blksize as u32])
        .words(&[stat.st_blocks as u64])
        .halves(&times(&stat))
        .words(&[stat.st_ino]);
    debug_assert_eq!(bytes.0.len(), STAT64_32);
    Ok(bytes.0)
}

fn statx(file: &OwnedFd, mask: u32) -> rustix::io::Result<Vec<u8>> {
    let mask = StatxFlags::from_bits_retain(mask);
    let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, mask)?;
    let time = |time: StatxTimestamp| [time.tv_sec as u64, u64::from(time.tv_nsec)];
    let times = [statx.stx_atime, statx.stx_btime, statx.stx_ctime, statx.stx_mtime];
    let bytes = Bytes::default()
        .halves(&[statx.stx_mask, statx.stx_blksize])
        .words(&[statx.stx_attributes.bits()])
        .halves(&[statx.stx_nlink, statx.stx_uid, statx.stx_gid, statx.stx_mode.into()])
        .words(&[statx.stx_ino, statx.stx_size, statx.stx_blocks])
        .words(&[statx.stx_attributes_mask.bits()])
        .words(times.map(time).as_flattened())
        .halves(&[statx.stx_rdev_major, statx.stx_rdev_minor])
        .halves(&[statx.stx_dev_major, statx.stx_dev_minor])
        .words(&[statx.stx_mnt_id]);
    debug_assert_eq!(bytes.0.len(), STATX);
    Ok(bytes.0)
}

fn statfs(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let (statfs, statvfs) = (rustix::fs::fstatfs(file)?, rustix::fs::fstatvfs(file)?);
    let bytes = Bytes::default()
        .words(&[statfs.f_type as u64, statfs.f_bsize as u64])
        .words(&[statfs.f_blocks, statfs.f_bfree, statfs.f_bavail])
        .words(&[statfs.f_files, statfs.f_ffree, statvfs.f_fsid])
        .words(&[statfs.f_namelen as u64, statfs.f_frsize as u64, statfs.f_flags as u64]);
    debug_assert_eq!(bytes.0.len(), STATFS);
    Ok(bytes.0)
}

/// Blocks, free blocks, those of them that anybody may use, files and free files.
fn room(statfs: &rustix::fs::StatFs) -> [u64; 5] {
    [statfs.f_blocks, statfs.f_bfree, statfs.f_bavail, statfs.f_files, statfs.f_ffree]
}

fn statfs_32(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let (statfs, statvfs) = (rustix::fs::fstatfs(file)?, rustix::fs::fstatvfs(file)?);
    let bytes = Bytes::default()
        .halves(&low([statfs.f_type as u64, statfs.f_bsize as u64]))
        .halves(&low(room(&statfs)))
        .words(&[statvfs.f_fsid])
        .halves(&low([statfs.f_namelen as u64, statfs.f_frsize as u64, statfs.f_flags as u64]))
        .halves(&[0; 4]);
    debug_assert_eq!(bytes.0.len(), STATFS_32);
    Ok(bytes.0)
}

fn statfs64_32(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    let (statfs, statvfs) = (rustix::fs::fstatfs(file)?, rustix::fs::fstatvfs(file)?);
    let bytes = Bytes::default()
        .halves(&low([statfs.f_type as u64, statfs.f_bsize as u64]))
        .words(&room(&statfs))
        .words(&[statvfs.f_fsid])
        .halves(&low([statfs.f_namelen as u64, statfs.f_frsize as u64, statfs.f_flags as u64]))
        .halves(&[0; 4]);
    debug_assert_eq!(bytes.0.len(), STATFS64_32);
    Ok(bytes.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn fields_are_where_the_kernel_has_them() {
        let file = File::open("/proc/self/maps").expect("a file of /proc");
        let metadata = file.metadata().expect("its metadata");
        let file = OwnedFd::from(file);
        let word = |bytes: &[u8], at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
        };
        let told = stat(&file).expect("fstat");
        assert_eq!([word(&told, 0), word(&told, 8)], [metadata.dev(), metadata.ino()]);
        assert_eq!([word(&told, 48), word(&told, 56)], [0, metadata.blksize()]);
        assert_eq!(word(&told, 104), metadata.ctime() as u64);
        let told = statx(&file, 0x7ff).expect("statx");
        assert_eq!([word(&told, 32), word(&told, 40)], [metadata.ino(), 0]);
        assert_eq!(word(&told, 96), metadata.ctime() as u64);
        let told = statfs(&file).expect("fstatfs");
        assert_eq!([word(&told, 0), word(&told, 64)], [0x9fa0, 255]);
    }
}

//! Memory that system calls write to, where the kernel cannot write to guarded pages.
//!
//! A call is taken to write at every argument, however small a number that is, unless it is one of
//! those that never write: nothing is lost by that but some guards.

use lwp_dbt::context::SyscallClass;

use super::nr::{EXIT, IO_URING_REGISTER, MADVISE, SET_TID_ADDRESS, SIGALTSTACK};

const READV: u64 = 19;
const IOCTL: u64 = 16;
const RECVMSG: u64 = 47;
const FUTEX: u64 = 202;
const IO_SETUP: u64 = 206;
const KEYCTL: u64 = 250;
const VMSPLICE: u64 = 278;
const PREADV: u64 = 295;
const RECVMMSG: u64 = 299;
const SENDMMSG: u64 = 307;
const PROCESS_VM_READV: u64 = 310;
const PROCESS_VM_WRITEV: u64 = 311;
const BPF: u64 = 321;
const USERFAULTFD: u64 = 323;
const PREADV2: u64 = 327;
const IO_URING_SETUP: u64 = 425;

/// Calls whose arguments lead to what they write.
const FAR: [u64; 13] = [
    READV,
    IOCTL,
    RECVMSG,
    KEYCTL,
    BPF,
    VMSPLICE,
    PREADV,
    RECVMMSG,
    SENDMMSG,
    PROCESS_VM_READV,
    PROCESS_VM_WRITEV,
    PREADV2,
    // The locks that the thread leaves behind.
    EXIT,
];
/// The advice of madvise(2) that writes to each page.
const POPULATE_WRITE: u64 = 23;
/// Calls after which the kernel writes wherever it has been told to in memory.
const EVER_AFTER: [u64; 3] = [IO_SETUP, IO_URING_SETUP, USERFAULTFD];

/// Calls that write to no memory of the program, or that end in another program, or whose writes
/// are looked at when they have made a thread.
const NEVER: [u64; 92] = [
    // write, close, mmap, mprotect, munmap, brk, pwrite64, writev, access, sched_yield, mremap
    1, 3, 9, 10, 11, 12, 18, 20, 21, 24, 25, // msync, dup, dup2, pause, alarm
    26, 32, 33, 34, 37,
    // getpid, sendto, sendmsg, shutdown, bind, listen, clone, fork, vfork, execve, kill
    39, 44, 46, 48, 49, 50, 56, 57, 58, 59, 62,
    // msgsnd, flock, fsync, fdatasync, truncate, ftruncate, chdir, fchdir, rename, mkdir, rmdir
    69, 73, 74, 75, 76, 77, 80, 81, 82, 83, 84,
    // link, unlink, symlink, chmod, fchmod, chown, fchown, lchown, umask, the ids, setpgid, getppid
    86, 87, 88, 90, 91, 92, 93, 94, 95, 102, 104, 107, 108, 109, 110,
    // getpgrp, setsid, getpgid, getsid, mknod, personality, getpriority, munlock, gettid, tkill
    111, 112, 121, 124, 133, 135, 140, 150, 186, 200,
    // remap_file_pages, restart_syscall, exit_group, epoll_ctl, tgkill, inotify_add_watch
    216, 219, 231, 233, 234, 254, // openat and its relatives
    257, 258, 259, 263, 264, 265, 266, 268, 269,
    // set_robust_list, fallocate, eventfd2, epoll_create1, dup3, inotify_init1, pwritev, syncfs,
    // renameat2, membarrier, pkey_mprotect, clone3, close_range, faccessat2
    273, 285, 290, 291, 292, 294, 296, 306, 316, 324, 329, 435, 436, 439,
];

/// The class of a call in which the virtual CPU takes no part otherwise.
pub fn class(number: u64) -> SyscallClass {
    match number {
        _ if NEVER.contains(&number) => SyscallClass::Native,
        _ if FAR.contains(&number) => SyscallClass::FillsFar,
        SIGALTSTACK => SyscallClass::Host,
        _ if EVER_AFTER.contains(&number) => SyscallClass::Host,
        _ => SyscallClass::Fills,
    }
}

/// Buffers whose length is an argument. Call number, the arguments that are the buffer and the
/// number of its elements, and bytes of one.
#[rustfmt::skip]
const BUFFERS: &[(u64, usize, usize, u64)] = &[
    (0,   1, 2, 1),  // read
    (7,   0, 1, 8),  // poll
    (17,  1, 2, 1),  // pread64
    (27,  2, 1, 1),  // mincore
    (45,  1, 2, 1),  // recvfrom
    (70,  1, 2, 1),  // msgrcv
    (78,  1, 2, 1),  // getdents
    (79,  0, 1, 1),  // getcwd
    (89,  1, 2, 1),  // readlink
    (103, 1, 2, 1),  // syslog
    (115, 1, 0, 4),  // getgroups
    (149, 0, 1, 1),  // mlock
    (191, 2, 3, 1),  // getxattr
    (192, 2, 3, 1),  // lgetxattr
    (193, 2, 3, 1),  // fgetxattr
    (194, 1, 2, 1),  // listxattr
    (195, 1, 2, 1),  // llistxattr
    (196, 1, 2, 1),  // flistxattr
    (204, 2, 1, 1),  // sched_getaffinity
    (208, 3, 2, 32), // io_getevents
    (217, 1, 2, 1),  // getdents64
    (232, 1, 2, 12), // epoll_wait
    (243, 1, 2, 1),  // mq_timedreceive
    (267, 2, 3, 1),  // readlinkat
    (271, 0, 1, 8),  // ppoll
    (279, 4, 1, 4),  // move_pages
    (281, 1, 2, 12), // epoll_pwait
    (318, 0, 1, 1),  // getrandom
    (325, 0, 1, 1),  // mlock2
    (333, 3, 2, 32), // io_pgetevents
    (441, 1, 2, 12), // epoll_pwait2
];
/// Calls that have fewer than six arguments, by their number: the other registers are whatever the
/// program has left in them, which may well be an address in its code.
#[rustfmt::skip]
const ARGUMENTS: [&[u64]; 6] = [
    &[],
    // pipe, uname, sysinfo, times, adjtimex, time
    &[22, 63, 99, 100, 159, 201],
    // stat, fstat, lstat, nanosleep, getitimer, getcwd, gettimeofday, getrlimit, getrusage,
    // getgroups, capget, rt_sigpending, statfs, fstatfs, sched_getparam, sched_rr_get_interval,
    // mlock, timer_gettime, clock_gettime, clock_getres, timerfd_gettime, pipe2
    &[4, 5, 6, 35, 36, 79, 96, 97, 98, 115, 125, 127, 137, 138, 143, 148, 149, 224, 228, 229, 287,
      293],
    // read, open, poll, ioctl, mincore, setitimer, accept, recvmsg, getsockname, getpeername,
    // fcntl, getdents, readlink, syslog, getresuid, getresgid, listxattr, llistxattr, flistxattr,
    // sched_setaffinity, sched_getaffinity, getdents64, timer_create, getcpu, getrandom, mlock2
    &[0, 2, 7, 16, 27, 38, 43, 47, 51, 52, 72, 78, 89, 103, 118, 120, 194, 195, 196, 203, 204, 217,
      222, 309, 318, 325],
    // rt_sigaction, rt_sigprocmask, pread64, sendfile, socketpair, wait4, rt_sigtimedwait,
    // getxattr, lgetxattr, fgetxattr, timer_settime, clock_nanosleep, epoll_wait, newfstatat,
    // readlinkat, timerfd_settime, accept4, prlimit64, sched_getattr
    &[13, 14, 17, 40, 53, 61, 128, 191, 192, 193, 223, 230, 232, 262, 267, 286, 288, 302, 315],
    // select, getsockopt, prctl, waitid, ppoll, statx
    &[23, 55, 157, 247, 271, 332],
];
/// Bytes of other things that calls write at an argument: descriptor sets of select(2) are large.
const THING: u64 = 0x1_0000;
/// Most parts of a message, and most messages.
const MOST: u64 = 1024;
const IOVEC: u64 = 16;
const MMSGHDR: u64 = 64;
/// Bytes in which addresses are looked for where it is unknown what they are.
const LOOKED_THROUGH: usize = 4096;

/// Addresses from one to below the other.
type Range = (u64, u64);

fn from(address: u64, bytes: u64) -> Range {
    (address, address.saturating_add(bytes))
}

/// The number of arguments of a call; six of one of which that is not known.
fn arguments(number: u64) -> usize {
    ARGUMENTS.iter().position(|calls| calls.contains(&number)).unwrap_or(6)
}

/// The words that an operation of futex(2) may write to.
fn filled_by_futex(args: &[u64; 6]) -> Vec<Range> {
    // FUTEX_WAIT, FUTEX_WAKE, FUTEX_FD, FUTEX_REQUEUE, FUTEX_CMP_REQUEUE, FUTEX_WAIT_BITSET and
    // FUTEX_WAKE_BITSET; the two flags stand above.
    let only_reads = matches!(args[1] & 0x7f, 0..=4 | 9 | 10);
    if only_reads { Vec::new() } else { vec![from(args[0], 4), from(args[4], 4)] }
}

/// The ranges at the arguments of a call to which it may write. None for a call that writes to no
/// memory.
pub fn filled(number: u64, args: &[u64; 6]) -> Vec<Range> {
    if class(number) == SyscallClass::Native {
        return Vec::new();
    }
    if number == MADVISE {
        let writes = args[2] == POPULATE_WRITE;
        return Vec::from_iter(writes.then(|| from(args[0], args[1])));
    }
    if number == FUTEX {
        return filled_by_futex(args);
    }
    let looked_at = &args[..arguments(number)];
    let mut ranges: Vec<Range> = looked_at.iter().map(|at| from(*at, THING)).collect();
    if let Some((_, buffer, count, unit)) = BUFFERS.iter().find(|row| row.0 == number) {
        ranges.push(from(args[*buffer], args[*count].saturating_mul(*unit)));
    }
    if number == SIGALTSTACK {
        ranges.clear();
        ranges.push(from(args[1], THING));
    }
    ranges
}

/// Reads memory at an address; the number of bytes that were there.
type Memory<'a> = &'a dyn Fn(u64, &mut [u8]) -> usize;

fn word_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// The word at an address; zero where there is none.
fn word_at(memory: Memory<'_>, at: u64) -> u64 {
    let mut bytes = [0; 8];
    if memory(at, &mut bytes) == 8 { u64::from_le_bytes(bytes) } else { 0 }
}

/// The ranges that the arguments of a call lead to, as memory is now.
pub fn led_to(number: u64, args: &[u64; 6], memory: Memory<'_>) -> Vec<Range> {
    let read = |at| word_at(memory, at);
    let parts = |at: u64, count: u64| -> Vec<Range> {
        let each = (0..count.min(MOST)).map(|index| at.wrapping_add(index * IOVEC));
        each.map(|at| from(read(at), read(at.wrapping_add(8)))).collect()
    };
    let message = |at: u64| {
        let word = |index: u64| read(at.wrapping_add(index * 8));
        let mut ranges = parts(word(2), word(3));
        ranges.extend([from(word(0), word(1) & 0xffff_ffff), from(word(4), word(5))]);
        ranges
    };
    match number {
        READV | PREADV | PREADV2 | VMSPLICE | PROCESS_VM_READV => parts(args[1], args[2]),
        RECVMSG => message(args[1]),
        RECVMMSG | SENDMMSG => {
            let count = args[2].min(MOST);
            let each = (0..count).map(|index| args[1].wrapping_add(index * MMSGHDR));
            let mut ranges: Vec<Range> = each.flat_map(message).collect();
            ranges.push(from(args[1], count * MMSGHDR));
            ranges
        }
        IOCTL | KEYCTL | BPF => {
            let words = |at: &u64| {
                let mut bytes = [0; LOOKED_THROUGH];
                let read = memory(*at, &mut bytes).min(LOOKED_THROUGH);
                bytes[..read].chunks_exact(8).map(word_of).collect::<Vec<u64>>()
            };
            args[1..arguments(number).min(4)]
                .iter()
                .flat_map(words)
                .map(|word| from(word, THING))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The process that a call writes to, where that is another one than its own, and the ranges.
pub fn filled_elsewhere(
    number: u64,
    args: &[u64; 6],
    memory: Memory<'_>,
) -> Option<(i32, Vec<Range>)> {
    let remote = [args[0], args[3], args[4], 0, 0, 0];
    (number == PROCESS_VM_WRITEV).then(|| (args[0] as i32, led_to(READV, &remote, memory)))
}

/// The ranges in which the kernel may write from a call on, at any time.
pub fn filled_later(number: u64, args: &[u64; 6], memory: Memory<'_>) -> Vec<Range> {
    let read = |at| word_at(memory, at);
    match number {
        SET_TID_ADDRESS => vec![from(args[0], 4)],
        SIGALTSTACK if args[0] != 0 => vec![from(read(args[0]), read(args[0].wrapping_add(16)))],
        IO_URING_REGISTER => registered(args, memory),
        _ => Vec::new(),
    }
}

/// Buffers that io_uring_register(2) tells the kernel of: it keeps their pages, and its writes to
/// them are no writes of the program's to its memory.
fn registered(args: &[u64; 6], memory: Memory<'_>) -> Vec<Range> {
    const BUFFERS: u32 = 0;
    const BUFFERS_2: u32 = 15;
    const BUFFERS_UPDATE: u32 = 16;
    /// The descriptor is one that has been registered.
    const BY_INDEX: u32 = 1 << 31;
    /// Most buffers that the kernel takes.
    const MOST: u64 = 1 << 14;
    let word = |index: u64| word_at(memory, args[2].wrapping_add(index * 8));
    let (at, count) = match args[1] as u32 & !BY_INDEX {
        BUFFERS => (args[2], args[3]),
        BUFFERS_2 => (word(2), word(0)),
        BUFFERS_UPDATE => (word(1), word(3)),
        _ => return Vec::new(),
    };
    let each = (0..(count & 0xffff_ffff).min(MOST)).map(|index| at.wrapping_add(index * IOVEC));
    each.map(|at| from(word_at(memory, at), word_at(memory, at.wrapping_add(8)))).collect()
}

/// Returns whether the kernel may write anywhere from a call on.
pub fn fills_ever_after(number: u64) -> bool {
    EVER_AFTER.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syscalls::nr;

    /// Promise: O8
    #[test]
    fn calls_that_change_mappings_fill_no_page() {
        let call = |number, third| filled(number, &[0x10_0000, 0x5_0000, third, 0, 0, 0]);
        for number in [nr::MMAP, nr::MPROTECT, nr::MUNMAP, nr::MREMAP, nr::PKEY_MPROTECT] {
            assert_eq!(call(number, 3), [], "{number}");
        }
        let dont_need = 4;
        assert_eq!(call(nr::MADVISE, dont_need), []);
        // These write to pages, so that each has memory of its own.
        assert_eq!(call(nr::MADVISE, POPULATE_WRITE), [(0x10_0000, 0x15_0000)]);
        assert!(call(nr::MLOCK, 0).contains(&(0x10_0000, 0x15_0000)));
    }

    #[test]
    fn a_buffer_is_as_long_as_its_argument_says() {
        let filled = filled(0, &[3, 0x10_0000, 0x50_0000, 0, 0, 0]);
        assert!(filled.contains(&(0x10_0000, 0x60_0000)));
        assert!(super::filled(1, &[3, 0x10_0000, 8, 0, 0, 0]).is_empty());
    }

    /// Promise: O8
    #[test]
    fn registers_that_a_call_does_not_look_at_are_no_arguments() {
        const GET_ATTRIBUTES: u64 = 0x5401;
        let left = 0x7f00_0000;
        let attributes = filled(IOCTL, &[1, GET_ATTRIBUTES, 0x10_0000, left, left, left]);
        assert!(attributes.contains(&from(0x10_0000, THING)));
        assert!(!attributes.contains(&from(left, THING)));
        assert!(
            led_to(IOCTL, &[1, 2, 3, left, left, left], &|at, _| {
                assert_ne!(at, left);
                0
            })
            .is_empty()
        );
    }

    /// Promise: O8
    #[test]
    fn of_the_operations_on_a_futex_few_write_to_it() {
        let operation = |operation| filled(FUTEX, &[0x1000, operation, 1, 0, 0x2000, 0x3000]);
        // FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE, FUTEX_WAIT_BITSET_PRIVATE with a clock
        for waits in [0x80, 0x81, 0x189] {
            assert_eq!(operation(waits), [], "{waits:#x}");
        }
        // FUTEX_WAKE_OP, FUTEX_LOCK_PI_PRIVATE
        for writes in [5, 0x86] {
            assert_eq!(operation(writes), [(0x1000, 0x1004), (0x2000, 0x2004)], "{writes:#x}");
        }
    }

    #[test]
    fn registered_buffers_are_filled_at_any_time() {
        let words = [(0x100, 2), (0x108, 0x200), (0x110, 0x200), (0x118, 1)];
        let buffers = [(0x200, 0x5000), (0x208, 0x1000), (0x210, 0x9000), (0x218, 1)];
        let memory = |at: u64, bytes: &mut [u8]| {
            let mut all = words.iter().chain(&buffers);
            let word: u64 = all.find(|word| word.0 == at).map_or(0, |word| word.1);
            bytes.copy_from_slice(&word.to_le_bytes());
            8
        };
        let later = |opcode, at, count| {
            filled_later(IO_URING_REGISTER, &[3, opcode, at, count, 0, 0], &memory)
        };
        let both = [(0x5000, 0x6000), (0x9000, 0x9001)];
        assert_eq!(later(0, 0x200, 2), both);
        assert_eq!(later(15 | 1 << 31, 0x100, 32), both);
        assert_eq!(later(16, 0x100, 32), both[..1]);
        assert!(later(2, 0x200, 2).is_empty());
    }

    #[test]
    fn messages_lead_to_their_parts() {
        // A message at 0x100 with two parts, described at 0x200.
        let words = [(0x110, 0x200), (0x118, 2), (0x200, 0x5000), (0x208, 9), (0x210, 0x7000)];
        let memory = |at: u64, bytes: &mut [u8]| {
            let word: u64 = words.iter().find(|word| word.0 == at).map_or(0, |word| word.1);
            bytes.copy_from_slice(&word.to_le_bytes());
            8
        };
        let ranges = led_to(RECVMSG, &[4, 0x100, 0, 0, 0, 0], &memory);
        assert_eq!(ranges[..2], [(0x5000, 0x5009), (0x7000, 0x7000)]);
        let many = led_to(RECVMSG, &[4, 0x100, 0, 0, 0, 0], &|_, bytes| {
            bytes.fill(0xff);
            bytes.len()
        });
        assert_eq!(many.len() as u64, MOST + 2);
    }
}

//! Numbers of the calls that matter here.

/// write(2).
pub const WRITE: u64 = 1;
/// open(2).
pub const OPEN: u64 = 2;
/// fstat(2).
pub const FSTAT: u64 = 5;
/// lseek(2).
pub const LSEEK: u64 = 8;
/// mmap(2).
pub const MMAP: u64 = 9;
/// mprotect(2).
pub const MPROTECT: u64 = 10;
/// munmap(2).
pub const MUNMAP: u64 = 11;
/// brk(2).
pub const BRK: u64 = 12;
/// rt_sigaction(2).
pub const RT_SIGACTION: u64 = 13;
/// rt_sigreturn(2).
pub const RT_SIGRETURN: u64 = 15;
/// pread64(2).
pub const PREAD64: u64 = 17;
/// writev(2).
pub const WRITEV: u64 = 20;
/// mremap(2).
pub const MREMAP: u64 = 25;
/// msync(2).
pub const MSYNC: u64 = 26;
/// mincore(2).
pub const MINCORE: u64 = 27;
/// madvise(2).
pub const MADVISE: u64 = 28;
/// shmat(2).
pub const SHMAT: u64 = 30;
/// dup(2).
pub const DUP: u64 = 32;
/// dup2(2).
pub const DUP2: u64 = 33;
/// getpid(2).
pub const GETPID: u64 = 39;
/// clone(2).
pub const CLONE: u64 = 56;
/// fork(2).
pub const FORK: u64 = 57;
/// vfork(2).
pub const VFORK: u64 = 58;
/// exit(2).
pub const EXIT: u64 = 60;
/// wait4(2).
pub const WAIT4: u64 = 61;
/// shmdt(2).
pub const SHMDT: u64 = 67;
/// fcntl(2).
pub const FCNTL: u64 = 72;
/// getdents(2).
pub const GETDENTS: u64 = 78;
/// creat(2).
pub const CREAT: u64 = 85;
/// getrlimit(2).
pub const GETRLIMIT: u64 = 97;
/// ptrace(2).
pub const PTRACE: u64 = 101;
/// personality(2).
pub const PERSONALITY: u64 = 135;
/// fstatfs(2).
pub const FSTATFS: u64 = 138;
/// mlock(2).
pub const MLOCK: u64 = 149;
/// munlock(2).
pub const MUNLOCK: u64 = 150;
/// mlockall(2).
pub const MLOCKALL: u64 = 151;
/// prctl(2).
pub const PRCTL: u64 = 157;
/// arch_prctl(2).
pub const ARCH_PRCTL: u64 = 158;
/// getrandom(2).
pub const GETRANDOM: u64 = 318;
/// sigaltstack(2).
pub const SIGALTSTACK: u64 = 131;
/// setrlimit(2).
pub const SETRLIMIT: u64 = 160;
/// set_tid_address(2).
pub const SET_TID_ADDRESS: u64 = 218;
/// remap_file_pages(2).
pub const REMAP_FILE_PAGES: u64 = 216;
/// getdents64(2).
pub const GETDENTS64: u64 = 217;
/// openat(2).
pub const OPENAT: u64 = 257;
/// newfstatat(2).
pub const NEWFSTATAT: u64 = 262;
/// dup3(2).
pub const DUP3: u64 = 292;
/// prlimit64(2).
pub const PRLIMIT64: u64 = 302;
/// seccomp(2).
pub const SECCOMP: u64 = 317;
/// userfaultfd(2).
pub const USERFAULTFD: u64 = 323;
/// mlock2(2).
pub const MLOCK2: u64 = 325;
/// pkey_mprotect(2).
pub const PKEY_MPROTECT: u64 = 329;
/// statx(2).
pub const STATX: u64 = 332;
/// rseq(2).
pub const RSEQ: u64 = 334;
/// uretprobe(2).
pub const URETPROBE: u64 = 335;
/// uprobe(2).
pub const UPROBE: u64 = 336;
/// io_uring_register(2).
pub const IO_URING_REGISTER: u64 = 427;
/// clone3(2).
pub const CLONE3: u64 = 435;
/// openat2(2).
pub const OPENAT2: u64 = 437;
/// process_madvise(2).
pub const PROCESS_MADVISE: u64 = 440;
/// mseal(2).
pub const MSEAL: u64 = 462;
/// The mark of calls of the 32-bit table that have other structures.
const OF_32_BITS: u64 = 1 << 32;
/// process_madvise(2) of the 32-bit table: parts have addresses and sizes of 32 bits.
pub const PROCESS_MADVISE_32: u64 = OF_32_BITS | PROCESS_MADVISE;
/// getdents(2) of the 32-bit table.
pub const GETDENTS_32: u64 = OF_32_BITS | GETDENTS;
/// fstat(2) of the 32-bit table.
pub const FSTAT_32: u64 = OF_32_BITS | 108;
/// fstatfs(2) of the 32-bit table.
pub const FSTATFS_32: u64 = OF_32_BITS | 100;
/// fstat64(2) of the 32-bit table: sizes in 64 bits.
pub const FSTAT64_32: u64 = OF_32_BITS | 197;
/// fstatfs64(2) of the 32-bit table.
pub const FSTATFS64_32: u64 = OF_32_BITS | 269;
/// fstatat64(2) of the 32-bit table.
pub const FSTATAT64_32: u64 = OF_32_BITS | 300;

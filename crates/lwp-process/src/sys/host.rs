//! The machine that this process runs on, and what the kernel allows it.

use std::mem::{size_of, zeroed};
use std::sync::OnceLock;
use std::time::Duration;

use super::{Errno, check};

/// Suits the allocator to a host of two threads with large tables, before the second thread is
/// made.
///
/// Large blocks come from the kernel one by one, whatever was freed before: tables that grow then
/// move without a copy, and leave no holes behind. Both threads share one heap, which grows in
/// large steps; that of another thread would grow by a system call every few pages.
pub fn suit_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: pairs of numbers; a refusal leaves the allocator as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10);
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TOP_PAD, 512 << 10);
    }
}

/// Returns whether the bases of fs and gs are apart from their selectors: the kernel has enabled
/// RDFSBASE and its like.
pub fn bases_are_apart() -> bool {
    const FSGSBASE: libc::c_ulong = 1 << 1;
    // SAFETY: a number in, a number out.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
}

/// Returns the number of CPUs that the calling thread may run on.
pub fn allowed_cpus() -> usize {
    // SAFETY: the set is plain bits, and its true size is passed.
    unsafe {
        let mut set: libc::cpu_set_t = zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return 1;
        }
        libc::CPU_COUNT(&set) as usize
    }
}

/// User and system time of the waited-for children, and of this process.
pub fn cpu_times() -> [(Duration, Duration); 2] {
    [libc::RUSAGE_CHILDREN, libc::RUSAGE_SELF].map(|who| {
        // SAFETY: the structure is plain numbers and lives through the call.
        let usage = unsafe {
            let mut usage: libc::rusage = zeroed();
            libc::getrusage(who, &raw mut usage);
            usage
        };
        let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
        (time(usage.ru_utime), time(usage.ru_stime))
    })
}

/// Returns whether personality(2) lets us turn address space randomisation off.
pub fn personality_allowed() -> bool {
    // SAFETY: the query form changes nothing; the second call sets what is set already or allows.
    unsafe {
        let old = libc::personality(0xffff_ffff);
        if old < 0 {
            return false;
        }
        let wanted = old as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
        let ok = libc::personality(wanted) >= 0;
        libc::personality(old as libc::c_ulong);
        ok
    }
}

/// System calls that are refused to this process, by a filter, a policy or an old kernel, among
/// those that the virtual CPU uses, and perf's. Each is made with arguments with which it does
/// nothing.
pub fn refused_calls() -> Vec<&'static str> {
    const NOBODY: libc::c_long = i32::MAX as libc::c_long;
    let me = libc::c_long::from(std::process::id() as i32);
    let calls = [
        ("ptrace", libc::SYS_ptrace, [libc::PTRACE_CONT.into(), NOBODY, 0, 0, 0, 0]),
        ("process_vm_readv", libc::SYS_process_vm_readv, [me, 0, 0, 0, 0, 0]),
        ("process_vm_writev", libc::SYS_process_vm_writev, [me, 0, 0, 0, 0, 0]),
        ("memfd_create", libc::SYS_memfd_create, [0, 0, 0, 0, 0, 0]),
        ("perf_event_open", libc::SYS_perf_event_open, [0, 0, -1, -1, 0, 0]),
    ];
    let refused = |(_, number, [a, b, c, d, e, f]): &(&str, libc::c_long, [libc::c_long; 6])| {
        // SAFETY: no process has the number, the lists of buffers are empty, and the kernel refuses
        // to read a name or attributes at address zero.
        let result = check(unsafe { libc::syscall(*number, *a, *b, *c, *d, *e, *f) });
        matches!(result, Err(Errno(libc::EPERM | libc::ENOSYS | libc::EACCES)))
    };
    calls.iter().filter(|call| refused(call)).map(|(name, ..)| *name).collect()
}

/// A random number that nobody can guess.
///
/// # Errors
///
/// Those of getrandom(2).
pub fn random_number() -> super::Result<u64> {
    let mut number = 0u64;
    let bytes = size_of_val(&number);
    // SAFETY: the kernel writes as many bytes as the number has, and it lives through the call.
    check(unsafe { libc::getrandom((&raw mut number).cast(), bytes, 0) } as i64)?;
    Ok(number)
}

/// CPUID on this machine.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let result = std::arch::x86_64::__cpuid_count(leaf, subleaf);
    [result.eax, result.ebx, result.ecx, result.edx]
}

/// The time stamp counter; `None` where it doesn't tell time: it stops or changes its rate, or the
/// system has it fault.
///
/// Spec: AMD64 Architecture Programmer's Manual, volume 3, CPUID Fn8000_0007_EDX, TscInvariant;
/// `PR_GET_TSC(2const)`.
pub fn time_stamp_counter() -> Option<u64> {
    static TELLS_TIME: OnceLock<bool> = OnceLock::new();
    let tells = TELLS_TIME.get_or_init(|| {
        const INVARIANT: u32 = 1 << 8;
        let known = cpuid(0x8000_0000, 0)[0] >= 0x8000_0007;
        let mut mode = 0i32;
        // SAFETY: the kernel writes one int, and it lives through the call.
        let asked = check(i64::from(unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) }));
        let faults = asked.is_err() || mode != libc::PR_TSC_ENABLE;
        known && cpuid(0x8000_0007, 0)[3] & INVARIANT != 0 && !faults
    });
    // SAFETY: RDTSC exists on every x86-64 processor, and does not fault in this process.
    tells.then(|| unsafe { std::arch::x86_64::_rdtsc() })
}

/// The limit of the segment with this selector; `None` where there is none.
pub fn segment_limit(selector: u32) -> Option<u32> {
    let (limit, found): (u32, u8);
    // SAFETY: LSL reads nothing but the descriptor tables and faults at no selector; it changes its
    // outputs and the zero flag only.
    unsafe {
        std::arch::asm!("xor {limit:e}, {limit:e}", "lsl {limit:e}, {selector:e}", "setz {found}",
            selector = in(reg) selector, limit = out(reg) limit, found = out(reg_byte) found,
            options(nomem, nostack));
    }
    (found != 0).then_some(limit)
}

/// XCR0 of this machine; 0 where XGETBV is not enabled. Asked for once: a hypervisor takes its time
/// for CPUID.
pub fn xcr0() -> u64 {
    static XCR0: OnceLock<u64> = OnceLock::new();
    *XCR0.get_or_init(read_xcr0)
}

fn read_xcr0() -> u64 {
    if cpuid(1, 0)[2] & (1 << 27) == 0 {
        return 0;
    }
    let (low, high): (u32, u32);
    // SAFETY: OSXSAVE says that the instruction is enabled; it changes only its outputs.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

//! The counter: lwp's markers on x86-64 Linux, and nothing on other targets.

/// The result of `work`, and the instructions that it took; `None` where nothing is counted.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline(always)]
pub fn counted<R>(work: impl FnOnce() -> R) -> (R, Option<u64>) {
    lwp::count_instructions(work)
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub fn counted<R>(work: impl FnOnce() -> R) -> (R, Option<u64>) {
    (work(), None)
}

/// The number of instructions that this thread has executed; `None` where nothing is counted.
#[cfg(feature = "criterion")]
#[inline(always)]
pub fn so_far() -> Option<u64> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return lwp::read_count(lwp::Counter::Instructions);
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    None
}

/// Said where nothing is counted.
pub const NOT_COUNTED: &str =
    "nothing is counted here: run this with `cargo lwp bench`, or under `lwp stat`";

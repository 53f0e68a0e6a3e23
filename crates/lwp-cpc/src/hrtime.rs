//! The clocks of Solaris that ports call without libcpc's prefix.
//!
//! A program that has functions of these names uses its own.

use rustix::time::{ClockId, clock_gettime};

fn nanoseconds(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// `gethrtime(3C)`: nanoseconds on the clock of `cpc_buf_hrtime`.
#[unsafe(no_mangle)]
pub extern "C" fn gethrtime() -> i64 {
    nanoseconds(ClockId::Monotonic)
}

/// `gethrvtime(3C)`: nanoseconds for which the calling thread has been running.
#[unsafe(no_mangle)]
pub extern "C" fn gethrvtime() -> i64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

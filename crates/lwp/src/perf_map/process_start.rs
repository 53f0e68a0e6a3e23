//! The start time of this process.

use rustix::time::{ClockId, clock_gettime};

/// Seconds and nanoseconds since 1970, as file systems note them.
pub type Time = (i64, i64);

/// Units of the kernel's times of processes in a second: USER_HZ of x86-64.
const TICKS: i64 = 100;
const NANOSECONDS: i64 = 1_000_000_000;
/// Both the time of birth and the times of files are noted by a clock that stands still between
/// ticks.
const SLACK: i64 = 2 * NANOSECONDS / TICKS;

/// A time before which this process had certainly not begun; `None` where the system does not say.
pub fn of_this_process() -> Option<Time> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let nanoseconds = |clock| {
        let now = clock_gettime(clock);
        now.tv_sec.checked_mul(NANOSECONDS)?.checked_add(now.tv_nsec)
    };
    // Both clocks go on alike. What passes between the two calls makes the birth earlier: the other
    // way round a thread that was put off between them would take what another one has just written
    // for old.
    let now = nanoseconds(ClockId::Realtime)?;
    let birth = now - nanoseconds(ClockId::Boottime)? + start(&stat)? - SLACK;
    Some((birth.div_euclid(NANOSECONDS), birth.rem_euclid(NANOSECONDS)))
}

/// The time from boot to start in nanoseconds: the 22nd field. The second is a name in parentheses,
/// which may itself have spaces and parentheses.
fn start(stat: &str) -> Option<i64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    let ticks: i64 = after_name.split_ascii_whitespace().nth(19)?.parse().ok()?;
    ticks.checked_mul(NANOSECONDS / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs_do_not_move_the_fields() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 123 20";
        assert_eq!(start(&format!("42 (a) {rest}")), Some(1_230_000_000));
        assert_eq!(start(&format!("42 (a) ) (b) {rest}")), Some(1_230_000_000));
        assert_eq!(start("42 (a) S 1"), None);
        assert_eq!(start(""), None);
    }

    #[test]
    fn this_process_began_before_now_and_after_its_program_was_built() {
        let (seconds, _) = of_this_process().unwrap();
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        let program = std::fs::metadata(std::env::current_exe().unwrap()).unwrap();
        let built = program.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(seconds <= now && seconds + 1 >= built.as_secs() as i64, "{seconds}");
    }
}

//! Numbers as people read them.

use lwp_profile::Event;

/// With thousands separated by commas.
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A signed number, its sign always written.
pub fn signed(value: i128) -> String {
    let sign = if value < 0 { '-' } else { '+' };
    let magnitude = u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", grouped(magnitude))
}

/// Nanoseconds as seconds.
pub fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

/// The value of an event: seconds of time, and numbers of others.
pub fn amount(event: &str, value: u64) -> String {
    if Event::is_in_nanoseconds(event) { seconds(value) } else { grouped(value) }
}

/// The value of an event with its name, as a title has it.
pub fn titled(event: &str, value: u64) -> String {
    match event {
        Event::TIME => format!("{} of CPU time", seconds(value)),
        Event::OFF_CPU => format!("{} off the processor", seconds(value)),
        event => format!("{} {event}", grouped(value)),
    }
}

/// A difference of values of an event, its sign always written.
pub fn signed_amount(event: &str, value: i128) -> String {
    if !Event::is_in_nanoseconds(event) {
        return signed(value);
    }
    let sign = if value < 0 { '-' } else { '+' };
    let magnitude = u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", seconds(magnitude))
}

/// `part` of `whole` in percent, with two digits; nothing where there is no whole.
pub fn percent(part: f64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.2}%", 100.0 * part / whole as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(signed(-1000), "-1,000");
        assert_eq!(signed(0), "+0");
        assert_eq!(percent(1.0, 3), "33.33%");
        assert_eq!(percent(1.0, 0), "-");
        assert_eq!(amount("calls", 1000), "1,000");
        assert_eq!(amount("cpu-time", 1_500_000_000), "1.500 s");
        assert_eq!(titled("calls", 1000), "1,000 calls");
        assert_eq!(titled("cpu-time", 7_000_000), "0.007 s of CPU time");
        assert_eq!(signed_amount("calls", -1000), "-1,000");
        assert_eq!(signed_amount("cpu-time", -1_500_000_000), "-1.500 s");
        assert_eq!(signed_amount("cpu-time", 0), "+0.000 s");
    }
}

//! Numbers as text.

/// `value` in decimal, with a comma between thousands if `grouped`.
pub fn count(value: u64, grouped: bool) -> String {
    let digits = value.to_string();
    if grouped { group(&digits) } else { digits }
}

/// A number of nanoseconds as milliseconds with two decimals.
pub fn msec(ns: u64, grouped: bool) -> String {
    let hundredths = (u128::from(ns) + 5_000) / 10_000;
    let whole = u64::try_from(hundredths / 100).unwrap_or(u64::MAX);
    format!("{}.{:02}", count(whole, grouped), hundredths % 100)
}

/// A number of nanoseconds as seconds with nine decimals.
pub fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// A time since the start as perf has it before what was counted in an interval.
pub fn timestamp(at: std::time::Duration) -> String {
    format!("{:>6}.{:09}", at.as_secs(), at.subsec_nanos())
}

/// Puts a comma before every third digit from the right.
fn group(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands() {
        assert_eq!(count(0, true), "0");
        assert_eq!(count(999, true), "999");
        assert_eq!(count(1_000, true), "1,000");
        assert_eq!(count(1_234_567, true), "1,234,567");
        assert_eq!(count(1_234_567, false), "1234567");
        assert_eq!(count(u64::MAX, true), "18,446,744,073,709,551,615");
    }

    #[test]
    fn times() {
        assert_eq!(msec(0, true), "0.00");
        assert_eq!(msec(1_234_996_000, true), "1,235.00");
        assert_eq!(msec(645_208, false), "0.65");
        assert_eq!(seconds(3_222_681), "0.003222681");
        assert_eq!(seconds(61_000_000_001), "61.000000001");
    }
}

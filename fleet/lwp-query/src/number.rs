//! Numbers as people read them.

/// A number in groups of three.
pub fn grouped(value: i128) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0 { format!("-{out}") } else { out }
}

/// A difference, with its sign.
pub fn signed(value: i128) -> String {
    if value > 0 { format!("+{}", grouped(value)) } else { grouped(value) }
}

/// A change in per cent.
pub fn percent(before: f64, after: f64) -> String {
    if before == 0.0 {
        "new".to_owned()
    } else {
        format!("{:+.2}%", 100.0 * (after - before) / before)
    }
}

/// Bytes, as B, KiB or MiB.
pub fn bytes(value: u64) -> String {
    match value {
        0..=9_999 => format!("{value} B"),
        10_000..=9_999_999 => format!("{:.1} KiB", value as f64 / 1024.0),
        _ => format!("{:.1} MiB", value as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([grouped(0), grouped(-1234), signed(1_234_567)], ["0", "-1,234", "+1,234,567"]);
        assert_eq!([percent(200.0, 210.0), percent(0.0, 1.0)], ["+5.00%", "new"]);
    }
}

//! What users and their scripts write.

use std::path::Path;

use crate::control_line::{next_line, understand};
use crate::gate_rules;

/// Lines of `--control`.
pub fn control(bytes: &[u8]) {
    let mut rest = bytes;
    let mut lines = 0;
    while let Ok(Some(line)) = next_line(&mut rest) {
        // Bytes that are no text are replaced by three.
        assert!(line.len() <= 3 * 256, "{line}");
        let _ = understand(&line);
        lines += 1;
    }
    assert!(lines <= bytes.len());
}

/// `lwp.toml`.
pub fn gate(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(rules) = gate_rules::parse(text, Path::new("ci/lwp.toml")) {
        for (event, limit) in rules.all() {
            let _ = (event, limit.to_string(), limit.ceiling(u64::MAX), limit.ceiling(0));
        }
        assert!(rules.hard.values().all(|limit| !limit.is_relative()));
        let _ = rules.baseline;
    }
}

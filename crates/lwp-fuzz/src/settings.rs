//! Texts of users and their scripts.

use std::path::Path;

use crate::config;
use crate::control_line::{next_line, understand};

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
    if let Ok(rules) = config::parse(text, Path::new("ci/lwp.toml")) {
        let patterns = [&rules.functions, &rules.modules, &rules.benchmarks];
        let parts = patterns.iter().flat_map(|patterns| patterns.values()).flatten();
        let parts = parts.map(|(event, limit)| (event, *limit));
        for (event, limit) in rules.of_benchmark("sort/small").into_iter().chain(parts) {
            let _ = (event, limit.to_string(), limit.ceiling(u64::MAX), limit.ceiling(0));
        }
        assert!(!rules.is_empty() || rules.relative().is_none());
        let limited = !rules.of_benchmark("sort/small").is_empty();
        assert!(!limited || rules.unlimited("sort/small").is_none());
        assert!(rules.hard.values().all(|limit| !limit.is_relative()));
        let _ = rules.baseline;
    }
}

//! Exceptions to the rules of `cargo xtask tree`, by package. The numbers only go down;
//! `cargo xtask tree --budget` prints the table as it would be now, `--places` each exception.

/// Package; long files, long functions, functions with many parameters, wide lines, doc comments
/// that open with a question word.
#[rustfmt::skip] // A table: one package a line.
pub const BUDGET: &[(&str, [usize; 5])] = &[
    ("cpc",            [  0,    0,    0,   12,    0]),
    ("cpc-tools",      [  0,    0,    1,    4,    0]),
    ("lwp-arch",       [  0,    0,    1,    0,    0]),
    ("lwp-bench",      [  0,    0,    0,    1,    0]),
    ("lwp-cli",        [  0,    0,    0,   49,    0]),
    ("lwp-cpc",        [  0,    0,    3,    1,    0]),
    ("lwp-dbt",        [  0,    9,    0,   18,    0]),
    ("lwp-export",     [  0,    0,    1,    2,    0]),
    ("lwp-fleet",      [  0,    0,    0,    6,    0]),
    ("lwp-fuzz",       [  0,    0,    0,    4,    0]),
    ("lwp-languages",  [  0,    0,    0,    5,    0]),
    ("lwp-model",      [  0,    0,    1,    0,    0]),
    ("lwp-page",       [  0,    0,    0,  112,    0]),
    ("lwp-perf",       [  0,    0,    0,    2,    0]),
    ("lwp-profile",    [  0,    2,    0,    1,    0]),
    ("lwp-ptrace",     [  0,    0,    0,    3,    0]),
    ("lwp-query",      [  0,    0,    0,   10,    0]),
    ("lwp-report",     [  0,    0,    0,    9,    0]),
    ("lwp-serve",      [  0,    0,    0,   57,    0]),
    ("lwp-symbols",    [  0,    1,    0,    1,    0]),
    ("lwp-testkit",    [  0,    1,    0,    0,    0]),
    ("lwp-uarch",      [  0,    0,    0,    2,    0]),
    ("lwp-unwind",     [  0,    0,    0,    1,    0]),
    ("lwp-vcpu",       [  0,    3,    1,   22,    0]),
    ("xtask",          [  0,    0,    0,   13,    0]),
];

//! What a test program says about itself.

use std::time::Duration;

/// How an executable is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Dynamic, position independent; the distribution's default.
    Pie,
    /// Dynamic at a fixed address.
    NoPie,
    /// Static at a fixed address.
    Static,
    /// Static, relocates itself.
    StaticPie,
    /// No C library at all; entry is `_start`.
    Bare,
}

impl Variant {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "pie" => Self::Pie,
            "no-pie" => Self::NoPie,
            "static" => Self::Static,
            "static-pie" => Self::StaticPie,
            "bare" => Self::Bare,
            _ => return None,
        })
    }

    /// The word used in directives and in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pie => "pie",
            Self::NoPie => "no-pie",
            Self::Static => "static",
            Self::StaticPie => "static-pie",
            Self::Bare => "bare",
        }
    }

    /// Compiler driver flags that select this variant.
    pub fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Pie => &["-fPIE", "-pie"],
            Self::NoPie => &["-fno-pie", "-no-pie"],
            Self::Static => &["-fno-pie", "-no-pie", "-static"],
            Self::StaticPie => &["-fPIE", "-static-pie"],
            Self::Bare => &["-nostdlib", "-static", "-no-pie"],
        }
    }
}

/// What is compared between the native run and a run on the virtual CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Output and exit status.
    All,
    /// Only that each run satisfies the program's own expectation. For behaviour that is documented
    /// to differ on the virtual CPU; the program checks both forms itself.
    Expectation,
}

/// The `//@ key: value` lines (`#@` in assembly) at the head of a test program.
///
/// | key | value |
/// | --- | --- |
/// | `cflags` | extra compiler flags |
/// | `variants` | any of `pie no-pie static static-pie bare`; default `pie` |
/// | `libs` | shared objects to build from `NAME.c` of the same folder, placed beside the executable |
/// | `args` | arguments of the program |
/// | `exit` | expected exit code; default 0 |
/// | `signal` | expected fatal signal number instead of an exit code |
/// | `timeout` | seconds for one native run, on a busy machine; default 120 |
/// | `compare` | `all` or `expectation` |
#[derive(Clone, Debug)]
pub struct Directives {
    /// Extra compiler flags.
    pub cflags: Vec<String>,
    /// How to link.
    pub variants: Vec<Variant>,
    /// Shared objects the program opens at run time.
    pub libs: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Expected exit code, unless a signal is expected.
    pub exit: i32,
    /// Expected fatal signal.
    pub signal: Option<i32>,
    /// Time limit of one native run.
    pub timeout: Duration,
    /// What is compared.
    pub compare: Compare,
}

impl Directives {
    /// Reads the directives of a source text.
    ///
    /// # Panics
    ///
    /// On an unknown key or value: a directive that is silently ignored would weaken a test.
    pub fn parse(source: &str) -> Self {
        let mut this = Self {
            cflags: Vec::new(),
            variants: vec![Variant::Pie],
            libs: Vec::new(),
            args: Vec::new(),
            exit: 0,
            signal: None,
            timeout: Duration::from_secs(120),
            compare: Compare::All,
        };
        for line in source.lines() {
            let Some(rest) = line.strip_prefix("//@").or_else(|| line.strip_prefix("#@")) else {
                continue;
            };
            let (key, value) = rest.split_once(':').unwrap_or_else(|| panic!("no ':' in {line:?}"));
            this.set(key.trim(), value.trim());
        }
        this
    }

    fn set(&mut self, key: &str, value: &str) {
        let words = || value.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let number = || value.parse::<i32>().unwrap_or_else(|_| panic!("not a number: {value:?}"));
        match key {
            "cflags" => self.cflags = words(),
            "libs" => self.libs = words(),
            "args" => self.args = words(),
            "exit" => self.exit = number(),
            "signal" => self.signal = Some(number()),
            "timeout" => self.timeout = Duration::from_secs(u64::from(number().unsigned_abs())),
            "variants" => {
                let parse = |w: &str| Variant::parse(w).unwrap_or_else(|| panic!("variant {w:?}"));
                self.variants = value.split_whitespace().map(parse).collect();
            }
            "compare" => {
                self.compare = match value {
                    "all" => Compare::All,
                    "expectation" => Compare::Expectation,
                    _ => panic!("unknown value of compare: {value:?}"),
                }
            }
            _ => panic!("unknown directive {key:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_hold_without_directives() {
        let d = Directives::parse("int main(void) {}\n");
        assert_eq!(d.variants, [Variant::Pie]);
        assert_eq!((d.exit, d.signal, d.compare), (0, None, Compare::All));
    }

    #[test]
    fn every_key_is_read() {
        let d = Directives::parse(
            "//@ cflags: -O1 -pthread\n//@ variants: static no-pie\n//@ libs: a b\n//@ args: x y\n\
             //@ exit: 3\n//@ signal: 11\n//@ timeout: 5\n//@ compare: expectation\n",
        );
        assert_eq!(d.cflags, ["-O1", "-pthread"]);
        assert_eq!(d.variants, [Variant::Static, Variant::NoPie]);
        assert_eq!(d.libs, ["a", "b"]);
        assert_eq!(d.args, ["x", "y"]);
        assert_eq!((d.exit, d.signal), (3, Some(11)));
        assert_eq!(d.timeout, Duration::from_secs(5));
        assert_eq!(d.compare, Compare::Expectation);
    }

    #[test]
    #[should_panic(expected = "unknown directive")]
    fn unknown_key_is_refused() {
        Directives::parse("#@ exti: 3\n");
    }
}

//! Running benchmarks.

use std::fmt::Display;
use std::hint::black_box;
use std::process::ExitCode;

use crate::counter::{NOT_COUNTED, counted};
use crate::options::{Options, Request};
use crate::results::{Count, Results};

/// A runner of benchmarks, which keeps their results.
#[derive(Debug)]
pub struct Bench {
    options: Options,
    results: Results,
}

/// The number of times that a benchmark is measured. Work of the first time, such as resolving a
/// library function, is not part of what it costs.
const TIMES: usize = 3;

impl Bench {
    /// The runner that the program's arguments ask for. Help and errors end the program here.
    pub fn from_arguments() -> Self {
        match Options::parse(std::env::args().skip(1)) {
            Ok(Request::Run(options)) => Self::new(options),
            Ok(Request::Help(text)) => {
                print(&text);
                std::process::exit(0)
            }
            Err(error) => {
                complain(&error);
                std::process::exit(2)
            }
        }
    }

    fn new(options: Options) -> Self {
        Self { options, results: Results::default() }
    }

    /// Measures `work`. What it returns is dropped uncounted.
    pub fn run<R>(&mut self, name: &str, mut work: impl FnMut() -> R) {
        self.with(name, || (), |()| work());
    }

    /// Measures `work` on what `set_up` makes, which is not counted itself. What `work` returns is
    /// dropped uncounted: it returns its input where that is not to be counted either.
    pub fn with<I, R>(
        &mut self,
        name: &str,
        mut set_up: impl FnMut() -> I,
        mut work: impl FnMut(I) -> R,
    ) {
        if !self.options.wants(name) {
            return;
        }
        if self.options.list {
            return print(&format!("{name}: benchmark\n"));
        }
        let mut counts = Vec::new();
        for _ in 0..if self.options.once { 1 } else { TIMES } {
            let input = black_box(set_up());
            let (output, count) = counted(|| black_box(work(input)));
            drop(output);
            counts.push(count);
        }
        // The first time warms up.
        let settled = counts.get(1..).filter(|settled| !settled.is_empty()).unwrap_or(&counts);
        let settled: Option<Vec<u64>> = settled.iter().copied().collect();
        let count = settled.as_deref().and_then(Count::of);
        print(&self.results.add(name, count, self.options.before.get(name).copied()));
    }

    /// Measures `work` on each of `inputs`, as `name/INPUT`; `set_up` makes of an input what `work`
    /// takes.
    pub fn inputs<T: Display + Clone, I, R>(
        &mut self,
        name: &str,
        inputs: impl IntoIterator<Item = T>,
        mut set_up: impl FnMut(T) -> I,
        mut work: impl FnMut(I) -> R,
    ) {
        for input in inputs {
            self.with(&format!("{name}/{input}"), || set_up(input.clone()), &mut work);
        }
    }

    /// Keeps the results where that is asked for, and returns the program's exit code: 3 where a
    /// benchmark has grown more than it may.
    pub fn finish(self) -> ExitCode {
        if self.options.list {
            return ExitCode::SUCCESS;
        }
        if self.results.is_uncounted() {
            complain(NOT_COUNTED);
        }
        if let Some(path) = &self.options.save
            && let Err(error) = self.results.save(path)
        {
            complain(&format!("{}: {error}", path.display()));
            return ExitCode::from(2);
        }
        let grown = self.results.grown(&self.options.before, self.options.limit);
        for text in &grown {
            complain(text);
        }
        ExitCode::from(if grown.is_empty() { 0 } else { 3 })
    }
}

/// Prints results. A reader that has seen enough is no error.
fn print(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Says something on standard error.
pub fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "lwp-bench: {text}");
}

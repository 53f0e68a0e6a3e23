//! Runs benchmarks.

use std::fmt::Display;
use std::hint::black_box;
use std::process::ExitCode;

use crate::counter::{NOT_COUNTED, counted};
use crate::options::{Options, Request};
use crate::results::{Count, Results};

/// Runs benchmarks and keeps their results. [`main!`](crate::main) makes one.
#[derive(Debug)]
#[must_use = "`finish` saves the results and returns the exit code"]
pub struct Bench {
    options: Options,
    results: Results,
}

/// How often a benchmark is measured. The first time isn't counted, because it includes one-time
/// work such as resolving library functions.
const TIMES: usize = 3;

impl Bench {
    /// Makes a runner from the program's arguments. For `--help` and for wrong arguments, this
    /// exits the program, with code 0 or 2.
    pub fn from_args() -> Self {
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

    /// Counts the instructions of `work`, but not those that drop its result.
    ///
    /// ```no_run
    /// # let mut bench = lwp_bench::Bench::from_args();
    /// bench.run("sum", || (0..1000u64).sum::<u64>());
    /// ```
    pub fn run<R>(&mut self, name: &str, mut work: impl FnMut() -> R) {
        self.run_with_setup(name, || (), |()| work());
    }

    /// Counts the instructions of `work` on a value that `setup` makes, but not those of `setup`
    /// and those that drop the result.
    ///
    /// Return the input from `work` if dropping it should not be counted either:
    ///
    /// ```no_run
    /// # let mut bench = lwp_bench::Bench::from_args();
    /// let shuffled = || vec![3, 1, 2];
    /// bench.run_with_setup("sort", shuffled, |mut numbers| {
    ///     numbers.sort();
    ///     numbers
    /// });
    /// ```
    pub fn run_with_setup<I, R>(
        &mut self,
        name: &str,
        mut setup: impl FnMut() -> I,
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
            let input = black_box(setup());
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

    /// Counts the instructions of `work` for each of `inputs`, as the benchmark `name/INPUT`.
    /// `setup` turns an input into the value that `work` takes, and isn't counted.
    ///
    /// ```no_run
    /// # let mut bench = lwp_bench::Bench::from_args();
    /// let reversed = |n: u64| (0..n).rev().collect::<Vec<u64>>();
    /// bench.run_for_inputs("sort", [10, 1000], reversed, |mut numbers| {
    ///     numbers.sort();
    ///     numbers
    /// });
    /// ```
    pub fn run_for_inputs<T: Display + Clone, I, R>(
        &mut self,
        name: &str,
        inputs: impl IntoIterator<Item = T>,
        mut setup: impl FnMut(T) -> I,
        mut work: impl FnMut(I) -> R,
    ) {
        for input in inputs {
            self.run_with_setup(&format!("{name}/{input}"), || setup(input.clone()), &mut work);
        }
    }

    /// Saves the results if the program has the option `--save`. Returns the program's exit code:
    /// 0, or 2 if the results could not be saved, or 3 if a benchmark has grown by more than
    /// `--limit`.
    #[must_use]
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

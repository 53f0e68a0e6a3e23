//! The workspace's own checks and measurements.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool for those who work on lwp, on a terminal of their own"
)]
#![allow(clippy::disallowed_methods, reason = "as far as threads go, too")]

mod abi;
mod bench;
mod book;
mod check;
mod ci;
mod coverage;
mod deny;
mod dist;
mod examples;
mod fleet;
mod layering;
mod links;
mod package;
mod promises;
mod spec_matrix;
mod stress;
mod testing;
mod toolchains;
mod tree;
mod unsafe_budget;
mod workspace;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

/// Checks and measurements of this workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run every check of this workspace: format, lints, rules of the tree, tests, examples
    Ci(ci::Options),
    /// Lint what a change touches, and run the quick tests of the changed packages
    Check(check::Options),
    /// Build, lint and run the tests of this workspace
    Test(testing::Selection),
    /// Check that crates depend only on crates of lower levels
    Layering,
    /// Check that unsafe code occurs only where it may
    UnsafeBudget,
    /// Check that the C libraries export what their lists say
    AbiCheck,
    /// Build, lint and test the fleet, which is a workspace of its own
    Fleet {
        /// Do not run the tests
        #[arg(long)]
        no_run: bool,
    },
    /// Measure the fleet's stores, questions and server
    BenchFleet(fleet::Measured),
    /// Check sizes and line widths of files, and that none names a place on one machine
    Tree(tree::Options),
    /// Check the links of all documents, and the pages of the book; build it where there is mdbook
    Book,
    /// Run the shell examples of README, guide and docs in scratch directories
    Examples(examples::Options),
    /// List every section of the documents with its tests; fail where there is none
    SpecMatrix(spec_matrix::Options),
    /// List every promise of SPECIFICATION.md with its tests
    Promises,
    /// Check published crates with the oldest toolchain that they promise
    Msrv,
    /// Run the unit tests of pure crates under miri
    Miri,
    /// Count the lines of the engine that its own tests execute, where LLVM's tools are installed
    Coverage,
    /// Run programs that are sensitive to timing many times; fail where a run differs or hangs
    Stress(stress::Options),
    /// Package every crate, and install the command from the packages alone
    Package(package::Options),
    /// Build a release: static commands, C libraries, Debian package, wheel, image, checksums
    Dist(dist::Options),
    /// Measure the virtual CPU against native runs and print a Markdown table
    Bench(bench::Options),
}

/// A shell ignores SIGINT and SIGQUIT for what it starts in the background, and nohup(1) SIGHUP. A
/// process inherits that, and tests send these signals: env(1) starts this program once more then,
/// with their defaults.
fn take_signals() {
    const STARTED: &str = "LWP_XTASK_SIGNALS";
    /// HUP, INT and QUIT in the mask of proc(5).
    const SENT: u64 = 0b111;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let is_ignored = ignored.is_some_and(|mask| mask & SENT != 0);
    let Some(this) = std::env::current_exe().ok().filter(|_| is_ignored) else { return };
    if std::env::var_os(STARTED).is_some() {
        return eprintln!(
            "signals that tests send are ignored here, and env(1) does not change that"
        );
    }
    let mut env = Command::new("env");
    env.arg("--default-signal=HUP,INT,QUIT").arg(this).args(std::env::args_os().skip(1));
    // Returns only if there is no such program.
    let _ = env.env(STARTED, "1").exec();
}

fn main() -> ExitCode {
    take_signals();
    let done = match CommandLine::parse().task {
        Task::Ci(options) => ci::run(options),
        Task::Check(options) => check::run(&options),
        Task::Test(selection) => ci::test(&selection),
        Task::Layering => layering::check(),
        Task::UnsafeBudget => unsafe_budget::check(),
        Task::AbiCheck => abi::check(),
        Task::Fleet { no_run: true } => fleet::build().map(drop),
        Task::Fleet { no_run: false } => fleet::check(),
        Task::BenchFleet(options) => fleet::measure(&options),
        Task::Tree(options) => tree::check(&options),
        Task::Book => book::check(),
        Task::Examples(options) => examples::check(&options),
        Task::SpecMatrix(options) => spec_matrix::print(&options),
        Task::Promises => promises::print(),
        Task::Msrv => toolchains::oldest(),
        Task::Miri => toolchains::interpreted(),
        Task::Coverage => coverage::check(),
        Task::Stress(options) => stress::run(&options),
        Task::Package(options) => package::run(&options),
        Task::Dist(options) => dist::run(&options),
        Task::Bench(options) => bench::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

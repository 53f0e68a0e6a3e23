//! Runs of the original and the optimised program, and what they have in common.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::failure::{Failure, OWN_FAILURE};

/// Counts and times of a program.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Instructions executed, counted.
    pub instructions: u64,
    /// Branches taken, counted.
    pub branches_taken: u64,
    /// User time of native runs, in order.
    pub user_times: Vec<Duration>,
    /// How the first run ended.
    pub status: Option<ExitStatus>,
}

/// What two programs did.
#[derive(Debug)]
pub struct Compared {
    /// The original, and the optimised one.
    pub measured: [Measured; 2],
    /// Their output was the same.
    pub same_output: bool,
    /// Two runs of the original had the same output.
    pub repeats: bool,
}

impl Compared {
    /// Returns whether they ended the same way, with the same output if that is the same in all
    /// runs of the original.
    pub fn is_same(&self) -> bool {
        let [original, made] = &self.measured;
        original.status == made.status && (self.same_output || !self.repeats)
    }
}

/// Runs with the same arguments, and a place for what they print.
#[derive(Debug)]
pub struct Runs<'a> {
    name: &'a OsStr,
    arguments: &'a [OsString],
    dir: &'a Path,
}

impl<'a> Runs<'a> {
    /// Runs with the program's name and arguments of a command.
    pub fn new(command: &'a [OsString], dir: &'a Path) -> Self {
        let (name, arguments) = command.split_at(command.len().min(1));
        let name = name.first().map(OsString::as_os_str).unwrap_or_default();
        Self { name, arguments, dir }
    }

    /// Records the program into a file, in silence.
    pub fn record(&self, program: &Path, file: &Path) -> Result<PathBuf, Failure> {
        let mut command = own()?;
        command.args(["record", "-q", "--call-graph", "inferred", "-o"]).arg(file);
        command.arg("--").arg(program).args(self.arguments);
        self.wait(command, "recorded")?;
        match file.is_file() {
            true => Ok(file.to_owned()),
            false => Err(Failure::new(OWN_FAILURE, "the program was not recorded")
                .with_help("`lwp record -- PROGRAM` says why")),
        }
    }

    /// Runs both programs in turns, and counts each once.
    pub fn compare(&self, programs: [&Path; 2], times: u32) -> Result<Compared, Failure> {
        let mut measured = [Measured::default(), Measured::default()];
        let names = ["original", "optimised"];
        for round in 0..times.max(1) {
            for (at, program) in programs.iter().enumerate() {
                let name = if round == 0 { names[at] } else { "again" };
                let (status, time) = self.run(program, name)?;
                measured[at].status.get_or_insert(status);
                measured[at].user_times.push(time);
            }
        }
        self.run(programs[0], "again")?;
        let repeats = self.same("original", "again")?;
        for (at, program) in programs.iter().enumerate() {
            self.count(program, &mut measured[at])?;
            measured[at].user_times.sort_unstable();
            measured[at].user_times.truncate(if times == 0 { 0 } else { usize::MAX });
        }
        let same_output = self.same("original", "optimised")?;
        Ok(Compared { measured, same_output, repeats })
    }

    /// Runs natively under the name of the command, and returns how it ended and its user time.
    fn run(&self, program: &Path, name: &str) -> Result<(ExitStatus, Duration), Failure> {
        let mut command = Command::new(program);
        command.arg0(self.name).args(self.arguments);
        let before = lwp_time::user_time_of_children();
        let status = self.wait(command, name)?;
        Ok((status, lwp_time::user_time_of_children().saturating_sub(before)))
    }

    /// Counts a run.
    fn count(&self, program: &Path, measured: &mut Measured) -> Result<(), Failure> {
        let counts = self.dir.join("counts.json");
        let mut command = own()?;
        command.args(["stat", "-j", "-e", "instructions,branches-taken", "-o"]).arg(&counts);
        command.arg("--").arg(program).args(self.arguments);
        self.wait(command, "counted")?;
        let failed = |error: io::Error| Failure::io("counts of lwp stat", &error);
        let text = std::fs::read_to_string(&counts).map_err(failed)?;
        for line in text.lines() {
            let Ok(row) = serde_json::from_str::<Value>(line) else { continue };
            let value = row["counter-value"].as_str().and_then(|it| it.parse::<f64>().ok());
            let value = value.unwrap_or(0.0) as u64;
            match row["event"].as_str() {
                Some("instructions") => measured.instructions = value,
                Some("branches-taken") => measured.branches_taken = value,
                _ => {}
            }
        }
        Ok(())
    }

    /// Runs a command to its end, with what it prints in files of this name.
    fn wait(&self, mut command: Command, name: &str) -> Result<ExitStatus, Failure> {
        let failed = |error: io::Error| Failure::io("running the program", &error);
        let file = |end| File::create(self.dir.join(format!("{name}.{end}")));
        command.stdout(file("out").map_err(failed)?).stderr(file("err").map_err(failed)?);
        command.stdin(input()).status().map_err(failed)
    }

    /// Returns whether two runs have printed the same.
    fn same(&self, one: &str, other: &str) -> Result<bool, Failure> {
        let failed = |error: io::Error| Failure::io("what the program printed", &error);
        let equal = |end: &str| {
            let [one, other] = [one, other].map(|name| self.dir.join(format!("{name}.{end}")));
            equal(&one, &other)
        };
        Ok(equal("out").map_err(failed)? && equal("err").map_err(failed)?)
    }
}

/// The standard input of every run: ours from its beginning if it is a file, else nothing.
fn input() -> Stdio {
    let ours = File::open("/proc/self/fd/0");
    let file = ours.ok().filter(|file| file.metadata().is_ok_and(|it| it.is_file()));
    file.map_or_else(Stdio::null, Stdio::from)
}

/// This command.
fn own() -> Result<Command, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::io("lwp itself", &error))?;
    Ok(Command::new(own))
}

fn equal(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (File::open(one)?, File::open(other)?);
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    let [one, other] = [one, other].map(|file| BufReader::new(file).bytes());
    for (one, other) in one.zip(other) {
        if one? != other? {
            return Ok(false);
        }
    }
    Ok(true)
}

//! The ways to run a program: natively, on the virtual CPU, on its peers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::workloads::Workload;

/// One way to run a program.
#[derive(Debug)]
pub struct Way {
    /// The heading of its column.
    pub name: &'static str,
    /// What stands before the program.
    prefix: Vec<OsString>,
    /// Whether it stays with the program's children.
    pub follows_children: bool,
}

impl Way {
    fn new(name: &'static str, prefix: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let prefix = prefix.into_iter().map(Into::into).collect();
        Self { name, prefix, follows_children: true }
    }

    /// The command that runs `workload` this way.
    pub fn command(&self, workload: &Workload, dir: &Path) -> Command {
        let mut words = self.prefix.iter().chain(&workload.command);
        let program = words.next().expect("a workload has a program");
        let mut command = Command::new(program);
        command.args(words).current_dir(dir);
        command
    }
}

/// The peers: heading, program, options.
#[rustfmt::skip] // A table: one way a line.
const PEERS: &[(&str, &str, &[&str])] = &[
    ("valgrind none", "valgrind",    &["--tool=none", "-q", "--trace-children=yes"]),
    ("cachegrind",    "valgrind",    &["--tool=cachegrind", "-q", "--trace-children=yes", "--cachegrind-out-file=/dev/null"]),
    ("callgrind",     "valgrind",    &["--tool=callgrind", "-q", "--trace-children=yes", "--callgrind-out-file=/dev/null"]),
    ("qemu-user",     "qemu-x86_64", &[]),
];

/// All ways, native first, and a note for each peer that is not installed.
pub fn all(lwp: &Path, with_peers: bool) -> (Vec<Way>, Vec<String>) {
    let lwp = lwp.as_os_str();
    let word = OsString::from;
    let mut ways = vec![
        Way::new("native", Vec::<OsString>::new()),
        Way::new("lwp run", [lwp.to_owned(), word("run"), word("--")]),
        Way::new(
            "lwp stat",
            [lwp.to_owned(), word("stat"), word("-o"), word("/dev/null"), word("--")],
        ),
    ];
    let mut notes = Vec::new();
    for (name, program, options) in PEERS.iter().filter(|_| with_peers) {
        let Some(file) = find(program) else {
            notes.push(format!("{name}: skipped, {program} is not installed"));
            continue;
        };
        let prefix = std::iter::once(file.into_os_string());
        let mut way = Way::new(name, prefix.chain(options.iter().map(|option| word(option))));
        // qemu-user leaves an exec'd program to the kernel.
        way.follows_children = *program == "valgrind";
        ways.push(way);
    }
    (ways, notes)
}

/// Finds `program` in `PATH`; a name with a slash is taken as it stands.
pub fn find(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|file| file.is_file());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

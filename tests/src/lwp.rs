//! How a command is put on the virtual CPU.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// One way to run a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Directly on the processor.
    Native,
    /// `lwp run`: translation without counting.
    Run,
    /// `lwp stat`: translation with exact counting.
    Stat,
    /// `lwp stat` with a cache, which learns what it does not have yet.
    Learn,
    /// `lwp stat` again with that cache: little or nothing is left to translate.
    Warm,
    /// `lwp record`: counting with calling contexts.
    Record,
    /// `lwp run` with generated code guarded as for users without privileges.
    UserMode,
    /// `lwp run` with generated code guarded by the protection of its pages, as under a filter.
    Protected,
    /// `lwp run` with generated code that compares itself.
    Compared,
    /// `lwp run` with code that runs one instruction at a time where no translation can be near it.
    Stepped,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 10] = [
        Self::Native,
        Self::Run,
        Self::Stat,
        Self::Learn,
        Self::Warm,
        Self::Record,
        Self::UserMode,
        Self::Protected,
        Self::Compared,
        Self::Stepped,
    ];

    /// Name in messages and in `LWP_TEST_MODES`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Run => "run",
            Self::Stat => "stat",
            Self::Learn => "learn",
            Self::Warm => "warm",
            Self::Record => "record",
            Self::UserMode => "user-mode",
            Self::Protected => "protected",
            Self::Compared => "compared",
            Self::Stepped => "stepped",
        }
    }

    /// The full command line for running `argv` in this mode. Counts go to a file in `scratch`, so
    /// that the program's own standard error stays comparable.
    pub fn command(self, argv: &[OsString], scratch: &Path) -> Vec<OsString> {
        let mut line: Vec<OsString> = match self {
            Self::Native => Vec::new(),
            Self::Run | Self::UserMode | Self::Protected | Self::Compared | Self::Stepped => {
                vec![lwp_binary().into(), "run".into(), "--no-cache".into()]
            }
            Self::Stat | Self::Learn | Self::Warm => {
                let counts = scratch.join("counts").into_os_string();
                let mut line = vec![lwp_binary().into(), "stat".into(), "-o".into(), counts];
                match self {
                    Self::Stat => line.push("--no-cache".into()),
                    _ => line.extend(["--cache-dir".into(), translations().into()]),
                }
                line
            }
            Self::Record => {
                let recording = scratch.join("recording").into_os_string();
                vec![
                    lwp_binary().into(),
                    "record".into(),
                    "-q".into(),
                    "--no-progress".into(),
                    "--cache-dir".into(),
                    translations().into(),
                    "-o".into(),
                    recording,
                ]
            }
        };
        if self != Self::Native {
            line.push("--".into());
        }
        if let Some(setting) = self.setting() {
            line.splice(..0, ["env".into(), setting.into()]);
        }
        line.extend(argv.iter().cloned());
        line
    }
}

impl Mode {
    /// The setting of the environment that says how it is done.
    fn setting(self) -> Option<&'static str> {
        match self {
            Self::UserMode => Some("LWP_GUARD=user"),
            Self::Protected => Some("LWP_GUARD=protect"),
            Self::Compared => Some("LWP_GUARD=0"),
            Self::Stepped => Some("LWP_FAR=0"),
            _ => None,
        }
    }
}

/// The modes in which to run the program `name`, native first: all those of `LWP_TEST_MODES`, or a
/// third of them, another third at each `LWP_TEST_TURN`.
pub fn modes(name: &str) -> Vec<Mode> {
    let mut groups = groups(name);
    let mut modes = vec![Mode::Native];
    match std::env::var("LWP_TEST_MODES") {
        Ok(wanted) => modes.extend(named(&groups.concat(), &wanted)),
        Err(_) => {
            // An installed program has so many contexts and names that it takes a minute.
            groups.retain(|group| !name.starts_with('/') || group[0] != Mode::Record);
            modes.extend(choice(&groups, name, turn()));
        }
    }
    modes
}

/// The ways to run the program `name` on the virtual CPU; each group has modes that build on each
/// other. A program that generates code is run in each way to notice that the code changes, and the
/// one without room near its code in both ways to execute it.
fn groups(name: &str) -> Vec<Vec<Mode>> {
    // A run that learns counts too, and begins with little that it knows of the program.
    let mut groups = vec![vec![Mode::Run], vec![Mode::Learn, Mode::Warm], vec![Mode::Record]];
    if name == "cpu/out_of_reach" {
        groups.push(vec![Mode::Stepped]);
    }
    if name.starts_with("code/") {
        let others = [Mode::Stat, Mode::UserMode, Mode::Protected, Mode::Compared];
        groups.extend(others.map(|mode| vec![mode]));
    }
    groups
}

/// The modes of `all` that are named, or all of them.
fn named(all: &[Mode], wanted: &str) -> Vec<Mode> {
    let words: Vec<&str> = wanted.split(',').collect();
    for word in &words {
        let is_known = *word == "all" || Mode::ALL.iter().any(|mode| mode.name() == *word);
        assert!(is_known, "LWP_TEST_MODES: unknown mode {word:?}");
    }
    let is_wanted = |mode: &Mode| words.contains(&"all") || words.contains(&mode.name());
    all.iter().copied().filter(is_wanted).collect()
}

/// A third of the groups. As many turns as there are groups reach all of them, and in each turn all
/// ways are taken by some program.
fn choice(groups: &[Vec<Mode>], name: &str, turn: usize) -> Vec<Mode> {
    let first = name.bytes().map(usize::from).sum::<usize>() + turn;
    let chosen = (0..groups.len().div_ceil(3)).map(|more| (first + more) % groups.len());
    chosen.flat_map(|index| groups[index].clone()).collect()
}

fn turn() -> usize {
    match std::env::var("LWP_TEST_TURN") {
        Ok(text) => text.parse().expect("LWP_TEST_TURN is a number"),
        Err(_) => 0,
    }
}

/// How often each mode is run.
pub fn repeat() -> u32 {
    match std::env::var("LWP_TEST_REPEAT") {
        Ok(text) => text.parse().expect("LWP_TEST_REPEAT is a number"),
        Err(_) => 1,
    }
}

/// The `lwp` under test: `LWP_BIN`, else the newest in this target directory, else a fresh build.
pub fn lwp_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("LWP_BIN") {
            let path = PathBuf::from(path);
            assert!(path.is_file(), "LWP_BIN: no file {}", path.display());
            return path;
        }
        newest().unwrap_or_else(|| {
            build();
            newest().expect("the build of lwp-cli leaves a binary named lwp")
        })
    })
}

/// The cache that all tests share, from one session to the next: each finds what others have left.
pub fn translations() -> PathBuf {
    target_directory().join("tmp/translations")
}

/// The target directory of the running test, which lies in `TARGET/PROFILE/deps`, or of a program in
/// `TARGET/PROFILE`. Cargo tags only the directories that it creates, so its tag does not help.
pub(crate) fn target_directory() -> PathBuf {
    let test = std::env::current_exe().expect("path of the running test");
    let dir = test.parent().expect("a directory");
    let is_below_profile = dir.ends_with("deps") || dir.ends_with("examples");
    let above = if is_below_profile { 2 } else { 1 };
    dir.ancestors().nth(above).expect("cargo's directories").to_owned()
}

fn newest() -> Option<PathBuf> {
    let target = target_directory();
    let candidates = ["release", "debug"].map(|profile| target.join(profile).join("lwp"));
    let built = candidates.into_iter().filter(|p| p.is_file());
    built.max_by_key(|p| p.metadata().and_then(|m| m.modified()).ok())
}

fn build() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--package", "lwp-cli"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("start cargo");
    assert!(status.success(), "building lwp-cli failed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_reach_every_mode_of_every_program() {
        for name in ["threads/create_join", "code/patched", "cpu/out_of_reach"] {
            let groups = groups(name);
            let mut reached: Vec<Mode> =
                (0..groups.len()).flat_map(|turn| choice(&groups, name, turn)).collect();
            reached.sort_by_key(|mode| mode.name());
            reached.dedup();
            assert_eq!(reached.len(), groups.concat().len(), "{name}: {reached:?}");
            assert!(choice(&groups, name, 0).len() < reached.len());
        }
    }

    #[test]
    fn modes_are_named() {
        let all = groups("code/patched").concat();
        assert_eq!(named(&all, "warm,native,stepped"), [Mode::Warm]);
        assert_eq!(named(&all, "all"), all);
    }
}

//! The recordings that a gate looks at, and where the baseline of each is.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::args::usage_error;
use crate::failure::Failure;
use crate::profiles;

/// The suffix of recordings' names.
const END: &str = "data";

/// A recording of one benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The benchmark's name; empty where no recording is named.
    pub name: String,
    /// The recording.
    pub path: PathBuf,
}

/// The recordings that a gate looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Recordings, by name.
    pub all: Vec<Recorded>,
    /// True if there may be several, so that their baselines lie in a directory.
    pub many: bool,
}

impl Found {
    /// The recording at `path` alone.
    fn one(name: String, path: &Path) -> Self {
        Self { all: vec![Recorded { name, path: path.to_owned() }], many: false }
    }

    /// The place of the baseline of one of these recordings.
    pub fn baseline_of(&self, baseline: &Path, one: &Recorded) -> PathBuf {
        baseline_of(baseline, &one.name, self.many)
    }

    /// Fails where a recording is its own baseline, or would be written over it.
    pub fn refuse_baseline(&self, baseline: &Path) -> Result<(), Failure> {
        let same = |one: &&Recorded| is_same(&one.path, &self.baseline_of(baseline, one));
        let Some(one) = self.all.iter().find(same) else { return Ok(()) };
        let cause = format!("{} is the recording and the baseline", one.path.display());
        let help = "name another file: -b FILE for the baseline, or -i FILE for the recording";
        Err(usage_error(cause, help))
    }
}

/// Returns whether two paths lead to one file, or will once there is one.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino())).ok();
    match (identity(one), identity(other)) {
        (None, None) => match (whole(one), whole(other)) {
            (Some(one), Some(other)) => one == other,
            _ => false,
        },
        (one, other) => one == other,
    }
}

/// The path of a file that does not exist, by that of its directory.
fn whole(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let directory = path.parent()?.canonicalize().ok();
    directory.map_or(Some(path.clone()), |directory| Some(directory.join(path.file_name()?)))
}

/// The recordings that are named: files, and all that lie in directories. A benchmark is called as
/// its file, a directory's by the way from there, both without `.data`.
pub fn find(named: &[PathBuf], default: &Path) -> Result<Found, Failure> {
    let named: Vec<&Path> = match named {
        [] if !default.is_dir() => return Ok(Found::one(String::new(), default)),
        [] => vec![default],
        [file] if !file.is_dir() => return Ok(Found::one(name_of(file), file)),
        some => some.iter().map(PathBuf::as_path).collect(),
    };
    let mut found = Vec::new();
    for path in named {
        if path.is_dir() {
            walk(path, path, &mut found)?;
        } else {
            found.push(Recorded { name: name_of(path), path: path.to_owned() });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let mut names = BTreeSet::new();
    if let Some(twice) = found.iter().find(|one| !names.insert(&one.name)) {
        let cause = format!("two recordings are called '{}'", twice.name);
        return Err(usage_error(cause, "put them into one directory, and name that"));
    }
    match found.is_empty() {
        true => Err(usage_error("there are no recordings", "they are files that end in .data")),
        false => Ok(Found { all: found, many: true }),
    }
}

/// The name of the benchmark whose recording a file is.
fn name_of(file: &Path) -> String {
    without_end(Path::new(file.file_name().unwrap_or(file.as_os_str())))
}

fn walk(root: &Path, dir: &Path, found: &mut Vec<Recorded>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(dir.display(), &error);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        // A link could lead in a circle.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(root, &path, found)?;
        } else if path.extension() == Some(OsStr::new(END)) {
            let name = without_end(path.strip_prefix(root).unwrap_or(&path));
            found.push(Recorded { name, path });
        }
    }
    Ok(())
}

fn without_end(path: &Path) -> String {
    let path = match path.extension() == Some(OsStr::new(END)) {
        true => path.with_extension(""),
        false => path.to_owned(),
    };
    path.display().to_string()
}

/// The baseline of a benchmark: the file itself, or the one of that name in the directory.
fn baseline_of(baseline: &Path, name: &str, many: bool) -> PathBuf {
    let directory =
        many || baseline.is_dir() || baseline.as_os_str().as_encoded_bytes().ends_with(b"/");
    match (directory, name) {
        (false, _) => baseline.to_owned(),
        (true, "") => baseline.join(format!("lwp.{END}")),
        (true, name) => baseline.join(format!("{name}.{END}")),
    }
}

/// Benchmarks that have a baseline in the directory and were not recorded.
pub fn missing(baseline: &Path, recorded: &[Recorded]) -> Vec<String> {
    let mut found = Vec::new();
    if walk(baseline, baseline, &mut found).is_err() {
        return Vec::new();
    }
    let known: BTreeSet<&str> = recorded.iter().map(|one| one.name.as_str()).collect();
    let mut names: Vec<String> = found.into_iter().map(|one| one.name).collect();
    names.retain(|name| !known.contains(name.as_str()));
    names.sort();
    names
}

/// Makes the recording at `from` the baseline at `to`: all of it, or nothing.
pub fn keep(from: &Path, to: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(to.display(), &error);
    if let Some(parent) = to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    profiles::replace(to, |beside| std::fs::copy(from, beside).map(drop)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_called_as_their_files() {
        let dir = std::env::temp_dir().join(format!("lwp-gate-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("sort")).unwrap();
        for file in ["parse.data", "sort/small.data", "notes.txt"] {
            std::fs::write(dir.join(file), "x").unwrap();
        }
        let names = |paths: &[PathBuf]| -> Vec<String> {
            let found = find(paths, Path::new("lwp.data")).expect("recordings");
            found.all.into_iter().map(|one| one.name).collect()
        };
        assert_eq!(names(&[]), [""]);
        assert_eq!(names(&[dir.join("parse.data")]), ["parse"]);
        assert_eq!(names(std::slice::from_ref(&dir)), ["parse", "sort/small"]);
        assert_eq!(names(&[dir.join("parse.data"), "x.data".into()]), ["parse", "x"]);
        assert!(find(&[dir.clone(), dir.join("parse.data")], Path::new("")).is_err());

        assert_eq!(baseline_of(Path::new("b.data"), "", false), Path::new("b.data"));
        assert_eq!(baseline_of(Path::new("b"), "sort/small", true), Path::new("b/sort/small.data"));
        assert_eq!(baseline_of(Path::new("b/"), "", false), Path::new("b/lwp.data"));
        assert_eq!(baseline_of(&dir, "parse", false), dir.join("parse.data"));
        assert_eq!(baseline_of(Path::new("b.data"), "parse", false), Path::new("b.data"));
        let recorded = [Recorded { name: "parse".into(), path: "x".into() }];
        assert_eq!(missing(&dir, &recorded), ["sort/small"]);

        keep(&dir.join("parse.data"), &dir.join("base/new/parse.data")).expect("a copy");
        assert!(dir.join("base/new/parse.data").exists());
        assert!(keep(&dir.join("none.data"), &dir.join("base/none.data")).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_recording_is_no_baseline_of_itself() {
        let dir = std::env::temp_dir().join(format!("lwp-gate-same-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("base")).unwrap();
        std::fs::write(dir.join("a.data"), "x").unwrap();
        std::fs::write(dir.join("b.data"), "x").unwrap();
        std::fs::hard_link(dir.join("a.data"), dir.join("base/linked.data")).unwrap();
        let same = |one: &str, other: &str| is_same(&dir.join(one), &dir.join(other));
        assert!(same("a.data", "base/../a.data") && same("a.data", "base/linked.data"));
        assert!(same("none.data", "base/../none.data"));
        assert!(!same("a.data", "b.data") && !same("a.data", "none.data"));
        assert!(!same("none.data", "base/none.data"));
        assert!(is_same(Path::new("none/x"), &std::path::absolute("none/x").unwrap()));
        let found = find(std::slice::from_ref(&dir), Path::new("")).expect("recordings");
        assert!(found.refuse_baseline(&dir).is_err());
        assert!(found.refuse_baseline(&dir.join("new")).is_ok());
        std::fs::remove_dir_all(dir).unwrap();
    }
}

//! The recordings that a gate looks at, and where the baseline of each is.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::args::usage_error;
use crate::failure::Failure;

/// The suffix of recordings' names.
const END: &str = "data";

/// A recording of one benchmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The benchmark's name; empty where there is only one recording.
    pub name: String,
    /// The recording.
    pub path: PathBuf,
}

/// The recordings that are named: files, and all that lie in directories. A benchmark is called as
/// its file, a directory's by the way from there, both without `.data`.
pub fn find(named: &[PathBuf], default: &Path) -> Result<Vec<Recorded>, Failure> {
    let named: Vec<&Path> = match named {
        [] => vec![default],
        some => some.iter().map(PathBuf::as_path).collect(),
    };
    if let [file] = named.as_slice()
        && !file.is_dir()
    {
        return Ok(vec![Recorded { name: String::new(), path: (*file).to_owned() }]);
    }
    let mut found = Vec::new();
    for path in named {
        if path.is_dir() {
            walk(path, path, &mut found)?;
        } else {
            let name = Path::new(path.file_name().unwrap_or(path.as_os_str()));
            found.push(Recorded { name: without_end(name), path: path.to_owned() });
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
        false => Ok(found),
    }
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
pub fn baseline_of(baseline: &Path, name: &str, many: bool) -> PathBuf {
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
    let same = |path: &Path| path.canonicalize().ok();
    if same(from).is_some() && same(from) == same(to) {
        let cause = format!("{} is the recording and the baseline", to.display());
        return Err(usage_error(cause, "record into another file: lwp record -o FILE"));
    }
    if let Some(parent) = to.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let mut beside = to.as_os_str().to_owned();
    beside.push(format!(".new-{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let copied = std::fs::copy(from, &beside).and_then(|_| std::fs::rename(&beside, to));
    copied.map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        failed(error)
    })
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
            found.into_iter().map(|one| one.name).collect()
        };
        assert_eq!(names(&[]), [""]);
        assert_eq!(names(&[dir.join("parse.data")]), [""]);
        assert_eq!(names(std::slice::from_ref(&dir)), ["parse", "sort/small"]);
        assert_eq!(names(&[dir.join("parse.data"), "x.data".into()]), ["parse", "x"]);
        assert!(find(&[dir.clone(), dir.join("parse.data")], Path::new("")).is_err());

        assert_eq!(baseline_of(Path::new("b.data"), "", false), Path::new("b.data"));
        assert_eq!(baseline_of(Path::new("b"), "sort/small", true), Path::new("b/sort/small.data"));
        assert_eq!(baseline_of(Path::new("b/"), "", false), Path::new("b/lwp.data"));
        let recorded = [Recorded { name: "parse".into(), path: "x".into() }];
        assert_eq!(missing(&dir, &recorded), ["sort/small"]);

        keep(&dir.join("parse.data"), &dir.join("base/new/parse.data")).expect("a copy");
        assert!(dir.join("base/new/parse.data").exists());
        assert!(keep(&dir.join("parse.data"), &dir.join("parse.data")).is_err());
        assert!(keep(&dir.join("none.data"), &dir.join("base/none.data")).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }
}

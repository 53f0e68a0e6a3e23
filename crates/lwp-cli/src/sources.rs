//! Source code: where debug information says it is, or where it is here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use lwp_profile::RecordedFile;
use lwp_report::annotate::Sources;
use lwp_symbols::{Origins, read_source};
use lwp_terminal::escape::printable;

/// The directory that the debug information of Rust's own libraries names; a commit follows.
const RUSTC: &str = "/rustc/";
/// The sources of those libraries in a toolchain.
const RUST_SRC: &str = "lib/rustlib/src/rust";

/// Source files, each read once.
#[derive(Debug)]
pub struct Files<'a> {
    maps: Vec<(String, PathBuf)>,
    kept: &'a [RecordedFile],
    lines: HashMap<String, Option<Vec<String>>>,
    /// The sources of the toolchain of each commit, where there is one.
    rust: HashMap<String, Option<PathBuf>>,
    /// The builds that the files are of.
    origins: Origins,
    /// Remarks on files that are of no build.
    doubts: BTreeMap<String, String>,
}

impl<'a> Files<'a> {
    /// Files of a recording, or of this machine. Names that begin with the one part of a map are
    /// looked for below the other.
    pub fn new(maps: Vec<(String, PathBuf)>, kept: &'a [RecordedFile]) -> Self {
        Self {
            maps,
            kept,
            lines: HashMap::new(),
            rust: HashMap::new(),
            origins: Origins::default(),
            doubts: BTreeMap::new(),
        }
    }

    /// Adds doubts about files of this machine that are not those of `origins`.
    pub fn doubting(mut self, origins: Origins) -> Self {
        self.origins = origins;
        self
    }

    /// Remarks on the files that have been read, as far as there are any.
    pub fn doubts(&self) -> impl Iterator<Item = &str> {
        self.doubts.values().map(String::as_str)
    }

    /// The bytes of `file`; `None` where it is not found.
    pub fn read(&mut self, file: &str) -> Option<Vec<u8>> {
        if let Some(kept) = self.kept.iter().find(|kept| kept.path == file) {
            return Some(kept.bytes.clone());
        }
        let mapped = self.maps.iter().filter_map(|(prefix, path)| {
            let rest = file.strip_prefix(prefix.as_str())?;
            Some(path.join(rest.trim_start_matches('/')))
        });
        let readable = |place: PathBuf| Some((read_source(&place).ok()?, place));
        let found = mapped.chain([PathBuf::from(file)]).find_map(readable);
        let (bytes, place) = found.or_else(|| readable(self.in_toolchain(file)?))?;
        if let Some(doubt) = self.origins.doubt(file, &place, &bytes) {
            self.doubts.insert(file.to_owned(), printable(&doubt));
        }
        Some(bytes)
    }

    /// Returns the path of a file of Rust's own libraries in the toolchain that it was a part of.
    fn in_toolchain(&mut self, file: &str) -> Option<PathBuf> {
        let (commit, rest) = file.strip_prefix(RUSTC)?.split_once('/')?;
        let find = || toolchain(commit, &toolchains());
        let root = self.rust.entry(commit.to_owned()).or_insert_with(find).as_ref()?;
        Some(root.join(RUST_SRC).join(rest))
    }

    /// Names requested files that are missing, with a remedy; `None` if all were found.
    pub fn missing(&self) -> Option<String> {
        let all = self.lines.iter().filter(|(file, lines)| lines.is_none() && !file.is_empty());
        let missing: BTreeSet<&str> = all.map(|(file, _)| file.as_str()).collect();
        let first = missing.first()?;
        let more = match missing.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let commit = missing.iter().find_map(|file| file.strip_prefix(RUSTC)?.split('/').next());
        let advice = match commit {
            Some(commit) => format!(
                "install Rust's sources with `rustup component add rust-src`, or name them with \
                 --source {RUSTC}{commit}=DIR"
            ),
            None => {
                let parent = Path::new(first).parent().unwrap_or(Path::new(first));
                format!("name where its directory is here with --source {}=DIR", parent.display())
            }
        };
        Some(printable(&format!("the source of {first}{more} was not found: {advice}")))
    }
}

impl Sources for Files<'_> {
    fn line(&mut self, file: &str, line: u32) -> Option<String> {
        if !self.lines.contains_key(file) {
            let lines = self
                .read(file)
                .map(|bytes| String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect());
            self.lines.insert(file.to_owned(), lines);
        }
        let lines = self.lines.get(file)?.as_ref()?;
        lines.get((line as usize).checked_sub(1)?).cloned()
    }

    fn doubt(&mut self, file: &str) -> Option<String> {
        self.doubts.get(file).cloned()
    }
}

/// The toolchains of this machine: that of the `rustc` in the path, and rustup's.
fn toolchains() -> Vec<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).output();
    let first = output.ok().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let mut all: Vec<PathBuf> =
        first.filter(|path| !path.is_empty()).map(PathBuf::from).into_iter().collect();
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".rustup"));
    let rustup = std::env::var_os("RUSTUP_HOME").map(PathBuf::from).or_else(home);
    let dirs = rustup.and_then(|home| std::fs::read_dir(home.join("toolchains")).ok());
    all.extend(dirs.into_iter().flatten().flatten().map(|dir| dir.path()));
    all
}

/// The one of `toolchains` that was built from `commit` and has its sources.
fn toolchain(commit: &str, toolchains: &[PathBuf]) -> Option<PathBuf> {
    let is_it = |root: &&PathBuf| {
        let version = Command::new(root.join("bin/rustc")).arg("-vV").output();
        version.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines().any(|line| line.strip_prefix("commit-hash: ") == Some(commit))
        })
    };
    toolchains.iter().filter(|root| root.join(RUST_SRC).is_dir()).find(is_it).cloned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn rust_s_own_sources_are_those_of_the_toolchain_with_that_commit() {
        let dir = std::env::temp_dir().join(format!("lwp-toolchains-{}", std::process::id()));
        for (name, commit) in [("old", "aaaa"), ("new", "bbbb"), ("bare", "cccc")] {
            let root = dir.join(name);
            std::fs::create_dir_all(root.join("bin")).unwrap();
            let script = format!("#!/bin/sh\necho release: 1\necho commit-hash: {commit}\n");
            std::fs::write(root.join("bin/rustc"), script).unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(root.join("bin/rustc"), mode).unwrap();
            if name != "bare" {
                std::fs::create_dir_all(root.join(RUST_SRC).join("library")).unwrap();
                std::fs::write(root.join(RUST_SRC).join("library/a.rs"), name).unwrap();
            }
        }
        let all: Vec<PathBuf> = ["old", "new", "bare"].map(|name| dir.join(name)).into();
        let found = |commit: &str| toolchain(commit, &all);
        assert_eq!(found("bbbb"), Some(dir.join("new")));
        assert_eq!([found("cccc"), found("dddd")], [None, None]);
        let mut files = Files::new(Vec::new(), &[]);
        files.rust.insert("aaaa".into(), found("aaaa"));
        files.rust.insert("dddd".into(), None);
        assert_eq!(files.read("/rustc/aaaa/library/a.rs"), Some(b"old".to_vec()));
        assert_eq!(files.read("/rustc/dddd/library/a.rs"), None);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let mut files = Files::new(Vec::new(), &[]);
        assert_eq!(files.missing(), None);
        assert!(files.line("/gone/src/a.c", 1).is_none());
        let says = files.missing().unwrap();
        assert!(says.contains("/gone/src/a.c was not found"), "{says}");
        assert!(says.contains("--source /gone/src=DIR"), "{says}");
        assert!(files.line("/rustc/ffff/library/b.rs", 1).is_none());
        let says = files.missing().unwrap();
        assert!(says.contains(" and 1 more was not found"), "{says}");
        assert!(says.contains("rust-src") && says.contains("--source /rustc/ffff=DIR"), "{says}");
    }

    #[test]
    fn prefixes_lead_elsewhere() {
        let here = env!("CARGO_MANIFEST_DIR");
        let mut files = Files::new(vec![("/build".into(), here.into())], &[]);
        assert!(files.line("/build/src/sources.rs", 1).is_some_and(|line| line.contains("Source")));
        let kept = [RecordedFile { path: "/build/src/sources.rs".into(), bytes: b"kept".to_vec() }];
        let mut files = Files::new(vec![("/build".into(), here.into())], &kept);
        assert_eq!(files.line("/build/src/sources.rs", 1), Some("kept".into()));
        assert_eq!(files.missing(), None);
    }
}

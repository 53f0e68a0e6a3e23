//! The origin of a recording: tags, the state of the source tree, the CI run.
//!
//! Promise: R44

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest that git may take to say whether a tree has changes.
const PATIENCE: Duration = Duration::from_secs(2);

/// A fact, and the variables of CI systems that have it: GitHub Actions, GitLab CI.
type Row = (&'static str, &'static [&'static str]);

#[rustfmt::skip] // A table: one fact a line.
const FACTS: &[Row] = &[
    ("git.commit",      &["GITHUB_SHA",      "CI_COMMIT_SHA"]),
    ("git.branch",      &["GITHUB_HEAD_REF", "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_COMMIT_BRANCH"]),
    ("ci.run",          &["GITHUB_RUN_ID",   "CI_PIPELINE_ID"]),
    ("ci.job",          &["GITHUB_JOB",      "CI_JOB_NAME"]),
    ("ci.repository",   &["GITHUB_REPOSITORY", "CI_PROJECT_PATH"]),
    ("ci.pull-request", &["CI_MERGE_REQUEST_IID"]),
];

/// All that is known, by key; nothing that is empty.
pub fn facts(
    directory: &Path,
    variable: &dyn Fn(&str) -> Option<String>,
) -> BTreeMap<String, String> {
    let mut facts = of_environment(variable);
    if let Some(tree) = Tree::around(directory) {
        let mut add = |key: &str, value: Option<String>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                facts.insert(key.to_owned(), value);
            }
        };
        // The tree that is there, before the one that a variable tells of.
        let commit = tree.commit();
        add("git.parent", commit.as_ref().and_then(|commit| tree.parent(commit)));
        add("git.commit", commit);
        add("git.branch", tree.branch());
        add("git.dirty", tree.is_dirty().map(|dirty| dirty.to_string()));
    }
    facts
}

fn of_environment(variable: &dyn Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    for (key, names) in FACTS {
        let value = names.iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
        if let Some(value) = value {
            facts.insert((*key).to_owned(), value);
        }
    }
    // refs/pull/7/merge, refs/heads/main
    let reference = variable("GITHUB_REF").unwrap_or_default();
    if let Some(number) = reference.strip_prefix("refs/pull/").and_then(|it| it.split('/').next()) {
        facts.insert("ci.pull-request".into(), number.to_owned());
    }
    if let Some(branch) = reference.strip_prefix("refs/heads/") {
        facts.entry("git.branch".into()).or_insert_with(|| branch.to_owned());
    }
    facts
}

/// A git working tree.
#[derive(Debug)]
struct Tree {
    root: PathBuf,
    /// Its own directory of git, with HEAD.
    own: PathBuf,
    /// The directory of all its working trees, with branches.
    common: PathBuf,
}

impl Tree {
    /// The one that `directory` is in.
    fn around(directory: &Path) -> Option<Self> {
        let root = directory.ancestors().find(|path| path.join(".git").exists())?.to_owned();
        let git = root.join(".git");
        let own = match git.is_dir() {
            true => git,
            // A file leads to the directory of another working tree, or of a submodule.
            false => {
                let text = small(&git)?;
                root.join(text.strip_prefix("gitdir:")?.trim())
            }
        };
        let common = small(&own.join("commondir"));
        let common = common.map_or_else(|| own.clone(), |path| own.join(path.trim()));
        Some(Self { root, own, common })
    }

    /// The branch that is checked out.
    fn branch(&self) -> Option<String> {
        let head = small(&self.own.join("HEAD"))?;
        Some(head.trim().strip_prefix("ref: refs/heads/")?.to_owned())
    }

    /// The commit that is checked out.
    fn commit(&self) -> Option<String> {
        let head = small(&self.own.join("HEAD"))?;
        let Some(name) = head.trim().strip_prefix("ref: ") else { return hash(&head) };
        // A name comes from a file: it must not lead elsewhere.
        if name.split('/').any(|part| part == "..") || name.starts_with('/') {
            return None;
        }
        let loose = [&self.own, &self.common].into_iter().find_map(|dir| small(&dir.join(name)));
        if let Some(found) = loose.as_deref().and_then(hash) {
            return Some(found);
        }
        let packed = std::fs::read_to_string(self.common.join("packed-refs")).ok()?;
        let line = packed.lines().find(|line| line.split(' ').nth(1) == Some(name))?;
        hash(line.split(' ').next()?)
    }

    /// The first parent of a commit. A shallow tree knows its name, even without the parent itself.
    fn parent(&self, commit: &str) -> Option<String> {
        let answer = self.ask(&["cat-file", "commit", commit], 4096)?;
        let text = String::from_utf8_lossy(&answer.bytes);
        let mut head = text.lines().take_while(|line| !line.is_empty());
        hash(head.find_map(|line| line.strip_prefix("parent "))?)
    }

    /// Returns whether tracked files differ from the commit: git alone can tell. `None` where it is
    /// missing or takes too long.
    fn is_dirty(&self) -> Option<bool> {
        let words = ["status", "--porcelain", "--untracked-files=no", "--ignore-submodules"];
        // The first byte tells; what follows may be more than a pipe holds.
        let answer = self.ask(&words, 1)?;
        if answer.bytes.is_empty() { answer.succeeded.then_some(false) } else { Some(true) }
    }

    /// The first bytes of git's answer. `None` where git is missing or takes too long.
    fn ask(&self, words: &[&str], most: u64) -> Option<Answer> {
        let mut git = Command::new("git");
        git.arg("-C").arg(&self.root).args(["--no-optional-locks", "-c", "core.fsmonitor=false"]);
        git.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = git.spawn().ok()?;
        let out = child.stdout.take()?;
        let read = move || {
            let mut bytes = Vec::new();
            out.take(most).read_to_end(&mut bytes).map(|_| bytes)
        };
        let reader = std::thread::Builder::new().spawn(read);
        let started = Instant::now();
        while reader.as_ref().is_ok_and(|reader| !reader.is_finished())
            && started.elapsed() < PATIENCE
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        let reader = reader.ok().filter(std::thread::JoinHandle::is_finished);
        let bytes = reader.and_then(|reader| reader.join().ok()?.ok());
        // What has more to say than anybody reads would wait for ever.
        if bytes.as_ref().is_none_or(|bytes| bytes.len() as u64 == most) {
            let _ = child.kill();
        }
        let status = child.wait().ok()?;
        Some(Answer { bytes: bytes?, succeeded: status.success() })
    }
}

/// An answer of git's.
struct Answer {
    bytes: Vec<u8>,
    succeeded: bool,
}

/// The text of a small file.
fn small(path: &Path) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}

/// A commit's name, if `text` is one.
fn hash(text: &str) -> Option<String> {
    let text = text.trim();
    let hex = text.len() >= 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(name: &str) -> PathBuf {
        let dir =
            std::env::temp_dir().join(format!("lwp-provenance-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("directory");
        dir
    }

    fn git(dir: &Path, words: &[&str]) -> Option<String> {
        let mut git = Command::new("git");
        git.arg("-C").arg(dir).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(words);
        let output = git.output().ok()?;
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    #[test]
    fn trees_are_read_as_git_reads_them() {
        let dir = fresh("tree");
        if git(&dir, &["init", "-q", "-b", "topic/x"]).is_none() {
            eprintln!("skipped: no git");
            return;
        }
        std::fs::write(dir.join("a"), "1").expect("file");
        git(&dir, &["add", "a"]);
        git(&dir, &["commit", "-q", "-m", "one"]);
        std::fs::create_dir(dir.join("deep")).expect("directory");
        let head = git(&dir, &["rev-parse", "HEAD"]);
        let told = |dir: &Path| {
            let facts = facts(dir, &|_| None);
            ["git.commit", "git.branch", "git.dirty"].map(|key| facts.get(key).cloned())
        };
        let [branch, clean, dirty] = ["topic/x", "false", "true"].map(|it| Some(it.to_owned()));
        assert_eq!(told(&dir.join("deep")), [head.clone(), branch.clone(), clean.clone()]);
        git(&dir, &["pack-refs", "--all"]);
        std::fs::write(dir.join("a"), "2").expect("file");
        assert_eq!(told(&dir), [head.clone(), branch, dirty]);
        // Another working tree of it, at no branch.
        let other = fresh("other");
        let path = other.join("tree");
        git(&dir, &["worktree", "add", "-q", "--detach", path.to_str().expect("text")]);
        assert_eq!(told(&path), [head, None, clean]);
        for dir in [dir, other] {
            let _ = std::fs::remove_dir_all(dir);
        }
    }

    #[test]
    fn a_commit_s_parent_is_known_in_a_shallow_tree_too() {
        let dir = fresh("parent");
        if git(&dir, &["init", "-q", "-b", "main"]).is_none() {
            eprintln!("skipped: no git");
            return;
        }
        let parent = |dir: &Path| facts(dir, &|_| None).get("git.parent").cloned();
        // A message that looks like what is looked for.
        let message = format!("one\n\nparent {}", "0".repeat(40));
        git(&dir, &["commit", "-q", "--allow-empty", "-m", &message]);
        assert_eq!(parent(&dir), None);
        let first = git(&dir, &["rev-parse", "HEAD"]);
        git(&dir, &["checkout", "-q", "-b", "topic"]);
        git(&dir, &["commit", "-q", "--allow-empty", "-m", "two"]);
        assert_eq!(parent(&dir), first);
        git(&dir, &["checkout", "-q", "main"]);
        git(&dir, &["commit", "-q", "--allow-empty", "-m", "three"]);
        let third = git(&dir, &["rev-parse", "HEAD"]);
        git(&dir, &["merge", "-q", "--no-ff", "-m", "merge", "topic"]);
        assert_eq!(parent(&dir), third);
        let shallow = fresh("shallow");
        let (from, to) = (format!("file://{}", dir.display()), shallow.join("tree"));
        git(&shallow, &["clone", "-q", "--depth", "1", &from, to.to_str().expect("text")]);
        assert_eq!(parent(&to), third);
        for dir in [dir, shallow] {
            let _ = std::fs::remove_dir_all(dir);
        }
    }

    #[test]
    fn runs_of_ci_are_known_by_their_variables() {
        let dir = fresh("none");
        let of = |pairs: &'static [(&str, &str)]| {
            let value = move |name: &str| {
                let pair = pairs.iter().find(|(key, _)| *key == name);
                pair.map(|(_, value)| (*value).to_owned())
            };
            let mut text: Vec<String> = Vec::new();
            text.extend(facts(&dir, &value).iter().map(|(key, value)| format!("{key}={value}")));
            text.join(" ")
        };
        let github = &[
            ("GITHUB_SHA", "abc"),
            ("GITHUB_REF", "refs/pull/7/merge"),
            ("GITHUB_HEAD_REF", "topic"),
            ("GITHUB_RUN_ID", "99"),
        ];
        assert_eq!(of(github), "ci.pull-request=7 ci.run=99 git.branch=topic git.commit=abc");
        let pushed = &[("GITHUB_REF", "refs/heads/main"), ("GITHUB_HEAD_REF", "")];
        assert_eq!(of(pushed), "git.branch=main");
        let gitlab = &[
            ("CI_COMMIT_SHA", "def"),
            ("CI_MERGE_REQUEST_IID", "8"),
            ("CI_PIPELINE_ID", "5"),
            ("CI_COMMIT_BRANCH", "main"),
        ];
        assert_eq!(of(gitlab), "ci.pull-request=8 ci.run=5 git.branch=main git.commit=def");
        let _ = std::fs::remove_dir_all(&dir);
    }
}

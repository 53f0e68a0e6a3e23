//! Facts about a run beside its counts.

use std::collections::BTreeMap;

/// The tool that made a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// `lwp record`.
    #[default]
    Lwp,
    /// A pprof protocol buffer.
    Pprof,
    /// perf's recording.
    Perf,
    /// OpenTelemetry's profiles.
    Otlp,
    /// Folded stacks.
    Folded,
    /// Callgrind's output.
    Callgrind,
    /// A benchmark harness's measurements.
    Bench,
}

impl Source {
    /// Every source and its word.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Lwp, "lwp"),
        (Self::Pprof, "pprof"),
        (Self::Perf, "perf"),
        (Self::Otlp, "otlp"),
        (Self::Folded, "folded"),
        (Self::Callgrind, "callgrind"),
        (Self::Bench, "bench"),
    ];

    /// Its word in text and tables.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(source, _)| *source == self).map_or("lwp", |(_, word)| word)
    }

    /// The source that a word stands for.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(source, _)| *source)
    }
}

/// A run. Texts are empty where they are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// The project whose code ran.
    pub project: String,
    /// The benchmark: runs of one benchmark are compared with each other.
    pub benchmark: String,
    /// The commit of the project.
    pub commit: String,
    /// The branch of the commit, empty if it is not known.
    pub branch: String,
    /// The commit before, where it is known.
    pub parent: String,
    /// The pull request, 0 where there is none.
    pub pull_request: u64,
    /// The CI system's page or number of the run.
    pub run_url: String,
    /// Start of the run, in seconds since 1970.
    pub started: i64,
    /// The machine.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor that the program saw.
    pub cpu: String,
    /// The command line of the program.
    pub command: String,
    /// The tool that recorded.
    pub source: Source,
    /// Its version.
    pub tool: String,
    /// True if the run had a fixed environment: `lwp record --deterministic`.
    pub deterministic: bool,
    /// True if the recorder came to its end.
    pub complete: bool,
    /// Everything else, by key.
    pub labels: BTreeMap<String, String>,
}

impl Run {
    /// Returns a recording's facts about its run.
    pub fn of_info(info: &BTreeMap<String, String>) -> Self {
        let get = |key: &str| info.get(key).cloned().unwrap_or_default();
        let command = get("command");
        let mut labels: BTreeMap<String, String> = BTreeMap::new();
        for (key, value) in info {
            let label = match key.strip_prefix("tag.") {
                Some("project" | "benchmark") => continue,
                Some(tag) => tag,
                None if matches!(key.as_str(), "git.dirty" | "ci.job" | "container") => key,
                None => continue,
            };
            if !value.is_empty() {
                labels.insert(label.to_owned(), value.clone());
            }
        }
        let first = |keys: &[&str], otherwise: String| {
            let found = keys.iter().map(|key| get(key)).find(|value| !value.is_empty());
            found.unwrap_or(otherwise)
        };
        Self {
            project: first(&["tag.project", "ci.repository"], "default".to_owned()),
            benchmark: first(
                &["tag.benchmark"],
                program_name(&command, info.get("arguments")).to_owned(),
            ),
            commit: get("git.commit"),
            branch: get("git.branch"),
            pull_request: get("ci.pull-request").parse().unwrap_or(0),
            run_url: get("ci.run"),
            started: get("started").parse().unwrap_or(0),
            host: get("host"),
            kernel: get("kernel"),
            cpu: get("cpu"),
            source: Source::Lwp,
            tool: get("lwp"),
            deterministic: get("deterministic") == "true",
            complete: true,
            parent: get("git.parent"),
            command,
            labels,
        }
    }

    /// Every text and its key, in the order in which they are written.
    pub(crate) fn texts(&self) -> [(&'static str, &String); 11] {
        [
            ("project", &self.project),
            ("benchmark", &self.benchmark),
            ("commit", &self.commit),
            ("branch", &self.branch),
            ("parent", &self.parent),
            ("run_url", &self.run_url),
            ("host", &self.host),
            ("kernel", &self.kernel),
            ("cpu", &self.cpu),
            ("command", &self.command),
            ("tool", &self.tool),
        ]
    }

    /// Changes every text.
    pub(crate) fn change(&mut self, to: impl Fn(&str) -> String) {
        for key in self.texts().map(|(key, _)| key) {
            if let Some(text) = self.text_mut(key) {
                *text = to(text);
            }
        }
        let label = |(key, value): (&String, &String)| (to(key), to(value));
        self.labels = self.labels.iter().map(label).collect();
    }

    /// The text with this key, to be set.
    pub(crate) fn text_mut(&mut self, key: &str) -> Option<&mut String> {
        Some(match key {
            "project" => &mut self.project,
            "benchmark" => &mut self.benchmark,
            "commit" => &mut self.commit,
            "branch" => &mut self.branch,
            "parent" => &mut self.parent,
            "run_url" => &mut self.run_url,
            "host" => &mut self.host,
            "kernel" => &mut self.kernel,
            "cpu" => &mut self.cpu,
            "command" => &mut self.command,
            "tool" => &mut self.tool,
            _ => return None,
        })
    }
}

/// The last part of a command's program, whose path may have blanks; older recordings don't have
/// the arguments by themselves.
fn program_name<'a>(command: &'a str, arguments: Option<&String>) -> &'a str {
    let program = arguments.and_then(|arguments| command.strip_suffix(arguments.as_str()));
    let first = || command.split(' ').next().unwrap_or("");
    let program = program.map(str::trim_end).filter(|it| !it.is_empty()).unwrap_or_else(first);
    program.trim_matches('\'').rsplit('/').next().unwrap_or(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_filed_by_tags_before_ci_variables() {
        let info = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
        };
        let plain = Run::of_info(&info(&[("command", "./dir/parse -x 1"), ("started", "12")]));
        assert_eq!(
            [plain.project.as_str(), &plain.benchmark, &plain.command],
            ["default", "parse", "./dir/parse -x 1"]
        );
        assert_eq!(plain.started, 12);
        for arguments in ["", "a b"] {
            let command = format!("./my dir/my prog {arguments}").trim_end().to_owned();
            let run = Run::of_info(&info(&[("command", &command), ("arguments", arguments)]));
            assert_eq!((run.benchmark.as_str(), run.command), ("my prog", command));
        }
        let tagged = Run::of_info(&info(&[
            ("ci.repository", "a/b"),
            ("ci.pull-request", "7"),
            ("tag.benchmark", "big"),
            ("tag.machine", "ci-3"),
            ("git.dirty", "true"),
            ("git.parent", "0123abcd"),
            ("directory", "/x"),
        ]));
        assert_eq!([tagged.project.as_str(), &tagged.benchmark], ["a/b", "big"]);
        assert_eq!((tagged.pull_request, tagged.parent.as_str()), (7, "0123abcd"));
        let labels: Vec<_> = tagged.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(labels, ["git.dirty=true", "machine=ci-3"]);
    }
}

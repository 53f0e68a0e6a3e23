//! The test programs that cargo has built, and the tests in them.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace;

/// A test program.
#[derive(Debug, PartialEq, Eq)]
pub struct Binary {
    /// The package whose tests these are.
    pub package: String,
    /// The target's name, as cargo has it.
    target: String,
    /// The kind of target: lib, bin or test.
    kind: String,
    program: PathBuf,
    manifest: PathBuf,
}

/// A test.
#[derive(Debug)]
pub struct Test<'a> {
    /// The program that has it.
    pub binary: &'a Binary,
    name: String,
}

/// Builds everything that tests run or load, and returns the test programs. Clippy compiles this
/// project's own packages.
pub fn built(mut cargo: Command) -> Result<Vec<Binary>> {
    cargo.args(workspace::BUILD).arg("--message-format=json-render-diagnostics");
    workspace::lint(&mut cargo);
    let messages = String::from_utf8(workspace::output(cargo)?)?;
    let binaries: Vec<Binary> = messages.lines().filter_map(binary).collect();
    if binaries.is_empty() {
        bail!("cargo names no test program");
    }
    Ok(binaries)
}

/// The test program of a message of cargo's, if it is about one.
fn binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let is_test = message["profile"]["test"] == true && !matches!(kind, "bench" | "example");
    let program = message["executable"].as_str().filter(|_| is_test)?.into();
    let manifest = PathBuf::from(message["manifest_path"].as_str()?);
    Some(Binary {
        package: package_of(message["package_id"].as_str()?),
        target: message["target"]["name"].as_str()?.to_owned(),
        kind: kind.to_owned(),
        program,
        manifest,
    })
}

/// The name in a package id, as `path+file:///src/crates/pctx#lwp-pctx-core@0.1.0`; only the
/// version stands there if the folder has the package's name.
fn package_of(id: &str) -> String {
    let (place, rest) = id.rsplit_once('#').unwrap_or(("", id));
    match rest.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => place.rsplit('/').next().unwrap_or(place).to_owned(),
    }
}

impl Binary {
    /// Returns all its tests.
    pub fn tests(&self) -> Result<Vec<Test<'_>>> {
        let mut list = Command::new(&self.program);
        list.args(["--list", "--format", "terse"]).current_dir(self.folder());
        list.env("LD_LIBRARY_PATH", libraries(&self.program)?).stdin(Stdio::null());
        let text = String::from_utf8(workspace::output(list)?)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(|name| Test { binary: self, name: name.to_owned() }).collect())
    }

    fn folder(&self) -> &Path {
        self.manifest.parent().unwrap_or(Path::new("/"))
    }
}

/// Where the loader finds libraries of ours, as cargo sets it.
fn libraries(program: &Path) -> Result<OsString> {
    let deps = program.parent().context("a program without a folder")?;
    let others = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut places = vec![deps.to_owned(), deps.parent().unwrap_or(deps).to_owned()];
    places.extend(env::split_paths(&others).filter(|place| !place.as_os_str().is_empty()));
    Ok(env::join_paths(places)?)
}

impl Test<'_> {
    /// Its name among all tests: package, target and path.
    pub fn full_name(&self) -> String {
        let Binary { package, target, kind, .. } = self.binary;
        match kind.as_str() {
            "test" => format!("{package}::{target}::{}", self.name),
            "bin" => format!("{package}::bin::{target}::{}", self.name),
            _ => format!("{package}::{}", self.name),
        }
    }

    /// The command that runs it alone.
    pub fn alone(&self) -> String {
        let Binary { package, target, kind, manifest, .. } = self.binary;
        let which = match kind.as_str() {
            "test" => format!("--test {target}"),
            "bin" => format!("--bin {target}"),
            _ => "--lib".to_owned(),
        };
        let fleet = workspace::root().join("fleet");
        let place = if manifest.starts_with(fleet) { "cd fleet && " } else { "" };
        format!("{place}cargo test -p {package} {which} -- --exact {}", self.name)
    }

    /// The process that runs it, with what cargo gives tests.
    pub fn command(&self, target: &Path) -> Command {
        let Binary { package, program, manifest, .. } = self.binary;
        let mut command = Command::new(program);
        command.args(["--exact", &self.name, "--nocapture", "--test-threads=1"]);
        command.current_dir(self.binary.folder()).stdin(Stdio::null());
        command
            .env("CARGO_MANIFEST_DIR", self.binary.folder())
            .env("CARGO_MANIFEST_PATH", manifest);
        command.env("CARGO_PKG_NAME", package).env("CARGO_TARGET_DIR", target);
        command.env("CARGO", env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        if let Ok(libraries) = libraries(program) {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_by_their_ids() {
        assert_eq!(package_of("path+file:///w/crates/lwp-cli#0.1.0"), "lwp-cli");
        assert_eq!(package_of("path+file:///w/crates/pctx#lwp-pctx-core@0.1.0"), "lwp-pctx-core");
    }

    #[test]
    fn only_test_programs_are_taken() {
        let message = |test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/tests#lwp-tests@0.1.0",
                "manifest_path":"/w/tests/Cargo.toml","target":{{"name":"it","kind":["test"]}},
                "profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let it = binary(&message(true, "\"/t/it\"")).expect("a test program");
        assert_eq!((&*it.package, &*it.target, &*it.kind), ("lwp-tests", "it", "test"));
        let test = Test { binary: &it, name: "stat::counts".into() };
        assert_eq!(test.full_name(), "lwp-tests::it::stat::counts");
        assert_eq!(test.alone(), "cargo test -p lwp-tests --test it -- --exact stat::counts");
        assert_eq!(binary(&message(false, "\"/t/it\"")), None);
        assert_eq!(binary(&message(true, "null")), None);
        assert_eq!(binary("Compiling lwp"), None);
    }
}

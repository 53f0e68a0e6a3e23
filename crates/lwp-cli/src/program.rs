//! Finding the program in `PATH`, as a shell does.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lwp_vcpu::Target;
use rustix::fs::{Access, access};

use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, plain};

/// Where the C library looks when `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The launch of `command`, whose first word is the program.
pub fn launch(command: &[OsString]) -> Result<Target, Failure> {
    let Some(name) = command.first() else {
        return Err(Failure::new(NOT_FOUND, "no program given"));
    };
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let program = search(name, &path)?;
    Ok(Target::Launch { program, argv: command.to_vec() })
}

/// Finds `name`: as it stands if it contains a slash, in the directories of `path` otherwise.
///
/// A file that exists but may not be executed is remembered, and blamed only if no later directory
/// has a better one.
fn search(name: &OsStr, path: &OsStr) -> Result<PathBuf, Failure> {
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match executable(&file) {
            Ok(()) => Ok(file),
            Err(error) => Err(refusal(name, &error)),
        };
    }
    let mut denied = None;
    for dir in std::env::split_paths(path) {
        let dir = if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir };
        let file = dir.join(name);
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(error) if missing(&error) => {}
            Err(_) if file.is_dir() => {}
            Err(error) => denied = denied.or(Some((file, error))),
        }
    }
    match denied {
        Some((file, error)) => Err(refusal(file.as_os_str(), &error)),
        None => Err(not_found(name)),
    }
}

/// Succeeds if `file` is a regular file that this process may execute.
fn executable(file: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(file)?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(access(file, Access::EXEC_OK)?)
}

fn missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn refusal(name: &OsStr, error: &io::Error) -> Failure {
    if missing(error) {
        return not_found(name);
    }
    Failure::new(NOT_EXECUTABLE, format!("{}: {}", name.display(), plain(error)))
}

fn not_found(name: &OsStr) -> Failure {
    Failure::new(NOT_FOUND, format!("{}: not found", name.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A directory holding `good` (executable), `plain` (not) and `dir`.
    fn fixture(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("lwp-path-{}-{name}", std::process::id()));
        std::fs::create_dir_all(dir.join("dir")).unwrap();
        for (file, mode) in [("good", 0o755), ("plain", 0o644)] {
            std::fs::write(dir.join(file), "#!/bin/sh\n").unwrap();
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(dir.join(file), mode).unwrap();
        }
        dir
    }

    #[test]
    fn path_is_searched_in_order() {
        let dir = fixture("order");
        let path = std::env::join_paths(["/nonexistent".into(), dir.clone()]).unwrap();
        assert_eq!(search("good".as_ref(), &path), Ok(dir.join("good")));
        let cause = format!("{}: Permission denied", dir.join("plain").display());
        let denied = Failure::new(NOT_EXECUTABLE, cause);
        assert_eq!(search("plain".as_ref(), &path), Err(denied));
        let none = Failure::new(NOT_FOUND, "none: not found");
        assert_eq!(search("none".as_ref(), &path), Err(none));
        let none = Failure::new(NOT_FOUND, "dir: not found");
        assert_eq!(search("dir".as_ref(), &path), Err(none));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_slash_avoids_the_search() {
        let dir = fixture("slash");
        let good = dir.join("good");
        assert_eq!(search(good.as_os_str(), "".as_ref()), Ok(good.clone()));
        let inner = dir.join("dir");
        let refused = search(inner.as_os_str(), "".as_ref());
        let cause = format!("{}: is a directory", inner.display());
        assert_eq!(refused, Err(Failure::new(NOT_EXECUTABLE, cause)));
        let gone = good.join("x");
        let cause = format!("{}: not found", gone.display());
        assert_eq!(search(gone.as_os_str(), "".as_ref()), Err(Failure::new(NOT_FOUND, cause)));
        std::fs::remove_dir_all(dir).unwrap();
    }
}

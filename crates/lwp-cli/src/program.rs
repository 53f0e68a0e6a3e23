//! Finding the program in `PATH`, as a shell does.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lwp_vcpu::Target;
use rustix::fs::{Access, access};

use crate::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, plain};

/// The C library's search path if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The launch of `command`, whose first word is the program.
pub fn launch(command: &[OsString]) -> Result<Target, Failure> {
    let Some(name) = command.first() else {
        return Err(Failure::new(NOT_FOUND, "no program given"));
    };
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let program = search(name, &path)?;
    if !is_bare_script(&program) {
        return Ok(Target::Launch { program, argv: command.to_vec() });
    }
    let words = [SHELL.into(), program.into_os_string()].into_iter();
    let argv = words.chain(command[1..].iter().cloned()).collect();
    Ok(Target::Launch { program: SHELL.into(), argv })
}

/// The shell that shells and execvp(3) start for a script whose first line names none.
const SHELL: &str = "/bin/sh";

/// Returns whether a file is a script without `#!`: the kernel does not know what it is, and its
/// first line is text.
fn is_bare_script(file: &Path) -> bool {
    use std::io::Read;

    let mut start = [0; 256];
    let read = std::fs::File::open(file).and_then(|mut file| file.read(&mut start));
    let Ok(length) = read else { return false };
    let start = &start[..length];
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    !start.starts_with(b"#!") && !start.starts_with(b"\x7fELF") && !line.contains(&0)
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
    let failure = Failure::new(NOT_FOUND, format!("{}: not found", name.display()));
    match name.as_bytes().contains(&b'/') {
        true => failure,
        false => failure.with_help("no directory of PATH has it; a program here is ./NAME"),
    }
}

/// The failure to start a file that the system did not find, for want of the file itself or of its
/// interpreter.
pub fn not_started(program: &str) -> Failure {
    let file = std::fs::read(program).unwrap_or_default();
    let cause = match interpreter(&file).or_else(|| script_interpreter(&file)) {
        Some(named) => format!("{program}: its interpreter, {named}, was not found"),
        None => format!("{program}: not found"),
    };
    Failure::new(NOT_FOUND, cause)
}

/// The program that the first line of a script names.
fn script_interpreter(file: &[u8]) -> Option<String> {
    let line = file.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let name = line.split(u8::is_ascii_whitespace).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The dynamic linker that an ELF file names.
pub fn interpreter(file: &[u8]) -> Option<String> {
    const PT_INTERP: u32 = 3;
    let u64_at = |at: usize| {
        let bytes = file.get(at..at.checked_add(8)?)?;
        usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, count) = (u64_at(32)?, u64_at(56)? & 0xffff);
    let header = (0..count)
        .filter_map(|index| table.checked_add(index * 56))
        .find(|&at| file.get(at..at.saturating_add(4)) == Some(&PT_INTERP.to_le_bytes()))?;
    let (at, len) = (u64_at(header.checked_add(8)?)?, u64_at(header.checked_add(32)?)?);
    let path = file.get(at..at.checked_add(len)?)?;
    String::from_utf8(path.strip_suffix(b"\0")?.to_vec()).ok()
}

/// The libraries that the dynamic linker would load for `program`, as far as it says so. The
/// program is not run.
pub fn libraries(program: &Path) -> Vec<PathBuf> {
    let linker = std::fs::read(program).ok().and_then(|bytes| interpreter(&bytes));
    // Others may do anything with the option.
    let known = |linker: &String| ["/ld-linux", "/ld-musl"].iter().any(|it| linker.contains(it));
    let Some(linker) = linker.filter(known) else { return Vec::new() };
    let output = std::process::Command::new(&linker).arg("--list").arg(program).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let mut files: Vec<PathBuf> = String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| {
            let (names, _) = line.rsplit_once(" (0x")?;
            let path = names.rsplit("=> ").next()?.trim();
            path.contains('/').then(|| PathBuf::from(path))
        })
        .collect();
    files.push(linker.into());
    files.dedup();
    files
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
        for name in ["none", "dir"] {
            let missed = search(name.as_ref(), &path);
            let help = "no directory of PATH has it; a program here is ./NAME";
            let expected = Failure::new(NOT_FOUND, format!("{name}: not found")).with_help(help);
            assert_eq!(missed, Err(expected));
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn scripts_without_an_interpreter_are_the_shell_s() {
        let dir = fixture("bare");
        let bare = dir.join("bare");
        std::fs::copy(dir.join("good"), &bare).unwrap();
        for (content, is_script) in [
            (&b"echo $0 $1\n"[..], true),
            (b"", true),
            (b"#!/bin/sh\n", false),
            (b"\x7fELF", false),
            (b"MZ\0\n", false),
        ] {
            std::fs::write(&bare, content).unwrap();
            let words = [bare.clone().into_os_string(), "x".into()];
            let Ok(Target::Launch { program, argv }) = launch(&words) else { panic!("no launch") };
            assert_eq!(program == Path::new(SHELL), is_script, "{content:?}");
            let first = if is_script { 1 } else { 0 };
            assert_eq!(argv[first..], words, "{content:?}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn programs_without_their_interpreter_say_which() {
        let dir = fixture("interpreters");
        let script = dir.join("script");
        std::fs::write(&script, "#! /no/such/shell -x\necho\n").unwrap();
        let name = script.display().to_string();
        let cause = format!("{name}: its interpreter, /no/such/shell, was not found");
        assert_eq!(not_started(&name), Failure::new(NOT_FOUND, cause));
        std::fs::remove_file(&script).unwrap();
        let cause = format!("{name}: not found");
        assert_eq!(not_started(&name), Failure::new(NOT_FOUND, cause));
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

//! Programs that a test writes and then executes.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes `program` to `path`, in place where there is a file already, and lets everyone execute
/// it.
///
/// A process of its own writes the file. A descriptor of this process would be inherited by
/// whatever child another thread happens to fork, and until that child reaches its own `execve` the
/// kernel refuses to execute the file: `ETXTBSY`.
///
/// # Panics
///
/// If the file cannot be written.
pub fn write_program(path: &Path, program: &[u8]) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("start a shell");
    let mut input = writer.stdin.take().expect("a pipe");
    input.write_all(program).expect("write a program");
    drop(input);
    assert!(writer.wait().expect("wait for the shell").success(), "write {}", path.display());
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("make it executable");
}

/// Copies the program `from` to `to`, as [`write_program`] writes.
///
/// # Panics
///
/// If it cannot be read or written.
pub fn copy_program(from: &Path, to: &Path) {
    write_program(to, &std::fs::read(from).expect("read a program"));
}

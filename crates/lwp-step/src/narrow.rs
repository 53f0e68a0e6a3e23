//! Which programs are 32-bit ones.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The kernel follows that many scripts to their interpreters (`exec_binprm`, fs/exec.c).
const MOST_SCRIPTS: usize = 5;
/// The kernel looks at so much of a file (`BINPRM_BUF_SIZE`).
const HEAD: u64 = 256;

/// Returns whether the kernel starts a file as an i386 program: an ELF file of that kind, or a
/// script whose interpreter is one.
pub fn is_narrow(program: &Path) -> bool {
    let mut file = program.to_owned();
    for _ in 0..=MOST_SCRIPTS {
        let Some(head) = head(&file) else { return false };
        match interpreter(&head) {
            Some(next) => file = next,
            None => return is_i386(&head),
        }
    }
    false
}

fn head(file: &Path) -> Option<Vec<u8>> {
    // Opening a pipe would wait for its other end.
    if !std::fs::metadata(file).ok()?.is_file() {
        return None;
    }
    let mut head = Vec::new();
    File::open(file).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    Some(head)
}

/// The program that the first line of a script names.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let name = line.split(|byte| matches!(byte, b' ' | b'\t')).next()?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// ELFCLASS32, little endian, for EM_386. Programs of the x32 ABI have the machine of 64-bit ones.
fn is_i386(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF\x01\x01") && head.get(18..20) == Some(&[3, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_files() {
        let dir = std::env::temp_dir().join(format!("lwp-narrow-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let file = dir.join(name);
            std::fs::write(&file, bytes).unwrap();
            file
        };
        let elf = |class: u8, machine: u8| {
            let mut head = b"\x7fELF".to_vec();
            head.extend([class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, machine, 0]);
            head
        };
        let i386 = write("i386", &elf(1, 3));
        assert!(is_narrow(&i386));
        assert!(!is_narrow(&write("wide", &elf(2, 62))));
        assert!(!is_narrow(&write("x32", &elf(1, 62))));
        assert!(!is_narrow(&write("short", b"\x7fELF\x01\x01")));
        assert!(!is_narrow(&dir) && !is_narrow(&dir.join("none")));
        let script = format!("#! {} -x\n", i386.display());
        let script = write("script", script.as_bytes());
        assert!(is_narrow(&script));
        let next = format!("#!{}\n", script.display());
        assert!(is_narrow(&write("next", next.as_bytes())));
        let itself = format!("#!{}\n", dir.join("itself").display());
        assert!(!is_narrow(&write("itself", itself.as_bytes())));
        std::fs::remove_dir_all(dir).unwrap();
    }
}

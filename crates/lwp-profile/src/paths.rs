//! Paths as text: a recording has text, and a path may be any bytes.
//!
//! Promise: R74

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Returns a path as text, with `\\x` and two digits for each byte that is none.
pub fn path_text(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// Returns the path that `text` stands for, if it has a byte that is no text.
pub fn path_of_bytes(text: &str) -> Option<PathBuf> {
    let mut parts = text.split("\\x");
    let mut bytes = parts.next()?.as_bytes().to_vec();
    let plain = bytes.len();
    for part in parts {
        let byte = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| !byte.is_ascii()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => bytes.extend([b"\\x", part.as_bytes()].concat()),
        }
    }
    let is_text = bytes.len() == plain || String::from_utf8(bytes.clone()).is_ok();
    (!is_text).then(|| OsString::from_vec(bytes).into())
}

/// Returns whether a file's name or path is that of a shared library: `libc.so.6` is, `a.sort` not.
pub fn is_shared_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".so") || name.contains(".so.")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn libraries_are_told_by_the_end_of_their_names() {
        assert!(["/lib/libc.so.6", "a.so"].into_iter().all(is_shared_library));
        assert!(!["/x.so.d/prog", "a.sort", "run.sock"].into_iter().any(is_shared_library));
    }

    #[test]
    fn paths_of_any_bytes_survive_as_text() {
        for bytes in [&b"/a/\xffb\xc3\x28.so"[..], b"/\xfe", b"\\x41\xff\\"] {
            let path = Path::new(OsStr::from_bytes(bytes));
            assert_eq!(path_of_bytes(&path_text(path)).as_deref(), Some(path));
        }
        for text in ["/a/b.so", "/a\\x41", "/\u{e9}\\x", "/\\xg1\\xf"] {
            assert_eq!(path_text(Path::new(text)), text);
            assert_eq!(path_of_bytes(text), None);
        }
    }
}

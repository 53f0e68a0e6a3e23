//! Debug information kept apart from the program.

use std::path::{Path, PathBuf};

use crate::elf::Elf;

/// Where distributions install debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The debug file of `elf`, which lies at `path`: by build id, then by debug link. One with another
/// build id is passed over.
pub fn find(elf: &Elf, path: &Path, more: &[PathBuf]) -> Option<Vec<u8>> {
    let link = elf.debug_link.as_deref();
    let usable = |candidate: PathBuf| {
        let bytes = std::fs::read(candidate).ok()?;
        let id = crate::build_id::of_bytes(&bytes);
        (elf.build_id.is_empty() || id == elf.build_id).then_some(bytes)
    };
    candidates(&elf.build_id, link, path, more).into_iter().find_map(usable)
}

fn candidates(id: &[u8], link: Option<&str>, path: &Path, more: &[PathBuf]) -> Vec<PathBuf> {
    let roots = || more.iter().map(PathBuf::as_path).chain([Path::new(DEBUG_ROOT)]);
    let mut out = Vec::new();
    if let Some(name) = by_build_id(id) {
        out.extend(roots().map(|root| root.join(".build-id").join(&name)));
    }
    let Some(link) = link else { return out };
    let Some(dir) = path.parent() else { return out };
    // A link is a bare file name; anything else could lead anywhere.
    if link.contains('/') {
        return out;
    }
    out.push(dir.join(link));
    out.push(dir.join(".debug").join(link));
    let inside = dir.strip_prefix("/").unwrap_or(dir);
    out.extend(roots().map(|root| root.join(inside).join(link)));
    out.retain(|candidate| candidate != path);
    out
}

/// `ab/cdef….debug`.
fn by_build_id(id: &[u8]) -> Option<PathBuf> {
    use std::fmt::Write;
    let (first, rest) = id.split_first()?;
    let mut name = format!("{first:02x}/");
    for byte in rest {
        let _ = write!(name, "{byte:02x}");
    }
    name.push_str(".debug");
    Some(PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_debuggers() {
        let found = candidates(&[0xab, 1, 0xff], Some("ls.debug"), Path::new("/bin/ls"), &[]);
        let expected = [
            "/usr/lib/debug/.build-id/ab/01ff.debug",
            "/bin/ls.debug",
            "/bin/.debug/ls.debug",
            "/usr/lib/debug/bin/ls.debug",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn a_link_cannot_lead_elsewhere() {
        let link = Some("../../etc/passwd");
        assert!(candidates(&[], link, Path::new("/bin/ls"), &[]).is_empty());
    }
}

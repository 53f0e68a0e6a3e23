//! Debug information kept apart from the program.

use std::path::{Path, PathBuf};

use crate::build_id;
use crate::builds;
use crate::elf::Elf;
use crate::files::{Bytes, Files};

/// The directory in which distributions install debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The debug file of `elf`, which lies at `path`: by build id, then by debug link. One with another
/// build id is passed over; where there is none, one with another checksum than the link has.
pub fn find(elf: &Elf, path: &Path, files: &Files<'_>) -> Option<(PathBuf, Bytes)> {
    let link = elf.debug_link.as_ref();
    let name = link.map(|(name, _)| name.as_str());
    let candidates = candidates(&elf.build_id, name, path, files.debug_roots);
    let found = files.first(&candidates, |candidate, bytes| {
        let same = match (elf.build_id.is_empty(), link) {
            (false, _) => build_id::of_bytes(bytes) == elf.build_id,
            (true, Some((_, checksum))) => crc32fast::hash(bytes) == *checksum,
            (true, None) => false,
        };
        same.then(|| (candidate.to_owned(), bytes.clone()))
    });
    found.or_else(|| {
        let found = files.builds?.debug_information(&elf.build_id, path);
        let (found, bytes) = builds::checked(found, &elf.build_id)?;
        files.use_file(&found);
        Some((found, bytes))
    })
}

/// The file called `name` with the build id `id` in which the debug file at `owner` shares entries
/// with others, as `dwz` makes it.
pub fn find_shared(name: &Path, id: &[u8], owner: &Path, files: &Files<'_>) -> Option<Bytes> {
    let real = owner.canonicalize().ok();
    let beside = [Some(owner), real.as_deref()].into_iter().flatten().filter_map(Path::parent);
    let mut candidates: Vec<PathBuf> = beside.map(|dir| dir.join(name)).collect();
    if let Some(by_id) = by_build_id(id) {
        candidates.extend(roots(files.debug_roots).map(|it| it.join(".build-id").join(&by_id)));
    }
    if let Some(name) = name.file_name() {
        candidates.extend(roots(files.debug_roots).map(|it| it.join(".dwz").join(name)));
    }
    let found = files
        .first(&candidates, |_, bytes| (build_id::of_bytes(bytes) == id).then(|| bytes.clone()));
    found.or_else(|| {
        let (_, bytes) = builds::checked(files.builds?.debug_information(id, name), id)?;
        Some(bytes)
    })
}

fn roots(more: &[PathBuf]) -> impl Iterator<Item = &Path> {
    more.iter().map(PathBuf::as_path).chain([Path::new(DEBUG_ROOT)])
}

fn candidates(id: &[u8], link: Option<&str>, path: &Path, more: &[PathBuf]) -> Vec<PathBuf> {
    let mut out = Vec::new();
    if let Some(name) = by_build_id(id) {
        out.extend(roots(more).map(|root| root.join(".build-id").join(&name)));
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
    out.extend(roots(more).map(|root| root.join(inside).join(link)));
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

//! Files by their build ids, from beyond the places where they were installed.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use crate::files::Bytes;

/// A place that has files by build id. Asking may take long: some ask a server.
pub trait Builds: Debug + Send + Sync {
    /// The program or library with this build id, which was at `path` when it was executed.
    fn executable(&self, id: &[u8], path: &Path) -> Option<PathBuf>;

    /// The debug information of the build with this id, which was at `path` when it was executed.
    fn debug_information(&self, id: &[u8], path: &Path) -> Option<PathBuf>;
}

/// The bytes of a file that was found, if it is what it was found as.
pub(crate) fn checked(found: Option<PathBuf>, id: &[u8]) -> Option<(PathBuf, Bytes)> {
    let path = found?;
    let bytes = crate::files::read(&path).ok()?;
    (!id.is_empty() && crate::build_id::of_bytes(&bytes) == id).then_some((path, bytes))
}

//! The log, checked: a flipped bit in it would be another file, another size, or a recording less.
//!
//! A commit says in its first line what the checksum of all others is. Of a checkpoint, which the
//! library writes, an empty object beside it has the checksum in its name; it is put before the
//! checkpoint is, and a checkpoint without one is taken for damaged. Everything else passes.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, Result,
};
use serde_json::Value;

use crate::error::Error;

/// The key of the checksum in a commit's first line.
pub const KEY: &str = "lwpCrc32c";

/// The folder of the log.
pub const FOLDER: &str = "_delta_log";

/// The storage of a log, from its root on.
pub struct Guard {
    inner: Arc<dyn ObjectStore>,
    /// Checkpoints that were found whole; they never change.
    whole: Mutex<HashMap<Path, Bytes>>,
}

/// The kind of a file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A commit.
    Commit,
    /// A checkpoint, or a part of one.
    Checkpoint,
    /// Whatever passes.
    Other,
}

fn part(path: &Path) -> Part {
    numbered(path).map_or(Part::Other, |(_, part)| part)
}

/// The version that a file of the log makes, and its kind; `None` for other files.
pub fn numbered(path: &Path) -> Option<(u64, Part)> {
    let mut parts = path.as_ref().rsplit('/');
    let (name, folder) = (parts.next()?, parts.next()?);
    let (number, rest) = name.split_at_checked(20).filter(|_| folder == FOLDER)?;
    let version = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?;
    match rest {
        ".json" => Some((version?, Part::Commit)),
        _ if rest.starts_with(".checkpoint") => Some((version?, Part::Checkpoint)),
        _ => None,
    }
}

impl Guard {
    /// Guards `inner`.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self { inner, whole: Mutex::default() }
    }

    async fn checked(&self, location: &Path, part: Part) -> Result<Bytes> {
        let whole = || self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        if part == Part::Checkpoint
            && let Some(known) = whole().get(location)
        {
            return Ok(known.clone());
        }
        let bytes = self.inner.get(location).await?.bytes().await?;
        let right = match part {
            Part::Commit => is_whole(&bytes),
            _ => self.inner.head(&sum_of(location, &bytes)).await.is_ok(),
        };
        if !right {
            let version = numbered(location).map_or(0, |(version, _)| version);
            let name = location.filename().unwrap_or("");
            let (file, why) = (format!("{FOLDER}/{name}"), "its checksum is another".to_owned());
            let source = Box::new(Error::Log { file, version, why });
            return Err(object_store::Error::Generic { store: "log", source });
        }
        if part == Part::Checkpoint {
            whole().insert(location.clone(), bytes.clone());
        }
        Ok(bytes)
    }
}

/// Returns true if a commit is as it was written.
fn is_whole(commit: &[u8]) -> bool {
    let end = commit.iter().position(|byte| *byte == b'\n').unwrap_or(commit.len());
    let first: Value = serde_json::from_slice(&commit[..end]).unwrap_or_default();
    let rest = commit.get(end + 1..).unwrap_or_default();
    first["commitInfo"][KEY].as_u64() == Some(u64::from(crc32c::crc32c(rest)))
}

/// The object whose name is the checksum of a checkpoint.
fn sum_of(checkpoint: &Path, bytes: &[u8]) -> Path {
    let name = checkpoint.filename().unwrap_or("");
    let mut folder: Vec<_> = checkpoint.parts().collect();
    folder.truncate(folder.len().saturating_sub(2));
    let sum = format!("{name}.{:08x}", crc32c::crc32c(bytes));
    folder.into_iter().chain(["_lwp".into(), "checkpoints".into(), sum.into()]).collect()
}

/// The version of the checkpoint whose checksum is in an object's name; `None` for other objects.
pub fn summed(path: &Path) -> Option<u64> {
    let (folder, name) = path.as_ref().rsplit_once('/')?;
    let (checkpoint, _) = name.rsplit_once('.').filter(|_| folder == "_lwp/checkpoints")?;
    numbered(&Path::from(format!("{FOLDER}/{checkpoint}"))).map(|(version, _)| version)
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guarded {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Guard {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        if part(location) == Part::Checkpoint {
            let bytes = Bytes::from(payload.clone());
            self.inner.put(&sum_of(location, &bytes), PutPayload::new()).await?;
        }
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if part(location) == Part::Checkpoint {
            return Err(object_store::Error::NotImplemented {
                operation: "checkpoints in parts".to_owned(),
                implementer: "log".to_owned(),
            });
        }
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let part = part(location);
        if part == Part::Other || options.head {
            return self.inner.get_opts(location, options).await;
        }
        let meta = self.inner.head(location).await?;
        let bytes = self.checked(location, part).await?;
        let size = bytes.len() as u64;
        let range = wanted(options.range.as_ref(), size);
        let part = bytes.slice(range.start as usize..range.end as usize);
        let payload = GetResultPayload::Stream(stream::iter([Ok(part)]).boxed());
        let meta = ObjectMeta { size, ..meta };
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await
    }
}

/// The bytes of an object of `size` bytes that a range means.
pub fn wanted(range: Option<&GetRange>, size: u64) -> Range<u64> {
    let range = match range {
        None => 0..size,
        Some(GetRange::Bounded(range)) => range.clone(),
        Some(GetRange::Offset(from)) => *from..size,
        Some(GetRange::Suffix(last)) => size.saturating_sub(*last)..size,
    };
    let end = range.end.min(size);
    range.start.min(end)..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_log_are_told_apart() {
        let is = |path: &str| part(&Path::from(path));
        assert!(is("a/_delta_log/00000000000000000007.json") == Part::Commit);
        assert!(is("_delta_log/00000000000000000007.checkpoint.parquet") == Part::Checkpoint);
        for other in ["_delta_log/_last_checkpoint", "00000000000000000007.json", "kind=line/x"] {
            assert!(is(other) == Part::Other, "{other}");
        }
        let checkpoint = Path::from("_delta_log/00000000000000000007.checkpoint.parquet");
        assert_eq!(summed(&sum_of(&checkpoint, b"x")), Some(7));
        assert_eq!(summed(&checkpoint), None);
    }

    #[test]
    fn commits_without_their_checksum_are_not_whole() {
        let rest = b"{\"add\":{}}";
        let commit = |sum: u32| format!("{{\"commitInfo\":{{\"{KEY}\":{sum}}}}}\n{{\"add\":{{}}}}");
        assert!(is_whole(commit(crc32c::crc32c(rest)).as_bytes()));
        assert!(!is_whole(commit(crc32c::crc32c(rest) ^ 1).as_bytes()));
        for other in ["", "{}", "{\"commitInfo\":{}}\n{\"add\":{}}", "\n\n"] {
            assert!(!is_whole(other.as_bytes()), "{other}");
        }
    }
}

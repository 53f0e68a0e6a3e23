//! Data files, checked: whoever reads them gets what was written, or an error.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};

use crate::blocks::Blocks;
use crate::error::{Error, is_unanswered};
use crate::guard::wanted;

/// The files of one version of a store, read only. A range is widened to whole blocks, and these
/// are compared with the checksums of the log; a block that is wrong is read once more, because
/// what was read may be wrong and not what is kept.
pub struct CheckedFiles {
    inner: Arc<dyn ObjectStore>,
    files: HashMap<Path, Arc<Blocks>>,
}

impl CheckedFiles {
    /// Reads the given files of `inner`, and nothing else.
    pub fn new(inner: Arc<dyn ObjectStore>, files: HashMap<Path, Arc<Blocks>>) -> Self {
        Self { inner, files }
    }

    async fn whole(&self, location: &Path, blocks: &Blocks, range: &GetRange) -> Result<Bytes> {
        let wanted = wanted(Some(range), blocks.size());
        let around = blocks.around(&wanted);
        let mut wrong = None;
        for _ in 0..2 {
            let bytes = self.inner.get_range(location, around.clone()).await.map_err(|error| {
                match error {
                    // Nobody knows what is in a file that did not come.
                    other if is_unanswered(&other) => other,
                    // A shorter file, or one that is gone.
                    object_store::Error::Generic { .. } | object_store::Error::NotFound { .. } => {
                        let (file, why) = (location.to_string(), error.to_string());
                        own(Error::File { file, why })
                    }
                    other => other,
                }
            })?;
            wrong = match bytes.len() as u64 == around.end - around.start {
                true => blocks.wrong(around.start, &bytes),
                false => Some(around.clone()),
            };
            if wrong.is_none() {
                let at = |byte: u64| (byte - around.start) as usize;
                return Ok(bytes.slice(at(wanted.start)..at(wanted.end)));
            }
        }
        let wrong = wrong.unwrap_or(around);
        let file = location.to_string();
        Err(own(Error::Damaged { file, from: wrong.start, to: wrong.end }))
    }
}

fn own(error: Error) -> object_store::Error {
    object_store::Error::Generic { store: "fleet", source: Box::new(error) }
}

fn refused(operation: &str) -> object_store::Error {
    let (operation, implementer) = (operation.to_owned(), "fleet".to_owned());
    object_store::Error::NotImplemented { operation, implementer }
}

impl fmt::Debug for CheckedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files.len();
        f.debug_struct("CheckedFiles").field("files", &files).finish_non_exhaustive()
    }
}

impl fmt::Display for CheckedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "checked {}", self.inner)
    }
}

#[async_trait]
impl ObjectStore for CheckedFiles {
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let Some(blocks) = self.files.get(location) else {
            let (path, source) = (location.to_string(), "not in this version".into());
            return Err(object_store::Error::NotFound { path, source });
        };
        let size = blocks.size();
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: Default::default(),
            size,
            e_tag: None,
            version: None,
        };
        let range = options.range.unwrap_or(GetRange::Bounded(0..size));
        let bytes = match options.head {
            true => Bytes::new(),
            false => self.whole(location, blocks, &range).await?,
        };
        let payload = GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed());
        let range = wanted(Some(&range), size);
        Ok(GetResult { payload, meta, range, attributes: Default::default() })
    }

    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        Err(refused("put"))
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(refused("put"))
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        stream::iter([Err(refused("delete"))]).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::iter([Err(refused("list"))]).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        Err(refused("list"))
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(refused("copy"))
    }
}

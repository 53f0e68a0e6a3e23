//! Versions of the store that this machine has opened.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::common::DataFusionError;
use datafusion::execution::object_store::ObjectStoreRegistry;
use futures::stream::{self, BoxStream, StreamExt};
use lwp_query::Place;
use lwp_store::{Snapshot, Store};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use tokio::sync::OnceCell;
use url::Url;

/// Versions that are kept open.
const OPEN: usize = 8;

type Opened = Arc<OnceCell<(Snapshot, Arc<dyn ObjectStore>)>>;

/// Versions of the one store that this machine serves. Plans can name these and no other files:
/// neither another store nor a
/// path of this machine.
#[derive(Clone)]
pub struct Versions {
    store: Store,
    open: Arc<Mutex<VecDeque<(u64, Opened)>>>,
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Versions")
            .field("store", &self.store.location().url)
            .finish_non_exhaustive()
    }
}

impl Versions {
    /// The versions of `store`.
    pub fn of(store: Store) -> Self {
        Self { store, open: Arc::default() }
    }

    /// The version that a place names.
    ///
    /// # Errors
    ///
    /// If it is of another store.
    pub fn version(&self, place: &Place) -> Result<Version, DataFusionError> {
        let own = self.store.location().url.as_str();
        match place.store() {
            Some((store, number)) if store == own => Ok(self.numbered(number)),
            Some((store, _)) => Err(DataFusionError::Plan(format!(
                "this cluster serves the store {own}, not {store}"
            ))),
            None => Err(DataFusionError::Plan("a store of one machine alone".to_owned())),
        }
    }

    fn numbered(&self, number: u64) -> Version {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let place = open.iter().position(|(of, _)| *of == number);
        let opened = place.and_then(|place| open.remove(place)).map(|(_, opened)| opened);
        let opened = opened.unwrap_or_default();
        open.push_back((number, Arc::clone(&opened)));
        if open.len() > OPEN {
            open.pop_front();
        }
        Version { store: self.store.clone(), number, opened }
    }
}

/// A version of the store, which is opened when it is first read.
#[derive(Clone)]
pub struct Version {
    store: Store,
    number: u64,
    opened: Opened,
}

impl Version {
    /// The version's files.
    ///
    /// # Errors
    ///
    /// If it is not there any more, or damaged.
    pub async fn snapshot(&self) -> lwp_store::Result<&Snapshot> {
        Ok(&self.open().await?.0)
    }

    async fn open(&self) -> lwp_store::Result<&(Snapshot, Arc<dyn ObjectStore>)> {
        let open = || async {
            let snapshot = self.store.snapshot_at(self.number).await?;
            let files = self.store.checked(&snapshot);
            Ok((snapshot, files))
        };
        self.opened.get_or_try_init(open).await
    }

    async fn files(&self) -> object_store::Result<&Arc<dyn ObjectStore>> {
        let opened = self.open().await;
        let (_, files) = opened.map_err(|error| object_store::Error::Generic {
            store: "fleet",
            source: Box::new(error),
        })?;
        Ok(files)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Version").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {} of {}", self.number, self.store.location().url)
    }
}

impl ObjectStoreRegistry for Versions {
    fn register_store(&self, _: &Url, _: Arc<dyn ObjectStore>) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>, DataFusionError> {
        let place = Place::parse(url.as_str());
        let other = || DataFusionError::Plan(format!("{url} is not served by this cluster"));
        Ok(Arc::new(self.version(&place.ok_or_else(other)?)?))
    }
}

fn refused<T>(operation: &str) -> object_store::Result<T> {
    let (operation, implementer) = (operation.to_owned(), "fleet".to_owned());
    Err(object_store::Error::NotImplemented { operation, implementer })
}

#[async_trait]
impl ObjectStore for Version {
    async fn get_opts(&self, path: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        self.files().await?.get_opts(path, options).await
    }

    async fn put_opts(
        &self,
        _: &Path,
        _: PutPayload,
        _: PutOptions,
    ) -> object_store::Result<PutResult> {
        refused("put")
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        refused("put")
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        stream::iter([refused("delete")]).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        stream::iter([refused("list")]).boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> object_store::Result<ListResult> {
        refused("list")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> object_store::Result<()> {
        refused("copy")
    }
}

#[cfg(test)]
mod tests {
    use lwp_store::Location;

    use super::*;

    /// Promise: FL21
    #[tokio::test]
    async fn plans_can_name_versions_of_the_own_store_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let location = Location::parse(dir.path().join("store").to_str().unwrap()).unwrap();
        let store = Store::init(location).await.unwrap();
        let own = store.location().url.clone();
        let versions = Versions::of(store);
        let get = |url: &str| versions.get_store(&Url::parse(url).unwrap());
        let place = |store: &Url, version| Place::shared(store, version).url();
        let files = get(place(&own, 0).as_str()).unwrap();
        assert!(files.list(None).next().await.unwrap().is_err());
        let other = Url::parse("file:///etc").unwrap();
        for url in [place(&other, 0).as_str(), "file:///", "s3://other", "fleet://store"] {
            assert!(get(url).is_err(), "{url}");
        }
        // A version that is not there is an error when it is read.
        let gone = versions.version(&Place::shared(&own, 7)).unwrap();
        assert!(gone.snapshot().await.is_err());
        for number in 0..20 {
            versions.numbered(number);
        }
        assert_eq!(versions.open.lock().unwrap().len(), OPEN);
    }
}

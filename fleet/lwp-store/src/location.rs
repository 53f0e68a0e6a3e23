//! Addresses of stores.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use url::Url;

use crate::error::{Error, Result};

/// The place of a store.
#[derive(Clone, Debug)]
pub struct Location {
    /// The address, without a slash at its end.
    pub url: Url,
    /// The storage that it is in, from its root on.
    pub(crate) root: Arc<dyn ObjectStore>,
    /// The directory, if it is one.
    pub(crate) directory: Option<PathBuf>,
}

impl Location {
    /// The place that `text` names: a directory, `file:///…`, or `s3://bucket/path`. Credentials,
    /// region and endpoint of a bucket come from the variables that Amazon's own tools read.
    ///
    /// # Errors
    ///
    /// If no store can be there.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| Error::Location { url: text.to_owned(), why: why.to_owned() };
        if text.is_empty() {
            let url = "the store".to_owned();
            return Err(Error::Location { url, why: "its address is empty".to_owned() });
        }
        if !text.contains("://") {
            return Self::directory(Path::new(text));
        }
        let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        match url.scheme() {
            "file" => {
                Self::directory(&url.to_file_path().map_err(|()| wrong("no path of this machine"))?)
            }
            "s3" => Self::bucket(text, &url),
            _ => Err(wrong("a directory, file:// or s3:// is wanted")),
        }
    }

    fn directory(path: &Path) -> Result<Self> {
        let shown = || path.display().to_string();
        let wrong = |why: String| Error::Location { url: shown(), why };
        let absolute = without_parents(&std::path::absolute(path)?);
        let url = Url::from_file_path(&absolute);
        let url = url.map_err(|()| wrong("no path that an address can have".to_owned()))?;
        Ok(Self { url, root: Arc::new(LocalFileSystem::new()), directory: Some(absolute) })
    }

    #[cfg(feature = "s3")]
    fn bucket(text: &str, url: &Url) -> Result<Self> {
        use object_store::aws::AmazonS3Builder;
        let wrong = |why: String| Error::Location { url: text.to_owned(), why };
        let bucket = url.host_str().ok_or_else(|| wrong("no bucket".to_owned()))?;
        // Buckets of this machine are for tests, and have no certificate.
        let endpoint = std::env::var("AWS_ENDPOINT_URL").unwrap_or_default();
        let plain = endpoint.starts_with("http://");
        let store = AmazonS3Builder::from_env().with_bucket_name(bucket).with_allow_http(plain);
        let root = Arc::new(store.build().map_err(|error| wrong(error.to_string()))?);
        let url = Url::parse(text.trim_end_matches('/')).map_err(|e| wrong(e.to_string()))?;
        Ok(Self { url, root, directory: None })
    }

    #[cfg(not(feature = "s3"))]
    fn bucket(text: &str, _: &Url) -> Result<Self> {
        Err(Error::Location { url: text.to_owned(), why: "built without feature s3".to_owned() })
    }

    /// The store's path in its storage.
    pub(crate) fn prefix(&self) -> Result<object_store::path::Path> {
        object_store::path::Path::from_url_path(self.url.path())
            .map_err(|error| Error::Location { url: self.url.to_string(), why: error.to_string() })
    }
}

/// An absolute path without `..`, which addresses do not have. Behind a symbolic link, that is the
/// parent of the link's target.
fn without_parents(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out = out.canonicalize().unwrap_or(out);
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_named_in_two_ways() {
        let (one, other) = (Location::parse("/srv/x y"), Location::parse("file:///srv/x%20y"));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.url, other.url);
        assert_eq!(one.directory, other.directory);
        assert_eq!(one.prefix().unwrap().as_ref(), "srv/x y");
        for text in ["", "ftp://a/b", "file://host/x"] {
            assert!(Location::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parents_are_those_that_the_system_means() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink(root.join("a/b"), root.join("link")).unwrap();
        let of = |path: &str| without_parents(&root.join(path));
        assert_eq!(of("a/../store"), root.join("store"));
        assert_eq!(of("link/../store"), root.join("a/store"));
        assert_eq!(of("missing/../store"), root.join("store"));
        assert_eq!(without_parents(Path::new("/../../x")), Path::new("/x"));
        let place = Location::parse(root.join("a/../s%20t").to_str().unwrap()).unwrap();
        assert_eq!(place.directory.as_deref(), Some(root.join("s%20t").as_path()));
        assert!(place.prefix().unwrap().as_ref().ends_with("s%20t"));
    }
}

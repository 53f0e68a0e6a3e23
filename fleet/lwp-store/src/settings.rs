//! Settings: small files of text beside the data.

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use crate::error::{Error, Result};
use crate::store::Store;

impl Store {
    /// The text of a file of settings; `None` where there is no such file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is no text.
    pub async fn settings(&self, name: &str) -> Result<Option<String>> {
        match self.files.get(&Path::from(format!("_lwp/{name}"))).await {
            Ok(found) => {
                let bytes = found.bytes().await?;
                let text = std::str::from_utf8(&bytes);
                let text =
                    text.map_err(|error| Error::Settings(name.to_owned(), error.to_string()))?;
                Ok(Some(text.to_owned()))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a file of settings. Of two writers at once the last one counts.
    ///
    /// # Errors
    ///
    /// If the storage refuses it.
    pub async fn set_settings(&self, name: &str, text: &str) -> Result<()> {
        let path = format!("_lwp/{name}");
        self.files.put(&Path::from(path.as_str()), PutPayload::from(text.to_owned())).await?;
        self.settle(&path)
    }
}

//! Raw recordings: the files that `lwp record` wrote, kept beside the rows that were made of them.
//!
//! A file lies under the id of its recording, compressed, with a checksum in it. The log does not
//! know of it: a recording is whole without it, and it goes by rules of its own.

use std::collections::HashSet;
use std::io::{self, Read, Write};

use futures::TryStreamExt;
use lwp_facts::Id;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutPayload};
use zstd::stream::{read::Decoder, write::Encoder};

use crate::add::ids;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::store::Store;

/// The folder of all of them.
const FOLDER: &str = "raw";
/// The end of their names.
const SUFFIX: &str = ".data.zst";
/// The effort of the compression.
const LEVEL: i32 = 3;
/// The most that a file may become when it is unpacked.
const LARGEST: u64 = 8 << 30;

/// A raw recording in the store.
#[derive(Clone, Debug)]
pub struct RawFile {
    /// The recording's id.
    pub id: Id,
    /// The file as the storage knows it.
    pub object: ObjectMeta,
}

/// Packs the bytes of a recording, with a checksum of them.
///
/// # Errors
///
/// If the compression fails.
pub fn pack(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = Encoder::new(Vec::new(), LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// Unpacks a file, and holds it against its checksum.
fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Decoder::new(packed)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > LARGEST {
        true => Err(io::Error::other("larger than 8 GiB")),
        false => Ok(bytes),
    }
}

/// The place of a raw recording.
pub(crate) fn raw_path(id: Id) -> Path {
    let id = id.to_string();
    Path::from(format!("{FOLDER}/{}/{id}{SUFFIX}", &id[..2]))
}

fn id_of(path: &Path) -> Option<Id> {
    Id::parse(path.filename()?.strip_suffix(SUFFIX)?)
}

/// Returns true if a file of the store is a raw recording.
pub(crate) fn is_raw(path: &Path) -> bool {
    path.as_ref().starts_with("raw/") && id_of(path).is_some()
}

impl Store {
    /// Keeps a raw recording that [`pack`] packed; when this returns, it is on the disk. Its
    /// recording is to be added next: without one, [`Store::vacuum`] deletes it.
    ///
    /// # Errors
    ///
    /// If the storage fails.
    pub async fn keep_raw(&self, id: Id, packed: Vec<u8>) -> Result<()> {
        let path = raw_path(id);
        self.files.put(&path, PutPayload::from(packed)).await?;
        self.settle(path.as_ref())
    }

    /// The bytes of a raw recording; `None` where it is not kept.
    ///
    /// # Errors
    ///
    /// If it is damaged, or the storage fails.
    pub async fn raw(&self, id: Id) -> Result<Option<Vec<u8>>> {
        let path = raw_path(id);
        let packed = match self.files.get(&path).await {
            Ok(found) => found.bytes().await?,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let damaged =
            |error: io::Error| Error::File { file: path.to_string(), why: error.to_string() };
        unpack(&packed).map(Some).map_err(damaged)
    }

    /// Every raw recording that is kept.
    ///
    /// # Errors
    ///
    /// If the storage cannot be listed.
    pub async fn raws(&self) -> Result<Vec<RawFile>> {
        let objects: Vec<_> = self.files.list(Some(&Path::from(FOLDER))).try_collect().await?;
        let raw = |object: ObjectMeta| Some(RawFile { id: id_of(&object.location)?, object });
        Ok(objects.into_iter().filter_map(raw).collect())
    }

    /// Removes a raw recording; one that is not there is no fault.
    ///
    /// # Errors
    ///
    /// If the storage fails.
    pub async fn remove_raw(&self, id: Id) -> Result<()> {
        match self.files.delete(&raw_path(id)).await {
            Err(object_store::Error::NotFound { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The ids of all recordings of the latest version.
    pub(crate) async fn all_ids(&self) -> Result<HashSet<Id>> {
        let snapshot = self.snapshot().await?;
        let mut all = HashSet::new();
        for file in snapshot.files_of(Kind::Recording) {
            all.extend(ids(self, &snapshot, file).await?);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_found_when_a_file_is_unpacked() {
        let bytes: Vec<u8> =
            (0..100_000_u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect();
        let packed = pack(&bytes).unwrap();
        assert_eq!(unpack(&packed).unwrap(), bytes);
        assert!(unpack(&packed[..packed.len() - 1]).is_err());
        for at in [0, 100, packed.len() / 2, packed.len() - 1] {
            let mut other = packed.clone();
            other[at] ^= 4;
            assert!(unpack(&other).is_err(), "{at}");
        }
    }

    #[test]
    fn files_are_named_by_their_recordings() {
        let id = Id(0x12 << 120);
        assert_eq!(raw_path(id).as_ref(), format!("raw/12/{id}.data.zst"));
        assert_eq!(id_of(&raw_path(id)), Some(id));
        assert!(is_raw(&raw_path(id)) && !is_raw(&Path::from("raw/12/x.data.zst")));
    }
}

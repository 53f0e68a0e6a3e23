//! Addresses that plans have stores under.

use std::fmt::Write;

use datafusion::execution::object_store::ObjectStoreUrl;
use url::Url;

/// The address of a session's own store.
const OWN: &str = "fleet://store";

/// The address that a plan has a store's files under. Whoever executes the plan makes the files
/// from it, with credentials of its own: a plan has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    url: ObjectStoreUrl,
    shared: Option<(String, u64)>,
}

impl Place {
    /// The store of the session that plans, which no other machine knows.
    pub fn own() -> Self {
        Self { url: ObjectStoreUrl::parse(OWN).unwrap_or_else(|_| local()), shared: None }
    }

    /// A version of a store that every machine opens itself: `fleet://VERSION.HEX`, where HEX
    /// stands for the store's address.
    pub fn shared(store: &Url, version: u64) -> Self {
        let hex = store.as_str().bytes().fold(String::new(), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        });
        let url = ObjectStoreUrl::parse(format!("fleet://{version}.{hex}"));
        Self {
            url: url.unwrap_or_else(|_| local()),
            shared: Some((store.as_str().to_owned(), version)),
        }
    }

    /// The place that an address names, if it is a shared one.
    pub fn parse(url: &str) -> Option<Self> {
        let (version, hex) = url.strip_prefix("fleet://")?.trim_end_matches('/').split_once('.')?;
        let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
        let store = Url::parse(&String::from_utf8(bytes?).ok()?).ok()?;
        Some(Self::shared(&store, version.parse().ok()?))
    }

    /// The address.
    pub fn url(&self) -> ObjectStoreUrl {
        self.url.clone()
    }

    /// The store's own address and its version, if other machines can open it.
    pub fn store(&self) -> Option<(&str, u64)> {
        self.shared.as_ref().map(|(store, version)| (store.as_str(), *version))
    }

    /// Returns true if other machines can open it.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }
}

/// An address under which there is nothing.
fn local() -> ObjectStoreUrl {
    ObjectStoreUrl::local_filesystem()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_name_store_and_version() {
        for text in ["file:///srv/x%20y", "s3://bucket/path"] {
            let place = Place::shared(&Url::parse(text).unwrap(), 12);
            assert_eq!(place.store(), Some((text, 12)));
            assert_eq!(Place::parse(place.url().as_str()), Some(place));
        }
        for text in ["fleet://store", "fleet://1.zz", "fleet://1.616", "file:///", "fleet://x.61"] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
        assert_eq!(Place::own().url().as_str(), "fleet://store/");
    }
}

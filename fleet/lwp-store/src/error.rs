//! Faults of a store.

use deltalake_core::DeltaTableError;

/// The result of an operation on a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault of a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is none of a store.
    #[error("{url}: {why}")]
    Location {
        /// The address.
        url: String,
        /// The reason.
        why: String,
    },
    /// There is no store at the address.
    #[error("{0}: there is no store")]
    Missing(String),
    /// There is a store at the address already.
    #[error("{0}: there is a store already")]
    Exists(String),
    /// The storage cannot put an object only if it is absent, which commits need.
    #[error(
        "{0}: this storage overwrites where it was told not to; two writers would lose recordings"
    )]
    Unconditional(String),
    /// Bytes are not what was written.
    #[error("damaged: {file}, bytes {from}..{to}")]
    Damaged {
        /// The file.
        file: String,
        /// The first byte of the block.
        from: u64,
        /// The first byte behind it.
        to: u64,
    },
    /// A file is gone, or has another size than the log says.
    #[error("damaged: {file}: {why}")]
    File {
        /// The file.
        file: String,
        /// The fault.
        why: String,
    },
    /// A file of the log is not what was written, or is gone. Versions from there on cannot be read
    /// until a checkpoint.
    #[error("the log is damaged: {file}: {why}")]
    Log {
        /// The file.
        file: String,
        /// The version that it makes.
        version: u64,
        /// The fault.
        why: String,
    },
    /// There is no such version, or it is not kept any more.
    #[error("there is no version {wanted}: the store has those from {first} to {last}")]
    NoVersion {
        /// The version.
        wanted: u64,
        /// The first that is kept.
        first: u64,
        /// The latest.
        last: u64,
    },
    /// The store was written by a newer version.
    #[error("the store has version {0}, which this program does not know")]
    Version(String),
    /// Others committed again and again.
    #[error("gave up after {0} attempts: others write all the time")]
    Contention(u32),
    /// A file that an operation was planned with is no more.
    #[error("{0} is not in the store any more")]
    Gone(String),
    /// A file of settings cannot be read: its name, and why.
    #[error("_lwp/{0}: {1}")]
    Settings(String, String),
    /// A day that is none.
    #[error("{0} is no second of a day that has a date")]
    Date(i64),
    /// The Delta log.
    #[error("{}", plain(.0))]
    Delta(#[from] Box<DeltaTableError>),
    /// The storage.
    #[error("{}", root(.0))]
    Storage(#[from] object_store::Error),
    /// A Parquet file.
    #[error("{0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Rows in memory.
    #[error("{0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// JSON of the log.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A file of the system.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl From<DeltaTableError> for Error {
    fn from(error: DeltaTableError) -> Self {
        Self::Delta(Box::new(error))
    }
}

/// The cause at the end of the chain: wrappers say only that something failed.
fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let (whole, last) = (error.to_string(), last.to_string());
    match whole.contains(&last) {
        true => whole,
        false => format!("{whole}: {last}"),
    }
}

fn plain(error: &DeltaTableError) -> String {
    root(error)
}

/// Words of requests that had no answer, or the answer that there is none now. Some wrappers keep
/// no more of their cause than its words.
const UNANSWERED: [&str; 5] = [
    " - HTTP error: ",
    "status code: 5",
    "status code: 408",
    "status code: 429",
    "Server returned error response",
];

/// Returns true if an error comes from a storage that did not answer, or that said it cannot now.
pub fn is_unanswered(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind as Kind;
    let mut next = Some(error);
    while let Some(error) = next {
        let lost = error.downcast_ref::<std::io::Error>().is_some_and(|error| {
            matches!(
                error.kind(),
                Kind::TimedOut
                    | Kind::ConnectionRefused
                    | Kind::ConnectionReset
                    | Kind::ConnectionAborted
                    | Kind::HostUnreachable
                    | Kind::NetworkUnreachable
                    | Kind::NetworkDown
            )
        });
        let text = error.to_string();
        if lost || UNANSWERED.iter().any(|words| text.contains(words)) {
            return true;
        }
        next = error.source();
    }
    false
}

impl Error {
    /// Returns true if another attempt later may succeed without anybody doing anything.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Contention(_) => true,
            Self::Delta(_) | Self::Storage(_) | Self::Parquet(_) | Self::Io(_) => {
                is_unanswered(self)
            }
            _ => false,
        }
    }
}

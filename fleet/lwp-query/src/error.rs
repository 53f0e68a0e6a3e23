//! Faults of questions.

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;

/// The result of a question.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault of a question.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store.
    #[error(transparent)]
    Store(#[from] lwp_store::Error),
    /// The question cannot be understood, or asks for what there is not.
    #[error("{0}")]
    Question(String),
    /// The query can be planned and fails on the values that it computes: a text isn't a number, a
    /// sum is too large. Errors of the engine itself and panics are among these, because other
    /// queries still work.
    #[error("the query failed: {0}")]
    Execution(String),
    /// The answer takes more memory than it may.
    #[error("more memory is needed than may be taken")]
    Memory,
    /// What does not fit into memory takes more temporary files than there may be.
    #[error("larger temporary files are needed than may be written")]
    Disk,
    /// The question took longer than it may.
    #[error("no answer within {0} s")]
    Time(u64),
    /// The answer is longer than it may be.
    #[error("the answer has more than {0} rows: ask for fewer with a limit")]
    Rows(usize),
    /// The engine has a fault.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// The storage did not answer; it may answer later.
    #[error("the storage does not answer: {0}")]
    Unanswered(String),
    /// Other machines that were to answer are lost, or do not get on; they may answer later.
    #[error("the cluster does not answer: {0}")]
    Lost(String),
    /// Other machines refuse to answer.
    #[error("the cluster refuses: {0}")]
    Refused(String),
    /// JSON.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        if let Some(of_store) = of_store(&error) {
            return Self::Engine(of_store);
        }
        if lwp_store::is_unanswered(&error) {
            return Self::Unanswered(error.find_root().strip_backtrace());
        }
        if is_disk_full(&error.to_string()) {
            return Self::Disk;
        }
        match error.find_root() {
            DataFusionError::ResourcesExhausted(_) => Self::Memory,
            DataFusionError::Plan(text) => Self::Question(text.clone()),
            root @ (DataFusionError::SQL(..)
            | DataFusionError::SchemaError(..)
            | DataFusionError::NotImplemented(_)) => Self::Question(root.strip_backtrace()),
            DataFusionError::ArrowError(error, _) => Self::of_arrow(error),
            DataFusionError::Execution(text) | DataFusionError::Internal(text) => {
                Self::Execution(text.clone())
            }
            root @ DataFusionError::ExecutionJoin(_) => Self::Execution(root.strip_backtrace()),
            root => Self::Engine(root.strip_backtrace()),
        }
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        Self::of_arrow(&error)
    }
}

impl Error {
    /// Errors of files would end other queries too; all others are the query's.
    fn of_arrow(error: &ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(_)
            | ArrowError::IoError(..)
            | ArrowError::IpcError(_)
            | ArrowError::ParquetError(_) => Self::Engine(error.to_string()),
            error => Self::Execution(error.to_string()),
        }
    }
}

/// Returns true if the engine says in `text` that its temporary files are as large as they may be:
/// it has no kind of error for that.
pub fn is_disk_full(text: &str) -> bool {
    text.contains("used disk space during the spilling process has exceeded")
}

/// The fault of the store at the bottom of another one.
fn of_store(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(own) = error.downcast_ref::<lwp_store::Error>() {
            return Some(own.to_string());
        }
        // Wrappers that have no source show their cause.
        let text = error.to_string();
        if let Some(at) = text.find("damaged: ") {
            let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
            return Some(text[at..end].to_owned());
        }
        next = error.source();
    }
    None
}

//! A store of recordings: Parquet files under one Delta log, on a directory or in a bucket.
//!
//! The log decides. A recording is there when the commit that adds its files is, with all kinds of
//! rows at once; before that its files are bytes that nobody looks at. A commit is made for one
//! version of the log and for no other: whoever comes second reads what the first one did and
//! decides again. That is why the same recording is never there twice, whoever adds it, and why a
//! compaction never brings back what was removed.
//!
//! Every byte that is read is checked: data files by checksums that the log keeps of their blocks
//! ([`CheckedFiles`]), commits by a checksum of their own.
#![forbid(unsafe_code)]

mod add;
mod blocks;
mod checked;
mod commit;
mod error;
mod file;
mod guard;
mod kind;
mod location;
mod log;
mod notes;
mod raw;
mod replace;
mod retention;
mod rows;
mod schema;
mod settings;
mod snapshot;
mod store;
mod vacuum;

pub use add::Added;
pub use blocks::Blocks;
pub use checked::CheckedFiles;
pub use error::{Error, Result, is_unanswered};
pub use file::{FileWriter, SORT, Written};
pub use kind::Kind;
pub use location::Location;
pub use notes::Note;
pub use raw::{RawFile, pack};
pub use replace::Placed;
pub use retention::{Retention, Rule};
pub use schema::{COUNTS, arrow_schema};
pub use snapshot::{DataFile, Snapshot};
pub use store::Store;
pub use vacuum::Vacuumed;

pub use object_store;

//! Remarks about commits: "expected: the new parser".

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray, new_null_array};
use async_trait::async_trait;
use deltalake_core::kernel::{Action, Add};
use object_store::path::Path;

use crate::commit::{Change, Plan, commit};
use crate::error::Result;
use crate::file::FileWriter;
use crate::kind::Kind;
use crate::rows::moment;
use crate::schema::{arrow_schema, columns};
use crate::snapshot::Snapshot;
use crate::store::{Store, day, now_millis};

/// A remark about a commit: a step there is expected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The project, empty for all.
    pub project: String,
    /// The benchmark, empty for all.
    pub benchmark: String,
    /// The commit.
    pub commit: String,
    /// The remark.
    pub text: String,
    /// Its author.
    pub author: String,
}

impl Store {
    /// Adds a note.
    ///
    /// # Errors
    ///
    /// If the storage fails.
    pub async fn note(&self, note: &Note) -> Result<u64> {
        let now = now_millis();
        let cell = |(name, of): (&str, crate::schema::Type)| -> ArrayRef {
            let text = match name {
                "project" => &note.project,
                "benchmark" => &note.benchmark,
                "commit" => &note.commit,
                "text" => &note.text,
                "author" => &note.author,
                "started" => return moment(now * 1000, 1),
                _ => return new_null_array(&of.arrow(), 1),
            };
            Arc::new(StringArray::from(vec![Some(text.as_str()).filter(|text| !text.is_empty())]))
        };
        let cells = columns(Kind::Note).map(cell).collect();
        let batch = RecordBatch::try_new(arrow_schema(Kind::Note), cells)?;
        let mut writer = FileWriter::new(Kind::Note)?;
        writer.write(&batch)?;
        let add = self.put(&day(now / 1000)?, "n", writer.finish()?, 0).await?;
        commit(self, &mut Noting { add, done: false }).await
    }
}

/// A note on its way.
struct Noting {
    add: Add,
    done: bool,
}

#[async_trait]
impl Plan for Noting {
    async fn change(&mut self, _: &Store, snapshot: &Snapshot) -> Result<Option<Change>> {
        // A storage may have taken the commit before its answer was lost.
        let path = Path::from(self.add.path.as_str());
        let is_there = std::mem::replace(&mut self.done, true) && snapshot.file(&path).is_some();
        let actions = vec![Action::Add(self.add.clone())];
        Ok(Some(Change { actions, of_data: true }).filter(|_| !is_there))
    }
}

//! The columns of the table, of which each kind of row has some.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use deltalake_core::kernel::{
    ArrayType, DataType as DeltaType, MapType, PrimitiveType, StructField, StructType,
};

use crate::Kind;

/// The exact events, as columns.
pub const COUNTS: [&str; 8] = [
    "instructions",
    "branches",
    "branches_taken",
    "conditional_branches",
    "conditional_taken",
    "calls",
    "returns",
    "indirect_branches",
];

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Long,
    Int,
    Text,
    Flag,
    Time,
    Labels,
    Frames,
}

/// Letters of the kinds that have a column, in the order of [`Kind::ALL`].
const KINDS: [(u8, Kind); 9] = [
    (b'r', Kind::Recording),
    (b't', Kind::Total),
    (b'f', Kind::Function),
    (b'l', Kind::Line),
    (b'c', Kind::Call),
    (b's', Kind::Stack),
    (b'm', Kind::Module),
    (b'n', Kind::Note),
    (b'u', Kind::Rollup),
];

/// Every column: name, type, kinds that have it.
#[rustfmt::skip] // A table: one column a line.
pub(crate) const COLUMNS: &[(&str, Type, &str)] = &[
    ("recording",            Type::Long,   "rtflcsmu"),
    ("started",              Type::Time,   "rtflcsmnu"),
    ("project",              Type::Text,   "rtflcsmnu"),
    ("benchmark",            Type::Text,   "rtflcsmnu"),
    ("branch",               Type::Text,   "rtflcsmu"),
    ("commit",               Type::Text,   "rtflcsmnu"),
    ("host",                 Type::Text,   "rtflcsmu"),
    ("func",                 Type::Long,   "flcs"),
    ("module",               Type::Text,   "flcsm"),
    ("function",             Type::Text,   "flcs"),
    ("file",                 Type::Text,   "fl"),
    ("line",                 Type::Int,    "fl"),
    ("callee",               Type::Long,   "c"),
    ("callee_module",        Type::Text,   "c"),
    ("callee_function",      Type::Text,   "c"),
    ("call_kind",            Type::Text,   "c"),
    ("stack",                Type::Long,   "s"),
    ("frames",               Type::Frames, "s"),
    ("instructions",         Type::Long,   "rfl"),
    ("branches",             Type::Long,   "rfl"),
    ("branches_taken",       Type::Long,   "rfl"),
    ("conditional_branches", Type::Long,   "rfl"),
    ("conditional_taken",    Type::Long,   "rfl"),
    ("calls",                Type::Long,   "rfl"),
    ("returns",              Type::Long,   "rfl"),
    ("indirect_branches",    Type::Long,   "rfl"),
    ("entered",              Type::Long,   "fc"),
    ("inclusive",            Type::Long,   "f"),
    ("event",                Type::Text,   "tflsu"),
    ("value",                Type::Long,   "tflsu"),
    ("interval",             Type::Long,   "tflsu"),
    ("id",                   Type::Text,   "ru"),
    ("content",              Type::Text,   "r"),
    ("command",              Type::Text,   "ru"),
    ("mode",                 Type::Text,   "ru"),
    ("source",               Type::Text,   "ru"),
    ("tool_version",         Type::Text,   "ru"),
    ("kernel",               Type::Text,   "ru"),
    ("cpu",                  Type::Text,   "ru"),
    ("deterministic",        Type::Flag,   "ru"),
    ("complete",             Type::Flag,   "ru"),
    ("parent_commit",        Type::Text,   "ru"),
    ("pull_request",         Type::Long,   "r"),
    ("run_url",              Type::Text,   "r"),
    ("labels",               Type::Labels, "ru"),
    ("rows_total",           Type::Int,    "r"),
    ("rows_function",        Type::Int,    "r"),
    ("rows_line",            Type::Int,    "r"),
    ("rows_call",            Type::Int,    "r"),
    ("rows_stack",           Type::Int,    "r"),
    ("rows_module",          Type::Int,    "r"),
    ("build_id",             Type::Text,   "m"),
    ("path",                 Type::Text,   "m"),
    ("text",                 Type::Text,   "n"),
    ("author",               Type::Text,   "n"),
    ("runs",                 Type::Long,   "u"),
    ("least",                Type::Long,   "u"),
    ("greatest",             Type::Long,   "u"),
    ("keys",                 Type::Frames, "u"),
];

/// The columns of a kind.
pub(crate) fn columns(kind: Kind) -> impl Iterator<Item = (&'static str, Type)> {
    let letter = KINDS.iter().find(|(_, known)| *known == kind).map_or(b'?', |(letter, _)| *letter);
    let has = move |kinds: &str| kinds.as_bytes().contains(&letter);
    COLUMNS.iter().filter(move |(.., kinds)| has(kinds)).map(|(name, of, _)| (*name, *of))
}

impl Type {
    pub(crate) fn arrow(self) -> DataType {
        match self {
            Self::Long => DataType::Int64,
            Self::Int => DataType::Int32,
            Self::Text => DataType::Utf8,
            Self::Flag => DataType::Boolean,
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Labels => DataType::Map(Arc::new(map_entries()), false),
            Self::Frames => DataType::List(Arc::new(frame())),
        }
    }

    fn delta(self) -> DeltaType {
        match self {
            Self::Long => DeltaType::LONG,
            Self::Int => DeltaType::INTEGER,
            Self::Text => DeltaType::STRING,
            Self::Flag => DeltaType::BOOLEAN,
            Self::Time => DeltaType::Primitive(PrimitiveType::Timestamp),
            Self::Labels => MapType::new(DeltaType::STRING, DeltaType::STRING, true).into(),
            Self::Frames => ArrayType::new(DeltaType::LONG, true).into(),
        }
    }
}

/// The entries of a map, named as other readers expect them.
pub(crate) fn map_entries() -> Field {
    let key = Field::new("key", DataType::Utf8, false);
    let value = Field::new("value", DataType::Utf8, true);
    Field::new("key_value", DataType::Struct(vec![key, value].into()), false)
}

pub(crate) fn frame() -> Field {
    Field::new("element", DataType::Int64, true)
}

/// The columns in files of a kind; their partition is not among them.
pub fn arrow_schema(kind: Kind) -> SchemaRef {
    let field = |(name, of): (&str, Type)| Field::new(name, of.arrow(), true);
    Arc::new(Schema::new(columns(kind).map(field).collect::<Vec<_>>()))
}

/// The schema of the whole table.
pub(crate) fn delta_schema() -> Result<StructType, String> {
    let column = |(name, of, _): &(&str, Type, &str)| StructField::nullable(*name, of.delta());
    let partitions = [
        StructField::nullable("kind", DeltaType::STRING),
        StructField::nullable("date", DeltaType::DATE),
    ];
    StructType::try_new(COLUMNS.iter().map(column).chain(partitions)).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_count_the_rows_of_every_other_kind() {
        let schema = arrow_schema(Kind::Recording);
        for kind in Kind::COUNTED {
            assert!(schema.field_with_name(&format!("rows_{}", kind.word())).is_ok());
        }
        for count in COUNTS {
            assert!(schema.field_with_name(count).is_ok());
        }
        assert!(delta_schema().is_ok());
    }
}

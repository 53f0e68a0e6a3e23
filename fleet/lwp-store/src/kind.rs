//! Kinds of row.

/// A kind of row. Rows of one kind are in files of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A recording: one row each.
    Recording,
    /// A total of a recording in an event that is no exact count.
    Total,
    /// A function.
    Function,
    /// A source line in a function.
    Line,
    /// Calls from one function to another.
    Call,
    /// A call stack.
    Stack,
    /// A program or library of a recording.
    Module,
    /// A remark about a commit.
    Note,
    /// The totals of recordings that have expired, in one event.
    Rollup,
}

impl Kind {
    /// Every kind and its word, recordings first.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Recording, "recording"),
        (Self::Total, "total"),
        (Self::Function, "function"),
        (Self::Line, "line"),
        (Self::Call, "call"),
        (Self::Stack, "stack"),
        (Self::Module, "module"),
        (Self::Note, "note"),
        (Self::Rollup, "rollup"),
    ];

    /// The kinds that a recording has rows of, itself left out; its row counts them.
    pub const COUNTED: [Self; 6] =
        [Self::Total, Self::Function, Self::Line, Self::Call, Self::Stack, Self::Module];

    /// Its word, as paths and tables have it.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, word)| word)
    }

    /// The kind that a word stands for.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
    }
}

//! Profiles as people look at them: tables, annotated code, flame graphs.
//!
//! Everything here is pure: a profile comes in, text goes out. Names come from programs and are
//! escaped for whatever they are written into.
#![forbid(unsafe_code)]

pub mod annotate;
pub mod annotate_text;
mod arrows;
pub mod beside;
pub mod chance;
pub mod diff;
pub mod flame;
pub mod gate;
pub mod libc;
pub mod loops;
pub mod machine;
pub mod number;
pub mod objdump;
pub mod paint;
pub mod series;
pub mod table;
pub mod text;
pub mod tree_text;

pub use lwp_terminal::escape;
pub use paint::Paint;
pub use table::{Options, Row, SortKey, Table};

//! Flame graphs: contexts as boxes, as wide as what was counted in them.
//!
//! The pictures need nothing from elsewhere and can be looked at in any browser, also without
//! scripts; with scripts they can be searched and zoomed into. Names are escaped.

mod graph;
mod html;
mod svg;

pub use graph::{Before, Box, Contexts, Graph, Layout, Name, ROOT, Side, Style};
pub use html::html;
pub use svg::svg;

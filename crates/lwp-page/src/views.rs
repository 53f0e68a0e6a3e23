//! The views, one a file.

mod calls;
pub mod code;
mod flame;
mod functions;
mod summary;
mod time;
mod tree;

use maud::Markup;

use crate::request::{Request, View};

/// The content of the page that `request` asks for.
pub fn body(request: &Request) -> Markup {
    match request.view {
        View::Summary => summary::body(request),
        View::Functions => functions::body(request),
        View::Tree => tree::body(request),
        View::Calls => calls::body(request),
        View::Flame => flame::body(request),
        View::Code => code::body(request),
        View::Time => time::body(request),
    }
}

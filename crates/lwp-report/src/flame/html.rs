//! A flame graph as one HTML page.

use std::fmt::Write;

use crate::escape::markup;

use super::graph::{Graph, Style};
use super::svg;

const SCRIPT: &str = include_str!("flame.js");
const CSS: &str = include_str!("flame.css");

/// The graph as a page of its own, with a search field.
pub fn html(graph: &Graph, style: &Style) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{CSS}</style>\n</head>\n<body class=\"page\">\n\
         <form class=\"bar\" onsubmit=\"return false\">\
         <label>Search <input id=\"pattern\" type=\"search\" placeholder=\"regular expression\" \
         autocomplete=\"off\"></label> <output id=\"matched\"></output> \
         <button type=\"button\" id=\"reset\" hidden>Reset zoom</button> \
         <button type=\"button\" id=\"flip\">Flip</button> \
         <span id=\"details\">Point at a box, or go to it with the Tab key: its counts stand here.</span></form>\n",
        markup(&style.title)
    );
    svg::element(&mut out, graph, style, false);
    let _ = write!(out, "<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
    out
}

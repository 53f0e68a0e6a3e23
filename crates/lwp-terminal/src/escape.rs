//! Names come from programs, and programs can be called anything.
//!
//! Promise: R10

use std::borrow::Cow;
use std::fmt::Write;

/// The character that stands for one that is not shown.
const REPLACED: char = '\u{fffd}';

/// `text` for a terminal or a line-oriented file: control characters and what would reorder the
/// line are replaced.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_hostile(c) { REPLACED } else { c }).collect()
}

/// `text` of several lines for a terminal: control characters except line ends and tabs are
/// replaced.
pub fn lines(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hostile_in_lines) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if is_hostile_in_lines(c) { REPLACED } else { c }).collect())
}

/// `text` of several lines with colours for a terminal: sequences that choose colours and weights
/// (`ESC [ … m`, digits and semicolons between) are kept too.
pub fn colored(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let mut out = lines(parts.next().unwrap_or_default()).into_owned();
    for part in parts {
        let style = part.strip_prefix('[').and_then(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';')?;
            rest[end..].starts_with('m').then_some(())
        });
        out.push(if style.is_some() { '\u{1b}' } else { REPLACED });
        out.push_str(&lines(part));
    }
    out
}

/// A JSON document, whose hostile characters can only be parts of strings, with those characters
/// written as escapes: whoever reads it gets the same strings.
pub fn json(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for c in document.chars() {
        match is_hostile_in_lines(c) {
            true => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            false => out.push(c),
        }
    }
    out
}

/// Returns whether a terminal would obey `c`, or show a line that has it in another order or as
/// two.
pub fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Marks, embeddings, overrides and isolates make a line read differently from what it
            // says.
            '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            // Separators of lines and paragraphs.
            | '\u{2028}' | '\u{2029}')
}

fn is_hostile_in_lines(c: char) -> bool {
    is_hostile(c) && !matches!(c, '\n' | '\t')
}

/// `text` inside an XML or HTML element or attribute.
pub fn markup(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has no way to write most control characters.
            c if is_hostile(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// `text` in a cell of a Markdown table.
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        if matches!(c, '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '&' | '@') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// `text` as a field of a CSV file (RFC 4180).
pub fn csv(text: &str) -> String {
    let text = printable(text);
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_escapes() {
        let name = "<b onclick='x'>&\"\u{1b}[2J\n\u{202e}";
        let bad = "\u{fffd}";
        assert_eq!(
            markup(name),
            format!("&lt;b onclick=&#39;x&#39;&gt;&amp;&quot;{bad}[2J{bad}{bad}")
        );
        assert_eq!(printable("a\tb\u{7f}"), format!("a{bad}b{bad}"));
        assert_eq!(lines("a\tb\u{7f}\n\r"), format!("a\tb{bad}\n{bad}"));
        assert_eq!(
            colored("\u{1b}[1;31ma\u{1b}[0m\n\u{1b}[2Jb\u{1b}]0;m\u{1b}\u{9b}1m\u{1b}["),
            format!("\u{1b}[1;31ma\u{1b}[0m\n{bad}[2Jb{bad}]0;m{bad}{bad}1m{bad}[")
        );
        assert_eq!(json("[\"\u{9b}\u{200f}é\"]\n"), "[\"\\u009b\\u200fé\"]\n");
        assert_eq!(markdown("a|b<c>"), "a\\|b\\<c\\>");
        assert_eq!(csv("f(int, char)"), "\"f(int, char)\"");
        assert_eq!(csv("say \"x\""), "\"say \"\"x\"\"\"");
    }
}

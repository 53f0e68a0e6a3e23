//! Names come from programs, and programs can be called anything.

/// `text` for a terminal or a line-oriented file: control characters and what would reorder the line
/// are replaced.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if hostile(c) { '\u{fffd}' } else { c }).collect()
}

fn hostile(c: char) -> bool {
    // Bidirectional overrides make a line read differently from what it says.
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
            c if hostile(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
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
        assert_eq!(markdown("a|b<c>"), "a\\|b\\<c\\>");
        assert_eq!(csv("f(int, char)"), "\"f(int, char)\"");
        assert_eq!(csv("say \"x\""), "\"say \"\"x\"\"\"");
    }
}

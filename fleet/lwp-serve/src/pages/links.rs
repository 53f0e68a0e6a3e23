//! Addresses of pages.

use form_urlencoded::Serializer;

use crate::asking::Words;
use crate::subjects::{ALL, NONE};

/// The address of a view, whose filter and event stay.
pub fn view(word: &str, words: &Words) -> String {
    let kept = ["filter", "e"].map(|name| (name, words.get(name)));
    query(word, &kept)
}

/// The address of a page with some words; empty ones are left out.
pub fn query(page: &str, words: &[(&str, &str)]) -> String {
    let mut out = Serializer::new(String::new());
    for (name, value) in words.iter().filter(|(_, value)| !value.is_empty()) {
        out.append_pair(name, value);
    }
    let words = out.finish();
    if words.is_empty() { format!("/{page}") } else { format!("/{page}?{words}") }
}

/// A term of a filter. What a term cannot hold, a space or one of its own signs, stands for any
/// letters.
pub fn term(key: &str, value: &str) -> String {
    let any = |c: char| if c.is_whitespace() || matches!(c, ',' | '*') { '*' } else { c };
    format!("{key}={}", value.chars().map(any).collect::<String>())
}

/// The filter that chooses a benchmark.
pub fn benchmark(project: &str, benchmark: &str) -> String {
    format!("{} {}", term("project", project), term("benchmark", benchmark))
}

/// The history of a benchmark, or of a function in it.
pub fn history(project: &str, benchmark: &str, function: &str) -> String {
    query("history", &[("filter", &self::benchmark(project, benchmark)), ("f", function)])
}

/// The pages of what a filter chooses, compared with what another one chooses or with nothing.
pub fn of(base: &str, terms: &str, file: &str) -> String {
    let part = |terms: &str, otherwise: &str| {
        escaped(if terms.trim().is_empty() { otherwise } else { terms })
    };
    let compared = if base.is_empty() { "" } else { "?base=0" };
    format!("/of/{}/{}/{file}{compared}", part(base, NONE), part(terms, ALL))
}

/// The address itself if it is one of this server's pages, and that of the recordings otherwise: an
/// address from outside must not lead to another site.
pub fn own(address: &str) -> &str {
    let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_plain && address.starts_with('/') && !address.starts_with("//") { address } else { "/" }
}

/// A text as a part of a path.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'=' => out.push(byte.into()),
            byte => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_hold_whatever_names_hold() {
        assert_eq!(of("", "", "flame"), "/of/none/all/flame");
        assert_eq!(of("id=a", "id=b", "flame"), "/of/id=a/id=b/flame?base=0");
        assert_eq!(of("", "benchmark=a/b c", "x"), "/of/none/benchmark=a%2Fb%20c/x");
        assert_eq!(benchmark("p q", "a,b"), "project=p*q benchmark=a*b");
        assert_eq!(query("top", &[("a", ""), ("b", "&")]), "/top?b=%26");
    }

    #[test]
    fn only_own_pages_are_led_to() {
        for address in ["/steps?e=a%20b", "/of/none/all/flame"] {
            assert_eq!(own(address), address);
        }
        for address in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\nb"] {
            assert_eq!(own(address), "/", "{address}");
        }
    }
}

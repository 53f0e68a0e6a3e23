//! Lines that open a type or the block of its methods. Sources are as rustfmt leaves them, so
//! indentation says to which item a line belongs.

/// The type that a line opens, and whether it is its definition instead of its methods.
pub fn opened(line: &str) -> Option<(String, bool)> {
    let bare = without_visibility(line);
    let (rest, is_struct) = match (bare.strip_prefix("struct "), bare.strip_prefix("impl")) {
        (Some(rest), _) => (rest, true),
        (_, Some(rest)) if !rest.contains(" for ") => (behind_generics(rest), false),
        _ => return None,
    };
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (line.ends_with('{') && !name.is_empty()).then_some((name, is_struct))
}

pub fn without_visibility(line: &str) -> &str {
    let visible = ["pub ", "pub(crate) ", "pub(super) "];
    visible.iter().find_map(|word| line.strip_prefix(word)).unwrap_or(line)
}

fn behind_generics(rest: &str) -> &str {
    if !rest.starts_with('<') {
        return rest.trim_start();
    }
    let mut depth = 0;
    let end = rest.find(|c| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0
    });
    end.map_or("", |end| rest[end + 1..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_blocks_of_methods_are_opened() {
        let open = |line: &str| opened(line);
        assert_eq!(open("pub(crate) struct A<T> {"), Some(("A".into(), true)));
        assert_eq!(open("impl<'a, T: Into<u8>> A<'a, T> {"), Some(("A".into(), false)));
        assert_eq!(
            [open("impl Drop for A {"), open("struct A;"), open("fn f() {")],
            [None, None, None]
        );
    }
}

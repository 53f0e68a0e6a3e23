//! Parts of a function's name as programmers write it: return type, path and parameters.

/// Operators that C++ names functions after; a longer one comes before its beginning.
#[rustfmt::skip]
const OPERATORS: [&str; 41] = [
    "<=>", "<<=", ">>=", "->*",
    "()", "[]", "<<", ">>", "->", "<=", ">=", "==", "!=", "&&", "||", "++", "--",
    "+=", "-=", "*=", "/=", "%=", "^=", "&=", "|=", "\"\"",
    "<", ">", "+", "-", "*", "/", "%", "^", "&", "|", "~", "!", "=", ",", "?",
];

/// Words that can stand behind the parameters of a function.
const BEHIND: [&str; 5] = [" const", " volatile", " &", " noexcept", " ["];

/// Returns the path of a function: its name without return type, parameters and what follows them.
/// A name without parameters is its own path.
pub fn path(name: &str) -> &str {
    let mut start = 0;
    for (at, unit) in units(name) {
        match unit.as_bytes()[0] {
            b' ' if name[at..].starts_with(" [") => return name,
            b' ' if name[at..].starts_with(" const::") => {}
            b' ' => start = at + 1,
            // At the start it is "(anonymous namespace)".
            b'(' if at > start => {
                let rest = &name[at + unit.len()..];
                let last = rest.is_empty() || BEHIND.iter().any(|word| rest.starts_with(word));
                // A function around it, as in "f(int) const::{lambda()#1}", is of the path.
                let around = rest.trim_start_matches(" const").starts_with("::");
                if last && !around {
                    return &name[start..at];
                }
            }
            _ => {}
        }
    }
    name
}

/// Returns whether a path is `wanted`, or ends with it behind a `::`.
pub fn ends_in(path: &str, wanted: &str) -> bool {
    starts(path).any(|at| &path[at..] == wanted)
}

/// The last part of a path, without template and generic arguments.
pub fn last_part(path: &str) -> &str {
    let arguments = units(path).last().filter(|(at, unit)| *at > 0 && unit.starts_with('<'));
    let end = arguments.map_or(path.len(), |(at, _)| at);
    let path = path[..end].trim_end_matches("::").trim_end();
    &path[starts(path).last().unwrap_or(0)..]
}

/// Returns the beginnings of a path's parts.
pub(crate) fn starts(path: &str) -> impl Iterator<Item = usize> {
    let separators = units(path).filter(|(at, _)| path[*at..].starts_with("::"));
    std::iter::once(0).chain(separators.map(|(at, _)| at + 2))
}

/// Splits a name into brackets with all that is in them, names of operators, and single letters.
pub(crate) fn units(name: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let letter = name[at..].chars().next()?;
        let bytes = match (operator(name, at), letter) {
            (Some(bytes), _) => bytes,
            (None, '<' | '(' | '[' | '{') => brackets(name, at),
            (None, letter) => letter.len_utf8(),
        };
        let unit = (at, &name[at..at + bytes]);
        at += bytes;
        Some(unit)
    })
}

/// Returns the length of the brackets that open at `at`, with all that is in them.
fn brackets(name: &str, at: usize) -> usize {
    let (mut depth, mut here) = (0, at);
    while let Some(letter) = name[here..].chars().next() {
        here += match operator(name, here) {
            Some(bytes) => bytes,
            // An arrow before the type that a function returns.
            None if name[here..].starts_with("->") => 2,
            None => letter.len_utf8(),
        };
        match letter {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    here - at
}

/// Returns the length of the operator's name that begins at `at`, such as `operator()`; that of a
/// conversion reaches up to the parameters.
fn operator(name: &str, at: usize) -> Option<usize> {
    const WORD: &str = "operator";
    let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let rest = name[at..].strip_prefix(WORD)?;
    if name[..at].ends_with(in_word) || rest.starts_with(in_word) {
        return None;
    }
    if let Some(sign) = OPERATORS.iter().find(|sign| rest.starts_with(*sign)) {
        let blank = rest[sign.len()..].starts_with(" <");
        return Some(WORD.len() + sign.len() + usize::from(blank));
    }
    let conversion = rest.starts_with(' ').then(|| rest.find('(').unwrap_or(rest.len()));
    conversion.map(|bytes| WORD.len() + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_neither_types_nor_parameters() {
        let same = [
            "main",
            "mycrate::parse::<i32>",
            "<a::T<u32> as b::Tr>::go",
            "core::ops::FnOnce::call_once{{vtable.shim}}",
            "f [cold]",
            "main.(*T).Method",
            "LazyCompile:~go /a b.js:1",
            "a<b",
            "((((",
            "operator",
            "",
        ];
        for name in same {
            assert_eq!(path(name), name);
        }
        let cases = [
            ("f(int) [cold]", "f"),
            ("ns::f(int, std::string)", "ns::f"),
            ("(anonymous namespace)::anon(int)", "(anonymous namespace)::anon"),
            ("int (anonymous namespace)::t<int>(int)", "(anonymous namespace)::t<int>"),
            ("F::operator()(int) const", "F::operator()"),
            ("op<int>::operator()(int)", "op<int>::operator()"),
            ("F::operator int() const", "F::operator int"),
            ("F::operator<(F const&) const", "F::operator<"),
            ("F::operator->()", "F::operator->"),
            ("bool a::operator<< <int>(int, F)", "a::operator<< <int>"),
            ("operator new[](unsigned long)", "operator new[]"),
            ("int tf<int>(int (*)(int))", "tf<int>"),
            ("decltype(x) g<int>(int)", "g<int>"),
            ("a<&(F::operator<(F))>::f(int)", "a<&(F::operator<(F))>::f"),
            (
                "f(int) const::{lambda(int)#1}::operator()(int) const",
                "f(int) const::{lambda(int)#1}::operator()",
            ),
        ];
        for (name, wanted) in cases {
            assert_eq!(path(name), wanted, "{name}");
        }
    }

    #[test]
    fn last_parts_have_no_arguments() {
        for (path, last) in [
            ("a::b::parse", "parse"),
            ("parse<core::ops::Range<u64>>", "parse"),
            ("mycrate::parse::<i32>", "parse"),
            ("<a::T<u32> as b::Tr>::go", "go"),
            ("<a as b>", "<a as b>"),
            ("op<int>::operator()", "operator()"),
            ("a::operator<< <int>", "operator<<"),
            ("(anonymous namespace)::anon", "anon"),
            ("f(int)::{lambda(int)#1}", "{lambda(int)#1}"),
            ("main", "main"),
            ("::", ""),
        ] {
            assert_eq!(last_part(path), last, "{path}");
        }
        assert!(ends_in("a::b::c<d::e>", "b::c<d::e>") && ends_in("a", "a"));
        assert!(!ends_in("a::b::c<d::e>", "e>") && !ends_in("a::sparse", "parse"));
    }
    proptest::proptest! {
        #[test]
        fn no_name_is_too_strange(name in "(operator|::|->|[a<>()\\[\\]{}é -]){0,20}") {
            proptest::prop_assert!(name.contains(path(&name)));
            proptest::prop_assert!(path(&name).contains(last_part(path(&name))));
            proptest::prop_assert!(ends_in(&name, &name));
        }
    }
}

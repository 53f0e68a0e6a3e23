//! Names in narrow places: whatever has to go, the function's own name stays.

use crate::demangle::whole_function;
use crate::parts::{self, last_part, path, units};

/// Stands for what was left out.
const GAP: &str = "…";

/// Template arguments that C++'s library adds to those that a programmer writes.
const DEFAULTS: [&str; 6] = [
    "std::allocator<",
    "std::char_traits<",
    "std::default_delete<",
    "std::equal_to<",
    "std::hash<",
    "std::less<",
];

/// The longest name that is simplified: its brackets are in each other, each at a level of its own.
const LONGEST: usize = 4 << 10;

/// Names of C++'s library as programmers know them.
const ALIASES: [(&str, &str); 4] = [
    ("std::__cxx11::", "std::"),
    ("std::__1::", "std::"),
    ("std::basic_string<char>", "std::string"),
    ("std::basic_string_view<char>", "std::string_view"),
];

/// Returns `name` in at most `room` characters. The types and parameters go first, then the outer
/// parts of the path; the last part is cut at its end, and only if it does not fit alone.
pub fn fitted(name: &str, room: usize) -> String {
    if fits(name, room) {
        return name.to_owned();
    }
    let base = whole_function(name);
    let suffix = name.strip_prefix(&base).unwrap_or_default();
    let room_of_base = room.saturating_sub(suffix.chars().count());
    if !suffix.is_empty() && room_of_base >= room / 2 {
        return format!("{}{suffix}", fitted(&base, room_of_base));
    }
    let plain = simplified(name);
    let path = path(&plain);
    let bare = without_arguments(path);
    for attempt in [plain.as_str(), path, &bare] {
        if fits(attempt, room) {
            return attempt.to_owned();
        }
    }
    // Names are as long as a program likes, so that each part is looked at once.
    let (mut left, mut before, mut own) = (bare.chars().count(), 0, 0);
    for (separator, at) in inner_parts(&bare) {
        left -= bare[before..at].chars().count();
        (before, own) = (at, at);
        if GAP.chars().count() + separator.len() + left <= room {
            return format!("{GAP}{separator}{}", &bare[at..]);
        }
    }
    let own = last_part(&bare[own..]);
    // Of code without a name, the place tells more than the file.
    let place = name.rfind("+0x").map(|at| format!("{GAP}{}", &name[at..]));
    match place.filter(|place| fits(place, room)) {
        _ if fits(own, room) => own.to_owned(),
        Some(place) => place,
        None => cut(own, room),
    }
}

/// Two short forms of a name: its path without types and arguments, and the last part of that. They
/// are for those who do not know the room yet.
pub fn short_forms(name: &str) -> (String, String) {
    let plain = simplified(name);
    let bare = without_arguments(path(&plain));
    let own = inner_parts(&bare).last().map_or(0, |(_, at)| *at);
    let own = last_part(&bare[own..]).to_owned();
    (bare, own)
}

/// Where the parts of a path begin behind the first one, with what separates them from the one
/// before: `::`, or, in a path that has none, dots and slashes, as in names of Go, D and Java.
fn inner_parts(path: &str) -> Vec<(&str, usize)> {
    let colons: Vec<(&str, usize)> = parts::starts(path).skip(1).map(|at| ("::", at)).collect();
    let is_one_word = units(path).all(|(_, unit)| unit != " ") && !path.contains("+0x");
    if !colons.is_empty() || !is_one_word {
        return colons;
    }
    let is_name = |at: &usize| {
        let first = path[*at..].chars().next();
        first.is_some_and(|it| it.is_alphabetic() || ['_', '(', '~', '$'].contains(&it))
    };
    let separators = units(path).filter(|(at, unit)| *at > 0 && [".", "/"].contains(unit));
    let starts = separators.map(|(at, unit)| (unit, at + 1));
    starts.filter(|(_, at)| is_name(at)).collect()
}

fn fits(name: &str, room: usize) -> bool {
    name.chars().count() <= room
}

/// The beginning of a name, and a sign that it goes on if it has more characters than `room`.
pub fn clipped(name: &str, room: usize) -> String {
    if fits(name, room) { name.to_owned() } else { cut(name, room) }
}

/// The beginning of a name, and a sign that it goes on.
fn cut(name: &str, room: usize) -> String {
    match room {
        0 => String::new(),
        room => name.chars().take(room - 1).chain(GAP.chars()).collect(),
    }
}

/// Returns a C++ name without default template arguments, and with the names of library types that
/// programmers know. Names of other languages stay as they are.
pub fn simplified(name: &str) -> String {
    if name.len() > LONGEST {
        return name.to_owned();
    }
    let mut out = simplified_units(name);
    for (long, short) in ALIASES {
        out = out.replace(long, short);
    }
    out
}

fn simplified_units(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, unit) in units(name) {
        let behind = name[at + unit.len()..].chars().next();
        let number = behind.is_some_and(|next| next.is_ascii_digit() || next == '-');
        match unit.as_bytes()[0] {
            // The type of a number: `(unsigned long)32`.
            b'(' if number && unit.ends_with(')') => {}
            b'<' if at > 0 && unit.len() > 2 && unit.ends_with('>') => {
                out.push_str(&arguments(&unit[1..unit.len() - 1]));
            }
            b'(' if unit.len() > 2 && unit.ends_with(')') => {
                out.push('(');
                out.push_str(&simplified_units(&unit[1..unit.len() - 1]));
                out.push(')');
            }
            _ => out.push_str(unit),
        }
    }
    out
}

/// Template arguments with their brackets.
fn arguments(text: &str) -> String {
    let commas = units(text).filter(|(_, unit)| *unit == ",").map(|(at, _)| at);
    let ends = commas.chain([text.len()]);
    let mut start = 0;
    let mut kept = Vec::new();
    for end in ends {
        let argument = text[start..end].trim();
        start = end + 1;
        let default = DEFAULTS.iter().any(|it| argument.starts_with(it));
        if kept.is_empty() || !default {
            kept.push(simplified_units(argument));
        }
    }
    format!("<{}>", kept.join(", "))
}

/// A path whose template and generic arguments are left out. Parts that are nothing else, as in
/// `<a as b>::c`, stay.
fn without_arguments(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for (at, unit) in units(path) {
        let opens_part = at == 0 || path[..at].ends_with("::") && !is_turbofish(path, at, unit);
        match unit.as_bytes()[0] {
            b'<' if !opens_part && unit.len() > 2 => {
                out.push('<');
                out.push_str(GAP);
                out.push('>');
            }
            // D's arguments.
            b'(' if path[..at].ends_with('!') && unit.len() > 2 => {
                out.push('(');
                out.push_str(GAP);
                out.push(')');
            }
            _ => out.push_str(unit),
        }
    }
    out
}

/// Returns whether brackets behind `::` are the arguments of the part before: `parse::<i32>`.
fn is_turbofish(path: &str, at: usize, unit: &str) -> bool {
    !path[at + unit.len()..].starts_with("::") || at > 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_arguments_are_left_out() {
        let cases = [
            (
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
                "std::vector<int>::push_back(int const&)",
            ),
            (
                "std::map<std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >, int, std::less<int>, std::allocator<int> >::at",
                "std::map<std::string, int>::at",
            ),
            ("f<(unsigned long)32, (bool)1>(int)", "f<32, 1>(int)"),
            (
                "std::allocator<int>::allocate(unsigned long)",
                "std::allocator<int>::allocate(unsigned long)",
            ),
            ("core::ptr::swap::<u64>", "core::ptr::swap::<u64>"),
            ("F::operator()(int) const", "F::operator()(int) const"),
            ("operator new(unsigned long)", "operator new(unsigned long)"),
            ("main.(*T).Method", "main.(*T).Method"),
        ];
        for (long, short) in cases {
            assert_eq!(simplified(long), short);
        }
    }

    #[test]
    fn the_function_s_own_name_stays() {
        let long = "std::_Rb_tree<int, std::pair<int const, long>, std::_Select1st<std::pair<int const, long> >, std::less<int>, std::allocator<std::pair<int const, long> > >::_M_insert_unique_node(int*)";
        for room in 24..long.len() {
            let name = fitted(long, room);
            assert!(name.chars().count() <= room, "{name}");
            assert!(
                name.contains("_M_insert_unique_node") || name.contains("_M_insert_unique…"),
                "{room}: {name}"
            );
        }
        assert_eq!(fitted("regex_automata::hybrid::search::find_fwd", 20), "…::search::find_fwd");
        assert_eq!(fitted("regex_automata::hybrid::search::find_fwd", 14), "…::find_fwd");
        assert_eq!(fitted("regex_automata::hybrid::search::find_fwd", 9), "find_fwd");
        assert_eq!(fitted("regex_automata::hybrid::search::find_fwd", 5), "find…");
        assert_eq!(fitted("a::check(int) [cold]", 17), "a::check [cold]");
        assert_eq!(fitted("main", 4), "main");
        let deep = format!("{}{}", "(".repeat(30_000), ")".repeat(30_000));
        assert_eq!(fitted(&deep, 3), "((\u{2026}");
        let wide = "a::".repeat(30_000) + "own_name";
        assert_eq!(fitted(&wide, 9), "own_name");
        let forms = |bare: &str, own: &str| (bare.to_owned(), own.to_owned());
        let long = "void a::Table<unsigned long>::insert(int)";
        assert_eq!(short_forms(long), forms("a::Table<…>::insert", "insert"));
        assert_eq!(short_forms("a/b.(*T).Do"), forms("a/b.(*T).Do", "Do"));
        assert_eq!(short_forms("main"), forms("main", "main"));
        for (long, room, short) in [
            ("github.com/owner/a-package.(*Parser).Parse", 30, "…/a-package.(*Parser).Parse"),
            ("github.com/owner/a-package.(*Parser).Parse", 20, "….(*Parser).Parse"),
            ("gopkg.in/yaml.v3.parse", 12, "….v3.parse"),
            ("com.acme.product.Registry.insertAll(java.lang.String)", 22, "….Registry.insertAll"),
            ("com.acme.product.Registry.insertAll", 9, "insertAll"),
            (
                "std.algorithm.Filter!(a.b().c, int).Filter.popFront()",
                28,
                "….Filter!(…).Filter.popFront",
            ),
            ("std.algorithm.Filter!(a.b().c, int).Filter.popFront()", 20, "….Filter.popFront"),
            ("JS:*handle /srv/app.js:1:2", 14, "JS:*handle /s…"),
            ("a_long_name_of_a_function", 8, "a_long_…"),
        ] {
            assert_eq!(fitted(long, room), short, "{long}");
        }
        assert_eq!(fitted("main", 0), "");
        assert_eq!(fitted("libcrypto.so.3+0x12345", 10), "…+0x12345");
    }

    proptest::proptest! {
        #[test]
        fn no_name_is_too_strange(name in "(operator|::|->|std::less<|[a<>()\\[\\]{}é, 1-]){0,20}", room in 0usize..40) {
            proptest::prop_assert!(fitted(&name, room).chars().count() <= room);
            let _ = simplified(&name);
        }
    }
}

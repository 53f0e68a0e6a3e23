//! The sizes of types: fields, and methods of their own. Sources are as rustfmt leaves them, so
//! indentation says to which item a line belongs.

use std::collections::BTreeMap;

/// Fields of a type, beyond which it holds more than one idea.
const MOST_FIELDS: usize = 12;
/// Methods of a type, those of traits left out, beyond which it does.
const MOST_METHODS: usize = 25;

/// Types of one package by name: fields and methods.
pub type Sizes = BTreeMap<String, [usize; 2]>;

/// Packages whose types are measured.
pub const MEASURED: &[&str] = &["lwp-dbt", "lwp-ptrace", "lwp-vcpu"];

/// Adds the fields and methods that a file without its tests has, by type. Of types of one name the
/// fields of the largest count.
pub fn measure(lines: &[&str], sizes: &mut Sizes) {
    let mut within = None;
    let mut its_fields = 0;
    for line in lines {
        match *line {
            "}" => within = None,
            _ if !line.starts_with(' ') => {
                if let Some(opened) = opened(line) {
                    (within, its_fields) = (Some(opened), 0);
                }
            }
            _ => {
                let Some((name, is_struct)) = &within else { continue };
                let Some(text) = line.strip_prefix("    ").filter(|it| !it.starts_with(' ')) else {
                    continue;
                };
                let [fields, methods] = sizes.entry(String::clone(name)).or_default();
                match is_struct {
                    true => {
                        its_fields += usize::from(is_field(text));
                        *fields = its_fields.max(*fields);
                    }
                    false => *methods += usize::from(is_method(text)),
                }
            }
        }
    }
}

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

fn is_method(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let first = words.find(|word| !word.starts_with("pub") && !["const", "unsafe"].contains(word));
    first == Some("fn")
}

fn is_field(text: &str) -> bool {
    let Some((name, _)) = without_visibility(text).split_once(':') else { return false };
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// A line for each type of a package that is larger than it may be.
pub fn faults(package: &str, sizes: &Sizes) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, [fields, methods]) in sizes {
        let kinds = [("fields", *fields, MOST_FIELDS), ("methods", *methods, MOST_METHODS)];
        for (what, found, most) in kinds.into_iter().filter(|(_, found, most)| found > most) {
            faults.push(format!("{package}: {name} has {found} {what}, and may have {most}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Sizes {
        let mut sizes = Sizes::new();
        measure(&text.lines().collect::<Vec<_>>(), &mut sizes);
        sizes
    }

    #[test]
    fn fields_and_methods_of_a_type_are_counted() {
        let text = "\
pub struct One<'a> {
    /// A field: one.
    pub a: &'a u8,
    b: fn(u8),
}

impl<'a, T: Into<u8>> One<'a> {
    pub(super) const fn f() {
        fn g() {}
    }

    fn h(
        &self,
    ) {
    }
}

impl Drop for One<'_> {
    fn drop(&mut self) {}
}
";
        assert_eq!(sizes(text), Sizes::from([("One".to_owned(), [2, 2])]));
    }

    #[test]
    fn types_of_one_name_share_no_fields() {
        let text = "\
struct One {
    a: u8,

    b: u8,
}

struct One {
    c: u8,
}
";
        assert_eq!(sizes(text), Sizes::from([("One".to_owned(), [2, 0])]));
    }

    #[test]
    fn a_type_may_not_outgrow_its_bounds() {
        let fits = Sizes::from([("T".to_owned(), [MOST_FIELDS, MOST_METHODS])]);
        assert_eq!(faults("lwp-vcpu", &fits), [""; 0]);
        let large = Sizes::from([("T".to_owned(), [MOST_FIELDS + 1, MOST_METHODS + 1])]);
        assert_eq!(faults("lwp-vcpu", &large).len(), 2);
    }
}

//! Languages whose names have dots: Zig's `app.cold` is a function of its own, while C's `f.cold`
//! is a part of `f`.

use rustc_hash::FxHashSet;

use super::Elf;
use crate::demangle::before_suffix;

/// Returns whether a symbol looks like a part of a function which the file does not have, but
/// other names begin like it.
pub(super) fn are_in_names(elf: &Elf) -> bool {
    let whole = |name: &str| before_suffix(name, &["cold", "warm"]).len();
    let names = || elf.symbols().map(|symbol| symbol.name);
    let parts = names().filter(|name| whole(name) < name.len());
    let mut wholes: FxHashSet<&str> = parts.map(|name| &name[..whole(name)]).collect();
    if wholes.is_empty() {
        return false;
    }
    for name in names() {
        wholes.remove(name);
    }
    names().any(|name| {
        let (first, rest) = name.split_once('.').unwrap_or((name, ""));
        let is_name = rest.starts_with(|letter: char| letter.is_alphabetic() || letter == '_');
        is_name && before_suffix(name, &WORDS) == name && wholes.contains(first)
    })
}

/// Words of compilers, which many files have without the function that they were added to.
const WORDS: [&str; 6] = ["cold", "warm", "part", "isra", "constprop", "llvm"];

#[cfg(test)]
mod tests {
    use crate::elf::Entry;

    use super::*;

    fn elf(names: &[&str]) -> Elf {
        let mut elf = Elf::default();
        for (name, address) in names.iter().zip(1..) {
            let name = elf.keep_name(name).expect("room");
            elf.functions.push(Entry { address, size: 1, name, stub: false, indirect: false });
        }
        elf
    }

    /// Promise: R119
    #[test]
    fn parts_without_their_function_are_names_of_another_language() {
        assert!(are_in_names(&elf(&["app.warmup", "app.cold", "start.main"])));
        assert!(!are_in_names(&elf(&[
            "f",
            "f.cold",
            "f.isra.0",
            "f.isra.0.cold",
            "_Z1gv",
            "_Z1gv.cold.1"
        ])));
        assert!(!are_in_names(&elf(&["app.warmup", "f.constprop.0", "cold"])));
        // The function's own name may have given way to another one at its address.
        assert!(!are_in_names(&elf(&["_alias", "f.cold", "f.part.0", "f.1234"])));
        assert!(!are_in_names(&elf(&[])));
    }
}

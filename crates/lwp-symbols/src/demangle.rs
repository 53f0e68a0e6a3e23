//! Names as programmers write them.

use crate::parts::path;

/// The end of the name of a stub that leads to another module's function.
const STUB: &str = "@plt";

/// The name that a programmer would write for a linker's symbol; the symbol itself where it is not
/// mangled. Control characters, which no language has in names, are replaced.
pub fn demangle(symbol: &str) -> String {
    // The linker's stubs have the names of the functions that they lead to.
    if let Some(function) = symbol.strip_suffix(STUB) {
        return format!("{}{STUB}", demangle(function));
    }
    // Compilers append what they did to a function after a dot.
    let (base, suffix) = split_suffix(symbol);
    let name = match rustc_demangle::try_demangle(base) {
        // The alternate form leaves the hash of legacy names out.
        Ok(name) => format!("{name:#}"),
        Err(_) => cpp(base).unwrap_or_else(|| base.to_owned()),
    };
    let name = match suffix.is_empty() {
        true => name,
        false => format!("{name} [{}]", &suffix[1..]),
    };
    printable(&name)
}

fn cpp(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_Z") && !symbol.starts_with("__Z") {
        return None;
    }
    let options = cpp_demangle::DemangleOptions::new().recursion_limit(200);
    let parsed = cpp_demangle::Symbol::new(symbol).ok()?;
    parsed.demangle_with_options(&options).ok()
}

/// Splits `.cold`, `.part.0`, `.constprop.1`, `.isra.0`, `.llvm.123` and symbol versions off.
fn split_suffix(symbol: &str) -> (&str, &str) {
    const KNOWN: [&str; 8] =
        [".cold", ".part.", ".constprop.", ".isra.", ".lto_priv.", ".llvm.", ".clone.", ".warm"];
    let at = KNOWN.iter().filter_map(|suffix| symbol.find(suffix)).filter(|at| *at > 0).min();
    symbol.split_at(at.unwrap_or(symbol.len()))
}

/// A name without its parameters and return type, for narrow places.
pub fn short_name(symbol: &str) -> String {
    match symbol.strip_suffix(STUB) {
        Some(function) => format!("{}{STUB}", short_name(function)),
        None => path(&demangle(symbol)).to_owned(),
    }
}

/// The path of a name that stays from build to build; that of a part of a function says which part.
pub(crate) fn stable_path(symbol: &str) -> String {
    let name = stable_name(symbol);
    match name.rfind(" [").filter(|_| name.ends_with(']')) {
        Some(at) => format!("{}{}", path(&name[..at]), &name[at..]),
        None => path(&name).to_owned(),
    }
}

/// Returns the part of a name that stays from build to build: without hashes and the compiler's
/// numbering.
pub fn stable_name(symbol: &str) -> String {
    let (base, suffix) = split_suffix(symbol);
    let name = demangle(base);
    let kind = suffix.split('.').nth(1).unwrap_or("");
    match kind {
        "" | "llvm" | "lto_priv" => name,
        kind => format!("{name} [{kind}]"),
    }
}

/// Without control characters, which would reach a terminal.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_scheme() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("_ZN3std2io4Read17h0123456789abcdefE"), "std::io::Read");
        assert_eq!(demangle("_RNvCs15kBYyAo9fc_7mycrate7example"), "mycrate::example");
        assert_eq!(
            demangle("_ZNSt6vectorIiSaIiEE9push_backERKi.cold"),
            "std::vector<int, std::allocator<int> >::push_back(int const&) [cold]"
        );
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
        assert_eq!(demangle("_Znwm@plt"), "operator new(unsigned long)@plt");
        assert_eq!(demangle("@plt"), "@plt");
        assert_eq!(demangle("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
    }

    #[test]
    fn short_and_stable_names() {
        assert_eq!(
            short_name("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back"
        );
        assert_eq!(short_name("_Znwm@plt"), "operator new@plt");
        assert_eq!(short_name("_ZN12_GLOBAL__N_14anonEi"), "(anonymous namespace)::anon");
        assert_eq!(short_name("_ZN1FclEi"), "F::operator()");
        assert_eq!(short_name("_Z2tfIiET_PFS0_S0_E"), "tf<int>");
        assert_eq!(stable_path("_ZN1FclEi.cold"), "F::operator() [cold]");
        assert_eq!(stable_path("_ZN1FclEi.llvm.123"), "F::operator()");
        assert_eq!(stable_name("f.constprop.3"), "f [constprop]");
        assert_eq!(stable_name("f.llvm.12345"), "f");
        let (a, b) = ("_ZN1a1b17h0123456789abcdefE", "_ZN1a1b17hfedcba9876543210E");
        assert_eq!(stable_name(a), stable_name(b));
    }
}

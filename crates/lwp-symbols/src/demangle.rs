//! Names as programmers write them.

mod conventions;
mod dlang;

use crate::parts::path;

/// The end of the name of a stub that leads to another module's function.
const STUB: &str = "@plt";

/// The origin of a name, which says whether a compiler may have appended something to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A linker's symbol, as compilers of C and its relatives make them.
    Linker,
    /// A name of another language, or of another program's file: a dot in it is the language's own.
    Foreign,
}

/// The name that a programmer would write for a linker's symbol; the symbol itself where it is not
/// mangled. Control characters, which no language has in names, are replaced.
pub fn demangle(symbol: &str) -> String {
    demangle_as(symbol, Scheme::Linker)
}

/// The name that a programmer would write for a symbol of this scheme.
pub fn demangle_as(symbol: &str, scheme: Scheme) -> String {
    // The linker's stubs have the names of the functions that they lead to.
    if let Some(function) = symbol.strip_suffix(STUB) {
        return format!("{}{STUB}", demangle_as(function, scheme));
    }
    // Compilers append what they did to a function after a dot.
    let (base, suffix) = split_suffix(symbol, scheme);
    let name = match rustc_demangle::try_demangle(base) {
        // The alternate form leaves the hash of legacy names out.
        Ok(name) => format!("{name:#}"),
        Err(_) => cpp(base)
            .or_else(|| conventions::ocaml(base))
            .or_else(|| conventions::fortran(base))
            .or_else(|| dlang::dlang(base))
            .unwrap_or_else(|| base.to_owned()),
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

/// Words that compilers append to a symbol behind a dot, and whether a number always follows.
const SUFFIXES: [(&str, bool); 10] = [
    ("cold", false),
    ("warm", false),
    ("part", true),
    ("__part", true),
    ("constprop", true),
    ("isra", true),
    ("lto_priv", true),
    ("llvm", true),
    ("clone", true),
    ("__uniq", true),
];

/// The parts of a coroutine, behind a mangled name only: GCC's, and LLVM's.
const COROUTINES: [&str; 4] = ["actor", "destroy", "resume", "cleanup"];

/// Splits what compilers have appended off the end of a symbol, as in `f.isra.0.cold`.
fn split_suffix(symbol: &str, scheme: Scheme) -> (&str, &str) {
    let is_mangled = |base: &str| ["_Z", "__Z", "_R", "_D"].iter().any(|it| base.starts_with(it));
    let is_suffix = |word: &str, numbered: bool| {
        SUFFIXES.iter().any(|(known, always)| *known == word && (numbered || !always))
            || is_mangled(symbol) && !numbered && COROUTINES.contains(&word)
    };
    let mut base = symbol;
    while let Some((before, word)) = base.rsplit_once('.') {
        let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        base = match before.rsplit_once('.') {
            Some((before, word)) if is_number && is_suffix(word, true) => before,
            _ if is_suffix(word, false) => before,
            _ => break,
        };
    }
    // Other languages have dots in names: `main.cold` of Go is a function of its own.
    let linked = scheme == Scheme::Linker && !base.is_empty() && !base.contains('.');
    match is_mangled(base) || linked {
        true => symbol.split_at(base.len()),
        false => (symbol, ""),
    }
}

/// A linker's symbol up to the first of these words of a compiler, at which a part of a function
/// begins: `f.isra.0` of `f.isra.0.cold.3` for `cold`. Other symbols stay as they are.
pub fn before_suffix<'a>(symbol: &'a str, words: &[&str]) -> &'a str {
    let (base, suffix) = split_suffix(symbol, Scheme::Linker);
    let mut end = base.len();
    for word in suffix.split('.').skip(1) {
        if words.contains(&word) {
            return &symbol[..end];
        }
        end += 1 + word.len();
    }
    symbol
}

/// The function that a name in a report is a body of: a part that a compiler has moved elsewhere, a
/// part of a coroutine, or a translation of one tier, is one of several.
pub fn whole_function(name: &str) -> String {
    // `f(int) [cold]`, `void [app] P::Main()[Tier0]`
    let last = name.rfind('[').filter(|at| *at > 0 && name.ends_with(']'));
    let part = last.map(|at| &name[at + 1..name.len() - 1]).filter(|part| {
        let of_compiler = part.split('.').all(|word| {
            let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            is_number || SUFFIXES.iter().any(|it| it.0 == word) || COROUTINES.contains(&word)
        });
        let of_runtime = part.contains("Tier") || ["PreJIT", "ReadyToRun"].contains(part);
        of_compiler || of_runtime
    });
    let name = match (part, last) {
        (Some(_), Some(at)) => name[..at].trim_end(),
        _ => name,
    };
    // `JS:*f a.js:1`: V8 marks the tier with a sign.
    let (kind, rest) = name.split_once(':').unwrap_or((name, ""));
    let tier = rest.starts_with(['~', '^', '+', '*', '\'']);
    match tier && ["JS", "LazyCompile", "Function", "Script", "Eval"].contains(&kind) {
        true => format!("{kind}:{}", &rest[1..]),
        false => name.to_owned(),
    }
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
    let (base, suffix) = split_suffix(symbol, Scheme::Linker);
    with_kinds(path(&demangle(base)), suffix)
}

/// Returns the part of a name that stays from build to build: without hashes and the compiler's
/// numbering.
pub fn stable_name(symbol: &str) -> String {
    stable_name_as(symbol, Scheme::Linker)
}

/// Returns the part of a name that stays from build to build, of a symbol of this scheme.
pub fn stable_name_as(symbol: &str, scheme: Scheme) -> String {
    let (base, suffix) = split_suffix(symbol, scheme);
    with_kinds(&demangle_as(base, scheme), suffix)
}

/// A name with the words of a compiler's suffix that tell one part of a function from another.
fn with_kinds(name: &str, suffix: &str) -> String {
    let words = suffix.split('.').filter(|word| {
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        !is_number && !["llvm", "lto_priv", "__uniq"].contains(word)
    });
    let kinds: Vec<&str> = words.collect();
    match kinds.is_empty() {
        true => name.to_owned(),
        false => format!("{name} [{}]", kinds.join(".")),
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
        assert_eq!(demangle("_D3app3addFiiZi.part.0"), "app.add(int, int) [part.0]");
        assert_eq!(short_name("_D3app__T3maxTiZQhFiiZi"), "app.max!(int).max");
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
        assert_eq!(stable_name("f.llvm.123.cold"), "f [cold]");
        assert_eq!(stable_name("f.part.0.cold.1"), "f [part.cold]");
    }

    #[test]
    fn bodies_are_of_one_function() {
        for (body, function) in [
            ("check(int) [cold]", "check(int)"),
            ("f [isra.0.cold]", "f"),
            ("f() [resume]", "f()"),
            ("void [app] P::Main(string[])[Tier0]", "void [app] P::Main(string[])"),
            ("JS:*f /a.js:1:2", "JS:f /a.js:1:2"),
            ("JS:~f /a.js:1:2", "JS:f /a.js:1:2"),
            ("a::b", "a::b"),
            ("operator new[]", "operator new[]"),
            ("f(int [3])", "f(int [3])"),
            ("[0x1000]", "[0x1000]"),
        ] {
            assert_eq!(whole_function(body), function);
        }
    }

    /// Promise: R119
    #[test]
    fn parts_are_known_by_the_end_of_their_symbols() {
        for (symbol, whole) in [
            ("f.cold", "f"),
            ("f.isra.0.cold.3", "f.isra.0"),
            ("_Z1fv.part.0.constprop.1", "_Z1fv"),
            ("f.constprop.0", "f.constprop.0"),
            ("main.coldStart", "main.coldStart"),
            ("main.part.Sum", "main.part.Sum"),
            ("main.cold.func1", "main.cold.func1"),
            (".cold", ".cold"),
            ("f", "f"),
        ] {
            assert_eq!(before_suffix(symbol, &["cold", "part"]), whole);
        }
        assert_eq!(before_suffix("f.part.0.cold", &["cold"]), "f.part.0");
        assert_eq!(demangle("_Z1fv.__part.2"), "f() [__part.2]");
    }

    /// Promise: R119
    #[test]
    fn only_the_end_of_a_linkers_symbol_is_a_suffix() {
        let verbatim = [
            "main.warmup",
            "main.coldStart.func1",
            "main.part.Sum",
            "github.com/a/clone.(*T).Do",
            "main.cold.func1",
            "com.acme.warm",
            "com.acme.part.0",
            "a.clone.Cache.get",
            "f.part",
            "f.llvm.",
            ".cold",
            "cold",
            "f.cold.x",
            "f.warmup",
        ];
        for name in verbatim {
            assert_eq!(demangle(name), name);
            assert_eq!(stable_name(name), name);
            assert_eq!(stable_path(name), name);
        }
        let foreign = |name| (demangle_as(name, Scheme::Foreign), demangle(name));
        assert_eq!(foreign("main.cold"), ("main.cold".into(), "main [cold]".into()));
        assert_eq!(foreign("f.isra.0.cold"), ("f.isra.0.cold".into(), "f [isra.0.cold]".into()));
        assert_eq!(demangle("_Z1fv.resume"), "f() [resume]");
        assert_eq!(demangle("f.resume"), "f.resume");
        // A mangled name is a linker's, wherever it comes from.
        assert_eq!(foreign("_Z1fv.cold"), ("f() [cold]".into(), "f() [cold]".into()));
        assert_eq!(stable_name_as("_Z1fv.part.0", Scheme::Foreign), "f() [part]");
        assert_eq!(stable_name_as("main.cold", Scheme::Foreign), "main.cold");
    }
}

//! Functions by name: the other way round.

use std::io;
use std::path::{Path, PathBuf};

use crate::debug_file;
use crate::demangle::{demangle, stable_name, stable_path};
use crate::elf::{Elf, Symbol};
use crate::files::Files;
use crate::mini_debug;
use crate::parts::{ends_in, last_part};

/// A function that answers to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFunction {
    /// Its symbol as the linker knows it.
    pub symbol: String,
    /// Its address as the file has it.
    pub address: u64,
    /// Offset in the file of its first byte.
    pub first: u64,
    /// Offset in the file of its last byte.
    pub last: u64,
    /// It is not the function but what chooses one when the program starts.
    pub indirect: bool,
}

/// Returns whether the function of a symbol answers to a name.
type Fits = fn(&str, &str) -> bool;

/// The ways in which a name fits, best first.
const FITS: [Fits; 5] = [
    |symbol, name| symbol == name,
    |symbol, name| demangle(symbol) == name,
    |symbol, name| stable_name(symbol) == name || stable_path(symbol) == name,
    |symbol, name| ends_in(&stable_path(symbol), name),
    |symbol, name| last_part(&stable_path(symbol)) == name,
];

/// The functions of the file at `path` that answer best to `name`: a symbol, a name as a programmer
/// writes it, that without parameters and return type, its last parts, or the last one without
/// template arguments. Several names of one function are one.
///
/// Names come from the file, its debug file, or its MiniDebugInfo. Stubs of linkage tables are left
/// out.
///
/// # Errors
///
/// Where the file cannot be read; one that is no ELF file has no functions.
pub fn functions_named(
    path: &Path,
    name: &str,
    debug_roots: &[PathBuf],
) -> io::Result<Vec<NamedFunction>> {
    let Some((elf, names)) = tables(path, debug_roots)? else { return Ok(Vec::new()) };
    for fits in FITS {
        let mut found: Vec<NamedFunction> = names
            .iter()
            .flat_map(Elf::symbols)
            .filter(|symbol| !symbol.stub && fits(symbol.name, name))
            .filter_map(|symbol| place(&elf, &symbol))
            .collect();
        found.sort_by_key(|function| (function.address, function.indirect));
        found.dedup_by_key(|function| function.address);
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The functions of the file at `path` of whose names, as symbols and demangled, `fits` holds, by
/// address. Stubs of linkage tables are left out.
///
/// # Errors
///
/// As for [`functions_named`].
pub fn functions_like(
    path: &Path,
    fits: &dyn Fn(&str) -> bool,
    debug_roots: &[PathBuf],
) -> io::Result<Vec<NamedFunction>> {
    let Some((elf, names)) = tables(path, debug_roots)? else { return Ok(Vec::new()) };
    let fits = |symbol: &Symbol<'_>| fits(symbol.name) || fits(&demangle(symbol.name));
    let mut found: Vec<NamedFunction> = names
        .iter()
        .flat_map(Elf::symbols)
        .filter(|symbol| !symbol.stub && fits(symbol))
        .filter_map(|symbol| place(&elf, &symbol))
        .collect();
    found.sort_by_key(|function| (function.address, function.indirect));
    found.dedup_by_key(|function| function.address);
    Ok(found)
}

/// The symbols of the functions of the file at `path`.
pub(crate) fn symbols_of(path: &Path, debug_roots: &[PathBuf]) -> io::Result<Vec<String>> {
    let names = tables(path, debug_roots)?.map(|(_, names)| names).unwrap_or_default();
    let symbols = names.iter().flat_map(Elf::symbols).filter(|symbol| !symbol.stub);
    Ok(symbols.map(|symbol| symbol.name.to_owned()).collect())
}

/// The file at `path`, and every table of symbols that it has; `None` where it is no ELF file.
fn tables(path: &Path, debug_roots: &[PathBuf]) -> io::Result<Option<(Elf, Vec<Elf>)>> {
    let files = Files::new(&[], debug_roots);
    let bytes = files.read(path)?;
    let Ok(mut elf) = Elf::parse(&bytes) else { return Ok(None) };
    let mut names = vec![Elf::names_in(&bytes)];
    if Elf::is_stripped(&bytes) {
        let separate = debug_file::find(&elf, path, &files).map(|(_, bytes)| bytes.to_vec());
        if let Some(more) = separate.or_else(|| mini_debug::unpack(&bytes)) {
            elf.add_symbols(&more);
            names.push(Elf::names_in(&more));
        }
    }
    Ok(Some((elf, names)))
}

/// Returns the place of a function in its file; `None` where it has no byte there.
fn place(elf: &Elf, symbol: &Symbol<'_>) -> Option<NamedFunction> {
    let size = match symbol.size {
        // Assemblers know nothing of sizes.
        0 => elf.function_at(symbol.address).map_or(0, |it| it.address + it.size - symbol.address),
        size => size,
    };
    let first = elf.offset_of(symbol.address)?;
    let last = elf.offset_of(symbol.address.checked_add(size.checked_sub(1)?)?)?;
    let (symbol, address, indirect) = (symbol.name.to_owned(), symbol.address, symbol.indirect);
    Some(NamedFunction { symbol, address, first, last, indirect })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_program_are_found_by_every_kind_of_name() {
        let exe = std::env::current_exe().expect("a path");
        let find = |name: &str| functions_named(&exe, name, &[]).expect("it can be read");
        let plain = find("main");
        assert_eq!(plain.len(), 1, "{plain:?}");
        let bytes = std::fs::read(&exe).expect("it can be read");
        let elf = Elf::parse(&bytes).expect("it is an ELF file");
        assert_eq!(elf.address_of(plain[0].first), Some(plain[0].address));
        assert!(plain[0].last > plain[0].first);
        // A mangled name by its path, its last part, and the symbol itself.
        let path = find("lwp_symbols::search::functions_named");
        assert_eq!(path.len(), 1, "{path:?}");
        assert_eq!(find(&path[0].symbol), path);
        assert!(find("functions_named").contains(&path[0]));
        assert_eq!(find("no such function"), []);
    }

    #[test]
    fn names_of_cpp_fit_with_and_without_arguments() {
        let fits = |symbol: &str, name: &str| FITS.iter().position(|fits| fits(symbol, name));
        for (symbol, name, how) in [
            ("_ZN12_GLOBAL__N_14anonEi", "(anonymous namespace)::anon(int)", 1),
            ("_ZN12_GLOBAL__N_14anonEi", "(anonymous namespace)::anon", 2),
            ("_ZN12_GLOBAL__N_14anonEi", "anon", 3),
            ("_ZN1FclEi", "F::operator()", 2),
            ("_ZN1FclEi", "operator()", 3),
            ("_ZN2opIiEclEi", "op<int>::operator()", 2),
            ("_Z2tfIiET_PFS0_S0_E", "int tf<int>(int (*)(int))", 1),
            ("_Z2tfIiET_PFS0_S0_E", "tf<int>", 2),
            ("_Z2tfIiET_PFS0_S0_E", "tf", 4),
            ("_ZN1a1gIiEEP8_IO_FILET_", "g<int>", 3),
            ("_ZN1FclEi.cold", "F::operator() [cold]", 2),
            ("_ZN1a1b17h0123456789abcdefE", "b", 3),
        ] {
            assert_eq!(fits(symbol, name), Some(how), "{name}");
        }
        // A part of a function is not the function.
        assert_eq!(fits("_ZN1FclEi.cold", "F::operator()"), None);
        assert_eq!(fits("f.cold", "f"), None);
    }

    #[test]
    fn what_is_no_program_has_no_functions() {
        assert_eq!(functions_named(Path::new("Cargo.toml"), "main", &[]).expect("text"), []);
        assert!(functions_named(Path::new("/nonexistent"), "main", &[]).is_err());
    }
}

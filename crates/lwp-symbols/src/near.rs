//! Guesses at a name that no function has: one that was inlined everywhere, or a
//! similar one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use gimli::DW_AT_specification;
use gimli::{AttributeValue, DW_AT_abstract_origin, DW_AT_linkage_name, DW_AT_name};

use crate::debug_file;
use crate::demangle::demangle;
use crate::dwarf::{Reader, Sections};
use crate::elf::Elf;
use crate::files::{Bytes, Files};
use crate::parts::{self, ends_in, last_part};
use crate::search::symbols_of;

/// A function that has no code of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inlined {
    /// The name of the inlined function.
    pub name: String,
    /// The functions that its copies are in.
    pub into: Vec<String>,
}

/// The functions called `name`, or whose last part is, of which the file at `path` has nothing but
/// copies in others, the shortest name first. None where the file has no debug information.
pub fn inlined_named(path: &Path, name: &str, debug_roots: &[std::path::PathBuf]) -> Vec<Inlined> {
    let files = Files::new(&[], debug_roots);
    let Ok(bytes) = files.read(path) else { return Vec::new() };
    let separate = Elf::parse(&bytes).ok().and_then(|elf| debug_file::find(&elf, path, &files));
    let all = std::iter::once(bytes).chain(separate.map(|(_, bytes)| bytes));
    let found = all.filter_map(|bytes| inlined_in(&bytes, name).ok());
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, into) in found.flatten() {
        names.entry(name).or_default().extend(into);
    }
    let row =
        |(name, into): (String, BTreeSet<String>)| Inlined { name, into: Vec::from_iter(into) };
    let mut rows: Vec<Inlined> = names.into_iter().map(row).collect();
    rows.sort_by(|a, b| by_length(&a.name, &b.name));
    rows
}

/// Names that are spelled much like `name`, of functions of the file at `path`, the most similar
/// first.
pub fn similar_names(path: &Path, name: &str, debug_roots: &[std::path::PathBuf]) -> Vec<String> {
    // From here on, two names are taken for one with a mistake in it.
    const SIMILAR: f64 = 0.85;
    let wanted = last_part(parts::path(name)).to_lowercase();
    let symbols = symbols_of(path, debug_roots).unwrap_or_default();
    let mut names: BTreeMap<String, f64> = BTreeMap::new();
    for symbol in symbols {
        let full = demangle(&symbol);
        let last = last_part(parts::path(&full)).to_lowercase();
        let alike = strsim::jaro_winkler(&wanted, &last);
        let contains = wanted.len() >= 3 && last.contains(&wanted);
        if alike >= SIMILAR || contains {
            names.insert(full, alike);
        }
    }
    let mut names: Vec<(String, f64)> = names.into_iter().collect();
    // Of equally similar ones, a short path is more likely to be meant than a long one.
    names.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| by_length(&a.0, &b.0)));
    names.into_iter().map(|(name, _)| name).collect()
}

/// Orders names by length, and equally long ones by spelling.
fn by_length(one: &str, other: &str) -> std::cmp::Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

/// Returns whether the function with this linker's or plain name answers to `wanted`.
fn fits(symbol: &str, wanted: &str) -> bool {
    let full = demangle(symbol);
    let path = parts::path(&full);
    full == wanted || ends_in(path, wanted) || last_part(path) == wanted
}

/// Inlined functions that fit, and what each is inlined into.
type Found = Vec<(String, BTreeSet<String>)>;

fn inlined_in(bytes: &Bytes, wanted: &str) -> Result<Found, gimli::Error> {
    let Some(sections) = Sections::of(bytes) else { return Ok(Vec::new()) };
    let dwarf = gimli::Dwarf::load(|id| sections.section(Some(id.name())))?;
    let mut units = Vec::new();
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        units.push(dwarf.unit(header)?);
    }
    let search = Search { dwarf, units };
    let fitting = search.fitting(wanted)?;
    let mut found: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    if !fitting.is_empty() {
        search.copies(&fitting, &mut found)?;
    }
    let name = |at: &usize| demangle(&fitting[at]);
    Ok(found.iter().map(|(at, into)| (name(at), into.clone())).collect())
}

/// Debug information that is searched.
struct Search {
    dwarf: gimli::Dwarf<Reader>,
    units: Vec<gimli::Unit<Reader>>,
}

type Entry = gimli::DebuggingInformationEntry<Reader>;
type Unit = gimli::Unit<Reader>;

impl Search {
    /// The functions that fit, by their place in the debug information.
    fn fitting(&self, wanted: &str) -> Result<HashMap<usize, String>, gimli::Error> {
        let mut found = HashMap::new();
        for unit in &self.units {
            let mut entries = unit.entries();
            while let Some(entry) = entries.next_dfs()? {
                if entry.tag() != gimli::DW_TAG_subprogram {
                    continue;
                }
                let name = self.name(unit, entry).filter(|name| fits(name, wanted));
                if let (Some(name), Some(at)) = (name, place(unit, entry.offset())) {
                    found.insert(at, name);
                }
            }
        }
        Ok(found)
    }

    /// Returns the functions that hold copies of those functions.
    fn copies(
        &self,
        fitting: &HashMap<usize, String>,
        found: &mut BTreeMap<usize, BTreeSet<String>>,
    ) -> Result<(), gimli::Error> {
        for unit in &self.units {
            let mut around: Vec<(isize, Entry)> = Vec::new();
            let mut entries = unit.entries();
            while let Some(entry) = entries.next_dfs()? {
                let depth = entry.depth();
                around.retain(|(outer, _)| *outer < depth);
                match entry.tag() {
                    gimli::DW_TAG_subprogram => around.push((depth, entry.clone())),
                    gimli::DW_TAG_inlined_subroutine => {
                        let origin = origin(unit, entry, DW_AT_abstract_origin);
                        let Some(at) = origin.filter(|at| fitting.contains_key(at)) else {
                            continue;
                        };
                        let outer = around.last().and_then(|(_, outer)| self.name(unit, outer));
                        found.entry(at).or_default().extend(outer.map(|name| demangle(&name)));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The linker's name of a function, or its plain one; also where another entry has it.
    fn name(&self, unit: &Unit, entry: &Entry) -> Option<String> {
        let own = self.own_name(unit, entry);
        own.or_else(|| {
            let elsewhere = [DW_AT_abstract_origin, DW_AT_specification];
            let at = elsewhere.iter().find_map(|kind| origin(unit, entry, *kind))?;
            self.units.iter().find_map(|unit| {
                let offset = gimli::DebugInfoOffset(at).to_unit_offset(&unit.header)?;
                self.own_name(unit, &unit.entry(offset).ok()?)
            })
        })
    }

    fn own_name(&self, unit: &Unit, entry: &Entry) -> Option<String> {
        let names = [DW_AT_linkage_name, DW_AT_name];
        let value = names.iter().find_map(|name| entry.attr_value(*name))?;
        let text = self.dwarf.attr_string(unit, value).ok()?;
        Some(String::from_utf8_lossy(text.bytes()).into_owned())
    }
}

/// The place of an entry in the whole debug information.
fn place(unit: &Unit, offset: gimli::UnitOffset) -> Option<usize> {
    Some(offset.to_debug_info_offset(&unit.header)?.0)
}

/// The place of the entry that an attribute refers to.
fn origin(unit: &Unit, entry: &Entry, attribute: gimli::DwAt) -> Option<usize> {
    match entry.attr_value(attribute)? {
        AttributeValue::UnitRef(offset) => place(unit, offset),
        AttributeValue::DebugInfoRef(offset) => Some(offset.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inlined_functions_answer_to_their_last_parts() {
        assert!(fits("a::b::parse", "b::parse") && !fits("a::sparse", "parse"));
        assert!(fits("_ZN1a5lexer4deep5parse17h618df71b9cd77464E", "parse"));
    }

    #[test]
    fn functions_of_this_program_are_found_by_similar_names() {
        let exe = std::env::current_exe().expect("a path");
        let similar = similar_names(&exe, "similar_nmaes", &[]);
        assert!(similar.iter().any(|name| name.ends_with("near::similar_names")), "{similar:?}");
        assert_eq!(similar_names(&exe, "xqzzywvvk", &[]), Vec::<String>::new());
        assert_eq!(similar_names(Path::new("/nonexistent"), "main", &[]), Vec::<String>::new());
        assert_eq!(inlined_named(Path::new("/nonexistent"), "main", &[]), []);
    }
}

//! Subroutines and inlined calls among the entries of debug information.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use gimli::constants as dw;
use gimli::{AttributeValue, DebuggingInformationEntry, Reader as _, UnitOffset};
use rustc_hash::FxHashMap;

use super::lines::Lines;
use super::{CallPlace, CodeScope, CompiledError, CompiledFunction, DEEPEST};
use crate::dwarf::Reader;

type Unit = gimli::Unit<Reader>;
type Entry = DebuggingInformationEntry<Reader>;

/// Entries refer to others for their names, but not through more than so many.
const FURTHEST: usize = 16;

/// The longest name that is read.
const LONGEST: usize = 1 << 16;

/// Entries may share names and ranges. Those that are read come to less than so many times the
/// file's size, or the file is damaged.
const SHARED: u64 = 16;

/// Names of compilers on LLVM, as they call themselves in debug information.
const LLVM: [&str; 3] = ["clang", "rustc", "LLVM"];

/// What a subroutine's entry says of itself.
#[derive(Clone, Debug, Default)]
struct Declaration {
    linker_name: Option<Arc<str>>,
    name: Option<Arc<str>>,
    line: Option<u64>,
}

/// All units of a file.
pub struct Entries<'a> {
    dwarf: &'a gimli::Dwarf<Reader>,
    /// With the places where they begin, in that order.
    units: Vec<(usize, Unit)>,
    declarations: RefCell<FxHashMap<usize, Declaration>>,
    /// Line tables by their places: units may share one.
    lines: RefCell<FxHashMap<usize, Arc<Lines>>>,
    /// Bytes of names and ranges that may still be read.
    left: Cell<u64>,
}

/// An entry around the current one: its depth, and the function and scope that it is.
struct Open {
    depth: isize,
    scope: Option<(usize, u32)>,
}

impl<'a> Entries<'a> {
    /// Those of a file of this size.
    pub fn of(dwarf: &'a gimli::Dwarf<Reader>, size: usize) -> Result<Self, CompiledError> {
        let mut units = Vec::new();
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let start = header.debug_info_offset().map_or(0, |it| it.0);
            units.push((start, dwarf.unit(header)?));
        }
        if units.is_empty() {
            return Err(CompiledError::Missing);
        }
        let (declarations, lines) = (RefCell::default(), RefCell::default());
        let left = Cell::new((size as u64).saturating_mul(SHARED).saturating_add(1 << 20));
        Ok(Self { dwarf, units, declarations, lines, left })
    }

    /// Returns whether a unit is in another file.
    pub fn are_split(&self) -> bool {
        self.units.iter().any(|(_, unit)| unit.dwo_name().is_ok_and(|name| name.is_some()))
    }

    /// Functions with code that is wanted.
    pub fn functions(
        &self,
        is_wanted: &dyn Fn(&Range<u64>) -> bool,
    ) -> Result<Vec<CompiledFunction>, CompiledError> {
        let mut out = Vec::new();
        for (_, unit) in &self.units {
            let found = self.of_unit(unit, is_wanted)?;
            out.extend(found);
        }
        Ok(out)
    }

    fn of_unit(
        &self,
        unit: &Unit,
        is_wanted: &dyn Fn(&Range<u64>) -> bool,
    ) -> Result<Vec<CompiledFunction>, CompiledError> {
        let mut out: Vec<CompiledFunction> = Vec::new();
        let mut open: Vec<Open> = Vec::new();
        let mut cursor = unit.entries();
        while let Some(entry) = cursor.next_dfs()? {
            let depth = entry.depth();
            while open.last().is_some_and(|it| it.depth >= depth) {
                open.pop();
            }
            let scope = match entry.tag() {
                dw::DW_TAG_subprogram => {
                    let function = self.function(unit, entry, is_wanted)?;
                    function.map(|function| {
                        out.push(function);
                        (out.len() - 1, 0)
                    })
                }
                dw::DW_TAG_inlined_subroutine => {
                    let around = open.last().and_then(|it| it.scope);
                    match around {
                        Some((at, parent)) => {
                            Some((at, self.inline((unit, entry), &mut out[at], parent)?))
                        }
                        None => None,
                    }
                }
                _ => continue,
            };
            open.push(Open { depth, scope });
        }
        if !out.is_empty() {
            let lines = self.lines(unit)?;
            let by_llvm = self.is_by_llvm(unit)?;
            for function in &mut out {
                function.finish(&lines, by_llvm);
            }
        }
        Ok(out)
    }

    /// The function of an entry, without what is inlined into it, if its code is wanted.
    fn function(
        &self,
        unit: &Unit,
        entry: &Entry,
        is_wanted: &dyn Fn(&Range<u64>) -> bool,
    ) -> Result<Option<CompiledFunction>, CompiledError> {
        let ranges = self.ranges(unit, entry)?;
        if !ranges.iter().any(is_wanted) {
            return Ok(None);
        }
        let scope = self.scope(unit, entry, None)?;
        let scopes = vec![scope];
        let (inlined, lines) = (Vec::new(), Arc::default());
        Ok(Some(CompiledFunction { ranges, scopes, inlined, lines, by_llvm: false }))
    }

    /// Adds an inlined call, and returns the number of its scope.
    fn inline(
        &self,
        (unit, entry): (&Unit, &Entry),
        function: &mut CompiledFunction,
        parent: u32,
    ) -> Result<u32, CompiledError> {
        let around = function.scopes.get(parent as usize).map_or(0, |scope| scope.depth);
        let number = u32::try_from(function.scopes.len()).unwrap_or(u32::MAX);
        if around >= DEEPEST || number == u32::MAX {
            return Ok(parent);
        }
        let value = |name| entry.attr(name).and_then(|it| it.udata_value()).unwrap_or(0);
        let line = value(dw::DW_AT_call_line);
        let place = CallPlace { line, discriminator: value(dw::DW_AT_GNU_discriminator) };
        let mut scope = self.scope(unit, entry, Some((parent, place)))?;
        scope.depth = around + 1;
        function.scopes.push(scope);
        let ranges = self.ranges(unit, entry)?;
        function.inlined.extend(ranges.into_iter().map(|range| (range, number)));
        Ok(number)
    }

    fn scope(
        &self,
        unit: &Unit,
        entry: &Entry,
        call: Option<(u32, CallPlace)>,
    ) -> Result<CodeScope, CompiledError> {
        let declaration = self.declaration(unit, entry, FURTHEST)?;
        let name = declaration.linker_name.or(declaration.name).unwrap_or_default();
        Ok(CodeScope { name, declared: declaration.line.unwrap_or(0), depth: 0, call })
    }

    fn ranges(&self, unit: &Unit, entry: &Entry) -> Result<Vec<Range<u64>>, CompiledError> {
        let mut ranges = self.dwarf.die_ranges(unit, entry)?;
        let mut out = Vec::new();
        while let Some(range) = ranges.next()? {
            if range.begin < range.end {
                self.spend(size_of::<Range<u64>>())?;
                out.push(range.begin..range.end);
            }
        }
        Ok(out)
    }

    /// Name and line of an entry, or of those that it refers to.
    fn declaration(
        &self,
        unit: &Unit,
        entry: &Entry,
        further: usize,
    ) -> Result<Declaration, CompiledError> {
        let linker_name = match self.text(unit, entry, dw::DW_AT_linkage_name)? {
            None => self.text(unit, entry, dw::DW_AT_MIPS_linkage_name)?,
            name => name,
        };
        let name = self.text(unit, entry, dw::DW_AT_name)?;
        let line = entry.attr(dw::DW_AT_decl_line).and_then(|it| it.udata_value());
        let mut out = Declaration { linker_name, name, line };
        for reference in [dw::DW_AT_abstract_origin, dw::DW_AT_specification] {
            let Some(value) = entry.attr_value(reference).filter(|_| further > 0) else { continue };
            let other = self.referred(unit, value, further - 1)?;
            out.linker_name = out.linker_name.or(other.linker_name);
            out.name = out.name.or(other.name);
            out.line = out.line.or(other.line);
        }
        Ok(out)
    }

    fn text(
        &self,
        unit: &Unit,
        entry: &Entry,
        name: dw::DwAt,
    ) -> Result<Option<Arc<str>>, CompiledError> {
        let Some(value) = entry.attr_value(name) else { return Ok(None) };
        // A name that files share is missing.
        let Ok(text) = self.dwarf.attr_string(unit, value) else { return Ok(None) };
        self.spend(text.len())?;
        match text.len() > LONGEST {
            true => Ok(None),
            false => Ok(Some(text.to_string_lossy()?.into())),
        }
    }

    /// Takes note that so many bytes were read.
    fn spend(&self, bytes: usize) -> Result<(), CompiledError> {
        let left = self.left.get().checked_sub(bytes as u64).ok_or_else(|| {
            CompiledError::Damaged("its entries share more than a compiler lets them".to_owned())
        })?;
        self.left.set(left);
        Ok(())
    }

    fn lines(&self, unit: &Unit) -> Result<Arc<Lines>, CompiledError> {
        let Some(program) = &unit.line_program else { return Ok(Arc::default()) };
        let place = program.header().offset().0;
        if let Some(known) = self.lines.borrow().get(&place) {
            return Ok(Arc::clone(known));
        }
        let lines = Arc::new(Lines::of(program.clone())?);
        self.lines.borrow_mut().insert(place, Arc::clone(&lines));
        Ok(lines)
    }

    /// The declaration that a value refers to, which may be in another unit.
    fn referred(
        &self,
        unit: &Unit,
        value: AttributeValue<Reader>,
        further: usize,
    ) -> Result<Declaration, CompiledError> {
        let (unit, offset) = match value {
            AttributeValue::UnitRef(offset) => (unit, offset),
            AttributeValue::DebugInfoRef(offset) => {
                let after = self.units.partition_point(|(start, _)| *start <= offset.0);
                let Some((start, unit)) = self.units[..after].last() else {
                    return Ok(Declaration::default());
                };
                (unit, UnitOffset(offset.0 - start))
            }
            // Types, and what files share.
            _ => return Ok(Declaration::default()),
        };
        let start = unit.header.debug_info_offset().map_or(0, |it| it.0);
        let key = start.saturating_add(offset.0);
        if let Some(known) = self.declarations.borrow().get(&key) {
            return Ok(known.clone());
        }
        let entry = unit.entry(offset)?;
        let declaration = self.declaration(unit, &entry, further)?;
        self.declarations.borrow_mut().insert(key, declaration.clone());
        Ok(declaration)
    }

    fn is_by_llvm(&self, unit: &Unit) -> Result<bool, CompiledError> {
        let mut cursor = unit.entries();
        let Some(root) = cursor.next_dfs()? else { return Ok(false) };
        let Some(value) = root.attr_value(dw::DW_AT_producer) else { return Ok(false) };
        let producer = self.dwarf.attr_string(unit, value)?;
        let producer = producer.to_string_lossy()?;
        Ok(LLVM.iter().any(|name| producer.contains(name)))
    }
}

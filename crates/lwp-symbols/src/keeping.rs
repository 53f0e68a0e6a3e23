//! Collecting the names that a recording keeps: every answer that was needed to make a profile of
//! it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use lwp_profile::{
    Frame, Location, ModuleId, NamedCode, NamedFrame, NamedRange, Origin, RecordedNames, Recording,
};
use rustc_hash::FxHashSet;

use crate::module::ModuleNames;
use crate::resolve::{Detail, Options, Resolver, looked_up};

/// The largest function, in bytes, of which all code and lines are kept: of a larger one, those of
/// its samples.
const LARGEST: u64 = 64 << 10;

/// The frames of a location, and as they are kept.
type Frames = Arc<[Frame]>;
type Named = Arc<[NamedFrame]>;

/// The names of everything in `recording`, from this machine's files. A profile that is made with
/// them is the same as one made with the files.
pub fn names(recording: &Recording, options: &Options) -> Vec<RecordedNames> {
    let sampled = !recording.events.is_empty();
    let options = Options {
        detail: Detail::Lines,
        whole_functions: Some(LARGEST).filter(|_| sampled),
        from_files: true,
        ..options.clone()
    };
    let resolver = looked_up(recording, &options);
    let mut texts = Texts::default();
    let mut lines = lines(&resolver, &mut texts);
    // Blocks have the code of what was counted.
    let mut code = if sampled { code(&resolver) } else { BTreeMap::new() };
    let mut all = Vec::new();
    for (&module, names) in &resolver.names {
        let Some(elf) = names.elf() else { continue };
        let functions = functions(&resolver, module, &mut texts);
        let lines = lines.remove(&module).unwrap_or_default();
        let found = &resolver.found;
        let imports = found.imports.range((module, 0)..=(module, u64::MAX));
        let exports = found.exports.iter().filter(|((number, _), _)| *number == module);
        all.push(RecordedNames {
            module,
            soname: elf.identity.soname.clone(),
            program: elf.identity.program,
            go: elf.identity.go,
            debug: names.has_debug(),
            warnings: names.missing(),
            segments: elf.segments().collect(),
            functions,
            lines,
            imports: imports.map(|((_, word), name)| (*word, texts.of(name))).collect(),
            exports: exports
                .map(|((_, name), address)| (texts.of(name), *address, false))
                .collect(),
            code: code.remove(&module).unwrap_or_default(),
        });
    }
    all
}

/// Texts, each once.
#[derive(Default)]
struct Texts(FxHashSet<Arc<str>>);

impl Texts {
    fn of(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = text.into();
        self.0.insert(Arc::clone(&text));
        text
    }
}

/// The functions of a module, by address; those without a symbol have bounds and no name.
fn functions(resolver: &Resolver<'_>, module: u32, texts: &mut Texts) -> Vec<NamedCode> {
    let mut functions = Vec::new();
    for id in resolver.functions_of(module) {
        let function = resolver.builder.function_at(id);
        let name = match function.origin {
            Origin::Symbol | Origin::Stub => function.name.as_str(),
            Origin::Unknown => "",
            Origin::Debug | Origin::Generated => continue,
        };
        functions.push(NamedCode {
            address: function.address,
            size: function.size,
            name: texts.of(name),
            stub: function.origin == Origin::Stub,
            file: texts.of(&function.file),
            line: function.line,
        });
    }
    functions.sort_unstable_by_key(|function| (function.address, function.name.is_empty()));
    functions
}

/// Lines of instructions, by module and address.
fn lines(resolver: &Resolver<'_>, texts: &mut Texts) -> BTreeMap<u32, Vec<NamedRange>> {
    let numbers: BTreeMap<ModuleId, u32> = resolver.module_numbers().collect();
    let mut known: Vec<(u32, &Location)> = resolver
        .builder
        .locations()
        .iter()
        .filter(|location| {
            location.frames.iter().any(|frame| !frame.file.is_empty() || frame.line > 0)
                || location.frames.len() > 1
        })
        .filter_map(|location| Some((*numbers.get(&location.module)?, location)))
        .collect();
    known.sort_unstable_by_key(|(module, location)| (*module, location.address));
    let mut chains: FxHashSet<Named> = FxHashSet::default();
    let mut lines: BTreeMap<u32, Vec<NamedRange>> = BTreeMap::new();
    // The frames looked at last: neighbours mostly share them.
    let mut shared: Option<(Frames, Named)> = None;
    for (module, location) in known {
        let frames = match &shared {
            Some((from, frames)) if Arc::ptr_eq(from, &location.frames) => Arc::clone(frames),
            _ => chain(resolver, location, texts, &mut chains),
        };
        shared = Some((Arc::clone(&location.frames), Arc::clone(&frames)));
        let start = location.address;
        let end = start.saturating_add(location.bytes.len().max(1) as u64);
        let of_module = lines.entry(module).or_default();
        match of_module.last_mut() {
            Some(before) if before.end >= start && Arc::ptr_eq(&before.frames, &frames) => {
                before.end = before.end.max(end);
            }
            Some(before) if before.end > start => {
                // Code may be entered within an instruction.
                before.end = start;
                of_module.push(NamedRange { start, end, frames });
            }
            _ => of_module.push(NamedRange { start, end, frames }),
        }
    }
    lines
}

/// The names of a location's frames, each chain of them once.
fn chain(
    resolver: &Resolver<'_>,
    location: &Location,
    texts: &mut Texts,
    chains: &mut FxHashSet<Named>,
) -> Named {
    let last = location.frames.len() - 1;
    let frame = |(index, frame): (usize, &Frame)| {
        // The outermost function is the one with the symbol.
        let name = match index == last {
            true => texts.of(""),
            false => texts.of(&resolver.builder.function_at(frame.function).name),
        };
        NamedFrame { name, file: Arc::clone(&frame.file), line: frame.line }
    };
    let frames: Vec<NamedFrame> = location.frames.iter().enumerate().map(frame).collect();
    if let Some(known) = chains.get(&frames[..]) {
        return Arc::clone(known);
    }
    let frames: Named = frames.into();
    chains.insert(Arc::clone(&frames));
    frames
}

/// The code of sampled functions and of the calls in stacks, by module and address.
fn code(resolver: &Resolver<'_>) -> BTreeMap<u32, Vec<(u64, Vec<u8>)>> {
    let numbers: BTreeMap<ModuleId, u32> = resolver.module_numbers().collect();
    let locations = resolver.builder.locations().iter();
    let mut known: Vec<(u32, u64, &[u8])> = locations
        .filter(|location| !location.bytes.is_empty())
        .filter_map(|location| {
            Some((*numbers.get(&location.module)?, location.address, &*location.bytes))
        })
        .collect();
    for (&(module, start), end) in &resolver.whole {
        let elf = resolver.names.get(&module).and_then(ModuleNames::elf);
        let pieces = elf.map(|elf| elf.code_in(start, end - start));
        known.extend(pieces.into_iter().flatten().map(|(at, bytes)| (module, at, bytes)));
    }
    // Of what begins at one place, the longest comes first.
    known.sort_unstable_by_key(|(module, at, bytes)| (*module, *at, Reverse(bytes.len())));
    let mut code: BTreeMap<u32, Vec<(u64, Vec<u8>)>> = BTreeMap::new();
    for (module, at, bytes) in known {
        let pieces = code.entry(module).or_default();
        let end = pieces.last().map_or(0, |(start, bytes)| start + bytes.len() as u64);
        match pieces.last_mut() {
            Some((_, before)) if at <= end => {
                let beyond = bytes.get((end - at) as usize..);
                before.extend_from_slice(beyond.unwrap_or_default());
            }
            _ => pieces.push((at, bytes.to_vec())),
        }
    }
    code
}

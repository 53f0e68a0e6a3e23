//! Names kept in a recording: functions, lines and inlined functions of what was executed, so that
//! nobody needs the files again that they were found in.
//!
//! Promise: R41

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::wire::{Input, Output, WireError};

/// A loaded segment of a module's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedSegment {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes in the file.
    pub length: u64,
    /// First address, as the file has it.
    pub address: u64,
}

/// A function with code that was executed, or that a branch led to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedCode {
    /// First address, as the file has it.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Name, mangled as it stands; empty where nothing names it and only its bounds are known.
    pub name: Arc<str>,
    /// A stub that jumps to another module's function of this name.
    pub stub: bool,
    /// Source file of its first instruction, empty where it is not known.
    pub file: Arc<str>,
    /// Line there, 0 where it is not known.
    pub line: u32,
}

/// A function at a place in its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NamedFrame {
    /// Name of an inlined function; empty for the outermost, which has a symbol.
    pub name: Arc<str>,
    /// Source file.
    pub file: Arc<str>,
    /// Line, 0 where it is not known.
    pub line: u32,
}

/// Instructions of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRange {
    /// First address, as the file has it.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Inlined functions, innermost first, then the function that they were inlined into.
    pub frames: Arc<[NamedFrame]>,
}

/// The names of one module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedNames {
    /// The module's number.
    pub module: u32,
    /// The name that programs link it by, empty where it has none.
    pub soname: String,
    /// True if it is a program and no library.
    pub program: bool,
    /// True if there was debug information.
    pub debug: bool,
    /// True if its symbols are Go's, or of another language that has dots in names.
    pub go: bool,
    /// Names that were missing when the recording was made, in words.
    pub warnings: Vec<String>,
    /// Loaded segments.
    pub segments: Vec<NamedSegment>,
    /// Functions by address.
    pub functions: Vec<NamedCode>,
    /// Lines by address; ranges do not overlap.
    pub lines: Vec<NamedRange>,
    /// Words that hold the address of an imported function, and its name.
    pub imports: Vec<(u64, Arc<str>)>,
    /// Functions that were found by name: name, address, and whether it is that of a resolver.
    pub exports: Vec<(Arc<str>, u64, bool)>,
    /// Code of functions that were sampled, by its first address.
    pub code: Vec<(u64, Vec<u8>)>,
}

/// Texts that are written once each.
#[derive(Default)]
struct Texts {
    all: Vec<Arc<str>>,
    numbers: FxHashMap<Arc<str>, u64>,
}

impl Texts {
    fn number(&mut self, text: &Arc<str>) -> u64 {
        let next = self.all.len() as u64;
        let number = *self.numbers.entry(Arc::clone(text)).or_insert(next);
        if number == next {
            self.all.push(Arc::clone(text));
        }
        number
    }
}

impl RecordedNames {
    /// The payload of their chunk: compressed, for names are long and alike.
    pub(crate) fn packed(&self) -> Vec<u8> {
        let plain = self.encode();
        let mut output = Output::default();
        output.number(plain.len() as u64);
        output.0.extend(lz4_flex::block::compress(&plain));
        output.0
    }

    /// Reads the payload of a chunk.
    pub(crate) fn unpack(mut input: Input<'_>) -> Result<Self, WireError> {
        let length: usize = input.narrow()?;
        let packed = input.rest();
        // A byte stands for 255 at most: a wrong length makes nobody reserve more than that.
        if length / 256 > packed.len() {
            return Err(WireError::Range { at: 0 });
        }
        let plain = lz4_flex::block::decompress(packed, length);
        Self::decode(Input::new(&plain.map_err(|_| WireError::Short { at: 0 })?))
    }

    fn encode(&self) -> Vec<u8> {
        let (mut texts, mut body) = (Texts::default(), Output::default());
        body.number(self.segments.len() as u64);
        for segment in &self.segments {
            let numbers = [segment.offset, segment.length, segment.address];
            numbers.into_iter().for_each(|number| body.number(number));
        }
        self.encode_functions(&mut texts, &mut body);
        self.encode_lines(&mut texts, &mut body);
        body.number(self.imports.len() as u64);
        for (word, name) in &self.imports {
            body.number(*word);
            body.number(texts.number(name));
        }
        body.number(self.exports.len() as u64);
        for (name, address, resolver) in &self.exports {
            body.number(texts.number(name));
            body.number(*address);
            body.number(u8::from(*resolver));
        }
        body.number(self.code.len() as u64);
        for (address, code) in &self.code {
            body.number(*address);
            body.bytes(code);
        }
        let mut output = Output::default();
        output.number(self.module);
        output.text(&self.soname);
        let kind = u8::from(self.program) | u8::from(self.debug) << 1 | u8::from(self.go) << 2;
        output.number(kind);
        output.number(self.warnings.len() as u64);
        self.warnings.iter().for_each(|warning| output.text(warning));
        output.number(texts.all.len() as u64);
        texts.all.iter().for_each(|text| output.text(text));
        output.0.extend(body.0);
        output.0
    }

    fn encode_functions(&self, texts: &mut Texts, body: &mut Output) {
        body.number(self.functions.len() as u64);
        let mut last = 0u64;
        for function in &self.functions {
            body.signed(function.address.wrapping_sub(last) as i64);
            last = function.address;
            body.number(function.size);
            body.number(texts.number(&function.name));
            body.number(u8::from(function.stub));
            body.number(texts.number(&function.file));
            body.number(function.line);
        }
    }

    fn encode_lines(&self, texts: &mut Texts, body: &mut Output) {
        let mut numbers: FxHashMap<&[NamedFrame], u64> = FxHashMap::default();
        let mut chains: Vec<&[NamedFrame]> = Vec::new();
        for range in &self.lines {
            let next = chains.len() as u64;
            if *numbers.entry(&range.frames).or_insert(next) == next {
                chains.push(&range.frames);
            }
        }
        body.number(chains.len() as u64);
        for chain in chains {
            body.number(chain.len() as u64);
            for frame in chain {
                body.number(texts.number(&frame.name));
                body.number(texts.number(&frame.file));
                body.number(frame.line);
            }
        }
        body.number(self.lines.len() as u64);
        let mut last = 0u64;
        for range in &self.lines {
            body.signed(range.start.wrapping_sub(last) as i64);
            body.number(range.end.wrapping_sub(range.start));
            body.number(numbers[&*range.frames]);
            last = range.end;
        }
    }

    fn decode(mut input: Input<'_>) -> Result<Self, WireError> {
        let input = &mut input;
        let mut names = Self { module: input.narrow()?, soname: input.text()?, ..Self::default() };
        let kind: u64 = input.number()?;
        (names.program, names.debug, names.go) = (kind & 1 != 0, kind & 2 != 0, kind & 4 != 0);
        names.warnings = several(input, |input| input.text())?;
        let texts: Vec<Arc<str>> = several(input, |input| Ok(input.text()?.into()))?;
        names.segments = several(input, |input| {
            let [offset, length, address] = [input.number()?, input.number()?, input.number()?];
            Ok(NamedSegment { offset, length, address })
        })?;
        let mut last = 0u64;
        names.functions = several(input, |input| {
            last = last.wrapping_add(input.signed()? as u64);
            Ok(NamedCode {
                address: last,
                size: input.number()?,
                name: text(input, &texts)?,
                stub: input.number()? != 0,
                file: text(input, &texts)?,
                line: input.narrow()?,
            })
        })?;
        let chains: Vec<Arc<[NamedFrame]>> = several(input, |input| {
            let frame = |input: &mut Input<'_>| {
                let (name, file) = (text(input, &texts)?, text(input, &texts)?);
                Ok(NamedFrame { name, file, line: input.narrow()? })
            };
            Ok(several(input, frame)?.into())
        })?;
        let mut last = 0u64;
        names.lines = several(input, |input| {
            let start = last.wrapping_add(input.signed()? as u64);
            let end = start.wrapping_add(input.number()?);
            last = end;
            Ok(NamedRange { start, end, frames: one_of(input, &chains)? })
        })?;
        names.imports = several(input, |input| Ok((input.number()?, text(input, &texts)?)))?;
        names.exports = several(input, |input| {
            Ok((text(input, &texts)?, input.number()?, input.number()? != 0))
        })?;
        names.code = several(input, |input| Ok((input.number()?, input.bytes()?.to_vec())))?;
        Ok(names)
    }
}

/// A number, then so many items. Each takes at least a byte, so that no number makes a reader
/// allocate more than there is to read.
fn several<'a, T>(
    input: &mut Input<'a>,
    mut item: impl FnMut(&mut Input<'a>) -> Result<T, WireError>,
) -> Result<Vec<T>, WireError> {
    let number: u64 = input.number()?;
    let mut items = Vec::new();
    for _ in 0..number {
        items.push(item(input)?);
    }
    Ok(items)
}

fn one_of<T: ?Sized>(input: &mut Input<'_>, all: &[Arc<T>]) -> Result<Arc<T>, WireError> {
    let index: usize = input.narrow()?;
    all.get(index).cloned().ok_or(WireError::Range { at: index })
}

fn text(input: &mut Input<'_>, texts: &[Arc<str>]) -> Result<Arc<str>, WireError> {
    one_of(input, texts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named() -> impl Strategy<Value = RecordedNames> {
        let word = || prop_oneof!["[a-c]{0,2}", Just("\u{1f980}".to_owned())];
        let function = (any::<u64>(), any::<u64>(), word(), any::<bool>(), word(), any::<u32>());
        let frames = prop::collection::vec((word(), word(), 0u32..3), 0..4);
        let line = (any::<u64>(), 0u64..20, frames);
        let imports = prop::collection::vec((any::<u64>(), word()), 0..4);
        let exports = prop::collection::vec((word(), any::<u64>(), any::<bool>()), 0..4);
        let code = prop::collection::vec((any::<u64>(), any::<Vec<u8>>()), 0..3);
        let head = (any::<u32>(), word(), any::<[bool; 3]>(), prop::collection::vec(word(), 0..2));
        let parts = (
            head,
            prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..3),
            prop::collection::vec(function, 0..5),
            prop::collection::vec(line, 0..8),
            imports,
            exports,
            code,
        );
        parts.prop_map(|(head, segments, functions, lines, imports, exports, code)| RecordedNames {
            module: head.0,
            soname: head.1,
            program: head.2[0],
            debug: head.2[1],
            go: head.2[2],
            warnings: head.3,
            segments: segments
                .into_iter()
                .map(|(offset, length, address)| NamedSegment { offset, length, address })
                .collect(),
            functions: functions
                .into_iter()
                .map(|(address, size, name, stub, file, line)| NamedCode {
                    address,
                    size,
                    name: name.into(),
                    stub,
                    file: file.into(),
                    line,
                })
                .collect(),
            lines: lines
                .into_iter()
                .map(|(start, length, frames)| NamedRange {
                    start,
                    end: start.wrapping_add(length),
                    frames: frames
                        .into_iter()
                        .map(|(name, file, line)| NamedFrame {
                            name: name.into(),
                            file: file.into(),
                            line,
                        })
                        .collect(),
                })
                .collect(),
            imports: imports.into_iter().map(|(word, name)| (word, name.into())).collect(),
            exports: exports
                .into_iter()
                .map(|(name, address, resolver)| (name.into(), address, resolver))
                .collect(),
            code,
        })
    }

    proptest! {
        #[test]
        fn names_survive(names in named()) {
            let bytes = names.packed();
            prop_assert_eq!(RecordedNames::unpack(Input::new(&bytes)), Ok(names));
        }

        #[test]
        fn damaged_names_are_errors_and_never_a_panic(
            names in named(), at: prop::sample::Index, value: u8, cut: prop::sample::Index,
        ) {
            let mut bytes = names.encode();
            let at = at.index(bytes.len());
            bytes[at] = value;
            let _ = RecordedNames::decode(Input::new(&bytes));
            bytes.truncate(cut.index(bytes.len()));
            let _ = RecordedNames::decode(Input::new(&bytes));
            let mut packed = names.packed();
            let at = at % packed.len();
            packed[at] = value;
            let _ = RecordedNames::unpack(Input::new(&packed));
        }
    }

    #[test]
    fn a_huge_number_of_nothing_is_refused() {
        let mut output = Output::default();
        output.number(0u32);
        output.text("");
        output.number(0u32);
        output.number(u64::MAX);
        assert!(RecordedNames::decode(Input::new(&output.0)).is_err());
    }
}

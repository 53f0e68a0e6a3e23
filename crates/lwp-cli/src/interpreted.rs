//! Names of interpreted functions, on their way into the recording.

use std::collections::BTreeMap;
use std::sync::Arc;

use lwp_profile::{NamedCode, NamedFrame, NamedRange, RecordedFrame, RecordedNames};
use lwp_vcpu::profile::LanguageFunction;
use rustc_hash::{FxHashMap, FxHashSet};

/// Source files of interpreted functions, by the number of their module.
#[derive(Debug, Default)]
pub struct Interpreted(FxHashMap<u32, SourceFile>);

#[derive(Debug, Default)]
struct SourceFile {
    file: Arc<str>,
    /// Lines of declarations by the address that stands for each.
    declared: BTreeMap<u64, u32>,
    /// Addresses whose line has a name.
    known: FxHashSet<u64>,
    fresh: RecordedNames,
}

impl Interpreted {
    /// Takes in a function.
    pub fn function(&mut self, function: &LanguageFunction) {
        let source = self.0.entry(function.module).or_default();
        if source.file.is_empty() {
            source.file = function.file.as_str().into();
        }
        source.declared.insert(function.address, function.line);
        source.fresh.functions.push(NamedCode {
            address: function.address,
            size: function.size,
            name: function.name.as_str().into(),
            stub: false,
            file: Arc::clone(&source.file),
            line: function.line,
        });
    }

    /// Takes in a frame that has not been recorded before.
    pub fn frame(&mut self, frame: &RecordedFrame) {
        let source = frame.module.and_then(|module| self.0.get_mut(&module));
        let Some(source) = source.filter(|source| !source.known.contains(&frame.address)) else {
            return;
        };
        let declared = source.declared.range(..=frame.address).next_back();
        let Some((start, first)) = declared else { return };
        let line = first.saturating_add(u32::try_from(frame.address - start).unwrap_or(0));
        source.known.insert(frame.address);
        let (name, file) = (Arc::default(), Arc::clone(&source.file));
        source.fresh.lines.push(NamedRange {
            start: frame.address,
            end: frame.address + 1,
            frames: [NamedFrame { name, file, line }].into(),
        });
    }

    /// Names that have not been taken before.
    pub fn take(&mut self) -> Vec<RecordedNames> {
        let mut all = Vec::new();
        for (&module, source) in &mut self.0 {
            if source.fresh.functions.is_empty() && source.fresh.lines.is_empty() {
                continue;
            }
            let mut names = std::mem::take(&mut source.fresh);
            names.functions.sort_unstable_by_key(|function| function.address);
            names.lines.sort_unstable_by_key(|range| range.start);
            all.push(RecordedNames { module, debug: true, ..names });
        }
        all.sort_unstable_by_key(|names| names.module);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_the_declaration() {
        let mut names = Interpreted::default();
        let (name, file) = ("f".to_owned(), "/a.py".to_owned());
        names.function(&LanguageFunction {
            module: 3,
            address: 64,
            size: 32,
            name,
            file,
            line: 10,
        });
        let frame = |module, address| RecordedFrame { caller: None, module, address };
        let frames = [(Some(3), 66), (Some(3), 64), (Some(3), 66), (Some(4), 66), (None, 1)];
        frames.iter().for_each(|(module, address)| names.frame(&frame(*module, *address)));
        let taken = names.take();
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].module, taken[0].functions.len(), taken[0].debug), (3, 1, true));
        let lines = taken[0].lines.iter().map(|range| (range.start, range.frames[0].line));
        assert_eq!(lines.collect::<Vec<_>>(), [(64, 10), (66, 12)]);
        assert_eq!(names.take(), []);
        names.frame(&frame(Some(3), 65));
        assert_eq!(names.take()[0].lines.len(), 1);
    }
}

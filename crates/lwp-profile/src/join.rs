//! Joining recordings: what is numbered in the one is numbered anew behind the other.

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::encode::Writer;
use crate::merge::{MergeError, joined_fact};
use crate::recording::{Block, RecordedSample, Recording};

impl Recording {
    /// Adds all that `other` holds. The profile of the result is the sum of the profiles: see
    /// [`crate::Profile::merge`].
    ///
    /// # Errors
    ///
    /// Why they cannot be added up; then nothing has changed.
    pub fn join(&mut self, other: Self) -> Result<(), MergeError> {
        self.can_be_joined(&other)?;
        if let (Some(ours), Some(theirs)) = (&mut self.native, other.native) {
            ours.join(*theirs)?;
        }
        let modules = next(self.modules.keys());
        let blocks = next(self.blocks.keys());
        let images = next(self.images.keys());
        let serials = next(self.threads.keys().chain(self.sampled.keys()));
        let frames = self.frames.len() as u32;
        let moved = |module: Option<u32>| module.map(|module| module + modules);
        for (id, mut module) in other.modules {
            module.id = id + modules;
            self.modules.insert(module.id, module);
        }
        for (id, mut block) in other.blocks {
            (block.id, block.module) = (id + blocks, block.module + modules);
            self.blocks.insert(block.id, block);
        }
        for (id, mut image) in other.images {
            image.id = id + images;
            self.images.insert(image.id, image);
        }
        for (serial, mut thread) in other.threads {
            (thread.serial, thread.image) = (serial + serials, thread.image + images);
            thread.blocks.iter_mut().for_each(|count| count.block += blocks);
            thread.partial.iter_mut().for_each(|(block, ..)| *block += blocks);
            thread.steps.iter_mut().for_each(|(module, ..)| *module = moved(*module));
            for jump in &mut thread.jumps {
                (jump.from.0, jump.to.0) = (moved(jump.from.0), moved(jump.to.0));
            }
            thread.misses.iter_mut().for_each(|misses| misses.at.0 = moved(misses.at.0));
            thread.contexts.renumber(moved);
            self.threads.insert(thread.serial, thread);
        }
        for mut frame in other.frames {
            frame.caller = frame.caller.map(|caller| caller + frames);
            frame.module = moved(frame.module);
            self.frames.push(frame);
        }
        let sample = |(sample, times): (RecordedSample, u64)| {
            let (serial, frame) = (sample.serial + serials, sample.frame + frames);
            (RecordedSample { serial, frame, ..sample }, times)
        };
        self.samples.extend(other.samples.into_iter().map(sample));
        let sums = other.sampled.into_iter().map(|(serial, sums)| (serial + serials, sums));
        self.sampled.extend(sums);
        self.symbols.extend(other.symbols);
        for mut names in other.names {
            names.module = names.module.wrapping_add(modules);
            self.names.push(names);
        }
        for file in other.files {
            if !self.files.contains(&file) {
                self.files.push(file);
            }
        }
        for (key, value) in other.info {
            let sum = self.info.get(&key).map(|ours| joined_fact(&key, ours, &value));
            self.info.insert(key, sum.unwrap_or(value));
        }
        self.complete &= other.complete;
        self.warnings.extend(other.warnings);
        self.lost_counts |= other.lost_counts;
        Ok(())
    }

    fn can_be_joined(&self, other: &Self) -> Result<(), MergeError> {
        if self.events.is_empty() != other.events.is_empty() {
            return Err(MergeError::Modes);
        }
        match (&self.native, &other.native) {
            (Some(ours), Some(theirs)) => ours.can_be_joined(theirs)?,
            (None, None) => {}
            _ => return Err(MergeError::Native),
        }
        if self.events != other.events {
            let names = |recording: &Self| {
                let each = recording.events.iter();
                let names: Vec<String> =
                    each.map(|event| format!("{}:c={}", event.name, event.interval)).collect();
                names.join(",")
            };
            return Err(MergeError::Events { left: names(self), right: names(other) });
        }
        if self.info("model") != other.info("model") {
            let model = |recording: &Self| match recording.info("model") {
                "" => "those of no model".to_owned(),
                model => format!("those of the model {model}"),
            };
            return Err(MergeError::Events { left: model(self), right: model(other) });
        }
        // Names of generated code belong to a process, by its number.
        let generating: BTreeSet<i32> = self.symbols.iter().map(|symbol| symbol.pid).collect();
        if let Some(symbol) = other.symbols.iter().find(|symbol| generating.contains(&symbol.pid)) {
            return Err(MergeError::Processes { pid: symbol.pid });
        }
        Ok(())
    }

    /// Writes it to `out`, from the header on.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut writer = Writer::new(out)?;
        writer.info(self.info.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
        self.modules.values().try_for_each(|module| writer.module(module))?;
        let blocks: Vec<Block> = self.blocks.values().cloned().collect();
        writer.blocks(&blocks)?;
        if !self.events.is_empty() {
            writer.events(&self.events)?;
        }
        self.threads.values().try_for_each(|thread| writer.thread(thread))?;
        self.images.values().try_for_each(|image| writer.image(image))?;
        writer.symbols(&self.symbols)?;
        self.names.iter().try_for_each(|names| writer.names(names))?;
        writer.frames(0, &self.frames)?;
        let spans = |(sample, _): &(RecordedSample, u64)| {
            self.events.get(sample.event as usize).is_some_and(|event| event.is_spans())
        };
        let (spans, samples): (Vec<_>, Vec<_>) = self.samples.iter().partition(|it| spans(it));
        if !spans.is_empty() {
            writer.spans(&spans)?;
        }
        for (sample, times) in samples {
            let mut left = times;
            while left > 0 {
                let part = left.min(16_384);
                writer.samples(&vec![sample; part as usize])?;
                left -= part;
            }
        }
        for (serial, sums) in &self.sampled {
            writer.sampled(*serial, sums)?;
        }
        self.files.iter().try_for_each(|file| writer.file(file))?;
        if let Some(native) = &self.native {
            let mut bytes = Vec::new();
            native.write(&mut bytes)?;
            writer.native(&bytes)?;
        }
        match self.complete {
            true => writer.end(),
            false => Ok(()),
        }
    }
}

/// The number behind the last one.
fn next<'a>(numbers: impl Iterator<Item = &'a u32>) -> u32 {
    numbers.max().map_or(0, |last| last + 1)
}

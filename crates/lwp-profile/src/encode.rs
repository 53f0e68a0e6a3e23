//! Writing a recording.

use std::io::{self, Write};

use crate::chunk::{self, Kind};
use crate::names::RecordedNames;
use crate::recording::{
    Block, Image, RecordedFile, RecordedFrame, RecordedModule, RecordedSample, RecordedSymbol,
    SampledEvent, ThreadExecutions,
};
use crate::wire::Output;

/// Appends chunks to a file.
///
/// Each chunk is one write, so that a recorder that is killed leaves whole chunks behind, or a last
/// one that its checksum gives away.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a recording.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&chunk::header())?;
        Ok(Self { out, written: chunk::HEADER_BYTES as u64 })
    }

    /// Goes on with a recording whose header has been written.
    pub fn resume(out: W) -> Self {
        Self { out, written: 0 }
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The place that is written to.
    pub fn out(&self) -> &W {
        &self.out
    }

    /// The file.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn chunk(&mut self, kind: Kind, output: &Output) -> io::Result<()> {
        let chunk = chunk::frame(kind, &output.0);
        self.out.write_all(&chunk)?;
        self.written += chunk.len() as u64;
        Ok(())
    }

    /// Keys and values.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn info<'a>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> io::Result<()> {
        let mut output = Output::default();
        for (key, value) in pairs {
            output.text(key);
            output.text(value);
        }
        self.chunk(Kind::INFO, &output)
    }

    /// A module, or more of one that has been written before.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn module(&mut self, module: &RecordedModule) -> io::Result<()> {
        let mut output = Output::default();
        output.number(module.id);
        output.text(&module.path);
        output.bytes(&module.build_id);
        let (size, mtime) = module.version.unwrap_or_default();
        output.number(u8::from(module.version.is_some()));
        output.number(size);
        output.signed(mtime);
        output.signed(module.pid.into());
        output.number(module.mappings.len() as u64);
        for mapping in &module.mappings {
            output.number(mapping.start);
            output.number(mapping.end.wrapping_sub(mapping.start));
            output.number(mapping.offset);
        }
        self.chunk(Kind::MODULE, &output)
    }

    /// Blocks.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn blocks(&mut self, blocks: &[Block]) -> io::Result<()> {
        // Keep chunks small enough for one damaged one to cost little.
        for part in blocks.chunks(4096) {
            let mut output = Output::default();
            for block in part {
                let mut record = Output::default();
                record.number(block.id);
                record.number(block.module);
                record.number(block.address);
                record.bytes(&block.lengths);
                record.number(block.counted);
                record.number(block.end as u8);
                record.number(u8::from(block.target.is_some()));
                record.number(block.target.unwrap_or(0));
                record.bytes(&block.bytes);
                output.bytes(&record.0);
            }
            self.chunk(Kind::BLOCKS, &output)?;
        }
        Ok(())
    }

    /// A thread; replaces what was written of it before.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn thread(&mut self, thread: &ThreadExecutions) -> io::Result<()> {
        let mut output = Output::default();
        output.number(thread.serial);
        output.number(thread.image);
        output.signed(thread.pid.into());
        output.signed(thread.tid.into());
        output.text(&thread.comm);
        output.number(thread.blocks.len() as u64);
        for count in &thread.blocks {
            output.number(count.block);
            output.number(count.runs);
            output.number(count.not_taken);
        }
        output.number(thread.partial.len() as u64);
        for &(block, instructions, times) in &thread.partial {
            output.number(block);
            output.number(instructions);
            output.number(times);
        }
        output.number(thread.steps.len() as u64);
        for &(module, address, times) in &thread.steps {
            // 0 stands for no module.
            output.number(module.map_or(0, |module| u64::from(module) + 1));
            output.number(address);
            output.signed(times);
        }
        output.number(thread.jumps.len() as u64);
        for jump in &thread.jumps {
            for (module, address) in [jump.from, jump.to] {
                output.number(module.map_or(0, |module| u64::from(module) + 1));
                output.number(address);
            }
            output.number(jump.end as u8);
            output.number(u8::from(jump.alone) | u8::from(jump.taken) << 1);
            output.number(jump.times);
        }
        if !thread.misses.is_empty() || !thread.contexts.is_empty() {
            output.number(thread.misses.len() as u64);
        }
        for misses in &thread.misses {
            let (module, address) = misses.at;
            output.number(module.map_or(0, |module| u64::from(module) + 1));
            output.number(address);
            let counts = [misses.loads, misses.stores, misses.memory_loads, misses.memory_stores];
            counts.into_iter().for_each(|count| output.number(count));
        }
        if !thread.contexts.is_empty() {
            thread.contexts.write(&mut output);
        }
        self.chunk(Kind::THREAD, &output)
    }

    /// A process image.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn image(&mut self, image: &Image) -> io::Result<()> {
        let mut output = Output::default();
        output.number(image.id);
        output.signed(image.pid.into());
        output.signed(image.parent.into());
        output.text(&image.comm);
        output.number(u8::from(image.uncounted.is_some()));
        output.text(image.uncounted.as_deref().unwrap_or(""));
        output.text(&image.command);
        self.chunk(Kind::IMAGE, &output)
    }

    /// Names of generated code.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn symbols(&mut self, symbols: &[RecordedSymbol]) -> io::Result<()> {
        for part in symbols.chunks(16384) {
            let mut output = Output::default();
            for symbol in part {
                output.signed(symbol.pid.into());
                output.number(symbol.address);
                output.number(symbol.size);
                output.text(&symbol.name);
            }
            self.chunk(Kind::SYMBOLS, &output)?;
        }
        Ok(())
    }

    /// Names of a module that has been written.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn names(&mut self, names: &RecordedNames) -> io::Result<()> {
        self.chunk(Kind::NAMES, &Output(names.packed()))
    }

    /// The events that samples refer to.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn events(&mut self, events: &[SampledEvent]) -> io::Result<()> {
        let mut output = Output::default();
        for event in events {
            output.text(&event.name);
            output.number(event.interval);
            output.number(u8::from(event.modelled));
        }
        self.chunk(Kind::EVENTS, &output)
    }

    /// Frames of stacks; the first of them has the index `first`.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn frames(&mut self, first: u32, frames: &[RecordedFrame]) -> io::Result<()> {
        let mut index = first;
        for part in frames.chunks(16384) {
            let mut output = Output::default();
            output.number(index);
            let mut last = 0u64;
            for frame in part {
                // Callers come just before as a rule; 0 stands for none.
                output.number(frame.caller.map_or(0, |caller| u64::from(index - caller)));
                output.number(frame.module.map_or(0, |module| u64::from(module) + 1));
                output.signed(frame.address.wrapping_sub(last) as i64);
                last = frame.address;
                index += 1;
            }
            self.chunk(Kind::FRAMES, &output)?;
        }
        Ok(())
    }

    /// Samples; their frames have been written.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn samples(&mut self, samples: &[RecordedSample]) -> io::Result<()> {
        for part in samples.chunks(16384) {
            let mut output = Output::default();
            for sample in part {
                output.number(sample.serial);
                output.number(sample.event);
                output.number(sample.frame);
            }
            self.chunk(Kind::SAMPLES, &output)?;
        }
        Ok(())
    }

    /// Samples and how often each was taken; their frames have been written.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn spans(&mut self, spans: &[(RecordedSample, u64)]) -> io::Result<()> {
        for part in spans.chunks(16384) {
            let mut output = Output::default();
            for (sample, times) in part {
                output.number(sample.serial);
                output.number(sample.event);
                output.number(sample.frame);
                output.number(*times);
            }
            self.chunk(Kind::SPANS, &output)?;
        }
        Ok(())
    }

    /// Writes the number of occurrences of each sampled event in a thread; replaces an earlier
    /// record of that thread.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn sampled(&mut self, serial: u32, counts: &[u64]) -> io::Result<()> {
        let mut output = Output::default();
        output.number(serial);
        counts.iter().for_each(|count| output.number(*count));
        self.chunk(Kind::SAMPLED, &output)
    }

    /// A file to keep.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn file(&mut self, file: &RecordedFile) -> io::Result<()> {
        let mut output = Output::default();
        output.text(&file.path);
        output.bytes(&file.bytes);
        self.chunk(Kind::FILE, &output)
    }

    /// The recording of the program's native run, whose bytes these are.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn native(&mut self, recording: &[u8]) -> io::Result<()> {
        let piece = |part: &[u8]| Output(part.to_vec());
        recording.chunks(1 << 20).try_for_each(|part| self.chunk(Kind::NATIVE, &piece(part)))
    }

    /// The end of a complete recording.
    ///
    /// # Errors
    ///
    /// Those of the output.
    pub fn end(&mut self) -> io::Result<()> {
        self.chunk(Kind::END, &Output::default())?;
        self.out.flush()
    }
}

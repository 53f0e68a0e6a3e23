//! Reading a recording: whatever is whole is used, and what is not is said.
//!
//! Promise: R7

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::mpsc;

use crate::chunk::{self, Batch, Batches, Chunk, Kind, ReadError};
use crate::contexts::RecordedContexts;
use crate::forest::{Forest, each_frame};
use crate::names::RecordedNames;
use crate::recording::{
    Block, BlockCount, BlockEnd, Image, Mapping, RecordedFile, RecordedJump, RecordedMisses,
    RecordedModule, RecordedSymbol, Recording, SampledEvent, ThreadExecutions,
};
use crate::tally::Tally;
use crate::wire::{Input, WireError};

/// Most batches that wait to be decoded.
const AHEAD: usize = 4;

fn unreadable(error: std::io::Error) -> ReadError {
    ReadError::Unreadable(error.to_string())
}

/// A recording that is being read.
#[derive(Debug)]
struct Reading {
    recording: Recording,
    tally: Tally,
    /// The last chunk of each thread, and where it starts in the file: those that it replaces, one
    /// every few seconds of a long run, are not decoded.
    threads: BTreeMap<u32, (u64, Vec<u8>)>,
    /// Stacks and samples, if they are to be kept apart.
    forest: Option<Forest>,
    /// Bytes of the native run's recording; `None` if that is being read: it has none itself.
    native: Option<Vec<u8>>,
    minor: u16,
}

impl Reading {
    /// Decodes batches while another thread reads and verifies the next ones; returns the last
    /// batch.
    fn beside<R: Read + Send>(&mut self, batches: &mut Batches<R>) -> Result<Batch, ReadError> {
        let (send, receive) = mpsc::sync_channel(AHEAD);
        std::thread::scope(|scope| {
            // The receiver must go before the scope waits for the sender.
            let receive = receive;
            let read = move || {
                loop {
                    let batch = batches.next_batch();
                    let last = batch.as_ref().map_or(true, |batch| batch.last);
                    if send.send(batch).is_err() || last {
                        return;
                    }
                }
            };
            std::thread::Builder::new().spawn_scoped(scope, read).map_err(unreadable)?;
            loop {
                let batch =
                    receive.recv().map_err(|error| ReadError::Unreadable(error.to_string()))?;
                let batch = batch.map_err(unreadable)?;
                self.batch(&batch)?;
                if batch.last {
                    return Ok(batch);
                }
            }
        })
    }

    fn batch(&mut self, batch: &Batch) -> Result<(), ReadError> {
        batch.chunks.iter().try_for_each(|chunk| self.chunk(chunk, batch.payload(chunk)))
    }

    fn chunk(&mut self, chunk: &Chunk, payload: &[u8]) -> Result<(), ReadError> {
        let input = Input::new(payload);
        let recording = &mut self.recording;
        let read = match chunk.kind {
            Kind::INFO => recording.read_info(input),
            Kind::MODULE => recording.read_module(input),
            Kind::BLOCKS => recording.read_blocks(input),
            Kind::THREAD => Input::new(payload).narrow().map(|serial| {
                self.threads.insert(serial, (chunk.at, payload.to_vec()));
            }),
            Kind::IMAGE => recording.read_image(input),
            Kind::SYMBOLS => recording.read_symbols(input),
            Kind::NAMES => RecordedNames::unpack(input).map(|names| recording.names.push(names)),
            Kind::EVENTS => recording.read_events(input),
            Kind::FRAMES => match &mut self.forest {
                Some(forest) => forest.read(input),
                None => recording.read_frames(input),
            },
            Kind::SAMPLES => {
                let apart = self.forest.as_ref().map(Forest::len);
                self.tally.read(input, apart.unwrap_or(recording.frames.len()))
            }
            Kind::SPANS => {
                let apart = self.forest.as_ref().map(Forest::len);
                self.tally.read_spans(input, apart.unwrap_or(recording.frames.len()))
            }
            Kind::SAMPLED => recording.read_sampled(input),
            Kind::FILE => recording.read_file(input),
            Kind::NATIVE => {
                self.native.iter_mut().for_each(|bytes| bytes.extend_from_slice(payload));
                Ok(())
            }
            Kind::END => {
                recording.complete = true;
                Ok(())
            }
            kind if kind.is_optional() => Ok(()),
            _ => return Err(ReadError::Newer { major: chunk::MAJOR, minor: self.minor }),
        };
        if let Err(error) = read {
            recording.left_out(chunk.kind, chunk.at, error);
        }
        Ok(())
    }

    fn finish_threads(&mut self) {
        for (at, payload) in std::mem::take(&mut self.threads).into_values() {
            if let Err(error) = self.recording.read_thread(Input::new(&payload)) {
                self.recording.left_out(Kind::THREAD, at, error);
            }
        }
    }
}

impl Recording {
    /// Reads a recording in memory; see [`Self::read`].
    ///
    /// # Errors
    ///
    /// The bytes are no recording.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReadError> {
        Self::read(bytes)
    }

    /// Reads a recording. Damage ends the reading and becomes a warning; only a file that is no
    /// recording at all, or cannot be read, is an error.
    ///
    /// # Errors
    ///
    /// The file is no recording, or cannot be read.
    pub fn read(file: impl Read + Send) -> Result<Self, ReadError> {
        Self::read_into(file, None, Some(Vec::new())).map(|(recording, _)| recording)
    }

    /// Reads a recording, with its stacks and samples separate, in a fraction of the memory: the
    /// recording returned has none.
    ///
    /// # Errors
    ///
    /// The file is no recording, or cannot be read.
    pub fn read_apart(file: impl Read + Send) -> Result<(Self, Forest), ReadError> {
        let (recording, forest) = Self::read_into(file, Some(Forest::default()), Some(Vec::new()))?;
        Ok((recording, forest.unwrap_or_default()))
    }

    fn read_into(
        mut file: impl Read + Send,
        forest: Option<Forest>,
        native: Option<Vec<u8>>,
    ) -> Result<(Self, Option<Forest>), ReadError> {
        let mut head = [0; chunk::HEADER_BYTES];
        let got = chunk::fill(&mut file, &mut head).map_err(unreadable)?;
        let minor = chunk::read_header(&head[..got])?;
        let mut reading = Reading {
            recording: Self::default(),
            tally: Tally::default(),
            threads: BTreeMap::new(),
            forest,
            native,
            minor,
        };
        let mut batches = chunk::Batches::new(file);
        let mut batch = batches.next_batch().map_err(unreadable)?;
        reading.batch(&batch)?;
        if !batch.last {
            batch = reading.beside(&mut batches)?;
        }
        reading.finish_threads();
        let Reading { mut recording, mut forest, tally, native, .. } = reading;
        if let Some((at, what)) = batch.damage {
            let last = batch.chunks.last().map_or(0, |chunk| chunk.payload.end);
            let left =
                (batch.bytes.len() - last) as u64 + batches.skip_rest().map_err(unreadable)?;
            recording.lost_counts |= !recording.complete;
            recording.warnings.push(format!(
                "{what} at byte {at}: the last {left} of {} bytes are left out",
                at + left
            ));
        }
        match &mut forest {
            Some(forest) => forest.samples = tally.apart(),
            None => recording.samples = tally.finish(),
        }
        if !recording.complete && recording.warnings.is_empty() {
            recording.warnings.push(
                "the recorder did not come to its end: counts go up to its last checkpoint".into(),
            );
        }
        recording.drop_dangling(forest.as_mut());
        recording.set_native(&native.unwrap_or_default());
        Ok((recording, forest))
    }

    /// Takes over the recording of the native run, if these bytes are one.
    fn set_native(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // A forged recording may hold recordings in recordings, any number deep.
        match Self::read_into(bytes, None, None) {
            Ok((native, _)) => {
                let remark = |warning: &String| format!("the native run: {warning}");
                self.warnings.extend(native.warnings.iter().map(remark));
                self.native = Some(Box::new(native));
            }
            Err(error) => self.warnings.push(format!("the native run is left out: {error}")),
        }
    }

    fn left_out(&mut self, kind: Kind, at: u64, error: WireError) {
        self.lost_counts |= !self.complete;
        self.warnings.push(format!("chunk {kind} at byte {at}: {error}; it is left out"));
    }

    fn read_info(&mut self, mut input: Input<'_>) -> Result<(), WireError> {
        while !input.is_empty() {
            let key = input.text()?;
            self.info.insert(key, input.text()?);
        }
        Ok(())
    }

    fn read_module(&mut self, mut input: Input<'_>) -> Result<(), WireError> {
        let id = input.narrow()?;
        let path = input.text()?;
        let build_id = input.bytes()?.to_vec();
        let known = input.number()? != 0;
        let version = (input.number()?, input.signed()?);
        let pid = input.signed()? as i32;
        let mut mappings = Vec::new();
        for _ in 0..input.number()? {
            let start = input.number()?;
            let end = start.wrapping_add(input.number()?);
            mappings.push(Mapping { start, end, offset: input.number()? });
        }
        let version = known.then_some(version);
        let module = RecordedModule { id, path, build_id, version, pid, mappings };
        self.modules.insert(id, module);
        Ok(())
    }

    fn read_blocks(&mut self, mut input: Input<'_>) -> Result<(), WireError> {
        while !input.is_empty() {
            let mut record = Input::new(input.bytes()?);
            let id = record.narrow()?;
            let module = record.narrow()?;
            let address = record.number()?;
            let lengths = record.bytes()?.to_vec();
            let counted = record.narrow()?;
            let end = BlockEnd::from_raw(record.number()?);
            let known = record.number()? != 0;
            let target = Some(record.number()?).filter(|_| known);
            let bytes = record.bytes()?.to_vec();
            let block = Block { id, module, address, lengths, counted, end, target, bytes };
            self.blocks.insert(id, block);
        }
        Ok(())
    }

    fn read_thread(&mut self, mut input: Input<'_>) -> Result<(), WireError> {
        let mut thread = ThreadExecutions {
            serial: input.narrow()?,
            image: input.narrow()?,
            pid: input.signed()? as i32,
            tid: input.signed()? as i32,
            comm: input.text()?,
            ..ThreadExecutions::default()
        };
        for _ in 0..input.number()? {
            thread.blocks.push(BlockCount {
                block: input.narrow()?,
                runs: input.number()?,
                not_taken: input.number()?,
            });
        }
        for _ in 0..input.number()? {
            thread.partial.push((input.narrow()?, input.narrow()?, input.number()?));
        }
        for _ in 0..input.number()? {
            let (module, address) = read_place(&mut input)?;
            thread.steps.push((module, address, input.signed()?));
        }
        // Recordings before 1.1 end here.
        let jumps = if input.is_empty() { 0 } else { input.number()? };
        for _ in 0..jumps {
            let (from, to) = (read_place(&mut input)?, read_place(&mut input)?);
            let end = BlockEnd::from_raw(input.number()?);
            let how: u64 = input.number()?;
            let (alone, taken) = (how & 1 != 0, how & 2 != 0);
            thread.jumps.push(RecordedJump { from, to, end, alone, taken, times: input.number()? });
        }
        // Recordings before 1.4 end here, and those without a model.
        let missed = if input.is_empty() { 0 } else { input.number()? };
        for _ in 0..missed {
            thread.misses.push(RecordedMisses {
                at: read_place(&mut input)?,
                loads: input.number()?,
                stores: input.number()?,
                memory_loads: input.number()?,
                memory_stores: input.number()?,
            });
        }
        // Recordings before 1.5 end here, and those whose contexts were not measured.
        if !input.is_empty() {
            thread.contexts = RecordedContexts::read(&mut input)?;
        }
        self.threads.insert(thread.serial, thread);
        Ok(())
    }

    fn read_image(&mut self, mut input: Input<'_>) -> Result<(), WireError> {
        let id = input.narrow()?;
        let pid = input.signed()? as i32;
        let parent = input.signed()? as i32;
        let comm = input.text()?;
        let known = input.number()? != 0;
        let uncounted = Some(input.text()?).filter(|_| known);
        // Recordings before 1.6 end here.
        let command = if input.is_empty() { String::new() } else { input.text()? };
        self.images.insert(id, Image { id, pid, parent, comm, uncounted, command });
        Ok(())
    }

    fn read_symbols(&mut self, mut input: Input<'_>) -> Result<(), WireError> {
        while !input.is_empty() {
            let pid = input.signed()? as i32;
            let address = input.number()?;
            let size = input.number()?;
            self.symbols.push(RecordedSymbol { pid, address, size, name: input.text()? });
        }
        Ok(())
    }

    fn read_events(&mut self, mut input: Input<'_>) -> Result<(), WireError> {
        while !input.is_empty() {
            // Names of events are words of ours; another file's are made fit to be shown.
            let name = lwp_terminal::escape::printable(&input.text()?);
            let interval = input.number()?;
            self.events.push(SampledEvent { name, interval, modelled: input.number()? != 0 });
        }
        Ok(())
    }

    fn read_frames(&mut self, input: Input<'_>) -> Result<(), WireError> {
        each_frame(input, self.frames.len(), |frame| self.frames.push(frame))
    }

    fn read_sampled(&mut self, mut input: Input<'_>) -> Result<(), WireError> {
        let serial = input.narrow()?;
        let mut counts = Vec::new();
        while !input.is_empty() {
            counts.push(input.number()?);
        }
        self.sampled.insert(serial, counts);
        Ok(())
    }

    fn read_file(&mut self, mut input: Input<'_>) -> Result<(), WireError> {
        let path = input.text()?;
        self.files.push(RecordedFile { path, bytes: input.bytes()?.to_vec() });
        Ok(())
    }
}

/// A module, 0 for none, and an address.
fn read_place(input: &mut Input<'_>) -> Result<(Option<u32>, u64), WireError> {
    let at: u64 = input.number()?;
    let module = at.checked_sub(1).and_then(|module| u32::try_from(module).ok());
    Ok((module, input.number()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Writer;
    use crate::contexts::{ContextEdge, ContextKind};
    use crate::recording::{RecordedFrame, RecordedSample};

    fn recording() -> Recording {
        let module = RecordedModule {
            id: 0,
            path: "/bin/true".into(),
            build_id: vec![1, 2, 3],
            version: Some((4096, -5)),
            pid: 7,
            mappings: vec![Mapping { start: 0x1000, end: 0x3000, offset: 0x1000 }],
        };
        let block = Block {
            id: 3,
            module: 0,
            address: 0x1010,
            lengths: vec![1, 2],
            counted: 2,
            end: BlockEnd::Conditional,
            target: Some(0x1000),
            bytes: vec![0x90, 0x75, 0xed],
        };
        let thread = ThreadExecutions {
            serial: 1,
            image: 0,
            pid: 7,
            tid: 8,
            comm: "true".into(),
            blocks: vec![BlockCount { block: 3, runs: 1 << 40, not_taken: 2 }],
            partial: vec![(3, 1, 4)],
            steps: vec![(Some(0), 0x1020, -1), (None, 0x2000, 3)],
            jumps: vec![
                RecordedJump {
                    from: (Some(0), 0x1012),
                    to: (None, u64::MAX),
                    end: BlockEnd::IndirectCall,
                    alone: false,
                    taken: true,
                    times: 1 << 50,
                },
                RecordedJump {
                    from: (Some(0), 0x1011),
                    to: (Some(0), 0x1013),
                    end: BlockEnd::Conditional,
                    alone: true,
                    taken: false,
                    times: 1,
                },
            ],
            misses: vec![RecordedMisses {
                at: (Some(0), 0x1010),
                loads: 5,
                stores: 1 << 40,
                memory_loads: 1,
                memory_stores: 0,
            }],
            contexts: contexts(),
        };
        let (comm, command) = ("true".into(), "/bin/true -x".into());
        let image = Image { id: 0, pid: 7, parent: 1, comm, uncounted: None, command };
        let symbol = RecordedSymbol { pid: 7, address: 0x9000, size: 16, name: "jit f".into() };
        let event = SampledEvent { name: "instructions".into(), interval: 997, modelled: false };
        let frames = vec![
            RecordedFrame { caller: None, module: Some(0), address: 0x2000 },
            RecordedFrame { caller: Some(0), module: None, address: 0xffff_ffff_ffff_fff0 },
            RecordedFrame { caller: Some(0), module: Some(0), address: 0x1010 },
        ];
        let sample = |frame| RecordedSample { serial: 1, event: 0, frame };
        let file = RecordedFile { path: "/src/a.c".into(), bytes: b"int x;".to_vec() };
        Recording {
            info: [("command".to_owned(), "true".to_owned())].into(),
            modules: [(0, module)].into(),
            blocks: [(3, block)].into(),
            threads: [(1, thread)].into(),
            images: [(0, image)].into(),
            symbols: vec![symbol],
            names: vec![RecordedNames { soname: "a.so".into(), ..RecordedNames::default() }],
            events: vec![event],
            frames,
            samples: vec![(sample(1), 2), (sample(2), 1)],
            sampled: [(1, vec![3000])].into(),
            files: vec![file],
            native: None,
            complete: true,
            warnings: Vec::new(),
            lost_counts: false,
        }
    }

    /// Contexts of every kind, the second of them called from a module and by an edge that the
    /// third has too.
    fn contexts() -> RecordedContexts {
        let root = ContextEdge { entry: (Some(0), 0x1010), ..ContextEdge::default() };
        let site = Some((Some(0), 0x1020));
        let call = ContextEdge { kind: ContextKind::Call, site, entry: (None, u64::MAX) };
        let jump = ContextEdge { kind: ContextKind::Jump, site, entry: (Some(0), 1) };
        let signal = ContextEdge { kind: ContextKind::Signal, site, entry: (Some(0), 0x1030) };
        let merged = ContextEdge { kind: ContextKind::Merged, ..ContextEdge::default() };
        RecordedContexts::gather([
            (None, root, 1, 10),
            (Some(0), call, 1 << 40, u64::MAX),
            (Some(1), call, 2, 3),
            (Some(1), jump, 0, 0),
            (Some(0), signal, 7, 1),
            (None, merged, 9, 9),
        ])
    }

    fn written(recording: &Recording) -> Vec<u8> {
        let mut bytes = Vec::new();
        recording.write(&mut bytes).unwrap();
        bytes
    }

    /// Promise: R29
    #[test]
    fn joined_recordings_hold_both() {
        let (mut both, one) = (recording(), recording());
        assert_eq!(both.join(one.clone()), Err(crate::MergeError::Processes { pid: 7 }));
        assert_eq!(both, one, "nothing has changed");
        let mut other = one.clone();
        other.symbols.clear();
        other.info.insert("command".into(), "false".into());
        both.join(other.clone()).unwrap();
        assert_eq!(both.instructions(), 2 * one.instructions());
        assert_eq!(both.info("command"), "false + true");
        let taken =
            |recording: &Recording| -> u64 { recording.samples.iter().map(|it| it.1).sum() };
        assert_eq!(taken(&both), 2 * taken(&one));
        assert_eq!(both.frames[4], RecordedFrame { caller: Some(3), ..one.frames[1] });
        assert_eq!(both.frames[5].module, Some(1));
        assert_eq!(Recording::parse(&written(&both)).unwrap(), both);
        other.events[0].interval += 1;
        assert!(matches!(both.join(other), Err(crate::MergeError::Events { .. })));
        let exact = Recording { events: Vec::new(), ..Recording::default() };
        assert_eq!(both.join(exact), Err(crate::MergeError::Modes));
    }

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let recording = recording();
        assert_eq!(Recording::parse(&written(&recording)).unwrap(), recording);
        assert_eq!(recording.instructions(), (1 << 41) + 4 - 1 + 3);
    }

    #[test]
    fn spans_are_read_with_their_lengths() {
        let mut recording = recording();
        recording.events[0].name = crate::Event::OFF_CPU.to_owned();
        recording.samples[0].1 = 1 << 31;
        let bytes = written(&recording);
        assert!(bytes.len() < 4096);
        assert_eq!(Recording::parse(&bytes).unwrap(), recording);
        let (_, forest) = Recording::read_apart(&bytes[..]).unwrap();
        let all: u64 = forest.samples[0].frames.iter().map(|(_, times)| u64::from(*times)).sum();
        assert_eq!(all, (1 << 31) + 1);
    }

    #[test]
    fn a_native_run_is_a_recording_within() {
        let native = recording();
        let both = Recording { native: Some(Box::new(native.clone())), ..recording() };
        let bytes = written(&both);
        assert_eq!(Recording::parse(&bytes).unwrap(), both);
        // Sums have the sums of both runs, and only those of both.
        let mut other = both.clone();
        other.symbols.clear();
        other.native.as_mut().unwrap().symbols.clear();
        let mut sum = both.clone();
        sum.join(other.clone()).unwrap();
        let runs = sum.native.as_ref().unwrap().instructions();
        assert_eq!(runs, 2 * native.instructions());
        other.native = None;
        assert_eq!(sum.join(other), Err(crate::MergeError::Native));
        // A native run in a native run is no recording of ours, however deep.
        let mut deep = written(&recording());
        for _ in 0..50 {
            let mut writer = Writer::resume(written(&recording()));
            writer.native(&deep).unwrap();
            deep = writer.into_inner();
        }
        let read = Recording::parse(&deep).unwrap();
        assert_eq!(read.native.unwrap().native, None);
        // What is damaged or nothing of ours is left out, and the counts stay.
        let mut writer = Writer::resume(written(&recording()));
        writer.native(b"GARBAGE").unwrap();
        let read = Recording::parse(&writer.into_inner()).unwrap();
        assert_eq!((read.native.is_none(), read.instructions()), (true, native.instructions()));
        assert!(read.warnings[0].starts_with("the native run is left out"), "{:?}", read.warnings);
    }

    #[test]
    fn every_truncation_is_read_up_to_the_damage() {
        let bytes = written(&recording());
        for len in chunk::HEADER_BYTES..bytes.len() {
            let read = Recording::parse(&bytes[..len]).unwrap();
            assert!(!read.warnings.is_empty(), "{len} bytes read without a warning");
            assert!(!read.complete);
        }
        for len in 0..chunk::HEADER_BYTES {
            assert!(Recording::parse(&bytes[..len]).is_err());
        }
    }

    /// A disk with room for so many bytes.
    #[derive(Debug)]
    struct Disk(Vec<u8>, usize);

    impl std::io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let room = (self.1 - self.0.len()).min(bytes.len());
            if room == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            self.0.extend_from_slice(&bytes[..room]);
            Ok(room)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_loses_only_what_did_not_fit() {
        let mut writer = Writer::new(Disk(Vec::new(), 200)).unwrap();
        let thread = |serial| ThreadExecutions { serial, ..ThreadExecutions::default() };
        let written = (0..100).take_while(|serial| writer.thread(&thread(*serial)).is_ok()).count();
        let read = Recording::parse(&writer.into_inner().0).unwrap();
        assert!(written > 3 && written < 100);
        assert_eq!(read.threads.len(), written);
        assert!(!read.complete && !read.warnings.is_empty());
    }

    #[test]
    fn unknown_chunks_are_skipped_or_refused() {
        let mut bytes = written(&recording());
        bytes.extend(chunk::frame(Kind(*b"note"), b"anything"));
        assert_eq!(Recording::parse(&bytes).unwrap(), recording());
        bytes.extend(chunk::frame(Kind(*b"NOTE"), b"anything"));
        assert!(matches!(Recording::parse(&bytes), Err(ReadError::Newer { .. })));
    }

    #[test]
    fn a_later_report_of_a_thread_replaces_the_earlier() {
        let mut recording = recording();
        let mut writer = Writer::resume(written(&recording));
        let thread = recording.threads.get_mut(&1).unwrap();
        thread.blocks[0].runs += 5;
        writer.thread(thread).unwrap();
        assert_eq!(Recording::parse(&writer.into_inner()).unwrap(), recording);
    }

    proptest! {
        /// Whatever a chunk says behind its correct checksum, reading ends without a panic.
        #[test]
        fn any_payload_is_read(
            kind in prop::sample::select(vec![
                Kind::INFO, Kind::MODULE, Kind::BLOCKS, Kind::THREAD, Kind::IMAGE, Kind::SYMBOLS,
                Kind::EVENTS, Kind::FRAMES, Kind::SAMPLES, Kind::SAMPLED, Kind::FILE,
            ]),
            payload in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut bytes = chunk::header().to_vec();
            bytes.extend(chunk::frame(kind, &payload));
            let recording = Recording::parse(&bytes).unwrap();
            let _ = recording.instructions();
        }

        #[test]
        fn any_flipped_byte_is_noticed(at in 0usize..2000, bit in 0u8..8) {
            let bytes = written(&recording());
            let at = chunk::HEADER_BYTES + at % (bytes.len() - chunk::HEADER_BYTES);
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let read = Recording::parse(&damaged).unwrap();
            prop_assert!(!read.warnings.is_empty());
        }

        #[test]
        fn any_file_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut file = chunk::header().to_vec();
            file.extend(&bytes);
            let _ = Recording::parse(&file);
            let _ = Recording::parse(&bytes);
        }
    }
}

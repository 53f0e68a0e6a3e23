//! A kernel that answers from a script.
//!
//! A test says which files exist, what each perf_event_open shall answer and what the events count;
//! it then sees every call that was made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::{Control, Handle, Inner, Kernel};
use crate::attr::Attr;
use crate::page::{Pages, UserCount, field, read_user};

/// One perf_event_open that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The attributes that were asked for.
    pub attr: Attr,
    /// For which process or thread.
    pub pid: i32,
    /// On which processor.
    pub cpu: i32,
    /// The leader's number, for members of a group.
    pub leader: Option<usize>,
}

/// Decides what perf_event_open answers.
type Answer = Box<dyn Fn(&Opened) -> Result<(), Errno> + Send>;

#[derive(Default)]
struct State {
    files: BTreeMap<String, String>,
    cpuid: BTreeMap<(u32, u32), [u32; 4]>,
    answer: Option<Answer>,
    opened: Vec<Opened>,
    controls: Vec<(usize, Control)>,
    shared: Vec<(usize, usize)>,
    reads: BTreeMap<usize, Result<Vec<u64>, Errno>>,
    read: Vec<usize>,
    pages: BTreeMap<usize, Result<Memory, Errno>>,
}

/// A scripted kernel. Clones share the script.
#[derive(Clone, Default)]
pub struct Script(Arc<Mutex<State>>);

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Script").field("opened", &self.state().opened).finish_non_exhaustive()
    }
}

impl Script {
    /// A kernel that opens everything, with no file.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file.
    #[must_use]
    pub fn file(self, path: &str, text: &str) -> Self {
        self.state().files.insert(path.into(), text.into());
        self
    }

    /// Adds what CPUID answers.
    #[must_use]
    pub fn with_cpuid(self, leaf: u32, subleaf: u32, registers: [u32; 4]) -> Self {
        self.state().cpuid.insert((leaf, subleaf), registers);
        self
    }

    /// Decides what perf_event_open answers.
    #[must_use]
    pub fn answering(self, answer: impl Fn(&Opened) -> Result<(), Errno> + Send + 'static) -> Self {
        self.state().answer = Some(Box::new(answer));
        self
    }

    /// Sets the words that read(2) of event `number` returns; none: error state.
    pub fn set_read(&self, number: usize, words: Result<Vec<u64>, Errno>) {
        self.state().reads.insert(number, words);
    }

    /// Sets the memory of event `number`.
    pub fn set_pages(&self, number: usize, memory: Result<Memory, Errno>) {
        self.state().pages.insert(number, memory);
    }

    /// Every perf_event_open so far.
    pub fn opened(&self) -> Vec<Opened> {
        self.state().opened.clone()
    }

    /// Every control so far, with the number of its event.
    pub fn controls(&self) -> Vec<(usize, Control)> {
        self.state().controls.clone()
    }

    /// The events that write to the ring of another one, with that one's number.
    pub fn shared(&self) -> Vec<(usize, usize)> {
        self.state().shared.clone()
    }

    /// The number of the event of every read(2) so far.
    pub fn read_events(&self) -> Vec<usize> {
        self.state().read.clone()
    }

    fn number(event: &Handle) -> Result<usize, Errno> {
        match event.0 {
            Inner::Scripted(number) => Ok(number),
            Inner::Descriptor(_) | Inner::Closed => Err(Errno::BADF),
        }
    }
}

impl Kernel for Script {
    fn open(
        &self,
        attr: &Attr,
        pid: i32,
        cpu: i32,
        leader: Option<&Handle>,
    ) -> Result<Handle, Errno> {
        let leader = leader.map(Self::number).transpose()?;
        let opened = Opened { attr: *attr, pid, cpu, leader };
        let mut state = self.state();
        if let Some(answer) = &state.answer {
            answer(&opened)?;
        }
        state.opened.push(opened);
        Ok(Handle(Inner::Scripted(state.opened.len() - 1)))
    }

    fn read(&self, event: &Handle, bytes: &mut [u8]) -> Result<usize, Errno> {
        let mut state = self.state();
        state.read.push(Self::number(event)?);
        let words = state.reads.get(&Self::number(event)?).ok_or(Errno::BADF)?.clone()?;
        let from = words.iter().flat_map(|word| word.to_le_bytes());
        let mut written = 0;
        for (to, from) in bytes.iter_mut().zip(from) {
            *to = from;
            written += 1;
        }
        if written < words.len() * 8 { Err(Errno::NOSPC) } else { Ok(written) }
    }

    fn control(&self, event: &Handle, control: Control) -> Result<(), Errno> {
        let number = Self::number(event)?;
        self.state().controls.push((number, control));
        Ok(())
    }

    fn share_ring(&self, event: &Handle, other: &Handle) -> Result<(), Errno> {
        let pair = (Self::number(event)?, Self::number(other)?);
        self.state().shared.push(pair);
        Ok(())
    }

    fn map(&self, event: &Handle, data_bytes: usize) -> Result<Box<dyn Pages>, Errno> {
        let state = self.state();
        let memory = state.pages.get(&Self::number(event)?).ok_or(Errno::PERM)?.clone()?;
        if memory.data_bytes() != data_bytes {
            return Err(Errno::INVAL);
        }
        Ok(Box::new(memory))
    }

    fn wait(&self, event: &Handle, _: Duration) -> Result<bool, Errno> {
        let state = self.state();
        let memory = state.pages.get(&Self::number(event)?).ok_or(Errno::BADF)?.clone()?;
        Ok(memory.load64(field::DATA_HEAD) != memory.load64(field::DATA_TAIL))
    }

    fn text(&self, path: &str) -> Result<String, Errno> {
        self.state().files.get(path).cloned().ok_or(Errno::NOENT)
    }

    fn names(&self, directory: &str) -> Result<Vec<String>, Errno> {
        let folder = format!("{directory}/");
        let state = self.state();
        let inside = state.files.keys().filter_map(|path| path.strip_prefix(&folder));
        let mut names: Vec<String> =
            inside.map(|rest| rest.split('/').next().unwrap_or(rest).to_owned()).collect();
        names.dedup();
        if names.is_empty() { Err(Errno::NOENT) } else { Ok(names) }
    }

    fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        self.state().cpuid.get(&(leaf, subleaf)).copied().unwrap_or([0; 4])
    }
}

/// The change of a scripted page between two reads of it: `(reads so far, metadata)`.
type Disturb = Arc<dyn Fn(u64, &mut [u8]) + Send + Sync>;

#[derive(Default)]
struct Bytes {
    metadata: Vec<u8>,
    data: Vec<u8>,
    loads: u64,
    disturb: Option<Disturb>,
    pmc: BTreeMap<u32, u64>,
    tsc: u64,
}

/// Memory of an event, made by a test. Clones share it.
#[derive(Clone)]
pub struct Memory(Arc<Mutex<Bytes>>);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes of ring)", self.data_bytes())
    }
}

impl Memory {
    /// A metadata page of zeros and a ring of `data_bytes`.
    pub fn new(data_bytes: usize) -> Self {
        let metadata = vec![0; 4096];
        let data = vec![0; data_bytes];
        Self(Arc::new(Mutex::new(Bytes { metadata, data, ..Bytes::default() })))
    }

    fn bytes(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes into the metadata page.
    pub fn set(&self, offset: usize, bytes: &[u8]) {
        self.bytes().metadata[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets a hardware counter.
    pub fn set_pmc(&self, counter: u32, value: u64) {
        self.bytes().pmc.insert(counter, value);
    }

    /// Sets the time stamp counter.
    pub fn set_tsc(&self, value: u64) {
        self.bytes().tsc = value;
    }

    /// Lets `disturb` change the metadata before every load, as the kernel may.
    pub fn disturb(&self, disturb: impl Fn(u64, &mut [u8]) + Send + Sync + 'static) {
        self.bytes().disturb = Some(Arc::new(disturb));
    }

    /// Writes `record` as the kernel does: behind the head, around the end. False, and nothing
    /// written, where the reader has not made room.
    pub fn write(&self, record: &[u8]) -> bool {
        let head = self.load64(field::DATA_HEAD);
        let tail = self.load64(field::DATA_TAIL);
        let mut bytes = self.bytes();
        let size = bytes.data.len() as u64;
        if head.wrapping_sub(tail) + record.len() as u64 > size {
            return false;
        }
        for (index, byte) in (0u64..).zip(record) {
            let at = (head.wrapping_add(index) % size) as usize;
            bytes.data[at] = *byte;
        }
        drop(bytes);
        let head = head.wrapping_add(record.len() as u64);
        self.set(field::DATA_HEAD, &head.to_le_bytes());
        true
    }

    fn load<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = self.bytes();
        bytes.loads += 1;
        if let Some(disturb) = bytes.disturb.clone() {
            let loads = bytes.loads;
            disturb(loads, &mut bytes.metadata);
        }
        let word = &bytes.metadata[offset..offset + N];
        word.try_into().expect("as many bytes as asked for")
    }
}

impl Pages for Memory {
    fn load32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.load(offset))
    }

    fn load64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.load(offset))
    }

    fn set_tail(&self, tail: u64) {
        self.set(field::DATA_TAIL, &tail.to_le_bytes());
    }

    fn data_bytes(&self) -> usize {
        self.bytes().data.len()
    }

    fn copy(&self, offset: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.bytes().data[offset..offset + bytes.len()]);
    }

    fn rdpmc(&self, counter: u32) -> u64 {
        self.bytes().pmc.get(&counter).copied().expect("a counter that the test has set")
    }

    fn tsc(&self) -> u64 {
        self.bytes().tsc
    }

    fn user_count(&self) -> Option<UserCount> {
        read_user(self)
    }
}

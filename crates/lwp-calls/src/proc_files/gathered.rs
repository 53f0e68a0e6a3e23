//! What the kernel tells for a file of `/proc`, read without the machine's lock where it is much: a
//! process with ten thousands of mappings takes the kernel the better part of a second.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lwp_process::kernel_files;
use lwp_process::maps::{self, Mapping};
use lwp_process::{Tid, sys, tracee_files};

use super::text::{self, Ours};
use super::{Kind, ProcFile, shown_protection};

/// Bytes of maps from which on a process has many mappings.
const MANY: usize = 256 << 10;
/// Most texts that wait for their threads. A thread waits for one.
const MOST: usize = 64;

/// What the kernel tells.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The text as the reader may see it; maps and smaps without what is ours. None where it may
    /// not be read.
    pub(super) told: Option<Vec<u8>>,
    /// The part of ours in the sums.
    pub(super) ours: Option<Ours>,
    /// The mappings, where the text does not say whose they are.
    pub(super) mappings: Vec<Mapping>,
}

impl Gathered {
    /// Reads what there is to tell of `file`, of which `real` is a handle. `protected` are the
    /// pages that are protected for our sake.
    pub(super) fn of(file: ProcFile, reader: Tid, real: &OwnedFd, protected: &[u64]) -> Self {
        let ProcFile { kind, about } = file;
        // Names need not be of characters; they are not looked into.
        let told = tracee_files::read_as(reader, real).ok().map(|told| match kind {
            Kind::Maps => text::maps(&shown_protection::maps(&told, protected)),
            Kind::Smaps => text::smaps(&shown_protection::smaps(&told, protected)),
            _ => told,
        });
        let sums = matches!(kind, Kind::SmapsRollup | Kind::Statm | Kind::Stat | Kind::Status);
        let ours = || {
            let smaps = kernel_files::bytes(about, "smaps").ok()?;
            Some(Ours::sum(&String::from_utf8_lossy(&smaps)))
        };
        let mappings = if kind == Kind::NumaMaps { maps::read(about) } else { Vec::new() };
        Self { told, ours: sums.then(ours).flatten(), mappings }
    }
}

/// Returns whether a process has so many mappings that its files are read without the lock.
pub(super) fn has_many_mappings(about: Tid) -> bool {
    let Ok(maps) = kernel_files::open(about, "maps") else { return false };
    let mut bytes = Vec::with_capacity(16 << 10);
    maps.take(MANY as u64).read_to_end(&mut bytes).is_ok_and(|read| read == MANY)
}

/// A text, the thread that waits for it, and its descriptor.
#[derive(Debug)]
struct Text {
    reader: Tid,
    fd: i32,
    gathered: Gathered,
    /// The tracer knows of it.
    announced: bool,
}

/// Texts that have been read without the lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrived(Arc<Mutex<Vec<Text>>>);

impl Arrived {
    fn texts(&self) -> MutexGuard<'_, Vec<Text>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread of ours read a text, and then wakes the tracer. False where there can be none.
    pub(super) fn fetch(
        &self,
        (reader, fd): (Tid, i32),
        wake: Arc<OwnedFd>,
        gather: impl FnOnce() -> Gathered + Send + 'static,
    ) -> bool {
        let arrived = self.clone();
        let work = move || {
            let gathered = gather();
            let mut texts = arrived.texts();
            texts.retain(|text| text.reader != reader);
            texts.truncate(MOST - 1);
            texts.push(Text { reader, fd, gathered, announced: false });
            drop(texts);
            sys::event_signal(&wake);
        };
        std::thread::Builder::new().name("lwp-proc".into()).spawn(work).is_ok()
    }

    /// The threads whose texts have come since the last call, and their descriptors.
    pub(super) fn news(&self) -> Vec<(Tid, i32)> {
        let mut texts = self.texts();
        let new = texts.iter_mut().filter(|text| !text.announced);
        new.map(|text| {
            text.announced = true;
            (text.reader, text.fd)
        })
        .collect()
    }

    /// Takes the text for a thread.
    pub(super) fn take(&self, reader: Tid, fd: i32) -> Option<Gathered> {
        let mut texts = self.texts();
        let found = texts.iter().position(|text| (text.reader, text.fd) == (reader, fd))?;
        Some(texts.swap_remove(found).gathered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_was_read_elsewhere_arrives_once() {
        let arrived = Arrived::default();
        let wake = Arc::new(sys::event_fd().expect("an eventfd"));
        let text = || Gathered { told: Some(b"text".to_vec()), ..Gathered::default() };
        assert!(arrived.fetch((7, 3), wake.clone(), text));
        let mut news = Vec::new();
        while news.is_empty() {
            news = arrived.news();
            std::thread::yield_now();
        }
        assert_eq!(news, [(7, 3)]);
        assert!(arrived.news().is_empty());
        assert!(arrived.take(7, 4).is_none() && arrived.take(8, 3).is_none());
        assert_eq!(arrived.take(7, 3).and_then(|it| it.told), Some(b"text".to_vec()));
        assert!(arrived.take(7, 3).is_none());
    }

    #[test]
    fn few_mappings_are_not_many() {
        assert!(!has_many_mappings(std::process::id().cast_signed()));
        assert!(!has_many_mappings(i32::MAX));
    }
}

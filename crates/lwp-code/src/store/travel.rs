//! Kept translations on their way to another machine, and from there.
//!
//! An archive is code that will be executed: whoever can write to it can make this user's programs
//! do anything. The checks here find damage and entries that are of no use, not lies: a file is
//! only known to be whole. Nothing in an archive names a file that is written. A path in it leads
//! to a file that is looked at, if it is an ordinary one, and whose content decides.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;

use lwp_process::maps;
use lwp_process::memory;
use rustix::fs::{self, Mode, OFlags};
use twox_hash::XxHash3_128;

use super::archive::{ArchiveError, Reader, Writer};
use super::header::this_processor;
use super::{Description, Header, Item, Origin, Store};
use crate::file_identity::{self, Stamp};

/// The name of the one module that is no file.
const VDSO: &str = "[vdso]";

/// The outcome of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Entries written.
    pub entries: usize,
    /// Their bytes in the store.
    pub bytes: u64,
    /// Entries that this version of lwp does not use.
    pub old: usize,
}

/// The outcome of an entry's import.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fate {
    /// The store has it now.
    Taken,
    /// The store has as much already.
    Known,
    /// The store does not get it.
    Left(Reason),
}

/// The reason why an entry is left.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// Its content is not that of its hash.
    #[error("damaged")]
    Damaged,
    /// Another version of lwp made it.
    #[error("made by another version of lwp")]
    Translator,
    /// Its code executes, or avoids, instructions that this processor lacks, or has.
    #[error("made for another kind of processor")]
    Processor,
    /// There is no such file.
    #[error("not here")]
    Missing,
    /// The file has another build id, size or code.
    #[error("another build is here")]
    Changed,
    /// It could not be written.
    #[error("cannot be written: {0}")]
    NotWritten(io::Error),
}

impl Store {
    /// Writes the entries that are `wanted`, and can be of use elsewhere, as an archive.
    pub fn export(
        &self,
        to: impl Write,
        wanted: &dyn Fn(&Item, &Header) -> bool,
    ) -> io::Result<Exported> {
        let mut chosen = Vec::new();
        let mut exported = Exported::default();
        for item in self.items()? {
            let Ok(header) = &item.header else { continue };
            if !wanted(&item, header) {
                continue;
            }
            match header.origin.translator == lwp_dbt::VERSION {
                false => exported.old += 1,
                true => {
                    let origin = placeless(&header.origin);
                    chosen.push((origin.key(), header.content, header.path.clone(), item));
                }
            }
        }
        chosen.sort_unstable_by(|a, b| (a.0, a.1, &a.2).cmp(&(b.0, b.1, &b.2)));
        let mut writer = Writer::new(to)?;
        for (.., item) in &chosen {
            // One that is removed meanwhile, or damaged, is not there.
            let Ok((mut header, image)) = self.read(item) else { continue };
            header.origin = placeless(&header.origin);
            (header.key, header.stamp) = (header.origin.key(), Stamp::default());
            writer.add(&header, &image)?;
            exported.entries += 1;
            exported.bytes += item.bytes;
        }
        writer.end()?;
        Ok(exported)
    }

    /// Takes the entries of an archive that are `wanted` and of use here, or of whichever module
    /// where `all` is true. `said` hears what has become of each.
    pub fn import(
        &self,
        archive: &mut Reader<impl Read>,
        all: bool,
        wanted: &dyn Fn(&Header) -> bool,
        said: &mut dyn FnMut(&Header, Fate),
    ) -> Result<(), ArchiveError> {
        while let Some(header) = archive.next_header()? {
            if wanted(&header) {
                let fate = self.take(archive, &header, all).unwrap_or_else(Fate::Left);
                said(&header, fate);
            }
        }
        Ok(())
    }

    fn take(
        &self,
        archive: &mut Reader<impl Read>,
        header: &Header,
        all: bool,
    ) -> Result<Fate, Reason> {
        let (origin, stamp) = match serves(header) {
            // The first run that uses it compares the code.
            Err(Reason::Missing | Reason::Changed) if all && header.origin.travels => {
                (header.origin.clone(), Stamp::default())
            }
            served => served?,
        };
        let key = origin.key();
        if self.header(key).is_some_and(|known| known.fragments >= header.fragments) {
            return Ok(Fate::Known);
        }
        let image = archive.image(header).ok_or(Reason::Damaged)?;
        let image = match header.is_profile() {
            // Nothing in a profile can do harm.
            true => image,
            false => {
                lwp_dbt::Image::parse(Box::new(image.clone())).map_err(|_| Reason::Damaged)?;
                image
            }
        };
        let about = Description {
            stamp,
            content: header.content,
            address: header.address,
            fragments: header.fragments,
            path: header.path.clone(),
            code_bytes: header.code_bytes,
            origin,
        };
        self.save(key, &about, &[image]).map_err(Reason::NotWritten)?;
        Ok(Fate::Taken)
    }
}

/// The origin as an archive says it: a file without a build id is known by its code alone.
fn placeless(origin: &Origin) -> Origin {
    let module = if origin.travels { origin.module } else { 0 };
    Origin { module, ..origin.clone() }
}

/// Returns the origin and the stamp that the entry's module has here, if the entry is of use.
fn serves(header: &Header) -> Result<(Origin, Stamp), Reason> {
    let origin = &header.origin;
    if origin.translator != lwp_dbt::VERSION {
        return Err(Reason::Translator);
    }
    if origin.processor != this_processor() {
        return Err(Reason::Processor);
    }
    // Neither may be taken for the other: profiles are imported where code is not.
    let is_other = (*origin == origin.of_profile()) != header.is_profile();
    if header.key != origin.key() || is_other {
        return Err(Reason::Damaged);
    }
    if header.path == VDSO {
        let same = vdso().is_some_and(|bytes| XxHash3_128::oneshot(&bytes) == origin.module);
        let here = (origin.clone(), Stamp::default());
        return if same { Ok(here) } else { Err(Reason::Changed) };
    }
    let file = ordinary_file(&header.path).ok_or(Reason::Missing)?;
    let stamp = Stamp::of(&file).ok_or(Reason::Missing)?;
    let (module, travels) = file_identity::name_of(&file, &stamp);
    // Only code of the file itself is read, and at most as much as it says of its size.
    let same = travels == origin.travels
        && (!travels || module == origin.module)
        && !origin.segments.is_empty()
        && origin.segments.iter().all(|it| it.offset <= stamp.size)
        && file_identity::content(&file, &origin.segments) == Some(header.content)
        && Stamp::of(&file) == Some(stamp);
    let here = Origin { module, ..origin.clone() };
    match same {
        true if stamp.is_settled() => Ok((here, stamp)),
        true => Ok((here, Stamp::default())),
        false => Err(Reason::Changed),
    }
}

/// Opens a file to read it, if it is an ordinary one: opening others can block, or do things.
#[expect(clippy::disallowed_methods, reason = "no program runs: the user imports the archive")]
fn ordinary_file(path: &str) -> Option<File> {
    if !path.starts_with('/') {
        return None;
    }
    let found = fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mode = fs::fstat(&found).ok()?.st_mode;
    if fs::FileType::from_raw_mode(mode) != fs::FileType::RegularFile {
        return None;
    }
    let again = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    fs::open(again, flags, Mode::empty()).ok().map(File::from)
}

/// The bytes of this process's vdso, which every process has.
fn vdso() -> Option<Vec<u8>> {
    let pid = i32::try_from(std::process::id()).ok()?;
    let mapping = maps::read(pid).into_iter().find(|mapping| mapping.name == VDSO)?;
    let mut bytes = vec![0; (mapping.end - mapping.start) as usize];
    memory::read_exact(pid, mapping.start, &mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests;

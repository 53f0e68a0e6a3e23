//! Application code as the translator reads it.

use std::ops::Range;

use iced_x86::{Decoder, DecoderError, DecoderOptions};
use lwp_arch::insn;
use lwp_dbt::{AppPc, CodeSource};
use lwp_process::memory;
use rustc_hash::FxHashMap;

use super::PAGE;
use crate::functions::MappedFunctions;
use crate::guards::Notices;
use crate::module_images::ModuleSource;

/// The number of pages that are kept of a module.
const PAGES_KEPT: usize = 512;

/// Reads code of one executable mapping.
pub(super) struct ModuleCode<'a> {
    pub(super) tid: i32,
    pub(super) range: (u64, u64),
    /// The file that the code comes from, where others get the translations, too: they must be the
    /// file's, whatever a process has in its memory.
    pub(super) source: Option<&'a ModuleSource>,
    pub(super) pages: Option<&'a mut Pages>,
    pub(super) notices: Option<&'a Notices>,
    pub(super) functions: Option<&'a MappedFunctions>,
}

impl CodeSource for ModuleCode<'_> {
    fn read_code(&mut self, pc: AppPc, buffer: &mut [u8]) -> usize {
        if pc.0 < self.range.0 || pc.0 >= self.range.1 {
            return 0;
        }
        // It is read when it is guarded, by whoever comes there.
        let page = pc.0 & !(PAGE as u64 - 1);
        if self.notices.is_some_and(|notices| notices.is_open(page)) {
            return 0;
        }
        let want = buffer.len().min((self.range.1 - pc.0) as usize);
        let buffer = &mut buffer[..want];
        let mut none = Pages::default();
        let read = match (&mut self.pages, self.source) {
            (None, None) => lwp_process::sys::read_memory(self.tid, pc.0, buffer).unwrap_or(0),
            (pages, source) => {
                let pages = pages.as_deref_mut().unwrap_or(&mut none);
                pages.read(pc.0, buffer, |page, bytes| match source {
                    Some(source) => source.read(page, bytes),
                    None => memory::read_exact(self.tid, page, bytes).is_ok(),
                })
            }
        };
        // Whoever comes there finds out what is behind.
        if pc.0 + read as u64 == self.range.1 && is_cut_short(&buffer[..read]) { 0 } else { read }
    }

    fn read_data(&mut self, address: u64, buffer: &mut [u8]) -> usize {
        lwp_process::sys::read_memory(self.tid, address, buffer).unwrap_or(0)
    }

    fn function(&mut self, pc: AppPc) -> Option<Range<u64>> {
        self.functions?.about(pc.0)
    }

    fn gives_notice(&mut self, pc: AppPc, len: usize) -> bool {
        let range = (pc.0, pc.0 + len as u64);
        self.notices.is_some_and(|notices| notices.guard(range, self.range))
    }
}

/// Returns whether the bytes end before the instruction does that they begin with.
pub fn is_cut_short(bytes: &[u8]) -> bool {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let instruction = bytes.len() < insn::LONGEST && decoder.decode().is_invalid();
    instruction && decoder.last_error() == DecoderError::NoMoreBytes
}

/// Pages of a module's code, as far as they have been read.
#[derive(Debug, Default)]
pub struct Pages(FxHashMap<u64, Box<[u8; PAGE]>>);

impl Pages {
    /// Fills `buffer` with the code at `address`; `read_page` reads a page that is not there yet.
    /// Returns the number of bytes up to the first page that cannot be read.
    pub fn read(
        &mut self,
        address: u64,
        buffer: &mut [u8],
        mut read_page: impl FnMut(u64, &mut [u8]) -> bool,
    ) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let at = address + done as u64;
            let page = at & !(PAGE as u64 - 1);
            if !self.0.contains_key(&page) {
                let mut bytes = Box::new([0; PAGE]);
                if !read_page(page, &mut bytes[..]) {
                    return done;
                }
                if self.0.len() >= PAGES_KEPT {
                    self.0.clear();
                }
                self.0.insert(page, bytes);
            }
            let offset = (at - page) as usize;
            let len = (PAGE - offset).min(buffer.len() - done);
            buffer[done..done + len].copy_from_slice(&self.0[&page][offset..offset + len]);
            done += len;
        }
        done
    }
}

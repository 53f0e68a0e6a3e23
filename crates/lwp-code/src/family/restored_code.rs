//! The code that restored fragments were made of.

use std::borrow::Cow;

use lwp_dbt::FragmentId;

use super::{Family, Pages, UnitId};

/// The code of fragments that earlier runs have translated, read from its file by pages: asked for
/// in the order of addresses, each page is read once.
#[derive(Debug, Default)]
pub struct RestoredCode {
    unit: Option<UnitId>,
    pages: Pages,
}

impl RestoredCode {
    /// Unit and bytes of a fragment of `family`, where that keeps what it comes from.
    pub fn origin_of<'f>(
        &mut self,
        family: &'f Family,
        id: FragmentId,
    ) -> Option<(UnitId, Cow<'f, [u8]>)> {
        if let Some((unit, bytes)) = family.origins.as_ref()?.translated(id) {
            return Some((unit, bytes.into()));
        }
        let (unit, fragment, source) = family.restored(id)?;
        if self.unit.replace(unit) != Some(unit) {
            self.pages = Pages::default();
        }
        let mut bytes = vec![0; usize::from(fragment.app_len)];
        let read_page = |page, buffer: &mut [u8]| source.read(page, buffer);
        let read = self.pages.read(fragment.pc.0, &mut bytes, read_page);
        (read == bytes.len()).then(|| (unit, bytes.into()))
    }
}

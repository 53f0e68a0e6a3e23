//! The places at which code leaves a function: ends of blocks that measured contexts are led by.

use lwp_dbt::trace::Leave;
use lwp_dbt::{FragmentId, Role};
use lwp_mailbox::contexts::RawRecord;

use crate::family::Family;

/// The end of a block that may lead to another function.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// How it leaves.
    pub leave: Leave,
    /// Its last byte.
    pub last: u64,
    /// Where it leads, if the code says that.
    pub target: u64,
    /// True if no instruction leads there: control falls into the other function.
    pub falls: bool,
}

/// The sites of a family, by the counters that name them.
#[derive(Debug, Default)]
pub struct Sites {
    /// One more than the place in `all`, by counter; 0 where it is not known.
    places: Vec<u32>,
    all: Vec<Site>,
}

impl Site {
    /// The site at the end of a fragment.
    pub fn of(family: &Family, id: FragmentId) -> Self {
        let fragment = family.code_cache.fragment(id);
        let next = fragment.pc.0 + u64::from(fragment.app_len);
        let deltas = fragment.deltas;
        let is_call = |bytes: &[u8]| bytes.ends_with(&[0x0f, 0x05]);
        let ends_handler =
            deltas.branches == 0 && family.origin_of(id).is_some_and(|(_, bytes)| is_call(&bytes));
        let leave = match (deltas.calls, deltas.returns, deltas.indirect) {
            (1, _, 1) => Leave::IndirectCall,
            (1, ..) => Leave::Call,
            (_, 1, _) => Leave::Return,
            (_, _, 1) => Leave::IndirectJump,
            _ if ends_handler => Leave::Resume,
            _ => Leave::Jump,
        };
        let falls = deltas.branches == 0 && !ends_handler;
        let target = if fragment.target.0 == 0 { next } else { fragment.target.0 };
        Self { leave, last: next - 1, target, falls }
    }

    /// Where a record of this site leads.
    pub fn target_of(&self, record: RawRecord) -> u64 {
        if self.leave.is_direct() { self.target } else { record.target }
    }
}

impl Sites {
    /// The site that a counter names.
    pub fn get(&mut self, family: &Family, counter: usize) -> Option<Site> {
        if let Some(place @ 1..) = self.places.get(counter) {
            return self.all.get(*place as usize - 1).copied();
        }
        let Some(Role::Transfer(id)) = family.code_cache.counters().role(counter) else {
            return None;
        };
        let site = Site::of(family, id);
        self.all.push(site);
        if self.places.len() <= counter {
            self.places.resize(counter + 1, 0);
        }
        self.places[counter] = self.all.len() as u32;
        Some(site)
    }
}

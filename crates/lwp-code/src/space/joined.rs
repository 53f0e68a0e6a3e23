//! Instructions that begin in one executable mapping and end in the next.
//!
//! A program that changes the protection of a page in the middle of a library makes such mappings.
//! Code from the instruction on belongs to neither of them: it compares itself, and its bytes are
//! read as far as the second mapping goes.

use lwp_arch::insn;
use lwp_dbt::Checks;
use lwp_process::maps;

use super::{CodeRange, Space};
use crate::family::{Family, UnitId};

impl Space {
    /// Lets code that begins at `pc` go on in the mapping behind its own. False where that is not
    /// what keeps it from being translated.
    pub fn join_next(&mut self, family: &mut Family, tid: i32, pc: u64) -> bool {
        let Some((start, code)) = self.code.at(pc) else { return false };
        if code.joined
            || pc + insn::LONGEST as u64 <= code.end
            || self.code_at(family, tid, code.end).is_none()
        {
            return false;
        }
        let mappings = maps::read(tid);
        let Some(mapping) = mappings.iter().find(|it| (it.start..it.end).contains(&pc)) else {
            return false;
        };
        let unit = self.private_unit(family, true, pc >> 30);
        family.modules.note_code(unit, tid, mapping);
        if let Some(origins) = &mut family.origins {
            origins.mapped(unit, tid, mapping);
        }
        if let Some(functions) = &mut family.functions {
            functions.mapped(tid, mapping);
        }
        if start < pc {
            self.code.insert(start, CodeRange { end: pc, ..code });
        }
        self.code.insert(pc, CodeRange { unit, guardable: false, joined: true, ..code });
        true
    }

    /// The end of the bytes that code in a range may have.
    pub(super) fn end_of_bytes(&self, code: CodeRange) -> u64 {
        let next = self.code.at(code.end).filter(|_| code.joined);
        next.map_or(code.end, |(_, next)| next.end)
    }

    /// The unit for code of this address space alone in a GiB of addresses, which compares itself
    /// if it is `checked`.
    pub(super) fn private_unit(&mut self, family: &mut Family, checked: bool, gib: u64) -> UnitId {
        *self.code.private.entry((checked, gib)).or_insert_with(|| {
            let checks = if checked { Checks::SelfCheck } else { Checks::Notified };
            family.modules.new_unit(checks, (gib << 30, (gib + 1) << 30))
        })
    }
}

//! The bodies of functions, wherever they lie: their executed instructions without addresses.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use lwp_profile::{FunctionId, Location, Profile};
use rustc_hash::FxHashMap;

/// Instructions of a function by their distance from its start, addresses blanked out.
type Body = BTreeMap<u64, Vec<u8>>;

/// Fewer instructions are too little to know a function by.
const LEAST: usize = 4;

/// Bodies of functions, and the modules they are in.
#[derive(Clone, Debug, Default)]
pub struct Bodies {
    all: Vec<(FunctionId, String, Body)>,
}

impl Bodies {
    /// The bodies of `wanted` functions of a profile, as far as their instructions are known.
    pub fn of(
        profile: &Profile,
        wanted: &[FunctionId],
        module: impl Fn(FunctionId) -> String,
    ) -> Self {
        let mut bodies: FxHashMap<FunctionId, Body> =
            wanted.iter().map(|id| (*id, Body::new())).collect();
        for location in profile.locations.iter().filter(|location| !location.bytes.is_empty()) {
            let id = location.function();
            let function = profile.function(id);
            let Some(body) = bodies.get_mut(&id) else { continue };
            let Some(distance) = location.address.checked_sub(function.address) else { continue };
            let within = function.address..function.address.saturating_add(function.size.max(1));
            body.insert(distance, blanked(location, |target| within.contains(&target)));
        }
        let known = wanted.iter().filter_map(|id| Some((*id, module(*id), bodies.remove(id)?)));
        Self { all: known.filter(|(.., body)| body.len() >= LEAST).collect() }
    }

    /// Pairs of functions with the same body in the same module. A body that several functions have
    /// tells nothing.
    pub fn same_as(&self, other: &Self) -> Vec<(FunctionId, FunctionId)> {
        let (old, new) = (self.by_body(), other.by_body());
        let pairs = old.iter().filter_map(|(body, from)| match (&from[..], &new.get(body)?[..]) {
            ([from], [to]) => Some((*from, *to)),
            _ => None,
        });
        pairs.collect()
    }

    /// The functions that have each body in each module.
    fn by_body(&self) -> BTreeMap<(&str, &Body), Vec<FunctionId>> {
        let mut found: BTreeMap<(&str, &Body), Vec<FunctionId>> = BTreeMap::new();
        for (id, module, body) in &self.all {
            found.entry((module, body)).or_default().push(*id);
        }
        found
    }
}

/// Addresses below this are of files that lie where they please.
const FIRST_FIXED: u64 = 0x40_0000;

/// The largest distance of a fixed address from the code that has it.
const NEAR: u64 = 64 << 20;

/// The bytes of an instruction without what depends on the place of its function: distances to
/// other functions and to data, and in code with a fixed place what looks like an address near it.
fn blanked(location: &Location, within: impl Fn(u64) -> bool) -> Vec<u8> {
    let mut decoder = Decoder::with_ip(64, &location.bytes, location.address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    let places = decoder.get_constant_offsets(&instruction);
    let mut bytes = location.bytes.to_vec();
    let mut blank = |offset: usize, size: usize| {
        if let Some(bytes) = bytes.get_mut(offset..offset + size) {
            bytes.fill(0);
        }
    };
    let near = |value: u64| {
        location.address >= FIRST_FIXED
            && value >= FIRST_FIXED
            && value.abs_diff(location.address) < NEAR
    };
    if places.has_displacement()
        && (instruction.is_ip_rel_memory_operand()
            || places.displacement_size() == 4 && near(instruction.memory_displacement64()))
    {
        blank(places.displacement_offset(), places.displacement_size());
    }
    if places.has_immediate() && leads_out(&instruction, &within, &near) {
        blank(places.immediate_offset(), places.immediate_size());
    }
    bytes
}

/// Returns whether an instruction's constant is an address outside its function.
fn leads_out(
    instruction: &Instruction,
    within: &impl Fn(u64) -> bool,
    near: &impl Fn(u64) -> bool,
) -> bool {
    use iced_x86::OpKind;
    (0..instruction.op_count()).any(|operand| match instruction.op_kind(operand) {
        OpKind::NearBranch64 => !within(instruction.near_branch64()),
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
            near(instruction.immediate(operand))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blank(address: u64, bytes: &[u8]) -> Vec<u8> {
        let location = Location { address, bytes: bytes.into(), ..Location::default() };
        blanked(&location, |target| (0x1000..0x1100).contains(&target))
    }

    #[test]
    fn what_depends_on_the_place_is_blanked() {
        // call somewhere, at two places; jump within, which stays; lea 0x10(%rip); mov $5, %eax;
        // mov 8(%rdi).
        assert_eq!(blank(0x1000, &[0xe8, 1, 2, 3, 4]), [0xe8, 0, 0, 0, 0]);
        assert_eq!(blank(0x1000, &[0xeb, 4]), [0xeb, 4]);
        assert_eq!(blank(0x1000, &[0x48, 0x8d, 5, 16, 0, 0, 0]), [0x48, 0x8d, 5, 0, 0, 0, 0]);
        assert_eq!(blank(0x1000, &[0xb8, 5, 0, 0, 0]), [0xb8, 5, 0, 0, 0]);
        assert_eq!(blank(0x1000, &[0x48, 0x8b, 0x47, 8]), [0x48, 0x8b, 0x47, 8]);
        // mov $0x402010, %edi in a program with a fixed place, and elsewhere.
        assert_eq!(blank(0x40_1000, &[0xbf, 0x10, 0x20, 0x40, 0]), [0xbf, 0, 0, 0, 0]);
        assert_eq!(blank(0x1000, &[0xbf, 0x10, 0x20, 0x40, 0]), [0xbf, 0x10, 0x20, 0x40, 0]);
    }
}

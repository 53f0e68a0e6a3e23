//! The bodies of functions, wherever they lie: their executed instructions without addresses.
//!
//! Promise: R42

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, Instruction};
use lwp_profile::{FunctionId, Location, Profile};
use rustc_hash::{FxHashMap, FxHashSet};

/// Instructions of a function by their distance from its start, addresses blanked out.
type Body = BTreeMap<u64, Vec<u8>>;

/// Fewer instructions are too little to know a function by.
const LEAST: usize = 4;

/// A function whose body is known, as far as it was executed.
#[derive(Clone, Debug)]
struct Known {
    id: FunctionId,
    /// The module that it is in.
    module: String,
    /// Its size in bytes, executed or not; 0 where it is not known.
    size: u64,
    body: Body,
}

/// Bodies of functions.
#[derive(Clone, Debug, Default)]
pub struct Bodies {
    all: Vec<Known>,
    by_id: FxHashMap<FunctionId, usize>,
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
        let known = wanted.iter().filter_map(|&id| {
            let (size, body) = (profile.function(id).size, bodies.remove(&id)?);
            Some(Known { id, module: module(id), size, body })
        });
        let all: Vec<Known> = known.filter(|known| known.body.len() >= LEAST).collect();
        let by_id = all.iter().zip(0..).map(|(known, at)| (known.id, at)).collect();
        Self { all, by_id }
    }

    /// Pairs of functions with the same body in the same module, also where other parts of it were
    /// executed. A body that several functions have tells nothing.
    pub fn same_as(&self, other: &Self) -> Vec<(FunctionId, FunctionId)> {
        let (old, new) = (self.by_body(), other.by_body());
        let pairs = old.iter().filter_map(|(body, from)| match (&from[..], &new.get(body)?[..]) {
            ([from], [to]) => Some((*from, *to)),
            _ => None,
        });
        let mut pairs: Vec<(FunctionId, FunctionId)> = pairs.collect();
        let (from, to): (FxHashSet<_>, FxHashSet<_>) = pairs.iter().copied().unzip();
        pairs.extend(agreeing(&self.without(&from), &other.without(&to)));
        pairs
    }

    /// Returns whether two functions, whose bodies are both known, differ in no instruction that
    /// was executed of both.
    pub fn fits(&self, id: FunctionId, other: &Self, there: FunctionId) -> bool {
        let pair = self.body(id).zip(other.body(there));
        pair.is_some_and(|(one, two)| apart(one, two) && apart(two, one))
    }

    fn body(&self, id: FunctionId) -> Option<&Body> {
        self.by_id.get(&id).map(|at| &self.all[*at].body)
    }

    /// The functions that have each body in each module.
    fn by_body(&self) -> BTreeMap<(&str, &Body), Vec<FunctionId>> {
        let mut found: BTreeMap<(&str, &Body), Vec<FunctionId>> = BTreeMap::new();
        for known in &self.all {
            found.entry((&known.module, &known.body)).or_default().push(known.id);
        }
        found
    }

    /// The functions that are not in `taken`.
    fn without(&self, taken: &FxHashSet<FunctionId>) -> Left<'_> {
        let mut left: Left<'_> = BTreeMap::new();
        let all = self.all.iter().filter(|known| known.size > 0 && !taken.contains(&known.id));
        for known in all {
            left.entry((&known.module, known.size)).or_default().push(known);
        }
        left
    }
}

/// Functions by module and size.
type Left<'a> = BTreeMap<(&'a str, u64), Vec<&'a Known>>;

/// Pairs of functions of equal size that agree in whatever was executed of both.
fn agreeing(old: &Left<'_>, new: &Left<'_>) -> Vec<(FunctionId, FunctionId)> {
    let mut pairs = Vec::new();
    for (place, from) in old {
        let Some(to) = new.get(place) else { continue };
        for one in from {
            let same = |it: &&&Known| agree(&one.body, &it.body);
            let [there] = to.iter().filter(same).collect::<Vec<_>>()[..] else { continue };
            if from.iter().filter(|it| agree(&it.body, &there.body)).count() == 1 {
                pairs.push((one.id, there.id));
            }
        }
    }
    pairs
}

/// Returns whether two bodies are parts of one: common places have the same, and most is common.
fn agree(one: &Body, other: &Body) -> bool {
    let common = one.iter().filter(|(at, bytes)| other.get(at) == Some(bytes)).count();
    common >= LEAST
        && 2 * common >= one.len().max(other.len())
        && apart(one, other)
        && apart(other, one)
}

/// Returns whether instructions of one body that another does not have lie between those that it
/// has.
fn apart(from: &Body, there: &Body) -> bool {
    let fits = |(at, bytes): (&u64, &Vec<u8>)| {
        let end = at + bytes.len() as u64;
        let before = there.range(..end).next_back();
        before.is_none_or(|(start, piece)| start + piece.len() as u64 <= *at)
    };
    from.iter().filter(|(at, bytes)| there.get(at) != Some(bytes)).all(fits)
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

    fn body(pieces: &[(u64, &[u8])]) -> Body {
        pieces.iter().map(|(at, bytes)| (*at, bytes.to_vec())).collect()
    }

    #[test]
    fn parts_of_one_body_agree() {
        let start: [(u64, &[u8]); 4] =
            [(0, &[0x55]), (1, &[0x31, 0xc0]), (3, &[0x90]), (4, &[1, 2])];
        let with = |more: &[(u64, &'static [u8])]| body(&[&start[..], more].concat());
        assert!(agree(&with(&[]), &with(&[])));
        // One has taken a branch that the other has not.
        assert!(agree(&with(&[(9, &[0xc3])]), &with(&[(6, &[3, 4, 5])])));
        // Another instruction at the same place, one in the middle of another, too little in
        // common.
        assert!(!agree(&with(&[(9, &[0xc3])]), &with(&[(9, &[0x90])])));
        assert!(!agree(&with(&[(9, &[1, 2, 3])]), &with(&[(10, &[0x90])])));
        assert!(!agree(&with(&[(10, &[0x90])]), &with(&[(9, &[1, 2, 3])])));
        let five = [(6, &[0x90][..]), (7, &[0x90]), (8, &[0x90]), (9, &[0x90]), (10, &[0x90])];
        assert!(!agree(&with(&[]), &with(&five)));
        assert!(!agree(&body(&start[..3]), &body(&start[..3])));
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

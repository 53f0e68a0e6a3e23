//! A compact form of what is known of each fragment, because there are hundreds of thousands.

use crate::addr::{AppPc, CachePc};
use crate::fragment::{Fragment, FragmentId};
use crate::plan::EventDeltas;

/// [`EventDeltas`] in eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedDeltas(pub [u8; 8]);

impl PackedDeltas {
    /// Packs them; `None` where they do not fit. Those of a block do: it has at most 255
    /// instructions, and one branch.
    pub fn new(deltas: EventDeltas) -> Option<Self> {
        let mut out = [0; 8];
        out[..2].copy_from_slice(&i16::try_from(deltas.instructions).ok()?.to_le_bytes());
        for (byte, value) in out[2..].iter_mut().zip(deltas.by_event().into_iter().skip(1)) {
            *byte = i8::try_from(value).ok()?.cast_unsigned();
        }
        Some(Self(out))
    }

    /// Those of a block, or of an edge.
    ///
    /// # Panics
    ///
    /// If they count more than a block can hold.
    pub fn of_block(deltas: EventDeltas) -> Self {
        Self::new(deltas).expect("a block has at most 255 instructions and one branch")
    }

    /// The deltas.
    pub fn unpack(self) -> EventDeltas {
        let Self(bytes) = self;
        let small = |at: usize| i32::from(bytes[at].cast_signed());
        EventDeltas {
            instructions: i32::from(i16::from_le_bytes([bytes[0], bytes[1]])),
            branches: small(2),
            conditional: small(3),
            conditional_taken: small(4),
            calls: small(5),
            returns: small(6),
            indirect: small(7),
        }
    }
}

const CHARGED_FIRST: u8 = 1;
const FLAGS_DEAD: u8 = 2;
/// The distance that stands for no head.
const NO_HEAD: i32 = i32::MIN;

/// A [`Fragment`] in 56 bytes.
#[derive(Clone, Copy, Debug)]
struct Packed {
    pc: u64,
    start: u64,
    target: u64,
    /// From the start.
    join: u32,
    /// From the start, within the arena.
    head: i32,
    len: u32,
    deltas: PackedDeltas,
    app_len: u16,
    instructions: u16,
    countdown: (u8, u8),
    bits: u8,
}
const _: () = assert!(size_of::<Packed>() == 56);

/// All fragments of a run, by number.
#[derive(Debug, Default)]
pub(crate) struct Fragments(Vec<Packed>);

impl Fragments {
    /// Returns the number of fragments.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds one.
    pub fn push(&mut self, fragment: Fragment) {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let start = fragment.start;
        self.0.push(Packed {
            pc: fragment.pc.0,
            start: start.0,
            target: fragment.target.0,
            join: fragment.join.0.wrapping_sub(start.0) as u32,
            head: fragment.head.map_or(NO_HEAD, |head| distance(start, head)),
            len: fragment.len,
            deltas: PackedDeltas::of_block(fragment.deltas),
            app_len: fragment.app_len,
            instructions: fragment.instructions,
            countdown: fragment.countdown,
            bits: bit(fragment.charged_first, CHARGED_FIRST) | bit(fragment.flags_dead, FLAGS_DEAD),
        });
    }

    /// One of them.
    ///
    /// # Panics
    ///
    /// If there is no such fragment.
    pub fn get(&self, id: FragmentId) -> Fragment {
        let packed = &self.0[id.0 as usize];
        Fragment {
            pc: AppPc(packed.pc),
            app_len: packed.app_len,
            instructions: packed.instructions,
            start: CachePc(packed.start),
            len: packed.len,
            head: packed.head(),
            join: CachePc(packed.start + u64::from(packed.join)),
            charged_first: packed.bits & CHARGED_FIRST != 0,
            target: AppPc(packed.target),
            deltas: packed.deltas.unpack(),
            countdown: packed.countdown,
            flags_dead: packed.bits & FLAGS_DEAD != 0,
        }
    }

    /// Returns the address at which direct branches enter a fragment.
    pub fn head(&self, id: FragmentId) -> Option<CachePc> {
        self.0[id.0 as usize].head()
    }

    /// Says where direct branches enter a fragment.
    pub fn set_head(&mut self, id: FragmentId, head: CachePc) {
        let packed = &mut self.0[id.0 as usize];
        packed.head = distance(CachePc(packed.start), head);
    }

    /// Says how long a fragment's code is.
    pub fn set_len(&mut self, id: FragmentId, len: u32) {
        self.0[id.0 as usize].len = len;
    }
}

impl Packed {
    fn head(&self) -> Option<CachePc> {
        let head = CachePc(self.start.wrapping_add_signed(i64::from(self.head)));
        (self.head != NO_HEAD).then_some(head)
    }
}

/// From one place of an arena to another; an arena is far smaller than 2 GiB.
fn distance(from: CachePc, to: CachePc) -> i32 {
    to.0.wrapping_sub(from.0) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(head: Option<CachePc>) -> Fragment {
        Fragment {
            pc: AppPc(0x7fff_ffff_f123),
            app_len: 4095,
            instructions: 255,
            start: CachePc(0x7fff_0000_0100),
            len: 70_000,
            head,
            join: CachePc(0x7fff_0000_0123),
            charged_first: true,
            target: AppPc(u64::MAX - 5),
            deltas: EventDeltas {
                instructions: 255,
                conditional_taken: -1,
                ..EventDeltas::default()
            },
            countdown: (255, 3),
            flags_dead: true,
        }
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let mut fragments = Fragments::default();
        for head in [None, Some(CachePc(0x7fff_0000_0110)), Some(CachePc(0x7ffe_f000_0000))] {
            let id = FragmentId(fragments.len() as u32);
            fragments.push(fragment(head));
            assert_eq!(fragments.get(id), fragment(head));
            assert_eq!(fragments.head(id), head);
        }
        let late = CachePc(0x7fff_0fff_0000);
        fragments.set_head(FragmentId(0), late);
        fragments.set_len(FragmentId(0), 9);
        assert_eq!(fragments.get(FragmentId(0)), Fragment { len: 9, ..fragment(Some(late)) });
    }

    #[test]
    fn deltas_beyond_a_block_do_not_fit() {
        let packed = |instructions, calls| {
            PackedDeltas::new(EventDeltas { instructions, calls, ..EventDeltas::default() })
        };
        assert_eq!(packed(-3, -1).map(|it| it.unpack().instructions), Some(-3));
        assert_eq!((packed(40_000, 0), packed(0, 128)), (None, None));
    }
}

//! The arenas of a family that an address space has.

/// The arenas that are mapped in an address space, a bit each: others may have been made for
/// another one since the two parted.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaSet {
    mapped: u64,
    /// Those that cannot be.
    refused: u64,
}

impl ArenaSet {
    /// The first `arenas` of the family.
    pub(super) fn first(arenas: usize) -> Self {
        Self { mapped: (1 << arenas) - 1, refused: 0 }
    }

    /// The arenas that a copy of the address space has. Another may be had there.
    pub(super) fn copy(self) -> Self {
        Self { refused: 0, ..self }
    }

    /// Returns whether arena `index` is mapped.
    pub fn has(self, index: usize) -> bool {
        self.mapped & (1 << index) != 0
    }

    /// Returns whether it has turned out that arena `index` cannot be mapped.
    pub fn refuses(self, index: usize) -> bool {
        self.refused & (1 << index) != 0
    }

    /// Returns whether it has turned out that some arena cannot be mapped.
    pub(super) fn refuses_any(self) -> bool {
        self.refused != 0
    }

    /// Notes whether arena `index` could be mapped.
    pub(super) fn note(&mut self, index: usize, mapped: bool) {
        let (set, other) = match mapped {
            true => (&mut self.mapped, &mut self.refused),
            false => (&mut self.refused, &mut self.mapped),
        };
        *set |= 1 << index;
        *other &= !(1 << index);
    }
}

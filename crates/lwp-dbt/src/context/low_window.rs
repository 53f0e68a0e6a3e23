//! The low window: the tables of an address space at a fixed address.

/// Number of slots in the indirect table.
pub const TABLE_SLOTS: u64 = 0x4_0000;

/// The bits of a pc that choose its slot, where PEXT is there and fast. The lowest ones are left
/// out so that pcs that lie close together share a cache line of the table.
pub const INDEX_MASK: u32 = (TABLE_SLOTS as u32 - 1) << INDEX_SHIFT;
const INDEX_SHIFT: u32 = 3;

/// Facts about the processor that emitted code and its tables depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TargetFeatures {
    /// Emitted code finds a pc's slot by PEXT with [`INDEX_MASK`], which no flag sees. Without it,
    /// the low 16 bits choose among the first 64 Ki slots.
    pub wide_index: bool,
    /// Emitted code can take bits out of an address without touching the flags.
    pub bit_extract: bool,
}

impl TargetFeatures {
    /// The features of the processor that this runs on.
    ///
    /// Zen 1 and 2 have PEXT in microcode: of AMD's processors, those with vector AES have it in
    /// hardware.
    pub fn of_this_processor() -> Self {
        let bit_extract = is_x86_feature_detected!("bmi2");
        let fast = !is_x86_feature_detected!("sse4a") || is_x86_feature_detected!("vaes");
        Self { wide_index: bit_extract && fast, bit_extract }
    }
}

/// An answer to CPUID that does not change, as emitted code finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCpuid {
    /// The leaf asked for.
    pub leaf: u32,
    /// The subleaf, where the answer depends on it.
    pub subleaf: Option<u32>,
    /// eax, ebx, ecx, edx; `None` where it is the real processor's, and depends on which one that
    /// is.
    pub answer: Option<[u32; 4]>,
}

impl KnownCpuid {
    /// Offset of the first from [`Layout::known_cpuids`].
    pub const FIRST: u64 = 8;
    /// Bytes of one.
    pub const BYTES: u64 = 40;
    /// Most of them.
    pub const MOST: u64 = 64;
    /// Offset of the leaf, negated.
    pub const MINUS_LEAF: i32 = 0;
    /// Offset of a word that is 0 where the subleaf does not matter, 2 where the processor itself
    /// answers.
    pub const BY_SUBLEAF: i32 = 8;
    /// Offset of the subleaf, negated.
    pub const MINUS_SUBLEAF: i32 = 16;
    /// Offset of the answer.
    pub const ANSWER: i32 = 24;

    /// As it stands in memory.
    pub fn to_bytes(self) -> [u8; Self::BYTES as usize] {
        let mut out = [0; Self::BYTES as usize];
        let minus = |number: u32| u64::from(number).wrapping_neg().to_le_bytes();
        out[..8].copy_from_slice(&minus(self.leaf));
        if let Some(subleaf) = self.subleaf {
            out[8] = 1;
            out[16..24].copy_from_slice(&minus(subleaf));
        }
        let Some(answer) = self.answer else {
            out[8] = 2;
            return out;
        };
        for (word, value) in out[24..].chunks_exact_mut(4).zip(answer) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        out
    }
}

/// The address of the low window, and the arrangement of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Start of the low window; below 2 GiB.
    pub low: u64,
    /// The processor that its tables are for.
    pub features: TargetFeatures,
}

impl Layout {
    /// Bytes before the chain slots.
    pub const FIXED_BYTES: u64 = 0x22_0000;
    /// Most chain slots.
    pub const MAX_ENTRIES: u64 = 0x20_0000;
    /// Bytes of the longest such path, its NUL included.
    pub const PATH_BYTES: usize = 24;
    /// Bytes of the whole window.
    pub const BYTES: u64 = Self::FIXED_BYTES + Self::MAX_ENTRIES * 8;

    /// Address of the indirect table.
    pub fn table(self) -> u64 {
        self.low
    }

    /// Address of the table slot that `pc` hashes to.
    pub fn table_slot(self, pc: u64) -> u64 {
        let index = match self.features.wide_index {
            true => (pc & u64::from(INDEX_MASK)) >> INDEX_SHIFT,
            false => pc & 0xffff,
        };
        self.table() + index * 8
    }

    /// Address of the system call class table.
    pub fn syscall_classes(self) -> u64 {
        self.low + 0x20_0000
    }

    /// Address of [`INDEX_MASK`], 4 bytes, for emitted code.
    pub fn index_mask(self) -> u64 {
        self.low + 0x21_0100
    }

    /// Address of the mask of the address bits that choose a set of the data cache, 8 bytes.
    pub fn set_mask(self) -> u64 {
        self.low + 0x21_0108
    }

    /// Address of the mask of the address bits that name a line, 8 bytes.
    pub fn line_mask(self) -> u64 {
        self.low + 0x21_0110
    }

    /// Address of the bytes that the lines of a set take, 8 bytes.
    pub fn set_length(self) -> u64 {
        self.low + 0x21_0118
    }

    /// Address of the mask that spreads the number of a set to where it lies, 8 bytes.
    pub fn set_places(self) -> u64 {
        self.low + 0x21_0120
    }

    /// Address of a path that [`crate::routines::Routines::move_in`] opens, [`Self::PATH_BYTES`],
    /// and of the number that it expects to find in what it maps.
    pub fn path(self) -> u64 {
        self.low + 0x21_0200
    }

    /// Address of the low copy of the routines.
    pub fn routines(self) -> u64 {
        self.low + 0x21_1000
    }

    /// Address of the known answers to CPUID: their number, 8 bytes, and [`KnownCpuid::MOST`] of
    /// [`KnownCpuid`].
    pub fn known_cpuids(self) -> u64 {
        self.low + 0x21_f000
    }

    /// Bytes of one chain slot.
    pub const CHAIN_BYTES: u64 = 8;

    /// Address of chain slot `entry`.
    pub fn chain_slot(self, entry: u32) -> u64 {
        self.low + Self::FIXED_BYTES + u64::from(entry) * Self::CHAIN_BYTES
    }
}

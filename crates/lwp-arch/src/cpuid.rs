//! CPUID: how a program finds out about LWP.

use crate::msr::{LwpCfg, LwpMsr0};
use crate::{lwpcb, xsave};

/// The four registers CPUID returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Leaf {
    /// The value of EAX.
    pub eax: u32,
    /// The value of EBX.
    pub ebx: u32,
    /// The value of ECX.
    pub ecx: u32,
    /// The value of EDX.
    pub edx: u32,
}

/// Leaf `8000_0001`: extended features.
///
/// Spec: LWP §1.1.
pub mod fn8000_0001 {
    /// Leaf number.
    pub const LEAF: u32 = 0x8000_0001;
    /// ECX bit 15: the processor has LWP.
    pub const ECX_LWP: u32 = 1 << 15;
    /// ECX bit 27: the processor has the performance time-stamp counter.
    pub const ECX_PTSC: u32 = 1 << 27;
}

/// Leaf `8000_0008`: sizes.
///
/// Spec: LWP §4.1.
pub mod fn8000_0008 {
    /// Leaf number.
    pub const LEAF: u32 = 0x8000_0008;

    /// Width in bits of the performance time-stamp counter, from ECX bits 17:16.
    ///
    /// The codes 0 to 3 for 40, 48, 56 and 64 bits are unconfirmed: DEV-13.
    ///
    /// Spec: LWP §4.1.
    pub const fn ptsc_bits(ecx: u32) -> u32 {
        40 + 8 * (ecx >> 16 & 3)
    }
}

/// Leaf `8000_001C`: Lightweight Profiling.
///
/// Spec: LWP §1.2.
pub mod fn8000_001c {
    /// Leaf number.
    pub const LEAF: u32 = 0x8000_001C;

    bitflags::bitflags! {
        /// EAX and EDX. EDX has the processor's features, and EAX those that the system has
        /// enabled.
        ///
        /// Spec: LWP §1.2.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        pub struct Features: u32 {
            /// LWP can be used (EAX) or exists (EDX).
            const LWP_AVAIL = 1 << 0;
            /// LWPVAL and EventId 1.
            const LWP_VAL = 1 << 1;
            /// EventId 2, instructions retired.
            const LWP_IRE = 1 << 2;
            /// EventId 3, branches retired.
            const LWP_BRE = 1 << 3;
            /// EventId 4, data-cache misses.
            const LWP_DME = 1 << 4;
            /// EventId 5, core clocks not halted.
            const LWP_CNH = 1 << 5;
            /// EventId 6, reference clocks not halted.
            const LWP_RNH = 1 << 6;
            /// Continuous mode.
            const LWP_CONT = 1 << 29;
            /// Time stamps in records.
            const LWP_PTSC = 1 << 30;
            /// Threshold interrupt.
            const LWP_INT = 1 << 31;
        }
    }

    /// EBX: sizes.
    ///
    /// ```text
    ///   31            24 23          16 15          8 7          0
    ///  +----------------+--------------+-------------+------------+
    ///  | LwpEventOffset | LwpMaxEvents |LwpEventSize | LwpCbSize  |
    ///  +----------------+--------------+-------------+------------+
    /// ```
    ///
    /// Spec: LWP §1.2.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Ebx(pub u32);

    impl Ebx {
        /// Size of the LWPCB in bytes; the field counts quadwords.
        pub const fn lwpcb_bytes(self) -> u32 {
            (self.0 & 0xFF) * 8
        }

        /// Size of a record in bytes.
        pub const fn event_size(self) -> u32 {
            self.0 >> 8 & 0xFF
        }

        /// Highest EventId, apart from 255.
        pub const fn max_events(self) -> u8 {
            (self.0 >> 16) as u8
        }

        /// Byte offset of EventInterval1 in the LWPCB.
        pub const fn event_offset(self) -> u32 {
            self.0 >> 24
        }
    }

    bitflags::bitflags! {
        /// ECX: limits and filters. Bits 27:0 are the fields that the accessors read.
        ///
        /// ```text
        ///   31 30 29 28 27  24 23             16 15      9 8      6  5  4       0
        ///  +--+--+--+--+------+-----------------+---------+--------+--+----------+
        ///  |CL|LV|IP|BP| res. |LwpMinBufferSize |LwpVersion|LatRnd |DA|LatencyMax|
        ///  +--+--+--+--+------+-----------------+---------+--------+--+----------+
        /// ```
        ///
        /// Spec: LWP §1.2.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        pub struct Ecx: u32 {
            /// DCache records carry the data address.
            const LWP_DATA_ADDRESS = 1 << 5;
            /// Branches can be filtered by prediction.
            const LWP_BRANCH_PREDICTION = 1 << 28;
            /// Events can be filtered by instruction address.
            const LWP_IP_FILTERING = 1 << 29;
            /// Cache events can be filtered by level.
            const LWP_CACHE_LEVELS = 1 << 30;
            /// Cache events can be filtered by latency.
            const LWP_CACHE_LATENCY = 1 << 31;

            // The numeric fields are part of the value.
            const _ = !0;
        }
    }

    impl Ecx {
        /// Width of the latency counter in bits; 0 on processors without the event.
        pub const fn latency_max(self) -> u32 {
            self.bits() & 0x1F
        }

        /// Number of low bits of a latency that rounding clears, 0 to 4.
        pub const fn latency_rounding(self) -> u32 {
            self.bits() >> 6 & 7
        }

        /// Version of the implementation.
        pub const fn version(self) -> u32 {
            self.bits() >> 9 & 0x7F
        }

        /// Smallest ring in units of 32 records.
        pub const fn min_buffer_size(self) -> u32 {
            self.bits() >> 16 & 0xFF
        }
    }
}

/// A processor's LWP: the static half of leaf `8000_001C`, and the place where XSAVE puts
/// it.
///
/// Spec: LWP §1.2, §1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// EDX.
    pub features: fn8000_001c::Features,
    /// EBX.
    pub ebx: fn8000_001c::Ebx,
    /// ECX.
    pub ecx: fn8000_001c::Ecx,
    /// EBX of leaf 0Dh sub-leaf 62: offset in a standard-format XSAVE image, in bytes.
    pub xsave_offset: u32,
}

/// The reason why a set of capabilities contradicts itself.
///
/// Spec: LWP §1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The event slots do not fit into the block.
    #[error("LWPCB of {bytes} bytes ends before its event slots at {end}")]
    BlockTooSmall {
        /// LwpCbSize in bytes.
        bytes: u32,
        /// The end of the slots.
        end: u32,
    },
    /// The slots overlap the fixed part, or aren't aligned to quadwords.
    #[error("LwpEventOffset {0} is below 88 or no multiple of 8")]
    EventOffset(u32),
    /// There is no event at all.
    #[error("LwpMaxEvents is 0")]
    NoEvents,
    /// Records of this length are too short for an event.
    #[error("LwpEventSize {0} is below 32")]
    EventSize(u32),
    /// The processor counts cache misses, but has neither cache filter.
    #[error("cache misses without a filter by level or latency")]
    NoCacheFilter,
}

impl Capabilities {
    /// Smallest ring in bytes: `32 × LwpMinBufferSize × LwpEventSize`.
    ///
    /// Spec: LWP §1.2, §3.2.
    pub const fn min_ring_bytes(&self) -> u32 {
        32 * self.ecx.min_buffer_size() * self.ebx.event_size()
    }

    /// Checks that the fields are consistent.
    ///
    /// Spec: LWP §1.2.
    ///
    /// # Errors
    ///
    /// The first contradiction.
    pub fn validate(&self) -> Result<(), LayoutError> {
        use fn8000_001c::{Ecx, Features};
        let (offset, events) = (self.ebx.event_offset(), u32::from(self.ebx.max_events()));
        if offset < lwpcb::Lwpcb::SIZE as u32 || !offset.is_multiple_of(8) {
            return Err(LayoutError::EventOffset(offset));
        }
        if events == 0 {
            return Err(LayoutError::NoEvents);
        }
        let (bytes, end) = (self.ebx.lwpcb_bytes(), offset + 8 * events);
        if bytes < end {
            return Err(LayoutError::BlockTooSmall { bytes, end });
        }
        if self.ebx.event_size() < crate::Record::SIZE as u32 {
            return Err(LayoutError::EventSize(self.ebx.event_size()));
        }
        let cache_filters = Ecx::LWP_CACHE_LEVELS | Ecx::LWP_CACHE_LATENCY;
        if self.features.contains(Features::LWP_DME) && !self.ecx.intersects(cache_filters) {
            return Err(LayoutError::NoCacheFilter);
        }
        Ok(())
    }

    /// EAX of leaf `8000_001C`: the features that a program may use now.
    ///
    /// 0 while `XCR0[62]` is clear; otherwise LWP_AVAIL and the features that `LWP_CFG` allows.
    ///
    /// Spec: LWP §1.2.
    pub const fn enabled(&self, xcr0: u64, cfg: LwpCfg) -> fn8000_001c::Features {
        use fn8000_001c::Features;
        if xcr0 & xsave::XCR0_LWP == 0 || !self.features.contains(Features::LWP_AVAIL) {
            return Features::empty();
        }
        let allowed = self.features.bits() & cfg.flags().bits();
        Features::from_bits_retain(allowed | Features::LWP_AVAIL.bits())
    }

    /// Leaf `8000_001C` as a program sees it.
    ///
    /// Spec: LWP §1.2.
    pub const fn leaf(&self, xcr0: u64, cfg: LwpCfg) -> Leaf {
        Leaf {
            eax: self.enabled(xcr0, cfg).bits(),
            ebx: self.ebx.0,
            ecx: self.ecx.bits(),
            edx: self.features.bits(),
        }
    }

    /// Leaf 0Dh sub-leaf 62: the XSAVE component.
    ///
    /// Spec: LWP §1.4.
    pub const fn xsave_leaf(&self) -> Leaf {
        Leaf { eax: xsave::LwpXsave::SIZE as u32, ebx: self.xsave_offset, ecx: 0, edx: 0 }
    }
}

/// Processors whose CPUID leaves are known, and an invented one that has everything.
///
/// Spec: LWP §1.3.
pub mod presets {
    use super::Capabilities;
    use super::fn8000_001c::{Ebx, Ecx, Features};

    const fn row(edx: u32, ebx: u32, ecx: u32, xsave_offset: u32) -> Capabilities {
        Capabilities {
            features: Features::from_bits_retain(edx),
            ebx: Ebx(ebx),
            ecx: Ecx::from_bits_retain(ecx),
            xsave_offset,
        }
    }

    // Values of the first three rows: CPUID dumps of the parts in the InstLatx64 collection.
    // `FULL` is ours: every documented feature at the offsets all real parts share.

    /// Bulldozer and Piledriver: value samples, instructions, branches, threshold interrupt.
    pub const BULLDOZER: Capabilities = row(0x8000_000F, 0x8003_2013, 0x0001_0200, 0x340);
    /// Steamroller and Excavator: also continuous mode and time stamps.
    pub const STEAMROLLER: Capabilities = row(0xE000_000F, 0x8003_2013, 0x0001_0200, 0x340);
    /// The 4700S, a Zen 2 part: also DCache misses, and the undocumented events 7 and 8.
    pub const AMD_4700S: Capabilities = row(0xE000_019F, 0x8008_2018, 0xD001_0430, 0x380);
    /// Every documented event, mode and filter. No real processor had all of them.
    pub const FULL: Capabilities = row(0xE000_007F, 0x8006_2016, 0xF001_0330, 0x340);

    /// All presets by name.
    pub const ALL: [(&str, Capabilities); 4] = [
        ("bulldozer", BULLDOZER),
        ("steamroller", STEAMROLLER),
        ("4700s", AMD_4700S),
        ("full", FULL),
    ];
}

bitflags::bitflags! {
    /// EDX of leaf `8000_001C` in the proposal. The order differs from EAX.
    ///
    /// Spec: P07 §5.1 table 2.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Edx2007: u32 {
        /// LWP exists.
        const ENABLED = 1 << 0;
        /// The threshold can interrupt.
        const INTERRUPT = 1 << 1;
        /// EventId 1, instructions retired.
        const IRE = 1 << 2;
        /// EventId 2, branches retired.
        const BRE = 1 << 3;
        /// EventId 3, DCache misses.
        const DME = 1 << 4;
    }
}

/// The LWP capabilities of a processor of the 2007 proposal.
///
/// Spec: P07 §5.1 table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities2007 {
    /// EDX.
    pub features: Edx2007,
    /// `EBX[7:0]`: size of the LWPCB in bytes, at least `40 + 8 × max_events`.
    pub lwpcb_bytes: u8,
    /// `EBX[23:16]`: number of event counters.
    pub max_events: u8,
    /// `EBX[31:24]`.
    pub version: u8,
    /// `ECX[4:0]`: width of the latency counter in bits, 10 to 31.
    pub cache_max: u8,
    /// `ECX[5]`: records of cache misses carry the data address.
    pub data_address: bool,
    /// `ECX[30]`: cache events can be filtered by level.
    pub cache_levels: bool,
    /// `ECX[31]`: cache events can be filtered by latency.
    pub cache_latency: bool,
}

impl Capabilities2007 {
    /// Everything the proposal describes, with one counter per event.
    ///
    /// Spec: P07 §5.1.
    pub const FULL: Self = Self {
        features: Edx2007::all(),
        lwpcb_bytes: 40 + 8 * 3,
        max_events: 3,
        version: 1,
        cache_max: 16,
        data_address: true,
        cache_levels: true,
        cache_latency: true,
    };

    /// The bits `LWPMSR0` may hold: those of EDX, in the order of EAX.
    ///
    /// Spec: P07 §5.2.1.
    pub fn settable(&self) -> LwpMsr0 {
        let pairs = [
            (Edx2007::ENABLED, LwpMsr0::ENABLED),
            (Edx2007::INTERRUPT, LwpMsr0::INTERRUPT),
            (Edx2007::IRE, LwpMsr0::IRE),
            (Edx2007::BRE, LwpMsr0::BRE),
            (Edx2007::DME, LwpMsr0::DME),
        ];
        let has = pairs.into_iter().filter(|(has, _)| self.features.contains(*has));
        has.map(|(_, settable)| settable).collect()
    }

    /// Leaf `8000_001C` as a program sees it, with `msr0` in `LWPMSR0`.
    ///
    /// Spec: P07 §5.1 table 2.
    pub fn leaf(&self, msr0: LwpMsr0) -> Leaf {
        let [size, events, version] =
            [self.lwpcb_bytes, self.max_events, self.version].map(u32::from);
        Leaf {
            eax: msr0.bits(),
            ebx: size | (crate::Record::SIZE as u32) << 8 | events << 16 | version << 24,
            ecx: u32::from(self.cache_max)
                | u32::from(self.data_address) << 5
                | u32::from(self.cache_levels) << 30
                | u32::from(self.cache_latency) << 31,
            edx: self.features.bits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fn8000_001c::{Ebx, Ecx, Features};
    use super::*;
    use crate::EventFlags;

    /// Spec: LWP §1.3
    #[test]
    fn lwp_spec_1_3_bulldozer_decodes() {
        let part = presets::BULLDOZER;
        assert_eq!(part.ebx.lwpcb_bytes(), 152);
        assert_eq!((part.ebx.event_size(), part.ebx.max_events()), (32, 3));
        assert_eq!((part.ebx.event_offset(), part.ecx.version()), (128, 1));
        assert_eq!(part.min_ring_bytes(), 1024);
        assert_eq!(part.ecx.latency_max(), 0, "no DCache event, no latency counter");
    }

    /// Spec: LWP §1.3
    #[test]
    fn lwp_spec_1_3_4700s_decodes() {
        let part = presets::AMD_4700S;
        assert_eq!((part.ebx.lwpcb_bytes(), part.ebx.max_events()), (192, 8));
        assert_eq!((part.ecx.latency_max(), part.ecx.latency_rounding()), (16, 0));
        assert_eq!(part.ecx.version(), 2);
        assert!(part.ecx.contains(Ecx::LWP_DATA_ADDRESS | Ecx::LWP_BRANCH_PREDICTION));
        assert!(!part.ecx.contains(Ecx::LWP_IP_FILTERING));
        assert!(part.ecx.contains(Ecx::LWP_CACHE_LEVELS | Ecx::LWP_CACHE_LATENCY));
    }

    /// Spec: LWP §1.3
    #[test]
    fn lwp_spec_1_3_full_has_every_documented_feature() {
        let part = presets::FULL;
        assert_eq!(part.features, Features::all());
        assert_eq!((part.ecx.latency_max(), part.ecx.latency_rounding()), (16, 4));
        assert_eq!((part.ebx.lwpcb_bytes(), part.ebx.max_events()), (176, 6));
        assert_eq!(part.ecx.bits() >> 28, 0xF);
    }

    /// Spec: LWP §1.2, §1.3
    #[test]
    fn lwp_spec_1_2_presets_satisfy_the_relations_with_equality() {
        for (name, part) in presets::ALL {
            assert_eq!(part.validate(), Ok(()), "{name}");
            let end = part.ebx.event_offset() + 8 * u32::from(part.ebx.max_events());
            assert_eq!(part.ebx.lwpcb_bytes(), end, "{name}");
        }
    }

    /// Spec: LWP §1.2
    #[test]
    fn lwp_spec_1_2_each_broken_relation_is_named() {
        let full = presets::FULL;
        let ebx = |bits| Capabilities { ebx: Ebx(bits), ..full }.validate();
        assert_eq!(ebx(0x5006_2016), Err(LayoutError::EventOffset(80)));
        assert_eq!(ebx(0x8406_2020), Err(LayoutError::EventOffset(132)));
        assert_eq!(ebx(0x8000_2016), Err(LayoutError::NoEvents));
        assert_eq!(ebx(0x8006_2015), Err(LayoutError::BlockTooSmall { bytes: 168, end: 176 }));
        assert_eq!(ebx(0x8006_1F16), Err(LayoutError::EventSize(31)));
        let blind = Capabilities { ecx: Ecx::from_bits_retain(0x3001_0330), ..full };
        assert_eq!(blind.validate(), Err(LayoutError::NoCacheFilter));
    }

    /// Spec: LWP §1.2
    #[test]
    fn lwp_spec_1_2_eax_is_what_the_system_switched_on() {
        let part = presets::BULLDOZER;
        let cfg = LwpCfg::new(EventFlags::VAL | EventFlags::BRE | EventFlags::CNH, 3, 9);
        assert_eq!(part.leaf(0x7, cfg).eax, 0, "XCR0[62] clear");
        assert_eq!(part.leaf(xsave::XCR0_LWP, LwpCfg::default()).eax, 1, "available, no event");
        assert_eq!(part.leaf(xsave::XCR0_LWP, cfg).eax, 0b1011, "CNH is not in EDX");
    }

    /// Dumps of real parts, bit for bit.
    ///
    /// Spec: LWP §1.3, §1.4
    #[test]
    fn lwp_spec_1_3_leaves_equal_the_dumps() {
        let leaf = presets::STEAMROLLER.leaf(0, LwpCfg::default());
        let dump = Leaf { eax: 0, ebx: 0x8003_2013, ecx: 0x0001_0200, edx: 0xE000_000F };
        assert_eq!(leaf, dump);
        let component = presets::AMD_4700S.xsave_leaf();
        assert_eq!(component, Leaf { eax: 0x80, ebx: 0x380, ecx: 0, edx: 0 });
    }

    /// Spec: LWP §1.1
    #[test]
    fn lwp_spec_1_1_presence_and_time_stamp_are_different_bits() {
        assert_eq!((fn8000_0001::ECX_LWP, fn8000_0001::ECX_PTSC), (0x8000, 0x0800_0000));
    }

    /// Spec: LWP §4.1. DEV-13
    #[test]
    fn lwp_spec_4_1_dev_13_time_stamp_width_codes() {
        let widths = [0u32, 1, 2, 3].map(|code| fn8000_0008::ptsc_bits(code << 16 | 0xFFFF));
        assert_eq!(widths, [40, 48, 56, 64]);
    }

    /// Spec: P07 §5.1
    #[test]
    fn p07_5_1_leaf_packs_and_orders_its_bits() {
        let part = Capabilities2007::FULL;
        let leaf = part.leaf(LwpMsr0::ENABLED | LwpMsr0::BRE);
        assert_eq!(leaf.eax, 0b101);
        assert_eq!(leaf.ebx, 0x0103_2040, "version 1, three events, 32-byte records, 64 bytes");
        assert_eq!(leaf.ecx, 0xC000_0030);
        assert_eq!(leaf.edx, 0x1F);
    }

    /// Spec: P07 §5.2.1
    #[test]
    fn p07_5_2_1_settable_bits_follow_the_features() {
        let part = Capabilities2007 {
            features: Edx2007::ENABLED | Edx2007::DME | Edx2007::INTERRUPT,
            ..Capabilities2007::FULL
        };
        assert_eq!(part.settable(), LwpMsr0::ENABLED | LwpMsr0::DME | LwpMsr0::INTERRUPT);
    }
}

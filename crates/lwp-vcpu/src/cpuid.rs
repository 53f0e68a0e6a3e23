//! The processor that the program sees.

use lwp_arch::cpuid::{Leaf, fn8000_0001, fn8000_001c};
use lwp_arch::xsave::{COMPONENT, Component, LwpXsave, XCR0_LWP, image};
use lwp_dbt::context::KnownCpuid;
use lwp_model::{LwpUnit, Processor};
use lwp_process::sys;
use lwp_run::config::{CpuModel, LwpConfig};

/// CPUID and XCR0 of the virtual processor.
#[derive(Clone, Debug)]
pub struct VirtualCpu {
    model: CpuModel,
    /// Leaf `8000_001C`, where the processor has LWP.
    lwp: Option<Leaf>,
    /// The state components from number 2 on, that of LWP the last, where it is one of them; else
    /// none.
    components: Vec<Component>,
    /// The processors of the machine are of different kinds.
    hybrid: bool,
}

impl VirtualCpu {
    /// A processor of this model, with this LWP.
    pub fn new(model: CpuModel, lwp: Option<&LwpConfig>) -> Self {
        let leaf = |lwp: &LwpConfig| {
            let mut unit = LwpUnit::new(lwp.processor);
            unit.enable_events(lwp.events);
            unit.cpuid()
        };
        const HYBRID: u32 = 1 << 15;
        let hybrid = sys::cpuid(7, 0)[3] & HYBRID != 0;
        let mut cpu = Self { model, lwp: lwp.map(leaf), components: Vec::new(), hybrid };
        if let Some(Processor::Shipped(shipped)) = lwp.map(|lwp| lwp.processor) {
            cpu.components = real_components(cpu.real_xcr0());
            let at = image::placed(shipped.capabilities.xsave_offset, &cpu.components);
            cpu.components.push(Component::lwp(at));
        }
        cpu
    }

    /// The state components from number 2 on as XSAVE images hold them, where LWP is the last of
    /// them; else none.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// XCR0.
    pub fn xcr0(&self) -> u64 {
        self.real_xcr0() | if self.components.is_empty() { 0 } else { XCR0_LWP }
    }

    /// The part of the real processor's XCR0 that is shown.
    pub fn real_xcr0(&self) -> u64 {
        let host = sys::xcr0();
        match self.model {
            CpuModel::Host => host,
            CpuModel::V2 => host & 0x3,
            CpuModel::V3 | CpuModel::HostAvx => host & 0x7,
            CpuModel::V4 => host & 0xe7,
        }
    }

    /// CPUID: eax, ebx, ecx, edx.
    pub fn cpuid(&self, leaf: u32, subleaf: u32) -> [u32; 4] {
        let raw = sys::cpuid(leaf, subleaf);
        let shown = match self.model {
            CpuModel::Host => host(leaf, subleaf, raw),
            CpuModel::HostAvx => {
                host_avx(leaf, subleaf, host(leaf, subleaf, raw), self.real_xcr0())
            }
            model => fixed(model, self.real_xcr0(), leaf, subleaf, raw),
        };
        self.with_lwp(leaf, self.with_lwp_state(leaf, subleaf, shown))
    }

    /// The answer as one to be remembered: not those that differ between the processors of a
    /// machine, or may change.
    pub fn known(&self, leaf: u32, subleaf: u32, answer: [u32; 4]) -> Option<KnownCpuid> {
        let host = matches!(self.model, CpuModel::Host | CpuModel::HostAvx);
        match leaf {
            // APIC ids, serial number, topology by processor, core type: what differs is shown as
            // it is.
            1 | 3 | 0xb | 0x1a | 0x1f | 0x8000_001e | 0x8000_0026 if host => {
                return Some(KnownCpuid { leaf, subleaf: None, answer: None });
            }
            0..=0x24 | 0x8000_0000..=0x8000_0026 if !self.hybrid || !host => {}
            _ => return None,
        }
        let simple = matches!(leaf, 0 | 2 | 0x15 | 0x16 | 0x19 | 0x8000_0000..=0x8000_0008);
        let subleaf = (!simple).then_some(subleaf);
        Some(KnownCpuid { leaf, subleaf, answer: Some(answer) })
    }

    /// The leaves that C libraries ask every processor for when they start, as far as they can be
    /// remembered. Asking the real one takes long where a hypervisor answers.
    pub fn asked_at_start(&self) -> impl Iterator<Item = KnownCpuid> + '_ {
        const ALONE: [u32; 8] =
            [0, 1, 0xb, 0x19, 0x8000_0000, 0x8000_0001, 0x8000_0007, 0x8000_0008];
        const BY_SUBLEAF: [(u32, u32); 10] = [
            (7, 0),
            (7, 1),
            (0xd, 0),
            (0xd, 1),
            (0xd, 2),
            (0xd, 3),
            (0xd, 5),
            (0xd, 6),
            (0xd, 7),
            (0x14, 0),
        ];
        /// Leaves that say how large the caches are, of Intel's processors and of AMD's.
        const CACHES: [&[(u32, u32)]; 2] = [
            &[(2, 0), (4, 0), (4, 1), (4, 2), (4, 3), (4, 4)],
            &[(0x8000_0005, 0), (0x8000_0006, 0), (0x8000_001d, 3)],
        ];
        const AMD: u32 = u32::from_le_bytes(*b"Auth");
        let vendor = self.cpuid(0, 0)[1];
        let asked = ALONE.into_iter().map(|leaf| (leaf, 0)).chain(BY_SUBLEAF);
        let asked = asked.chain(CACHES[usize::from(vendor == AMD)].iter().copied());
        asked.filter_map(|(leaf, subleaf)| match self.known(leaf, subleaf, [0; 4])? {
            known @ KnownCpuid { answer: None, .. } => Some(known),
            _ => self.known(leaf, subleaf, self.cpuid(leaf, subleaf)),
        })
    }

    /// Adds the state of Lightweight Profiling to what there is for XSAVE to save.
    ///
    /// Spec: LWP §1.4.
    fn with_lwp_state(&self, leaf: u32, subleaf: u32, mut shown: [u32; 4]) -> [u32; 4] {
        const XSAVEC: u32 = 1 << 1;
        let Some(lwp) = self.components.last() else { return shown };
        match (leaf, subleaf) {
            (0xd, 0) => {
                let end = lwp.offset + lwp.size;
                shown[1] = shown[1].max(end);
                shown[2] = shown[2].max(end);
                shown[3] |= (XCR0_LWP >> 32) as u32;
            }
            // It comes last, at no alignment.
            (0xd, 1) if shown[0] & XSAVEC != 0 => shown[1] += LwpXsave::SIZE as u32,
            (0xd, COMPONENT) => shown = [lwp.size, lwp.offset, 0, 0],
            _ => {}
        }
        shown
    }

    /// Adds what says that the processor has Lightweight Profiling.
    ///
    /// Spec: LWP §1.1, §1.2.
    fn with_lwp(&self, leaf: u32, mut shown: [u32; 4]) -> [u32; 4] {
        let Some(lwp) = self.lwp else { return shown };
        match leaf {
            0x8000_0000 => shown[0] = shown[0].max(fn8000_001c::LEAF),
            fn8000_0001::LEAF => {
                shown[2] |= fn8000_0001::ECX_LWP;
                if lwp.edx & fn8000_001c::Features::LWP_PTSC.bits() != 0 {
                    shown[2] |= fn8000_0001::ECX_PTSC;
                }
            }
            fn8000_001c::LEAF => shown = [lwp.eax, lwp.ebx, lwp.ecx, lwp.edx],
            _ => {}
        }
        shown
    }
}

/// The state components of the real processor from number 2 on, of those that `xcr0` has.
fn real_components(xcr0: u64) -> Vec<Component> {
    const ALIGNED: u32 = 1 << 1;
    let numbers = (2..COMPONENT).filter(|number| xcr0 >> number & 1 != 0);
    let component = |number| {
        let [size, offset, flags, _] = sys::cpuid(0xd, number);
        Component { number, offset, size, aligned: flags & ALIGNED != 0 }
    };
    numbers.map(component).collect()
}

/// The host's features, minus those that cannot be translated: shadow stacks, user interrupts, APX
/// and AVX10.
///
/// Transactional memory stays: XBEGIN always aborts, which the architecture allows, and the C
/// library then chooses the same string functions as natively, so that counts agree.
fn host(leaf: u32, subleaf: u32, mut raw: [u32; 4]) -> [u32; 4] {
    for &(at, register, bits, _) in HIDDEN {
        if at == (leaf, subleaf) {
            raw[register] &= !bits;
        }
    }
    if matches!(leaf, 0x24 | 0x29) {
        raw = [0; 4];
    }
    raw
}

/// Features of the host that are not shown: leaf and subleaf, register from eax on, bits, name.
#[rustfmt::skip] // A table: one feature a line.
const HIDDEN: &[((u32, u32), usize, u32, &str)] = &[
    ((7, 0),    2, 1 << 7,                       "shadow stacks"),
    ((7, 0),    3, 1 << 5,                       "user interrupts"),
    ((7, 1),    3, 1 << 19,                      "AVX10"),
    ((7, 1),    3, 1 << 21,                      "APX"),
    ((0xd, 1),  2, 1 << 11 | 1 << 12 | 1 << 14,  "states of shadow stacks and user interrupts"),
];

/// The host's answer as far as it is shown, `shown`, less the features whose state is not shown:
/// AVX-512, protection keys, memory bounds and AMX.
fn host_avx(leaf: u32, subleaf: u32, mut shown: [u32; 4], xcr0: u64) -> [u32; 4] {
    /// XSAVEOPT and XSAVEC, of what leaf 0Dh has in sub-leaf 1.
    const SAVES: u32 = 1 << 0 | 1 << 1;
    let hide = |shown: &mut [u32; 4], bits: &[(usize, &[u32])]| {
        for (register, bits) in bits {
            shown[*register] &= !bits.iter().fold(0, |mask, bit| mask | 1 << bit);
        }
    };
    match (leaf, subleaf) {
        (7, 0) => hide(
            &mut shown,
            &[
                (1, &[14, 16, 17, 21, 26, 27, 28, 30, 31]),
                (2, &[1, 3, 4, 6, 11, 12, 14]),
                (3, &[2, 3, 8, 22, 23, 24, 25]),
            ],
        ),
        (7, 1) => hide(&mut shown, &[(0, &[5, 21]), (3, &[8])]),
        (0xd, 1) => {
            // The longest compact image: what XCR0 has, one behind the other.
            let sizes = real_components(xcr0).iter().map(|component| component.size).sum::<u32>();
            shown = [shown[0] & SAVES, 576 + sizes, 0, 0];
        }
        (0xd, _) => shown = leaf_d(xcr0, subleaf),
        (0x1d | 0x1e, _) => shown = [0; 4],
        _ => {}
    }
    shown
}

/// The features of this machine's processor that programs are not shown.
pub fn hidden() -> Vec<&'static str> {
    let most = sys::cpuid(0, 0)[0];
    let present = |((leaf, subleaf), register, bits, _): &&((u32, u32), usize, u32, &str)| {
        *leaf <= most && sys::cpuid(*leaf, *subleaf)[*register] & bits != 0
    };
    HIDDEN.iter().filter(present).map(|(_, _, _, name)| *name).collect()
}

/// The bytes that a fixed processor says XSAVE writes, at least: those of x87, SSE, AVX and AVX-512
/// where they take most. The C library's lazy binding saves all of these, and makes room for what
/// CPUID has said. A process that goes on natively, as a child that is not followed, saves what
/// the machine's own processor has.
const ROOM_FOR_NATIVE_STATE: u32 = 2688;

/// A fixed processor: the same answers on every machine that can run it.
fn fixed(model: CpuModel, xcr0: u64, leaf: u32, subleaf: u32, raw: [u32; 4]) -> [u32; 4] {
    let avx = model != CpuModel::V2;
    let avx512 = model == CpuModel::V4;
    match leaf {
        0 => [0xd, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
        1 => leaf_1(avx, raw),
        2 => [0x0000_ff01, 0, 0, 0],
        4 => leaf_4(subleaf),
        7 if subleaf == 0 => leaf_7(avx, avx512),
        0xd if subleaf == 0 => {
            let [low, size, most, high] = leaf_d(xcr0, subleaf);
            [low, size.max(ROOM_FOR_NATIVE_STATE), most.max(ROOM_FOR_NATIVE_STATE), high]
        }
        0xd => leaf_d(xcr0, subleaf),
        0x8000_0000 => [0x8000_0008, 0, 0, 0],
        // LAHF, LZCNT (v3); NX, SYSCALL, RDTSCP, 64-bit.
        0x8000_0001 => [0, 0, 1 | u32::from(avx) << 5, 1 << 20 | 1 << 11 | 1 << 27 | 1 << 29],
        0x8000_0002..=0x8000_0004 => brand(leaf),
        0x8000_0006 => [0, 0, 0x0100_6040, 0],
        0x8000_0007 => [0, 0, 0, 1 << 8],
        0x8000_0008 => [0x0000_3027, 0, 0, 0],
        _ => [0; 4],
    }
}

fn leaf_1(avx: bool, raw: [u32; 4]) -> [u32; 4] {
    // SSE3, SSSE3, CX16, SSE4.1, SSE4.2, POPCNT, XSAVE, OSXSAVE.
    let mut ecx = 1 | 1 << 9 | 1 << 13 | 1 << 19 | 1 << 20 | 1 << 23 | 1 << 26 | 1 << 27;
    if avx {
        // FMA, MOVBE, AVX, F16C.
        ecx |= 1 << 12 | 1 << 22 | 1 << 28 | 1 << 29;
    }
    // FPU .. SSE2 as on every x86-64 processor, and CLFLUSH.
    let edx = 0x078b_fbff;
    // Family 6, model 60, stepping 3; CLFLUSH of 64 bytes; one logical processor.
    let _ = raw;
    [0x0003_06c3, 0x0001_0800, ecx, edx]
}

/// L1D 32 KiB, L1I 32 KiB, L2 256 KiB, L3 8 MiB; 64-byte lines.
fn leaf_4(subleaf: u32) -> [u32; 4] {
    let row = |kind: u32, level: u32, ways: u32, sets: u32| {
        [kind | level << 5 | 1 << 8, (ways - 1) << 22 | 63, sets - 1, 0]
    };
    match subleaf {
        0 => row(1, 1, 8, 64),
        1 => row(2, 1, 8, 64),
        2 => row(3, 2, 8, 512),
        3 => row(3, 3, 16, 8192),
        _ => [0; 4],
    }
}

fn leaf_7(avx: bool, avx512: bool) -> [u32; 4] {
    let mut ebx = 1 << 9; // ERMS
    if avx {
        // BMI1, AVX2, BMI2.
        ebx |= 1 << 3 | 1 << 5 | 1 << 8;
    }
    if avx512 {
        // F, DQ, CD, BW, VL.
        ebx |= 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31;
    }
    [0, ebx, 0, 0]
}

/// Sizes of the state that XSAVE saves: what XCR0 shows, in the standard layout.
fn leaf_d(xcr0: u64, subleaf: u32) -> [u32; 4] {
    let component = |index: u32| {
        let raw = sys::cpuid(0xd, index);
        (raw[0], raw[1])
    };
    match subleaf {
        0 => {
            let mut size = 576;
            for index in 2..32 {
                if xcr0 & (1 << index) != 0 {
                    let (bytes, offset) = component(index);
                    size = size.max(offset + bytes);
                }
            }
            [xcr0 as u32, size, size, (xcr0 >> 32) as u32]
        }
        2..=31 if xcr0 & (1 << subleaf) != 0 => {
            let (bytes, offset) = component(subleaf);
            [bytes, offset, 0, 0]
        }
        _ => [0; 4],
    }
}

fn brand(leaf: u32) -> [u32; 4] {
    let mut text = [0u8; 48];
    let name = b"lwp virtual CPU";
    text[..name.len()].copy_from_slice(name);
    let at = (leaf - 0x8000_0002) as usize * 16;
    [0, 4, 8, 12].map(|word| {
        let bytes = [0, 1, 2, 3].map(|byte| text[at + word + byte]);
        u32::from_le_bytes(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs that were written for these parts know where the state lies, and AVX is all that is
    /// before it.
    #[test]
    fn real_parts_have_their_component_where_it_lay() {
        for (part, offset) in [("bulldozer", 0x340), ("steamroller", 0x340), ("4700s", 0x380)] {
            let lwp = LwpConfig::part(part).unwrap();
            let cpu = VirtualCpu::new(CpuModel::HostAvx, Some(&lwp));
            assert_eq!(cpu.cpuid(0xd, COMPONENT), [128, offset, 0, 0], "{part}");
            assert_eq!(cpu.xcr0() & !7, XCR0_LWP);
            let [low, enabled, most, high] = cpu.cpuid(0xd, 0);
            assert_eq!((low & !7, high, enabled, most), (0, 1 << 30, offset + 128, offset + 128));
            assert_eq!(cpu.cpuid(0xd, 9), [0; 4]);
            const AVX512: u32 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31;
            let ([_, here, ..], [_, shown, ..]) = (sys::cpuid(7, 0), cpu.cpuid(7, 0));
            assert_eq!((shown & AVX512, shown & 1 << 5), (0, here & 1 << 5), "AVX2 as it is here");
        }
    }

    #[test]
    fn fixed_processors_are_the_same_everywhere_and_show_their_level_only() {
        const AVX: u32 = 1 << 28;
        const AVX2: u32 = 1 << 5;
        const AVX512F: u32 = 1 << 16;
        for (model, levels) in [
            (CpuModel::V2, [false, false]),
            (CpuModel::V3, [true, false]),
            (CpuModel::V4, [true, true]),
        ] {
            let cpu = VirtualCpu::new(model, None);
            let [most, b, c, d] = cpu.cpuid(0, 0);
            assert_eq!(
                (most, [b, d, c].map(u32::to_le_bytes).concat()),
                (0xd, b"GenuineIntel".into())
            );
            let ([_, _, first, _], [_, seventh, _, _]) = (cpu.cpuid(1, 0), cpu.cpuid(7, 0));
            let shown = [first & AVX, seventh & AVX2, seventh & AVX512F].map(|bits| bits != 0);
            assert_eq!(shown, [levels[0], levels[0], levels[1]], "{model:?}");
            assert_eq!(cpu.cpuid(7, 1), [0; 4]);
            // The state that is there to be saved is that of what is shown.
            let [low, size, ..] = cpu.cpuid(0xd, 0);
            assert_eq!(u64::from(low), cpu.xcr0());
            assert_eq!((size, cpu.xcr0() & !sys::xcr0()), (ROOM_FOR_NATIVE_STATE, 0));
            assert!(levels[0] || cpu.xcr0() & !3 == 0);
            let brand: Vec<u8> = (0x8000_0002..=0x8000_0004)
                .flat_map(|leaf| cpu.cpuid(leaf, 0))
                .flat_map(u32::to_le_bytes)
                .collect();
            assert!(brand.starts_with(b"lwp virtual CPU\0"), "{brand:?}");
            for leaf in [3, 0x14, 0x4000_0000, 0x8000_001c, u32::MAX] {
                assert_eq!(cpu.cpuid(leaf, 0), [0; 4], "{leaf:#x}");
            }
        }
    }

    #[test]
    fn the_caches_of_a_fixed_processor_have_their_sizes() {
        let cpu = VirtualCpu::new(CpuModel::V3, None);
        let bytes = |subleaf: u32| {
            let [_, ways, sets, _] = cpu.cpuid(4, subleaf);
            ((ways >> 22) + 1) * ((ways & 0xfff) + 1) * (sets + 1)
        };
        assert_eq!([0, 1, 2, 3].map(bytes), [32 << 10, 32 << 10, 256 << 10, 8 << 20]);
        let kinds = [0, 1, 2, 3, 4].map(|subleaf| cpu.cpuid(4, subleaf)[0] & 0x1f);
        assert_eq!(kinds, [1, 2, 3, 3, 0], "data, code, both, both, none");
        assert_eq!(cpu.cpuid(0x8000_0006, 0)[2] >> 16, 256);
    }

    #[test]
    fn what_is_remembered_from_the_start_is_what_would_be_answered() {
        for model in [CpuModel::Host, CpuModel::HostAvx, CpuModel::V2, CpuModel::V4] {
            let cpu = VirtualCpu::new(model, None);
            let mut leaves = Vec::new();
            for known in cpu.asked_at_start() {
                leaves.push(known.leaf);
                let Some(answer) = known.answer else { continue };
                assert_eq!(answer, cpu.cpuid(known.leaf, known.subleaf.unwrap_or(0)), "{known:?}");
            }
            let fixed = matches!(model, CpuModel::V2 | CpuModel::V4);
            assert!(!fixed || [0, 1, 4, 7, 0xd].iter().all(|leaf| leaves.contains(leaf)));
            assert!(!leaves.contains(&0x8000_001e), "it differs by processor");
        }
        // What only the host's model may show differently is not remembered there.
        let host = VirtualCpu::new(CpuModel::Host, None);
        assert_eq!(host.known(0x4000_0000, 0, [1; 4]).map(|known| known.leaf), None);
        let [fixed, shown] = [CpuModel::V3, CpuModel::Host]
            .map(|model| VirtualCpu::new(model, None).known(0xb, 1, [7; 4]).expect("it is known"));
        assert_eq!((fixed.subleaf, fixed.answer), (Some(1), Some([7; 4])));
        assert_eq!((shown.subleaf, shown.answer), (None, None));
    }

    #[test]
    fn features_that_cannot_be_translated_are_not_shown_and_have_a_name() {
        let here = |(leaf, subleaf): (u32, u32), register: usize| {
            let there = leaf <= sys::cpuid(0, 0)[0];
            if there { sys::cpuid(leaf, subleaf)[register] } else { 0 }
        };
        let names = hidden();
        for &(at, register, bits, name) in HIDDEN {
            assert_eq!(names.contains(&name), here(at, register) & bits != 0, "{name}");
            for model in [CpuModel::Host, CpuModel::HostAvx, CpuModel::V4] {
                let shown = VirtualCpu::new(model, None).cpuid(at.0, at.1)[register];
                assert_eq!(shown & bits, 0, "{name}");
            }
        }
        let host = VirtualCpu::new(CpuModel::Host, None);
        assert_eq!((host.cpuid(0x24, 0), host.cpuid(0x29, 0)), ([0; 4], [0; 4]));
    }

    #[test]
    fn a_processor_with_lightweight_profiling_says_so() {
        let lwp = LwpConfig::default();
        for model in [CpuModel::Host, CpuModel::V3] {
            let cpu = VirtualCpu::new(model, Some(&lwp));
            assert!(cpu.cpuid(0x8000_0000, 0)[0] >= fn8000_001c::LEAF);
            assert_ne!(cpu.cpuid(0x8000_0001, 0)[2] & fn8000_0001::ECX_LWP, 0);
            assert_ne!(cpu.cpuid(fn8000_001c::LEAF, 0), [0; 4]);
            let without = VirtualCpu::new(model, None);
            let all = [2, 3].map(|register| without.cpuid(0x8000_0001, 0)[register]);
            assert_eq!(all[1], cpu.cpuid(0x8000_0001, 0)[3], "nothing else changes");
        }
    }
}

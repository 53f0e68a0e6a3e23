//! CPUID and XGETBV: the host's answers with the virtual LWP laid over them.

use lwp_arch::cpuid::{Leaf, fn8000_0001, fn8000_001c};
use lwp_arch::xsave::{COMPONENT, Component, LwpXsave, XCR0_LWP, image};
use lwp_model::{LwpUnit, Processor};
use lwp_process::sys;

/// Bits 17:16 of ECX of leaf 8000_0008h for a time-stamp counter of 64 bits.
const PTSC_64_BITS: u32 = 3 << 16;

/// EAX, EBX, ECX and EDX of a leaf.
///
/// Spec: LWP §1; P07 §5.1.
pub fn answer(unit: &LwpUnit, leaf: u32, subleaf: u32) -> [u32; 4] {
    let mut regs = sys::cpuid(leaf, subleaf);
    let stamps = has_time_stamps(unit);
    match (leaf, subleaf) {
        (0x8000_0000, _) => regs[0] = regs[0].max(fn8000_001c::LEAF),
        (fn8000_0001::LEAF, _) => {
            regs[2] |= fn8000_0001::ECX_LWP;
            regs[2] &= !fn8000_0001::ECX_PTSC;
            if stamps {
                regs[2] |= fn8000_0001::ECX_PTSC;
            }
        }
        (0x8000_0008, _) if stamps => regs[2] |= PTSC_64_BITS,
        (fn8000_001c::LEAF, _) => {
            let Leaf { eax, ebx, ecx, edx } = unit.cpuid();
            regs = [eax, ebx, ecx, edx];
        }
        (0xD, 0) => {
            if let Some(offset) = xsave_offset(unit) {
                let end = offset + LwpXsave::SIZE as u32;
                regs[1] = regs[1].max(end);
                regs[2] = regs[2].max(end);
                regs[3] |= (XCR0_LWP >> 32) as u32;
            }
        }
        // XSAVEC packs it behind the others.
        (0xD, 1) if regs[0] & XSAVEC != 0 && xsave_offset(unit).is_some() => {
            regs[1] += LwpXsave::SIZE as u32;
        }
        (0xD, COMPONENT) => {
            if let Some(offset) = xsave_offset(unit) {
                regs = [LwpXsave::SIZE as u32, offset, 0, 0];
            }
        }
        _ => {}
    }
    regs
}

/// Lays bit 62 over the XCR0 that the program read.
pub fn xcr0(unit: &LwpUnit, host: u64) -> u64 {
    if xsave_offset(unit).is_some() { host | XCR0_LWP } else { host }
}

/// In EAX of leaf 0Dh sub-leaf 1: the processor has XSAVEC.
const XSAVEC: u32 = 1 << 1;

/// Returns the offset of the LWP component in a standard-format image; the proposal has none.
fn xsave_offset(unit: &LwpUnit) -> Option<u32> {
    components(unit).last().map(|component| component.offset)
}

/// The state components from number 2 on, LWP the last; none in the proposal.
pub fn components(unit: &LwpUnit) -> Vec<Component> {
    let Processor::Shipped(shipped) = unit.processor() else { return Vec::new() };
    let host = sys::xcr0();
    let numbers = (2..COMPONENT).filter(|number| host >> number & 1 == 1);
    let component = |number| {
        let [size, offset, flags, _] = sys::cpuid(0xD, number);
        Component { number, offset, size, aligned: flags >> 1 & 1 == 1 }
    };
    let mut components: Vec<Component> = numbers.map(component).collect();
    let offset = image::placed(shipped.capabilities.xsave_offset, &components);
    components.push(Component::lwp(offset));
    components
}

fn has_time_stamps(unit: &LwpUnit) -> bool {
    match unit.processor() {
        Processor::Shipped(shipped) => {
            shipped.capabilities.features.contains(fn8000_001c::Features::LWP_PTSC)
        }
        Processor::Proposal(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> LwpUnit {
        let mut unit = LwpUnit::new(Processor::full());
        unit.enable_everything();
        unit
    }

    /// Spec: LWP §1.1, §1.2
    #[test]
    fn lwp_spec_1_1_presence_and_leaf_are_shown() {
        let unit = unit();
        assert!(answer(&unit, 0x8000_0000, 0)[0] >= 0x8000_001C);
        assert_ne!(answer(&unit, 0x8000_0001, 0)[2] & 1 << 15, 0);
        assert_eq!(
            answer(&unit, 0x8000_001C, 0),
            [0xE000_007F, 0x8006_2016, 0xF001_0330, 0xE000_007F]
        );
    }

    /// Spec: LWP §1.4
    #[test]
    fn lwp_spec_1_4_component_62_is_listed() {
        let unit = unit();
        let [size, offset, flags, high] = answer(&unit, 0xD, 62);
        assert_eq!([size, flags, high], [0x80, 0, 0]);
        let sizes = answer(&unit, 0xD, 0);
        let end = offset + size;
        assert!(sizes[1] >= end && sizes[2] >= end && sizes[3] & 1 << 30 != 0);
        for other in components(&unit).iter().filter(|other| other.number != COMPONENT) {
            assert!(other.offset + other.size <= offset || end <= other.offset, "{other:?}");
        }
        assert_eq!(xcr0(&unit, 7), 7 | 1 << 62);
    }
}

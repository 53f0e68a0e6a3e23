//! `struct perf_event_attr`: what the kernel is asked to count.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The kernel's `struct perf_event_attr`, in the revision with `config3` (136 bytes, Linux 6.3).
///
/// Older kernels accept the longer structure as long as what they do not know is zero.
///
/// Spec: perf_event.h, `struct perf_event_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Attr {
    /// The PMU: a `PERF_TYPE_*` or the number in the PMU's `type` file.
    pub kind: u32,
    /// Size of this structure in bytes.
    pub size: u32,
    /// The event, in the PMU's own terms.
    pub config: u64,
    /// Events between two samples; a frequency in Hz with [`Flags::FREQ`].
    pub sample_period: u64,
    /// The parts of a sample.
    pub sample_type: u64,
    /// The parts of what read(2) returns.
    pub read_format: u64,
    /// One-bit options, and `precise_ip`.
    pub flags: u64,
    /// Samples (or bytes, with [`Flags::WATERMARK`]) between two wakeups of a waiting reader.
    pub wakeup: u32,
    /// Breakpoints only.
    pub bp_type: u32,
    /// More of the event.
    pub config1: u64,
    /// More of the event.
    pub config2: u64,
    /// The branches that a branch stack holds.
    pub branch_sample_type: u64,
    /// User registers to sample.
    pub sample_regs_user: u64,
    /// Bytes of user stack to sample.
    pub sample_stack_user: u32,
    /// The clock of time stamps, with [`Flags::USE_CLOCKID`].
    pub clockid: i32,
    /// Registers at the overflow to sample.
    pub sample_regs_intr: u64,
    /// AUX area only.
    pub aux_watermark: u32,
    /// Deepest call chain.
    pub sample_max_stack: u16,
    reserved_2: u16,
    /// AUX area only.
    pub aux_sample_size: u32,
    /// AUX area only.
    pub aux_action: u32,
    /// Passed in `si_perf_data` of SIGTRAP.
    pub sig_data: u64,
    /// More of the event.
    pub config3: u64,
}

bitflags::bitflags! {
    /// The bit field of `struct perf_event_attr`.
    ///
    /// Spec: perf_event_open(2), "struct perf_event_attr".
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Flags: u64 {
        /// Off until enabled.
        const DISABLED = 1 << 0;
        /// New children are counted too.
        const INHERIT = 1 << 1;
        /// Always on the PMU, or in error: never multiplexed.
        const PINNED = 1 << 2;
        /// The PMU to itself.
        const EXCLUSIVE = 1 << 3;
        /// Not in user mode.
        const EXCLUDE_USER = 1 << 4;
        /// Not in the kernel.
        const EXCLUDE_KERNEL = 1 << 5;
        /// Not in the hypervisor.
        const EXCLUDE_HV = 1 << 6;
        /// Not while idle.
        const EXCLUDE_IDLE = 1 << 7;
        /// Records of executable mappings.
        const MMAP = 1 << 8;
        /// Records of names.
        const COMM = 1 << 9;
        /// `sample_period` is a frequency.
        const FREQ = 1 << 10;
        /// Enabled by the next exec.
        const ENABLE_ON_EXEC = 1 << 12;
        /// Fork and exit records.
        const TASK = 1 << 13;
        /// `wakeup` is in bytes.
        const WATERMARK = 1 << 14;
        /// Constant skid at most.
        const PRECISE_1 = 1 << 15;
        /// No skid, please.
        const PRECISE_2 = 1 << 16;
        /// Sample identifiers in every record.
        const SAMPLE_ID_ALL = 1 << 18;
        /// Not on the host of a guest.
        const EXCLUDE_HOST = 1 << 19;
        /// Not in a guest.
        const EXCLUDE_GUEST = 1 << 20;
        /// No user frames in call chains.
        const EXCLUDE_CALLCHAIN_USER = 1 << 22;
        /// Records of mappings say which file is mapped, with [`Flags::MMAP`].
        const MMAP2 = 1 << 23;
        /// Time stamps by `clockid`.
        const USE_CLOCKID = 1 << 25;
        /// Records of threads that get a processor or lose it.
        const CONTEXT_SWITCH = 1 << 26;
        /// Inherited by threads only.
        const INHERIT_THREAD = 1 << 35;
        /// Closed by exec.
        const REMOVE_ON_EXEC = 1 << 36;
        /// Each overflow sends SIGTRAP to the thread, before its next instruction.
        const SIGTRAP = 1 << 37;
    }
}

bitflags::bitflags! {
    /// In which modes of the processor events count.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Modes: u8 {
        /// User mode.
        const USER = 1 << 0;
        /// The kernel.
        const KERNEL = 1 << 1;
        /// The hypervisor.
        const HYPERVISOR = 1 << 2;
    }
}

impl Default for Modes {
    fn default() -> Self {
        Self::USER
    }
}

/// The numbers of `enum perf_type_id` used here.
///
/// Spec: perf_event_open(2), "type".
pub mod kind {
    /// Generic hardware events.
    pub const HARDWARE: u32 = 0;
    /// Events of the kernel itself.
    pub const SOFTWARE: u32 = 1;
    /// Generic cache events.
    pub const HW_CACHE: u32 = 3;
    /// The processor's own codes.
    pub const RAW: u32 = 4;
}

/// `read_format`: identifiers, both times, the whole group by one read.
pub const GROUP_READ_FORMAT: u64 = 1 | 2 | 4 | 8;

impl Attr {
    /// An attribute with everything off but its size.
    pub fn new(kind: u32, config: u64) -> Self {
        let mut attr = Self::new_zeroed();
        attr.kind = kind;
        attr.size = size_of::<Self>() as u32;
        attr.config = config;
        attr
    }

    /// The one-bit options.
    pub fn flags(&self) -> Flags {
        Flags::from_bits_retain(self.flags)
    }

    /// Switches `flags` on or off.
    pub fn set(&mut self, flags: Flags, on: bool) {
        let mut all = self.flags();
        all.set(flags, on);
        self.flags = all.bits();
    }

    /// Counts in `modes` only.
    pub fn set_modes(&mut self, modes: Modes) {
        self.set(Flags::EXCLUDE_USER, !modes.contains(Modes::USER));
        self.set(Flags::EXCLUDE_KERNEL, !modes.contains(Modes::KERNEL));
        self.set(Flags::EXCLUDE_HV, !modes.contains(Modes::HYPERVISOR));
    }

    /// Asks for at most this much skid: 0 any, 1 constant, 2 none if possible, 3 none.
    ///
    /// Spec: perf_event_open(2), "precise_ip".
    pub fn set_precise(&mut self, level: u8) {
        self.set(Flags::PRECISE_1, level & 1 != 0);
        self.set(Flags::PRECISE_2, level & 2 != 0);
    }

    /// The skid asked for; see [`Attr::set_precise`].
    pub fn precise(&self) -> u8 {
        let flags = self.flags();
        u8::from(flags.contains(Flags::PRECISE_1)) | u8::from(flags.contains(Flags::PRECISE_2)) << 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use perf_event_open_sys::bindings::perf_event_attr;
    use std::mem::offset_of;

    /// The foreign definition is generated from the kernel's header.
    #[test]
    fn perf_event_h_offsets() {
        macro_rules! same {
            ($($ours:ident = $theirs:ident),*) => {
                $(assert_eq!(offset_of!(Attr, $ours), offset_of!(perf_event_attr, $theirs));)*
            };
        }
        same!(kind = type_, size = size, config = config, sample_type = sample_type);
        same!(read_format = read_format, bp_type = bp_type, clockid = clockid);
        same!(branch_sample_type = branch_sample_type, sample_regs_intr = sample_regs_intr);
        same!(sample_regs_user = sample_regs_user, sample_stack_user = sample_stack_user);
        same!(aux_watermark = aux_watermark, sample_max_stack = sample_max_stack);
        same!(aux_sample_size = aux_sample_size, sig_data = sig_data);
        assert_eq!(size_of::<Attr>(), 136);
        assert_eq!(offset_of!(Attr, flags), 40);
        assert_eq!(offset_of!(Attr, config1), 56);
        assert_eq!(offset_of!(Attr, config3), 128);
    }

    #[test]
    fn perf_event_h_bits() {
        macro_rules! bit {
            ($($flag:ident = $setter:ident),*) => {$({
                let mut theirs = perf_event_attr::default();
                theirs.$setter(1);
                let mut ours = Attr::new(0, 0);
                ours.set(Flags::$flag, true);
                // The bit field is the 64-bit unit behind read_format.
                let unit = theirs._bitfield_1.get(0, 64);
                assert_eq!(unit, ours.flags, stringify!($flag));
            })*};
        }
        bit!(DISABLED = set_disabled, INHERIT = set_inherit, PINNED = set_pinned);
        bit!(EXCLUSIVE = set_exclusive, EXCLUDE_USER = set_exclude_user);
        bit!(EXCLUDE_KERNEL = set_exclude_kernel, EXCLUDE_HV = set_exclude_hv);
        bit!(EXCLUDE_IDLE = set_exclude_idle, FREQ = set_freq, TASK = set_task);
        bit!(ENABLE_ON_EXEC = set_enable_on_exec, WATERMARK = set_watermark);
        bit!(PRECISE_1 = set_precise_ip, SAMPLE_ID_ALL = set_sample_id_all);
        bit!(EXCLUDE_HOST = set_exclude_host, EXCLUDE_GUEST = set_exclude_guest);
        bit!(MMAP = set_mmap, COMM = set_comm, MMAP2 = set_mmap2);
        bit!(EXCLUDE_CALLCHAIN_USER = set_exclude_callchain_user);
        bit!(USE_CLOCKID = set_use_clockid, INHERIT_THREAD = set_inherit_thread);
        bit!(CONTEXT_SWITCH = set_context_switch);
        bit!(REMOVE_ON_EXEC = set_remove_on_exec, SIGTRAP = set_sigtrap);
    }

    #[test]
    fn modes_are_exclusions() {
        let mut attr = Attr::new(kind::RAW, 0xc0);
        attr.set_modes(Modes::USER);
        assert_eq!(attr.flags(), Flags::EXCLUDE_KERNEL | Flags::EXCLUDE_HV);
        attr.set_modes(Modes::all());
        assert_eq!(attr.flags(), Flags::empty());
        attr.set_precise(2);
        assert_eq!((attr.precise(), attr.flags()), (2, Flags::PRECISE_2));
    }
}

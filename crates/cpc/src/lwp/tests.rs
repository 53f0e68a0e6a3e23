//! The back end on the reference LWP unit.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use lwp_arch::cpuid::fn8000_001c::Features;
use lwp_arch::cpuid::{Capabilities, presets};
use lwp_arch::insn::Width;
use lwp_arch::record::DataSource;
use lwp_arch::retired::{Access, AccessKind, BranchKind, CacheMiss, Retired};
use lwp_arch::{AppPc, LinearAddr, PageFault};
use lwp_model::{Cpu, Data1, Insert, LinearMemory, LwpUnit, Processor, Quiet, Seeded};

use super::memory::Memory;
use super::unit::Unit;
use super::*;
use crate::backend::Cause;
use crate::error::Subcode;
use crate::handle::{Cpc, EventNames, EventUses, Version};
use crate::request::{BindFlags, Request, RequestFlags};
use crate::{Buf, Set, items};

/// The unit of the model, with the memory of one block. One thread uses it.
struct Modelled {
    capabilities: Capabilities,
    interrupts: bool,
    raised: AtomicUsize,
    state: Mutex<(LwpUnit, Option<Arc<Memory>>)>,
}

impl std::fmt::Debug for Modelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Modelled")
    }
}

type Touched = std::result::Result<(), PageFault>;

/// The bytes of a block and its ring.
struct Bytes<'a>(Option<&'a Memory>);

impl Bytes<'_> {
    fn byte(&self, address: u64) -> (&std::sync::atomic::AtomicU64, u32) {
        let word = self.0.and_then(|memory| memory.word_at(address));
        (word.expect("inside the memory"), (address % 8) as u32 * 8)
    }
}

impl LinearMemory for Bytes<'_> {
    fn read(&mut self, address: LinearAddr, bytes: &mut [u8]) -> Touched {
        for (offset, byte) in (0u64..).zip(bytes) {
            let (word, shift) = self.byte(address.0 + offset);
            *byte = (word.load(SeqCst) >> shift) as u8;
        }
        Ok(())
    }

    fn check_write(&mut self, _: LinearAddr, _: usize) -> Touched {
        Ok(())
    }

    fn write(&mut self, address: LinearAddr, bytes: &[u8]) -> Touched {
        for (offset, byte) in (0u64..).zip(bytes) {
            let (word, shift) = self.byte(address.0 + offset);
            let cleared = word.load(SeqCst) & !(0xFF << shift);
            word.store(cleared | u64::from(*byte) << shift, SeqCst);
        }
        Ok(())
    }
}

impl Modelled {
    fn new(capabilities: Capabilities) -> Arc<Self> {
        let mut unit = LwpUnit::new(Processor::shipped(capabilities));
        unit.enable_everything();
        let interrupts = capabilities.features.contains(Features::LWP_INT);
        let state = Mutex::new((unit, None));
        Arc::new(Self { capabilities, interrupts, raised: AtomicUsize::new(0), state })
    }

    fn llwpcb(&self, memory: Option<&Arc<Memory>>) {
        let (unit, active) = &mut *self.state.lock().unwrap();
        let touched = active.clone().or(memory.cloned());
        // The model touches the old block, then the new one; here there is never both.
        let address = memory.map_or(0, |memory| memory.address());
        unit.llwpcb(&Cpu::user_64(), address, &mut Bytes(touched.as_deref()), &mut Quiet).unwrap();
        *active = memory.cloned();
    }

    fn retire(&self, retired: &Retired<'_>) {
        let mut signals = Seeded::new(1);
        let (unit, active) = &mut *self.state.lock().unwrap();
        let memory = &mut Bytes(active.as_deref());
        unit.retire(&Cpu::user_64(), retired, memory, &mut signals).unwrap();
        self.raised.fetch_add(signals.interrupts.len(), SeqCst);
    }

    /// Retires an instruction and delivers the interrupt, if there is one, as the handler does.
    /// Returns whether the application is signalled.
    fn retire_interrupted(&self, retired: &Retired<'_>) -> bool {
        self.raised.store(0, SeqCst);
        self.retire(retired);
        self.raised.load(SeqCst) > 0 && crate::thread::interrupted(Cause::Threshold, 0)
    }

    /// Retires `number` instructions of which each is at the address of its number.
    fn instructions(&self, number: u64) {
        for ip in 0..number {
            self.retire(&Retired::plain(AppPc(ip), AppPc(ip + 1)));
        }
    }

    /// Lets core clocks pass at one instruction.
    fn cycles(&self, cycles: u32) {
        let plain = Retired::plain(AppPc(0), AppPc(1));
        self.retire(&Retired { core_cycles: cycles, ..plain });
    }
}

impl Unit for Modelled {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn enabled(&self) -> Features {
        self.capabilities.features
    }

    fn interrupts(&self) -> bool {
        self.interrupts
    }

    fn hear(&self) -> bool {
        self.interrupts
    }

    fn load(&self, memory: &Arc<Memory>) {
        self.llwpcb(None);
        self.llwpcb(Some(memory));
    }

    fn unload(&self, memory: &Arc<Memory>) {
        if self.flush() == memory.address() {
            self.llwpcb(None);
        }
    }

    fn flush(&self) -> u64 {
        let (unit, active) = &mut *self.state.lock().unwrap();
        let memory = &mut Bytes(active.as_deref());
        unit.slwpcb(&Cpu::user_64(), Width::W64, memory, &mut Quiet).unwrap()
    }

    fn insert(&self) {
        let (unit, active) = &mut *self.state.lock().unwrap();
        let insert = Insert { ip: AppPc(0), flags: 0, data1: Data1::Register(0), data2: 0 };
        let mut signals = Seeded::new(1);
        let memory = &mut Bytes(active.as_deref());
        unit.lwpins(&Cpu::user_64(), &insert, memory, &mut signals).unwrap();
        if !signals.interrupts.is_empty() {
            // A call is under way: it is noted.
            assert!(!crate::thread::interrupted(Cause::Threshold, 0));
        }
    }
}

fn open(capabilities: Capabilities) -> (Arc<Modelled>, Cpc) {
    let unit = Modelled::new(capabilities);
    let backend = LwpBackend::new(Arc::clone(&unit) as Arc<dyn Unit>);
    (unit, Cpc::with_backends(Version::Current, vec![Box::new(backend)], Vec::new()))
}

/// A set of these requests, bound to this thread, and a buffer for it.
fn bound(cpc: &Cpc, requests: &[Request]) -> (Set, Buf) {
    let set = cpc.create_set();
    for (index, request) in requests.iter().enumerate() {
        assert_eq!(set.add(request.clone()), Ok(index));
    }
    set.bind_thread(BindFlags::empty()).unwrap();
    let buf = set.create_buf();
    (set, buf)
}

fn refusal(cpc: &Cpc, requests: &[Request]) -> Option<Subcode> {
    let set = cpc.create_set();
    for request in requests {
        set.add(request.clone()).unwrap();
    }
    let error = set.bind_thread(BindFlags::empty()).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    error.subcode()
}

#[test]
fn instructions_are_counted_from_the_preset() {
    let (unit, cpc) = open(presets::FULL);
    let requests = [
        Request::new("PAPI_tot_ins").with_preset(1000),
        Request::new("lwp_bre").with_preset(u64::MAX),
    ];
    let (set, buf) = bound(&cpc, &requests);
    set.sample(&buf).unwrap();
    assert_eq!((buf.get(0), buf.get(1)), (Ok(1000), Ok(u64::MAX)));
    unit.instructions(77);
    unit.retire(&Retired::branch(AppPc(9), AppPc(0), BranchKind::Return, true));
    set.sample(&buf).unwrap();
    assert_eq!((buf.get(0), buf.get(1)), (Ok(1078), Ok(0)), "modulo 2^64");
    assert!(buf.time_ns() > 0);
}

/// The unit's counters have 26 bits; these pass 2^26 many times.
///
/// Promise: C2
#[test]
fn counts_go_on_past_the_width_of_the_counter() {
    let (unit, cpc) = open(presets::FULL);
    let (set, buf) = bound(&cpc, &[Request::new("PAPI_tot_cyc")]);
    let step = 1 << 24;
    for round in 1..=100u64 {
        unit.cycles(step);
        if round % 7 == 0 {
            set.sample(&buf).unwrap();
            assert_eq!(buf.get(0), Ok(round * u64::from(step)));
        }
    }
    set.sample(&buf).unwrap();
    assert_eq!(buf.get(0), Ok(100 * u64::from(step)));
}

#[test]
fn restarting_begins_at_the_preset_again() {
    let (unit, cpc) = open(presets::FULL);
    let (set, buf) = bound(&cpc, &[Request::new("lwp_ire").with_preset(5)]);
    unit.instructions(10);
    set.set_preset(0, 100).unwrap();
    set.sample(&buf).unwrap();
    assert_eq!(buf.get(0), Ok(15), "a new preset counts from the next restart");
    set.restart().unwrap();
    unit.instructions(3);
    set.sample(&buf).unwrap();
    assert_eq!(buf.get(0), Ok(103));
    assert_eq!(set.set_preset(1, 0).unwrap_err().errno(), libc::EINVAL);
}

#[test]
fn disabled_counters_keep_their_values() {
    let (unit, cpc) = open(presets::FULL);
    let (set, buf) = bound(&cpc, &[Request::new("lwp_ire")]);
    unit.instructions(10);
    crate::c::enable(false).unwrap();
    assert_eq!(crate::c::enable(false).unwrap_err().errno(), libc::EINVAL);
    unit.instructions(1000);
    set.sample(&buf).unwrap();
    assert_eq!(buf.get(0), Ok(10));
    crate::c::enable(true).unwrap();
    unit.instructions(5);
    set.sample(&buf).unwrap();
    assert_eq!(buf.get(0), Ok(15));
}

/// Promise: C3
#[test]
fn records_arrive_at_their_interval_and_are_moved_once() {
    let (unit, cpc) = open(presets::FULL);
    let (set, buf) = bound(&cpc, &[Request::records("lwp_ire", 10), Request::new("lwp_bre")]);
    unit.instructions(35);
    set.sample(&buf).unwrap();
    let records = buf.records(0).unwrap();
    let pcs: Vec<u64> = (0..records.len()).map(|r| records.item(r, 0).unwrap()).collect();
    assert_eq!((pcs, records.lost()), (vec![9, 19, 29], 0));
    assert_eq!(buf.get(0).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(buf.get(1), Ok(0));
    unit.instructions(5);
    set.sample(&buf).unwrap();
    assert_eq!(records.len(), 1, "the earlier ones were moved");
    assert_eq!(records.item(0, 0), Ok(4));
}

#[test]
fn cache_misses_have_their_items_and_filters() {
    let (unit, cpc) = open(presets::FULL);
    let request = Request::records("PAPI_l1_ldm", 1).with_attribute("min_latency", 96);
    let (set, buf) = bound(&cpc, &[request]);
    for (latency, address) in [(64, 0x1000), (200, 0x2000)] {
        let miss = CacheMiss {
            address: LinearAddr(address),
            source: DataSource::Dram,
            latency_cycles: latency,
        };
        let access =
            Access { kind: AccessKind::Load, address: LinearAddr(address), miss: Some(miss) };
        unit.retire(&Retired { accesses: &[access], ..Retired::plain(AppPc(7), AppPc(8)) });
    }
    set.sample(&buf).unwrap();
    let records = buf.records(0).unwrap();
    assert_eq!(records.len(), 1);
    let item = |name| records.item(0, items::index_of(name).unwrap()).unwrap();
    assert_eq!(["pc", "dlina", "lat", "dsrc"].map(item), [7, 0x2000, 192, 3]);
}

/// Promise: C3
#[test]
fn records_beyond_the_room_are_counted_as_lost() {
    let (unit, cpc) = open(presets::FULL);
    let request = Request::records("lwp_ire", 1).with_attribute("smpl_nrecs", 20);
    let (set, buf) = bound(&cpc, &[request]);
    unit.instructions(5000);
    set.sample(&buf).unwrap();
    let records = buf.records(0).unwrap();
    assert_eq!(records.len() as u64 + records.lost(), 5000);
    assert_eq!(records.len(), 20);
}

/// A buffer with less room than the set keeps: what does not fit is lost, and does not come later.
///
/// Promise: C3
#[test]
fn records_that_a_buffer_has_no_room_for_are_lost() {
    let (unit, cpc) = open(presets::FULL);
    let set_with_room = |room| {
        let set = cpc.create_set();
        set.add(Request::records("lwp_ire", 10).with_attribute("smpl_nrecs", room)).unwrap();
        set
    };
    let (set, small) = (set_with_room(20), set_with_room(3).create_buf());
    set.bind_thread(BindFlags::empty()).unwrap();
    for (retired, kept, lost) in [(80, 3, 5), (20, 2, 0)] {
        unit.instructions(retired);
        set.sample(&small).unwrap();
        let records = small.records(0).unwrap();
        assert_eq!((records.len(), records.lost()), (kept, lost));
    }
}

/// Promise: C1
#[test]
fn a_full_ring_invalidates_the_counts_and_never_falsifies_them() {
    let (unit, cpc) = open(presets::FULL);
    let requests = [Request::records("lwp_ire", 1), Request::new("lwp_bre")];
    let (set, buf) = bound(&cpc, &requests);
    unit.instructions((1 << 18) + 2000);
    let error = set.sample(&buf).unwrap_err();
    assert_eq!((error.errno(), error.subcode()), (libc::EAGAIN, None));
    set.restart().unwrap();
    set.sample(&buf).unwrap();
}

#[test]
fn foreign_blocks_are_noticed() {
    let (unit, cpc) = open(presets::FULL);
    let (set, buf) = bound(&cpc, &[Request::new("lwp_ire")]);
    let other = Arc::new(Memory::new(176, 4096).unwrap());
    let mut block = <lwp_arch::lwpcb::Lwpcb as zerocopy::FromZeros>::new_zeroed();
    block.set_buffer_size_random(4096, 0);
    block.buffer_base = other.ring_address().into();
    other.set_block(&block);
    unit.load(&other);
    assert_eq!(set.sample(&buf).unwrap_err().errno(), libc::EAGAIN);
    set.unbind().unwrap();
    assert_eq!(unit.flush(), other.address(), "it is left alone");
    let error = set.bind_thread(BindFlags::empty()).unwrap_err();
    assert_eq!(error.errno(), libc::EAGAIN);
}

/// Promise: C6
#[test]
fn what_the_unit_cannot_do_is_refused_with_its_subcode() {
    let (_unit, cpc) = open(presets::FULL);
    let count = Request::new("lwp_ire");
    let system = count.clone().with_flags(RequestFlags::KERNEL);
    assert_eq!(refusal(&cpc, &[system]), Some(Subcode::InvalidFlags));
    let unknown = count.clone().with_flags(RequestFlags::from_bits_retain(0x102));
    assert_eq!(refusal(&cpc, &[unknown]), Some(Subcode::InvalidFlags));
    let none = count.clone().with_flags(RequestFlags::empty());
    assert_eq!(refusal(&cpc, &[none]), Some(Subcode::InvalidFlags));
    let twice = [count.clone(), Request::new("PAPI_tot_ins")];
    assert_eq!(refusal(&cpc, &twice), Some(Subcode::ResourceUnavailable));
    let filter = count.clone().with_attribute("ncb", 1);
    assert_eq!(refusal(&cpc, &[filter]), Some(Subcode::InvalidAttribute));
    let wide = Request::new("lwp_dme").with_attribute("min_latency", 5000);
    assert_eq!(refusal(&cpc, &[wide]), Some(Subcode::AttributeOutOfRange));
    let far = Request::records("lwp_ire", (1 << 25) + 1);
    assert_eq!(refusal(&cpc, &[far]), Some(Subcode::AttributeOutOfRange));
    let ranges = [
        count.clone().with_attribute("base_ip", 1),
        Request::new("lwp_bre").with_attribute("base_ip", 2),
    ];
    assert_eq!(refusal(&cpc, &ranges), Some(Subcode::ConflictingRequests));
    let random = [count, Request::records("lwp_bre", 64).with_attribute("random", 4)];
    assert_eq!(refusal(&cpc, &random), Some(Subcode::ConflictingRequests));
    assert_eq!(refusal(&cpc, &[Request::new("lwp_ins")]), Some(Subcode::InvalidEvent));
    let both = [notifying(10), Request::records("lwp_bre", 64)];
    assert_eq!(refusal(&cpc, &both), Some(Subcode::ConflictingRequests));
}

/// A request of instructions that signals after `distance` of them.
fn notifying(distance: u64) -> Request {
    let flags = RequestFlags::USER | RequestFlags::NOTIFY_OVERFLOW;
    Request::new("lwp_ire").with_preset(distance.wrapping_neg()).with_flags(flags)
}

#[test]
fn an_overflow_freezes_the_set_and_signals_at_its_instruction() {
    let (unit, cpc) = open(presets::FULL);
    let (set, buf) = bound(&cpc, &[notifying(100), Request::new("lwp_bre").with_preset(7)]);
    let plain = Retired::plain(AppPc(1), AppPc(2));
    for round in 0..3 {
        let hits: Vec<u64> = (1..=150).filter(|_| unit.retire_interrupted(&plain)).collect();
        assert_eq!(hits, [100], "round {round}");
        set.sample(&buf).unwrap();
        assert_eq!((buf.get(0), buf.get(1)), (Ok(0), Ok(7)), "frozen at the wrap");
        set.restart().unwrap();
    }
    crate::c::enable(false).unwrap();
    assert!((0..150).all(|_| !unit.retire_interrupted(&plain)), "disabled");
}

/// A request of records that signals, with this room.
fn notifying_records(room: u64) -> Request {
    let flags = RequestFlags::USER | RequestFlags::NOTIFY_OVERFLOW;
    Request::records("lwp_ire", 10)
        .with_flags(flags | RequestFlags::RECORDS)
        .with_attribute("smpl_nrecs", room)
}

/// The signal comes while there is room, so that nothing is lost.
///
/// Promise: C4
#[test]
fn room_that_fills_is_signalled_and_freezes_the_set() {
    let (unit, cpc) = open(presets::FULL);
    let other = Request::records("lwp_bre", 1);
    let (set, buf) = bound(&cpc, &[notifying_records(40), other]);
    let plain = Retired::plain(AppPc(1), AppPc(2));
    for _ in 0..3 {
        let hits: Vec<u64> = (1..=1000).filter(|_| unit.retire_interrupted(&plain)).collect();
        assert_eq!(hits, [300], "at three quarters of 40 records");
        set.sample(&buf).unwrap();
        let records = buf.records(0).unwrap();
        assert_eq!((records.len(), records.lost()), (30, 0));
        set.restart().unwrap();
    }
}

/// A ring that holds both records and counts is emptied in between, if interrupts arrive.
///
/// Promise: C14
#[test]
fn a_ring_is_emptied_before_counts_are_lost() {
    let (unit, cpc) = open(presets::FULL);
    let requests =
        [Request::records("lwp_ire", 1).with_attribute("smpl_nrecs", 100), Request::new("lwp_bre")];
    let (set, buf) = bound(&cpc, &requests);
    let plain = Retired::plain(AppPc(1), AppPc(2));
    let instructions = (1u64 << 18) + 200_000;
    for _ in 0..instructions {
        assert!(!unit.retire_interrupted(&plain), "the application hears nothing of it");
    }
    set.sample(&buf).unwrap();
    let records = buf.records(0).unwrap();
    assert_eq!(records.len() as u64 + records.lost(), instructions);
    assert_eq!((records.len(), buf.get(1)), (100, Ok(0)));
}

/// The distance is many times what the unit's counter holds.
#[test]
fn a_far_overflow_is_signalled_at_its_occurrence() {
    let (unit, cpc) = open(presets::FULL);
    let distance = (1u64 << 27) + 12_345;
    let flags = RequestFlags::USER | RequestFlags::NOTIFY_OVERFLOW;
    let request = Request::new("lwp_cnh").with_preset(distance.wrapping_neg()).with_flags(flags);
    let (set, buf) = bound(&cpc, &[request]);
    let step = |cycles: u32| {
        let plain = Retired::plain(AppPc(0), AppPc(1));
        unit.retire_interrupted(&Retired { core_cycles: cycles, ..plain })
    };
    // The unit forgets occurrences behind an expiry, so the steps end exactly there.
    assert!(!step(12_345));
    for quarter in 1..=16 {
        assert_eq!(step(1 << 23), quarter == 16, "{quarter}");
    }
    set.sample(&buf).unwrap();
    assert_eq!(buf.get(0), Ok(0));
}

#[test]
fn overflow_needs_an_interrupt() {
    let features = presets::FULL.features - Features::LWP_INT;
    let (_unit, cpc) = open(Capabilities { features, ..presets::FULL });
    let flags = RequestFlags::USER | RequestFlags::NOTIFY_OVERFLOW;
    let set = cpc.create_set();
    set.add(Request::new("lwp_ire").with_flags(flags)).unwrap();
    assert_eq!(set.bind_thread(BindFlags::empty()).unwrap_err().errno(), libc::ENOTSUP);
    assert!(!cpc.capabilities().contains(crate::Capabilities::OVERFLOW_INTERRUPT));
}

#[test]
fn only_events_the_processor_has_are_listed() {
    let (_unit, cpc) = open(presets::BULLDOZER);
    assert_eq!(cpc.counter_count(), 3);
    assert_eq!(
        cpc.events(EventNames::Platform, EventUses::COUNTING),
        ["branch-instructions", "branches", "lwp_bre", "instructions", "lwp_ire", "lwp_val"]
    );
    assert_eq!(
        cpc.events(EventNames::Generic, EventUses::COUNTING),
        ["PAPI_br_ins", "PAPI_tot_ins"]
    );
    assert!(cpc.events(EventNames::Platform, EventUses::RECORDING).contains(&"lwp_ins"));
    assert_eq!(cpc.attributes(EventUses::COUNTING), ["nab", "ncb", "nrb", "random", "picnum"]);
    assert!(cpc.special_item(SpecialItem::InstructionAddress).is_ok());
    let address = cpc.special_item(SpecialItem::InstructionAddress).ok();
    assert_eq!((cpc.record_item("pc"), cpc.record_item("bogus")), (address, None));
    assert_eq!(cpc.special_item(SpecialItem::DataAddress).unwrap_err().errno(), libc::EINVAL);
    let set = cpc.create_set();
    let error = set.add(Request::new("lwp_dme")).unwrap_err();
    assert_eq!(error.subcode(), Some(Subcode::InvalidEvent));
    let error = set.add(Request::new("lwp_ire").with_attribute("picnum", 0)).unwrap_err();
    assert_eq!(error.subcode(), Some(Subcode::PicNotCapable));
    let error = set.add(Request::new("lwp_ire").with_attribute("picnum", 3)).unwrap_err();
    assert_eq!(error.subcode(), Some(Subcode::InvalidPicnum));
    let error = set.add(Request::new("lwp_ire").with_attribute("umask", 1)).unwrap_err();
    assert_eq!(error.subcode(), Some(Subcode::InvalidAttribute));
    assert_eq!(set.add(Request::new("lwp_ire").with_attribute("picnum", 1)), Ok(0));
}

/// Promise: C23
#[test]
fn the_kernel_s_part_is_left_out_if_the_user_chooses_that() {
    let unit = Modelled::new(presets::FULL);
    let backend = LwpBackend::new(Arc::clone(&unit) as Arc<dyn Unit>);
    let backend = LwpBackend { user_only: true, ..backend };
    let cpc = Cpc::with_backends(Version::Current, vec![Box::new(backend)], Vec::new());
    let both = RequestFlags::USER | RequestFlags::KERNEL;
    let (set, buf) = bound(&cpc, &[Request::new("lwp_ire").with_flags(both)]);
    unit.instructions(1000);
    set.sample(&buf).unwrap();
    assert!(buf.get(0).unwrap() >= 1000);
    set.unbind().unwrap();
    let system = Request::new("lwp_ire").with_flags(RequestFlags::KERNEL);
    assert_eq!(refusal(&cpc, &[system]), Some(Subcode::InvalidFlags));
}

/// Promise: C23
#[test]
fn what_is_to_be_asked_instead_of_the_kernel_s_part_is_said() {
    let (_unit, cpc) = open(presets::FULL);
    let both = RequestFlags::USER | RequestFlags::KERNEL;
    let set = cpc.create_set();
    let added = set.add(Request::new("lwp_ire").with_flags(both));
    let error = added.and_then(|_| set.bind_thread(BindFlags::empty()).map(|_| 0)).unwrap_err();
    assert!(error.to_string().contains("ask for CPC_COUNT_USER alone"), "{error}");
}

#[test]
fn a_handle_for_counting_only_has_no_records() {
    let unit = Modelled::new(presets::FULL);
    let backend = LwpBackend::new(unit);
    let cpc = Cpc::with_backends(Version::CpcOnly, vec![Box::new(backend)], Vec::new());
    assert!(
        !cpc.capabilities().contains(crate::Capabilities::RECORDS) && cpc.recorder_name().is_none()
    );
    assert_eq!((cpc.recording_counter_count(), cpc.record_items().len()), (0, 0));
    assert_eq!(refusal(&cpc, &[Request::records("lwp_ire", 5)]), Some(Subcode::InvalidFlags));
}

#[test]
fn other_targets_are_not_supported() {
    let (_unit, cpc) = open(presets::FULL);
    let set = cpc.create_set();
    set.add(Request::new("lwp_ire")).unwrap();
    let error = set.bind_tid(crate::sys::thread_id()).unwrap_err();
    assert_eq!(error.errno(), libc::ENOTSUP);
    assert_eq!(set.bind_tid(0).unwrap_err().errno(), libc::ESRCH);
}

/// The tick is CPU time while counting: it goes on over a restart and stands still in between.
#[test]
fn the_tick_is_time_spent_counting() {
    let (unit, cpc) = open(presets::FULL);
    let (set, buf) = bound(&cpc, &[Request::new("lwp_ire")]);
    let tick = || {
        set.sample(&buf).unwrap();
        buf.cycles()
    };
    unit.instructions(1000);
    let first = tick();
    set.restart().unwrap();
    unit.instructions(1000);
    let second = tick();
    assert!(0 < first && first < second);
    crate::c::enable(false).unwrap();
    let stopped = tick();
    unit.instructions(1000);
    assert_eq!(tick(), stopped);
}

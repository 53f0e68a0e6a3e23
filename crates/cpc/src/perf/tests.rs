//! The back end on scripted kernels.

use lwp_perf::Errno;
use lwp_perf::kernel::Control;
use lwp_perf::kernel::script::{Memory, Opened, Script};
use lwp_perf::page::field;

use super::*;
use crate::handle::{Cpc, EventNames, EventUses, Version};
use crate::request::{BindFlags, Request};
use crate::{Buf, Set};

const DEVICES: &str = "/sys/bus/event_source/devices";

/// A machine with the core PMU of an AMD Family 17h processor.
fn machine() -> Script {
    let amd = [0x8000_0022, 0x6874_7541, 0x444d_4163, 0x6974_6e65];
    Script::new()
        .file(&format!("{DEVICES}/cpu/type"), "4\n")
        .file(&format!("{DEVICES}/cpu/format/event"), "config:0-7,32-35\n")
        .file(&format!("{DEVICES}/cpu/format/umask"), "config:8-15\n")
        .file(&format!("{DEVICES}/cpu/format/cmask"), "config:24-31\n")
        .file(&format!("{DEVICES}/cpu/events/ex_ret_instr"), "event=0xc0\n")
        .file("/proc/sys/kernel/perf_event_paranoid", "2\n")
        .file("/proc/sys/kernel/nmi_watchdog", "1\n")
        .with_cpuid(0, 0, amd)
        .with_cpuid(0x8000_0000, 0, amd)
        .with_cpuid(0x8000_0001, 0, [0, 0, 1 << 23, 0])
}

fn open(script: &Script) -> Cpc {
    let (backend, missing) = detect(Arc::new(script.clone()));
    let backends: Vec<Box<dyn Backend>> =
        backend.into_iter().map(|backend| Box::new(backend) as Box<dyn Backend>).collect();
    Cpc::with_backends(Version::Current, backends, missing.into_iter().collect())
}

/// The events that were opened after the `probes` of the handle itself.
fn opened_since(script: &Script, probes: usize) -> Vec<Opened> {
    script.opened().split_off(probes)
}

fn set_of(cpc: &Cpc, requests: &[Request]) -> (Set, Buf) {
    let set = cpc.create_set();
    for (index, request) in requests.iter().enumerate() {
        assert_eq!(set.add(request.clone()), Ok(index));
    }
    let buf = set.create_buf();
    (set, buf)
}

#[test]
fn a_set_is_one_pinned_group() {
    let script = machine();
    let cpc = open(&script);
    let probes = script.opened().len();
    let raw = Request::new("0x1c1").with_attribute("umask", 3).with_flags(RequestFlags::KERNEL);
    let (set, buf) = set_of(&cpc, &[Request::new("PAPI_tot_ins").with_preset(7), raw]);
    set.bind_thread(BindFlags::empty()).unwrap();
    let opened = opened_since(&script, probes);
    assert_eq!(opened.len(), 2);
    use lwp_perf::attr::Flags;
    assert!(opened[0].attr.flags().contains(Flags::PINNED | Flags::EXCLUDE_KERNEL));
    assert_eq!((opened[0].pid, opened[0].cpu, opened[1].leader), (0, -1, Some(probes)));
    assert_eq!(
        opened[1].attr.flags() & (Flags::EXCLUDE_USER | Flags::EXCLUDE_KERNEL),
        Flags::EXCLUDE_USER
    );
    assert_eq!((opened[1].attr.kind, opened[1].attr.config), (4, 0x3c1));
    script.set_read(probes, Ok(vec![2, 1000, 1000, 50, 1, 60, 2]));
    set.sample(&buf).unwrap();
    assert_eq!((buf.get(0), buf.get(1)), (Ok(57), Ok(60)));
}

/// A metadata page of an event that is on counter 0, 48 bits wide, with `offset` counted before and
/// a clock of one cycle a nanosecond.
fn page(offset: u64, counter: u64) -> Memory {
    let memory = Memory::new(0);
    memory.set(field::CAPABILITIES, &(1u64 << 1 | 1 << 2 | 1 << 3).to_le_bytes());
    memory.set(field::INDEX, &1u32.to_le_bytes());
    memory.set(field::OFFSET, &offset.to_le_bytes());
    memory.set(field::WIDTH_SHIFT, &48u32.to_le_bytes());
    memory.set(field::TIME_MULT, &1u32.to_le_bytes());
    memory.set(field::TIME_RUNNING, &500u64.to_le_bytes());
    memory.set_pmc(0, counter);
    memory.set_tsc(1000);
    memory
}

/// Without a system call while every event is on a counter, by one as soon as one is not.
///
/// Promise: C12
#[test]
fn counters_of_the_thread_are_read_in_user_space() {
    let script = machine();
    let cpc = open(&script);
    let probes = script.opened().len();
    let memories = [page(100, 11), page(200, 22)];
    for (index, memory) in memories.iter().enumerate() {
        script.set_pages(probes + index, Ok(memory.clone()));
    }
    // Any read(2) would fail: the script has none.
    let requests = [Request::new("instructions").with_preset(1000), Request::new("cycles")];
    let (set, buf) = set_of(&cpc, &requests);
    set.bind_thread(BindFlags::empty()).unwrap();
    set.sample(&buf).unwrap();
    assert_eq!((buf.get(0), buf.get(1)), (Ok(1111), Ok(222)));
    assert!(buf.cycles() > 0);
    memories[1].set(field::INDEX, &0u32.to_le_bytes());
    assert!(set.sample(&buf).is_err(), "read(2) is asked");
    script.set_read(probes, Ok(vec![2, 1000, 1000, 5, 1, 6, 2]));
    set.sample(&buf).unwrap();
    assert_eq!((buf.get(0), buf.get(1)), (Ok(1005), Ok(6)));
}

/// However many requests: one read(2), of the leader. None at all where the pages say it.
///
/// Promise: C12
#[test]
fn a_sample_is_one_read_however_many_requests() {
    for requests in [1, 2, 7, 100] {
        let script = machine();
        let cpc = open(&script);
        let probes = script.opened().len();
        let all: Vec<Request> = (0..requests).map(|_| Request::new("page-faults")).collect();
        let (set, buf) = set_of(&cpc, &all);
        set.bind_thread(BindFlags::empty()).unwrap();
        let values = (0..requests as u64).flat_map(|n| [n * 10, n]);
        let words = [requests as u64, 1000, 1000].into_iter().chain(values).collect();
        script.set_read(probes, Ok(words));
        for _ in 0..3 {
            set.sample(&buf).unwrap();
        }
        assert_eq!(script.read_events(), [probes; 3]);
        assert_eq!(buf.get(requests - 1), Ok((requests as u64 - 1) * 10));
    }
    let script = machine();
    let cpc = open(&script);
    script.set_pages(script.opened().len(), Ok(page(100, 11)));
    let (set, buf) = set_of(&cpc, &[Request::new("instructions")]);
    set.bind_thread(BindFlags::empty()).unwrap();
    set.sample(&buf).unwrap();
    assert_eq!(script.read_events(), [0; 0]);
}

/// A machine with two kinds of core.
fn hybrid() -> Script {
    Script::new()
        .file(&format!("{DEVICES}/cpu_core/type"), "4\n")
        .file(&format!("{DEVICES}/cpu_core/cpus"), "0-3\n")
        .file(&format!("{DEVICES}/cpu_core/format/event"), "config:0-7\n")
        .file(&format!("{DEVICES}/cpu_core/events/slow"), "event=0x11\n")
        .file(&format!("{DEVICES}/cpu_core/events/topdown"), "event=0x12\n")
        .file(&format!("{DEVICES}/cpu_atom/type"), "10\n")
        .file(&format!("{DEVICES}/cpu_atom/cpus"), "4-7\n")
        .file(&format!("{DEVICES}/cpu_atom/format/event"), "config:0-7\n")
        .file(&format!("{DEVICES}/cpu_atom/events/slow"), "event=0x22\n")
}

/// A thread's work on both kinds of core is one count; each kind is asked in its own terms.
///
/// Promise: C18
#[test]
fn kinds_of_core_are_counted_together() {
    let script = hybrid();
    let cpc = open(&script);
    let probes = script.opened().len();
    let names = ["PAPI_tot_ins", "slow", "page-faults", "topdown", "cpu_atom/slow/", "0x7"];
    let (set, buf) = set_of(&cpc, &names.map(Request::new));
    set.bind_thread(BindFlags::empty()).unwrap();
    let opened = opened_since(&script, probes);
    let asked: Vec<_> =
        opened.iter().map(|o| (o.attr.kind, o.attr.config, o.leader.is_none())).collect();
    assert_eq!(
        asked[..4],
        [(0, 4 << 32 | 1, true), (4, 0x11, false), (4, 0x12, false), (4, 7, false)]
    );
    assert_eq!(asked[4..7], [(0, 10 << 32 | 1, true), (10, 0x22, false), (10, 0x22, false)]);
    assert_eq!(asked[7..], [(1, 2, true)], "on either kind");
    script.set_read(probes, Ok(vec![4, 1000, 700, 1, 1, 2, 2, 4, 3, 6, 4]));
    script.set_read(probes + 4, Ok(vec![3, 1000, 300, 10, 1, 20, 2, 50, 3]));
    script.set_read(probes + 7, Ok(vec![1, 1000, 1000, 3, 1]));
    set.sample(&buf).unwrap();
    let counts: Vec<u64> = (0..6).map(|index| buf.get(index).unwrap()).collect();
    assert_eq!(counts, [11, 22, 3, 4, 50, 6]);
    assert_eq!(buf.cycles(), crate::clock::cycles(1000));
    // One kind whose counters are lost loses the count.
    script.set_read(probes + 4, Ok(Vec::new()));
    assert_eq!(set.sample(&buf).unwrap_err().errno(), libc::EAGAIN);
    set.unbind().unwrap();
    // The overflow of a sum cannot be signalled; that of one kind can be asked for.
    let flags = RequestFlags::USER | RequestFlags::NOTIFY_OVERFLOW;
    let (set, _buf) = set_of(&cpc, &[Request::new("PAPI_tot_ins").with_flags(flags)]);
    let error = set.bind_thread(BindFlags::empty()).unwrap_err();
    assert_eq!((error.errno(), error.reason().contains("cpu_core/")), (libc::ENOTSUP, true));
}

/// A processor is of one kind.
///
/// Promise: C18: (scripted)
#[test]
fn a_processor_is_counted_by_its_own_kind() {
    for (cpu, kind) in [(0, 4), (5, 10)] {
        let script = hybrid();
        let backend = detect(Arc::new(script.clone())).0.unwrap();
        let probes = script.opened().len();
        let request = Request::new("instructions");
        let plan = [Planned { request }];
        backend.program(&plan, Target::Cpu(cpu)).unwrap();
        let opened = opened_since(&script, probes);
        assert_eq!(opened.len(), 1);
        assert_eq!((opened[0].attr.config, opened[0].cpu), (kind << 32 | 1, cpu as i32));
    }
}

/// A sample of instruction `pc` as the kernel writes it: identifier, address, thread, time,
/// processor.
fn sample_of(pc: u64) -> Vec<u8> {
    let header = [9u16.to_le_bytes(), [0; 2], [2, 0], 48u16.to_le_bytes()].concat();
    let body = [1, pc, 7, 8, 0].map(u64::to_le_bytes).concat();
    [header, body].concat()
}

/// Every interval between two samples is in the buffer or counted as lost, also if the ring was
/// larger than requested, or full without the kernel having said so.
///
/// Promise: C3
#[test]
fn every_interval_is_a_record_or_is_lost() {
    let script = machine();
    let cpc = open(&script);
    let ring = script.opened().len();
    let memory = Memory::new(4096);
    script.set_pages(ring, Ok(memory.clone()));
    let request = Request::records("instructions", 1000).with_attribute("smpl_nrecs", 4);
    let (set, buf) = set_of(&cpc, &[request]);
    set.bind_thread(BindFlags::empty()).unwrap();
    let mut events = 0;
    // How many records reach the ring, and how many intervals pass.
    for (written, passed, handed) in [(3, 3, 3), (9, 9, 4), (2, 50, 2), (0, 0, 0), (1, 1, 1)] {
        for pc in 0..written {
            assert!(memory.write(&sample_of(pc)));
        }
        events += passed * 1000;
        script.set_read(ring, Ok(vec![events + 999]));
        set.sample(&buf).unwrap();
        let records = buf.records(0).unwrap();
        assert_eq!((records.len() as u64, records.lost()), (handed, passed - handed));
        assert!((0..handed as usize).all(|n| records.item(n, 0) == Ok(n as u64)));
    }
    // A start forgets what was collected, and a whole interval lies ahead.
    assert!(memory.write(&sample_of(1)));
    let before = script.controls().len();
    set.restart().unwrap();
    let controls = script.controls().split_off(before);
    assert!(controls.contains(&(ring, Control::Period(1000))));
    assert!(controls.contains(&(ring, Control::Reset { group: false })));
    assert!(memory.write(&sample_of(5)));
    script.set_read(ring, Ok(vec![1001]));
    set.sample(&buf).unwrap();
    let records = buf.records(0).unwrap();
    assert_eq!((records.len(), records.lost(), records.item(0, 0)), (1, 0, Ok(5)));
    // An interval that is told before its record has come is not told twice.
    script.set_read(ring, Ok(vec![2001]));
    set.sample(&buf).unwrap();
    assert_eq!((records.len(), records.lost()), (0, 1));
    assert!(memory.write(&sample_of(6)));
    script.set_read(ring, Ok(vec![3001]));
    set.sample(&buf).unwrap();
    assert_eq!((records.len(), records.lost()), (1, 0));
}

/// Records of a PMU cannot be asked to signal: that is said, not left undone.
#[test]
fn samples_of_a_pmu_do_not_signal() {
    let script = machine();
    let cpc = open(&script);
    let request = Request::records("instructions", 1000);
    let flags = request.flags() | RequestFlags::NOTIFY_OVERFLOW;
    let (set, _buf) = set_of(&cpc, &[request.with_flags(flags)]);
    assert_eq!(set.bind_thread(BindFlags::empty()).unwrap_err().errno(), libc::ENOTSUP);
}

/// Promise: C1
#[test]
fn lost_counters_are_eagain_and_stay_bound() {
    let script = machine();
    let cpc = open(&script);
    let probes = script.opened().len();
    let (set, buf) = set_of(&cpc, &[Request::new("instructions")]);
    set.bind_thread(BindFlags::empty()).unwrap();
    script.set_read(probes, Ok(Vec::new()));
    let error = set.sample(&buf).unwrap_err();
    assert_eq!((error.errno(), error.subcode()), (libc::EAGAIN, None));
    assert!(error.reason().contains("nmi_watchdog"), "{error}");
    set.unbind().unwrap();
}

#[test]
fn restart_sets_periods_and_starts_by_the_leader() {
    let script = machine();
    let cpc = open(&script);
    let probes = script.opened().len();
    let emt = RequestFlags::USER | RequestFlags::NOTIFY_OVERFLOW;
    let requests = [
        Request::new("cycles"),
        Request::new("instructions").with_preset(u64::MAX - 99).with_flags(emt),
    ];
    let (set, _buf) = set_of(&cpc, &requests);
    set.bind_thread(BindFlags::empty()).unwrap();
    let opened = opened_since(&script, probes);
    assert_eq!(opened[0].attr.config, 1, "the one that signals leads");
    assert_eq!(opened[0].attr.sample_period, 100);
    let before = script.controls().len();
    set.set_preset(1, u64::MAX - 9).unwrap();
    set.restart().unwrap();
    let controls = script.controls().split_off(before);
    assert!(controls.contains(&(probes, Control::Period(10))));
    assert_eq!(controls.last(), Some(&(probes, Control::Enable { group: false })));
}

/// Promise: C1, C6
#[test]
fn refusals_name_the_cause() {
    let answers: [(Errno, i32, Option<Subcode>, &str); 4] = [
        (Errno::ACCESS, libc::EACCES, Some(Subcode::ResourceUnavailable), "perf_event_paranoid"),
        (Errno::NOSPC, libc::EINVAL, Some(Subcode::ResourceUnavailable), "nmi_watchdog"),
        (Errno::NOENT, libc::EINVAL, Some(Subcode::InvalidEvent), "no such event"),
        (Errno::BUSY, libc::EAGAIN, None, "exclusively"),
    ];
    for (errno, expected, subcode, text) in answers {
        let script = machine().answering(move |opened| match opened.attr.kind {
            1 => Ok(()),
            _ => Err(errno),
        });
        let script = script.file("/proc/sys/kernel/perf_event_paranoid", "3\n");
        let cpc = open(&script);
        let (set, _buf) = set_of(&cpc, &[Request::new("instructions")]);
        let error = set.bind_thread(BindFlags::empty()).unwrap_err();
        assert_eq!((error.errno(), error.subcode()), (expected, subcode), "{error}");
        assert!(error.reason().contains(text), "{error}");
    }
}

#[test]
fn without_a_pmu_hardware_events_say_so_and_software_events_count() {
    let script = Script::new()
        .with_cpuid(1, 0, [0, 0, 1 << 31, 0])
        .answering(|opened| if opened.attr.kind == 1 { Ok(()) } else { Err(Errno::NOENT) });
    let cpc = open(&script);
    let set = cpc.create_set();
    for event in ["PAPI_tot_ins", "instructions", "cpu/event=1/", "nonsense"] {
        let error = set.add(Request::new(event)).unwrap_err();
        assert_eq!((error.errno(), error.subcode()), (libc::EINVAL, Some(Subcode::InvalidEvent)));
        assert!(error.reason().contains("no performance counters"), "{error}");
    }
    assert_eq!(set.add(Request::new("0xc0")), Ok(0), "numbers are looked at when binding");
    let error = set.bind_thread(BindFlags::empty()).unwrap_err();
    assert_eq!(error.subcode(), Some(Subcode::InvalidEvent));
    let set = cpc.create_set();
    assert_eq!(set.add(Request::new("page-faults")), Ok(0));
    assert!(cpc.events(EventNames::Generic, EventUses::COUNTING).is_empty());
}

#[test]
fn a_kernel_that_lets_nothing_count_is_no_back_end() {
    let script = Script::new()
        .file("/proc/sys/kernel/perf_event_paranoid", "4\n")
        .answering(|_| Err(Errno::ACCESS));
    let (backend, missing) = detect(Arc::new(script));
    assert!(backend.is_none());
    assert!(missing.unwrap().contains("kernel.perf_event_paranoid is 4"));
}

#[test]
fn attributes_follow_the_format_of_the_pmu() {
    let cpc = open(&machine());
    assert_eq!(cpc.attributes(EventUses::COUNTING), ["cmask", "umask", "picnum"]);
    assert_eq!(cpc.counter_count(), 6 + SOFTWARE_PICS);
    let subcode = |request: Request| {
        let (set, _buf) = set_of(&cpc, &[request]);
        set.bind_thread(BindFlags::empty()).unwrap_err().subcode()
    };
    let wide = Request::new("ex_ret_instr").with_attribute("umask", 0x100);
    assert_eq!(subcode(wide), Some(Subcode::AttributeOutOfRange));
    let generic = Request::new("PAPI_tot_ins").with_attribute("umask", 1);
    assert_eq!(subcode(generic), Some(Subcode::AttributeOutOfRange));
    let perf = Request::new("instructions").with_attribute("umask", 1);
    assert_eq!(subcode(perf), Some(Subcode::InvalidAttribute));
}

#[test]
fn events_that_happen_in_the_kernel_are_not_counted_as_zero() {
    let cpc = open(&machine());
    let (set, _buf) = set_of(&cpc, &[Request::new("context-switches")]);
    let error = set.bind_thread(BindFlags::empty()).unwrap_err();
    assert_eq!(error.subcode(), Some(Subcode::InvalidFlags));
    let both = RequestFlags::USER | RequestFlags::KERNEL;
    let (set, _buf) = set_of(&cpc, &[Request::new("context-switches").with_flags(both)]);
    set.bind_thread(BindFlags::empty()).unwrap();
}

#[test]
fn two_requests_for_one_counter_are_refused() {
    let cpc = open(&machine());
    let on_two = |event: &str| Request::new(event).with_attribute("picnum", 2);
    let (set, _buf) = set_of(&cpc, &[on_two("cycles"), on_two("instructions")]);
    let error = set.bind_thread(BindFlags::empty()).unwrap_err();
    assert_eq!((error.errno(), error.subcode()), (libc::EINVAL, None));
    let set = cpc.create_set();
    let error = set.add(Request::new("task-clock").with_attribute("picnum", 0)).unwrap_err();
    assert_eq!(error.subcode(), Some(Subcode::PicNotCapable));
}

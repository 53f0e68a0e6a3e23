//! On scripted kernels: machines with a PMU, with another PMU, and with every way of refusing.

use std::sync::Arc;

use lwp_perf::attr::{Flags, Modes, kind};
use lwp_perf::diagnosis::Cause;
use lwp_perf::group::{Group, Inherit, Options, ReadError, Reading, Request, Target};
use lwp_perf::kernel::Control;
use lwp_perf::kernel::script::{Memory, Script};
use lwp_perf::page::{UserCount, field, read_user};
use lwp_perf::{Catalog, Errno, EventError};

const CPU: &str = "/sys/bus/event_source/devices/cpu";

/// A machine with an AMD-like core PMU and IBS.
fn machine() -> Script {
    Script::new()
        .file(&format!("{CPU}/type"), "4\n")
        .file(&format!("{CPU}/format/event"), "config:0-7,32-35\n")
        .file(&format!("{CPU}/format/umask"), "config:8-15\n")
        .file(&format!("{CPU}/format/cmask"), "config:24-31\n")
        .file(&format!("{CPU}/format/inv"), "config:23\n")
        .file(&format!("{CPU}/events/ex_ret_brn"), "event=0xc2\n")
        .file(&format!("{CPU}/events/ex_ret_brn.unit"), "branches\n")
        .file("/sys/bus/event_source/devices/ibs_op/type", "11\n")
        .file("/sys/bus/event_source/devices/ibs_op/format/cnt_ctl", "config:19\n")
        .file("/proc/sys/kernel/perf_event_paranoid", "2\n")
        .file("/proc/sys/kernel/nmi_watchdog", "0\n")
        .file("/proc/self/status", "Name:\tx\nSeccomp:\t0\n")
        .file("/sys/devices/system/cpu/online", "0-3\n")
}

fn catalog(script: &Script) -> Catalog {
    Catalog::read(Arc::new(script.clone()))
}

fn open(script: &Script, options: Options, names: &[&str]) -> Result<Group, lwp_perf::Unavailable> {
    let catalog = catalog(script);
    let request = |name: &&str| Request::new(catalog.resolve(name).unwrap());
    let requests: Vec<Request> = names.iter().map(request).collect();
    Group::open(Arc::new(script.clone()), options, &requests)
}

/// What is blamed when every open fails with `errno`.
fn blamed(script: Script, options: Options, name: &str, errno: Errno) -> Cause {
    let script = script.answering(move |_| Err(errno));
    let error = open(&script, options, &[name]).unwrap_err();
    assert_eq!(error.errno, Some(errno));
    let text = error.to_string();
    assert!(text.starts_with(name) && !error.help().is_empty(), "{text}");
    error.cause
}

fn here() -> Options {
    Options::new(Target::CurrentThread)
}

#[test]
fn names_resolve_in_order() {
    let catalog = catalog(&machine());
    let numbers = |name: &str| {
        let event = catalog.resolve(name).unwrap();
        (event.kind, event.config)
    };
    assert_eq!(numbers("cycles"), (kind::HARDWARE, 0));
    assert_eq!(numbers("Instructions"), (kind::HARDWARE, 1));
    assert_eq!(numbers("PAPI_tot_ins"), (kind::HARDWARE, 1));
    assert_eq!(numbers("PAPI_TOT_INS"), (kind::HARDWARE, 1));
    assert_eq!(numbers("L1-dcache-load-misses"), (kind::HW_CACHE, 0x1_0000));
    assert_eq!(numbers("page-faults"), (kind::SOFTWARE, 2));
    assert_eq!(numbers("r1c2"), (kind::RAW, 0x1c2));
    assert_eq!(numbers("0xc0"), (kind::RAW, 0xc0));
    assert_eq!(numbers("192"), (kind::RAW, 192));
    assert_eq!(numbers("ex_ret_brn"), (4, 0xc2));
    assert_eq!(numbers("cpu/event=0x1c2,umask=3/"), (4, 0x1_0000_03c2));
    assert_eq!(numbers("cpu/ex_ret_brn,inv/u"), (4, 0x80_00c2));
    assert_eq!(numbers("ibs_op/cnt_ctl=1/"), (11, 1 << 19));
    assert_eq!(catalog.platform(), [("cpu", "ex_ret_brn")], "units are no events");
}

#[test]
fn modifiers_say_where_and_how_precisely() {
    let catalog = catalog(&machine());
    let event = catalog.resolve("cycles:ukpp").unwrap();
    assert_eq!(event.modes, Some(Modes::USER | Modes::KERNEL));
    assert_eq!(event.precise, 2);
    assert_eq!(catalog.resolve("cpu/event=1/k").unwrap().modes, Some(Modes::KERNEL));
    assert_eq!(catalog.resolve("cpu/event=1/:h").unwrap().modes, Some(Modes::HYPERVISOR));
    let error = catalog.resolve("cycles:uz").unwrap_err();
    assert_eq!(error, EventError::Modifier { name: "cycles:uz".into(), modifier: 'z' });
    assert!(catalog.resolve("cycles:pppp").is_err());
    // The name's modes win over the request's.
    let request = Request::new(event).in_modes(Modes::HYPERVISOR);
    let attr = request.event.attr(request.modes);
    assert_eq!(attr.flags(), Flags::EXCLUDE_HV | Flags::PRECISE_2);
}

#[test]
fn unknown_names_are_errors() {
    let catalog = catalog(&machine());
    assert_eq!(catalog.resolve("nonsense"), Err(EventError::Unknown("nonsense".into())));
    assert_eq!(
        catalog.resolve("gpu/event=1/").unwrap_err().to_string(),
        "\"gpu/event=1/\": there is no PMU \"gpu\" on this machine"
    );
    assert!(catalog.resolve("").is_err());
    assert!(catalog.resolve("rxyz").is_err());
}

#[test]
fn attributes_go_where_the_format_says() {
    let catalog = catalog(&machine());
    let raw = catalog.resolve("0xc0").unwrap();
    let event = catalog.with_attribute(&raw, "cmask", 2).unwrap();
    assert_eq!(event.config, 0x200_00c0);
    assert!(catalog.with_attribute(&raw, "cmask", 256).is_err());
    assert!(catalog.with_attribute(&raw, "any", 1).is_err());
    let generic = catalog.resolve("cycles").unwrap();
    assert!(catalog.with_attribute(&generic, "umask", 1).is_err(), "generic events have none");
}

#[test]
fn counters_are_the_processor_s() {
    let vendor = |text: &[u8; 12]| {
        let word = |at: usize| u32::from_le_bytes(text[at..at + 4].try_into().unwrap());
        [0xd, word(0), word(8), word(4)]
    };
    let amd = machine().with_cpuid(0, 0, vendor(b"AuthenticAMD"));
    assert_eq!(catalog(&amd).counters(), 4);
    let amd = amd.with_cpuid(0x8000_0001, 0, [0, 0, 1 << 23, 0]);
    assert_eq!(catalog(&amd).counters(), 6);
    let intel = machine().with_cpuid(0, 0, vendor(b"GenuineIntel")).with_cpuid(
        0xa,
        0,
        [0x0830_0805, 0, 0, 0x603],
    );
    assert_eq!(catalog(&intel).counters(), 8 + 3);
    assert_eq!(catalog(&Script::new()).counters(), 0, "no PMU, no counters");
}

#[test]
fn the_leader_carries_the_group() {
    let script = machine();
    let mut options = Options::new(Target::Thread(42));
    (options.inherit, options.enabled) = (Inherit::Threads, true);
    drop(open(&script, options, &["cycles", "instructions", "page-faults"]).unwrap());
    let opened = script.opened();
    let shape: Vec<_> = opened.iter().map(|open| (open.pid, open.cpu, open.leader)).collect();
    assert_eq!(shape, [(42, -1, None), (42, -1, Some(0)), (42, -1, Some(0))]);
    let user = Flags::EXCLUDE_KERNEL | Flags::EXCLUDE_HV | Flags::INHERIT | Flags::INHERIT_THREAD;
    assert_eq!(opened[0].attr.flags(), user | Flags::PINNED | Flags::DISABLED);
    assert_eq!(opened[1].attr.flags(), user);
    assert!(opened.iter().all(|open| open.attr.read_format == 15));
    assert_eq!(script.controls(), [(0, Control::Enable { group: false })]);
}

/// Promise: H1
#[test]
fn a_read_is_the_whole_group() {
    let script = machine();
    let mut group = open(&script, here(), &["cycles", "instructions"]).unwrap();
    // nr, enabled, running, then value and id of each member.
    script.set_read(0, Ok(vec![2, 100, 99, 7, 1001, u64::MAX, 1002]));
    let reading = group.read().unwrap();
    let expected = Reading { enabled_ns: 100, running_ns: 99, values: vec![7, u64::MAX] };
    assert_eq!(reading, expected);
    assert!(!reading.is_complete());
    script.set_read(0, Ok(vec![2, 100, 101, 0, 0, 0, 0]));
    assert!(group.read().unwrap().is_complete(), "the kernel's times may cross");
}

/// Promise: H1
#[test]
fn lost_counters_are_errors_not_zeros() {
    let script = machine();
    let mut group = open(&script, here(), &["cycles"]).unwrap();
    script.set_read(0, Ok(vec![]));
    assert_eq!(group.read(), Err(ReadError::Lost { watchdog: false }));
    script.set_read(0, Err(Errno::IO));
    assert_eq!(group.read(), Err(ReadError::Failed(Errno::IO)));
    script.set_read(0, Ok(vec![1, 2, 3]));
    assert_eq!(group.read(), Err(ReadError::Shape { bytes: 24, events: 1 }));

    let script = machine().file("/proc/sys/kernel/nmi_watchdog", "1\n");
    let mut group = open(&script, here(), &["cycles"]).unwrap();
    script.set_read(0, Ok(vec![]));
    let error = group.read().unwrap_err();
    assert!(error.to_string().contains("kernel.nmi_watchdog=0"), "{error}");
}

/// Promise: H4
#[test]
fn refusals_have_one_cause() {
    let vm = Script::new().with_cpuid(1, 0, [0, 0, 1 << 31, 0]);
    assert_eq!(blamed(vm, here(), "cycles", Errno::NOENT), Cause::NoPmuInVm);
    assert_eq!(blamed(Script::new(), here(), "cycles", Errno::OPNOTSUPP), Cause::NoPmu);
    let there = machine();
    assert_eq!(blamed(there, here(), "cycles", Errno::NOENT), Cause::NotOnThisProcessor);
    assert_eq!(blamed(machine(), here(), "cycles:pp", Errno::OPNOTSUPP), Cause::NoSampling);
    assert_eq!(blamed(machine(), here(), "cycles", Errno::NOSYS), Cause::NotBuilt);
    assert_eq!(blamed(machine(), here(), "cycles", Errno::BUSY), Cause::Busy);
    assert_eq!(blamed(machine(), here(), "r1", Errno::MFILE), Cause::Files { system: false });
    assert_eq!(blamed(machine(), here(), "r1", Errno::NFILE), Cause::Files { system: true });
    assert_eq!(blamed(machine(), here(), "r1", Errno::NOMEM), Cause::Memory);
    assert_eq!(blamed(machine(), here(), "r1", Errno::TOOBIG), Cause::KernelTooOld);
    assert_eq!(blamed(machine(), here(), "r1", Errno::INVAL), Cause::NotOnThisProcessor);
    assert_eq!(blamed(machine(), here(), "ibs_op/cnt_ctl/", Errno::INVAL), Cause::NoModes);
    assert_eq!(blamed(machine(), here(), "r1", Errno::IO), Cause::Other(Errno::IO));
}

/// Promise: H4
#[test]
fn permissions_name_the_knob() {
    let contained = || machine().file("/proc/self/status", "Seccomp:\t2\n");
    let level = |level| machine().file("/proc/sys/kernel/perf_event_paranoid", level);
    let user = |script| blamed(script, here(), "cycles:u", Errno::ACCESS);
    assert_eq!(user(level("3\n")), Cause::Paranoid { level: 3, needed: 2 });
    assert_eq!(user(contained()), Cause::Seccomp);
    assert_eq!(user(machine()), Cause::NotOurs);
    let kernel = blamed(machine(), here(), "cycles:uk", Errno::ACCESS);
    assert_eq!(kernel, Cause::Paranoid { level: 2, needed: 1 });
    let cpu = Options::new(Target::Cpu(1));
    let everything = blamed(level("1"), cpu, "cycles", Errno::PERM);
    assert_eq!(everything, Cause::Paranoid { level: 1, needed: 0 });
    assert_eq!(blamed(contained(), here(), "cycles", Errno::NOSYS), Cause::Seccomp);
    // Both: the number says which it was.
    let both = || contained().file("/proc/sys/kernel/perf_event_paranoid", "3\n");
    assert_eq!(blamed(both(), here(), "cycles:u", Errno::PERM), Cause::Seccomp);
    let paranoid = blamed(both(), here(), "cycles:u", Errno::ACCESS);
    assert_eq!(paranoid, Cause::Paranoid { level: 3, needed: 2 });
}

#[test]
fn targets_that_do_not_exist() {
    let thread = Options::new(Target::Thread(77));
    assert_eq!(blamed(machine(), thread, "cycles", Errno::SRCH), Cause::NoThread(77));
    let cpu = Options::new(Target::Cpu(9));
    assert_eq!(blamed(machine(), cpu, "cycles", Errno::INVAL), Cause::NoCpu(9));
    assert_eq!(blamed(machine(), cpu, "cycles", Errno::NXIO), Cause::NoCpu(9));
}

/// A member that the kernel takes alone was refused for the company it keeps.
///
/// Promise: H4
#[test]
fn groups_that_do_not_fit() {
    let full = |opened: &lwp_perf::kernel::script::Opened| match opened.leader {
        Some(_) if opened.attr.config == 5 => Err(Errno::INVAL),
        _ => Ok(()),
    };
    let script = machine().file("/proc/sys/kernel/nmi_watchdog", "1\n").answering(full);
    let error = open(&script, here(), &["cycles", "instructions", "branch-misses"]).unwrap_err();
    assert_eq!((error.index, error.event.as_str()), (Some(2), "branch-misses"));
    assert_eq!(error.cause, Cause::TooMany { watchdog: true });
    assert!(error.help().contains("nmi_watchdog=0"));
    let wrong = |opened: &lwp_perf::kernel::script::Opened| match opened.attr.config {
        5 => Err(Errno::INVAL),
        _ => Ok(()),
    };
    let script = machine().answering(wrong);
    let error = open(&script, here(), &["cycles", "branch-misses"]).unwrap_err();
    assert_eq!(error.cause, Cause::NotOnThisProcessor);
}

/// A page as the kernel fills it for an event on counter 2, 48 bits wide.
fn page() -> Memory {
    let page = Memory::new(0);
    page.set(field::LOCK, &8u32.to_le_bytes());
    page.set(field::INDEX, &3u32.to_le_bytes());
    page.set(field::OFFSET, &1000u64.to_le_bytes());
    page.set(field::TIME_ENABLED, &500u64.to_le_bytes());
    page.set(field::TIME_RUNNING, &400u64.to_le_bytes());
    page.set(field::CAPABILITIES, &0b1110u64.to_le_bytes());
    page.set(field::WIDTH_SHIFT, &48u16.to_le_bytes());
    page.set(field::WIDTH_SHIFT + 2, &4u16.to_le_bytes());
    page.set(field::TIME_MULT, &8u32.to_le_bytes());
    page.set(field::TIME_OFFSET, &100u64.to_le_bytes());
    page.set_tsc(35);
    page.set_pmc(2, 42);
    page
}

/// Promise: H2
#[test]
fn rdpmc_adds_offset_and_time() {
    // 35 ticks at 8/16 ns: 2 * 8 + 3 * 8 / 16 = 17; 100 + 17 have passed.
    let count = UserCount { value: 1042, enabled_ns: Some(617), running_ns: Some(517) };
    assert_eq!(read_user(&page()), Some(count));
}

/// Promise: H2
#[test]
fn rdpmc_extends_the_sign_by_the_counter_s_width() {
    let page = page();
    page.set_pmc(2, (1 << 48) - 10);
    assert_eq!(read_user(&page).unwrap().value, 990);
    page.set_pmc(2, 1 << 47);
    assert_eq!(read_user(&page).unwrap().value, 1000u64.wrapping_sub(1 << 47));
    page.set(field::WIDTH_SHIFT, &64u16.to_le_bytes());
    page.set_pmc(2, u64::MAX);
    assert_eq!(read_user(&page).unwrap().value, 999);
}

/// Promise: H2
#[test]
fn rdpmc_needs_permission_and_a_counter() {
    let none = |offset, bytes: &[u8]| {
        let page = page();
        page.set(offset, bytes);
        assert_eq!(read_user(&page), None);
    };
    none(field::INDEX, &0u32.to_le_bytes());
    none(field::CAPABILITIES, &0b1010u64.to_le_bytes());
    // Before Linux 3.12 the bits meant something else.
    none(field::CAPABILITIES, &0b1100u64.to_le_bytes());
    // Odd for ever: the writer died.
    none(field::LOCK, &9u32.to_le_bytes());
}

/// Promise: H2
#[test]
fn rdpmc_without_a_clock_has_no_times() {
    let page = page();
    page.set(field::CAPABILITIES, &0b110u64.to_le_bytes());
    assert_eq!(
        read_user(&page),
        Some(UserCount { value: 1042, enabled_ns: None, running_ns: None })
    );
}

/// Promise: H2
#[test]
fn rdpmc_short_clocks_are_extended() {
    let page = page();
    page.set(field::CAPABILITIES, &0b10_1110u64.to_le_bytes());
    page.set(field::TIME_MASK, &0xffu64.to_le_bytes());
    page.set(field::TIME_CYCLES, &0x1f0u64.to_le_bytes());
    page.set_tsc(0x03);
    // 0x1f0 + ((0x03 - 0x1f0) & 0xff) = 0x203: 32 * 8 + 3 * 8 / 16 = 257.
    assert_eq!(read_user(&page).unwrap().enabled_ns, Some(500 + 100 + 257));
}

/// The kernel moves the event to another counter between any two loads: the count must come from
/// one side or the other, never from both.
///
/// Promise: H2
#[test]
fn rdpmc_is_never_torn() {
    for moment in 1..40 {
        let page = page();
        page.set_pmc(5, 7);
        page.disturb(move |loads, bytes| {
            if loads == moment {
                bytes[field::LOCK] = 9;
            }
            if loads == moment + 1 {
                bytes[field::INDEX] = 6;
                bytes[field::OFFSET..field::OFFSET + 8].copy_from_slice(&5000u64.to_le_bytes());
            }
            if loads == moment + 2 {
                bytes[field::LOCK] = 10;
            }
        });
        let value = read_user(&page).unwrap().value;
        assert!(value == 1042 || value == 5007, "moment {moment}: {value}");
    }
}

/// Promise: H2
#[test]
fn user_reads_are_for_one_s_own_group_only() {
    for (target, inherit, maps) in [
        (Target::CurrentThread, Inherit::No, true),
        (Target::CurrentThread, Inherit::All, false),
        (Target::Thread(5), Inherit::No, false),
        (Target::Cpu(0), Inherit::No, false),
    ] {
        let script = machine();
        let mut options = Options::new(target);
        options.inherit = inherit;
        let mut group = open(&script, options, &["cycles", "instructions"]).unwrap();
        script.set_pages(0, Ok(page()));
        let second = page();
        second.set_pmc(2, 1);
        script.set_pages(1, Ok(second.clone()));
        group.map().unwrap();
        let mut values = [0; 2];
        assert_eq!(group.read_user(&mut values), maps, "{target:?}");
        if maps {
            assert_eq!(values, [1042, 1001]);
            second.set(field::INDEX, &0u32.to_le_bytes());
            assert!(!group.read_user(&mut values), "one that cannot be read fails them all");
        }
    }
}

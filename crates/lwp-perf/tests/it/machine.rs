//! On the running kernel: what it counts without a PMU, and what it says about the rest.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use lwp_perf::attr::Modes;
use lwp_perf::group::{Group, Inherit, Options, Request, Target};
use lwp_perf::{Catalog, Cause, Kernel, Linux, Record, Sampler, SamplerOptions};

fn catalog() -> Catalog {
    Catalog::read(Arc::new(Linux))
}

fn group(options: Options, events: &[&str]) -> Group {
    let catalog = catalog();
    let request = |name: &&str| {
        Request::new(catalog.resolve(name).unwrap()).in_modes(Modes::USER | Modes::KERNEL)
    };
    let requests: Vec<Request> = events.iter().map(request).collect();
    Group::open(Arc::new(Linux), options, &requests).unwrap()
}

/// Touches `count` pages that nobody has touched. They are never freed, or the allocator would hand
/// them out again.
fn touch_pages(count: usize) {
    let pages = vec![0u8; (count + 1) * 4096].leak();
    for page in pages.chunks_mut(4096) {
        page[0] = 1;
    }
    std::hint::black_box(pages);
}

fn busy(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Promise: H1
#[test]
fn one_read_returns_the_whole_group() {
    let mut group =
        group(Options::new(Target::CurrentThread), &["page-faults", "task-clock", "minor-faults"]);
    touch_pages(50);
    let reading = group.read().unwrap();
    assert_eq!(reading.values, [0, 0, 0], "disabled until enabled");
    group.enable().unwrap();
    touch_pages(100);
    group.disable().unwrap();
    let reading = group.read().unwrap();
    assert!(reading.values[0] >= 100, "{reading:?}");
    assert!(reading.values[1] > 0 && reading.values[2] <= reading.values[0], "{reading:?}");
    assert!(reading.is_complete(), "{reading:?}");
    touch_pages(100);
    assert_eq!(group.read().unwrap().values, reading.values, "disabled: nothing moves");
    group.reset().unwrap();
    assert_eq!(group.read().unwrap().values, [0, 0, 0]);
}

#[test]
fn another_thread_can_be_counted() {
    let (send, receive) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        wait.recv().unwrap();
        touch_pages(200);
    });
    let mut options = Options::new(Target::Thread(receive.recv().unwrap()));
    options.enabled = true;
    let mut group = group(options, &["page-faults"]);
    touch_pages(100);
    assert_eq!(group.read().unwrap().values, [0], "our own faults are not that thread's");
    go.send(()).unwrap();
    thread.join().unwrap();
    assert!(group.read().unwrap().values[0] >= 200, "counts outlive the thread");
}

#[test]
fn inherited_counts_are_added() {
    for (inherit, least) in [(Inherit::No, 0), (Inherit::Threads, 150)] {
        let mut options = Options::new(Target::CurrentThread);
        (options.inherit, options.enabled) = (inherit, true);
        let mut group = group(options, &["page-faults"]);
        std::thread::spawn(|| touch_pages(150)).join().unwrap();
        let counted = group.read().unwrap().values[0];
        assert!(counted >= least, "{inherit:?}: {counted}");
        assert!(least != 0 || counted < 150, "{inherit:?}: {counted}");
    }
}

#[test]
fn a_processor_can_be_counted() {
    let mut options = Options::new(Target::Cpu(0));
    options.enabled = true;
    let mut group = group(options, &["cpu-clock"]);
    busy(Duration::from_millis(5));
    assert!(group.read().unwrap().values[0] > 0);
}

#[test]
fn software_events_have_no_user_space_read() {
    let mut group = group(Options::new(Target::CurrentThread), &["page-faults"]);
    group.map().unwrap();
    group.enable().unwrap();
    assert!(!group.read_user(&mut [0]), "the page of a software event is stale: read(2) it");
}

/// Where there is a PMU the two ways of reading must agree.
///
/// Promise: H2: agreement with read(2) on a PMU
#[test]
fn user_space_reads_agree_with_the_kernel() {
    let catalog = catalog();
    let request = Request::new(catalog.resolve("instructions").unwrap());
    let mut options = Options::new(Target::CurrentThread);
    options.enabled = true;
    match Group::open(Arc::new(Linux), options, &[request]) {
        Ok(mut group) => {
            group.map().unwrap();
            let mut user = [0];
            for _ in 0..1000 {
                let before = group.read().unwrap().values[0];
                let read = group.read_user(&mut user);
                let after = group.read().unwrap().values[0];
                assert!(!read || (before..=after).contains(&user[0]), "{before} {user:?} {after}");
            }
        }
        Err(unavailable) => {
            assert!(!catalog.has_pmu() || unavailable.cause != Cause::NoPmuInVm, "{unavailable}");
            assert!(!unavailable.help().is_empty());
        }
    }
}

#[test]
fn what_is_missing_is_named() {
    let catalog = catalog();
    let open = |options, name: &str| {
        let request = Request::new(catalog.resolve(name).unwrap());
        Group::open(Arc::new(Linux), options, &[request]).map(drop)
    };
    let gone = Options::new(Target::Thread(i32::MAX - 1));
    assert_eq!(open(gone, "page-faults").unwrap_err().cause, Cause::NoThread(i32::MAX - 1));
    let far = Options::new(Target::Cpu(8191));
    assert_eq!(open(far, "cpu-clock").unwrap_err().cause, Cause::NoCpu(8191));
    if !catalog.has_pmu() {
        let error = open(Options::new(Target::CurrentThread), "instructions").unwrap_err();
        let hypervisor = Linux.cpuid(1, 0)[2] >> 31 == 1;
        let cause = if hypervisor { Cause::NoPmuInVm } else { Cause::NoPmu };
        assert_eq!(error.cause, cause);
        assert!(error.help().contains("virtual CPU"), "{}", error.help());
    }
}

#[test]
fn software_clocks_sample() {
    let catalog = catalog();
    let clock = catalog.resolve("cpu-clock:u").unwrap();
    let options = SamplerOptions::new(clock, 100_000, Target::CurrentThread);
    let mut sampler = Sampler::open(Arc::new(Linux), &options).unwrap();
    sampler.enable().unwrap();
    let (mut samples, mut last) = (0, 0);
    let end = Instant::now() + Duration::from_secs(60);
    while samples < 20 && Instant::now() < end {
        busy(Duration::from_millis(1));
        while let Some(record) = sampler.next_record().unwrap() {
            if let Record::Sample(sample) = record {
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                assert_eq!(sample.pid_tid, Some((std::process::id(), tid)));
                assert!(sample.user_mode && sample.ip.unwrap() != 0);
                assert!(sample.time_ns.unwrap() >= last, "in order");
                last = sample.time_ns.unwrap();
                samples += 1;
            }
        }
    }
    assert!(samples >= 20, "{samples} samples, {:?}", sampler.losses());
}

/// A ring that nobody reads fills up; what is lost is counted, and reading goes on afterwards.
///
/// Promise: H3
#[test]
fn a_full_ring_says_what_it_lost() {
    let catalog = catalog();
    let faults = catalog.resolve("page-faults").unwrap();
    let mut options = SamplerOptions::new(faults, 1, Target::CurrentThread);
    options.modes = Modes::USER | Modes::KERNEL;
    options.ring_pages = 1;
    let mut sampler = Sampler::open(Arc::new(Linux), &options).unwrap();
    sampler.enable().unwrap();
    touch_pages(500);
    let mut samples = 0u64;
    let mut drain = |sampler: &mut Sampler| {
        while let Some(record) = sampler.next_record().unwrap() {
            samples += u64::from(matches!(record, Record::Sample(_)));
        }
    };
    drain(&mut sampler);
    touch_pages(20);
    drain(&mut sampler);
    sampler.disable().unwrap();
    let lost = sampler.losses().lost;
    assert!(lost > 0 && samples > 20, "{samples} samples, {lost} lost");
    assert!(
        samples + lost >= 520,
        "{samples} samples, {lost} lost: every fault is one or the other"
    );
}

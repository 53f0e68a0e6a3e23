//! Images: a unit put elsewhere is what translating it there would have given, and no bytes at all
//! make an image do harm.
//!
//! Promise: O10

use crate::common;

use common::{ALL_PLANS, App, Bench, CACHE};
use lwp_dbt::block::{Emulated, Terminator};
use lwp_dbt::context::SyscallClass;
use lwp_dbt::freeze::Freeze;
use std::sync::Mutex;

use lwp_dbt::{
    AppPc, CachePc, Checks, CodeSink, CodeTarget, Destination, EntryId, Execution, FragmentId,
    Image, ImageError, Knowledge, Lwp, Placement, Plan, Role, Selection, Unit,
};
use lwp_testkit::generate::{Data, Generator};

const CODE: u64 = 0x1_0000_0000;
/// The address at which the same module is mapped in another address space.
const MOVED: u64 = CODE - 0x1234_5000;
const DATA: Data = Data { start: 0xc000_0000 };
const PAGE: usize = 4096;

/// Runs of random instructions with branches, calls and returns between them.
fn random_code(seed: u64) -> Vec<u8> {
    let mut generator = Generator::not_executed(seed, DATA);
    let mut bytes = Vec::new();
    for _ in 0..240 {
        match generator.rng.below(12) {
            0 => {
                bytes.extend([0x70 | generator.rng.below(16) as u8, generator.rng.below(40) as u8])
            }
            1 => bytes.extend([0xe8, generator.rng.below(200) as u8, 0, 0, 0]),
            2 => bytes.extend([0xe2, generator.rng.below(8) as u8]),
            3 => bytes.extend([0xff, 0x15, 0, 0x10, 0, 0]), // call [rip + 0x1000]
            4 => bytes.extend([0x8b, 0x05, 0x20, 0x10, 0, 0]), // mov eax, [rip + 0x1020]
            _ => bytes.extend(generator.any(CODE + bytes.len() as u64)),
        }
    }
    bytes.extend([0xc3; 16]);
    bytes
}

/// A bench for the code, whose unit starts at a page boundary.
fn bench(plan: Plan, bytes: &[u8]) -> Bench {
    at(CODE, (plan, Lwp::Absent), bytes)
}

/// A bench for the code, mapped at `start`, for threads with profiling on or off.
fn at(start: u64, (plan, lwp): (Plan, Lwp), bytes: &[u8]) -> Bench {
    let classes = Box::new([SyscallClass::Native; 512]);
    let emulated = Emulated { lwp: lwp != Lwp::Absent, ..Emulated::default() };
    let mut bench = Bench::with_lwp(plan, lwp, Checks::None, start, bytes, emulated, classes);
    pad(&mut bench);
    bench
}

/// A bench in which other code has been translated before, so that places and numbers differ.
fn shifted(plan: Plan, bytes: &[u8]) -> Bench {
    let mut bench = bench(plan, bytes);
    let other: Vec<u8> = [0x48, 0xff, 0xc0, 0xe8, 1, 0, 0, 0, 0x75, 0xc3, 0xc3].repeat(7);
    let mut app = App::new(CODE + 0x10_0000, other);
    let mut unit = Unit::new(Checks::None);
    let limits = lwp_dbt::RegionLimits::fragments(20);
    let pc = AppPc(app.start);
    let mut to = Destination { cache: &mut bench.tables, unit: &mut unit, sink: &mut bench.cache };
    let region = bench.translator.translate(&mut to, &mut app, pc, true, limits);
    assert!(region.fragments > 2 && !region.entries.is_empty());
    pad(&mut bench);
    bench
}

fn pad(bench: &mut Bench) {
    let len = bench.cache.bytes.len().next_multiple_of(PAGE);
    bench.cache.bytes.resize(len, 0xcc);
}

fn placement(bench: &Bench, code: CachePc) -> Placement {
    Placement { code, routines: bench.cache.routines_at(), module: AppPc(bench.app.start) }
}

fn freeze(bench: &Bench, start: CachePc) -> Vec<u8> {
    let at = placement(bench, start);
    let code = bench.cache.bytes[(start.0 - CACHE) as usize..].to_vec();
    let input = Freeze { unit: &bench.unit, at, code, knowledge: Knowledge::Little };
    bench.tables.freeze(bench.translator.layout(), input).expect("an image").to_vec()
}

fn restore(bench: &mut Bench, image: Vec<u8>) {
    let image = Image::parse(Box::new(image)).expect("an image");
    let at = placement(bench, bench.cache.position());
    let code = restored(bench, image, at, 1).expect("it fits");
    bench.cache.bytes.extend(code);
}

/// Restores an image by so many threads, each piece of which is written once; its code.
fn restored(
    bench: &mut Bench,
    image: Image,
    at: Placement,
    threads: usize,
) -> Result<Vec<u8>, ImageError> {
    let code = Mutex::new(vec![None; image.code_len()]);
    let write = |offset: u64, piece: &[u8]| {
        let mut code = code.lock().unwrap();
        for (place, byte) in code[offset as usize..].iter_mut().zip(piece) {
            assert_eq!(place.replace(*byte), None);
        }
        true
    };
    let to = CodeTarget { write: &write, threads };
    bench.tables.restore(&mut bench.unit, image, at, &to)?;
    Ok(code.into_inner().unwrap().into_iter().map(|byte| byte.expect("written")).collect())
}

/// Two regions, each at a place that the code may or may not have led to.
const FIRST: [u64; 3] = [0, 7, 40];
const SECOND: [u64; 4] = [90, 13, 150, 300];

fn translate(bench: &mut Bench, offsets: &[u64]) {
    for &offset in offsets {
        lay_path(bench, offset);
        bench.translate(bench.app.start + offset, offset % 2 == 0, 6);
    }
}

/// Lays out a superblock along a path that the code suggests, right or wrong.
fn lay_path(bench: &mut Bench, offset: u64) {
    if offset % 4 == 1 {
        return;
    }
    let start = bench.app.start;
    let mut path = vec![AppPc(start + offset)];
    let mut returns = Vec::new();
    for turn in 0..12 {
        let (translator, to, app) = bench.parts();
        let Some(block) = translator.block(to.unit, app, path[turn], 0) else { break };
        path.push(match block.terminator {
            Terminator::Jump { target } => target,
            Terminator::Call { target } => {
                returns.push(block.next());
                target
            }
            Terminator::Conditional { target, .. } if turn % 3 == 0 => target,
            Terminator::Return { .. } => returns.pop().unwrap_or(AppPc(start + 0x55)),
            Terminator::IndirectCall | Terminator::IndirectJump => AppPc(start + 0x2a),
            _ => block.next(),
        });
    }
    let (translator, mut to, app) = bench.parts();
    translator.translate_path(&mut to, app, &path, offset.is_multiple_of(3));
}

/// The code, translated at the usual place and frozen.
fn frozen(plan: Plan, bytes: &[u8]) -> Vec<u8> {
    let mut origin = bench(plan, bytes);
    let start = origin.cache.position();
    translate(&mut origin, &FIRST);
    freeze(&origin, start)
}

/// Asserts that two translators say the same about one unit.
fn assert_alike(a: &Bench, b: &Bench, code: (u64, u64)) {
    assert_eq!(a.app.start, b.app.start);
    for pc in (a.app.start..a.app.start + 1200).map(AppPc) {
        let ids = [a.unit.fragment_at(pc), b.unit.fragment_at(pc)];
        assert_eq!(ids[0].is_some(), ids[1].is_some(), "{pc:?}");
        if let [Some(x), Some(y)] = ids {
            assert_eq!(a.tables.fragment(x), b.tables.fragment(y));
            assert_eq!(a.tables.head_of(x), b.tables.head_of(y));
        }
        assert_eq!(a.unit.entry_at(pc), b.unit.entry_at(pc), "{pc:?}");
    }
    for pc in (code.0..code.1).map(CachePc) {
        let [x, y] = [a, b].map(|bench| bench.tables.state_at(pc));
        assert_eq!(x.map(|(state, _)| state), y.map(|(state, _)| state), "{pc:?}");
        let [within_x, within_y] = [(a, x), (b, y)].map(|(bench, found)| {
            let within = found.and_then(|(_, id)| id).and_then(|id| bench.tables.within(id))?;
            let next = within.next.map(|id| bench.tables.fragment(id));
            Some((within.behind, within.flags, next))
        });
        assert_eq!(within_x, within_y, "{pc:?}");
        let [x, y] = [(a, x), (b, y)]
            .map(|(bench, found)| found.and_then(|(_, id)| id).map(|id| bench.tables.fragment(id)));
        assert_eq!(x, y, "{pc:?}");
    }
    for id in (0..a.tables.entry_count()).map(EntryId) {
        assert_eq!(a.tables.entry(id), b.tables.entry(id));
    }
    let deltas = |bench: &Bench| bench.tables.counters().iter().collect::<Vec<_>>();
    assert_eq!(deltas(a), deltas(b));
    assert_eq!(roles(a), roles(b));
    assert_eq!(executions(a), executions(b));
}

/// EventDeltas are the same however they are looked up.
fn assert_ascending(bench: &Bench) {
    let counters = bench.tables.counters();
    let last = counters.len();
    let mut ascending = counters.ascending();
    for number in (0..last).chain([0, last / 2, last / 3, last, last + 5]) {
        assert_eq!(ascending.deltas(number), counters.deltas(number), "counter {number}");
    }
}

/// Returns the role of each counter, with fragments by their pcs.
fn roles(bench: &Bench) -> Vec<(std::mem::Discriminant<Role>, AppPc, Option<AppPc>)> {
    let pc = |id| bench.tables.fragment(id).pc;
    let role = |role: Option<Role>| {
        let role = role.expect("kept");
        let (fragment, from) = match role {
            Role::RunsBehind { into, from } => (into, Some(from)),
            Role::Runs(id) | Role::NotTaken(id) | Role::Head(id) => (id, None),
            Role::CallTarget(id) | Role::Called(id) | Role::Target(id) | Role::Transfer(id) => {
                (id, None)
            }
            Role::Superblock(id) | Role::SideExit(id) => (id, None),
            Role::CutOff(id) | Role::CutOffBranch(id) => (id, None),
        };
        (std::mem::discriminant(&role), pc(fragment), from.map(pc))
    };
    bench.tables.counters().roles().map(role).collect()
}

/// Returns what each counter stands for, with fragments by their pcs.
fn executions(bench: &Bench) -> Vec<(AppPc, Execution, i64)> {
    let none = FragmentId(0);
    let mut all = Vec::new();
    for role in bench.tables.counters().roles().flatten() {
        bench.tables.executions(role, &mut |what, times| {
            let (id, what) = match what {
                Execution::Whole(id) => (id, Execution::Whole(none)),
                Execution::Cut(id, instructions) => (id, Execution::Cut(none, instructions)),
                Execution::NotTaken(id) => (id, Execution::NotTaken(none)),
                Execution::Called(id, target) => (id, Execution::Called(none, target)),
            };
            all.push((bench.tables.fragment(id).pc, what, times));
        });
    }
    all
}

/// A module is kept once, wherever it is mapped.
///
/// Promise: K10
#[test]
fn an_image_moves_with_its_module() {
    for seed in 0..150 {
        for plan in ALL_PLANS {
            let bytes = random_code(seed);
            let image = frozen(plan, &bytes);
            for module in [MOVED, CODE + 0x1000, 0x7000_0000] {
                let [mut moved, mut there] = [0; 2].map(|_| {
                    let mut bench = at(module, (plan, Lwp::Absent), &bytes);
                    bench.cache.bytes.extend([0xcc; PAGE]);
                    bench
                });
                let start = there.cache.position();
                translate(&mut there, &FIRST);
                let parsed = Image::parse(Box::new(image.clone())).expect("an image");
                let at = placement(&moved, start);
                let threads = 1 + seed as usize % 4;
                let code = restored(&mut moved, parsed, at, threads).expect("it fits");
                moved.cache.bytes.extend(code);
                let end = there.cache.position();
                // Where return addresses are low, they are pushed in another way.
                if module > u64::from(u32::MAX >> 1) {
                    assert!(moved.cache.bytes == there.cache.bytes, "seed {seed}");
                    assert_alike(&moved, &there, (start.0, end.0));
                    translate(&mut moved, &SECOND);
                    translate(&mut there, &SECOND);
                    assert!(moved.cache.bytes == there.cache.bytes, "seed {seed}, going on");
                    assert!(freeze(&moved, start) == freeze(&there, start), "seed {seed}, again");
                }
            }
        }
    }
}

/// Code that counts down names its words by its fragments' numbers, and code that watches a data
/// cache names the fragments: after an image was restored the next ones have other numbers. So what
/// is translated before is compared byte by byte, and what follows only by what is known of it.
#[test]
fn an_image_counts_down_as_what_is_translated_in_its_place() {
    let branches =
        Selection { instructions: true, branches: 0x7f, values: true, ..Selection::default() };
    let misses = Selection { dcache: true, ..branches };
    let kinds = [
        (Plan::Plain, branches),
        (Plan::Exact, branches),
        (Plan::Plain, misses),
        (Plan::Exact, misses),
    ];
    for (seed, (plan, selection)) in (0..120).flat_map(|seed| kinds.map(|kind| (seed, kind))) {
        let bytes = random_code(seed);
        let elsewhere = || {
            let mut bench = at(MOVED, (plan, Lwp::On(selection)), &bytes);
            bench.cache.bytes.extend([0xcc; PAGE]);
            bench
        };
        let mut origin = at(CODE, (plan, Lwp::On(selection)), &bytes);
        let start = origin.cache.position();
        translate(&mut origin, &FIRST);
        let image = freeze(&origin, start);
        let [mut moved, mut there] = [elsewhere(), elsewhere()];
        let start = there.cache.position();
        restore(&mut moved, image);
        translate(&mut there, &FIRST);
        let end = there.cache.position();
        let same = |a: &Bench, b: &Bench| freeze(a, start) == freeze(b, start);
        assert!(same(&moved, &there), "seed {seed}");
        if !selection.dcache {
            assert_eq!(moved.cache.bytes, there.cache.bytes, "seed {seed}");
        }
        assert_alike(&moved, &there, (start.0, end.0));
        // What it grows into is an image too.
        translate(&mut moved, &SECOND);
        let mut again = elsewhere();
        restore(&mut again, freeze(&moved, start));
        assert_alike(&again, &moved, (start.0, moved.cache.position().0));
        assert!(same(&again, &moved), "seed {seed}, again");
    }
}

#[test]
fn an_image_is_what_translating_in_its_place_gives() {
    for seed in 0..150 {
        for plan in ALL_PLANS {
            let bytes = random_code(seed);
            let image = frozen(plan, &bytes);
            // Restored at another place, and the same translated there.
            let mut moved = shifted(plan, &bytes);
            let mut there = shifted(plan, &bytes);
            let start = there.cache.position();
            assert_eq!(start, moved.cache.position());
            restore(&mut moved, image);
            translate(&mut there, &FIRST);
            let end = there.cache.position();
            assert!(end.0 > start.0 + 100, "seed {seed}: nothing translated");
            assert_eq!(moved.cache.bytes, there.cache.bytes, "seed {seed}");
            assert_alike(&moved, &there, (start.0, end.0));
            for (_, id) in there.unit.entries.iter() {
                let stub = there.tables.entry(*id).stub;
                assert_eq!(moved.tables.restored_entry(stub), Some(*id));
            }
            // Both go on alike, and are frozen alike.
            translate(&mut moved, &SECOND);
            translate(&mut there, &SECOND);
            let end = there.cache.position();
            assert_eq!(moved.cache.bytes, there.cache.bytes, "seed {seed}, going on");
            assert_alike(&moved, &there, (start.0, end.0));
            assert_ascending(&moved);
            assert_eq!(freeze(&moved, start), freeze(&there, start), "seed {seed}, again");
        }
    }
}

#[test]
fn displacements_that_do_not_reach_are_refused() {
    let bytes = random_code(1);
    let mut origin = bench(Plan::Exact, &bytes);
    let start = origin.cache.position();
    translate(&mut origin, &FIRST);
    let image = freeze(&origin, start);
    let mut far = bench(Plan::Exact, &bytes);
    let at = placement(&far, CachePc(start.0 + (3 << 32)));
    let parsed = Image::parse(Box::new(image)).unwrap();
    let to = CodeTarget { write: &|_, _| true, threads: 1 };
    let refused = far.tables.restore(&mut far.unit, parsed, at, &to);
    assert!(matches!(refused, Err(lwp_dbt::ImageError::Reach { .. })), "{refused:?}");
    // Nothing has changed.
    assert!(far.tables.counters().is_empty() && far.tables.entry_count() == 0);
    assert!(!far.unit.has_fragment(AppPc(CODE)));
}

/// A checksum stands before the image; but what if it does not help?
///
/// Promise: K2, K13
#[test]
fn no_bytes_make_an_image_panic_or_lead_elsewhere() {
    let bytes = random_code(2);
    let mut origin = bench(Plan::Exact, &bytes);
    let start = origin.cache.position();
    translate(&mut origin, &FIRST);
    let good = freeze(&origin, start);
    let mut rng = Generator::new(5, DATA);
    let mut fitting = 0;
    for round in 0..4000usize {
        let mut image = good.clone();
        for _ in 0..1 + round % 3 {
            let at = match round % 4 {
                // The header is small and matters most.
                0 => rng.rng.below(128) as usize,
                _ => rng.rng.below(image.len() as u64) as usize,
            };
            image[at] = rng.rng.below(256) as u8;
        }
        if round % 10 == 0 {
            image.truncate(rng.rng.below(image.len() as u64 + 1) as usize);
        }
        let Ok(parsed) = Image::parse(Box::new(image)) else { continue };
        let mut bench = shifted(Plan::Exact, &bytes);
        let at = placement(&bench, bench.cache.position());
        let Ok(code) = restored(&mut bench, parsed, at, 1 + round % 3) else { continue };
        fitting += 1;
        let inside = |pc: CachePc| (at.code.0..at.code.0 + code.len() as u64).contains(&pc.0);
        for pc in (CODE..CODE + 1200).step_by(3).map(AppPc) {
            if let Some(id) = bench.unit.fragment_at(pc) {
                let fragment = bench.tables.fragment(id);
                assert!(inside(fragment.join) && fragment.head.is_none_or(inside));
            }
            if let Some(id) = bench.unit.entry_at(pc)
                && id.0 < bench.tables.entry_count()
            {
                let stub = bench.tables.entry(id).stub;
                assert!(inside(stub) || stub.0 < at.code.0);
            }
        }
        for pc in (at.code.0..at.code.0 + code.len() as u64).map(CachePc) {
            bench.tables.state_at(pc);
        }
        assert_eq!(bench.tables.counters().iter().count(), bench.tables.counters().len());
        bench.cache.bytes.extend(&code);
        let end = bench.cache.bytes.len().next_multiple_of(64);
        bench.cache.bytes.resize(end, 0xcc);
        translate(&mut bench, &SECOND);
        // Freezing may refuse, but nothing more.
        let whole = &bench.cache.bytes[(at.code.0 - CACHE) as usize..];
        let input =
            Freeze { unit: &bench.unit, at, code: whole.to_vec(), knowledge: Knowledge::Little };
        let _ = bench.tables.freeze(bench.translator.layout(), input);
    }
    assert!(fitting > 1000, "only {fitting} of the images were tried in earnest");
}

//! The places of arenas in an address space.

use lwp_dbt::Layout;
use lwp_mailbox::memory_map::{LOW, REACH, is_ours, low_places, low_window};
use lwp_process::Tid;
use lwp_process::auxiliary::{AT_BASE, AT_ENTRY, AT_SYSINFO_EHDR, Auxiliary};
use lwp_process::maps::Mapping;

use crate::arena::Arena;
use crate::family::Family;

/// An arena to be: address, bytes, offset in its family's memory.
pub type ArenaPlan = (u64, u64, u64);

const GIB: u64 = 1 << 30;
const PAGE: u64 = 4096;
const ARENA_ELSEWHERE: u64 = 256 << 20;
/// Below this an arena is not worth its mapping.
const LEAST_ELSEWHERE: u64 = 4 << 20;
/// For threads with profiling on; the smaller one where there is no room for the larger.
const ARENAS_SIDE: [u64; 2] = [256 << 20, 64 << 20];

/// The distance of an arena from the code whose translations it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Translations address what the code addresses as the code does.
    Near,
    /// Translations go to what the code addresses through registers.
    Any,
}

/// Addresses in a program and in its libraries, from the auxiliary vector; 0 where it has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anchors {
    /// The program's entry.
    program: u64,
    /// The dynamic linker, or the vdso.
    library: u64,
}

impl Anchors {
    /// Those of a thread's program.
    pub fn of(tid: Tid) -> Self {
        Self::among(&Auxiliary::of(tid))
    }

    /// Takes the anchors from an auxiliary vector.
    pub fn among(auxiliary: &Auxiliary) -> Self {
        let value = |kind| auxiliary.value(kind).unwrap_or(0);
        let linker = value(AT_BASE);
        let library = if linker == 0 { value(AT_SYSINFO_EHDR) } else { linker };
        Self { program: value(AT_ENTRY), library }
    }
}

/// The places for the arenas of a new address space: below the libraries, and below the program.
///
/// Some 800 MiB below the libraries stay free for what the program maps there and must reach from
/// them.
pub fn plan_arenas(mappings: &[Mapping], anchors: Anchors) -> Vec<ArenaPlan> {
    let mut out = Vec::new();
    let align = |address: u64| address & !(2 * (1 << 20) - 1);
    let entry = mappings.iter().find(|m| (m.start..m.end).contains(&anchors.program));
    // Runtimes map data below the program, which is else the first file with code.
    let code = entry.or_else(|| mappings.iter().find(|m| m.inode != 0 && m.execute));
    let of_program = |m: &&Mapping| {
        code.is_some_and(|code| m.inode != 0 && (m.device, m.inode) == (code.device, code.inode))
    };
    let program = mappings.iter().find(of_program).or(code).map(|m| m.start);
    let near_libraries = |m: &&Mapping| match anchors.library {
        0 => m.start >= 0x7000_0000_0000,
        anchor => m.start.abs_diff(anchor) < 4 * GIB && !of_program(m),
    };
    let high = mappings
        .iter()
        .filter(|m| m.execute && m.start < 0x8000_0000_0000)
        .filter(near_libraries)
        .map(|m| m.start)
        .min();
    // In a process that has run for a while, something may lie there.
    let free = |at: u64| !mappings.iter().any(|m| m.start < at + GIB && at < m.end);
    let place = |usual: u64, start: u64| {
        const LESS: [u64; 4] = [GIB, GIB / 4, GIB / 8, GIB / 16];
        let gap = |bytes: u64| Some((gap_near(mappings, (start, start), bytes)?, bytes));
        // Without any, code there runs one instruction at a time.
        if free(usual) { Some((usual, GIB)) } else { LESS.into_iter().find_map(gap) }
    };
    let library = high.and_then(|start| place(align(start - 7 * GIB / 4), start));
    if let Some((at, bytes)) = library {
        out.push((at, bytes, GIB));
    }
    if let Some(program) = program {
        if program < LOW {
            out.extend(low_arena(mappings).map(|(at, bytes)| (at, bytes, 2 * GIB)));
        } else if library.is_none_or(|(at, _)| program.abs_diff(at) > 2 * GIB) {
            let made = place(align(program - 5 * GIB / 4), program);
            out.extend(made.map(|(at, bytes)| (at, bytes, 2 * GIB)));
        }
    }
    out
}

/// Returns the mappings of an address space and, as if they were some, the ranges that its
/// program wants.
pub fn with_wanted(mappings: &[Mapping], wanted: &[(u64, u64)]) -> Vec<Mapping> {
    let mut out = mappings.to_vec();
    let Some(any) = mappings.first() else { return out };
    let mapping = |(start, end): &(u64, u64)| Mapping {
        start: *start,
        end: *end,
        execute: false,
        inode: 0,
        ..any.clone()
    };
    out.extend(wanted.iter().map(mapping));
    out.sort_by_key(|mapping| (mapping.start, mapping.end));
    out
}

/// The places for the first arenas of a side: near the libraries, and near the program. Code that
/// lies far from both, or has no room near it, gets an arena when it runs.
pub fn plan_side(mappings: &[Mapping], anchors: Anchors) -> Vec<ArenaPlan> {
    let near = |m: &Mapping, anchor: u64| anchor != 0 && m.start.abs_diff(anchor) < GIB / 2;
    let code = |m: &&Mapping| m.execute && m.inode != 0 && !is_ours(m) && m.start < 1 << 47;
    let extent = |anchor: u64| {
        let group = || mappings.iter().filter(code).filter(|m| near(m, anchor));
        Some((group().map(|m| m.start).min()?, group().map(|m| m.end).max()?))
    };
    let library = extent(anchors.library);
    let program = extent(anchors.program)
        .filter(|_| library.is_none() || anchors.program.abs_diff(anchors.library) >= GIB / 2);
    let mut taken = mappings.to_vec();
    let mut out = Vec::new();
    for (place, extent) in [library, program].into_iter().flatten().enumerate() {
        let gap = |bytes| Some((gap_near(&taken, extent, bytes)?, bytes));
        let Some((at, bytes)) = ARENAS_SIDE.into_iter().find_map(gap) else { continue };
        out.push((at, bytes, (place as u64 + 1) * GIB));
        taken.push(Mapping { start: at, end: at + bytes, ..mappings[0].clone() });
        taken.sort_by_key(|mapping| mapping.start);
    }
    out
}

/// The low window of a side: the first place for one where nothing lies. `None` where there is
/// none.
pub fn low_for_side(mappings: &[Mapping]) -> Option<Layout> {
    let free = |low: &u64| {
        let end = low + Layout::BYTES;
        !mappings.iter().any(|m| m.start < end && *low < m.end)
    };
    low_places().find(free).map(low_window)
}

/// A place for another arena of a family: in a gap of these mappings near `extent`, or in the
/// nearest one.
pub fn planned_arena(
    family: &Family,
    mappings: &[Mapping],
    extent: (u64, u64),
    reach: Reach,
) -> Result<Arena, String> {
    let first = 3 * GIB;
    let elsewhere = family.arenas.iter().filter(|arena| arena.offset >= first);
    let used: u64 = elsewhere.map(|arena| arena.bytes).sum();
    // Half of what is left, so that there is something left for others.
    let most = ARENA_ELSEWHERE.min((GIB - used) / 2);
    if most < LEAST_ELSEWHERE {
        return Err("too many distant pieces of code".into());
    }
    let sizes = [most, most / 4, most / 16].into_iter().filter(|bytes| *bytes >= LEAST_ELSEWHERE);
    let room = |bytes: u64| {
        let bytes = bytes & !(PAGE - 1);
        let near = gap_off(mappings, extent, bytes);
        let most = if reach == Reach::Near { REACH } else { u64::MAX };
        Some((near.or_else(|| gap_within(mappings, extent, bytes, most))?, bytes))
    };
    let (address, bytes) =
        { sizes }.find_map(room).ok_or("no room for translated code near the program's")?;
    let offset = first + used;
    Ok(Arena::planned(address, offset, bytes))
}

/// The place for the arena of a program that lies below the low window: below the window too, and
/// out of the way of the program's own memory there, which begins behind the program and where
/// MAP_32BIT says.
fn low_arena(mappings: &[Mapping]) -> Option<(u64, u64)> {
    const SIZES: [u64; 4] = [512 << 20, 256 << 20, 128 << 20, 64 << 20];
    let code = mappings.iter().filter(|m| m.execute && m.inode != 0 && m.end <= LOW);
    let wanted = code.map(|m| m.end - m.start).sum::<u64>() * 16;
    let enough = |bytes: &&u64| **bytes <= wanted.next_power_of_two().max(128 << 20);
    let free = |bytes: u64| {
        let at = LOW - bytes;
        !mappings.iter().any(|m| m.start < LOW && at < m.end)
    };
    let usual = SIZES.iter().filter(enough).copied().find(|bytes| free(*bytes));
    usual.map(|bytes| (LOW - bytes, bytes)).or_else(|| {
        let program = (mappings.first()?.start, LOW);
        let gap = |bytes: u64| Some((gap_near(mappings, program, bytes)?, bytes));
        SIZES.iter().filter(enough).copied().find_map(gap)
    })
}

/// A place for `bytes` from which `extent` can be reached and which is a good way off: what a
/// program maps near its code is its own.
fn gap_off(mappings: &[Mapping], extent: (u64, u64), bytes: u64) -> Option<u64> {
    const STEP: u64 = 128 << 20;
    let far = |distance: u64| {
        let below = extent.0.checked_sub(distance + bytes)?;
        Some([below & !(STEP / 64 - 1), (extent.1 + distance).next_multiple_of(STEP / 64)])
    };
    let reaches = |at: &u64| extent.1.max(at + bytes) - extent.0.min(*at) < REACH;
    let free = |at: &u64| {
        *at >= 1 << 32
            && at + bytes < 1 << 47
            && !mappings.iter().any(|m| m.start < at + bytes && *at < m.end)
    };
    let distances = (4..=10).rev().map(|steps| steps * STEP);
    distances.filter_map(far).flatten().find(|at| reaches(at) && free(at))
}

/// A gap of `bytes` from which `extent` can be reached.
fn gap_near(mappings: &[Mapping], extent: (u64, u64), bytes: u64) -> Option<u64> {
    gap_within(mappings, extent, bytes, REACH)
}

/// The gap of `bytes` that is nearest to `extent`, so that both together take less than `most`.
fn gap_within(mappings: &[Mapping], extent: (u64, u64), bytes: u64, most: u64) -> Option<u64> {
    let page = 2u64 << 20;
    let mut best: Option<u64> = None;
    let mut previous_end = 1u64 << 20;
    // The gap below the vsyscall page begins where user memory ends.
    for mapping in mappings.iter().take_while(|mapping| mapping.start < 1 << 47) {
        let low = previous_end.next_multiple_of(page);
        let high = mapping.start / page * page;
        if high > low && high - low >= bytes {
            for candidate in [low, high - bytes] {
                let reach = extent.1.max(candidate + bytes) - extent.0.min(candidate);
                let current = best.map(|at| extent.1.max(at + bytes) - extent.0.min(at));
                if reach < most && current.is_none_or(|now| reach < now) {
                    best = Some(candidate);
                }
            }
        }
        previous_end = previous_end.max(mapping.end);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping((start, end): (u64, u64)) -> Mapping {
        let line = format!("{start:x}-{end:x} rw-p 00000000 00:00 0");
        lwp_process::maps::parse(&line).expect("a line of maps")
    }

    #[test]
    fn a_wanted_range_is_no_gap_though_something_lies_in_it() {
        let code = (0x1_0000_0000, 0x1_0001_0000);
        let theirs =
            [code, (0x1_4000_0000, 0x1_4001_0000), (0x2_0000_0000, 0x2_0001_0000)].map(mapping);
        let wanted = [(1 << 20, code.0), (code.1, 0x1_5000_0000)];
        let at = gap_near(&with_wanted(&theirs, &wanted), code, 256 << 20).unwrap();
        assert!(at >= wanted[1].1, "{at:#x}");
    }

    /// Code of the file with this inode.
    fn code((start, end): (u64, u64), inode: u64) -> Mapping {
        let line = format!("{start:x}-{end:x} r-xp 00000000 fe:01 {inode} /file{inode}");
        lwp_process::maps::parse(&line).expect("a line of maps")
    }

    const PROGRAM: u64 = 0x5555_5555_0000;
    const LIBRARY: u64 = 0x7fff_f7d0_0000;
    const MIB: u64 = 1 << 20;

    /// A program at this address and a library, which are in order.
    fn usual(program: u64) -> (Vec<Mapping>, Anchors) {
        let mappings = vec![
            code((program, program + MIB), 1),
            mapping((program + MIB, program + 2 * MIB)),
            code((LIBRARY, LIBRARY + 2 * MIB), 2),
            mapping((0x7fff_fff0_0000, 0x7fff_ffff_0000)),
        ];
        (mappings, Anchors { program: program + 0x100, library: LIBRARY })
    }

    /// Asserts that nothing lies where the arenas are to be, nor two of them in the same place.
    fn assert_free(plans: &[ArenaPlan], mappings: &[Mapping]) {
        for (index, (at, bytes, offset)) in plans.iter().enumerate() {
            let hit = |start: u64, end: u64| start < at + bytes && *at < end;
            assert!(!mappings.iter().any(|it| hit(it.start, it.end)), "{plans:x?}");
            for (other, its, behind) in &plans[..index] {
                assert!(!hit(*other, other + its), "{plans:x?}");
                assert!(*behind + its <= *offset || offset + bytes <= *behind, "{plans:x?}");
            }
        }
    }

    /// Returns whether code there can address what code in an arena addresses.
    fn reaches((at, bytes, _): ArenaPlan, code: u64) -> bool {
        code.max(at + bytes) - code.min(at) < REACH
    }

    #[test]
    fn arenas_lie_below_the_program_and_its_libraries() {
        let (mappings, anchors) = usual(PROGRAM);
        let plans = plan_arenas(&mappings, anchors);
        let [library, program] = plans[..] else { panic!("{plans:x?}") };
        assert!(reaches(library, LIBRARY + 2 * MIB) && library.0 < LIBRARY);
        assert!(reaches(program, PROGRAM + MIB) && program.0 < PROGRAM);
        assert_eq!([library.1, program.1], [GIB; 2]);
        assert_free(&plans, &mappings);
        // Without an auxiliary vector they are found by where they lie.
        assert_eq!(plan_arenas(&mappings, Anchors::default()), plans);
        // One arena is near both.
        let (mappings, anchors) = usual(LIBRARY - 256 * MIB);
        assert_eq!(plan_arenas(&mappings, anchors).len(), 1);
        assert_eq!(plan_arenas(&[], anchors), []);
    }

    #[test]
    fn arenas_of_a_process_that_runs_already_find_room_or_are_left_out() {
        let (mut mappings, anchors) = usual(PROGRAM);
        // Something lies in every usual place, with gaps of 200 MiB between.
        let blocks = (0..40).map(|index| LIBRARY - (index + 1) * 208 * MIB);
        let taken: Vec<Mapping> = blocks.map(|start| mapping((start, start + 8 * MIB))).collect();
        mappings.extend(taken);
        mappings.sort_by_key(|it| it.start);
        let plans = plan_arenas(&mappings, anchors);
        assert_free(&plans, &mappings);
        assert_eq!((plans.len(), plans[0].1), (2, GIB / 8), "{plans:x?}");
        assert!(reaches(plans[0], LIBRARY));
        // No room at all: code there runs one instruction at a time.
        let full = [
            mapping((LIBRARY - 8 * GIB, LIBRARY)),
            code((LIBRARY, LIBRARY + MIB), 2),
            mapping((LIBRARY + MIB, LIBRARY + 8 * GIB)),
        ];
        let anchors = Anchors { program: 0, library: LIBRARY };
        assert_eq!(plan_arenas(&full, anchors), []);
    }

    #[test]
    fn a_program_at_a_fixed_address_has_its_arena_below_the_low_window() {
        let (mut mappings, anchors) = usual(0x40_0000);
        let plans = plan_arenas(&mappings, anchors);
        let (at, bytes, offset) = plans[1];
        assert_eq!((at + bytes, offset), (LOW, 2 * GIB));
        assert_free(&plans, &mappings);
        // Its heap has grown to there.
        mappings.insert(2, mapping((LOW - 100 * MIB, LOW - 90 * MIB)));
        let plans = plan_arenas(&mappings, anchors);
        assert_free(&plans, &mappings);
        assert!(plans[1].0 + plans[1].1 <= LOW && plans[1].1 >= 64 * MIB, "{plans:x?}");
    }

    #[test]
    fn sides_have_arenas_near_the_libraries_and_near_the_program() {
        let (mappings, anchors) = usual(PROGRAM);
        let plans = plan_side(&mappings, anchors);
        assert_eq!(plans.iter().map(|it| it.1).collect::<Vec<_>>(), [ARENAS_SIDE[0]; 2]);
        assert!(reaches(plans[0], LIBRARY) && reaches(plans[1], PROGRAM));
        assert_free(&plans, &mappings);
        // Both are near each other.
        let (mappings, anchors) = usual(LIBRARY - 256 * MIB);
        assert_eq!(plan_side(&mappings, anchors).len(), 1);
        // The smaller one where there is no room for the larger.
        let tight = [
            mapping((1 << 20, LIBRARY - 80 * MIB)),
            code((LIBRARY, LIBRARY + MIB), 2),
            mapping((LIBRARY + MIB, (1 << 47) - 4096)),
        ];
        let plans = plan_side(&tight, Anchors { program: 0, library: LIBRARY });
        assert_eq!(plans.iter().map(|it| it.1).collect::<Vec<_>>(), [ARENAS_SIDE[1]]);
        assert_free(&plans, &tight);
    }

    #[test]
    fn low_windows_go_where_nothing_lies() {
        assert_eq!(low_for_side(&[]).map(|it| it.low), Some(LOW));
        let taken = [mapping((LOW, LOW + 4096))];
        let next = low_for_side(&taken).expect("there is room").low;
        assert!(next > LOW && next < 1 << 31, "{next:#x}");
        assert!(low_for_side(&[mapping((0x1_0000, 1 << 31))]).is_none());
    }

    /// A family without arenas.
    fn family() -> Family {
        let layout = low_window(LOW);
        let basis = crate::family::Basis {
            plan: lwp_dbt::Plan::Exact,
            lwp: lwp_dbt::Lwp::Absent,
            layout,
            dispatches: false,
        };
        Family::new(0, &basis, lwp_dbt::block::Emulated::default()).expect("memory for code")
    }

    #[test]
    fn code_far_from_everything_gets_an_arena_in_a_gap_near_it() {
        let mut family = family();
        let (mut mappings, _) = usual(PROGRAM);
        let far = (0x1000_0000_0000, 0x1000_0010_0000);
        mappings.insert(0, mapping(far));
        for reach in [Reach::Near, Reach::Any] {
            let arena = planned_arena(&family, &mappings, far, reach).expect("there is room");
            let plan = (arena.address, arena.bytes, arena.offset);
            assert!(reaches(plan, far.0) && arena.bytes == ARENA_ELSEWHERE);
            assert_eq!(arena.offset, 3 * GIB);
            assert_free(&[plan], &mappings);
        }
        // Only what need not be near may be far away.
        let full = [
            mapping((1 << 20, far.0)),
            code(far, 1),
            mapping((far.1, far.0 + 8 * GIB)),
            mapping((far.0 + 16 * GIB, far.0 + 17 * GIB)),
        ];
        assert!(planned_arena(&family, &full, far, Reach::Near).is_err());
        let arena = planned_arena(&family, &full, far, Reach::Any).expect("there is room");
        assert_free(&[(arena.address, arena.bytes, arena.offset)], &full);
        // Each takes half of what is left at most, and at last there is nothing left.
        let mut used = 0;
        let refused = loop {
            match planned_arena(&family, &mappings, far, Reach::Near) {
                Ok(arena) => {
                    assert!(arena.bytes <= (GIB - used) / 2 && arena.offset == 3 * GIB + used);
                    family.add_arena(arena.address, arena.bytes, arena.offset);
                    used += arena.bytes;
                    mappings.push(mapping((arena.address, arena.address + arena.bytes)));
                    mappings.sort_by_key(|it| it.start);
                }
                Err(reason) => break reason,
            }
        };
        assert_eq!(refused, "too many distant pieces of code");
        assert!(used > GIB / 2 && used < GIB, "{used:#x}");
    }
}

//! Indirect calls are counted by where they lead, exactly, and change nothing else.
//!
//! Promise: R22

use crate::common;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Bench, CACHE, LOW};
use lwp_dbt::context::calls::{CALL_BYTES, CALLS_AT, CALLS_BYTES, call_site, call_site_counter};
use lwp_dbt::context::{CONTEXT_BYTES, Slot};
use lwp_dbt::{AppPc, Checks, Execution, FragmentId, Plan, Region, Role, Value, ValueBase};
use lwp_testkit::native::{Machine, Outcome, Run};

const DATA: u64 = 0xc000_0000;
const DATA_BYTES: usize = 0x1_0000;
const CONTEXT: u64 = 0xd000_0000;
const CODE: u64 = 0x1_0000_0000;
/// Functions lie so far apart.
const SPACING: u64 = 16;
const FUNCTIONS: u64 = 1 << 5;
const ROUNDS: u32 = 1000;

/// Two sites call functions chosen by the round: the first one each in turn, the second the same
/// one always.
///
/// ```text
///        mov ebx, ROUNDS
/// again: lea rax, [rip + functions]; mov ecx, ebx; and ecx, FUNCTIONS - 1; shl ecx, 4; add rax, rcx
///        call rax
///        lea rdx, [rip + functions]; push rdx; call [rsp]; pop rdx
///        dec ebx; jnz again
///        jump to the landing
/// ```
fn program() -> (Vec<u8>, u64) {
    let mut code = vec![0xbb];
    code.extend(ROUNDS.to_le_bytes());
    let again = code.len();
    let mut references = Vec::new();
    code.extend([0x48, 0x8d, 0x05, 0, 0, 0, 0]);
    references.push(code.len());
    code.extend([0x89, 0xd9, 0x83, 0xe1, FUNCTIONS as u8 - 1, 0xc1, 0xe1, 0x04]);
    code.extend([0x48, 0x01, 0xc8, 0xff, 0xd0]);
    code.extend([0x48, 0x8d, 0x15, 0, 0, 0, 0]);
    references.push(code.len());
    code.extend([0x52, 0xff, 0x14, 0x24, 0x5a, 0xff, 0xcb, 0x0f, 0x85]);
    let back = again as i32 - (code.len() as i32 + 4);
    code.extend(back.to_le_bytes());
    code.extend(Machine::jump_to_landing());
    code.resize(code.len().next_multiple_of(SPACING as usize), 0xcc);
    let functions = code.len();
    for end in references {
        let displacement = (functions - end) as u32;
        code[end - 4..end].copy_from_slice(&displacement.to_le_bytes());
    }
    for _ in 0..FUNCTIONS {
        code.push(0xc3);
        code.resize(code.len().next_multiple_of(SPACING as usize), 0xcc);
    }
    (code, CODE + functions as u64)
}

/// The number of times that each site, by its address, led to each target.
type Edges = BTreeMap<(u64, u64), i64>;

fn edges(bench: &Bench, counters: &[u64], table: &[u8]) -> Edges {
    let roles: Vec<Role> = bench.tables.counters().roles().map(Option::unwrap).collect();
    let site_of = |id: FragmentId| {
        let fragment = bench.tables.fragment(id);
        let bytes = bench.app.at(fragment.pc);
        let mut decoder = iced_x86::Decoder::with_ip(64, bytes, fragment.pc.0, 0);
        let end = fragment.pc.0 + u64::from(fragment.app_len);
        std::iter::from_fn(|| Some(decoder.decode())).find(|it| it.next_ip() == end).unwrap().ip()
    };
    let site = |role: &Role| match role {
        Role::CallTarget(id) => site_of(*id),
        other => panic!("{other:?}"),
    };
    let mut out = Edges::new();
    for (index, role) in roles.iter().enumerate() {
        let count = counters[index].cast_signed();
        if matches!(role, Role::Called(_)) && count != 0 {
            *out.entry((site(&roles[index - 1]), !counters[index - 1])).or_default() += count;
        }
        bench.tables.executions(*role, &mut |what, times| {
            if let Execution::Called(id, target) = what {
                *out.entry((site_of(id), target.0)).or_default() += count * times;
            }
        });
    }
    for slot in table.chunks_exact(CALL_BYTES as usize) {
        let word = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().unwrap());
        if word(16) != 0 {
            let role = &roles[call_site_counter(!(word(8) as u32)) as usize];
            *out.entry((site(role), !word(0))).or_default() += word(16).cast_signed();
        }
    }
    out.retain(|_, times| *times != 0);
    out
}

/// A machine for this code; one at a time has its memory.
fn machine(code: &[u8]) -> (MutexGuard<'static, ()>, Machine) {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let machine = Machine::new(&[
        (LOW, lwp_dbt::Layout::BYTES as usize),
        (CACHE, 1 << 20),
        (DATA, DATA_BYTES),
        (CONTEXT, CONTEXT_BYTES as usize + 0x2_0000),
        (CONTEXT + u64::from(CALLS_AT), CALLS_BYTES as usize),
        (CODE, code.len().next_multiple_of(4096)),
    ]);
    (alone, machine)
}

#[test]
fn every_call_is_counted_once() {
    let (code, functions) = program();
    let (_alone, mut machine) = machine(&code);
    // Compared with the first function, or the second: nothing but a hint, right or wrong.
    let paths = [0, 1].map(|function| (Checks::None, Some(functions + function * SPACING)));
    for (checks, path) in common::CHECKS.map(|checks| (checks, None)).into_iter().chain(paths) {
        let mut bench = Bench::new(Plan::Calls, checks, CODE, &code);
        let mut regions = Vec::new();
        if let Some(function) = path {
            regions.extend(lay_path(&mut bench, &code, function));
        }
        regions.extend(bench.translate_all(CODE, false, 64));
        let head = bench.head(CODE).expect("translated");
        for function in 0..FUNCTIONS {
            regions.extend(bench.translate_all(functions + function * SPACING, true, 64));
        }
        let mut memory = vec![
            (CODE, code.clone()),
            (CACHE, bench.cache.bytes.clone()),
            (CONTEXT, vec![0; CONTEXT_BYTES as usize + 0x2_0000]),
            (CONTEXT + Slot::This as u64, CONTEXT.to_le_bytes().to_vec()),
            (CONTEXT + u64::from(CALLS_AT), vec![0; CALLS_BYTES as usize]),
        ];
        memory.extend(bench.low_window(&regions));
        let counters = bench.tables.counters().len();
        let observed = [
            (CONTEXT + CONTEXT_BYTES, counters * 8),
            (CONTEXT + u64::from(CALLS_AT), CALLS_BYTES as usize),
        ];
        let mut general = [0; 16];
        general[4] = DATA + DATA_BYTES as u64 / 2;
        let state = Machine::state(general, 0x202, || 0);
        let run =
            Run { entry: head.0, state: &state, gs: CONTEXT, memory: &memory, observed: &observed };
        let seen = match machine.run(&run) {
            Outcome::Landed(_, seen) => seen,
            other => panic!("{checks:?}: {other:x?}"),
        };
        let (counted, table) = seen.split_at(counters * 8);
        let words: Vec<u64> =
            counted.chunks_exact(8).map(|it| u64::from_le_bytes(it.try_into().unwrap())).collect();
        let mut want = Edges::new();
        let (first, second) = sites(&code);
        for round in 1..=u64::from(ROUNDS) {
            *want.entry((first, functions + round % FUNCTIONS * SPACING)).or_default() += 1;
            *want.entry((second, functions)).or_default() += 1;
        }
        assert_eq!(edges(&bench, &words, table), want, "{checks:?} {path:?}");
    }
}

/// Lays a superblock out along one round of the loop, from its first instruction on, that expects
/// both calls to lead to `function`.
fn lay_path(bench: &mut Bench, code: &[u8], function: u64) -> Vec<Region> {
    let again = CODE + 5;
    let (first, second) = sites(code);
    let path = [again, function, first + 2, function, second + 3].map(AppPc);
    let (translator, mut to, app) = bench.parts();
    let region = translator.translate_path(&mut to, app, &path, false);
    assert_eq!(region.fragments, path.len());
    let rest: Vec<u64> = region.rest.iter().map(|it| it.pc.0).collect();
    assert!(rest.contains(&first) && rest.contains(&second));
    let rest = rest.into_iter().flat_map(|pc| bench.translate_all(pc, false, 64));
    rest.chain([region]).collect()
}

/// Returns the addresses of the two calls.
fn sites(code: &[u8]) -> (u64, u64) {
    let find = |bytes: &[u8]| {
        CODE + code.windows(bytes.len()).position(|window| window == bytes).unwrap() as u64
    };
    (find(&[0xff, 0xd0]), find(&[0xff, 0x14, 0x24]))
}

#[test]
fn a_site_is_found_by_its_name() {
    for counter in [0, 1, 2, 0xffff, 0x1_2345, 3_500_000, u32::MAX] {
        assert_eq!(call_site_counter(call_site(counter)), counter);
    }
}

/// At every place from where a call has been counted to where it is made, the state says so, and at
/// no other; the call is made by the push alone.
#[test]
fn counted_is_what_the_state_says() {
    for checks in [Checks::None, Checks::SelfCheck] {
        let mut bench = Bench::new(Plan::Calls, checks, CODE, &[0xff, 0xd0, 0xc3]);
        let region = bench.translate(CODE, false, 8);
        let head = region.head.expect("translated");
        let states: Vec<_> = (head.0..bench.cache.appended[0].1)
            .filter_map(|pc| bench.tables.state_at(lwp_dbt::CachePc(pc)))
            .collect();
        let called: Vec<_> = states.iter().filter(|(state, _)| state.called).collect();
        // mov rcx, r11 and push [rip + n].
        assert_eq!(called.len(), 3 + 6, "{checks:?}");
        for (state, fragment) in called {
            assert_eq!(state.pc, lwp_dbt::PcSource::Known(AppPc(CODE)));
            assert_eq!((state.partial, state.edge_pending), (Some((0, true)), false));
            assert!(fragment.is_some() && state.spills.rcx && state.spills.r11);
        }
    }
}

/// A function whose first instruction leaves a value's registers alone, called with structures of
/// which each has a word of its own.
///
/// ```text
///        mov ebx, ROUNDS
/// again: mov esi, ebx; and esi, FUNCTIONS - 1; shl esi, 6; lea rdi, [rip + data]; add rsi, rdi
///        mov [rdi + LEADS], rsi; mov r14, rdi
///        call function; dec ebx; jnz again
///        jump to the landing
/// function: push r15; pop r15; ret
/// ```
fn valued_program() -> (Vec<u8>, u64) {
    let mut code = vec![0xbb];
    code.extend(ROUNDS.to_le_bytes());
    code.extend([0x89, 0xde, 0x83, 0xe6, FUNCTIONS as u8 - 1, 0xc1, 0xe6, 0x06]);
    code.extend([0x48, 0xbf]);
    code.extend(DATA.to_le_bytes());
    code.extend([0x48, 0x01, 0xfe, 0x48, 0x89, 0xb7]);
    code.extend(LEADS.to_le_bytes());
    code.extend([0x49, 0x89, 0xfe, 0xe8, 0, 0, 0, 0]);
    let call = code.len();
    code.extend([0xff, 0xcb, 0x75]);
    code.push((5 - (code.len() as i32 + 1)) as u8);
    code.extend(Machine::jump_to_landing());
    let function = code.len();
    code[call - 4..call].copy_from_slice(&((function - call) as u32).to_le_bytes());
    code.extend([0x41, 0x57, 0x41, 0x5f, 0xc3]);
    (code, CODE + function as u64)
}

/// The place of the word in each structure, and where the function's address is to be.
const WORD: i32 = 32;
/// The place of a word that leads to the structure.
const LEADS: i32 = 0x3000;
const SETS: [i32; 2] = [16, 0x58];
const OTHER: u64 = DATA + 0x4000;

/// A value in the structures that rsi leads to, or, indirectly, r14.
fn value(directly: bool, sets: Option<[i32; 2]>) -> Value {
    let (base, through) = match directly {
        true => (ValueBase::Rsi, None),
        false => (ValueBase::R14, Some(LEADS)),
    };
    Value { base, through, offset: WORD, sets }
}

/// The number of times that each value was counted, and the word that was to be set, which was
/// `before`.
fn run_valued(
    (checks, value): (Checks, Value),
    before: u64,
    machine: &mut Machine,
) -> (Edges, u64) {
    let (code, function) = valued_program();
    let mut bench = Bench::new(Plan::Calls, checks, CODE, &code);
    bench.unit.marks.values.insert(AppPc(function), value);
    let regions = bench.translate_all(CODE, false, 64);
    let entry = bench.head(CODE).expect("translated").0;
    let mut data = vec![0; DATA_BYTES];
    let mut put = |at: u64, word: u64| {
        data[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
    };
    (0..FUNCTIONS).for_each(|at| put(at * 64 + WORD as u64, value_of(at)));
    let set = OTHER - DATA + SETS[1] as u64;
    put(SETS[0] as u64, OTHER);
    put(set, before);
    let mut memory = vec![
        (CODE, code),
        (CACHE, bench.cache.bytes.clone()),
        (DATA, data),
        (CONTEXT, vec![0; CONTEXT_BYTES as usize + 0x2_0000]),
        (CONTEXT + Slot::This as u64, CONTEXT.to_le_bytes().to_vec()),
        (CONTEXT + u64::from(CALLS_AT), vec![0; CALLS_BYTES as usize]),
    ];
    memory.extend(bench.low_window(&regions));
    let counters = bench.tables.counters().len() * 8;
    let observed = [
        (CONTEXT + CONTEXT_BYTES, counters),
        (CONTEXT + u64::from(CALLS_AT), CALLS_BYTES as usize),
        (DATA + set, 8),
    ];
    let mut general = [0; 16];
    general[4] = DATA + DATA_BYTES as u64 / 2;
    let state = Machine::state(general, 0x202, || 0);
    let run = Run { entry, state: &state, gs: CONTEXT, memory: &memory, observed: &observed };
    let Outcome::Landed(_, seen) = machine.run(&run) else { panic!("{checks:?}") };
    let (counted, rest) = seen.split_at(counters);
    let (table, set) = rest.split_at(CALLS_BYTES as usize);
    let word = |it: &[u8]| u64::from_le_bytes(it.try_into().unwrap());
    let words: Vec<u64> = counted.chunks_exact(8).map(word).collect();
    (edges(&bench, &words, table), word(set))
}

/// Promise: R81, R113
#[test]
fn every_value_is_counted_once() {
    let (code, function) = valued_program();
    let (_alone, mut machine) = machine(&code);
    let mut want = Edges::new();
    for round in 1..=u64::from(ROUNDS) {
        *want.entry((function, value_of(round % FUNCTIONS))).or_default() += 1;
    }
    for checks in common::CHECKS {
        let all = [(true, None, 0), (true, Some(SETS), 0), (true, Some(SETS), 7), (false, None, 0)];
        for (directly, sets, before) in all {
            let value = value(directly, sets);
            let (counted, set) = run_valued((checks, value), before, &mut machine);
            assert_eq!(counted, want, "{checks:?} {value:?}");
            let expected = if sets.is_some() && before == 0 { function } else { before };
            assert_eq!(set, expected, "{checks:?} {value:?}");
        }
    }
}

fn value_of(number: u64) -> u64 {
    0x7f00_0000_0000 + number * 0x90
}

/// From where a value has been counted to where its instruction has been executed, the state says
/// so, and at no other place.
///
/// Promise: R81
#[test]
fn a_counted_value_is_what_the_state_says() {
    for checks in [Checks::None, Checks::SelfCheck] {
        let mut bench = Bench::new(Plan::Calls, checks, CODE, &[0x41, 0x57, 0x41, 0x5f, 0xc3]);
        let sets = Some(SETS);
        let value = Value { base: ValueBase::Rdi, through: None, offset: WORD, sets };
        bench.unit.marks.values.insert(AppPc(CODE), value);
        let region = bench.translate(CODE, false, 8);
        let head = region.head.expect("translated");
        let states: Vec<_> = (head.0..bench.cache.appended[0].1)
            .filter_map(|pc| bench.tables.state_at(lwp_dbt::CachePc(pc)))
            .collect();
        let called: Vec<_> = states.iter().filter(|(state, _)| state.called).collect();
        // push r15
        assert_eq!(called.len(), 2, "{checks:?}");
        for (state, fragment) in called {
            assert_eq!(state.pc, lwp_dbt::PcSource::Known(AppPc(CODE)));
            assert_eq!((state.partial, state.edge_pending), (Some((0, true)), false));
            assert!(fragment.is_some() && state.spills.rcx && state.spills.r11);
        }
        let next = lwp_dbt::PcSource::Known(AppPc(CODE + 2));
        assert!(states.iter().any(|(state, _)| state.pc == next && state.spills.r11));
    }
}

/// A value near to which the instruction needs its registers is not counted, and nothing is lost.
#[test]
fn an_instruction_that_needs_the_registers_is_left_alone() {
    for code in [&[0x51, 0x59, 0xc3][..], &[0x41, 0x53, 0x41, 0x5b, 0xc3], &[0xc3]] {
        let mut bench = Bench::new(Plan::Calls, Checks::None, CODE, code);
        let value = Value { base: ValueBase::Rdi, through: None, offset: 0, sets: None };
        bench.unit.marks.values.insert(AppPc(CODE), value);
        assert!(bench.translate(CODE, false, 8).head.is_some());
        let roles = bench.tables.counters().roles().flatten();
        assert!(!roles.into_iter().any(|role| matches!(role, Role::CallTarget(_))));
    }
}

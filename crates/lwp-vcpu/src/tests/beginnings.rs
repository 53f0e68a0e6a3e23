//! Programs that begin: their first stacks, and the entries that the ones before have left them.

use std::sync::atomic::{AtomicU64, Ordering};

use lwp_dbt::RequestKind;
use lwp_process::first_stack;
use lwp_process::maps::{self, Mapping};
use lwp_process::owner::Owner;
use lwp_run::addition::{self, Addition};

use super::{Answer, Scene, branches, leaf, pc_of};
use crate::machine::CodeCaches;
use crate::setup::{self, Anchors, Table};

/// Words of a stack's mapping: 128 KiB.
const WORDS: usize = 16 << 10;

/// Memory of a new program's stack, whose last words are these.
struct FirstStack {
    words: Box<[AtomicU64]>,
    begins: usize,
}

impl FirstStack {
    fn of(last: &[u64]) -> Self {
        let (words, begins) = ((0..WORDS).map(|_| AtomicU64::new(0)), WORDS - last.len());
        let stack = Self { words: words.collect(), begins };
        for (word, value) in stack.words[begins..].iter().zip(last) {
            word.store(*value, Ordering::SeqCst);
        }
        stack
    }

    fn at(&self, index: usize) -> u64 {
        self.words.as_ptr() as u64 + 8 * index as u64
    }

    /// The mapping, of which so many words are there.
    fn mappings(&self, words: usize) -> [Mapping; 1] {
        let (start, end) = (self.at(WORDS - words), self.at(WORDS));
        let line = format!("{start:x}-{end:x} rw-p 00000000 00:00 0 [stack]");
        [maps::parse(&line).expect("a line of maps")]
    }

    fn words_at(&self, place: u64, count: usize) -> Vec<u64> {
        let index = ((place - self.at(0)) / 8) as usize;
        self.words[index..index + count].iter().map(|it| it.load(Ordering::SeqCst)).collect()
    }
}

const AT_PAGESZ: u64 = 6;
const AT_NOVELTY: u64 = 33;

#[test]
fn a_stack_is_settled_where_it_always_is_without_what_not_all_kernels_have() {
    const STEP: u64 = 64 << 10;
    let me = std::process::id() as i32;
    let own = [1, 0x100, 0, 0x200, 0, AT_NOVELTY, 7, AT_PAGESZ, 4096, 0, 0, 0x6162];
    let stack = FirstStack::of(&own);
    let begins = stack.at(stack.begins);
    let place = first_stack::settle(me, begins, &stack.mappings(WORDS)).expect("there is room");
    assert_eq!(place, stack.at(WORDS) - STEP);
    let settled = [1, 0x100, 0, 0x200, 0, AT_PAGESZ, 4096, 0, 0];
    assert_eq!(stack.words_at(place, 9), settled);
    assert_eq!(stack.words_at(begins, own.len()), own, "strings stay where they are");
    // No room below, no such mapping, and no stack of a new program.
    let small = stack.mappings((STEP / 8) as usize);
    assert_eq!(first_stack::settle(me, begins, &small), None);
    assert_eq!(first_stack::settle(me, 8, &stack.mappings(WORDS)), None);
    assert_eq!(first_stack::settle(me, begins + 8, &stack.mappings(WORDS)), None);
}

#[test]
fn arguments_and_variables_are_added_to_a_stack_that_has_room() {
    let me = std::process::id() as i32;
    let name = std::env::current_exe().expect("a path");
    let name = name.file_name().and_then(|it| it.to_str()).expect("a name").to_owned();
    let additions = ["another".to_owned(), name].map(|program| Addition {
        programs: vec![program],
        arguments: vec!["-a".into()],
        variables: vec![("OLD".into(), "more".into())],
    });
    let found = addition::for_program(me, &additions).expect("it is for this program");
    assert_eq!(found, &additions[1]);
    assert_eq!(addition::for_program(me, &additions[..1]), None);
    assert_eq!(addition::for_program(me, &[]), None);
    // One argument and one variable, which is OLD=x, the last word.
    let mut own = [1, 0x100, 0, 0, 0, AT_PAGESZ, 4096, 0, 0, u64::from_le_bytes(*b"OLD=x\0\0\0")];
    let stack = FirstStack::of(&own);
    own[3] = stack.at(WORDS - 1);
    stack.words[stack.begins + 3].store(own[3], Ordering::SeqCst);
    let begins = stack.at(stack.begins);
    let put = |mappings: &[Mapping]| addition::put(me, begins, mappings, found);
    // Nothing changes where there is no room.
    assert_eq!(put(&stack.mappings(512)), None);
    assert_eq!(put(&[]), None);
    assert_eq!(stack.words_at(begins, own.len()), own);
    let place = put(&stack.mappings(WORDS)).expect("there is room");
    assert!(place < begins && place.is_multiple_of(16), "{place:#x} and {begins:#x}");
    let words = stack.words_at(place, 10);
    let text = |at: u64| {
        let bytes: Vec<u8> =
            stack.words_at(at & !7, 4).into_iter().flat_map(u64::to_le_bytes).collect();
        let rest = bytes[(at & 7) as usize..].split(|byte| *byte == 0).next();
        String::from_utf8_lossy(rest.expect("a string")).into_owned()
    };
    assert_eq!((words[0], words[1], words[3], words[5]), (2, 0x100, 0, 0));
    assert_eq!((text(words[2]), text(words[4])), ("-a".into(), "OLD=x more".into()));
    assert_eq!(words[6..], [AT_PAGESZ, 4096, 0, 0]);
}

/// A new program of the same kind begins; the index of its address space, and its table.
fn begins(scene: &mut Scene) -> (usize, Table) {
    let tid = scene.tid;
    let mut mappings = maps::read(tid);
    // Libraries, and what the kernel gives, may lie anywhere.
    let program = std::env::current_exe().expect("a path");
    mappings.retain(|mapping| std::path::Path::new(&mapping.name) == program);
    let owner = Owner::default();
    let made = setup::new_space(&mut scene.machine, tid, owner, &mappings, Anchors::of(tid));
    let (space, _, table) = made.expect("an address space");
    let index = scene.machine.caches.add(space);
    scene.machine.tasks.processes.get_mut(&tid).expect("it lives").space = index;
    (index, table)
}

/// Returns whether an address space's table has an entry of a function.
fn has(caches: &mut CodeCaches, index: usize, pc: u64) -> bool {
    let (space, family) = caches.side(index).expect("an address space");
    let Some((_, code)) = space.code.at(pc) else { return false };
    let entry = family.modules[code.unit].unit.entry_at(lwp_dbt::AppPc(pc));
    entry.is_some_and(|entry| space.inserted.has(entry))
}

#[test]
fn programs_begin_with_the_entries_that_those_before_them_have_used() {
    let mut scene = Scene::exact();
    let pcs = [leaf, branches].map(pc_of);
    // Two programs end, which have called the same functions by their addresses.
    for _ in 0..2 {
        let (ended, table) = begins(&mut scene);
        assert!(matches!(table, Table::Empty), "one program is not enough");
        for pc in pcs {
            assert_eq!(scene.ask(RequestKind::Indirect, pc), Answer::Goes(pc));
            assert!(has(&mut scene.machine.caches, ended, pc));
        }
        scene.machine.caches.ended(ended);
        // It ends once.
        scene.machine.caches.ended(ended);
    }
    let (third, table) = begins(&mut scene);
    let Table::Prepared((offset, chain_bytes)) = table else { panic!("{table:?}") };
    assert!(offset > 0 && chain_bytes.is_multiple_of(4096));
    assert!(pcs.iter().all(|pc| has(&mut scene.machine.caches, third, *pc)));
    // Nothing is left to be inserted.
    for pc in pcs {
        assert_eq!(scene.ask(RequestKind::Indirect, pc), Answer::Goes(pc));
        assert_eq!(scene.context().get(lwp_dbt::Slot::ApplyCount), 0);
    }
}

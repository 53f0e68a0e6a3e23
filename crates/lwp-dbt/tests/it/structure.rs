//! Statements that can be made about translated code without running it.

use crate::common;

use std::collections::HashSet;

use common::{ALL_PLANS, App, Bench, CACHE, CHECKS};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Register};
use lwp_dbt::block::{Block, Decoding, Emulated, Terminator};
use lwp_dbt::context::SyscallClass;
use lwp_dbt::{
    AppPc, BlockProfile, CachePc, Candidate, Checks, CodeSource, EventDeltas, ExecutionProfile,
    Fragment, FragmentId, Knowledge, Lwp, PcSource, Placement, Plan, RegionLimits, Role, Selection,
    rebuild,
};
use lwp_testkit::generate::{Data, Generator};

const CODE: u64 = 0x1_0000_0000;
const DATA: Data = Data { start: 0xc000_0000 };

/// One block of each kind, every one ended by what its comment says.
const SNIPPETS: &[&[u8]] = &[
    &[0x90, 0xeb, 0x01, 0xcc, 0xc3],             // jmp rel8
    &[0xe9, 0, 0, 0, 0, 0xc3],                   // jmp rel32
    &[0xeb, 0xfe],                               // jmp to itself
    &[0x85, 0xc0, 0x74, 0x02, 0xff, 0xc0, 0xc3], // jz
    &[0x0f, 0x8f, 0x01, 0, 0, 0, 0xc3, 0xc3],    // jg rel32
    &[0xff, 0xc8, 0x75, 0xfc, 0xc3],             // dec; jnz to itself
    &[0xff, 0xc1, 0xe2, 0xfc, 0xc3],             // loop
    &[0xe1, 0x00, 0xe0, 0x00, 0xe3, 0x00, 0x67, 0xe3, 0x00, 0xc3], // loope, loopne, jrcxz, jecxz
    &[0xe8, 0x02, 0, 0, 0, 0xc3, 0x90, 0xc3],    // call rel32
    &[0xff, 0xe0],                               // jmp rax
    &[0xff, 0x64, 0xcd, 0x08],                   // jmp [rbp+rcx*8+8]
    &[0xff, 0x25, 0x00, 0x10, 0, 0],             // jmp [rip+..]
    &[0x41, 0xff, 0xd3, 0xc3],                   // call r11
    &[0xff, 0x54, 0x24, 0x08, 0xc3],             // call [rsp+8]
    &[0xff, 0x15, 0x00, 0x10, 0, 0, 0xc3],       // call [rip+..]
    &[0xc2, 0x10, 0x00],                         // ret 16
    &[0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3],    // syscall, native
    &[0xb8, 0x3b, 0, 0, 0, 0x0f, 0x05, 0xc3],    // syscall, asked
    &[0xb8, 0x09, 0, 0, 0, 0x0f, 0x05, 0xc3],    // syscall, by protection
    &[0xb8, 0x0b, 0, 0, 0, 0x0f, 0x05, 0xc3],    // syscall, by range
    &[0xb8, 0x02, 0, 0, 0, 0x0f, 0x05, 0xc3],    // syscall, by name
    &[0xb8, 0x08, 0, 0, 0, 0x0f, 0x05, 0xc3],    // syscall, by descriptor
    &[0xb8, 0x9e, 0, 0, 0, 0x0f, 0x05, 0xc3],    // syscall, by what is set
    &[0xb8, 0x4e, 0x01, 0, 0, 0x0f, 0x05, 0xc3], // syscall, refused
    &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],          // rt_sigreturn
    &[0x0f, 0x05, 0xc3],                         // syscall, unknown
    &[0xc7, 0xf8, 0x01, 0, 0, 0, 0x90, 0xc3],    // xbegin
    &[0x90, 0x0f, 0xa2, 0xc3],                   // cpuid
    &[0x0f, 0x01, 0xd0, 0xc3],                   // xgetbv
    &[0x0f, 0x31, 0xc3],                         // rdtsc
    &[0x48, 0x0f, 0xc7, 0xf0, 0xc3],             // rdrand
    &[0xcd, 0x80, 0xc3],                         // int 0x80
    &[0x8e, 0xe8, 0xc3],                         // mov gs, eax
    &[0x9d, 0x90, 0xc3],                         // popf
    &[0x90, 0x06],                               // an invalid byte behind code
    &[0x06],                                     // an invalid byte
    &[0x65, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, 0xc3], // gs:[0x28]
    &[0x65, 0x48, 0x01, 0x4c, 0x24, 0x08, 0xc3], // add gs:[rsp+8], rcx
    &[0xf3, 0x48, 0x0f, 0xae, 0xc8, 0xf3, 0x0f, 0xae, 0xd9, 0xc3], // rdgsbase, wrgsbase
    &[0x0f, 0xae, 0x21, 0x0f, 0xae, 0x2d, 0, 0x10, 0, 0, 0xc3], // xsave, xrstor
    &[0xd9, 0x71, 0x20, 0xd9, 0x35, 0, 0x10, 0, 0, 0xc3], // fnstenv
    &[0x89, 0x05, 0x00, 0x10, 0, 0, 0x8d, 0x0d, 0, 0, 0, 0, 0xc3], // a store nearby
];

fn emulated() -> Emulated {
    Emulated { xgetbv: true, fewer_states: true, tsc: true, random: true, ..Emulated::default() }
}

fn decoding(changing: bool) -> Decoding {
    Decoding { emulated: emulated(), changing, ..Decoding::default() }
}

fn bench(plan: Plan, checks: Checks, bytes: &[u8]) -> Bench {
    let mut classes = Box::new([SyscallClass::Native; 512]);
    classes[0x3b] = SyscallClass::Host;
    classes[0x09] = SyscallClass::Map;
    classes[0x02] = SyscallClass::Open;
    classes[0x08] = SyscallClass::Watched;
    classes[0x0b] = SyscallClass::Unmap;
    classes[0x38] = SyscallClass::Clone;
    classes[0x9e] = SyscallClass::SetFs;
    Bench::with(plan, checks, CODE, bytes, emulated(), classes)
}

/// A run of random instructions with branches strewn in, ended by a return.
fn random_code(seed: u64) -> Vec<u8> {
    let mut generator = Generator::not_executed(seed, DATA);
    let mut bytes = Vec::new();
    for _ in 0..60 {
        match generator.rng.below(12) {
            0 => bytes.extend([0x70 | generator.rng.below(16) as u8, generator.rng.below(8) as u8]),
            1 => bytes.extend([0xe8, generator.rng.below(16) as u8, 0, 0, 0]),
            2 => bytes.extend([0xe2, generator.rng.below(8) as u8]),
            _ => bytes.extend(generator.any(CODE + bytes.len() as u64)),
        }
    }
    bytes.extend([0xc3; 16]);
    bytes
}

fn decode(bytes: &[u8], ip: u64) -> Instruction {
    Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode()
}

fn fragments(bench: &Bench) -> impl Iterator<Item = FragmentId> {
    (0..bench.tables.fragment_count() as u32).map(FragmentId)
}

/// Checks everything that holds for any translated code. Returns how many rip-relative operands
/// were compared.
fn check(bench: &Bench) -> usize {
    let mut operands = HashSet::new();
    for &(start, end) in &bench.cache.appended {
        let mut pc = start;
        // Behind the code of a region lie constants and padding, which have no state.
        let last = (start..end).rfind(|pc| bench.tables.state_at(CachePc(*pc)).is_some());
        let code_end = last.map_or(start, |last| last + 1);
        while pc < code_end {
            let bytes = &bench.cache.bytes[(pc - CACHE) as usize..(code_end - CACHE) as usize];
            let instruction = decode(bytes, pc);
            assert!(!instruction.is_invalid(), "{pc:#x}: {:x?}", &bytes[..bytes.len().min(16)]);
            let found = bench.tables.state_at(CachePc(pc));
            let (state, id) =
                found.unwrap_or_else(|| panic!("no state at {pc:#x}: {instruction:?}"));
            if let (PcSource::Known(known), Some(id)) = (state.pc, id) {
                let fragment = bench.tables.fragment(id);
                let end = fragment.pc.offset(u64::from(fragment.app_len));
                let inside = (fragment.pc..=end).contains(&known) || known == fragment.target;
                assert!(inside, "{pc:#x}: {known:?} is not of {fragment:?}");
                if let Some((index, _)) = state.partial {
                    assert!(index <= u32::from(fragment.instructions), "{pc:#x}: {state:?}");
                }
                if instruction.is_ip_rel_memory_operand() {
                    operands.insert((
                        known,
                        instruction.code(),
                        instruction.ip_rel_memory_address(),
                    ));
                }
            }
            if instruction.is_jcc_near() {
                assert!((pc + 2) % 64 <= 60, "{pc:#x}: displacement crosses a line");
            }
            pc += instruction.len() as u64;
        }
        assert_eq!(pc, code_end, "the last instruction ends with the code");
    }
    let mut compared = 0;
    let mut expected = EventDeltas::default();
    for id in fragments(bench) {
        let fragment = bench.tables.fragment(id);
        if fragment.deltas == EventDeltas::default() {
            // Left to the host: it must have a reason.
            assert!(needs_the_host(bench, &fragment), "{fragment:?} could be translated");
            continue;
        }
        let mut app = App::new(bench.app.start, bench.app.bytes.clone());
        let changing = bench.unit.checks == Checks::SelfCheck;
        let block = Block::decode(&mut app, fragment.pc, decoding(changing)).unwrap();
        for insn in &block.insns {
            let pc = block.pc.offset(u64::from(insn.offset));
            let instruction = decode(bench.app.at(pc), pc.0);
            if instruction.is_ip_rel_memory_operand() {
                let operand = instruction.ip_rel_memory_address();
                let found = operands.contains(&(pc, instruction.code(), operand));
                let far = operand.abs_diff(CACHE) > FAR;
                assert!(found || far, "{pc:?}: {instruction:?}");
                compared += 1;
            }
        }
        expected = expected.plus(totals(&block));
    }
    if bench.translator.plan().counts() {
        let mut sum = EventDeltas::default();
        let counters = bench.tables.counters();
        for (deltas, role) in counters.iter().zip(counters.roles()) {
            match role.unwrap() {
                // A head's, which charges instead of the fragment's own counter.
                Role::Runs(id) if bench.tables.fragment(id).charged_first => {
                    assert_eq!(deltas, bench.tables.fragment(id).deltas);
                }
                _ => sum = sum.plus(deltas),
            }
        }
        // Edges and heads take it back and give it again.
        sum.conditional_taken = 0;
        assert_eq!(sum, expected);
    } else {
        assert!(bench.tables.counters().is_empty());
    }
    compared
}

#[test]
fn a_head_has_a_state() {
    for checks in CHECKS {
        let mut bench = bench(Plan::Plain, checks, &[0xff, 0xc0, 0xc3]);
        let head = bench.translate(CODE, false, 8).head.unwrap();
        let (state, _) = bench.tables.state_at(head).unwrap();
        assert_eq!(state.pc, PcSource::Known(AppPc(CODE)));
    }
}

/// A distance from the start of the cache that not every place in it can bridge.
const FAR: u64 = 0x7f00_0000;

/// Returns whether a fragment begins with an instruction that is executed in place, or holds an
/// operand that is not within reach of every place in the cache.
fn needs_the_host(bench: &Bench, fragment: &Fragment) -> bool {
    let mut app = App::new(bench.app.start, bench.app.bytes.clone());
    let changing = bench.unit.checks == Checks::SelfCheck;
    let block = Block::decode(&mut app, fragment.pc, decoding(changing)).unwrap();
    let insns = block.insns.iter().map(|insn| block.pc.offset(u64::from(insn.offset)));
    block.insns.is_empty() && block.terminator == Terminator::Step
        || insns.chain([block.terminator_pc()]).any(|pc| {
            let instruction = decode(bench.app.at(pc), pc.0);
            let far = instruction.ip_rel_memory_address().abs_diff(CACHE) > FAR;
            let absolute = instruction.memory_displ_size() == 8
                && instruction.segment_prefix() == Register::GS;
            far && instruction.is_ip_rel_memory_operand() || absolute
        })
}

/// Returns the counts of a block, taken from its instructions.
fn totals(block: &Block) -> EventDeltas {
    let one = |is: bool| i32::from(is);
    let branch = (block.terminator_offset as usize) < block.bytes.len()
        && !matches!(block.terminator, Terminator::Step | Terminator::Emulate { .. });
    let mut totals =
        EventDeltas { instructions: block.insns.len() as i32, ..EventDeltas::default() };
    totals.instructions += one(branch || matches!(block.terminator, Terminator::Emulate { .. }));
    if branch {
        let flow = block.last.flow_control();
        totals.conditional = one(flow == FlowControl::ConditionalBranch);
        totals.calls = one(block.last.is_call_near() || block.last.is_call_near_indirect());
        totals.returns = one(flow == FlowControl::Return);
        let indirect = [FlowControl::IndirectBranch, FlowControl::IndirectCall].contains(&flow);
        totals.indirect = one(indirect);
        let jump = block.last.is_jmp_short_or_near();
        totals.branches = one(jump)
            + totals.conditional
            + totals.calls
            + totals.returns
            + one(flow == FlowControl::IndirectBranch);
    }
    totals
}

fn everywhere(bytes: &[u8]) -> usize {
    let mut compared = 0;
    for plan in ALL_PLANS {
        for checks in CHECKS {
            for limit in [1, 64] {
                let mut first = bench(plan, checks, bytes);
                let mut second = bench(plan, checks, bytes);
                for bench in [&mut first, &mut second] {
                    bench.translate_all(CODE, true, limit);
                }
                assert!(first.cache.bytes == second.cache.bytes, "not the same twice");
                compared += check(&first);
            }
        }
    }
    compared
}

#[test]
fn every_kind_of_block_holds_together() {
    let mut kinds = HashSet::new();
    for snippet in SNIPPETS {
        let mut app = App::new(CODE, snippet.to_vec());
        let block = Block::decode(&mut app, AppPc(CODE), decoding(false)).unwrap();
        kinds.insert(std::mem::discriminant(&block.terminator));
        everywhere(snippet);
    }
    assert_eq!(
        kinds.len(),
        14,
        "every terminator but Repeat is that of some snippet's first block"
    );
}

#[test]
fn random_code_holds_together() {
    let mut compared = 0;
    for seed in 0..30 {
        compared += everywhere(&random_code(seed));
    }
    assert!(compared > 500, "{compared} rip-relative operands");
}

#[test]
fn long_runs_are_cut() {
    assert_eq!(everywhere(&[&[0x90; 300][..], &[0xc3]].concat()), 0);
    let mut bench = bench(Plan::Exact, Checks::None, &[&[0x90; 300][..], &[0xc3]].concat());
    bench.translate_all(CODE, true, 64);
    let sum: i32 = bench.tables.counters().iter().map(|deltas| deltas.instructions).sum();
    assert_eq!(sum, 301);
    assert!(bench.tables.fragment_count() > 1);
}

#[test]
fn an_operand_out_of_reach_is_addressed_by_a_borrowed_register() {
    let far = CACHE + (4 << 32);
    // add [rip + 0x1000], ecx: the first register to borrow that it does not use is r11
    let bytes = [0x01, 0x0d, 0, 0x10, 0, 0, 0xc3];
    for plan in ALL_PLANS {
        let mut bench = Bench::new(plan, Checks::None, far, &bytes);
        assert!(bench.translate(far, true, 8).head.is_some());
        let fragment = bench.tables.fragment(FragmentId(0));
        assert_eq!(fragment.deltas.instructions, 2);
        let loads =
            [&[0x49, 0xbb][..], &(far + 0x1006).to_le_bytes(), &[0x41, 0x01, 0x0b]].concat();
        let code = &bench.cache.bytes;
        assert!(code.windows(loads.len()).any(|bytes| bytes == loads), "{plan:?}");
    }
}

/// A program with data.
struct WithData {
    app: App,
    start: u64,
    data: Vec<u8>,
}

impl CodeSource for WithData {
    fn read_code(&mut self, pc: AppPc, buffer: &mut [u8]) -> usize {
        self.app.read_code(pc, buffer)
    }

    fn read_data(&mut self, address: u64, buffer: &mut [u8]) -> usize {
        let at = address.wrapping_sub(self.start) as usize;
        let data = self.data.get(at..).unwrap_or_default();
        let len = data.len().min(buffer.len());
        buffer[..len].copy_from_slice(&data[..len]);
        len
    }
}

/// A place for data that is an address of 32 bits.
const LOW_DATA: u64 = 0x6000_0000;

/// Returns the places that a region at the start of `code` has entries for, with `words` of `width`
/// bytes as its data at `start`.
fn foreseen(code: &[u8], start: u64, words: &[u64], width: usize) -> Vec<u64> {
    let data = words.iter().flat_map(|word| word.to_le_bytes()[..width].to_vec()).collect();
    let mut source = WithData { app: App::new(CODE, code.to_vec()), start, data };
    let mut bench = Bench::new(Plan::Exact, Checks::None, CODE, code);
    let limits = RegionLimits::fragments(40);
    let (translator, mut to, _) = bench.parts();
    let region = translator.translate(&mut to, &mut source, AppPc(CODE), false, limits);
    let mut found: Vec<u64> =
        region.entries.iter().map(|entry| to.cache.entry(*entry).pc.0 - CODE).collect();
    found.sort_unstable();
    found
}

#[test]
fn cases_of_switches_are_translated_ahead() {
    let table = (LOW_DATA as u32).to_le_bytes();
    // cmp eax, 2; ja +..; jmp [rax*8 + table]; five returns
    let mut absolute = vec![0x83, 0xf8, 2, 0x77, 7, 0xff, 0x24, 0xc5];
    absolute.extend(table);
    absolute.extend([0xc3; 5]);
    let cases = [13, 14, 13, 15, 16].map(|at| CODE + at);
    // The comparison says that only three are cases.
    assert_eq!(foreseen(&absolute, LOW_DATA, &cases, 8), [13, 14]);
    // A table ends where something is no place nearby.
    assert_eq!(foreseen(&absolute[5..], LOW_DATA, &[CODE + 8, 0, CODE + 9], 8), [8]);
    // Through a register: mov rax, [rax*8 + table]; jmp rax
    let mut loaded = vec![0x48, 0x8b, 0x04, 0xc5];
    loaded.extend(table);
    loaded.extend([0xff, 0xe0, 0xc3, 0xc3]);
    assert_eq!(foreseen(&loaded, LOW_DATA, &[CODE + 11, 0], 8), [11]);
}

#[test]
fn cases_of_position_independent_switches_are_translated_ahead() {
    // cmp eax, 1; ja +..; lea rdx, [rip + table]; movsxd rax, [rdx + rax*4]; add rax, rdx; jmp rax;
    // returns
    let mut code = vec![0x83, 0xf8, 1, 0x77, 16, 0x48, 0x8d, 0x15];
    code.extend((DATA.start.wrapping_sub(CODE + 12) as u32).to_le_bytes());
    code.extend([0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0, 0xc3, 0xc3, 0xc3]);
    let distance = |at: u64| (CODE + at).wrapping_sub(DATA.start) & 0xffff_ffff;
    assert_eq!(
        foreseen(&code, DATA.start, &[distance(22), distance(23), distance(21)], 4),
        [22, 23]
    );
}

#[test]
fn where_a_fixed_word_leads_is_translated_ahead() {
    // jmp [rip + word]; ret
    let mut code = vec![0xff, 0x25];
    code.extend((DATA.start.wrapping_sub(CODE + 6) as u32).to_le_bytes());
    code.push(0xc3);
    assert_eq!(foreseen(&code, DATA.start, &[CODE + 6], 8), [6]);
    // Elsewhere: that is for whoever has the code there.
    let mut bench = Bench::new(Plan::Plain, Checks::None, CODE, &code);
    let data = 0x1234_5678u64.to_le_bytes().to_vec();
    let mut source = WithData { app: App::new(CODE, code), start: DATA.start, data };
    let (translator, mut to, _) = bench.parts();
    let limits = RegionLimits::fragments(8);
    let region = translator.translate(&mut to, &mut source, AppPc(CODE), false, limits);
    assert!(region.entries.is_empty());
    assert_eq!(region.rest, [Candidate { pc: AppPc(0x1234_5678), entry: true, doubt: 0 }]);
}

#[test]
fn what_is_doubtful_is_left_out() {
    // test eax, eax; jz +1, thirty times, each over a nop; ret
    let code: Vec<u8> =
        std::iter::repeat_n([0x85, 0xc0, 0x74, 0x01, 0x90], 30).flatten().chain([0xc3]).collect();
    let fragments = |most_doubt: u8| {
        let mut bench = Bench::new(Plan::Exact, Checks::None, CODE, &code);
        let (translator, mut to, app) = bench.parts();
        let limits = RegionLimits { fragments: 500, doubt: 0, most_doubt };
        translator.translate(&mut to, app, AppPc(CODE), false, limits).fragments
    };
    assert!(fragments(0) < fragments(4) && fragments(4) < fragments(31));
    assert_eq!(fragments(31), 61);
}

#[test]
fn nothing_is_made_of_nothing() {
    let mut bench = Bench::new(Plan::Plain, Checks::None, CODE, &[]);
    assert_eq!(bench.translate(CODE, true, 8).head, None);
    assert!(bench.cache.appended.is_empty());
}

#[test]
fn a_waiting_link_is_patched() {
    // jz to a ret that the limit leaves out
    let bytes = [0x74, 0x01, 0xc3, 0x90, 0xc3];
    for plan in ALL_PLANS {
        for checks in CHECKS {
            let mut bench = Bench::new(plan, checks, CODE, &bytes);
            let region = bench.translate(CODE, false, 1);
            assert_eq!(region.rest.iter().map(|it| it.pc).collect::<Vec<_>>(), [AppPc(CODE + 3)]);
            assert!(bench.cache.patched.is_empty());
            let target = bench.translate(CODE + 3, false, 1);
            let [site] = bench.cache.patched[..] else { panic!("{:?}", bench.cache.patched) };
            assert_eq!(Some(bench.cache.led_from(site)), target.head);
        }
    }
}

#[test]
fn a_fragment_cut_off_leads_elsewhere() {
    for checks in [Checks::Notified, Checks::SelfCheck] {
        let mut bench = Bench::new(Plan::Exact, checks, CODE, &[0xff, 0xc0, 0xc3]);
        let head = bench.translate(CODE, true, 8).head.unwrap();
        let id = bench.unit.fragments[&AppPc(CODE)];
        assert_eq!(bench.unit.bytes_of(id), Some(&[0xff, 0xc0, 0xc3][..]));
        let (translator, mut to, _) = bench.parts();
        translator.invalidate(&mut to, id);
        assert!(bench.unit.fragments.is_empty());
        let stub = bench.cache.led_from(head.offset(1));
        assert_eq!(bench.cache.bytes[bench.cache.offset(head)], 0xe9);
        let (state, fragment) = bench.tables.state_at(stub).unwrap();
        assert_eq!((state.pc, fragment), (PcSource::Known(AppPc(CODE)), None));
        // The new bytes take the old head over.
        bench.app.bytes = vec![0x90, 0xc3];
        let again = bench.translate(CODE, true, 8).head.unwrap();
        assert_ne!(again, head);
        assert_eq!(bench.cache.led_from(head.offset(1)), again);
    }
}

/// A fragment that others reach through the table, because its code was of another mapping when
/// they were translated, must not be looked for there once it is cut off: the table would lead back
/// to it for ever.
#[test]
fn what_leads_to_a_fragment_cut_off_asks_the_host() {
    let (callee, call) = (CODE + 0x1000, [0xe8, 0xfb, 0x0f, 0x00, 0x00, 0xc3]);
    let mut bench = Bench::new(Plan::Exact, Checks::SelfCheck, CODE, &call);
    bench.translate(CODE, false, 8).head.unwrap();
    bench.app = common::App::new(callee, vec![0xc3]);
    let head = bench.translate(callee, true, 8).head.unwrap();
    let id = bench.unit.fragments[&AppPc(callee)];
    let (translator, mut to, _) = bench.parts();
    translator.invalidate(&mut to, id);
    let stub = bench.cache.led_from(head.offset(1));
    let jump = stub.offset(9 + 7 + 1);
    let routine = bench.translator.routines().ask.r11;
    assert_eq!(bench.cache.led_from(jump), CachePc(CACHE + u64::from(routine)));
}

/// A fragment whose code gives notice of changes costs as much as one whose code cannot change, but
/// for its head.
#[test]
fn code_that_gives_notice_is_not_compared() {
    let code = [0xff, 0xc0, 0x85, 0xc0, 0x75, 0xfa, 0xc3];
    let lengths = |checks: Checks, gives_notice: bool| {
        let mut bench = Bench::new(Plan::Exact, checks, CODE, &code);
        bench.app.gives_notice = gives_notice;
        bench.translate(CODE, true, 8).head.unwrap();
        bench.unit.fragments.values().map(|id| bench.tables.fragment(*id).len).sum::<u32>()
    };
    let notified = lengths(Checks::Notified, false);
    assert_eq!(lengths(Checks::SelfCheck, true), notified);
    assert!(lengths(Checks::SelfCheck, false) > notified);
}

/// Code outside this mapping will never be linked: the exit must not ask the host every time.
#[test]
fn exits_to_elsewhere_go_through_the_table() {
    // call rel32; ret; nop; ret
    let jumps = |displacement: i32| {
        let code = [&[0xe8], &displacement.to_le_bytes()[..], &[0xc3, 0x90, 0xc3]].concat();
        let mut bench = bench(Plan::Exact, Checks::Notified, &code);
        bench.translate(CODE, true, 1);
        assert!(!bench.unit.has_fragment(AppPc(CODE + 6)), "the callee is not translated yet");
        bench.cache.bytes.windows(4).filter(|bytes| *bytes == [0x42, 0xff, 0x24, 0xdd]).count()
    };
    let near = jumps(1);
    assert_eq!(jumps(0x10_0000), near + 1);
}

/// Everything that follows an instruction, bringing registers back from their slots included,
/// stands for the instruction having been executed, where data cache accesses are watched.
///
/// Promise: W9
#[test]
fn what_has_been_executed_is_not_executed_again() {
    const MARK: &[u8] = &[0x81, 0xc7, 0x78, 0x56, 0x34, 0x12]; // add edi, 0x12345678
    const LOADS: &[&[u8]] = &[
        &[0x48, 0x8b, 0x03],                                     // mov rax, [rbx]
        &[0x48, 0x8b, 0x01],                                     // mov rax, [rcx]
        &[0x64, 0x48, 0x8b, 0x03],                               // mov rax, fs:[rbx]
        &[0x48, 0x8b, 0x03, 0x48, 0x8b, 0x01, 0x48, 0x8b, 0x01], // mov rax, [rbx]; mov rax, [rcx], twice
    ];
    const NEXT: &[&[u8]] = &[
        &[0x75, 0x00, 0xc3],       // jnz
        &[0xeb, 0xfe],             // jmp to itself
        &[0xc3],                   // ret
        &[0xe8, 0, 0, 0, 0, 0xc3], // call
        &[0xff, 0xe1],             // jmp rcx
        &[0xff, 0x11],             // call [rcx]
        &[0x41, 0xff, 0xc3, 0xc3], // inc r11d
        &[0xff, 0xc1, 0xc3],       // inc ecx
        &[0x48, 0x8b, 0x03, 0xc3], // mov rax, [rbx]
        &[0x48, 0x8b, 0x01, 0xc3], // mov rax, [rcx]
        &[0x49, 0x8b, 0x03, 0xc3], // mov rax, [r11]
        &[0x0f, 0x05, 0xc3],       // syscall
        &[0x90, 0x0f, 0xa2, 0xc3], // cpuid
    ];
    let selection = Selection { dcache: true, ..Selection::default() };
    for (load, next) in LOADS.iter().flat_map(|load| NEXT.iter().map(move |next| (load, next))) {
        let bytes = [load, MARK, next].concat();
        let classes = Box::new([SyscallClass::Native; 512]);
        let lwp = Lwp::On(selection);
        let mut bench =
            Bench::with_lwp(Plan::Plain, lwp, Checks::None, CODE, &bytes, emulated(), classes);
        bench.translate(CODE, false, 1);
        let code = &bench.cache.bytes;
        let at = code.windows(MARK.len()).position(|bytes| bytes == MARK).expect("the mark");
        let pc =
            |at: usize| bench.tables.state_at(CachePc(CACHE + at as u64)).map(|state| state.0.pc);
        let mark = AppPc(CODE + load.len() as u64);
        assert_eq!(pc(at), Some(PcSource::Known(mark)));
        let behind = PcSource::Known(mark.offset(MARK.len() as u64));
        assert_eq!(pc(at + MARK.len()), Some(behind), "{bytes:02x?}");
    }
}

/// Code that is laid out anew lies behind the code that falls into it: no jump leads to the
/// instruction behind it.
#[test]
fn known_code_lies_behind_what_falls_into_it() {
    // Three times test al, al; jz to the end. Then ret.
    let bytes = [0x84, 0xc0, 0x74, 8, 0x84, 0xc0, 0x74, 4, 0x84, 0xc0, 0x74, 0, 0xc3];
    for plan in ALL_PLANS {
        let mut bench = Bench::new(plan, Checks::None, CODE, &bytes);
        bench.translate(CODE, false, 4);
        let mut profile = ExecutionProfile::default();
        for at in [0, 4, 8, 12] {
            let block = BlockProfile { runs: 10, not_taken: 9, ..BlockProfile::default() };
            profile.set(AppPc(CODE + at), block);
        }
        let at = Placement {
            code: CachePc(CACHE + 0x1_0000),
            routines: CachePc(CACHE),
            module: AppPc(CODE),
        };
        let old = (&bench.tables, &bench.unit);
        let how = (at, Knowledge::Watched);
        let new = rebuild(&bench.translator, old, &profile, &mut bench.app, how).unwrap();
        let places: Vec<CachePc> = [0, 4, 8, 12]
            .map(|at| new.unit.fragment_at(AppPc(CODE + at)).unwrap())
            .map(|id| new.cache.fragment(id).start)
            .into();
        assert!(places.is_sorted(), "{plan:?}: {places:?}");
        let to_the_next = [0xe9, 0, 0, 0, 0];
        assert!(!new.code.windows(5).any(|code| code == to_the_next), "{plan:?}");
    }
}

//! The result of each rewrite rule for one example, as text that a review can read.
//!
//! The files in `golden/` are compared with what the translator emits now. After a change that is
//! meant, write them anew and look at the difference:
//!
//! ```text
//! LWP_BLESS=1 cargo test -p lwp-dbt --test golden && git diff crates/lwp-dbt/tests/golden
//! ```
//!
//! Addresses are names: `app+5` of application code, `cache+40` of what was emitted for it, `@rcx`
//! a field of the thread's context, `#2` a counter.

use crate::common;

use std::fmt::Write as _;
use std::path::PathBuf;

use common::{Bench, CACHE, LOW, PLANS};
use iced_x86::{
    Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, Register, SymbolResolver,
    SymbolResult,
};
use lwp_dbt::block::Emulated;
use lwp_dbt::context::{CONTEXT_BYTES, RequestKind, Slot, SyscallClass, TargetFeatures};
use lwp_dbt::routines::Routines;
use lwp_dbt::{
    AppPc, CachePc, Checks, FragmentId, Layout, Lwp, Plan, Selection, Translator, Value, ValueBase,
};

const CODE: u64 = 0x1_0000_0000;

/// One example of a rule.
struct Example {
    /// Number of the rule, and the file's name.
    rule: &'static str,
    /// The subject of the example.
    title: &'static str,
    /// Application code.
    bytes: &'static [u8],
    lwp: Lwp,
    checks: Checks,
    /// Instructions of a cut fragment, which is shown instead of the whole region; 0 for the
    /// region.
    cut: usize,
}

/// LWP is on and counts these.
const fn on(instructions: bool, branches: u8, dcache: bool) -> Lwp {
    Lwp::On(Selection {
        values: false,
        instructions,
        branches,
        scarce_branches: false,
        dcache,
        ip: None,
    })
}

/// LWP is on and counts instructions, and branches much more often.
const SCARCE: Lwp = Lwp::On(Selection {
    values: false,
    instructions: true,
    branches: 0x7f,
    scarce_branches: true,
    dcache: false,
    ip: None,
});

const fn example(rule: &'static str, title: &'static str, bytes: &'static [u8]) -> Example {
    Example { rule, title, bytes, lwp: Lwp::Absent, checks: Checks::None, cut: 0 }
}

#[rustfmt::skip] // A table: one example a line.
const EXAMPLES: &[Example] = &[
    example("01_copy", "any instruction", &[0x48, 0x01, 0xc3, 0x48, 0x8d, 0x44, 0x5b, 0x08, 0xc3]),
    example("02_rip_relative", "a rip-relative operand", &[0x48, 0x03, 0x05, 0x00, 0x10, 0, 0, 0xc3]),
    example("03_gs_operand", "a gs-relative operand", &[0x65, 0x48, 0x01, 0x4c, 0x24, 0x08, 0xc3]),
    example("03_gs_operand", "a gs-relative operand without registers", &[0x65, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, 0xc3]),
    example("04_gs_base", "rdgsbase, wrgsbase", &[0xf3, 0x48, 0x0f, 0xae, 0xc8, 0xf3, 0x0f, 0xae, 0xd9, 0xc3]),
    example("05_jump", "jmp to what is laid behind", &[0x90, 0xeb, 0x01, 0xcc, 0xc3]),
    example("05_jump", "jmp to itself", &[0xeb, 0xfe]),
    example("06_conditional", "jz forwards", &[0x85, 0xc0, 0x74, 0x02, 0xff, 0xc0, 0xc3]),
    example("06_conditional", "jnz backwards", &[0xff, 0xc8, 0x75, 0xfc, 0xc3]),
    example("07_counted_loop", "loop", &[0xff, 0xc1, 0xe2, 0xfc, 0xc3]),
    example("07_counted_loop", "jrcxz", &[0xe3, 0x00, 0xc3]),
    example("08_call", "call rel32", &[0xe8, 0x01, 0, 0, 0, 0xc3, 0x90, 0xc3]),
    example("09_indirect", "jmp through a register", &[0xff, 0xe0]),
    example("09_indirect", "jmp through memory, with rcx in the operand", &[0xff, 0x64, 0xcd, 0x08]),
    example("09_indirect", "call through rip-relative memory", &[0xff, 0x15, 0x00, 0x10, 0, 0, 0xc3]),
    example("09_indirect", "ret", &[0xc3]),
    example("09_indirect", "ret that releases more", &[0xc2, 0x10, 0x00]),
    example("10_syscall", "a call that is made at once", &[0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    example("10_syscall", "a call that is the host's", &[0xb8, 0x3b, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    example("10_syscall", "a call that is the host's if it maps code", &[0xb8, 0x09, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    example("10_syscall", "a call with an unknown number", &[0x0f, 0x05, 0xc3]),
    example("10_syscall", "a call that is the host's unless it sets fs", &[0xb8, 0x9e, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    example("10_syscall", "a call whose number is set before a store", &[0xb8, 0x9e, 0, 0, 0, 0x48, 0x89, 0x1b, 0x0f, 0x05, 0xc3]),
    example("10_syscall", "a call that is the host's if it concerns code", &[0xb8, 0x0b, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    example("10_syscall", "a call that is the host's if its child is not to be traced", &[
        0xb8, 0x38, 0, 0, 0, 0x0f, 0x05, 0xc3,
    ]),
    example("10_syscall", "a call that is the host's by its descriptor", &[0xb8, 8, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    example("10_syscall", "a call that is the host's by the file's name", &[0xb8, 2, 0, 0, 0, 0x0f, 0x05, 0xc3]),
    example("11_sigreturn", "rt_sigreturn", &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05]),
    example("12_transaction", "xbegin", &[0xc7, 0xf8, 0x01, 0, 0, 0, 0x90, 0xc3]),
    example("13_emulated", "cpuid", &[0x90, 0x0f, 0xa2, 0xc3]),
    example("13_emulated", "xgetbv", &[0x0f, 0x01, 0xd0, 0xc3]),
    example("14_stepped", "int 0x80", &[0x90, 0xcd, 0x80, 0xc3]),
    example("14_stepped", "an invalid byte", &[0x06]),
    example("15_state_save", "xsave", &[0x0f, 0xae, 0x21, 0xc3]),
    example("20_pop_flags", "popf", &[0x9d, 0x90, 0xc3]),
    example("21_counted_call", "call through a register", &[0xff, 0xd0, 0xc3]),
    example("21_counted_call", "call through memory, with rcx in the operand", &[0xff, 0x54, 0xcd, 0x08, 0xc3]),
    example("22_state_filter", "xsave with an unknown mask", &[0x0f, 0xae, 0x21, 0xc3]),
    example("22_state_filter", "xrstor with a mask that the block shows", &[0x31, 0xd2, 0x0f, 0xae, 0x29, 0xc3]),
    example("23_counted_value", "a value near rsi", &[0x55, 0x48, 0x89, 0xe5, 0xc3]),
    example("23_counted_value", "a value near rdi, with a word that is set", &[0x55, 0x48, 0x89, 0xe5, 0xc3]),
    example("23_counted_value", "a value near a word near r14", &[0x49, 0x8b, 0x5e, 0x08, 0xc3]),
    example("24_ends", "the first instruction of a destructor", &[0x55, 0x48, 0x89, 0xe5, 0xc3]),
    example("25_store_pointer", "fxsave64, with rcx in the operand", &[0x48, 0x0f, 0xae, 0x44, 0xc1, 0x40, 0xc3]),
    example("25_store_pointer", "fnstenv, relative to rip", &[0xd9, 0x35, 0, 0x10, 0, 0, 0xc3]),
    example("26_transfer", "call rel32", &[0xe8, 0x01, 0, 0, 0, 0xc3, 0x90, 0xc3]),
    example("26_transfer", "ret", &[0xc3]),
    example("26_transfer", "call through memory, with rcx in the operand", &[0xff, 0x54, 0xcd, 0x08, 0xc3]),
    example("26_transfer", "jmp through a register", &[0xff, 0xe0]),
    example("26_transfer", "jmp through a register, in a function of three bytes", &[0xff, 0xe0, 0x90]),
    Example { lwp: on(true, 0, false), ..example("16_countdown", "instructions count", &[0x48, 0x01, 0xc3, 0xc3]) },
    Example { lwp: on(false, 0x7f, false), ..example("16_countdown", "branches count", &[0x85, 0xc0, 0x74, 0x02, 0xff, 0xc0, 0xc3]) },
    Example { lwp: on(true, 0x7f, false), ..example("16_countdown", "both count", &[0x85, 0xc0, 0x74, 0x02, 0xff, 0xc0, 0xc3]) },
    Example { lwp: SCARCE, ..example("16_countdown", "both count, and branches come due much sooner", &[0x85, 0xc0, 0x74, 0x02, 0xff, 0xc0, 0xc3]) },
    Example { lwp: on(true, 0, false), cut: 2, ..example("18_cut", "an event is due on the second of three", &[0x48, 0x01, 0xc3, 0xff, 0xc0, 0xff, 0xc1, 0xc3]) },
    Example { lwp: on(false, 1, false), cut: 2, ..example("18_cut", "an event is due on a conditional branch", &[0x85, 0xc0, 0x74, 0x02, 0xff, 0xc0, 0xc3]) },
    Example { lwp: on(false, 0x7f, false), cut: 1, ..example("18_cut", "an event is due on ret", &[0xc3]) },
    Example { lwp: on(false, 0, true), ..example("19_dcache", "a load and a store", &[0x48, 0x8b, 0x43, 0x08, 0x89, 0x04, 0x8b, 0xc3]) },
    Example { lwp: on(false, 0, true), ..example("19_dcache", "a load relative to fs", &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, 0xc3]) },
    Example { lwp: Lwp::Off, ..example("17_lwp_off", "LLWPCB, SLWPCB, LWPINS, LWPVAL with profiling off", &[
        0x8f, 0xe9, 0xf8, 0x12, 0xc1,                   // llwpcb rcx
        0x8f, 0xe9, 0xf8, 0x12, 0xca,                   // slwpcb rdx
        0x8f, 0xea, 0xf8, 0x12, 0xc1, 1, 0, 0, 0,       // lwpins rax, ecx, 1
        0x8f, 0xea, 0xf8, 0x12, 0xc9, 1, 0, 0, 0,       // lwpval rax, ecx, 1
        0xc3]) },
    Example { checks: Checks::SelfCheck, ..example("checks", "code that may change at any time", &[0x48, 0x01, 0xc3, 0xff, 0xc0, 0xc3]) },
    Example { checks: Checks::Notified, ..example("checks", "code that changes with notice", &[0x48, 0x01, 0xc3, 0xc3]) },
];

/// Gives addresses their names.
struct Names {
    layout: Layout,
    routines: Routines,
    /// The code is translated: its gs base is that of the context.
    translated: bool,
}

impl Names {
    fn of_slot(address: u64) -> Option<String> {
        if let Some(counter) = address.checked_sub(CONTEXT_BYTES) {
            return Some(format!("#{}", counter / 8));
        }
        let holds = |(field, _, bytes): &&(Slot, &str, u32)| {
            (*field as u64..*field as u64 + u64::from(*bytes)).contains(&address)
        };
        let Some((field, name, _)) = Slot::ALL.iter().find(holds) else {
            return Some(format!("@{address:#x}"));
        };
        let name = snake_case(name);
        match address - *field as u64 {
            0 => Some(format!("@{name}")),
            behind => Some(format!("@{name}+{behind:x}")),
        }
    }

    fn of_routine(&self, offset: u64) -> String {
        let known = [
            (self.routines.ask.r11, "ask_r11"),
            (self.routines.ask.cpuid, "ask_cpuid"),
            (self.routines.ask.call, "ask_call"),
            (self.routines.ask.rcx, "ask_rcx"),
            (self.routines.sigreturn, "sigreturn_landing"),
            (self.routines.lwp.deal, "lwp_deal"),
            (self.routines.lwp.branched, "lwp_branched"),
            (self.routines.lwp.stepped, "lwp_stepped"),
            (self.routines.lwp.due, "lwp_due"),
            (self.routines.lwp.touches.any, "lwp_touch_any"),
            (self.routines.lwp.touches.repeat_ready, "lwp_repeat_ready"),
            (self.routines.lwp.touches.repeat_walk, "lwp_repeat_walk"),
            (self.routines.called, "called"),
            (self.routines.transfers[0], "transfers"),
        ];
        let lwp = &self.routines.lwp;
        for (starts, name) in
            [(&lwp.touches.quick, "lwp_touch"), (&lwp.touches.quick_dead, "lwp_touch_dead")]
        {
            if let Some(length) = starts.iter().position(|at| u64::from(*at) == offset) {
                return format!("{name}_{}", 1 << length);
            }
        }
        let name = known.iter().find(|(at, _)| u64::from(*at) == offset);
        name.map_or_else(|| format!("routines+{offset:x}"), |(_, name)| (*name).to_owned())
    }

    fn of(&self, address: u64) -> Option<String> {
        let low = self.layout;
        let routines = self.routines.code.len() as u64;
        Some(match address {
            _ if address == low.table() => "table".into(),
            _ if address == low.syscall_classes() => "syscall_classes".into(),
            _ if address == low.index_mask() => "index_mask".into(),
            _ if address == low.set_mask() => "set_mask".into(),
            _ if address == low.line_mask() => "line_mask".into(),
            _ if (low.chain_slot(0)..low.chain_slot(4096)).contains(&address) => {
                format!("chain[{}]", (address - low.chain_slot(0)) / 8)
            }
            _ if (low.routines()..low.routines() + routines).contains(&address) => {
                self.of_routine(address - low.routines())
            }
            _ if (CACHE..CACHE + routines).contains(&address) => self.of_routine(address - CACHE),
            _ if (CACHE..CACHE + (1 << 20)).contains(&address) => {
                format!("cache+{:x}", address - start_of_code(&self.routines))
            }
            _ if (CODE..CODE + (1 << 20)).contains(&address) => format!("app+{:x}", address - CODE),
            _ if (CODE..CODE + (1 << 20)).contains(&address.wrapping_neg()) => {
                format!("-(app+{:x})", address.wrapping_neg() - CODE)
            }
            _ => return None,
        })
    }
}

/// A field's name as it stands in a listing: `sig_pc` of `SigPc`.
fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// Emitted code begins behind the routines, on a line of its own.
fn start_of_code(routines: &Routines) -> u64 {
    CACHE + (routines.code.len() as u64).next_multiple_of(64)
}

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        operand: u32,
        _: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        let memory = instruction.op_kind(operand) == iced_x86::OpKind::Memory;
        let context = memory
            && self.translated
            && instruction.segment_prefix() == Register::GS
            && instruction.memory_base() == Register::None;
        let name = if context { Self::of_slot(address) } else { self.of(address) }?;
        Some(SymbolResult::with_string(address, name))
    }
}

fn formatter(names: Names) -> IntelFormatter {
    let mut formatter = IntelFormatter::with_options(Some(Box::new(names)), None);
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_first_operand_char_index(8);
    options.set_space_after_operand_separator(true);
    options.set_rip_relative_addresses(false);
    options.set_show_branch_size(false);
    options.set_signed_immediate_operands(false);
    formatter
}

fn bench(plan: Plan, example: &Example, features: TargetFeatures) -> Bench {
    let mut classes = Box::new([SyscallClass::Native; 512]);
    classes[0x3b] = SyscallClass::Host;
    classes[0x09] = SyscallClass::Map;
    classes[0x02] = SyscallClass::Open;
    classes[0x08] = SyscallClass::Watched;
    classes[0x0b] = SyscallClass::Unmap;
    classes[0x38] = SyscallClass::Clone;
    classes[0x9e] = SyscallClass::SetFs;
    let lwp = example.lwp != Lwp::Absent;
    let lwp_state = example.rule == "22_state_filter";
    let emulated = Emulated {
        xgetbv: true,
        fewer_states: !lwp_state,
        tsc: true,
        random: true,
        lwp,
        no_inserts: false,
        lwp_state,
        no_transactions: false,
        markers: false,
        requests: false,
        writes: false,
        fills: false,
        dispatches: false,
    };
    let layout = Layout { low: LOW, features };
    let translator = Translator::new(plan, example.lwp, layout, emulated, classes);
    let mut bench = Bench::with_translator(translator, example.checks, CODE, example.bytes);
    match (example.rule, example.title) {
        ("23_counted_value", title) => {
            let (base, through, sets) = match title {
                "a value near rsi" => (ValueBase::Rsi, None, None),
                "a value near a word near r14" => (ValueBase::R14, Some(8), None),
                _ => (ValueBase::Rdi, None, Some([0x10, 0x38])),
            };
            let value = Value { base, through, offset: 0x20, sets };
            bench.unit.marks.values.insert(AppPc(CODE), value);
        }
        ("26_transfer", title) if title.contains("in a function") => {
            bench.app.function = Some(CODE..CODE + example.bytes.len() as u64);
        }
        ("24_ends", _) => drop(bench.unit.marks.ends.insert(AppPc(CODE))),
        _ => {}
    }
    bench
}

fn listing(
    text: &mut String,
    formatter: &mut IntelFormatter,
    base: (&str, u64),
    at: u64,
    bytes: &[u8],
) {
    let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let mut line = String::new();
        if instruction.is_invalid() {
            line = "(bad)".into();
        } else {
            formatter.format(&instruction, &mut line);
        }
        let place = format!("{}+{:x}", base.0, instruction.ip() - base.1);
        let _ = writeln!(text, "    {place:<10} {line}");
    }
}

/// Original and emitted code of one example in every plan.
fn show(example: &Example, features: TargetFeatures) -> String {
    let mut text = format!("{}\n\n", example.title);
    let plans: &[Plan] = match example.rule {
        "21_counted_call" | "23_counted_value" | "24_ends" => &[Plan::Calls],
        "26_transfer" => &[Plan::Contexts],
        _ => &PLANS,
    };
    for (index, &plan) in plans.iter().enumerate() {
        let mut bench = bench(plan, example, features);
        let names = |translated: bool| Names {
            layout: bench.translator.layout(),
            routines: bench.translator.routines().clone(),
            translated,
        };
        if index == 0 {
            let mut original = formatter(names(false));
            listing(&mut text, &mut original, ("app", CODE), CODE, example.bytes);
        }
        let mut formatter = formatter(names(true));
        match example.cut {
            0 => drop(bench.translate_all(CODE, true, 16)),
            most => assert!(bench.cut(AppPc(CODE), most), "{}: no cut", example.title),
        }
        let _ = writeln!(text, "\n  {plan:?}");
        emitted(&mut text, &mut formatter, &bench);
    }
    text.push('\n');
    text
}

/// Everything that was emitted: code, and behind each region its constants.
fn emitted(text: &mut String, formatter: &mut IntelFormatter, bench: &Bench) {
    let base = start_of_code(bench.translator.routines());
    let heads: Vec<u64> = (0..bench.tables.fragment_count() as u32)
        .map(|id| bench.tables.fragment(FragmentId(id)).start.0)
        .collect();
    for &(start, end) in &bench.cache.appended {
        let last = (start..end).rfind(|pc| bench.tables.state_at(CachePc(*pc)).is_some());
        let code_end = last.map_or(start, |last| last + 1);
        let mut from = start;
        for cut in heads
            .iter()
            .copied()
            .filter(|head| (start + 1..code_end).contains(head))
            .chain([code_end])
        {
            let bytes = &bench.cache.bytes[(from - CACHE) as usize..(cut - CACHE) as usize];
            listing(text, formatter, ("cache", base), from, bytes);
            from = cut;
            if cut != code_end {
                text.push_str("    --\n");
            }
        }
        let rest = &bench.cache.bytes[(code_end - CACHE) as usize..(end - CACHE) as usize];
        for (index, constant) in constants(code_end, rest) {
            let name = formatter_name(bench, constant);
            let _ =
                writeln!(text, "    {:<10} dq      {name}", format!("cache+{:x}", index - base));
        }
    }
}

/// The aligned words behind code at `from`; the rest is padding.
fn constants(from: u64, bytes: &[u8]) -> Vec<(u64, u64)> {
    let skip = (from.next_multiple_of(8) - from) as usize;
    let words = bytes.get(skip..).unwrap_or_default().chunks_exact(8);
    let word = |(index, word): (usize, &[u8])| {
        (
            from + (skip + index * 8) as u64,
            u64::from_le_bytes(word.try_into().expect("eight bytes")),
        )
    };
    words.enumerate().map(word).filter(|(_, value)| (CODE..CODE + 0x1000).contains(value)).collect()
}

fn formatter_name(bench: &Bench, address: u64) -> String {
    let routines = bench.translator.routines().clone();
    let names = Names { layout: bench.translator.layout(), routines, translated: true };
    names.of(address).unwrap_or_else(|| format!("{address:#x}"))
}

fn file(directory: &str, rule: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(directory).join(format!("{rule}.txt"))
}

/// Processors with fast PEXT.
const WIDE: TargetFeatures = TargetFeatures { wide_index: true, bit_extract: true };
/// Processors without it.
const NARROW: TargetFeatures = TargetFeatures { wide_index: false, bit_extract: false };

#[test]
fn rules_emit_what_the_golden_files_say() {
    compare("tests/golden", WIDE);
}

#[test]
fn rules_emit_what_the_golden_files_say_without_pext() {
    compare("tests/golden/narrow", NARROW);
}

/// Compares what is emitted for these processors with the files in `directory`.
fn compare(directory: &str, features: TargetFeatures) {
    let bless = std::env::var_os("LWP_BLESS").is_some();
    let mut rules: Vec<&str> = EXAMPLES.iter().map(|example| example.rule).collect();
    rules.dedup();
    let mut differing = Vec::new();
    for rule in rules {
        let text: String = EXAMPLES
            .iter()
            .filter(|example| example.rule == rule)
            .map(|example| show(example, features))
            .collect();
        if bless {
            std::fs::write(file(directory, rule), &text).expect("write a golden file");
            continue;
        }
        let want = std::fs::read_to_string(file(directory, rule)).unwrap_or_default();
        if let Some((line, (got, want))) = text
            .lines()
            .chain(std::iter::repeat(""))
            .zip(want.lines().chain(std::iter::repeat("")))
            .take(text.lines().count().max(want.lines().count()))
            .enumerate()
            .find(|(_, (got, want))| got != want)
        {
            differing
                .push(format!("{rule}.txt line {}:\n  file {want:?}\n  now  {got:?}", line + 1));
        }
    }
    assert!(
        differing.is_empty(),
        "\n{}\n\nIf this is meant: LWP_BLESS=1 cargo test -p lwp-dbt --test golden, and review the difference.",
        differing.join("\n")
    );
}

/// Every rule of the table at the head of `emit.rs` has a file, save those that only exist while
/// profiling, which `tests/asm.rs` of the test package runs against the reference.
#[test]
fn every_rule_has_a_file() {
    let source = include_str!("../../src/emit.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | "));
    let numbers: Vec<u32> =
        rows.filter_map(|row| row.split_whitespace().next()?.parse().ok()).collect();
    assert!(numbers.len() >= 19, "{numbers:?}");
    for number in numbers {
        let prefix = format!("{number:02}_");
        let there = EXAMPLES.iter().any(|example| example.rule.starts_with(&prefix));
        assert!(there, "rule {number} has no example");
    }
}

/// The text's names of requests: the numbers that stand in it.
#[test]
fn request_numbers_are_stable() {
    assert_eq!(RequestKind::Syscall as u32, 1);
    assert_eq!(RequestKind::Stale as u32, 8);
    assert_eq!(RequestKind::Step as u32, 9);
}

//! Random programs with random control blocks: assembly text, many cases in one program.
//!
//! A case copies its control block into place, clears ring and log, sets the registers, loads the
//! block, executes its instructions, switches LWP off, notes eight registers, and shows block, ring
//! and log. It depends on nothing but its own number, so a failing one can be made again alone.
//!
//! What does not occur: faults, flags that the manuals leave undefined, anything that depends on
//! time, on the address of the stack or on other threads.

use std::fmt::Write;

/// Marsaglia's xorshift with 64 bits.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..4 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Which events a case may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// Value samples, instructions and branches: facts of a run.
    Facts,
    /// Cache misses too.
    Misses,
    /// Clocks too, which follow from the instructions where memory takes no time.
    Clocks,
    /// Cache misses and clocks too, which are modelled.
    Modelled,
    /// What the form of 2007 has: instructions, branches and cache misses, in any of its counters.
    Proposal,
}

/// Assembly text of the cases `first` to `first + count - 1`.
pub fn random_program(events: Events, first: u64, count: u64) -> String {
    let mut text = String::from(".include \"lwp.inc\"\n    BLOCK\n    EVENTS\n    BEGIN\n");
    text += "    HANDLE SIGPWR, interrupted\n";
    // Where the stack begins depends on environment and loader, and its lines with it.
    text += "    and $-0x1000, %rsp\n";
    let cases: Vec<Case> = (first..first + count).map(|number| Case::new(events, number)).collect();
    for case in &cases {
        text += &case.code;
    }
    text += ENDING;
    for case in &cases {
        text += &case.block;
    }
    text
}

/// The end of the program, what all cases use, and the handler of the threshold: it ends the
/// profile.
const ENDING: &str = r"
    mov $SYS_EXIT, %eax
    xor %edi, %edi
    syscall
show_all:
    mov $block, %esi
    mov $192, %edx
    call show
    mov $ring, %esi
    mov $4096, %edx
    call show
    mov $log, %esi
    mov $64, %edx
    jmp show
interrupted:
    llwpcb %rax
    mov UCONTEXT_RIP(%rdx), %rax
    xor %rax, scratch(%rip)
    ret
leaf:
    inc %rax
    ret
nested:
    push %rdx
    call leaf
    cmp %rax, %rdx
    jb 1f
    xor %rdx, %rax
1:  pop %rdx
    ret
    .bss
    .balign 64
scratch:
    .skip 4096
    .data
";

struct Case {
    code: String,
    block: String,
}

/// Registers that the instructions of a case work on. ecx counts loops, r13 is a small index, rbx
/// the scratch area, r14 the block, r15 zero.
const WORK: [&str; 9] = ["rax", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r12"];
const WORK_32: [&str; 9] = ["eax", "edx", "esi", "edi", "ebp", "r8d", "r9d", "r10d", "r12d"];
const CONDITIONS: [&str; 14] =
    ["e", "ne", "b", "ae", "be", "a", "s", "ns", "p", "np", "l", "ge", "le", "g"];

impl Case {
    fn new(events: Events, number: u64) -> Self {
        let mut random = Random::new(number);
        let block = match events {
            Events::Proposal => block_2007(&mut random, number),
            _ => block(&mut random, events, number),
        };
        let proposal = events == Events::Proposal;
        let mut body = Body { random, text: String::new(), proposal, number, labels: 0 };
        body.begin();
        for _ in 0..10 + body.random.below(60) {
            body.statement(2);
        }
        body.end();
        Self { code: body.text, block }
    }
}

/// The control block of a case.
fn block(random: &mut Random, events: Events, number: u64) -> String {
    let mut flags = random.below(8) << 1;
    match events {
        Events::Facts => {}
        Events::Misses => flags |= random.below(2) << 4,
        Events::Clocks => flags |= random.below(4) << 5,
        Events::Modelled => flags |= random.below(8) << 4,
        Events::Proposal => unreachable!("it has a block of its own"),
    }
    if random.one_in(4) {
        flags |= 1 << 29;
    }
    if random.one_in(5) {
        flags |= 1 << 31;
    }
    if random.one_in(10) {
        flags |= random.next() & 0x1FFF_FF81;
    }
    let extra = if random.one_in(2) { 1 } else { 3000 };
    let size = 1024 + random.below(extra);
    let shift = if size <= 4000 { random.below(33) } else { 0 };
    let bits = if random.one_in(4) { random.below(8) } else { 0 };
    let offset = |random: &mut Random| match random.below(4) {
        0 => 0,
        1 => random.below(size) / 32 * 32,
        2 => random.below(size),
        _ => random.next() & 0xFFFF_FFFF,
    };
    let (head, tail) = (offset(random), offset(random));
    let threshold = match random.below(3) {
        0 => random.below(size),
        1 => 2 * size,
        _ => random.below(200),
    };
    let filters = filters(random, events);
    let (low, high) = (random.below(60), random.below(60));
    let mut text = format!(
        "    .balign 64\ncase_{number}_block:\n    .long {flags:#x}, {:#x}\n    .quad ring+{shift}\n    \
         .long {head:#x}, 0\n    .quad 0\n    .long {threshold}, {filters:#x}\n    \
         .quad case_{number}+{low}, case_{number}+{low}+{high}*4, 0\n    .long {tail:#x}, 0\n    \
         .quad 0, 0, 0, 0, 0, 0, 0\n",
        size | bits << 28
    );
    for _ in 0..6 {
        let value = |random: &mut Random| match random.below(8) {
            0 => random.next() & 0xFFFF_FFFF,
            1 => 0,
            2 => 1,
            _ => random.below(30),
        };
        let (interval, counter) = (value(random), value(random));
        // A large interval with random high bits still ends a case without a record, which is no
        // loss.
        let _ = writeln!(text, "    .long {interval:#x}, {counter:#x}");
    }
    text + "    .quad 0, 0\n"
}

/// The control block of a case in the form of 2007. A counter may be of no event, and two of the
/// same.
fn block_2007(random: &mut Random, number: u64) -> String {
    let mut flags = random.below(2) << 31;
    if random.one_in(10) {
        flags |= random.next() & 0x7FFF_FFFF;
    }
    let extra = if random.one_in(2) { 1 } else { 3000 };
    let size = 1024 + random.below(extra);
    let shift = if size <= 4000 { random.below(33) } else { 0 };
    let bits = if random.one_in(4) { random.below(8) } else { 0 };
    let offset = |random: &mut Random| match random.below(3) {
        0 => 0,
        1 => random.below(size) / 32 * 32,
        _ => random.below(size),
    };
    let (head, tail) = (offset(random), offset(random));
    let threshold = match random.below(3) {
        0 => random.below(size) / 32 * 32,
        1 => 0,
        _ => random.below(200),
    };
    let filters = match random.below(3) {
        0 => random.below(2) << 13,
        1 => random.below(17) | random.below(64) << 8,
        _ => 0,
    };
    let mut text = format!(
        "    .balign 64\ncase_{number}_block:\n    .long {flags:#x}, {:#x}\n    .quad ring+{shift}\n    \
         .long {head:#x}, {tail:#x}\n    .quad 0\n    .long {threshold}, {filters:#x}\n",
        size | bits << 28
    );
    for _ in 0..3 {
        let value = |random: &mut Random| match random.below(8) {
            0 => random.next() & 0x3FF_FFFF,
            1 => 0,
            2 => 1,
            _ => random.below(30),
        };
        let (interval, counter, event) = (value(random), value(random), random.below(5));
        let _ = writeln!(text, "    .long {:#x}, {counter:#x}", interval | event << 26);
    }
    text + "    .fill 16, 8, 0\n"
}

fn filters(random: &mut Random, events: Events) -> u64 {
    let mut filters = 0;
    for bit in [25, 26, 27, 28, 29, 30, 31] {
        if random.one_in(5) {
            filters |= 1 << bit;
        }
    }
    if matches!(events, Events::Misses | Events::Modelled) && random.one_in(3) {
        filters |= random.below(17) | random.below(32) << 8;
    }
    filters
}

/// The instructions of a case.
struct Body {
    random: Random,
    text: String,
    /// In the form of 2007, which has neither LWPINS nor LWPVAL, and another block.
    proposal: bool,
    number: u64,
    labels: u64,
}

impl Body {
    fn line(&mut self, line: &str) {
        self.text += "    ";
        self.text += line;
        self.text.push('\n');
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("case_{}_{}", self.number, self.labels)
    }

    fn place(&mut self, label: &str) {
        let _ = writeln!(self.text, "{label}:");
    }

    fn begin(&mut self) {
        let number = self.number;
        for line in [
            &format!("mov $case_{number}_block, %esi"),
            "mov $block, %edi",
            "mov $24, %ecx",
            "rep movsq",
            "mov $ring, %edi",
            "xor %eax, %eax",
            "mov $520, %ecx",
            "rep stosq",
            "mov $scratch, %ebx",
            "mov %rbx, %rdi",
            "mov $512, %ecx",
            "rep stosq",
            "mov $image, %edi",
            "mov $80, %ecx",
            "rep stosq",
            "movl $0x1f80, image+24(%rip)",
        ] {
            self.line(line);
        }
        for register in WORK {
            let value = self.random.next() >> self.random.below(64);
            self.line(&format!("movabs ${value:#x}, %{register}"));
        }
        let index = self.random.below(64);
        self.line(&format!("mov ${index}, %r13d"));
        self.line("cmp %rax, %rdx");
        self.place(&format!("case_{number}"));
        self.line("llwpcb %r14");
    }

    fn end(&mut self) {
        self.line("llwpcb %r15");
        for (at, register) in WORK.iter().take(8).enumerate() {
            self.line(&format!("mov %{register}, log+{}(%rip)", at * 8));
        }
        self.line("mov $stack_end, %esp");
        self.line("call show_all");
    }

    /// One thing to do; `depth` is how many levels of loops and branches it may open.
    fn statement(&mut self, depth: u32) {
        match self.random.below(25) {
            0..=5 => self.arithmetic(),
            6..=8 => self.memory(),
            9 => self.stack(),
            10 => self.vector(),
            11 => self.string(),
            12 | 13 if !self.proposal => self.insert(),
            14 => self.profile(),
            15 | 16 => self.call(),
            17 => self.indirect_jump(),
            18 | 19 if depth > 0 => self.repeat(depth - 1),
            20..=22 if depth > 0 => self.forward(depth - 1),
            23 if self.random.one_in(3) => {
                for line in
                    ["mov $SYS_GETPID, %eax", "syscall", "xor %eax, %eax", "xor %r11d, %r11d"]
                {
                    self.line(line);
                }
            }
            24 if !self.proposal => self.state(),
            _ => self.line("nop"),
        }
    }

    /// Saves or restores state, LWP's mostly among it, with a mask that the block itself shows or
    /// not.
    fn state(&mut self) {
        let eax = self.random.pick(&["0", "3", "-1"]);
        let edx = self.random.pick(&["0x40000000", "0x40000000", "-1", "0"]);
        self.line(&format!("mov ${eax}, %eax"));
        self.line(&format!("mov ${edx}, %edx"));
        if self.random.one_in(2) {
            let label = self.label();
            self.line(&format!("jmp {label}"));
            self.place(&label);
        }
        let operation = self.random.pick(&["xsave", "xsaveopt", "xrstor", "xrstor64"]);
        let operand = self.random.pick(&["image", "image(%rip)", "image-scratch(%rbx)"]);
        self.line(&format!("{operation} {operand}"));
    }

    fn arithmetic(&mut self) {
        let wide = self.random.one_in(2);
        let registers = if wide { &WORK } else { &WORK_32 };
        let (from, to) = (self.random.pick(registers), self.random.pick(registers));
        let suffix = if wide { "q" } else { "l" };
        let value = self.random.next() as i32;
        let line = match self.random.below(9) {
            0 => format!("lea{suffix} {}(%rbx,%r13,2), %{to}", value & 0xFFF),
            1 => format!("inc{suffix} %{to}"),
            2 => format!("neg{suffix} %{to}"),
            3 => format!("not{suffix} %{to}"),
            4 => format!("add{suffix} ${value}, %{to}"),
            5 => format!("shl{suffix} $1, %{to}"),
            6 => {
                let condition = self.random.pick(&CONDITIONS);
                format!("cmov{condition} %{from}, %{to}")
            }
            _ => {
                let all = ["add", "adc", "sub", "sbb", "and", "or", "xor", "cmp", "test", "mov"];
                format!("{}{suffix} %{from}, %{to}", self.random.pick(&all))
            }
        };
        self.line(&line);
    }

    /// A place in the scratch area.
    fn address(&mut self) -> String {
        let offset = self.random.below(3000);
        match self.random.below(4) {
            0 => format!("{offset}(%rbx,%r13,8)"),
            1 => format!("scratch+{offset}(%rip)"),
            2 => format!("scratch+{offset}(,%r13,4)"),
            _ => format!("{offset}(%rbx)"),
        }
    }

    fn memory(&mut self) {
        let (address, register) = (self.address(), self.random.pick(&WORK));
        let line = match self.random.below(7) {
            0 | 1 => format!("mov {address}, %{register}"),
            2 => format!("mov %{register}, {address}"),
            3 => format!("add %{register}, {address}"),
            4 => format!("xor {address}, %{register}"),
            5 => format!("incl {address}"),
            _ => format!("prefetcht0 {address}"),
        };
        self.line(&line);
    }

    fn stack(&mut self) {
        let (one, two) = (self.random.pick(&WORK), self.random.pick(&WORK));
        self.line(&format!("push %{one}"));
        if self.random.one_in(2) {
            self.line("pushfq");
            self.line("popfq");
        }
        self.line(&format!("pop %{two}"));
    }

    fn vector(&mut self) {
        let address = self.address();
        for line in [
            format!("movdqu {address}, %xmm1"),
            "paddd %xmm1, %xmm2".into(),
            format!("movups %xmm2, {address}"),
        ] {
            self.line(&line);
        }
    }

    fn string(&mut self) {
        let most = if self.random.one_in(3) { 150 } else { 20 };
        let count = self.random.below(most);
        // Elements may span lines, or not.
        let step = if self.random.one_in(2) { 8 } else { 1 };
        let down = self.random.one_in(4);
        // As far as it may go down.
        let least = if down { 1200 } else { 0 };
        let from = least + self.random.below(1000 / step) * step;
        let to = least + self.random.below(1000 / step) * step;
        let what = self.random.pick(&["rep movsb", "rep stosq", "rep movsl", "rep lodsb", "movsq"]);
        self.line(&format!("mov ${count}, %ecx"));
        self.line(&format!("lea {from}(%rbx), %rsi"));
        self.line(&format!("lea {to}(%rbx), %rdi"));
        if down {
            self.line("std");
        }
        self.line(what);
        if down {
            self.line("cld");
        }
    }

    /// LWPINS or LWPVAL; the former's carry is used.
    fn insert(&mut self) {
        let flags = self.random.below(0x1_0000);
        let wide = self.random.one_in(2);
        let data2 = self.random.pick(if wide { &WORK } else { &WORK_32 });
        let data1 = match self.random.one_in(3) {
            true => self.address(),
            false => format!("%{}", self.random.pick(&WORK_32)),
        };
        let mnemonic = self.random.pick(&["lwpins", "lwpval", "lwpval"]);
        self.line(&format!("{mnemonic} ${flags:#x}, {data1}, %{data2}"));
        if self.random.one_in(2) {
            self.line("adc $0, %r12d");
        }
    }

    /// Flushing, pausing, making room, changing what may be changed while LWP is off.
    fn profile(&mut self) {
        let register = self.random.pick(&WORK);
        let (tail_at, slots_at) = if self.proposal { (20, 40) } else { (64, 128) };
        match self.random.below(6) {
            0 => self.line(&format!("slwpcb %{register}")),
            1 => self.line("llwpcb %r14"),
            2 => {
                // The head may be behind by a record until it is flushed.
                self.line("slwpcb %rcx");
                self.line("mov block+16(%rip), %ecx");
                self.line(&format!("mov %ecx, block+{tail_at}(%rip)"));
            }
            3 => {
                let tail = self.random.below(1024) / 32 * 32;
                self.line(&format!("movl ${tail}, block+{tail_at}(%rip)"));
            }
            4 => {
                let interval = self.random.below(9);
                let event = self.random.below(3);
                let kind = if self.proposal { 1 + self.random.below(3) } else { 0 };
                let (at, interval) = (slots_at + 8 * event, interval | kind << 26);
                self.line("llwpcb %r15");
                self.line(&format!("movl ${interval}, block+{at}(%rip)"));
                self.line("llwpcb %r14");
            }
            _ => {
                self.line("llwpcb %r15");
                self.line("nop");
                self.line("llwpcb %r14");
            }
        }
    }

    fn call(&mut self) {
        let function = self.random.pick(&["leaf", "nested"]);
        match self.random.below(3) {
            0 => {
                self.line(&format!("mov ${function}, %r11d"));
                self.line("call *%r11");
            }
            _ => self.line(&format!("call {function}")),
        }
    }

    fn indirect_jump(&mut self) {
        let label = self.label();
        self.line(&format!("mov ${label}, %r11d"));
        self.line("jmp *%r11");
        self.line("ud2");
        self.place(&label);
    }

    fn repeat(&mut self, depth: u32) {
        let (label, times) = (self.label(), 1 + self.random.below(8));
        let with_loop = depth == 0;
        match with_loop {
            // Nothing inside may use rcx.
            true => self.line(&format!("mov ${times}, %ecx")),
            false => self.line(&format!("movl ${times}, scratch+4088(%rip)")),
        }
        self.place(&label);
        for _ in 0..1 + self.random.below(4) {
            match with_loop {
                true => self.arithmetic(),
                false => self.statement(0),
            }
        }
        match with_loop {
            true => self.line(&format!("loop {label}")),
            false => {
                self.line("decl scratch+4088(%rip)");
                self.line(&format!("jg {label}"));
            }
        }
    }

    fn forward(&mut self, depth: u32) {
        let label = self.label();
        let line = match self.random.below(8) {
            0 => format!("jmp {label}"),
            1 => {
                let count = self.random.below(2);
                self.line(&format!("mov ${count}, %ecx"));
                format!("jrcxz {label}")
            }
            _ => format!("j{} {label}", self.random.pick(&CONDITIONS)),
        };
        self.line(&line);
        for _ in 0..self.random.below(4) {
            self.statement(depth);
        }
        self.place(&label);
    }
}

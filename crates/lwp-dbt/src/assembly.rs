//! The routines that every arena starts with: the mailbox, its answers, and the way back from a
//! signal handler.
//!
//! The routines are position independent. Those in this file don't change flags unless they have
//! saved them in their slot: they only use `mov`, `lea`, `xchg`, `jrcxz`, `movzx`, `pext` and
//! `syscall`, which preserve flags. Until an answer has been carried out, every instruction here
//! means "at the requested application pc, nothing executed", so a request can be dropped at any
//! point.
//!
//! Only the build script assembles the routines (`prepared.rs` has the result). Of this crate, it
//! includes this module and what it uses: routines, contexts, state maps and addresses.

use iced_x86::IcedError;
use iced_x86::code_asm::{
    AsmRegister64, CodeAssembler, CodeLabel, al, byte_ptr, cx, dword_ptr, eax, ecx, edi, edx, esi,
    qword_ptr, r8, r9, r9d, r10, r10d, r11, r11d, r12, r13, r14, r15, rax, rbp, rbx, rcx, rdi, rdx,
    rsi, rsp,
};

use crate::context::{Layout, NO_PROCESSOR, PROCESSOR_SEGMENT, RequestKind, Slot};
use crate::routines::{
    AskRoutines, BATCH_WORDS, LwpRoutines, MoveIn, NAME_TAG_BYTES, Routines, SIGFRAME_RIP,
    TouchRoutines,
};
use crate::state_map::{AppState, Commit, PcSource, Spills};

mod calls;
mod calls_alone;
mod cpuid;
mod lwp;
mod transfers;

const SYS_FUTEX: u32 = 202;
const FUTEX_WAIT: u32 = 0;
const FUTEX_WAKE: u32 = 1;
struct Builder {
    asm: CodeAssembler,
    layout: Layout,
    marks: Vec<(CodeLabel, AppState)>,
}

type Emit = Result<(), IcedError>;

impl Builder {
    fn slot(slot: Slot) -> iced_x86::code_asm::AsmMemoryOperand {
        qword_ptr(slot as u32 as i32).gs()
    }

    fn slot32(slot: Slot) -> iced_x86::code_asm::AsmMemoryOperand {
        dword_ptr(slot as u32 as i32).gs()
    }

    /// From here on the application's state is `state`.
    fn mark(&mut self, state: AppState) -> Result<CodeLabel, IcedError> {
        let mut label = self.asm.create_label();
        self.asm.set_label(&mut label)?;
        // A label may be set only once per instruction; an explicit anchor keeps marks adjacent to
        // other labels possible.
        self.asm.zero_bytes()?;
        self.marks.push((label, state));
        Ok(label)
    }
}

const BOTH: Spills =
    Spills { rcx: true, r11: true, rax: false, mailbox: false, lookup: false, flags: false };
const ALL: Spills = Spills { rax: true, mailbox: true, ..BOTH };
const ALL_AND_FLAGS: Spills = Spills { flags: true, ..ALL };

fn state(pc: PcSource, spills: Spills, commit: Commit) -> AppState {
    AppState { commit, spills, ..AppState::at(pc) }
}

/// Assembles the routines for address spaces of this layout.
pub fn assemble(layout: Layout) -> Result<Routines, IcedError> {
    let mut b = Builder { asm: CodeAssembler::new(64)?, layout, marks: Vec::new() };
    let mut save = b.asm.create_label();
    let mut go = b.asm.create_label();
    let mut run = b.asm.create_label();

    let landed = Commit::SigreturnLanded;
    let sigreturn = emit_landing(&mut b, layout, PcSource::ContextSigPc, Slot::SigPc, landed)?;
    let enter = emit_landing(&mut b, layout, PcSource::ContextPc, Slot::Pc, Commit::None)?;
    let mut ring = b.asm.create_label();
    let (ask_rcx, ask_r11) = emit_ask(&mut b, &mut save)?;
    emit_ring_and_wait(&mut b, &mut ring)?;
    emit_go(&mut b, &mut go)?;
    emit_run(&mut b, &mut run, save)?;
    let run_and_go = emit_run_and_go(&mut b)?;
    let lwp = lwp::emit(&mut b, ring)?;
    let ask_cpuid = cpuid::emit(&mut b, layout, ring)?;
    let batch = emit_batch(&mut b)?;
    let move_in = emit_move_in(&mut b, layout, go)?;
    let called = calls::emit(&mut b, ring)?;
    let transfers = transfers::emit(&mut b, ring)?;
    let ask_call = calls_alone::emit(&mut b, ring, run_and_go)?;

    let options = iced_x86::BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let result = b.asm.assemble_options(0, options)?;
    let at = |label: &CodeLabel| result.label_ip(label).map(|ip| ip as u32);
    let all = |labels: &[CodeLabel; 6]| -> Result<[u32; 6], IcedError> {
        let mut all = [0; 6];
        for (place, label) in all.iter_mut().zip(labels) {
            *place = at(label)?;
        }
        Ok(all)
    };
    let mut ways = [0; 6];
    for (place, label) in ways.iter_mut().zip(&transfers) {
        *place = at(label)?;
    }
    let mut states = Vec::new();
    for (label, state) in &b.marks {
        states.push((at(label)?, *state));
    }
    Ok(Routines {
        ask: AskRoutines {
            r11: at(&ask_r11)?,
            cpuid: at(&ask_cpuid)?,
            call: at(&ask_call)?,
            rcx: at(&ask_rcx)?,
        },
        sigreturn: at(&sigreturn)?,
        enter: at(&enter)?,
        go: at(&go)?,
        run: at(&run)?,
        run_and_go: at(&run_and_go)?,
        batch: at(&batch)?,
        move_in: MoveIn {
            start: at(&move_in[0])?,
            opened: at(&move_in[1])?,
            made: at(&move_in[2])?,
            end: at(&move_in[3])?,
        },
        called: at(&called)?,
        transfers: ways,
        lwp: LwpRoutines {
            touches: TouchRoutines {
                quick: all(&lwp.touches.touch)?,
                quick_dead: all(&lwp.touches.touch_dead)?,
                any: at(&lwp.touches.touch_any)?,
                repeat_ready: at(&lwp.touches.repeat_ready)?,
                repeat_walk: at(&lwp.touches.repeat_walk)?,
            },
            insert: at(&lwp.insert)?,
            sample: at(&lwp.sample)?,
            flush: at(&lwp.flush)?,
            load: at(&lwp.load)?,
            deal: at(&lwp.deal)?,
            due: at(&lwp.due)?,
            stepped: at(&lwp.stepped)?,
            branched: at(&lwp.branched)?,
            touch_read: at(&lwp.touch_read)?,
            touch_write: at(&lwp.touch_write)?,
        },
        code: result.inner.code_buffer.into(),
        states: states.into(),
    })
}

/// Target:  the application continues at the pc in `slot`, with every register its own
/// Patch:   spill rcx, r11; rcx := slot; jump through the indirect table
///
/// The way back from a signal handler also puts the frame's rip back, for whoever looks at the
/// frame again.
fn emit_landing(
    b: &mut Builder,
    layout: Layout,
    pc: PcSource,
    slot: Slot,
    commit: Commit,
) -> Result<CodeLabel, IcedError> {
    let label = b.mark(state(pc, Spills::default(), commit))?;
    b.asm.mov(Builder::slot(Slot::Rcx), rcx)?;
    b.mark(state(pc, Spills { rcx: true, ..Spills::default() }, commit))?;
    b.asm.mov(Builder::slot(Slot::R11), r11)?;
    b.mark(state(pc, BOTH, commit))?;
    b.asm.mov(rcx, Builder::slot(slot))?;
    if commit == Commit::SigreturnLanded {
        b.asm.mov(r11, Builder::slot(Slot::SigFrame))?;
        b.asm.mov(qword_ptr(r11 + SIGFRAME_RIP), rcx)?;
    }
    b.mark(state(pc, BOTH, Commit::None))?;
    emit_table_jump(b, layout)?;
    Ok(label)
}

/// Jumps through the indirect table to the pc in rcx.
fn emit_table_jump(b: &mut Builder, layout: Layout) -> Emit {
    match b.layout.features.wide_index {
        true => b.asm.pext(r11d, ecx, dword_ptr(layout.index_mask() as i32))?,
        false => b.asm.movzx(r11d, cx)?,
    }
    b.asm.jmp(qword_ptr(r11 * 8 + layout.table() as i32))
}

/// Saves what the mailbox borrows and stores the request.
fn emit_ask(b: &mut Builder, save: &mut CodeLabel) -> Result<(CodeLabel, CodeLabel), IcedError> {
    let ask_rcx = b.mark(state(PcSource::Rcx, BOTH, Commit::None))?;
    b.asm.mov(Builder::slot(Slot::Pc), rcx)?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::Indirect as u32)?;
    b.mark(state(PcSource::ContextPc, BOTH, Commit::Mailbox))?;
    let mut join = b.asm.create_label();
    b.asm.jmp(join)?;

    // The kind of the request has been named: it is one from here on.
    let named = Commit::Mailbox;
    let ask_r11 = b.mark(state(PcSource::R11, Spills { r11: true, ..Spills::default() }, named))?;
    b.asm.mov(Builder::slot(Slot::Rcx), rcx)?;
    b.mark(state(PcSource::R11, BOTH, named))?;
    b.asm.mov(Builder::slot(Slot::Pc), r11)?;
    b.mark(state(PcSource::ContextPc, BOTH, Commit::Mailbox))?;
    b.asm.set_label(&mut join)?;
    b.asm.zero_bytes()?;
    b.asm.set_label(save)?;
    for (slot, register) in saved_registers() {
        b.asm.mov(Builder::slot(slot), register)?;
    }
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    Ok((ask_rcx, ask_r11))
}

/// Puts the flags into their slot; changes rax.
fn save_flags(b: &mut Builder) -> Emit {
    b.asm.lahf()?;
    b.asm.seto(al)?;
    b.asm.mov(Builder::slot(Slot::LwpFlags), rax)
}

/// LAHF and SETO the other way round: adding 127 to 1 overflows.
fn restore_flags(b: &mut Builder) -> Emit {
    b.asm.mov(rax, Builder::slot(Slot::LwpFlags))?;
    b.asm.add(al, 0x7f)?;
    b.asm.sahf()
}

/// Says which processor this is. LSL touches the zero flag; where there is no such segment, nothing
/// else.
fn emit_processor(b: &mut Builder) -> Emit {
    save_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL_AND_FLAGS, Commit::Mailbox))?;
    b.asm.mov(edx, PROCESSOR_SEGMENT)?;
    b.asm.mov(rcx, NO_PROCESSOR as i64)?;
    b.asm.lsl(ecx, edx)?;
    b.asm.mov(Builder::slot(Slot::Processor), rcx)?;
    restore_flags(b)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    Ok(())
}

/// Rings the host's door, spins, then sleeps until there is an answer.
fn emit_ring_and_wait(b: &mut Builder, ring: &mut CodeLabel) -> Emit {
    b.asm.set_label(ring)?;
    b.asm.zero_bytes()?;
    emit_processor(b)?;
    let asm = &mut b.asm;
    let mut spin = asm.create_label();
    let mut again = asm.create_label();
    let mut sleep = asm.create_label();
    let mut answered = asm.create_label();
    let mut allowed = asm.create_label();
    let mut wait = asm.create_label();
    let mut wake = asm.create_label();

    for (slot, register) in shown_registers() {
        asm.mov(Builder::slot(slot), register)?;
    }
    asm.mov(eax, 0u32)?;
    asm.mov(Builder::slot(Slot::Resp), rax)?;
    asm.mov(Builder::slot32(Slot::Wait), eax)?;
    asm.mov(rdi, Builder::slot(Slot::DoorFlag))?;
    asm.mov(eax, 1u32)?;
    // xchg with memory is a full fence: the flag is seen before the sleep word is read.
    asm.xchg(byte_ptr(rdi), al)?;
    asm.mov(rdi, Builder::slot(Slot::DoorSleep))?;
    asm.mov(ecx, dword_ptr(rdi))?;
    asm.jrcxz(spin)?;
    asm.mov(rcx, Builder::slot(Slot::NoSyscalls))?;
    asm.jrcxz(wake)?;
    asm.jmp(spin)?;
    asm.set_label(&mut wake)?;
    asm.mov(eax, 0u32)?;
    asm.xchg(dword_ptr(rdi), eax)?;
    asm.mov(ecx, eax)?;
    asm.jrcxz(spin)?;
    asm.mov(esi, FUTEX_WAKE)?;
    asm.mov(edx, 1u32)?;
    asm.mov(eax, SYS_FUTEX)?;
    asm.syscall()?;

    asm.set_label(&mut spin)?;
    asm.mov(rdx, Builder::slot(Slot::Spin))?;
    asm.set_label(&mut again)?;
    asm.mov(rcx, Builder::slot(Slot::Resp))?;
    let mut none_yet = asm.create_label();
    asm.jrcxz(none_yet)?;
    asm.set_label(&mut answered)?;
    asm.jmp(rcx)?;
    asm.set_label(&mut none_yet)?;
    asm.mov(rcx, rdx)?;
    asm.jrcxz(sleep)?;
    asm.pause()?;
    asm.lea(rdx, qword_ptr(rdx - 1))?;
    asm.jmp(again)?;

    asm.set_label(&mut sleep)?;
    asm.mov(rcx, Builder::slot(Slot::NoSyscalls))?;
    asm.jrcxz(allowed)?;
    asm.mov(edx, 1000u32)?;
    asm.jmp(again)?;
    asm.set_label(&mut allowed)?;
    asm.mov(eax, 1u32)?;
    asm.xchg(Builder::slot32(Slot::Wait), eax)?;
    asm.mov(rcx, Builder::slot(Slot::Resp))?;
    asm.jrcxz(wait)?;
    asm.jmp(rcx)?;
    asm.set_label(&mut wait)?;
    asm.mov(rdi, Builder::slot(Slot::This))?;
    asm.lea(rdi, qword_ptr(rdi + Slot::Wait as u32 as i32))?;
    asm.mov(esi, FUTEX_WAIT)?;
    asm.mov(edx, 1u32)?;
    asm.mov(r10d, 0u32)?;
    asm.mov(eax, SYS_FUTEX)?;
    asm.syscall()?;
    asm.mov(rcx, Builder::slot(Slot::Resp))?;
    let mut still_none = asm.create_label();
    asm.jrcxz(still_none)?;
    asm.jmp(rcx)?;
    asm.set_label(&mut still_none)?;
    asm.jmp(sleep)
}

/// Answer: insert the listed entries into the indirect table, then go on.
///
/// An entry goes to the head of its table slot's chain: its chain slot takes the old head. Between
/// the two stores a reader that passes the new entry finds its chain slot still at `ask_rcx`, which
/// costs that reader a request and nothing else.
fn emit_go(b: &mut Builder, go: &mut CodeLabel) -> Emit {
    b.mark(state(PcSource::ContextPc, ALL, Commit::Applying(0)))?;
    let mut done = b.asm.create_label();
    let mut again = b.asm.create_label();
    b.asm.set_label(go)?;
    b.asm.mov(rdx, Builder::slot(Slot::ApplyCount))?;
    b.asm.mov(r10, Builder::slot(Slot::ApplyAt))?;
    b.asm.set_label(&mut again)?;
    b.asm.mov(rcx, rdx)?;
    b.asm.jrcxz(done)?;
    b.asm.lea(rdx, qword_ptr(rdx - 1))?;
    b.asm.lea(rcx, qword_ptr(rdx + rdx * 2))?;
    b.asm.lea(rcx, qword_ptr(r10 + rcx * 8))?;
    b.asm.mov(rsi, qword_ptr(rcx))?;
    b.asm.mov(rdi, qword_ptr(rcx + 8))?;
    b.asm.mov(rax, qword_ptr(rcx + 16))?;
    b.asm.xchg(qword_ptr(rsi), rax)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Applying(1)))?;
    b.asm.mov(qword_ptr(rdi), rax)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Applying(2)))?;
    b.asm.mov(Builder::slot(Slot::ApplyCount), rdx)?;
    b.mark(state(PcSource::ContextPc, ALL, Commit::Applying(0)))?;
    b.asm.jmp(again)?;
    b.asm.set_label(&mut done)?;
    restore_all(b)?;
    b.asm.mov(rcx, Builder::slot(Slot::Rcx))?;
    b.asm.mov(r11, Builder::slot(Slot::R11))?;
    b.asm.jmp(Builder::slot(Slot::Go))
}

/// Begins a request that a routine may answer: the pc is in r11, whose application value is in its
/// slot. Saves it, and all registers.
fn begin_request(b: &mut Builder) -> Result<CodeLabel, IcedError> {
    let r11_saved = Spills { r11: true, ..Spills::default() };
    let start = b.mark(state(PcSource::R11, r11_saved, Commit::Mailbox))?;
    b.asm.mov(Builder::slot(Slot::Rcx), rcx)?;
    b.mark(state(PcSource::R11, BOTH, Commit::Mailbox))?;
    b.asm.mov(Builder::slot(Slot::Pc), r11)?;
    b.mark(state(PcSource::ContextPc, BOTH, Commit::Mailbox))?;
    for (slot, register) in saved_registers() {
        b.asm.mov(Builder::slot(slot), register)?;
    }
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    Ok(start)
}

/// Returns the registers that the mailbox saves and restores, beside rcx and r11.
fn saved_registers() -> [(Slot, AsmRegister64); 8] {
    [
        (Slot::Rax, rax),
        (Slot::Rdi, rdi),
        (Slot::Rsi, rsi),
        (Slot::Rdx, rdx),
        (Slot::R10, r10),
        (Slot::Rbx, rbx),
        (Slot::R8, r8),
        (Slot::R9, r9),
    ]
}

/// Returns the registers that the mailbox leaves alone and the host may want to know: with those
/// saved, all registers.
fn shown_registers() -> [(Slot, AsmRegister64); 6] {
    [
        (Slot::Rsp, rsp),
        (Slot::Rbp, rbp),
        (Slot::R12, r12),
        (Slot::R13, r13),
        (Slot::R14, r14),
        (Slot::R15, r15),
    ]
}

fn restore_all(b: &mut Builder) -> Emit {
    for (slot, register) in saved_registers() {
        b.asm.mov(register, Builder::slot(slot))?;
    }
    Ok(())
}

/// Answer: make the system call with the registers in the slots, and report its result.
fn emit_run(b: &mut Builder, run: &mut CodeLabel, save: CodeLabel) -> Emit {
    b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    b.asm.set_label(run)?;
    restore_all(b)?;
    b.mark(state(PcSource::ContextPc, BOTH, Commit::Mailbox))?;
    b.asm.syscall()?;
    b.mark(state(PcSource::ContextNext, Spills::default(), Commit::RunSyscallDone))?;
    b.asm.mov(rcx, Builder::slot(Slot::Next))?;
    b.asm.mov(Builder::slot(Slot::Rcx), rcx)?;
    b.asm.mov(Builder::slot(Slot::R11), r11)?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::SyscallDone as u32)?;
    b.asm.mov(Builder::slot(Slot::Pc), rcx)?;
    // From here on the request says the same as the code: the pc is the next one and the kind is
    // SyscallDone.
    b.mark(state(PcSource::ContextPc, BOTH, Commit::Mailbox))?;
    b.asm.jmp(save)
}

/// Answer: make the system call with the registers in the slots, whose result nobody need know, and
/// go on.
fn emit_run_and_go(b: &mut Builder) -> Result<CodeLabel, IcedError> {
    let start = b.mark(state(PcSource::ContextPc, ALL, Commit::Mailbox))?;
    restore_all(b)?;
    b.mark(state(PcSource::ContextPc, BOTH, Commit::Mailbox))?;
    b.asm.syscall()?;
    b.mark(state(PcSource::ContextNext, Spills::default(), Commit::RunSyscallDone))?;
    b.asm.mov(Builder::slot32(Slot::Kind), RequestKind::Dispatch as u32)?;
    b.asm.mov(rcx, Builder::slot(Slot::Next))?;
    b.asm.jmp(Builder::slot(Slot::Go))?;
    Ok(start)
}

/// Makes a list of system calls in one go, for the host, which has put the list's address into rbx
/// and keeps the application's registers meanwhile.
fn emit_batch(b: &mut Builder) -> Result<CodeLabel, IcedError> {
    let start = b.mark(state(PcSource::ContextPc, ALL, Commit::None))?;
    let asm = &mut b.asm;
    let mut done = asm.create_label();
    let mut next = asm.create_label();
    asm.set_label(&mut next)?;
    asm.mov(rcx, qword_ptr(rbx))?;
    asm.jrcxz(done)?;
    asm.mov(rax, rcx)?;
    for (index, register) in [rdi, rsi, rdx, r10, r8, r9].into_iter().enumerate() {
        asm.mov(register, qword_ptr(rbx + (index as i32 + 1) * 8))?;
    }
    asm.syscall()?;
    asm.mov(qword_ptr(rbx), rax)?;
    asm.lea(rbx, qword_ptr(rbx + BATCH_WORDS as i32 * 8))?;
    asm.jmp(next)?;
    asm.set_label(&mut done)?;
    asm.int3()?;
    Ok(start)
}

/// Gives a copy that fork has made contexts of its own: see [`MoveIn`]. The flags are the
/// application's.
fn emit_move_in(
    b: &mut Builder,
    layout: Layout,
    go: CodeLabel,
) -> Result<[CodeLabel; 4], IcedError> {
    const OPEN: u32 = 2;
    const CLOSE: u32 = 3;
    const MMAP: u32 = 9;
    const MADVISE: u32 = 28;
    const MADV_DONTFORK: u32 = 10;
    const MADV_DONTDUMP: u32 = 16;
    /// Whatever the path leads to, opening it does not wait.
    const O_RDWR_CLOEXEC_NONBLOCK: u32 = 0o2_004_002;
    const PROT_NONE: u32 = 0;
    const PROT_READ_WRITE: u32 = 3;
    const MAP_SHARED_FIXED_NORESERVE: u32 = 0x4011;
    const MAP_PRIVATE_FIXED_NORESERVE: u32 = 0x4012;
    let start = b.mark(state(PcSource::ContextPc, ALL, Commit::None))?;
    let asm = &mut b.asm;
    let kept = |index: i32| qword_ptr(layout.path() as i32 + index * 8);
    for (index, word) in [r8, r9, r10, rdi, rsi].into_iter().enumerate() {
        asm.mov(kept(index as i32), word)?;
    }
    asm.mov(edi, layout.path() as u32)?;
    asm.mov(esi, O_RDWR_CLOEXEC_NONBLOCK)?;
    asm.mov(eax, OPEN)?;
    // The third argument, which is not looked at, is where the mapping goes.
    asm.syscall()?;
    let mut opened = asm.create_label();
    asm.set_label(&mut opened)?;
    asm.mov(r8, rax)?;
    // The name tag, below the contexts.
    asm.lea(rdi, qword_ptr(rdx - NAME_TAG_BYTES as i32))?;
    asm.mov(esi, NAME_TAG_BYTES as u32)?;
    asm.mov(edx, PROT_NONE)?;
    asm.mov(r10d, MAP_PRIVATE_FIXED_NORESERVE)?;
    asm.mov(r9, kept(4))?;
    asm.mov(eax, MMAP)?;
    asm.syscall()?;
    asm.lea(rdi, qword_ptr(rdi + NAME_TAG_BYTES as i32))?;
    asm.mov(rsi, rbx)?;
    asm.mov(edx, PROT_READ_WRITE)?;
    asm.mov(r10d, MAP_SHARED_FIXED_NORESERVE)?;
    asm.mov(r9d, 0u32)?;
    asm.mov(eax, MMAP)?;
    asm.syscall()?;
    asm.mov(r9, rax)?;
    for advice in [MADV_DONTDUMP, MADV_DONTFORK] {
        asm.mov(edx, advice)?;
        asm.mov(eax, MADVISE)?;
        asm.syscall()?;
    }
    asm.mov(rdx, r9)?;
    asm.mov(rsi, rdi)?;
    asm.mov(rdi, r8)?;
    asm.mov(eax, CLOSE)?;
    asm.syscall()?;
    let mut made = asm.create_label();
    asm.set_label(&mut made)?;
    // Differences, by what leaves the flags alone: of the two addresses, then of the numbers.
    let mut foreign = asm.create_label();
    let (mut mapped, mut own) = (asm.create_label(), asm.create_label());
    asm.mov(rcx, rsi)?;
    asm.not(rcx)?;
    asm.lea(rcx, qword_ptr(rcx + rdx + 1))?;
    asm.jrcxz(mapped)?;
    asm.set_label(&mut foreign)?;
    asm.int3()?;
    let mut end = asm.create_label();
    asm.set_label(&mut end)?;
    asm.zero_bytes()?;
    asm.set_label(&mut mapped)?;
    asm.mov(rcx, kept(3))?;
    asm.not(rcx)?;
    asm.mov(rdx, qword_ptr(rsi + Slot::Secret as i32))?;
    asm.lea(rcx, qword_ptr(rcx + rdx + 1))?;
    asm.jrcxz(own)?;
    asm.jmp(foreign)?;
    asm.set_label(&mut own)?;
    asm.jmp(go)?;
    Ok([start, opened, made, end])
}

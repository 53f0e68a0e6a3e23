//! The four LWP instructions, where the host executes them.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use lwp_arch::insn::{self, CodeSize, Gpr, Segment, Width};
use lwp_arch::retired::BranchKind;
use lwp_arch::{AppPc as Ip, Fault};
use lwp_dbt::{AppPc, CachePc, Lwp, RequestKind, Selection, Slot};
use lwp_model::{Data1, Insert, Registers};
use lwp_ptrace::Tid;
use lwp_ptrace::regs::{Raw, Regs, general, general_value};

use super::memory::TraceeMemory;
use super::{CPU, Executed, due};
use crate::exit::ThreadCx;
use crate::machine::{Machine, Need};
use crate::server::Backlog;

/// An address that cannot be: touching it raises #GP(0).
const NOT_CANONICAL: u64 = 1 << 63;
/// The number of times that a fault is handed to a program whose own access then succeeds.
const MOST_TOUCHES: u32 = 3;

/// The effects that an instruction has had beyond its registers.
enum Done {
    /// LLWPCB: the old address, where the processor returns it.
    Loaded(Option<u64>),
    /// SLWPCB: the address of the block.
    Stored(u64),
    /// LWPINS: whether the ring was full.
    Inserted(bool),
    /// LWPVAL.
    Sampled,
}

impl Machine {
    /// Executes the LWP instruction at the request's pc.
    pub fn lwp_instruction(&mut self, cx: ThreadCx, kind: RequestKind) -> Option<Backlog> {
        let ThreadCx { tid, slot, .. } = cx;
        let pc = self.contexts.context(slot).get(Slot::Pc);
        let Some(instruction) = decode(tid, pc) else {
            self.ask_tracer(tid, Need::Step);
            return None;
        };
        if kind == RequestKind::Llwpcb && self.processor.emulated.fills {
            // The host writes records, and could not where pages are guarded.
            self.do_without_notices(tid);
            if self.has_released(tid) {
                self.ask_tracer(tid, Need::Guard);
                return None;
            }
        }
        let in_cut = self.lwp_reach_end_of_cut(tid);
        self.lwp_collect_but(tid, in_cut.then_some(pc));
        match self.lwp_execute(tid, slot, kind, &instruction) {
            Ok(done) => {
                let charged = !in_cut && matches!(kind, RequestKind::Lwpins | RequestKind::Lwpval);
                self.lwp_done(tid, in_cut, kind);
                self.lwp_complete(cx, &instruction, done, charged)
            }
            Err(fault) => {
                self.lwp_fault(tid, slot, fault);
                None
            }
        }
    }

    fn lwp_execute(
        &mut self,
        tid: Tid,
        slot: usize,
        kind: RequestKind,
        instruction: &Instruction,
    ) -> Result<Done, Fault> {
        let timestamp = self.lwp_timestamp();
        let context = self.contexts.context(slot);
        let (operand, data) = (context.get(Slot::LwpOperand), context.get(Slot::LwpData));
        let (Some(thread), Some(config)) = (self.tasks.threads.get_mut(&tid), &self.config.lwp)
        else {
            return Err(Fault::Ud);
        };
        let lwp = thread.lwp_begin(config, &self.config);
        lwp.surroundings.timestamp = timestamp;
        let width = match instruction.op0_register().is_gpr64() {
            true => Width::W64,
            false => Width::W32,
        };
        let mut memory = TraceeMemory::new(tid);
        let (unit, signals) = (&mut lwp.unit, &mut lwp.surroundings);
        let insert = || Insert {
            ip: Ip(instruction.ip()),
            flags: instruction.immediate32() as u16,
            data1: Data1::Register(data as u32),
            data2: width.truncate(operand),
        };
        let done = match kind {
            RequestKind::Llwpcb => {
                let old = unit.llwpcb(&CPU, width.truncate(operand), &mut memory, signals);
                let loaded = old.and_then(|old| unit.settle(&mut memory).map(|()| old));
                if loaded.is_err() && !unit.is_on() {
                    thread.lwp_end();
                }
                Done::Loaded(loaded?)
            }
            RequestKind::Slwpcb => Done::Stored(unit.slwpcb(&CPU, width, &mut memory, signals)?),
            RequestKind::Lwpins => {
                Done::Inserted(unit.lwpins(&CPU, &insert(), &mut memory, signals)?)
            }
            _ => {
                unit.lwpval(&CPU, &insert(), &mut memory, signals)?;
                Done::Sampled
            }
        };
        Ok(done)
    }

    /// The instruction has been executed: a cut fragment that it ended is over.
    fn lwp_done(&mut self, tid: Tid, in_cut: bool, kind: RequestKind) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let pc = thread.lwp.as_ref().and_then(|lwp| lwp.cut.as_ref()?.pcs.last().copied());
        if in_cut {
            let one = lwp_dbt::EventDeltas { instructions: 1, ..lwp_dbt::EventDeltas::default() };
            thread.account.correction.add(one, 1);
        }
        if let Some(lwp) = &mut thread.lwp {
            lwp.cut = None;
            lwp.touched = 0;
            if kind == RequestKind::Llwpcb
                && let Some(config) = &self.config.lwp
            {
                lwp.start(config);
            }
        }
        if let Some(pc) = pc.filter(|_| in_cut) {
            self.note_place(tid, |places| places.stepped(pc, 1));
        }
    }

    /// Retires the instruction, if it has not been charged, and lets the thread go on behind it.
    fn lwp_complete(
        &mut self,
        cx: ThreadCx,
        instruction: &Instruction,
        done: Done,
        charged: bool,
    ) -> Option<Backlog> {
        let ThreadCx { tid, slot, .. } = cx;
        let (pc, next) = (instruction.ip(), instruction.next_ip());
        if !charged {
            self.lwp_retire(tid, &Executed::plain(pc, next));
        }
        self.lwp_interrupt(tid);
        self.lwp_publish(tid);
        let context = self.contexts.context(slot);
        context.set(Slot::Pc, next);
        context.set(Slot::Kind, RequestKind::Dispatch as u64);
        let after = CachePc(context.get(Slot::LwpAfter));
        let (pending, data) = match done {
            Done::Loaded(old) => {
                if let Some(old) = old {
                    context.set(Slot::Rax, old);
                }
                return self.lwp_switch(cx, AppPc(next));
            }
            Done::Inserted(full) => (1, u64::from(full)),
            Done::Stored(block) => (2, block),
            Done::Sampled => (0, 0),
        };
        context.set(Slot::LwpData, data);
        context.set(Slot::LwpPending, pending);
        self.go(tid, slot, AppPc(next), after);
        None
    }

    /// Executes the LWP instruction at the application's pc, if it is one, where translated code
    /// cannot. Returns the registers afterwards; `None` also where it faults, which executing it
    /// natively does too.
    pub fn lwp_step(&mut self, tid: Tid, app: &Regs) -> Option<Regs> {
        self.config.lwp.as_ref()?;
        let pc = app.0.rip;
        let mut bytes = [0; 15];
        let got = lwp_ptrace::sys::read_memory(tid, pc, &mut bytes).unwrap_or(0);
        let instruction = insn::decode(&bytes[..got], CodeSize::Bits64).ok()?;
        self.lwp_collect(tid);
        self.lwp_look_for_core(tid);
        let timestamp = self.lwp_timestamp();
        let gs_base = self.context(tid).map_or(0, |context| context.get(Slot::AppGs));
        let mut registers = Stopped { regs: app.0, gs_base };
        let config = self.config.lwp.as_ref()?;
        let thread = self.tasks.threads.get_mut(&tid)?;
        let lwp = thread.lwp_begin(config, &self.config);
        lwp.surroundings.timestamp = timestamp;
        let mut memory = TraceeMemory::new(tid);
        let (unit, signals) = (&mut lwp.unit, &mut lwp.surroundings);
        let executed =
            unit.execute(&CPU, &instruction, Ip(pc), &mut registers, &mut memory, signals);
        let settled = executed.and_then(|()| lwp.unit.settle(&mut memory));
        if instruction.mnemonic == insn::Mnemonic::Llwpcb {
            lwp.start(config);
        }
        if !lwp.unit.is_on() {
            thread.lwp_end();
        }
        settled.ok()?;
        let next = pc + u64::from(instruction.length);
        let one = lwp_dbt::EventDeltas { instructions: 1, ..lwp_dbt::EventDeltas::default() };
        thread.account.correction.add(one, 1);
        self.lwp_retire(tid, &Executed::plain(pc, next));
        self.lwp_publish(tid);
        registers.regs.rip = next;
        Some(Regs(registers.regs))
    }

    /// A profile has been loaded or ended: the thread goes on at `pc` on the side that counts for
    /// it.
    fn lwp_switch(&mut self, cx: ThreadCx, pc: AppPc) -> Option<Backlog> {
        let ThreadCx { tid, .. } = cx;
        let thread = self.tasks.threads.get_mut(&tid)?;
        match &thread.lwp {
            Some(lwp) if lwp.unit.is_on() => {
                let selection = lwp.selection;
                match self.lwp_side(tid, selection) {
                    Some(side) => self.change_side(tid, Some(side)),
                    None => {
                        self.ask_tracer(tid, Need::Side);
                        return None;
                    }
                }
            }
            _ => {
                thread.lwp_end();
                self.change_side(tid, None);
            }
        }
        self.dispatch(cx, pc, false)
    }

    /// The side of a thread's address space on which `selection` is counted down.
    pub fn lwp_side(&self, tid: Tid, selection: Selection) -> Option<usize> {
        let base = self.tasks.processes.get(&self.tasks.threads.get(&tid)?.pid)?.space;
        let sides = &self.caches.spaces.get(base)?.as_ref()?.sides;
        sides.iter().find(|(one, _)| *one == selection).map(|(_, side)| *side)
    }

    /// Returns whether a thread runs translations that count down something else than its profile
    /// wants.
    pub fn lwp_is_elsewhere(&mut self, tid: Tid) -> bool {
        let Some(thread) = self.tasks.threads.get(&tid) else { return false };
        let wanted = thread.lwp.as_ref().map(|lwp| lwp.selection);
        let counted = match self.space_of(tid).map(|(_, family)| family.translator.lwp()) {
            Some(Lwp::On(selection)) => Some(selection),
            _ => None,
        };
        wanted != counted
    }

    /// Hands a fault of the unit to the program, at the request's pc: by touching what the unit
    /// could not reach, or by executing what is not defined. Should the touch succeed, the request
    /// is made again.
    pub(super) fn lwp_fault(&mut self, tid: Tid, slot: usize, fault: Fault) {
        let (address, write) = match fault {
            Fault::Pf(fault) => (fault.address.0, fault.write),
            Fault::Gp0 => (NOT_CANONICAL, false),
            _ => {
                self.ask_tracer(tid, Need::Step);
                return;
            }
        };
        let touched =
            self.tasks.threads.get_mut(&tid).and_then(|thread| thread.lwp.as_mut()).map(|lwp| {
                lwp.touched += 1;
                lwp.touched
            });
        let Some((_, family)) = self.space_of(tid) else { return };
        let routines = family.translator.routines();
        let tail = match write {
            true => routines.lwp.touch_write,
            false => routines.lwp.touch_read,
        };
        let tail = family.routine(tail);
        if touched.is_some_and(|times| times > MOST_TOUCHES) {
            // The program can reach it and the host cannot: such memory cannot hold a profile.
            lwp_terminal::say!(
                "lwp: thread {tid}: cannot reach {address:#x} for it; its profile ends"
            );
            if let Some(thread) = self.tasks.threads.get_mut(&tid) {
                thread.lwp_end();
            }
            self.change_side(tid, None);
            self.ask_tracer(tid, Need::Step);
            return;
        }
        let context = self.contexts.context(slot);
        context.set(Slot::LwpTouch, address);
        context.answer(tail);
    }
}

/// The registers of a stopped thread.
struct Stopped {
    regs: Raw,
    gs_base: u64,
}

impl Registers for Stopped {
    fn gpr(&self, register: Gpr) -> u64 {
        general_value(&self.regs, register.number())
    }

    fn set_gpr(&mut self, register: Gpr, value: u64) {
        *general(&mut self.regs, register.number()) = value;
    }

    fn segment_base(&self, segment: Segment) -> u64 {
        match segment {
            Segment::Fs => self.regs.fs_base,
            Segment::Gs => self.gs_base,
            _ => 0,
        }
    }

    fn set_carry(&mut self, carry: bool) {
        self.regs.eflags = self.regs.eflags & !1 | u64::from(carry);
    }
}

/// The instruction at `pc`.
pub(super) fn decode(tid: Tid, pc: u64) -> Option<Instruction> {
    let mut bytes = [0; 15];
    let got = lwp_ptrace::sys::read_memory(tid, pc, &mut bytes).unwrap_or(0);
    let mut decoder = Decoder::with_ip(64, &bytes[..got], pc, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// The facts that the unit is told about an instruction that was executed natively.
pub(super) fn classify(tid: Tid, pc: u64, next: u64) -> Executed {
    let plain = Executed::plain(pc, next);
    let Some(instruction) = decode(tid, pc) else { return plain };
    let plain = Executed { fall_through: instruction.next_ip(), ..plain };
    if due::crosses_privilege(instruction.mnemonic()) {
        return Executed { crosses_privilege: true, ..plain };
    }
    let far = instruction.is_jmp_far()
        || instruction.is_call_far()
        || instruction.is_jmp_far_indirect()
        || instruction.is_call_far_indirect()
        || instruction.mnemonic() == iced_x86::Mnemonic::Retf;
    let direct = matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch64);
    let kind = match instruction.flow_control() {
        _ if far => BranchKind::FarTransfer,
        FlowControl::ConditionalBranch => BranchKind::Conditional,
        FlowControl::UnconditionalBranch if direct => BranchKind::DirectJump,
        FlowControl::IndirectBranch => BranchKind::IndirectJump,
        FlowControl::Call if direct => BranchKind::DirectCall,
        FlowControl::IndirectCall => BranchKind::IndirectCall,
        FlowControl::Return => BranchKind::Return,
        _ => return plain,
    };
    let taken = kind != BranchKind::Conditional || next != instruction.next_ip();
    Executed { branch: Some((kind, taken)), ..plain }
}

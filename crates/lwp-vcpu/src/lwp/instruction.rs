//! The four LWP instructions, if the host executes them.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use lwp_arch::insn::{self, CodeSize, Gpr, Segment, Width};
use lwp_arch::retired::BranchKind;
use lwp_arch::{AppPc as Ip, Fault};
use lwp_dbt::{AppPc, CachePc, EventDeltas, Lwp, RequestKind, Slot};
use lwp_model::{Data1, Insert, LinearMemory, Registers};
use lwp_process::Tid;
use lwp_process::regs::{Raw, Regs, general, general_value};
use lwp_run::config::{Config, LwpConfig};

use super::Profiling;
use super::memory::TraceeMemory;
use super::{CPU, Executed, due};
use crate::machine::{CodeCaches, Need, Observers, Stamp, Tasks, Thread};
use crate::server::{Answer, Backlog};

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

impl Answer<'_> {
    /// Executes the LWP instruction at the request's pc.
    pub fn lwp_instruction(&mut self, kind: RequestKind) -> Option<Backlog> {
        let tid = self.cx.tid;
        let pc = self.context().get(Slot::Pc);
        let Some(instruction) = decode(tid, pc) else {
            self.machine.ask_tracer(tid, Need::Step);
            return None;
        };
        self.machine.processor.lwp_was_found.set(true);
        if kind == RequestKind::Llwpcb && self.machine.processor.emulated.fills {
            // The host writes records, and could not where pages are guarded.
            self.machine.guarding().do_without_notices(tid);
            if self.machine.caches.of(&self.machine.tasks).has_released(tid) {
                self.machine.ask_tracer(tid, Need::Guard);
                return None;
            }
        }
        let thread = self.machine.tasks.threads.get_mut(&tid)?;
        let in_cut = thread.reach_end_of_cut(&self.machine.observers);
        if let Some(mut profiled) = self.machine.tasks.profiled(&self.machine.contexts, tid) {
            profiled.collect_but(in_cut.then_some(pc));
        }
        let stamp = self.machine.processor.stamp();
        let context = self.context();
        let asked = Asked {
            kind,
            instruction: &instruction,
            operand: context.get(Slot::LwpOperand),
            data: context.get(Slot::LwpData),
        };
        let thread = self.machine.tasks.threads.get_mut(&tid)?;
        let memory = &mut TraceeMemory::new(tid);
        match thread.lwp_execute(&self.machine.config, &asked, stamp, memory) {
            Ok(done) => {
                let charged = !in_cut && matches!(kind, RequestKind::Lwpins | RequestKind::Lwpval);
                if in_cut {
                    thread.lwp_end_cut(&self.machine.observers);
                }
                thread.lwp_done(
                    self.machine.config.lwp.as_ref().filter(|_| kind == RequestKind::Llwpcb),
                );
                self.machine.counting().pass_corrections(tid);
                self.lwp_complete(&instruction, done, charged)
            }
            Err(fault) => {
                self.lwp_fault(fault);
                None
            }
        }
    }

    /// Retires the instruction, if it has not been charged, and lets the thread go on behind it.
    fn lwp_complete(
        &mut self,
        instruction: &Instruction,
        done: Done,
        charged: bool,
    ) -> Option<Backlog> {
        let tid = self.cx.tid;
        let (pc, next) = (instruction.ip(), instruction.next_ip());
        if !charged {
            self.machine.profiling().lwp_retire(tid, &Executed::plain(pc, next));
        }
        self.machine.tasks.lwp_interrupt(
            &*self.machine.tracees,
            tid,
            self.machine.config.lwp.as_ref(),
        );
        self.machine.tasks.lwp_publish(&self.machine.contexts, tid);
        let context = self.context();
        context.set(Slot::Pc, next);
        context.set(Slot::Kind, RequestKind::Dispatch as u64);
        let after = CachePc(context.get(Slot::LwpAfter));
        let (pending, data) = match done {
            Done::Loaded(old) => {
                if let Some(old) = old {
                    context.set(Slot::Rax, old);
                }
                return self.lwp_switch(AppPc(next));
            }
            Done::Inserted(full) => (1, u64::from(full)),
            Done::Stored(block) => (2, block),
            Done::Sampled => (0, 0),
        };
        context.set(Slot::LwpData, data);
        context.set(Slot::LwpPending, pending);
        self.go(AppPc(next), after);
        None
    }

    /// A profile has been loaded or ended: the thread goes on at `pc` on the side that counts for
    /// it.
    pub(super) fn lwp_switch(&mut self, pc: AppPc) -> Option<Backlog> {
        let tid = self.cx.tid;
        let thread = self.machine.tasks.threads.get_mut(&tid)?;
        match &thread.lwp {
            Some(lwp) if lwp.unit.model.is_on() => {
                let selection = lwp.selection();
                let base = self.machine.tasks.base_space(tid)?;
                match self.machine.caches.side_for(base, selection) {
                    Some(side) => self.machine.change_side(tid, Some(side)),
                    None => {
                        self.machine.ask_tracer(tid, Need::Side);
                        return None;
                    }
                }
            }
            _ => {
                thread.lwp_end();
                self.machine.change_side(tid, None);
            }
        }
        self.dispatch(pc, false)
    }

    /// Hands a fault of the unit to the program, at the request's pc: by touching what the unit
    /// could not reach, or by executing what is not defined. Should the touch succeed, the request
    /// is made again.
    pub fn lwp_fault(&mut self, fault: Fault) {
        let tid = self.cx.tid;
        let (address, write) = match fault {
            Fault::Pf(fault) => (fault.address.0, fault.write),
            Fault::Gp0 => (NOT_CANONICAL, false),
            _ => {
                self.machine.ask_tracer(tid, Need::Step);
                return;
            }
        };
        let touched = self.machine.tasks.lwp_mut(tid).map(|lwp| {
            lwp.touched += 1;
            lwp.touched
        });
        let Some((_, family)) = self.machine.space_of(tid) else { return };
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
            if let Some(thread) = self.machine.tasks.threads.get_mut(&tid) {
                thread.lwp_end();
            }
            self.machine.change_side(tid, None);
            self.machine.ask_tracer(tid, Need::Step);
            return;
        }
        let context = self.context();
        context.set(Slot::LwpTouch, address);
        context.answer(tail);
    }
}

impl Profiling<'_> {
    /// Executes the LWP instruction at the application's pc, if it is one, where translated code
    /// cannot. Returns the registers afterwards; `None` also where it faults, which executing it
    /// natively does too.
    pub fn lwp_step(&mut self, tid: Tid, app: &Regs) -> Option<Regs> {
        self.config.lwp.as_ref()?;
        let pc = app.0.rip;
        let mut bytes = [0; insn::LONGEST];
        let got = lwp_process::sys::read_memory(tid, pc, &mut bytes).unwrap_or(0);
        let instruction = insn::decode(&bytes[..got], CodeSize::Bits64).ok()?;
        self.tasks.lwp_collect(self.contexts, tid);
        if let Some(lwp) = self.tasks.lwp_mut(tid) {
            lwp.unit.surroundings.look_for_core(tid);
        }
        self.processor.lwp_was_found.set(true);
        let stamp = self.processor.stamp();
        let gs_base = self.context(tid).map_or(0, |context| context.get(Slot::AppGs));
        let mut registers = Stopped { regs: app.0, gs_base };
        let thread = self.tasks.threads.get_mut(&tid)?;
        let (at, memory) = ((pc, &instruction), &mut TraceeMemory::new(tid));
        let executed = thread.lwp_execute_stopped(self.config, at, &mut registers, stamp, memory);
        executed.ok()?;
        let next = pc + u64::from(instruction.length);
        thread.account.correction.add(one(), 1);
        self.lwp_retire(tid, &Executed::plain(pc, next));
        self.tasks.lwp_publish(self.contexts, tid);
        registers.regs.rip = next;
        Some(Regs(registers.regs))
    }
}

/// An LWP instruction that translated code asks the host to execute.
struct Asked<'a> {
    kind: RequestKind,
    instruction: &'a Instruction,
    /// The value of its first operand.
    operand: u64,
    /// The first data that it inserts.
    data: u64,
}

impl Thread {
    /// Executes an LWP instruction on the thread's unit.
    fn lwp_execute<M: LinearMemory>(
        &mut self,
        run: &Config,
        asked: &Asked<'_>,
        stamp: Stamp,
        memory: &mut M,
    ) -> Result<Done, Fault> {
        let Some(config) = &run.lwp else { return Err(Fault::Ud) };
        let stamp = self.readable(stamp);
        let lwp = self.lwp_begin(config, run);
        lwp.unit.surroundings.stamp = stamp;
        let instruction = asked.instruction;
        let width = match instruction.op0_register().is_gpr64() {
            true => Width::W64,
            false => Width::W32,
        };
        let (unit, signals) = (&mut lwp.unit.model, &mut lwp.unit.surroundings);
        let insert = || Insert {
            ip: Ip(instruction.ip()),
            flags: instruction.immediate32() as u16,
            data1: Data1::Register(asked.data as u32),
            data2: width.truncate(asked.operand),
        };
        Ok(match asked.kind {
            RequestKind::Llwpcb => {
                let old = unit.llwpcb(&CPU, width.truncate(asked.operand), memory, signals);
                let loaded = old.and_then(|old| unit.settle(memory).map(|()| old));
                if loaded.is_err() && !unit.is_on() {
                    self.lwp_end();
                }
                Done::Loaded(loaded?)
            }
            RequestKind::Slwpcb => Done::Stored(unit.slwpcb(&CPU, width, memory, signals)?),
            RequestKind::Lwpins => Done::Inserted(unit.lwpins(&CPU, &insert(), memory, signals)?),
            _ => {
                unit.lwpval(&CPU, &insert(), memory, signals)?;
                Done::Sampled
            }
        })
    }

    /// The instruction that ends the thread's cut fragment has been executed: the fragment is over.
    fn lwp_end_cut(&mut self, observers: &Observers) {
        self.account.correction.add(one(), 1);
        if let Some(pc) = self.lwp.as_ref().and_then(|lwp| lwp.end_of_cut()) {
            observers.note_in(self, |places| places.stepped(pc, 1));
        }
    }

    /// An LWP instruction has been executed; `loaded` configures the profile that it has loaded, if
    /// it was LLWPCB.
    fn lwp_done(&mut self, loaded: Option<&LwpConfig>) {
        if let Some(lwp) = &mut self.lwp {
            lwp.cut = None;
            lwp.touched = 0;
            if let Some(config) = loaded {
                lwp.start(config);
            }
        }
    }

    /// Executes an LWP instruction at `pc` on the unit of the thread, which is stopped.
    fn lwp_execute_stopped<M: LinearMemory>(
        &mut self,
        run: &Config,
        (pc, instruction): (u64, &insn::Instruction),
        registers: &mut Stopped,
        stamp: Stamp,
        memory: &mut M,
    ) -> Result<(), Fault> {
        let Some(config) = &run.lwp else { return Err(Fault::Ud) };
        let stamp = self.readable(stamp);
        let lwp = self.lwp_begin(config, run);
        lwp.unit.surroundings.stamp = stamp;
        let (unit, signals) = (&mut lwp.unit.model, &mut lwp.unit.surroundings);
        let executed = unit.execute(&CPU, instruction, Ip(pc), registers, memory, signals);
        let settled = executed.and_then(|()| lwp.unit.model.settle(memory));
        if instruction.mnemonic == insn::Mnemonic::Llwpcb {
            lwp.start(config);
        }
        if !lwp.unit.model.is_on() {
            self.lwp_end();
        }
        settled
    }
}

/// The events of one instruction that is no branch.
fn one() -> EventDeltas {
    EventDeltas { instructions: 1, ..EventDeltas::default() }
}

/// Returns whether a thread runs translations that count down something else than its profile
/// wants.
pub fn is_elsewhere(tasks: &Tasks, caches: &CodeCaches, tid: Tid) -> bool {
    let wanted = tasks.lwp(tid).map(|lwp| lwp.selection());
    let family = tasks.space_index(tid).and_then(|space| caches.family_of(space));
    let counted = match family.map(|family| family.translator.lwp()) {
        Some(Lwp::On(selection)) => Some(selection),
        _ => None,
    };
    tasks.threads.contains_key(&tid) && wanted != counted
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
    let mut bytes = [0; insn::LONGEST];
    let got = lwp_process::sys::read_memory(tid, pc, &mut bytes).unwrap_or(0);
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

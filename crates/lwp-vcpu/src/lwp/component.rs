//! XSAVE and related instructions whose mask requests the LWP component, which the real processor
//! doesn't have. The processor saves or restores the other components, and the host adds the LWP
//! component.
//!
//! | | the processor | the host |
//! | --- | --- | --- |
//! | XSAVE, XSAVEOPT, XSAVEC | ignores the bit (single-stepped) | then writes component and header |
//! | XRSTOR of an image without LWP | single-stepped | then turns LWP off, if requested |
//! | XRSTOR of an image with LWP | would fault | writes the image to the thread's registers |
//!
//! If the mask doesn't have the bit, translated code executes these instructions itself; only an
//! XRSTOR of an image with LWP then comes here, because it faults.

use iced_x86::{Instruction, Mnemonic, Register};
use lwp_arch::xsave::image::{self, Header, Save};
use lwp_arch::xsave::{Component, LwpXsave, XCR0_LWP};
use lwp_arch::{Fault, LinearAddr, PageFault};
use lwp_dbt::Slot;
use lwp_dbt::block::saves_state;
use lwp_mailbox::contexts::Context;
use lwp_model::LinearMemory;
use lwp_process::Tid;
use lwp_process::regs::{Raw, Regs, general_value};
use lwp_process::sys;
use lwp_run::config::Config;

use super::CPU;
use super::Profiling;
use super::instruction::decode;
use super::memory::TraceeMemory;
use crate::cpuid::VirtualCpu;
use crate::machine::{Processor, Thread};

/// An image must begin at a multiple of this.
const ALIGNMENT: u64 = 64;

/// An instruction that saves or restores state, with registers.
#[derive(Clone, Copy, Debug)]
struct StateAccess {
    /// Address of the image.
    image: u64,
    /// Its mask.
    requested: u64,
    /// The way in which it saves; `None` if it restores.
    save: Option<Save>,
    /// Address of the instruction behind it.
    next: u64,
}

/// The treatment of an instruction that the processor is about to execute alone.
#[derive(Clone, Copy, Debug)]
pub enum BeforeState {
    /// It may.
    Native,
    /// It has been done; the registers afterwards.
    Done(Regs),
    /// It would meet this fault.
    Faults(PageFault),
}

impl StateAccess {
    /// The access of the instruction at the pc of `regs`, in a thread with this context, if the
    /// processor shown has a component of LWP.
    fn at(
        processor: &Processor,
        context: Option<Context<'_>>,
        tid: Tid,
        regs: &Raw,
    ) -> Option<Self> {
        if !processor.emulated.lwp_state {
            return None;
        }
        let gs_base = context.map_or(0, |context| context.get(Slot::AppGs));
        Self::of(&decode(tid, regs.rip)?, regs, gs_base)
    }

    fn of(instruction: &Instruction, regs: &Raw, gs_base: u64) -> Option<Self> {
        use Mnemonic::{Xsave, Xsave64, Xsavec, Xsavec64, Xsaveopt, Xsaveopt64};
        if !saves_state(instruction) {
            return None;
        }
        let value = |register: Register, _: usize, _: usize| match register {
            Register::FS => Some(regs.fs_base),
            Register::GS => Some(gs_base),
            Register::ES | Register::CS | Register::SS | Register::DS => Some(0),
            _ => {
                let value = general_value(regs, register.full_register().number() as u8);
                Some(if register.size() == 4 { value & u64::from(u32::MAX) } else { value })
            }
        };
        let save = match instruction.mnemonic() {
            Xsave | Xsave64 => Some(Save::All),
            Xsaveopt | Xsaveopt64 => Some(Save::Modified),
            Xsavec | Xsavec64 => Some(Save::Compacted),
            _ => None,
        };
        Some(Self {
            image: instruction.virtual_address(0, 0, value)?,
            requested: regs.rdx << 32 | regs.rax & u64::from(u32::MAX),
            save,
            next: instruction.next_ip(),
        })
    }

    fn requests_lwp(&self) -> bool {
        self.requested & XCR0_LWP != 0
    }

    fn header_at(&self) -> LinearAddr {
        LinearAddr(self.image.wrapping_add(image::HEADER_AT as u64))
    }

    fn header<M: LinearMemory>(&self, memory: &mut M) -> Result<Header, PageFault> {
        let mut bytes = [0; Header::BYTES];
        memory.read(self.header_at(), &mut bytes)?;
        Ok(Header::from_bytes(bytes))
    }

    /// Adds `component`, `None` in its initial state, to an image that the processor has saved,
    /// whose layout `components` describe.
    fn save_component<M: LinearMemory>(
        &self,
        how: Save,
        component: Option<LwpXsave>,
        components: &[Component],
        memory: &mut M,
    ) -> Result<(), PageFault> {
        let header = self.header(memory)?.with_lwp(how, component.is_some());
        let at = self.component_at(header, components);
        let initial = (how == Save::All).then(LwpXsave::default);
        if let (Some(at), Some(component)) = (at, component.or(initial)) {
            memory.write(at, &component.to_bytes())?;
        }
        memory.write(self.header_at(), &header.to_bytes())
    }

    /// The address of the component in an image with this header.
    fn component_at(&self, header: Header, components: &[Component]) -> Option<LinearAddr> {
        let offset = header.lwp_offset(components)?;
        Some(LinearAddr(self.image.wrapping_add(u64::from(offset))))
    }
}

/// Returns whether the instruction at the application's pc, in a thread with this context, restores
/// an image that names LWP: the processor refuses that.
pub fn restores_lwp(
    processor: &Processor,
    context: Option<Context<'_>>,
    tid: Tid,
    app: &Regs,
) -> bool {
    let access = StateAccess::at(processor, context, tid, &app.0);
    let access = access.filter(|access| access.save.is_none());
    let header = access.map(|access| access.header(&mut TraceeMemory::new(tid)));
    matches!(header, Some(Ok(header)) if header.names_lwp())
}

/// XCOMP_BV of what XSAVEC saves on the virtual processor.
fn compacted(cpu: &VirtualCpu, requested: u64) -> u64 {
    1 << 63 | requested & cpu.xcr0()
}

impl Profiling<'_> {
    /// The processor is about to execute the instruction at the application's pc alone.
    pub fn lwp_before_state(&mut self, tid: Tid, app: &Regs) -> BeforeState {
        let access = StateAccess::at(self.processor, self.context(tid), tid, &app.0);
        let Some(access) = access else { return BeforeState::Native };
        let mut memory = TraceeMemory::new(tid);
        match access.save {
            Some(_) if !access.requests_lwp() => BeforeState::Native,
            Some(how) => {
                let header = match how {
                    Save::Compacted => Header {
                        xstate_bv: 0,
                        xcomp_bv: compacted(&self.processor.cpu, access.requested),
                    },
                    _ => Header::default(),
                };
                let at = access.component_at(header, self.processor.cpu.components());
                let write = at.map(|at| memory.check_write(at, LwpXsave::SIZE));
                match write {
                    Some(Err(fault)) => BeforeState::Faults(fault),
                    _ => BeforeState::Native,
                }
            }
            None => match access.header(&mut memory) {
                Ok(header) if header.names_lwp() => self.restore_state(tid, app, &access, header),
                _ => BeforeState::Native,
            },
        }
    }

    /// The processor has executed the instruction that was at `pc`; `regs` are those afterwards, of
    /// which such an instruction changes none.
    pub fn lwp_after_state(&mut self, tid: Tid, pc: u64, regs: &Regs) {
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.lwp_state.component_faults = 0;
        }
        let before = Raw { rip: pc, ..regs.0 };
        let access = StateAccess::at(self.processor, self.context(tid), tid, &before);
        let Some(access) = access.filter(StateAccess::requests_lwp) else { return };
        self.tasks.lwp_collect(self.contexts, tid);
        let saved = match access.save {
            Some(how) => {
                let component = self.tasks.lwp(tid).and_then(|lwp| lwp.unit.model.xsave());
                let components = self.processor.cpu.components();
                access.save_component(how, component, components, &mut TraceeMemory::new(tid))
            }
            // The image does not name LWP, or the processor would have refused it.
            None => {
                self.load_component(tid, None).ok();
                Ok(())
            }
        };
        if let Err(fault) = saved {
            // It could be written a moment ago.
            lwp_terminal::say!(
                "lwp: thread {tid}: its LWP state has not been saved at {:#x}",
                fault.address.0
            );
        }
    }

    /// XRSTOR of an image that names LWP.
    fn restore_state(
        &mut self,
        tid: Tid,
        app: &Regs,
        access: &StateAccess,
        header: Header,
    ) -> BeforeState {
        let components = self.processor.cpu.components();
        let mut bytes = vec![0; image::extent(header, components) as usize];
        if !access.image.is_multiple_of(ALIGNMENT) {
            return BeforeState::Native;
        }
        if let Err(fault) = TraceeMemory::new(tid).read(LinearAddr(access.image), &mut bytes) {
            return BeforeState::Faults(fault);
        }
        let Ok(before) = sys::get_extended_state(tid) else { return BeforeState::Native };
        let mut state = before.clone();
        let requested = access.requested & self.processor.cpu.xcr0();
        if !image::restored(&mut state, &bytes, requested, components) {
            return BeforeState::Native;
        }
        let component = header.holds_lwp().then(|| header.lwp_offset(components)).flatten();
        let component = component.and_then(|at| bytes.get(at as usize..));
        let component = component.and_then(LwpXsave::from_prefix);
        // What the kernel does not take, as a bad MXCSR, the processor would not take either.
        if sys::set_extended_state(tid, &state).is_err() {
            return BeforeState::Native;
        }
        if access.requests_lwp() {
            self.tasks.lwp_collect(self.contexts, tid);
            if let Err(fault) = self.load_component(tid, component.as_ref()) {
                let _ = sys::set_extended_state(tid, &before);
                return match fault {
                    Fault::Pf(fault) => BeforeState::Faults(fault),
                    _ => BeforeState::Native,
                };
            }
        }
        if let Some(thread) = self.tasks.threads.get_mut(&tid) {
            thread.lwp_state.component_faults = 0;
        }
        let mut after = *app;
        after.0.rip = access.next;
        BeforeState::Done(after)
    }

    fn load_component(&mut self, tid: Tid, component: Option<&LwpXsave>) -> Result<(), Fault> {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return Ok(()) };
        let context = self.contexts.context(thread.slot);
        thread.load_component(context, self.config, component, &mut TraceeMemory::new(tid))
    }
}

impl Thread {
    /// Makes `component` the thread's profile; `None` turns it off. The control block is read from
    /// `memory` for what the component does not hold. After a fault the profile is as before.
    fn load_component<M: LinearMemory>(
        &mut self,
        context: Context<'_>,
        run: &Config,
        component: Option<&LwpXsave>,
        memory: &mut M,
    ) -> Result<(), Fault> {
        let Some(config) = &run.lwp else { return Ok(()) };
        if component.is_none() {
            self.lwp_end();
            return Ok(());
        }
        let was_on = self.lwp.is_some();
        let lwp = self.lwp_begin(config, run);
        let mut unit = lwp.unit.model.clone();
        let loaded = unit.xrstor(&CPU, component).and_then(|()| unit.settle(memory));
        if loaded.is_ok() {
            lwp.unit.model = unit;
            lwp.start(config);
            lwp.publish(context);
        }
        if !was_on && loaded.is_err() || !lwp.unit.model.is_on() {
            self.lwp_end();
        }
        loaded
    }
}

#[cfg(test)]
mod tests {
    use lwp_model::PagedMemory;

    use super::*;

    const IMAGE: u64 = 0x1_0000;

    fn access(how: Save) -> StateAccess {
        StateAccess { image: IMAGE, requested: u64::MAX, save: Some(how), next: 0 }
    }

    #[test]
    fn the_component_is_laid_over_what_the_processor_has_saved() {
        let components = [Component::lwp(832)];
        let cases =
            [Save::All, Save::Modified, Save::Compacted].map(|how| [(how, true), (how, false)]);
        for (how, on) in cases.into_iter().flatten() {
            let access = access(how);
            let room = if how == Save::Compacted { 1 << 63 | 7 } else { 0 };
            let mut memory = PagedMemory::new();
            memory.map(LinearAddr(IMAGE), 4096);
            let saved = Header { xstate_bv: 7, xcomp_bv: room };
            memory.poke(access.header_at(), &saved.to_bytes());
            let filled = || LwpXsave::from_prefix(&[0x5a; LwpXsave::SIZE]).expect("as many bytes");
            access
                .save_component(how, on.then(filled), &components, &mut memory)
                .expect("memory is there");
            let header = access.header(&mut memory).expect("memory is there");
            assert_eq!((header.holds_lwp(), header.xstate_bv & 7), (on, 7), "{how:?}");
            let at = access.component_at(header, &components).expect("there is room");
            let expected = if on { [0x5a; LwpXsave::SIZE] } else { [0; LwpXsave::SIZE] };
            assert_eq!(memory.peek(at, LwpXsave::SIZE), expected, "{how:?} {on}");
        }
    }

    #[test]
    fn an_image_that_is_gone_faults() {
        let mut memory = PagedMemory::new();
        let saved = access(Save::All).save_component(Save::All, None, &[], &mut memory);
        assert_eq!(saved.map_err(|fault| fault.address.0), Err(IMAGE + image::HEADER_AT as u64));
    }
}

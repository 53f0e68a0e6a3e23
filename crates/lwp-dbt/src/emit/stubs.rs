//! Stubs behind a region: ways to the host, and out of the mapping.

use iced_x86::Register;

use super::{Ask, Emitter};
use crate::addr::{AppPc, CachePc};
use crate::context::{RequestKind, Slot};
use crate::state_map::bits;

impl Emitter<'_> {
    /// The stub of an unlinked exit.
    ///
    /// ```text
    /// Patch:   slot := r11; r11 := target; jmp ask_r11
    /// ```
    pub fn exit_stub(&mut self, target: AppPc) -> CachePc {
        self.start_piece();
        self.point(0);
        let stub = self.here();
        self.ask_about(target, 0, self.routines.ask_r11);
        stub
    }

    /// The stub of an exit to what is not of this mapping, such as from generated code to a
    /// library: it will never be linked, so it finds its way through the table.
    ///
    /// ```text
    /// Patch:   slot := rcx; rcx := target; slot := r11; jump through the table
    /// ```
    pub fn far_stub(&mut self, target: AppPc) -> CachePc {
        self.start_piece();
        self.point(0);
        let stub = self.here();
        self.spill_rcx();
        self.point(bits::SPILL_RCX);
        self.load_address(Register::RCX, target.0);
        self.dispatch();
        stub
    }

    pub(super) fn ask_about(&mut self, target: AppPc, state: u8, routine: u32) {
        self.spill_r11();
        self.point(state | bits::SPILL_R11);
        self.load_address(Register::R11, target.0);
        self.jump_to_routine(routine);
    }

    /// The stub of a request other than "continue at": restores what was spilled, names the kind.
    pub fn ask_stub(&mut self, ask: &Ask) -> CachePc {
        self.start_piece();
        self.app = ask.app;
        self.index = ask.index;
        let stub = self.here();
        let state = if ask.charged { 0 } else { bits::UNCOUNTED };
        let r11 = if ask.r11_spilled { bits::SPILL_R11 } else { 0 };
        if ask.rcx_spilled {
            self.point(state | bits::SPILL_RCX | r11);
            self.reload_rcx();
        }
        self.point(state | r11);
        if ask.r11_spilled {
            self.reload_r11();
            self.point(state);
        }
        // mov dword gs:[kind], kind
        self.bytes(&[0x65, 0xc7, 0x04, 0x25]);
        self.imm32(Slot::Kind as u32);
        self.imm32(ask.kind as u32);
        if let Some(resumes) = ask.resumes {
            self.spill_r11();
            self.point(state | bits::SPILL_R11);
            // lea r11, [rip + back]; mov gs:[go], r11
            self.bytes(&[0x4c, 0x8d, 0x1d]);
            self.displacement_to(self.base + resumes as u64);
            self.bytes(&[0x65, 0x4c, 0x89, 0x1c, 0x25]);
            self.imm32(Slot::Go as u32);
            self.load_address(Register::R11, ask.pc.0);
            self.jump_to_routine(self.routines.ask_call);
            return stub;
        }
        let lwp = &self.routines.lwp;
        let routine = match ask.kind {
            RequestKind::Cpuid => self.routines.ask_cpuid,
            // In a cut fragment an event may be due on the instruction itself.
            RequestKind::Lwpins if ask.charged => lwp.insert,
            RequestKind::Lwpval if ask.charged => lwp.sample,
            RequestKind::Slwpcb if ask.charged => lwp.flush,
            RequestKind::LwpStepped | RequestKind::LwpTaken => lwp.stepped,
            _ => self.routines.ask_r11,
        };
        self.ask_about(ask.pc, state, routine);
        stub
    }
}

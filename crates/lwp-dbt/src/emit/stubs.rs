//! Stubs behind a region: exits to the host, and jumps to other mappings.

use iced_x86::Register;

use super::{Ask, Emitter, terminators};
use crate::addr::{AppPc, CachePc};
use crate::context::{RequestKind, Slot};
use crate::state_map::bits;

/// The stub of an unlinked exit.
///
/// ```text
/// Patch:   slot := r11; r11 := target; jmp ask_r11
/// ```
pub fn exit_stub(emitter: &mut Emitter<'_>, target: AppPc) -> CachePc {
    emitter.start_piece();
    emitter.point(0);
    let stub = emitter.here();
    ask_about(emitter, target, 0, emitter.routines.ask.r11);
    stub
}

/// The stub of an exit to what is not of this mapping, such as from generated code to a
/// library: it will never be linked, so it finds its way through the table.
///
/// ```text
/// Patch:   slot := rcx; rcx := target; slot := r11; jump through the table
/// ```
pub fn far_stub(emitter: &mut Emitter<'_>, target: AppPc) -> CachePc {
    emitter.start_piece();
    emitter.point(0);
    let stub = emitter.here();
    emitter.out.spill_rcx();
    emitter.point(bits::SPILL_RCX);
    emitter.load_address(Register::RCX, target.0);
    terminators::dispatch(emitter);
    stub
}

pub(super) fn ask_about(emitter: &mut Emitter<'_>, target: AppPc, state: u8, routine: u32) {
    emitter.out.spill_r11();
    emitter.point(state | bits::SPILL_R11);
    emitter.load_address(Register::R11, target.0);
    emitter.jump_to_routine(routine);
}

/// The stub of a request other than "continue at": restores what was spilled, names the kind.
pub fn ask_stub(emitter: &mut Emitter<'_>, ask: &Ask) -> CachePc {
    emitter.start_piece();
    emitter.place.app = ask.app;
    emitter.place.index = ask.index;
    let stub = emitter.here();
    let state = if ask.charged { 0 } else { bits::UNCOUNTED };
    let r11 = if ask.r11_spilled { bits::SPILL_R11 } else { 0 };
    if ask.rcx_spilled {
        emitter.point(state | bits::SPILL_RCX | r11);
        emitter.out.reload_rcx();
    }
    emitter.point(state | r11);
    if ask.r11_spilled {
        emitter.out.reload_r11();
        emitter.point(state);
    }
    // mov dword gs:[kind], kind
    emitter.out.bytes(&[0x65, 0xc7, 0x04, 0x25]);
    emitter.out.imm32(Slot::Kind as u32);
    emitter.out.imm32(ask.kind as u32);
    if let Some(resumes) = ask.resumes {
        emitter.out.spill_r11();
        emitter.point(state | bits::SPILL_R11);
        // lea r11, [rip + back]; mov gs:[go], r11
        emitter.out.bytes(&[0x4c, 0x8d, 0x1d]);
        emitter.displacement_to(emitter.base + resumes as u64);
        emitter.out.bytes(&[0x65, 0x4c, 0x89, 0x1c, 0x25]);
        emitter.out.imm32(Slot::Go as u32);
        emitter.load_address(Register::R11, ask.pc.0);
        emitter.jump_to_routine(emitter.routines.ask.call);
        return stub;
    }
    let lwp = &emitter.routines.lwp;
    let routine = match ask.kind {
        RequestKind::Cpuid => emitter.routines.ask.cpuid,
        // In a cut fragment an event may be due on the instruction itself.
        RequestKind::Lwpins if ask.charged => lwp.insert,
        RequestKind::Lwpval if ask.charged => lwp.sample,
        RequestKind::Slwpcb if ask.charged => lwp.flush,
        RequestKind::Llwpcb if ask.charged && ask.rcx_spilled => lwp.load,
        RequestKind::LwpStepped | RequestKind::LwpTaken => lwp.stepped,
        _ => emitter.routines.ask.r11,
    };
    ask_about(emitter, ask.pc, state, routine);
    stub
}

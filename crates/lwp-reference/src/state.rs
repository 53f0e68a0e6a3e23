//! XSAVE and its relatives: the LWP component laid over what the processor saves and restores.

use lwp_arch::xsave::image::{self, Header, Save};
use lwp_arch::xsave::{LwpXsave, XCR0_LWP};
use lwp_arch::{Fault, LinearAddr, PageFault};
use lwp_model::{Cpu, LinearMemory};
use lwp_process::{Tid, sys};

use crate::cpuid;
use crate::decode::StateAccess;
use crate::memory::TraceeMemory;
use crate::thread::Thread;

/// An image must begin at a multiple of this.
const ALIGNMENT: u64 = 64;

/// The processor is about to execute the instruction. True if it has been done here: an XRSTOR of
/// an image that names LWP, which the processor refuses.
///
/// # Errors
///
/// The fault that the component meets. Nothing has changed then.
pub fn before(
    thread: &mut Thread,
    tid: Tid,
    access: &StateAccess,
    memory: &mut TraceeMemory,
) -> Result<bool, Fault> {
    let components = cpuid::components(&thread.unit);
    let known = cpuid::xcr0(&thread.unit, sys::xcr0());
    if components.is_empty() {
        return Ok(false);
    }
    if let Some(how) = access.save {
        let packed = if how == Save::Compacted { 1 << 63 | access.requested & known } else { 0 };
        let header = Header { xstate_bv: 0, xcomp_bv: packed };
        if let (true, Some(at)) = (requests_lwp(access), header.lwp_offset(&components)) {
            let at = LinearAddr(access.image.wrapping_add(u64::from(at)));
            memory.check_write(at, LwpXsave::SIZE)?;
        }
        return Ok(false);
    }
    let Some(header) = header(access, memory).ok().filter(|header| header.names_lwp()) else {
        return Ok(false);
    };
    let mut bytes = vec![0; image::extent(header, &components) as usize];
    if !access.image.is_multiple_of(ALIGNMENT) {
        return Ok(false);
    }
    memory.read(LinearAddr(access.image), &mut bytes)?;
    let Ok(before) = sys::get_extended_state(tid) else { return Ok(false) };
    let mut state = before.clone();
    let restored = image::restored(&mut state, &bytes, access.requested & known, &components);
    if !restored || sys::set_extended_state(tid, &state).is_err() {
        return Ok(false);
    }
    if requests_lwp(access) {
        let at = header.lwp_offset(&components).filter(|_| header.holds_lwp());
        let component = at.and_then(|at| bytes.get(at as usize..)).and_then(LwpXsave::from_prefix);
        if let Err(fault) = load(thread, access.cpu, component.as_ref(), memory) {
            // As it was a moment ago, which the kernel took from it then.
            let _ = sys::set_extended_state(tid, &before);
            return Err(fault);
        }
    }
    Ok(true)
}

/// The processor has executed the instruction.
pub fn after(thread: &mut Thread, access: &StateAccess, memory: &mut TraceeMemory) {
    let components = cpuid::components(&thread.unit);
    if components.is_empty() || !requests_lwp(access) {
        return;
    }
    let Some(how) = access.save else {
        // The image does not name LWP: the processor would have refused it.
        let _ = load(thread, access.cpu, None, memory);
        return;
    };
    let component = thread.unit.xsave();
    let Ok(header) = header(access, memory) else { return };
    let header = header.with_lwp(how, component.is_some());
    let initial = (how == Save::All).then(LwpXsave::default);
    let written = (header.lwp_offset(&components), component.or(initial));
    if let (Some(at), Some(component)) = written {
        let at = LinearAddr(access.image.wrapping_add(u64::from(at)));
        // It could be written before the instruction.
        let _ = memory.write(at, &component.to_bytes());
    }
    let _ = memory.write(header_at(access), &header.to_bytes());
}

fn requests_lwp(access: &StateAccess) -> bool {
    access.requested & XCR0_LWP != 0
}

fn header_at(access: &StateAccess) -> LinearAddr {
    LinearAddr(access.image.wrapping_add(image::HEADER_AT as u64))
}

fn header(access: &StateAccess, memory: &mut TraceeMemory) -> Result<Header, PageFault> {
    let mut bytes = [0; Header::BYTES];
    memory.read(header_at(access), &mut bytes)?;
    Ok(Header::from_bytes(bytes))
}

/// Restores the component, and what it does not hold from the control block. After a fault the unit
/// is as before.
fn load(
    thread: &mut Thread,
    cpu: Cpu,
    component: Option<&LwpXsave>,
    memory: &mut TraceeMemory,
) -> Result<(), Fault> {
    let mut unit = thread.unit.clone();
    unit.xrstor(&cpu, component)?;
    unit.settle(memory)?;
    thread.unit = unit;
    thread.reset_models();
    Ok(())
}

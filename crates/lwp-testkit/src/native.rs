//! Running code with every register given.
//!
//! Memory is mapped once, at fixed addresses; every run happens in a forked child, which starts
//! from the same memory, may crash, and reports through a shared page.

use std::arch::x86_64::{__cpuid_count, _xgetbv};

use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, edx, gpr64, qword_ptr, rcx, rdi, rsp};

/// The address of the shared pages.
const SHARED: u64 = 0x4000_0000;
const SHARED_BYTES: usize = 0x40_0000;
/// The address of the code that enters and leaves.
const TRAMPOLINE: u64 = 0x4100_0000;
const TRAMPOLINE_BYTES: usize = 0x2_0000;
const IN_GENERAL: u64 = SHARED;
const IN_FLAGS: u64 = SHARED + 0x80;
const TARGET: u64 = SHARED + 0x88;
const HOST_STACK: u64 = SHARED + 0x90;
const LANDING_POINTER: u64 = SHARED + 0x98;
const OUT_FLAGS: u64 = SHARED + 0xa0;
const OUT_GS: u64 = SHARED + 0xa8;
const STATUS: u64 = SHARED + 0xb0;
const OUT_GENERAL: u64 = SHARED + 0x100;
const HOST_FX: u64 = SHARED + 0x200;
const IN_VECTORS: u64 = SHARED + 0x1000;
const OUT_VECTORS: u64 = SHARED + 0x2000;
const OBSERVED: u64 = SHARED + 0x4000;

/// Longest run, in seconds of processor time.
const LONGEST: i64 = 5;
/// Longest run by the clock, on a busy machine, in seconds.
const PATIENCE: u32 = 100;

/// All registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// General registers in encoding order.
    pub general: [u64; 16],
    /// Flags.
    pub flags: u64,
    /// x87, MXCSR and vector registers, as XSAVE lays them out; without what names the place of the
    /// last x87 instruction.
    pub vectors: Vec<u8>,
    /// gs base; not loaded from here.
    pub gs: u64,
}

/// The code to be run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The address at which execution starts. It must end at [`Machine::LANDING`].
    pub entry: u64,
    /// Registers at the start.
    pub state: &'a State,
    /// gs base at the start.
    pub gs: u64,
    /// The bytes that are written to memory before.
    pub memory: &'a [(u64, Vec<u8>)],
    /// Address and length of what is reported after.
    pub observed: &'a [(u64, usize)],
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// At the landing.
    Landed(Box<State>, Vec<u8>),
    /// At [`Machine::MISSED`].
    Missed(Box<State>),
    /// By this signal.
    Signal(i32),
}

/// Memory at fixed addresses; there can be only one at a time in a process.
#[derive(Debug)]
pub struct Machine {
    mapped: Vec<(u64, usize)>,
}

impl Machine {
    /// Execution that arrives here is at its end.
    pub const LANDING: u64 = TRAMPOLINE + 0x1_ff00;
    /// Execution that arrives here is at its end, with rcx and r11 still in the first two words of
    /// the gs segment.
    pub const LANDING_SPILLED: u64 = TRAMPOLINE + 0x1_f800;
    /// Execution is at its end here too, but was not supposed to arrive.
    pub const MISSED: u64 = TRAMPOLINE + 0x1_f000;

    /// Maps `regions` (address, length), readable, writable and executable.
    ///
    /// # Panics
    ///
    /// Where the addresses are not free.
    pub fn new(regions: &[(u64, usize)]) -> Self {
        crate::stepped::stay_on_this_processor();
        let mut machine = Self { mapped: Vec::new() };
        machine.map(SHARED, SHARED_BYTES, libc::MAP_SHARED);
        machine.map(TRAMPOLINE, TRAMPOLINE_BYTES, libc::MAP_PRIVATE);
        for &(address, bytes) in regions {
            machine.map(address, bytes, libc::MAP_PRIVATE | libc::MAP_NORESERVE);
        }
        machine.write(TRAMPOLINE, &assemble(enter, TRAMPOLINE));
        machine.write(Self::LANDING, &assemble(leave, Self::LANDING));
        machine.write(Self::LANDING_SPILLED, &assemble(leave_spilled, Self::LANDING_SPILLED));
        machine.write(Self::MISSED, &assemble(miss, Self::MISSED));
        machine
    }

    /// Code that jumps to the landing without touching a register: `jmp [pointer]`.
    pub fn jump_to_landing() -> Vec<u8> {
        let mut code = vec![0xff, 0x24, 0x25];
        code.extend((LANDING_POINTER as u32).to_le_bytes());
        code
    }

    /// A state with these general registers and these bytes in the vector registers.
    pub fn state(general: [u64; 16], flags: u64, mut fill: impl FnMut() -> u8) -> State {
        let mut vectors = vec![0; vector_bytes()];
        for at in component_bytes() {
            vectors[at] = fill();
        }
        // Default control words, empty x87 stack, all components present.
        vectors[..32].fill(0);
        vectors[0..2].copy_from_slice(&0x37fu16.to_le_bytes());
        vectors[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        vectors[512..520].copy_from_slice(&components().to_le_bytes());
        State { general, flags, vectors, gs: 0 }
    }

    /// Writes to mapped memory, for all runs to come.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        assert!(self.maps(address, bytes.len()), "{address:#x} is not the machine's");
        // SAFETY: the range has just been found in a mapping of this machine, which is writable.
        unsafe { copy_to(address, bytes) }
    }

    fn maps(&self, address: u64, len: usize) -> bool {
        self.mapped.iter().any(|(start, bytes)| {
            address >= *start && address - start + len as u64 <= *bytes as u64
        })
    }

    fn map(&mut self, address: u64, bytes: usize, flags: i32) {
        // SAFETY: NOREPLACE takes nothing away that is mapped already.
        let at = unsafe {
            libc::mmap(
                std::ptr::with_exposed_provenance_mut(address as usize),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                flags | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        assert_eq!(at.addr() as u64, address, "cannot map {address:#x}");
        self.mapped.push((address, bytes));
    }

    /// Runs code in a child.
    pub fn run(&mut self, run: &Run<'_>) -> Outcome {
        for (address, bytes) in run.memory {
            assert!(self.maps(*address, bytes.len()), "{address:#x} is not the machine's");
        }
        let mut at = OBSERVED;
        for &(address, bytes) in run.observed {
            assert!(self.maps(address, bytes), "{address:#x} is not the machine's");
            at += bytes as u64;
        }
        assert!(at <= SHARED + SHARED_BYTES as u64, "too much to report");
        let general: Vec<u8> = run.state.general.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.write(IN_GENERAL, &general);
        self.write(IN_FLAGS, &run.state.flags.to_le_bytes());
        self.write(TARGET, &run.entry.to_le_bytes());
        self.write(LANDING_POINTER, &Self::LANDING.to_le_bytes());
        self.write(STATUS, &0u64.to_le_bytes());
        self.write(IN_VECTORS, &run.state.vectors);
        // SAFETY: the child touches its own memory and makes system calls; it takes no lock.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "cannot fork");
        if child == 0 {
            // SAFETY: this is the child, and what is touched was found mapped above.
            unsafe { in_child(run) }
        }
        let mut status = 0;
        // SAFETY: waits for the child just made.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child, "the child is lost");
        if libc::WIFSIGNALED(status) {
            return Outcome::Signal(libc::WTERMSIG(status));
        }
        let observed = self.read(OBSERVED, (at - OBSERVED) as usize);
        let state = Box::new(self.out());
        match self.word(STATUS) {
            1 => Outcome::Landed(state, observed),
            _ => Outcome::Missed(state),
        }
    }

    fn out(&self) -> State {
        let mut general = [0; 16];
        for (index, value) in general.iter_mut().enumerate() {
            *value = self.word(OUT_GENERAL + index as u64 * 8);
        }
        let mut vectors = self.read(OUT_VECTORS, vector_bytes());
        // The last x87 instruction's opcode and address, the header, and what software may keep.
        vectors[6..16].fill(0);
        vectors[464..576].fill(0);
        State { general, flags: self.word(OUT_FLAGS), vectors, gs: self.word(OUT_GS) }
    }

    fn word(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.read(address, 8).try_into().expect("eight bytes"))
    }

    fn read(&self, address: u64, len: usize) -> Vec<u8> {
        assert!(self.maps(address, len), "{address:#x} is not the machine's");
        let mut out = vec![0; len];
        let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: the range is in a mapping of this machine, and `out` is as long.
        unsafe { from.copy_to_nonoverlapping(out.as_mut_ptr(), len) };
        out
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for &(address, bytes) in &self.mapped {
            // SAFETY: this machine mapped it, and nothing refers to it any more.
            unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(address as usize), bytes) };
        }
    }
}

/// # Safety
///
/// The range must be mapped and writable.
unsafe fn copy_to(address: u64, bytes: &[u8]) {
    let to = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: as the caller promises; a slice of Rust's own does not lie in a fixed mapping.
    unsafe { bytes.as_ptr().copy_to_nonoverlapping(to, bytes.len()) }
}

/// The child's whole life.
///
/// # Safety
///
/// To be called in a forked child only, with ranges that are mapped.
unsafe fn in_child(run: &Run<'_>) -> ! {
    const ARCH_SET_GS: i32 = 0x1001;
    const ARCH_GET_GS: i32 = 0x1004;
    // SAFETY: plain system calls; the copies are of ranges that the caller has checked; the
    // trampoline keeps what the calling convention wants kept, and gs is not used by this program.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::alarm(PATIENCE);
        let none = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let longest = libc::timeval { tv_sec: LONGEST, tv_usec: 0 };
        let once = libc::itimerval { it_interval: none, it_value: longest };
        libc::setitimer(libc::ITIMER_PROF, &raw const once, std::ptr::null_mut());
        for (address, bytes) in run.memory {
            copy_to(*address, bytes);
        }
        libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, run.gs);
        let enter: extern "sysv64" fn() =
            std::mem::transmute(std::ptr::with_exposed_provenance::<()>(TRAMPOLINE as usize));
        enter();
        libc::syscall(libc::SYS_arch_prctl, ARCH_GET_GS, OUT_GS);
        let mut at = OBSERVED;
        for &(address, bytes) in run.observed {
            let from = std::ptr::with_exposed_provenance::<u8>(address as usize);
            copy_to(at, std::slice::from_raw_parts(from, bytes));
            at += bytes as u64;
        }
        libc::_exit(0)
    }
}

type Emit = Result<(), iced_x86::IcedError>;

fn assemble(emit: fn(&mut CodeAssembler) -> Emit, at: u64) -> Vec<u8> {
    let mut asm = CodeAssembler::new(64).expect("64 bits are known");
    emit(&mut asm).expect("the code is constant");
    asm.assemble(at).expect("the code is constant")
}

const SAVED: [iced_x86::code_asm::AsmRegister64; 6] =
    [gpr64::rbx, gpr64::rbp, gpr64::r12, gpr64::r13, gpr64::r14, gpr64::r15];

/// General registers in encoding order, the stack pointer excluded.
fn general() -> impl Iterator<Item = (u64, iced_x86::code_asm::AsmRegister64)> {
    use gpr64::{r8, r9, r10, r11, r12, r13, r14, r15, rax, rbp, rbx, rcx, rdx, rsi};
    let all = [rax, rcx, rdx, rbx, rsp, rbp, rsi, gpr64::rdi, r8, r9, r10, r11, r12, r13, r14, r15];
    all.into_iter().enumerate().filter(|(index, _)| *index != 4).map(|(i, r)| (i as u64 * 8, r))
}

fn enter(asm: &mut CodeAssembler) -> Emit {
    for register in SAVED {
        asm.push(register)?;
    }
    asm.mov(qword_ptr(HOST_STACK), rsp)?;
    asm.fxsave64(iced_x86::code_asm::ptr(HOST_FX))?;
    asm.mov(eax, components() as u32)?;
    asm.mov(edx, 0)?;
    asm.xrstor64(iced_x86::code_asm::ptr(IN_VECTORS))?;
    asm.push(qword_ptr(IN_FLAGS))?;
    asm.popfq()?;
    for (offset, register) in general() {
        asm.mov(register, qword_ptr(IN_GENERAL + offset))?;
    }
    asm.mov(rsp, qword_ptr(IN_GENERAL + 32))?;
    asm.jmp(qword_ptr(TARGET))
}

fn leave(asm: &mut CodeAssembler) -> Emit {
    asm.mov(dword_ptr(STATUS), 1)?;
    save(asm)
}

fn leave_spilled(asm: &mut CodeAssembler) -> Emit {
    asm.mov(dword_ptr(STATUS), 1)?;
    unspill(asm)?;
    save(asm)
}

fn miss(asm: &mut CodeAssembler) -> Emit {
    asm.mov(dword_ptr(STATUS), 2)?;
    unspill(asm)?;
    save(asm)
}

fn unspill(asm: &mut CodeAssembler) -> Emit {
    asm.mov(rcx, qword_ptr(0).gs())?;
    asm.mov(gpr64::r11, qword_ptr(8).gs())
}

fn save(asm: &mut CodeAssembler) -> Emit {
    for (offset, register) in general() {
        asm.mov(qword_ptr(OUT_GENERAL + offset), register)?;
    }
    asm.mov(qword_ptr(OUT_GENERAL + 32), rsp)?;
    asm.mov(rsp, qword_ptr(HOST_STACK))?;
    asm.pushfq()?;
    asm.pop(qword_ptr(OUT_FLAGS))?;
    asm.mov(eax, components() as u32)?;
    asm.mov(edx, 0)?;
    asm.xsave64(iced_x86::code_asm::ptr(OUT_VECTORS))?;
    asm.fxrstor64(iced_x86::code_asm::ptr(HOST_FX))?;
    asm.cld()?;
    for register in SAVED.into_iter().rev() {
        asm.pop(register)?;
    }
    asm.mov(rdi, 0u64)?;
    asm.ret()
}

/// The state components of user mode that are compared: x87, SSE, AVX and AVX-512.
fn components() -> u64 {
    assert!(std::arch::is_x86_feature_detected!("xsave"), "this machine needs XSAVE");
    // SAFETY: XSAVE has just been found.
    (unsafe { xcr0() }) & 0xe7
}

/// # Safety
///
/// The processor must have XSAVE.
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: as the caller promises.
    unsafe { _xgetbv(0) }
}

/// Offset and length of component `index` in the standard layout.
fn component(index: u32) -> (usize, usize) {
    match index {
        0 => (32, 128),
        1 => (160, 256),
        _ => {
            let leaf = __cpuid_count(0xd, index);
            (leaf.ebx as usize, leaf.eax as usize)
        }
    }
}

fn component_bytes() -> impl Iterator<Item = usize> {
    (0..8).filter(|index| components() >> index & 1 != 0).flat_map(|index| {
        let (offset, len) = component(index);
        offset..offset + len
    })
}

fn vector_bytes() -> usize {
    component_bytes().max().map_or(576, |last| last + 1).max(576)
}

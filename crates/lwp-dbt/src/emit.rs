//! The rules: what each kind of application code becomes.
//!
//! Emitted code never touches the application's stack beyond what the application itself does,
//! never changes a flag that may be read, and borrows only rcx, r11 and rax, through the context.
//!
//! | rule | target | patch |
//! | --- | --- | --- |
//! | 1 | any instruction without a rip-relative or gs operand | the same bytes |
//! | 2 | a rip-relative operand | the same bytes, displacement corrected; out of reach, through a borrowed register |
//! | 3 | a gs-relative operand | operand rebased on the application's gs base in a borrowed register |
//! | 4 | `rdgsbase`, `wrgsbase` | a move from or to the context; a base that is no address faults |
//! | 5 | `jmp rel` | nothing, if the target is laid behind; else a linked `jmp rel32` |
//! | 6 | `jcc rel` | a linked `jcc rel32`; the not-taken side is laid behind |
//! | 7 | LOOP, JRCXZ … | the instruction over a linked `jmp rel32` |
//! | 8 | `call rel` | push of the return address; linked `jmp rel32` |
//! | 9 | `jmp`, `call`, `ret` through memory or register | target into rcx; jump through the table |
//! | 10 | `syscall` | the call itself, behind a filter by its number; then rcx := next pc |
//! | 11 | `rt_sigreturn` | the frame's rip redirected to the landing; the call itself |
//! | 12 | `xbegin` | an abort: eax := 0, on to the fallback address |
//! | 13 | CPUID and other answers of the virtual CPU | a request to the host |
//! | 14 | everything else | a request to execute the instruction natively, alone |
//! | 15 | XSAVE, XRSTOR … with fewer state components than the host | the mask in eax reduced first |
//! | 16 | a block, where LWP counts | what it counts taken from a word of the countdown |
//! | 17 | LLWPCB, SLWPCB, LWPINS, LWPVAL | nothing where LWP is off; else operands staged, and a request |
//! | 18 | a block in which an LWP event is due | the part up to the event, then a request |
//! | 19 | a memory operand, where LWP counts cache misses | its line compared with the set's most recent
//! | 20 | `popf` | the same, unless it sets the trap flag: then a request |
//! | 21 | `call` through memory or register, where calls are counted | the same as by rule 9, counted by its target |
//! | 22 | XSAVE, XRSTOR … whose mask may request the state of LWP | the same, unless it does: then a request
//! | 23 | an instruction before which a value is counted | the value looked for as the target of rule 21, then the same |
//! | 24 | an instruction with which something ends that is counted | a request, then the same |
//! | 25 | FXSAVE, FNSTENV … | the same, then a request if the x87 unit has a pointer |

use iced_x86::{Instruction, Register};

use crate::addr::{AppPc, CachePc};
use crate::context::{Layout, RequestKind, Slot, counter_displacement};
use crate::fragment::{FragmentId, Value};
use crate::relocation::Relocation;
use crate::routines::Routines;
use crate::state_map::StateEntry;

mod bodies;
mod calls;
mod dcache;
mod guards;
mod heads;
mod lwp;
mod stubs;
mod terminators;
mod watch;

pub(crate) use calls::CountedCall;
pub(crate) use dcache::{TOUCH_BYTES, Touch};
pub(crate) use guards::{ExitKind, SideExit, Tally, Target};
pub use heads::HEAD;
pub(crate) use lwp::{Countdown, Trip};
use watch::Watch;
pub(crate) use watch::WatchedShape;

/// A displacement that waits for its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Offset of the 4-byte displacement in the buffer.
    pub at: usize,
    /// Application pc to be linked.
    pub target: AppPc,
}

/// A request stub to be emitted behind the region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// Offset of the 4-byte displacement that jumps to the stub.
    pub at: usize,
    /// The kind of the request.
    pub kind: RequestKind,
    /// About which pc.
    pub pc: AppPc,
    /// rcx has been spilled and must be fetched back before asking.
    pub rcx_spilled: bool,
    /// r11 has been spilled too.
    pub r11_spilled: bool,
    /// The fragment that asks, and how far it is.
    pub fragment: Option<FragmentId>,
    pub app: u8,
    pub index: u8,
    /// True if the fragment has been charged.
    pub charged: bool,
    /// It is a system call, made without asking where it concerns nobody; control goes on at this
    /// offset in the buffer then.
    pub resumes: Option<usize>,
}

/// The charging of a fragment: its place and the way it is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// Its counter.
    pub counter: u32,
    /// Before which instruction of the block.
    pub at: usize,
    /// True if the flags are dead there.
    pub flags_dead: bool,
    /// The state bits until then.
    pub before: u8,
    /// By the terminator, in a register that it borrows anyway.
    pub in_terminator: bool,
}

impl Charge {
    /// Of `counter`, before instruction `at`, where the flags are dead.
    pub fn at(counter: u32, at: usize, before: u8) -> Self {
        Self { counter, at, flags_dead: true, before, in_terminator: false }
    }
}

/// Everything that an emitter collects; its memory is used again for the next region.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub code: Vec<u8>,
    pub links: Vec<Link>,
    pub asks: Vec<Ask>,
    pub trips: Vec<Trip>,
    /// The instruction tables of the blocks that have one.
    pub tables: Vec<u8>,
    pub touches: Vec<Touch>,
    pub calls: Vec<CountedCall>,
    /// Ways out of superblocks.
    pub exits: Vec<SideExit>,
    /// Return addresses to be pushed: displacement offset, value.
    pub constants: Vec<(usize, u64)>,
    /// Offsets of the displacements that depend on where the code and its counters lie.
    pub relocations: Vec<(usize, Relocation)>,
    /// Points of the fragment being emitted; offsets relative to `piece_start`.
    pub points: Vec<StateEntry>,
}

impl Output {
    fn clear(&mut self) {
        self.code.clear();
        self.links.clear();
        self.asks.clear();
        self.trips.clear();
        self.tables.clear();
        self.touches.clear();
        self.calls.clear();
        self.exits.clear();
        self.constants.clear();
        self.relocations.clear();
        self.points.clear();
    }
}

/// The only place that appends translated code.
pub(crate) struct Emitter<'a> {
    pub out: Output,
    /// Address of the first byte of the code.
    pub base: u64,
    pub layout: Layout,
    pub routines: &'a Routines,
    /// Address of this arena's copy of the routines.
    pub routines_at: u64,
    pub piece_start: usize,
    /// The fragment being emitted, once its body has begun.
    pub fragment: Option<FragmentId>,
    /// It carries no charge: what is executed of it is counted by the host.
    pub uncharged: bool,
    /// The value that is counted before the fragment's first instruction, and the first of its
    /// counters.
    pub value: Option<(Value, u32)>,
    /// True if misses of this fragment count, where data cache accesses are watched.
    pub dcache: Option<bool>,
    /// The knowledge of its accesses.
    pub watch: Watch,
    /// Application offset and index of the instruction being emitted.
    app: u8,
    index: u8,
    /// State bits of a body that has not been charged yet.
    before: u8,
    /// A charge that the terminator is to make.
    deferred: Option<Charge>,
    /// True if the body begins with its charge.
    pub charged_first: bool,
}

impl<'a> Emitter<'a> {
    /// Collects into the memory of `used`, which another emitter has left.
    pub fn new(
        base: u64,
        layout: Layout,
        routines: &'a Routines,
        routines_at: u64,
        mut used: Output,
    ) -> Self {
        used.clear();
        Self {
            out: used,
            base,
            layout,
            routines,
            routines_at,
            piece_start: 0,
            fragment: None,
            uncharged: false,
            value: None,
            dcache: None,
            watch: Watch::default(),
            app: 0,
            index: 0,
            before: 0,
            deferred: None,
            charged_first: false,
        }
    }

    /// Address of the next byte.
    pub fn here(&self) -> CachePc {
        CachePc(self.base + self.out.code.len() as u64)
    }

    /// Starts a piece of code with a point table of its own here.
    pub fn start_piece(&mut self) {
        self.out.points.clear();
        self.piece_start = self.out.code.len();
        self.fragment = None;
        self.app = 0;
        self.index = 0;
        self.watch.held = 0;
        self.watch.forget();
    }

    /// Throws away everything from `to` on.
    pub fn rewind(&mut self, to: CachePc) {
        let len = (to.0 - self.base) as usize;
        self.out.code.truncate(len);
        self.out.links.retain(|link| link.at < len);
        self.out.asks.retain(|ask| ask.at < len);
        self.out.trips.retain(|trip| trip.at < len);
        self.out.touches.retain(|touch| touch.at < len);
        self.out.calls.retain(|call| call.at < len);
        self.out.exits.retain(|exit| {
            exit.at.iter().all(|at| *at < len) && exit.place.is_none_or(|place| place.0 < to.0)
        });
        self.out.constants.retain(|(at, _)| *at < len);
        self.out.relocations.retain(|(at, _)| *at < len);
        let at = (len - self.piece_start) as u32;
        self.out.points.retain(|point| point.at < at);
        self.before = 0;
        self.value = None;
        self.deferred = None;
        self.charged_first = false;
        self.app = 0;
        self.index = 0;
        self.watch.held = 0;
        self.watch.forget();
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.out.code.extend_from_slice(bytes);
    }

    fn imm32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn imm64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// From here on the application's state is `state`, at the instruction being emitted, with the
    /// registers that are held in their slots.
    pub fn point(&mut self, state: u8) {
        let at = (self.out.code.len() - self.piece_start) as u32;
        let state = state | self.watch.held;
        let point = StateEntry { at, app: self.app, index: self.index, state };
        match self.out.points.last_mut() {
            Some(last) if last.at == at => *last = point,
            _ => self.out.points.push(point),
        }
    }

    // ---- single instructions -------------------------------------------------------------------

    /// `mov gs:[slot], rcx`
    fn spill_rcx(&mut self) {
        self.bytes(&[0x65, 0x48, 0x89, 0x0c, 0x25]);
        self.imm32(Slot::Rcx as u32);
    }

    /// `mov rcx, gs:[slot]`
    fn reload_rcx(&mut self) {
        self.load_rcx(Slot::Rcx as u32);
    }

    fn load_rcx(&mut self, displacement: u32) {
        self.bytes(&[0x65, 0x48, 0x8b, 0x0c, 0x25]);
        self.imm32(displacement);
    }

    fn store_rcx(&mut self, displacement: u32) {
        self.bytes(&[0x65, 0x48, 0x89, 0x0c, 0x25]);
        self.imm32(displacement);
    }

    /// `mov gs:[slot], r11`
    fn spill_r11(&mut self) {
        self.bytes(&[0x65, 0x4c, 0x89, 0x1c, 0x25]);
        self.imm32(Slot::R11 as u32);
    }

    /// `mov r11, gs:[slot]`
    fn reload_r11(&mut self) {
        self.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
        self.imm32(Slot::R11 as u32);
    }

    /// `mov r11, value`, in its shortest form
    fn mov_r11(&mut self, value: u64) {
        if let Ok(value) = u32::try_from(value) {
            self.bytes(&[0x41, 0xbb]);
            self.imm32(value);
        } else {
            self.bytes(&[0x49, 0xbb]);
            self.imm64(value);
        }
    }

    /// `mov rcx, value`, in its shortest form
    fn mov_rcx(&mut self, value: u64) {
        if let Ok(value) = u32::try_from(value) {
            self.bytes(&[0xb9]);
            self.imm32(value);
        } else {
            self.bytes(&[0x48, 0xb9]);
            self.imm64(value);
        }
    }

    /// `lea rcx, [rcx + r11]`
    fn lea_rcx_rcx_r11(&mut self) {
        self.bytes(&[0x4a, 0x8d, 0x0c, 0x19]);
    }

    /// A displacement that may be patched later must not cross a cache line, so that other threads
    /// see the old one or the new one.
    fn pad_for_link(&mut self, opcode_len: usize) {
        let at = (self.base as usize + self.out.code.len() + opcode_len) % 64;
        if at > 60 {
            let pad = 64 - at;
            self.bytes(&[0x90, 0x90, 0x90][..pad]);
        }
    }

    /// The word appended last depends on where something lies.
    fn relocated(&mut self, kind: Relocation) {
        self.out.relocations.push((self.out.code.len() - kind.bytes(), kind));
    }

    /// `lea register, [rip + …]`: an address in the application's module. Out of reach, where wild
    /// branches and far modules lead, `mov register, address`.
    fn load_address(&mut self, register: Register, address: u64) {
        let (high, low) = register_bits(register);
        let next = self.here().0 + 7;
        if let Ok(displacement) = i32::try_from(address.wrapping_sub(next) as i64) {
            self.bytes(&[0x48 | high << 2, 0x8d, 0x05 | low << 3]);
            self.imm32(displacement as u32);
            self.relocated(Relocation::Application);
        } else {
            self.mov_address(register, address);
        }
    }

    /// `mov register, address`: an address in the application's module.
    fn mov_address(&mut self, register: Register, address: u64) {
        let (high, low) = register_bits(register);
        self.bytes(&[0x48 | high, 0xb8 | low]);
        self.imm64(address);
        self.relocated(Relocation::Address);
    }

    /// A constant of eight bytes, which is an address in the application's module.
    pub fn constant(&mut self, address: u64) {
        self.imm64(address);
        self.relocated(Relocation::Address);
    }

    fn displacement_to(&mut self, target: u64) {
        let next = self.base + self.out.code.len() as u64 + 4;
        self.imm32(target.wrapping_sub(next) as u32);
    }

    /// `jmp rel32` to a known address
    pub fn jump_to(&mut self, target: CachePc) {
        self.bytes(&[0xe9]);
        self.displacement_to(target.0);
    }

    /// `jmp rel32` to the routine at `offset` among the arena's
    fn jump_to_routine(&mut self, offset: u32) {
        self.jump_to(CachePc(self.routines_at + u64::from(offset)));
        self.relocated(Relocation::Routines);
    }

    /// `jmp rel32`, linked to the application's `target`
    pub fn jump_link(&mut self, target: AppPc) {
        self.pad_for_link(1);
        self.bytes(&[0xe9]);
        self.out.links.push(Link { at: self.out.code.len(), target });
        self.imm32(0);
    }

    fn ask_from(&mut self, kind: RequestKind, pc: AppPc, rcx_spilled: bool, r11_spilled: bool) {
        self.out.asks.push(Ask {
            at: self.out.code.len(),
            kind,
            pc,
            rcx_spilled,
            r11_spilled,
            fragment: self.fragment,
            app: self.app,
            index: self.index,
            charged: !matches!(kind, RequestKind::Stale | RequestKind::Ends) && !self.uncharged,
            resumes: None,
        });
        self.imm32(0);
    }

    /// `jmp rel32` to a request
    fn jump_ask(&mut self, kind: RequestKind, pc: AppPc, rcx_spilled: bool) {
        self.bytes(&[0xe9]);
        self.ask_from(kind, pc, rcx_spilled, false);
    }
}

fn decode_one(pc: AppPc, bytes: &[u8]) -> Instruction {
    iced_x86::Decoder::with_ip(64, bytes, pc.0, iced_x86::DecoderOptions::NONE).decode()
}

/// The REX extension bit and the low three bits of a general register's number.
fn register_bits(register: Register) -> (u8, u8) {
    let number = register.number() as u8;
    (number >> 3, number & 7)
}

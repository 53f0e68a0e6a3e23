//! The rewrite rules: the translation of each kind of application code.
//!
//! Emitted code accesses the application's stack only as the application does, never changes a flag
//! that may be read, and borrows only rcx, r11 and rax, which it saves in the context.
//!
//! | rule | target | patch |
//! | --- | --- | --- |
//! | 1 | any instruction without a rip-relative or gs operand | the same bytes |
//! | 2 | a rip-relative operand | the same bytes, displacement corrected; out of reach, through a borrowed register |
//! | 3 | a gs-relative operand | operand rebased on the application's gs base in a borrowed register |
//! | 4 | `rdgsbase`, `wrgsbase` | a move from or to the context; a base that is no address faults |
//! | 5 | `jmp rel` | nothing, if the target comes next; else a linked `jmp rel32` |
//! | 6 | `jcc rel` | a linked `jcc rel32`; the not-taken side comes next |
//! | 7 | LOOP, JRCXZ … | the instruction over a linked `jmp rel32` |
//! | 8 | `call rel` | push of the return address; linked `jmp rel32` |
//! | 9 | `jmp`, `call`, `ret` through memory or register | target into rcx; jump through the table |
//! | 10 | `syscall` | the call itself, behind a filter by its number; then rcx := next pc |
//! | 11 | `rt_sigreturn` | the frame's rip changed to the landing; the call itself |
//! | 12 | `xbegin` | an abort: eax := 0, jump to the fallback address |
//! | 13 | CPUID and other answers of the virtual CPU | a request to the host |
//! | 14 | everything else | a request to single-step the instruction natively |
//! | 15 | XSAVE, XRSTOR … with fewer state components than the host | the mask in eax reduced first |
//! | 16 | a block, where LWP counts | what it counts taken from a word of the countdown |
//! | 17 | LLWPCB, SLWPCB, LWPINS, LWPVAL | nothing where LWP is off; else operands staged, and a request |
//! | 18 | a block in which an LWP event is due | the part up to the event, then a request |
//! | 19 | a memory operand, where LWP counts cache misses | its line compared with the set's most recent
//! | 20 | `popf` | the same, unless it sets the trap flag: then a request |
//! | 21 | `call` through memory or register, where calls are counted | as rule 9, counted by target |
//! | 22 | XSAVE, XRSTOR … whose mask may request the state of LWP | the same, unless it does: then a request
//! | 23 | an instruction before which a value is counted | the value counted as rule 21 counts targets, then the same |
//! | 24 | an instruction that ends something counted | a request, then the same |
//! | 25 | FXSAVE, FNSTENV … | the same, then a request if the x87 unit has a pointer |
//! | 26 | a call, return or jump to another function, where contexts are measured | the transfer recorded, then the same |

use iced_x86::{Instruction, Register};

use crate::addr::{AppPc, CachePc};
use crate::context::{Layout, RequestKind, Slot, counter_displacement};
use crate::fragment::FragmentId;
use crate::marks::Value;
use crate::relocation::Relocation;
use crate::routines::Routines;
use crate::state_map::StateEntry;

pub(crate) mod bodies;
pub(crate) mod calls;
pub(crate) mod countdown;
pub(crate) mod cut;
pub(crate) mod dcache;
pub(crate) mod guards;
pub(crate) mod heads;
pub(crate) mod lwp;
mod output;
pub(crate) mod stubs;
pub(crate) mod terminators;
pub(crate) mod trace;
mod watch;

pub(crate) use calls::CountedCall;
pub(crate) use countdown::{Countdown, Trip};
pub(crate) use dcache::{TOUCH_BYTES, Touch};
pub(crate) use guards::{ExitKind, SideExit, Tally, Target};
pub use heads::HEAD;
pub(crate) use output::Output;
pub(crate) use trace::Transfer;
pub use trace::stores as transfer_stores;
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
    /// The instructions that are added to the thread's sum; none where it has no sum.
    pub run: Option<u8>,
}

impl Charge {
    /// Of `counter`, before instruction `at`, where the flags are dead.
    pub fn at(counter: u32, at: usize, before: u8) -> Self {
        Self { counter, at, flags_dead: true, before, in_terminator: false, run: None }
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
    /// The way it is counted.
    pub charging: Charging,
    /// The value that is counted before the fragment's first instruction, and the first of its
    /// counters.
    pub value: Option<(Value, u32)>,
    /// True if misses of this fragment count, where data cache accesses are watched.
    pub dcache: Option<bool>,
    /// The knowledge of its accesses.
    pub watch: Watch,
    /// The place of the transfer that the fragment's terminator is, if it is to be written down.
    pub transfer: Option<trace::Site>,
    place: Place,
}

/// The instruction being emitted.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Its offset in the application's block.
    app: u8,
    /// Its index in the block.
    index: u8,
}

/// The way a fragment is counted, and how far that is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charging {
    /// True if it carries no charge: the host counts what is executed of it.
    pub by_host: bool,
    /// True if the body begins with its charge.
    pub first: bool,
    /// State bits of a body that has not been charged yet.
    before: u8,
    /// A charge that the terminator is to make.
    deferred: Option<Charge>,
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
            charging: Charging::default(),
            value: None,
            dcache: None,
            watch: Watch::default(),
            transfer: None,
            place: Place::default(),
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
        self.place = Place::default();
        self.watch.held = 0;
        self.watch.forget();
    }

    /// Throws away everything from `to` on.
    pub fn rewind(&mut self, to: CachePc) {
        let len = (to.0 - self.base) as usize;
        self.out.cut_back(len, to);
        let at = (len - self.piece_start) as u32;
        self.out.points.retain(|point| point.at < at);
        self.charging = Charging { by_host: self.charging.by_host, ..Charging::default() };
        self.value = None;
        self.place = Place::default();
        self.watch.held = 0;
        self.watch.forget();
    }

    /// From here on the application's state is `state`, at the instruction being emitted, with the
    /// registers that are held in their slots.
    pub fn point(&mut self, state: u8) {
        let at = (self.out.code.len() - self.piece_start) as u32;
        let state = state | self.watch.held;
        let point = StateEntry { at, app: self.place.app, index: self.place.index, state };
        match self.out.points.last_mut() {
            Some(last) if last.at == at => *last = point,
            _ => self.out.points.push(point),
        }
    }

    // ---- single instructions -------------------------------------------------------------------

    /// A displacement that may be patched later must not cross a cache line, so that other threads
    /// see the old one or the new one.
    fn pad_for_link(&mut self, opcode_len: usize) {
        let at = (self.base as usize + self.out.code.len() + opcode_len) % 64;
        if at > 60 {
            let pad = 64 - at;
            self.out.bytes(&[0x90, 0x90, 0x90][..pad]);
        }
    }

    /// `lea register, [rip + …]`: an address in the application's module. Out of reach, where wild
    /// branches and far modules lead, `mov register, address`.
    fn load_address(&mut self, register: Register, address: u64) {
        let (high, low) = register_bits(register);
        let next = self.here().0 + 7;
        if let Ok(displacement) = i32::try_from(address.wrapping_sub(next) as i64) {
            self.out.bytes(&[0x48 | high << 2, 0x8d, 0x05 | low << 3]);
            self.out.imm32(displacement as u32);
            self.out.relocated(Relocation::Application);
        } else {
            self.out.mov_address(register, address);
        }
    }

    fn displacement_to(&mut self, target: u64) {
        let next = self.base + self.out.code.len() as u64 + 4;
        self.out.imm32(target.wrapping_sub(next) as u32);
    }

    /// `jmp rel32` to a known address
    pub fn jump_to(&mut self, target: CachePc) {
        self.out.bytes(&[0xe9]);
        self.displacement_to(target.0);
    }

    /// `jmp rel32` to the routine at `offset` among the arena's
    fn jump_to_routine(&mut self, offset: u32) {
        self.jump_to(CachePc(self.routines_at + u64::from(offset)));
        self.out.relocated(Relocation::Routines);
    }

    /// `jmp rel32`, linked to the application's `target`
    pub fn jump_link(&mut self, target: AppPc) {
        self.pad_for_link(1);
        self.out.bytes(&[0xe9]);
        self.out.links.push(Link { at: self.out.code.len(), target });
        self.out.imm32(0);
    }

    fn ask_from(&mut self, kind: RequestKind, pc: AppPc, rcx_spilled: bool, r11_spilled: bool) {
        self.out.asks.push(Ask {
            at: self.out.code.len(),
            kind,
            pc,
            rcx_spilled,
            r11_spilled,
            fragment: self.fragment,
            app: self.place.app,
            index: self.place.index,
            charged: !matches!(kind, RequestKind::Stale | RequestKind::Ends)
                && !self.charging.by_host,
            resumes: None,
        });
        self.out.imm32(0);
    }

    /// `jmp rel32` to a request
    fn jump_ask(&mut self, kind: RequestKind, pc: AppPc, rcx_spilled: bool) {
        self.out.bytes(&[0xe9]);
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

//! The rules: what each kind of application code becomes.
//!
//! Emitted code never touches the application's stack beyond what the application itself does,
//! never changes a flag that may be read, and borrows only rcx, r11 and rax, through the context.
//!
//! | rule | target | patch |
//! | --- | --- | --- |
//! | 1 | any instruction without a rip-relative or gs operand | the same bytes |
//! | 2 | a rip-relative operand | the same bytes, displacement corrected |
//! | 3 | a gs-relative operand | operand rebased on the application's gs base in a borrowed register |
//! | 4 | `rdgsbase`, `wrgsbase` | a move from or to the context |
//! | 5 | `jmp rel` | nothing, if the target is laid behind; else a linked `jmp rel32` |
//! | 6 | `jcc rel` | a linked `jcc rel32`; the not-taken side is laid behind |
//! | 7 | LOOP, JRCXZ … | the instruction over a linked `jmp rel32` |
//! | 8 | `call rel` | push of the return address; linked `jmp rel32` |
//! | 9 | `jmp`, `call`, `ret` through memory or register | target into rcx; jump through the table |
//! | 10 | `syscall` | the call itself, behind a filter by its number; then rcx := next pc |
//! | 11 | `rt_sigreturn` | the frame's rip redirected to the landing; the call itself |
//! | 12 | `xbegin` | an abort: eax := 0, on to the fallback address |
//! | 15 | XSAVE, XRSTOR … with fewer state components than the host | the mask in eax reduced first |
//! | 13 | CPUID and other answers of the virtual CPU | a request to the host |
//! | 16 | a block, where LWP counts | what it counts taken from a word of the countdown |
//! | 17 | LLWPCB, SLWPCB, LWPINS, LWPVAL | nothing where LWP is off; else operands staged, and a request |
//! | 18 | a block in which an LWP event is due | the part up to the event, then a request |
//! | 19 | a memory operand, where LWP counts cache misses | its line compared with the set's most recent
//! | 20 | `popf` | the same, unless it sets the trap flag: then a request |
//! | 14 | everything else | a request to execute the instruction natively, alone |

use iced_x86::{Code, Encoder, Instruction, MemorySize, OpKind, Register};

use crate::addr::{AppPc, CachePc};
use crate::block::{Block, Carry, Insn};
use crate::context::{Layout, RequestKind, Slot, SyscallClass, counter_displacement, wide_index};
use crate::fragment::FragmentId;
use crate::recipe::{Point, bits};
use crate::relocation::Relocation;
use crate::routines::{Routines, SIGFRAME_RIP};

mod dcache;
mod lwp;

pub(crate) use dcache::Touch;
pub(crate) use lwp::{Countdown, Trip};

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
    /// What is asked.
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
    /// Whether the fragment has been charged.
    pub charged: bool,
}

/// Where and how a fragment is charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// Its counter.
    pub counter: u32,
    /// Before which instruction of the block.
    pub at: usize,
    /// Whether the flags are dead there.
    pub flags_dead: bool,
    /// The state bits until then.
    pub before: u8,
    /// By the terminator, in a register that it borrows anyway.
    pub in_terminator: bool,
}

/// What an emitter collects, for the next one to use the memory again.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    code: Vec<u8>,
    links: Vec<Link>,
    asks: Vec<Ask>,
    trips: Vec<Trip>,
    touches: Vec<Touch>,
    constants: Vec<(usize, u64)>,
    relocations: Vec<(usize, Relocation)>,
    points: Vec<Point>,
}

/// The only place that appends translated code.
pub(crate) struct Emitter<'a> {
    pub code: Vec<u8>,
    /// Address of the first byte of `code`.
    pub base: u64,
    pub layout: Layout,
    pub routines: &'a Routines,
    /// Address of this arena's copy of the routines.
    pub routines_at: u64,
    pub links: Vec<Link>,
    pub asks: Vec<Ask>,
    pub trips: Vec<Trip>,
    pub touches: Vec<Touch>,
    /// Return addresses to be pushed: displacement offset, value.
    pub constants: Vec<(usize, u64)>,
    /// Offsets of the displacements that depend on where the code and its counters lie.
    pub relocations: Vec<(usize, Relocation)>,
    /// Points of the fragment being emitted; offsets relative to `piece_start`.
    pub points: Vec<Point>,
    pub piece_start: usize,
    /// The fragment being emitted, once its body has begun.
    pub fragment: Option<FragmentId>,
    /// It carries no charge: what is executed of it is counted by the host.
    pub uncharged: bool,
    /// Where data cache accesses are watched, whether misses of this fragment count.
    pub dcache: Option<bool>,
    /// Application offset and index of the instruction being emitted.
    app: u8,
    index: u8,
    /// State bits of a body that has not been charged yet.
    before: u8,
    /// A charge that the terminator is to make.
    deferred: Option<Charge>,
    /// Whether the body begins with its charge.
    pub charged_first: bool,
}

impl<'a> Emitter<'a> {
    pub fn new(base: u64, layout: Layout, routines: &'a Routines, routines_at: u64) -> Self {
        Self {
            code: Vec::new(),
            base,
            layout,
            routines,
            routines_at,
            links: Vec::new(),
            asks: Vec::new(),
            trips: Vec::new(),
            touches: Vec::new(),
            constants: Vec::new(),
            relocations: Vec::new(),
            points: Vec::new(),
            piece_start: 0,
            fragment: None,
            uncharged: false,
            dcache: None,
            app: 0,
            index: 0,
            before: 0,
            deferred: None,
            charged_first: false,
        }
    }

    /// Collects into the memory of an earlier emitter.
    pub fn reuse(&mut self, mut buffers: Buffers) {
        buffers.code.clear();
        buffers.links.clear();
        buffers.asks.clear();
        buffers.trips.clear();
        buffers.touches.clear();
        buffers.constants.clear();
        buffers.relocations.clear();
        buffers.points.clear();
        let Buffers { code, links, asks, trips, touches, constants, relocations, points } = buffers;
        *self = Self { code, links, asks, trips, touches, constants, relocations, points, ..*self };
    }

    /// The memory, for [`Self::reuse`].
    pub fn buffers(self) -> Buffers {
        let Self { code, links, asks, trips, touches, constants, relocations, points, .. } = self;
        Buffers { code, links, asks, trips, touches, constants, relocations, points }
    }

    /// Address of the next byte.
    pub fn here(&self) -> CachePc {
        CachePc(self.base + self.code.len() as u64)
    }

    /// Starts a piece of code with a point table of its own here.
    pub fn start_piece(&mut self) {
        self.points.clear();
        self.piece_start = self.code.len();
        self.fragment = None;
        self.app = 0;
        self.index = 0;
    }

    /// Throws away everything from `to` on.
    pub fn rewind(&mut self, to: CachePc) {
        let len = (to.0 - self.base) as usize;
        self.code.truncate(len);
        self.links.retain(|link| link.at < len);
        self.asks.retain(|ask| ask.at < len);
        self.trips.retain(|trip| trip.at < len);
        self.touches.retain(|touch| touch.at < len);
        self.constants.retain(|(at, _)| *at < len);
        self.relocations.retain(|(at, _)| *at < len);
        let at = (len - self.piece_start) as u32;
        self.points.retain(|point| point.at < at);
        self.before = 0;
        self.deferred = None;
        self.charged_first = false;
        self.app = 0;
        self.index = 0;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    fn imm32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    fn imm64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// From here on the application's state is `state`, at the instruction being emitted.
    pub fn point(&mut self, state: u8) {
        let at = (self.code.len() - self.piece_start) as u32;
        let point = Point { at, app: self.app, index: self.index, state };
        match self.points.last_mut() {
            Some(last) if last.at == at => *last = point,
            _ => self.points.push(point),
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
        let at = (self.base as usize + self.code.len() + opcode_len) % 64;
        if at > 60 {
            let pad = 64 - at;
            self.bytes(&[0x90, 0x90, 0x90][..pad]);
        }
    }

    /// The four bytes appended last depend on where the code or its counters lie.
    fn relocated(&mut self, kind: Relocation) {
        self.relocations.push((self.code.len() - 4, kind));
    }

    fn displacement_to(&mut self, target: u64) {
        let next = self.base + self.code.len() as u64 + 4;
        self.imm32(target.wrapping_sub(next) as u32);
    }

    /// `jmp rel32` to a known address
    pub fn jump_to(&mut self, target: CachePc) {
        self.bytes(&[0xe9]);
        self.displacement_to(target.0);
    }

    /// `jmp rel32`, linked to the application's `target`
    pub fn jump_link(&mut self, target: AppPc) {
        self.pad_for_link(1);
        self.bytes(&[0xe9]);
        self.links.push(Link { at: self.code.len(), target });
        self.imm32(0);
    }

    fn ask_from(&mut self, kind: RequestKind, pc: AppPc, rcx_spilled: bool, r11_spilled: bool) {
        self.asks.push(Ask {
            at: self.code.len(),
            kind,
            pc,
            rcx_spilled,
            r11_spilled,
            fragment: self.fragment,
            app: self.app,
            index: self.index,
            charged: kind != RequestKind::Stale && !self.uncharged,
        });
        self.imm32(0);
    }

    /// `jmp rel32` to a request
    fn jump_ask(&mut self, kind: RequestKind, pc: AppPc, rcx_spilled: bool) {
        self.bytes(&[0xe9]);
        self.ask_from(kind, pc, rcx_spilled, false);
    }

    // ---- entries, heads, counters --------------------------------------------------------------

    /// The entry stub of `pc`, reached from the indirect table or along a chain.
    ///
    /// ```text
    /// Target:  rcx = wanted pc; rcx and r11 in their slots
    /// Patch:   r11 := -pc; rcx := rcx + r11; rcx = 0 --> ok
    ///          r11 := pc; rcx := rcx + r11; jmp [chain slot]
    ///          ok: rcx := slot; r11 := slot
    /// ```
    ///
    /// Returns the entry's address. The check stands at the target, so that the table needs one word
    /// a slot and the site one load. It may not touch the flags even where they are dead at `pc`:
    /// along a chain it is passed on the way to other targets, which may read them.
    pub fn entry_stub(&mut self, pc: AppPc, chain_slot: u64) -> CachePc {
        let spilled = bits::SPILL_RCX | bits::SPILL_R11;
        let at_rcx = spilled | bits::PC_RCX | bits::UNCOUNTED;
        self.point(at_rcx);
        let entry = self.here();
        self.mov_r11(pc.0.wrapping_neg());
        self.lea_rcx_rcx_r11();
        self.point(spilled | bits::PC_RCX_PLUS | bits::UNCOUNTED);
        self.bytes(&[0xe3, 0]);
        let from = self.code.len();
        self.mov_r11(pc.0);
        self.lea_rcx_rcx_r11();
        self.point(at_rcx);
        self.jump_chain(chain_slot);
        self.code[from - 1] = (self.code.len() - from) as u8;
        self.point(spilled | bits::UNCOUNTED);
        self.reload_rcx();
        self.point(bits::SPILL_R11 | bits::UNCOUNTED);
        self.reload_r11();
        self.point(bits::UNCOUNTED);
        entry
    }

    /// `jmp [chain slot]`
    fn jump_chain(&mut self, chain_slot: u64) {
        self.bytes(&[0xff, 0x24, 0x25]);
        self.imm32(chain_slot as u32);
        self.relocated(Relocation::Chain);
    }

    /// Adds one to a counter. `before` is the state until it has been counted, without its two
    /// uncounted bits it is the state from then on.
    pub fn count(&mut self, counter: u32, flags_dead: bool, before: u8) {
        self.count_between(counter, flags_dead, before, before & !(bits::UNCOUNTED | bits::EDGE));
    }

    /// Adds one to a counter, which takes the state from `before` to `after`.
    pub fn count_between(&mut self, counter: u32, flags_dead: bool, before: u8, after: u8) {
        self.point(before);
        let start = self.here();
        if flags_dead {
            self.bytes(&[0x65, 0x48, 0xff, 0x04, 0x25]);
            self.imm32(counter_displacement(counter));
            self.relocated(Relocation::Counter);
        } else {
            self.spill_rcx();
            self.point(before | bits::SPILL_RCX);
            self.count_in_rcx(counter);
            self.point(after | bits::SPILL_RCX);
            self.reload_rcx();
        }
        debug_assert_eq!(self.here(), start.offset(Self::count_bytes(flags_dead)));
        self.point(after);
    }

    /// Bytes of the code that adds one to a counter.
    pub fn count_bytes(flags_dead: bool) -> u64 {
        if flags_dead { 9 } else { 9 + 9 + 4 + 9 + 9 }
    }

    /// Adds one to a counter in rcx, which has been spilled. No flag changes.
    fn count_in_rcx(&mut self, counter: u32) {
        let displacement = counter_displacement(counter);
        self.load_rcx(displacement);
        self.relocated(Relocation::Counter);
        self.bytes(&[0x48, 0x8d, 0x49, 0x01]);
        self.store_rcx(displacement);
        self.relocated(Relocation::Counter);
    }

    /// Five bytes at a fragment's head that one aligned store can turn into a jump.
    pub fn patchable_head(&mut self) -> CachePc {
        self.point(bits::UNCOUNTED);
        while (self.base as usize + self.code.len()) % 8 > 3 {
            self.bytes(&[0x90]);
        }
        let head = self.here();
        self.bytes(&[0x0f, 0x1f, 0x44, 0x00, 0x00]);
        head
    }

    /// Compares the fragment's own bytes with what was translated; a difference asks the host.
    ///
    /// The flags stay as they are: the bytes that made them dead may be the ones that have changed.
    /// Returns false where the bytes cannot be reached from here.
    pub fn self_check(&mut self, pc: AppPc, bytes: &[u8]) -> bool {
        self.point(bits::UNCOUNTED);
        self.spill_rcx();
        self.point(bits::UNCOUNTED | bits::SPILL_RCX);
        self.spill_r11();
        self.point(bits::UNCOUNTED | bits::SPILL_RCX | bits::SPILL_R11);
        for (offset, width) in pieces(pc.0, bytes.len(), 8) {
            let operand = pc.0 + offset as u64;
            let mut value = [0u8; 8];
            value[..width].copy_from_slice(&bytes[offset..offset + width]);
            self.bytes(match width {
                8 => &[0x48, 0x8b, 0x0d],
                4 => &[0x8b, 0x0d],
                2 => &[0x0f, 0xb7, 0x0d],
                _ => &[0x0f, 0xb6, 0x0d],
            });
            let next = self.here().0 + 4;
            let Ok(displacement) = i32::try_from(operand.wrapping_sub(next) as i64) else {
                return false;
            };
            self.imm32(displacement as u32);
            self.mov_r11(u64::from_le_bytes(value).wrapping_neg());
            self.lea_rcx_rcx_r11();
            self.bytes(&[0xe3, 0x05, 0xe9]);
            self.ask_from(RequestKind::Stale, pc, true, true);
        }
        self.reload_rcx();
        self.point(bits::UNCOUNTED | bits::SPILL_R11);
        self.reload_r11();
        self.point(bits::UNCOUNTED);
        true
    }

    // ---- bodies --------------------------------------------------------------------------------

    /// Carries over the instructions before the terminator. Returns false where one cannot be
    /// reached from here, which makes the block untranslatable at this address.
    pub fn body(&mut self, block: &Block, charge: Option<Charge>) -> bool {
        let uncharged = if self.uncharged { bits::UNCOUNTED } else { 0 };
        self.before = charge.map_or(uncharged, |charge| charge.before);
        self.charged_first = false;
        for (index, insn) in block.insns.iter().enumerate() {
            self.app = insn.offset as u8;
            self.index = index as u8;
            self.charge(charge, index);
            self.point(self.before);
            let start = usize::from(insn.offset);
            let bytes = &block.bytes[start..start + usize::from(insn.len)];
            if !self.touch_operands(block, start, bytes) {
                return false;
            }
            let ok = match insn.carry {
                Carry::Copy => {
                    self.bytes(bytes);
                    true
                }
                Carry::RipRelative { displacement_at, operand } => {
                    self.rip_relative(bytes, displacement_at, operand)
                }
                Carry::AppGs => self.app_gs(block, insn, bytes),
                Carry::GsBase => self.gs_base(bytes),
                Carry::StateSave(relative) => self.state_save(insn, bytes, relative),
            };
            if !ok {
                return false;
            }
        }
        self.app = block.terminator_offset as u8;
        self.index = block.insns.len() as u8;
        match charge {
            Some(charge) if charge.in_terminator => self.deferred = Some(charge),
            _ => {
                self.charge(charge, block.insns.len());
                self.before = 0;
            }
        }
        true
    }

    /// Charges the fragment if this is the place.
    fn charge(&mut self, charge: Option<Charge>, index: usize) {
        if let Some(charge) = charge
            && charge.at == index
            && !charge.in_terminator
        {
            self.count(charge.counter, charge.flags_dead, charge.before);
            self.before = 0;
            self.charged_first = index == 0;
        }
    }

    /// Charges the fragment in rcx, which the terminator has borrowed for its target and not loaded yet;
    /// where the target's operand needs it, it has its own value again afterwards.
    fn charge_in_terminator(&mut self, needed: bool) {
        let Some(charge) = self.deferred.take() else { return };
        self.count_in_rcx(charge.counter);
        self.before = 0;
        self.point(bits::SPILL_RCX);
        if needed {
            self.reload_rcx();
        }
    }

    /// Rule 2.
    fn rip_relative(&mut self, bytes: &[u8], displacement_at: u8, operand: u64) -> bool {
        let next = self.base + (self.code.len() + bytes.len()) as u64;
        let Ok(displacement) = i32::try_from(operand.wrapping_sub(next) as i64) else {
            return false;
        };
        let at = self.code.len() + usize::from(displacement_at);
        self.bytes(bytes);
        self.code[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
        self.relocations.push((at, Relocation::Application));
        true
    }

    /// Rule 3.
    ///
    /// ```text
    /// Target:  op  gs:[base + index*scale + disp]
    /// Patch:   slot := T; T := context.app_gs; T := T + base; op [T + index*scale + disp]; T := slot
    /// ```
    fn app_gs(&mut self, block: &Block, insn: &Insn, bytes: &[u8]) -> bool {
        let pc = block.pc.offset(u64::from(insn.offset));
        let mut instruction = decode_one(pc, bytes);
        let Some((temp, slot, spill)) = unused_register(&instruction) else { return false };
        let (rex_reg, low) = register_bits(temp);
        // mov gs:[slot], T
        self.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x89, 0x04 | (low << 3), 0x25]);
        self.imm32(slot as u32);
        self.point(self.before | spill);
        // mov T, gs:[app_gs]
        self.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x8b, 0x04 | (low << 3), 0x25]);
        self.imm32(Slot::AppGs as u32);
        if instruction.memory_base() != Register::None {
            let lea = iced_x86::Instruction::with2(
                Code::Lea_r64_m,
                temp,
                iced_x86::MemoryOperand::with_base_index(temp, instruction.memory_base()),
            );
            // rsp cannot be an index: swap the roles.
            let lea = if instruction.memory_base() == Register::RSP {
                iced_x86::Instruction::with2(
                    Code::Lea_r64_m,
                    temp,
                    iced_x86::MemoryOperand::with_base_index(Register::RSP, temp),
                )
            } else {
                lea
            };
            let Ok(lea) = lea else { return false };
            if !self.encode(&lea) {
                return false;
            }
        }
        instruction.set_segment_prefix(Register::None);
        instruction.set_memory_base(temp);
        if instruction.memory_displ_size() == 0 || instruction.memory_displ_size() == 8 {
            instruction.set_memory_displ_size(1);
        }
        if instruction.memory_size() == MemorySize::Unknown && instruction.code() == Code::INVALID {
            return false;
        }
        if !self.encode(&instruction) {
            return false;
        }
        // mov T, gs:[slot]. The instruction has been executed: what follows is the next one.
        let len = insn.len;
        self.app += len;
        self.index += 1;
        self.point(self.before | spill);
        self.bytes(&[0x65, 0x48 | (rex_reg << 2), 0x8b, 0x04 | (low << 3), 0x25]);
        self.imm32(slot as u32);
        true
    }

    fn encode(&mut self, instruction: &Instruction) -> bool {
        let mut encoder = Encoder::new(64);
        if encoder.encode(instruction, self.here().0).is_err() {
            return false;
        }
        let bytes = encoder.take_buffer();
        self.bytes(&bytes);
        true
    }

    /// Rule 15.
    ///
    /// ```text
    /// Target:  xsave [m]                    -- components in edx:eax, of those in the real XCR0
    /// Patch:   slot := rax
    ///          eax := pdep(pext(eax, mask), mask)    -- eax & mask, flags untouched
    ///          xsave [m]; rax := slot
    /// ```
    fn state_save(&mut self, insn: &Insn, bytes: &[u8], relative: Option<(u8, u64)>) -> bool {
        self.bytes(&[0x65, 0x48, 0x89, 0x04, 0x25]);
        self.imm32(Slot::Rax as u32);
        self.point(self.before | bits::SPILL_RAX);
        // pext eax, eax, gs:[mask]; pdep eax, eax, gs:[mask]
        self.bytes(&[0x65, 0xc4, 0xe2, 0x7a, 0xf5, 0x04, 0x25]);
        self.imm32(Slot::StateMask as u32);
        self.bytes(&[0x65, 0xc4, 0xe2, 0x7b, 0xf5, 0x04, 0x25]);
        self.imm32(Slot::StateMask as u32);
        let ok = match relative {
            Some((at, operand)) => self.rip_relative(bytes, at, operand),
            None => {
                self.bytes(bytes);
                true
            }
        };
        self.app += insn.len;
        self.index += 1;
        self.point(self.before | bits::SPILL_RAX);
        self.bytes(&[0x65, 0x48, 0x8b, 0x04, 0x25]);
        self.imm32(Slot::Rax as u32);
        ok
    }

    /// Rule 4. The 32-bit forms move 32 bits and clear the rest.
    fn gs_base(&mut self, bytes: &[u8]) -> bool {
        let instruction = decode_one(AppPc(0), bytes);
        let register = instruction.op0_register();
        let (rex_reg, low) = register_bits(register.full_register());
        let wide = register.is_gpr64();
        let read = matches!(instruction.code(), Code::Rdgsbase_r32 | Code::Rdgsbase_r64);
        let rex = 0x40 | (u8::from(wide) << 3) | (rex_reg << 2);
        self.bytes(&[0x65, rex, if read { 0x8b } else { 0x89 }, 0x04 | (low << 3), 0x25]);
        self.imm32(Slot::AppGs as u32);
        if !read && !wide {
            // mov dword gs:[app_gs + 4], 0
            self.bytes(&[0x65, 0xc7, 0x04, 0x25]);
            self.imm32(Slot::AppGs as u32 + 4);
            self.imm32(0);
        }
        true
    }

    // ---- terminators ---------------------------------------------------------------------------

    /// Rule 6, the taken side.
    pub fn conditional(&mut self, condition: u8, target: AppPc) {
        self.point(0);
        self.pad_for_link(2);
        self.bytes(&[0x0f, 0x80 | condition]);
        self.links.push(Link { at: self.code.len(), target });
        self.imm32(0);
    }

    /// Rule 7.
    ///
    /// ```text
    /// Target:  loop T
    /// Patch:   loop L; jmp N; L: jmp T; N:
    /// ```
    pub fn counted_loop(&mut self, block: &Block, target: AppPc) {
        let bytes = &block.bytes[usize::from(block.terminator_offset)..];
        self.point(0);
        self.bytes(&bytes[..bytes.len() - 1]);
        self.bytes(&[2]);
        self.fell_through(block);
        self.point(bits::EDGE);
        // jmp over the linked jump, whose padding is not known yet.
        let over = self.code.len();
        self.bytes(&[0xeb, 0]);
        self.point(bits::PC_TARGET);
        self.jump_link(target);
        self.code[over + 1] = (self.code.len() - (over + 2)) as u8;
    }

    /// The terminator at hand has been executed; the pc is then as `state` says.
    fn complete(&mut self, state: u8) {
        self.index += 1;
        self.point(state);
    }

    /// The not-taken side of a conditional branch starts here, not counted yet.
    pub fn fell_through(&mut self, block: &Block) {
        self.index = block.instructions() as u8;
        self.app = block.bytes.len() as u8;
    }

    /// Everything of the block has been executed; the pc is the next one.
    pub fn fell_off(&mut self, block: &Block) {
        self.app = block.bytes.len() as u8;
        self.index = block.instructions() as u8;
        self.point(0);
    }

    /// Rule 8.
    pub fn call(&mut self, target: AppPc, next: AppPc) {
        self.point(0);
        self.push_return(next);
        self.complete(bits::PC_TARGET);
        self.jump_link(target);
    }

    fn push_return(&mut self, next: AppPc) {
        if next.0 <= 0x7fff_ffff {
            self.bytes(&[0x68]);
            self.imm32(next.0 as u32);
        } else {
            self.bytes(&[0xff, 0x35]);
            self.constants.push((self.code.len(), next.0));
            self.imm32(0);
        }
    }

    /// Rule 9 for jumps and calls. Returns false where the operand cannot be reached from here.
    pub fn indirect(&mut self, block: &Block, push: Option<AppPc>) -> bool {
        self.point(self.before);
        self.spill_rcx();
        self.point(self.before | bits::SPILL_RCX);
        let last = &block.last;
        let operand = [last.op0_register(), last.memory_base(), last.memory_index()];
        self.charge_in_terminator(operand.iter().any(|r| r.full_register() == Register::RCX));
        if !self.load_target(block) {
            return false;
        }
        if let Some(next) = push {
            self.push_return(next);
        }
        self.complete(bits::SPILL_RCX | bits::PC_RCX);
        self.dispatch();
        true
    }

    /// `mov rcx, r/m64` from the terminator's own operand.
    fn load_target(&mut self, block: &Block) -> bool {
        let last = &block.last;
        if last.op0_kind() == OpKind::Register {
            let (rex_reg, low) = register_bits(last.op0_register());
            if last.op0_register() != Register::RCX {
                self.bytes(&[0x48 | rex_reg, 0x8b, 0xc8 | low]);
            }
            return true;
        }
        let mut load = *last;
        load.set_code(Code::Mov_r64_rm64);
        load.set_op1_kind(OpKind::Memory);
        load.set_op0_kind(OpKind::Register);
        load.set_op0_register(Register::RCX);
        if last.is_ip_rel_memory_operand() {
            let operand = last.ip_rel_memory_address();
            if last.segment_prefix() == Register::FS {
                self.bytes(&[0x64]);
            }
            self.bytes(&[0x48, 0x8b, 0x0d]);
            let next = self.base + self.code.len() as u64 + 4;
            let Ok(displacement) = i32::try_from(operand.wrapping_sub(next) as i64) else {
                return false;
            };
            self.imm32(displacement as u32);
            self.relocated(Relocation::Application);
            return true;
        }
        self.encode(&load)
    }

    /// Rule 9 for returns. The load comes first: it faults before anything has changed.
    pub fn ret(&mut self, release: u16) {
        self.point(self.before);
        self.spill_rcx();
        self.point(self.before | bits::SPILL_RCX);
        self.charge_in_terminator(false);
        self.pop_target(release);
        self.complete(bits::SPILL_RCX | bits::PC_RCX);
        self.dispatch();
    }

    /// Pops the return address into rcx, and releases more.
    fn pop_target(&mut self, release: u16) {
        if release == 0 {
            self.bytes(&[0x59]);
        } else {
            self.bytes(&[0x48, 0x8b, 0x0c, 0x24]);
            self.bytes(&[0x48, 0x8d, 0xa4, 0x24]);
            self.imm32(u32::from(release) + 8);
        }
    }

    /// Jumps to the application pc in rcx, whose own value is in its slot.
    fn dispatch(&mut self) {
        self.spill_r11();
        self.point(bits::SPILL_RCX | bits::SPILL_R11 | bits::PC_RCX);
        if wide_index() {
            // pext r11d, ecx, [mask]
            self.bytes(&[0xc4, 0x62, 0x72, 0xf5, 0x1c, 0x25]);
            self.imm32(self.layout.index_mask() as u32);
        } else {
            // movzx r11d, cx
            self.bytes(&[0x44, 0x0f, 0xb7, 0xd9]);
        }
        // jmp [r11*8 + table]
        self.bytes(&[0x42, 0xff, 0x24, 0xdd]);
        self.imm32(self.layout.table() as u32);
    }

    /// Rule 10 with the number known: no filter where the class is known too.
    pub fn syscall(&mut self, block: &Block, class: Option<SyscallClass>) {
        let pc = block.terminator_pc();
        match class {
            Some(SyscallClass::Native) => self.point(0),
            Some(SyscallClass::Host) => {
                self.point(0);
                self.jump_ask(RequestKind::Syscall, pc, false);
                return;
            }
            Some(SyscallClass::Prot) => {
                self.point(0);
                self.spill_rcx();
                self.point(bits::SPILL_RCX);
                self.prot_filter(pc);
            }
            None => self.number_filter(pc),
        }
        // syscall
        self.bytes(&[0x0f, 0x05]);
        self.app = block.bytes.len() as u8;
        self.complete(bits::SYSCALL);
        self.mov_rcx(block.next().0);
        self.point(0);
    }

    /// Looks up the class of the call number in eax: the kernel uses its low 32 bits.
    ///
    /// ```text
    /// Patch:   slot := rcx
    ///          ecx := bswap(eax), low half    -- non-zero where eax >= 0x10000
    ///          non-zero --> ask
    ///          ecx := classes[ax]; zero --> go
    ///          ask the host
    ///          go:
    /// ```
    fn number_filter(&mut self, pc: AppPc) {
        self.point(0);
        self.spill_rcx();
        self.point(bits::SPILL_RCX);
        // mov ecx, eax; bswap ecx; movzx ecx, cx; jrcxz +5
        self.bytes(&[0x89, 0xc1, 0x0f, 0xc9, 0x0f, 0xb7, 0xc9, 0xe3, 0x05]);
        self.jump_ask(RequestKind::Syscall, pc, true);
        // movzx ecx, ax; movzx ecx, byte [rcx + classes]; jrcxz +5
        self.bytes(&[0x0f, 0xb7, 0xc8, 0x0f, 0xb6, 0x89]);
        self.imm32(self.layout.syscall_classes() as u32);
        self.bytes(&[0xe3, 0x05]);
        self.jump_ask(RequestKind::Syscall, pc, true);
    }

    /// Asks the host where the third argument has PROT_EXEC.
    fn prot_filter(&mut self, pc: AppPc) {
        // movzx ecx, dl; movzx ecx, byte [rcx + prot classes]; jrcxz +5
        self.bytes(&[0x0f, 0xb6, 0xca, 0x0f, 0xb6, 0x89]);
        self.imm32(self.layout.prot_classes() as u32);
        self.bytes(&[0xe3, 0x05]);
        self.jump_ask(RequestKind::Syscall, pc, true);
    }

    /// Rule 11.
    ///
    /// ```text
    /// Target:  rt_sigreturn
    /// Patch:   context.sig_frame := rsp; context.sig_pc := frame.rip; frame.rip := landing; the call
    /// ```
    pub fn sigreturn(&mut self) {
        let landing = self.layout.routines() + u64::from(self.routines.sigreturn);
        self.point(0);
        self.spill_rcx();
        self.point(bits::SPILL_RCX);
        // mov gs:[sig_frame], rsp
        self.bytes(&[0x65, 0x48, 0x89, 0x24, 0x25]);
        self.imm32(Slot::SigFrame as u32);
        // mov rcx, [rsp + rip]
        self.bytes(&[0x48, 0x8b, 0x8c, 0x24]);
        self.imm32(SIGFRAME_RIP as u32);
        self.store_rcx(Slot::SigPc as u32);
        self.mov_rcx(landing);
        // mov [rsp + rip], rcx
        self.bytes(&[0x48, 0x89, 0x8c, 0x24]);
        self.imm32(SIGFRAME_RIP as u32);
        self.point(bits::SPILL_RCX | bits::SYSCALL | bits::PC_RCX);
        self.bytes(&[0x0f, 0x05]);
        // Not reached: a bad frame kills the program.
        self.complete(bits::SPILL_RCX);
        self.bytes(&[0x0f, 0x0b]);
    }

    /// Rule 12.
    pub fn transaction_abort(&mut self, target: AppPc) {
        self.point(0);
        // mov eax, 0
        self.bytes(&[0xb8, 0, 0, 0, 0]);
        self.complete(bits::PC_TARGET);
        self.jump_link(target);
    }

    /// Rule 20. Every flag that the test changes is about to be overwritten.
    ///
    /// ```text
    /// Target:  popf
    /// Patch:   test byte [rsp + 1], 1; not zero --> ask the host
    ///          popf
    /// ```
    pub fn pop_flags(&mut self, block: &Block) {
        self.point(0);
        // test byte [rsp + 1], 1; jnz ask
        self.bytes(&[0xf6, 0x44, 0x24, 0x01, 0x01]);
        self.pad_for_link(2);
        self.bytes(&[0x0f, 0x85]);
        self.ask_from(RequestKind::TrapFlag, block.terminator_pc(), false, false);
        self.bytes(&block.bytes[usize::from(block.terminator_offset)..]);
        self.fell_off(block);
    }

    /// Rules 13 and 14.
    pub fn ask(&mut self, kind: RequestKind, pc: AppPc) {
        self.point(0);
        self.jump_ask(kind, pc, false);
    }

    // ---- stubs behind the region ---------------------------------------------------------------

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

    /// The stub of an exit to what is not of this mapping, such as from generated code to a library: it
    /// will never be linked, so it finds its way through the table.
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
        self.mov_rcx(target.0);
        self.dispatch();
        stub
    }

    fn ask_about(&mut self, target: AppPc, state: u8, routine: u32) {
        self.spill_r11();
        self.point(state | bits::SPILL_R11);
        self.mov_r11(target.0);
        self.jump_to(CachePc(self.routines_at + u64::from(routine)));
        self.relocated(Relocation::Routines);
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

/// Covers `len` bytes at `address` with naturally aligned pieces of at most `widest` bytes: reading
/// code as data must work also where the application has alignment checking on.
fn pieces(address: u64, len: usize, widest: usize) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < len {
        let mut width = widest;
        while width > len - at || !(address + at as u64).is_multiple_of(width as u64) {
            width /= 2;
        }
        out.push((at, width));
        at += width;
    }
    out
}

fn decode_one(pc: AppPc, bytes: &[u8]) -> Instruction {
    iced_x86::Decoder::with_ip(64, bytes, pc.0, iced_x86::DecoderOptions::NONE).decode()
}

/// The REX extension bit and the low three bits of a general register's number.
fn register_bits(register: Register) -> (u8, u8) {
    let number = register.number() as u8;
    (number >> 3, number & 7)
}

/// A register that the instruction does not mention, with its spill slot and state bit.
fn unused_register(instruction: &Instruction) -> Option<(Register, Slot, u8)> {
    let mut factory = iced_x86::InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let used = |register: Register| {
        info.used_registers().iter().any(|used| used.register().full_register() == register)
            || info.used_memory().iter().any(|memory| {
                memory.base().full_register() == register
                    || memory.index().full_register() == register
            })
    };
    // ah, ch, dh and bh cannot be encoded together with r11.
    let high = (0..instruction.op_count()).any(|op| {
        matches!(
            instruction.op_register(op),
            Register::AH | Register::CH | Register::DH | Register::BH
        )
    });
    [
        (Register::RCX, Slot::Rcx, bits::SPILL_RCX),
        (Register::R11, Slot::R11, bits::SPILL_R11),
        (Register::RAX, Slot::Rax, bits::SPILL_RAX),
    ]
    .into_iter()
    .find(|(register, _, _)| !(used(*register) || high && *register == Register::R11))
}

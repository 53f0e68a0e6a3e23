//! Finding a basic block: decoding application code up to the next change of control flow.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use crate::addr::AppPc;
use crate::context::RequestKind;
use crate::flags::FlagUse;
use crate::marker::Marker;
use crate::plan::IpFilter;

mod classify;

use classify::{
    MARKED, carry, may_mark, requests_lwp, stores_nearby, stores_pointer, terminator, watched_alone,
};
pub use classify::{saves_state, stored_pointer};

/// The source that the translator reads application code from.
pub trait CodeSource {
    /// Copies executable bytes at `pc` into `buffer` and returns how many there are; 0 where
    /// nothing can be executed.
    fn read_code(&mut self, pc: AppPc, buffer: &mut [u8]) -> usize;

    /// Copies what the program's memory holds at `address` at the moment, and returns how much
    /// there is. Only for guesses at what will be executed: without it there are none.
    fn read_data(&mut self, address: u64, buffer: &mut [u8]) -> usize {
        let _ = (address, buffer);
        0
    }

    /// The function at `pc`, as far as that is known: its first address and the first one behind it.
    fn function(&mut self, pc: AppPc) -> Option<Range<u64>> {
        let _ = pc;
        None
    }

    /// Returns whether `len` bytes of code at `pc` change only with notice from now on, although
    /// they can be written to at any time. Who says so cuts off, before a write, what has been
    /// translated of the page.
    fn gives_notice(&mut self, pc: AppPc, len: usize) -> bool {
        let _ = (pc, len);
        false
    }
}

/// Instructions of the application that the virtual CPU answers itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Emulated {
    /// XGETBV shows the virtual CPU's XCR0.
    pub xgetbv: bool,
    /// RDTSC and RDTSCP read a virtual counter.
    pub tsc: bool,
    /// RDRAND and RDSEED draw from a seeded stream.
    pub random: bool,
    /// The processor has Lightweight Profiling.
    pub lwp: bool,
    /// … as it was proposed in 2007: LWPINS and LWPVAL are undefined opcodes.
    pub no_inserts: bool,
    /// XSAVE and its relatives must not see all state components that the real processor has.
    pub fewer_states: bool,
    /// The state of Lightweight Profiling is one of their components.
    pub lwp_state: bool,
    /// The processor has no transactions: XBEGIN is an undefined opcode.
    pub no_transactions: bool,
    /// The host is asked at markers of our own.
    pub markers: bool,
    /// The host is asked at Valgrind's client requests, because they may bound what is counted.
    pub requests: bool,
    /// The host sees what the program writes by write(2) and writev(2).
    pub writes: bool,
    /// The kernel cannot write to guarded pages: system calls that may do so are looked at before
    /// they are made.
    pub fills: bool,
    /// Every system call is the host's: the program may have some of them become signals.
    pub dispatches: bool,
}

/// The settings for decoding a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decoding {
    /// The instructions that the virtual CPU answers itself.
    pub emulated: Emulated,
    /// The code may change: a block ends behind a store to near itself, because what follows may be
    /// what it has just written.
    pub changing: bool,
    /// All instructions of a block pass this filter, or none does.
    pub ip: Option<IpFilter>,
    /// Data cache accesses are watched: repeated string instructions stand alone.
    pub dcache: bool,
    /// Translated code works out what the usual ones of those have accessed.
    pub walks: bool,
    /// The first instruction is the host's.
    pub marked: bool,
    /// A block ends before this address.
    pub until: Option<AppPc>,
    /// At most this many instructions, 0 for no limit of one's own.
    pub most: usize,
}

/// Most bytes in a block; a longer run of straight code is cut.
const MAX_BYTES: usize = 240;
/// Most instructions in a block.
const MAX_INSTRUCTIONS: usize = 64;
/// The longest instruction.
const MAX_INSTRUCTION_BYTES: usize = 15;

/// The way one instruction of a block is carried over.
#[derive(Clone, Copy, Debug)]
pub enum Carry {
    /// Byte for byte.
    Copy,
    /// Byte for byte, with its rip-relative displacement, at this offset, corrected.
    RipRelative {
        /// Offset of the 4-byte displacement in the instruction.
        displacement_at: u8,
        /// The operand's linear address.
        operand: u64,
    },
    /// Rewritten around the application's own gs base.
    AppGs,
    /// `rdgsbase` or `wrgsbase`.
    GsBase,
    /// XSAVE and its relatives, where the virtual processor has fewer state components than the
    /// real one; with the operand's displacement and address if it is rip-relative.
    StateSave(Option<(u8, u64)>),
}

/// One instruction of a block, terminator excluded.
#[derive(Clone, Copy, Debug)]
pub struct Insn {
    /// Offset from the block's start.
    pub offset: u16,
    /// Its length.
    pub len: u8,
    /// The way it is carried over.
    pub carry: Carry,
    /// Its use of the flags.
    pub flags: FlagUse,
}

/// The way a block ends. Addresses are the application's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Terminator {
    /// Cut: control goes on at `next`.
    #[default]
    Fall,
    /// `jmp rel`.
    Jump {
        /// The address it jumps to.
        target: AppPc,
    },
    /// `jcc rel`; the condition code is the low nibble of its opcode.
    Conditional {
        /// The address it jumps to when taken.
        target: AppPc,
        /// Condition code.
        condition: u8,
    },
    /// LOOP, LOOPE, LOOPNE, JRCXZ, JECXZ: only short forms exist.
    CountedLoop {
        /// The address it jumps to when taken.
        target: AppPc,
    },
    /// `call rel`.
    Call {
        /// The address it calls.
        target: AppPc,
    },
    /// `jmp r/m64`.
    IndirectJump,
    /// `call r/m64`.
    IndirectCall,
    /// `ret` or `ret imm16`.
    Return {
        /// Bytes released beside the return address.
        release: u16,
    },
    /// `syscall`.
    Syscall {
        /// The call number, where the block itself sets it.
        number: Option<u32>,
    },
    /// `xbegin`: transactions always abort.
    TransactionAbort {
        /// The fallback address.
        target: AppPc,
    },
    /// One of the four LWP instructions; which, as what is asked of the host for it.
    Lwp {
        /// The instruction, as a kind of request.
        kind: RequestKind,
    },
    /// The host answers for the processor.
    Emulate {
        /// The instruction, as a kind of request.
        kind: RequestKind,
    },
    /// A repeated string instruction, where its accesses are watched.
    Repeat {
        /// Translated code works out what it has accessed; else the host does, and counts it.
        walked: bool,
    },
    /// `popf`, which may set the trap flag: then the host executes it.
    PopFlags,
    /// XSAVE or a relative, whose mask may request the state of Lightweight Profiling: then the
    /// host takes part.
    StateSave,
    /// FXSAVE, FNSTENV or a relative, which stores an instruction pointer of the x87 unit: one in
    /// translated code is put right by the host.
    StorePointer,
    /// Cannot be translated: executed natively, alone, in place.
    Step,
}

/// A decoded basic block.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// The pc it starts at.
    pub pc: AppPc,
    /// Its bytes, terminator included.
    pub bytes: Vec<u8>,
    /// The instructions before the terminator.
    pub insns: Vec<Insn>,
    /// The way it ends.
    pub terminator: Terminator,
    /// Offset of the terminator; equal to the length of `bytes` where the block was cut.
    pub terminator_offset: u16,
    /// The terminator's instruction, where it has one with an operand to carry over.
    pub last: Instruction,
    /// Offset of the terminator's rip-relative displacement in its instruction, if it has one.
    pub last_displacement: Option<u8>,
    /// Its use of the flags.
    pub flags: FlagUse,
    /// Its terminator's use of them.
    pub last_flags: FlagUse,
}

impl Block {
    /// The first instruction before which all flags are dead, the terminator counting as the last
    /// one; `dead_after` are the flags known to be dead after the block.
    pub fn first_dead_point(&self, dead_after: u8) -> Option<usize> {
        let mut after = FlagUse { read: 0, written: dead_after };
        after = self.last_flags.then(after);
        let mut found = after.all_dead().then_some(self.insns.len());
        for (index, insn) in self.insns.iter().enumerate().rev() {
            after = insn.flags.then(after);
            if after.all_dead() {
                found = Some(index);
            }
        }
        found
    }

    /// A bit for each instruction before which all flags are dead, the terminator counting as the
    /// last one; `dead_after` are the flags known to be dead after the block.
    pub fn dead_points(&self, dead_after: u8) -> u128 {
        let mut after = self.last_flags.then(FlagUse { read: 0, written: dead_after });
        let mut dead = u128::from(after.all_dead()) << self.insns.len();
        for (index, insn) in self.insns.iter().enumerate().rev() {
            after = insn.flags.then(after);
            dead |= u128::from(after.all_dead()) << index;
        }
        dead
    }

    /// Returns whether the terminator's memory operands are accessed in any case, and by translated
    /// code.
    pub fn touches_before_its_end(&self) -> bool {
        matches!(
            self.terminator,
            Terminator::Call { .. }
                | Terminator::IndirectCall
                | Terminator::IndirectJump
                | Terminator::Return { .. }
        )
    }

    /// The application address after the block.
    pub fn next(&self) -> AppPc {
        self.pc.offset(self.bytes.len() as u64)
    }

    /// The application address of the terminator.
    pub fn terminator_pc(&self) -> AppPc {
        self.pc.offset(u64::from(self.terminator_offset))
    }

    /// Returns the number of instructions it holds.
    pub fn instructions(&self) -> u32 {
        self.insns.len() as u32 + u32::from(usize::from(self.terminator_offset) < self.bytes.len())
    }

    /// Decodes the block at `pc`; `None` where no byte can be executed.
    pub fn decode(source: &mut dyn CodeSource, pc: AppPc, how: Decoding) -> Option<Self> {
        let mut block = Self::default();
        block.read(source, pc, how).then_some(block)
    }

    /// Decodes the block at `pc` into this one's memory. False, and nothing of use in it, where no
    /// byte can be executed.
    pub fn read(&mut self, source: &mut dyn CodeSource, pc: AppPc, how: Decoding) -> bool {
        let emulated = how.emulated;
        let most = if how.most == 0 { MAX_INSTRUCTIONS } else { how.most.min(MAX_INSTRUCTIONS) };
        let admits = |ip: u64| how.ip.is_none_or(|filter| filter.admits(ip));
        let mut buffer = [0u8; MAX_BYTES + MAX_INSTRUCTION_BYTES];
        let available = source.read_code(pc, &mut buffer);
        if available == 0 {
            return false;
        }
        let code = &buffer[..available];
        let mut decoder = Decoder::with_ip(64, code, pc.0, DecoderOptions::NONE);
        let block = self;
        block.pc = pc;
        block.bytes.clear();
        block.insns.clear();
        block.last = Instruction::default();
        block.last_displacement = None;
        block.flags = FlagUse::default();
        block.last_flags = FlagUse::default();
        let mut number = KnownRax::default();
        loop {
            let offset = decoder.position();
            let cut = offset > 0
                && (admits(decoder.ip()) != admits(pc.0) || how.until == Some(AppPc(decoder.ip())));
            if offset >= MAX_BYTES || block.insns.len() >= most || cut {
                return block.finish(code, offset, offset, Terminator::Fall);
            }
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                if offset > 0 {
                    // Let what precedes run; the next block deals with the odd bytes.
                    return block.finish(code, offset, offset, Terminator::Fall);
                }
                return block.finish(code, 0, available.min(1), Terminator::Step);
            }
            let before = (&code[..offset], &*block.insns);
            let extent = (offset, decoder.position());
            let mut is_marker = || match Marker::found(source, pc, code, extent) {
                _ if !may_mark(&instruction) => false,
                Some(Marker::Own(_)) => emulated.markers,
                Some(Marker::Valgrind) => emulated.requests,
                None => false,
            };
            let asks = emulated.markers || emulated.requests;
            let own = how.marked.then_some(Terminator::Step);
            let terminator = own
                .or_else(|| terminator(&instruction, emulated, number.value))
                .or_else(|| requests_lwp(&instruction, how, before))
                .or_else(|| stores_pointer(&instruction, how, before))
                .or_else(|| (asks && is_marker()).then_some(MARKED))
                .or_else(|| if how.dcache { watched_alone(&instruction, how.walks) } else { None });
            let flags = FlagUse::of(&instruction);
            block.flags = block.flags.then(flags);
            if let Some(terminator) = terminator {
                block.last = instruction;
                block.last_flags = flags;
                if instruction.is_ip_rel_memory_operand() {
                    let offsets = decoder.get_constant_offsets(&instruction);
                    block.last_displacement = Some(offsets.displacement_offset() as u8);
                }
                return block.finish(code, offset, decoder.position(), terminator);
            }
            number.step(&instruction);
            let carry = carry(&decoder, &instruction, emulated);
            block.insns.push(Insn {
                offset: offset as u16,
                len: instruction.len() as u8,
                carry,
                flags,
            });
            if how.changing && stores_nearby(&instruction) {
                let end = decoder.position();
                return block.finish(code, end, end, Terminator::Fall);
            }
        }
    }

    fn finish(&mut self, code: &[u8], at: usize, end: usize, terminator: Terminator) -> bool {
        self.bytes.extend_from_slice(&code[..end]);
        self.terminator_offset = at as u16;
        self.terminator = terminator;
        true
    }
}

/// The constant that the block has put into eax just before a system call, if it is plain to see.
#[derive(Default)]
struct KnownRax {
    value: Option<u32>,
}

impl KnownRax {
    fn step(&mut self, instruction: &Instruction) {
        match instruction.mnemonic() {
            // A store leaves registers alone.
            Mnemonic::Mov if instruction.op0_kind() == OpKind::Memory => {}
            Mnemonic::Mov | Mnemonic::Xor | Mnemonic::Lea
                if instruction.op0_kind() == OpKind::Register =>
            {
                if instruction.op0_register().full_register() != Register::RAX {
                    return;
                }
                self.value = match (instruction.code(), instruction.op1_kind()) {
                    (Code::Mov_r32_imm32 | Code::Mov_rm32_imm32, _) => {
                        Some(instruction.immediate32())
                    }
                    (Code::Mov_rm64_imm32, _) => u32::try_from(instruction.immediate32to64()).ok(),
                    (Code::Xor_r32_rm32 | Code::Xor_rm32_r32, OpKind::Register)
                        if instruction.op1_register() == Register::EAX =>
                    {
                        Some(0)
                    }
                    _ => None,
                };
            }
            Mnemonic::Endbr64 | Mnemonic::Nop | Mnemonic::Test | Mnemonic::Cmp => {}
            _ => self.value = None,
        }
    }
}

//! The steps of a transfer: a fixed piece of code for each way to leave a function, so that the
//! host can tell from an offset which of its stores are done.
//!
//! The code uses rax, rcx and r11, and changes no flag.

use crate::context::Slot;
use crate::context::trace::{
    BEFORE, FRAME_BYTES, FRAME_CALLER, FRAME_STACK, FRAMES, HASH_SHIFT, LED_TO, Leave, NAME_SHIFT,
    PRESENT, REACH_BITS, RECORD_CALLS, RECORD_KEY, RECORD_NAME, RECORD_PASSED, RECORD_TARGET,
    RECORDS, TABLE, WORDS, word,
};
use crate::emit::Output;
use crate::relocation::Relocation;

/// A register, by its number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Register(u8);

const RAX: Register = Register(0);
const RCX: Register = Register(1);
const RSP: Register = Register(4);
const R11: Register = Register(11);

impl Register {
    fn low(self) -> u8 {
        self.0 & 7
    }

    fn high(self) -> u8 {
        self.0 >> 3
    }
}

/// Offsets behind the stores of a transfer that count, from where all three registers are spilled:
/// of calls the record's instructions and calls, the frame, and the present record; of jumps the
/// instructions of the record that is left, and those, calls and presence of the other; of returns
/// the instructions, the frame, and the present record. The last one is the end of the transfer.
pub fn stores(leave: Leave) -> Vec<u32> {
    let mut out = Output::default();
    let mut steps = Steps { out: &mut out, stores: Vec::new() };
    steps.transfer(leave, 0, 0);
    steps.stores
}

/// Emits a transfer. Returns the offset of the displacement that jumps to its stub.
pub(super) fn transfer(out: &mut Output, leave: Leave, site: u32, spread: u32) -> usize {
    Steps { out, stores: Vec::new() }.transfer(leave, site, spread)
}

struct Steps<'a> {
    out: &'a mut Output,
    stores: Vec<u32>,
}

impl Steps<'_> {
    fn transfer(&mut self, leave: Leave, site: u32, spread: u32) -> usize {
        let miss = match leave {
            Leave::Return | Leave::Resume => self.find_frame(leave),
            _ => self.find_record(leave, site, spread),
        };
        self.sum();
        match leave {
            Leave::Call | Leave::IndirectCall => self.call(),
            Leave::Jump | Leave::IndirectJump => self.jump(),
            Leave::Return | Leave::Resume => self.leave(),
        }
        miss
    }

    /// Leaves the record in r11, as an offset from [`RECORDS`].
    fn find_record(&mut self, leave: Leave, site: u32, spread: u32) -> usize {
        let mut misses = Vec::new();
        if leave.is_call() {
            // movzx ecx, word gs:[frames]
            self.out.bytes(&[0x65, 0x0f, 0xb7, 0x0c, 0x25]);
            self.out.imm32(FRAMES);
            misses.push(self.if_zero());
        } else {
            self.get(RCX, FRAMES);
            self.get_at(RCX, RCX, FRAME_STACK.wrapping_sub(FRAME_BYTES));
            self.copy(RAX, RSP);
            self.complement(RAX);
            self.add(RCX, RAX, 1);
            // mov eax, bits; shrx rcx, rcx, rax; jrcxz +2; jmp miss
            self.out.bytes(&[0xb8, REACH_BITS, 0, 0, 0, 0xc4, 0xe2, 0xfb, 0xf7, 0xc9]);
            self.out.bytes(&[0xe3, 2, 0xeb, 0]);
            misses.push(self.out.code.len());
        }
        self.get(RCX, PRESENT);
        self.look_up(leave, spread);
        self.get_at(RAX, R11, RECORDS + RECORD_KEY);
        // lea rcx, [rcx + rax + site]
        self.out.bytes(&[0x48, 0x8d, 0x8c, 0x01]);
        self.site(site);
        let mut found = self.if_zero();
        for miss in misses {
            self.land(miss);
        }
        // jmp stub
        let miss_at = self.out.code.len();
        self.out.bytes(&[0xe9]);
        let miss = self.out.code.len();
        self.out.imm32(0);
        if !leave.is_direct() {
            self.land(found);
            self.get_at(RCX, R11, RECORDS + RECORD_TARGET);
            self.get(RAX, Slot::CallTarget as u32);
            self.add(RCX, RAX, 0);
            found = self.if_zero();
            // jmp miss
            let back = miss_at.wrapping_sub(self.out.code.len() + 2) as u8;
            self.out.bytes(&[0xeb, back]);
        }
        self.land(found);
        miss
    }

    /// Leaves in r11 what the table has for a transfer from the record whose name is in rcx.
    fn look_up(&mut self, leave: Leave, spread: u32) {
        let mut table = TABLE;
        if leave.is_direct() {
            table += spread * 4;
            // rorx r11, rcx, shift; mov r11d, r11d
            self.out.bytes(&[0xc4, 0x63, 0xfb, 0xf0, 0xd9, NAME_SHIFT, 0x45, 0x89, 0xdb]);
        } else {
            // mov r11d, spread; crc32 r11, qword gs:[target]
            self.out.bytes(&[0x41, 0xbb]);
            self.out.imm32(spread);
            self.out.bytes(&[0x65, 0xf2, 0x4c, 0x0f, 0x38, 0xf1, 0x1c, 0x25]);
            self.out.imm32(Slot::CallTarget as u32);
            // mov eax, shift; shrx r11d, r11d, eax
            self.out.bytes(&[0xb8, HASH_SHIFT, 0, 0, 0, 0xc4, 0x42, 0x7b, 0xf7, 0xdb]);
            // rorx rax, rcx, shift; mov eax, eax; lea r11, [r11 + rax]
            self.out.bytes(&[0xc4, 0xe3, 0xfb, 0xf0, 0xc1, NAME_SHIFT, 0x89, 0xc0]);
            self.out.bytes(&[0x4d, 0x8d, 0x1c, 0x03]);
        }
        // mov r11d, gs:[r11 * 4 + table]
        self.out.bytes(&[0x65, 0x46, 0x8b, 0x1c, 0x9d]);
        self.out.imm32(table);
    }

    /// Goes on if the innermost frame is the one that is returned from.
    fn find_frame(&mut self, leave: Leave) -> usize {
        self.get(R11, FRAMES);
        self.get_at(RCX, R11, FRAME_STACK.wrapping_sub(FRAME_BYTES));
        self.copy(RAX, RSP);
        self.complement(RAX);
        self.add(RCX, RAX, u8::from(leave == Leave::Return));
        // jrcxz +5; jmp stub
        self.out.bytes(&[0xe3, 5, 0xe9]);
        let miss = self.out.code.len();
        self.out.imm32(0);
        miss
    }

    /// Leaves the instructions executed so far in rax; rcx is lost.
    fn sum(&mut self) {
        self.get(RAX, word(0));
        for index in 1..WORDS {
            self.get(RCX, word(index));
            self.add(RAX, RCX, 0);
        }
    }

    /// Enters the record in r11, with a frame.
    fn call(&mut self) {
        self.enter();
        self.get(RCX, FRAMES);
        // lea rax, [rsp - 8]
        self.out.bytes(&[0x48, 0x8d, 0x44, 0x24, 0xf8]);
        self.put_at(RCX, FRAME_STACK, RAX);
        self.get(RAX, PRESENT);
        self.put_at(RCX, FRAME_CALLER, RAX);
        // lea rcx, [rcx + 16]
        self.out.bytes(&[0x48, 0x8d, 0x49, FRAME_BYTES as u8]);
        self.put(FRAMES, RCX);
        self.stored();
        self.become_present();
    }

    /// Leaves the present record for that in r11.
    fn jump(&mut self) {
        self.put(LED_TO, R11);
        self.leave_present();
        self.get(R11, LED_TO);
        self.enter();
        self.become_present();
    }

    /// Leaves the present record and its frame.
    fn leave(&mut self) {
        self.leave_present();
        self.get(R11, FRAMES);
        self.get_at(RCX, R11, FRAME_CALLER.wrapping_sub(FRAME_BYTES));
        // lea r11, [r11 - 16]
        self.out.bytes(&[0x4d, 0x8d, 0x5b, (FRAME_BYTES as u8).wrapping_neg()]);
        self.put(FRAMES, R11);
        self.stored();
        self.put(PRESENT, RCX);
        self.stored();
    }

    /// Adds the sum in rax to the present record. rcx and r11 are lost.
    fn leave_present(&mut self) {
        self.get(RCX, PRESENT);
        self.put(BEFORE, RCX);
        // rorx rcx, rcx, 32
        self.out.bytes(&[0xc4, 0xe3, 0xfb, 0xf0, 0xc9, 32]);
        self.get_at(R11, RCX, RECORDS + RECORD_PASSED);
        self.add(R11, RAX, 0);
        self.put_at(RCX, RECORDS + RECORD_PASSED, R11);
        self.stored();
    }

    /// Takes the sum in rax from the record in r11, and counts a call of it. rax and rcx are lost.
    fn enter(&mut self) {
        self.complement(RAX);
        self.get_at(RCX, R11, RECORDS + RECORD_PASSED);
        self.add(RCX, RAX, 1);
        self.put_at(R11, RECORDS + RECORD_PASSED, RCX);
        self.stored();
        self.get_at(RCX, R11, RECORDS + RECORD_CALLS);
        // lea rcx, [rcx + 1]
        self.out.bytes(&[0x48, 0x8d, 0x49, 1]);
        self.put_at(R11, RECORDS + RECORD_CALLS, RCX);
        self.stored();
    }

    /// What the record in r11 stands for is the present one. rcx is lost.
    fn become_present(&mut self) {
        self.get_at(RCX, R11, RECORDS + RECORD_NAME);
        self.put(PRESENT, RCX);
        self.stored();
    }

    /// A store that counts has been emitted.
    fn stored(&mut self) {
        self.stores.push(self.out.code.len() as u32);
    }

    fn site(&mut self, displacement: u32) {
        self.out.imm32(displacement);
        self.out.relocated(Relocation::Counter);
    }

    /// `jrcxz` to a place that is to be put in: returns the offset behind it.
    fn if_zero(&mut self) -> usize {
        self.out.bytes(&[0xe3, 0]);
        self.out.code.len()
    }

    /// The jump before offset `jump` leads here.
    fn land(&mut self, jump: usize) {
        self.out.code[jump - 1] = (self.out.code.len() - jump) as u8;
    }

    /// `mov register, gs:[displacement]`
    fn get(&mut self, register: Register, displacement: u32) {
        self.out.bytes(&[0x65, 0x48 | register.high() << 2, 0x8b, 4 | register.low() << 3, 0x25]);
        self.out.imm32(displacement);
    }

    /// `mov gs:[displacement], register`
    fn put(&mut self, displacement: u32, register: Register) {
        self.out.bytes(&[0x65, 0x48 | register.high() << 2, 0x89, 4 | register.low() << 3, 0x25]);
        self.out.imm32(displacement);
    }

    /// `mov register, gs:[base + displacement]`
    fn get_at(&mut self, register: Register, base: Register, displacement: u32) {
        let rex = 0x48 | register.high() << 2 | base.high();
        self.out.bytes(&[0x65, rex, 0x8b, 0x80 | register.low() << 3 | base.low()]);
        self.out.imm32(displacement);
    }

    /// `mov gs:[base + displacement], register`
    fn put_at(&mut self, base: Register, displacement: u32, register: Register) {
        let rex = 0x48 | register.high() << 2 | base.high();
        self.out.bytes(&[0x65, rex, 0x89, 0x80 | register.low() << 3 | base.low()]);
        self.out.imm32(displacement);
    }

    /// `lea to, [to + with + more]`
    fn add(&mut self, to: Register, with: Register, more: u8) {
        let rex = 0x48 | to.high() << 2 | with.high() << 1 | to.high();
        self.out.bytes(&[rex, 0x8d, 0x44 | to.low() << 3, with.low() << 3 | to.low(), more]);
    }

    /// `mov to, from`
    fn copy(&mut self, to: Register, from: Register) {
        let rex = 0x48 | from.high() << 2 | to.high();
        self.out.bytes(&[rex, 0x89, 0xc0 | from.low() << 3 | to.low()]);
    }

    /// `not register`
    fn complement(&mut self, register: Register) {
        self.out.bytes(&[0x48 | register.high(), 0xf7, 0xd0 | register.low()]);
    }
}

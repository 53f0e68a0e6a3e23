//! The code that an emitter makes, and everything in it that depends on its address.

use iced_x86::Register;

use super::{Ask, CountedCall, Link, SideExit, Touch, Transfer, Trip, register_bits};
use crate::addr::CachePc;
use crate::context::Slot;
use crate::relocation::Relocation;
use crate::state_map::StateEntry;

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
    pub transfers: Vec<Transfer>,
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
    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        self.code.clear();
        self.links.clear();
        self.asks.clear();
        self.trips.clear();
        self.tables.clear();
        self.touches.clear();
        self.calls.clear();
        self.transfers.clear();
        self.exits.clear();
        self.constants.clear();
        self.relocations.clear();
        self.points.clear();
    }

    /// Forgets everything of the code from byte `len` on, which lies at `from`.
    pub fn cut_back(&mut self, len: usize, from: CachePc) {
        self.code.truncate(len);
        self.links.retain(|link| link.at < len);
        self.asks.retain(|ask| ask.at < len);
        self.trips.retain(|trip| trip.at < len);
        self.touches.retain(|touch| touch.at < len);
        self.calls.retain(|call| call.at < len);
        self.transfers.retain(|transfer| transfer.at < len);
        self.exits.retain(|exit| {
            exit.at.iter().all(|at| *at < len) && exit.place.is_none_or(|place| place.0 < from.0)
        });
        self.constants.retain(|(at, _)| *at < len);
        self.relocations.retain(|(at, _)| *at < len);
    }

    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    /// Appends four bytes, the least significant first.
    pub fn imm32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Appends eight bytes, the least significant first.
    pub fn imm64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// `mov gs:[slot], rcx`
    pub fn spill_rcx(&mut self) {
        self.bytes(&[0x65, 0x48, 0x89, 0x0c, 0x25]);
        self.imm32(Slot::Rcx as u32);
    }

    /// `mov rcx, gs:[slot]`
    pub fn reload_rcx(&mut self) {
        self.load_rcx(Slot::Rcx as u32);
    }

    /// `mov rcx, gs:[displacement]`
    pub fn load_rcx(&mut self, displacement: u32) {
        self.bytes(&[0x65, 0x48, 0x8b, 0x0c, 0x25]);
        self.imm32(displacement);
    }

    /// `mov gs:[displacement], rcx`
    pub fn store_rcx(&mut self, displacement: u32) {
        self.bytes(&[0x65, 0x48, 0x89, 0x0c, 0x25]);
        self.imm32(displacement);
    }

    /// `mov gs:[slot], r11`
    pub fn spill_r11(&mut self) {
        self.bytes(&[0x65, 0x4c, 0x89, 0x1c, 0x25]);
        self.imm32(Slot::R11 as u32);
    }

    /// `mov r11, gs:[slot]`
    pub fn reload_r11(&mut self) {
        self.bytes(&[0x65, 0x4c, 0x8b, 0x1c, 0x25]);
        self.imm32(Slot::R11 as u32);
    }

    /// `mov r11, value`, in its shortest form
    pub fn mov_r11(&mut self, value: u64) {
        if let Ok(value) = u32::try_from(value) {
            self.bytes(&[0x41, 0xbb]);
            self.imm32(value);
        } else {
            self.bytes(&[0x49, 0xbb]);
            self.imm64(value);
        }
    }

    /// `mov rcx, value`, in its shortest form
    pub fn mov_rcx(&mut self, value: u64) {
        if let Ok(value) = u32::try_from(value) {
            self.bytes(&[0xb9]);
            self.imm32(value);
        } else {
            self.bytes(&[0x48, 0xb9]);
            self.imm64(value);
        }
    }

    /// `lea rcx, [rcx + r11]`
    pub fn lea_rcx_rcx_r11(&mut self) {
        self.bytes(&[0x4a, 0x8d, 0x0c, 0x19]);
    }

    /// The word appended last depends on where something lies.
    pub fn relocated(&mut self, kind: Relocation) {
        self.relocations.push((self.code.len() - kind.bytes(), kind));
    }

    /// `mov register, address`: an address in the application's module.
    pub fn mov_address(&mut self, register: Register, address: u64) {
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

    /// `mov r11d, register`, its low half
    pub fn mov_r11d(&mut self, register: Register) {
        let (high, low) = register_bits(register.full_register());
        self.bytes(&[0x41 | high << 2, 0x89, 0xc3 | low << 3]);
    }

    /// `and r11d, mask`
    pub fn and_r11d(&mut self, mask: u32) {
        self.bytes(&[0x41, 0x81, 0xe3]);
        self.imm32(mask);
    }

    /// `add r11, register`
    pub fn add_to_r11(&mut self, register: Register) {
        let (high, low) = register_bits(register.full_register());
        self.bytes(&[0x49 | high << 2, 0x01, 0xc3 | low << 3]);
    }

    /// `cmp r11, most`
    pub fn cmp_r11(&mut self, most: u32) {
        match u8::try_from(most).ok().filter(|most| *most < 0x80) {
            Some(most) => self.bytes(&[0x49, 0x83, 0xfb, most]),
            None => {
                self.bytes(&[0x49, 0x81, 0xfb]);
                self.imm32(most);
            }
        }
    }

    /// `jmp [chain slot]`
    pub fn jump_chain(&mut self, chain_slot: u64) {
        self.bytes(&[0xff, 0x24, 0x25]);
        self.imm32(chain_slot as u32);
        self.relocated(Relocation::Chain);
    }

    /// `lea rcx, [rcx + value]`
    pub fn add_to_rcx(&mut self, value: u32) {
        self.bytes(&[0x48, 0x8d, 0x89]);
        self.imm32(value);
    }

    /// `mov dword gs:[slot], value`
    pub fn store_imm32(&mut self, slot: Slot, value: u32) {
        self.bytes(&[0x65, 0xc7, 0x04, 0x25]);
        self.imm32(slot as u32);
        self.imm32(value);
    }
}

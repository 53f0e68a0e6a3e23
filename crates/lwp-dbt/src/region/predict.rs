//! Possible targets of an indirect branch according to the program's data: the word that it jumps
//! through, or the jump table of a switch.
//!
//! These targets are only a guess at code that is worth translating. The branch itself always looks
//! up its target, so a wrong guess costs only the fragments made for it.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::{Candidate, Work};
use crate::addr::AppPc;
use crate::block::{Block, Terminator};
use crate::plan::Checks;

/// Entries of a table that are looked at.
const MOST: usize = 512;
/// Entries of a table of unknown length that are looked at.
const UNKNOWN: usize = 8;
/// The greatest distance of a case from the branch.
const FUNCTION: u64 = 1 << 20;

/// A table of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Table {
    at: u64,
    /// Its entries are 4-byte distances from its start, else 8-byte addresses.
    relative: bool,
}

/// Notes where the indirect branch at the end of `block` may lead; `before` is the block that
/// falls into it.
pub(super) fn predict(work: &mut Work<'_>, block: &Block, before: Option<&Block>) {
    if work.unit.checks != Checks::None {
        return;
    }
    if let Some(word) = fixed_word(&block.last) {
        let mut bytes = [0; 8];
        if work.source.read_data(word, &mut bytes) == bytes.len() {
            let target = AppPc(u64::from_le_bytes(bytes));
            work.queue.push(Candidate::indirect(target, work.doubt));
        }
    } else if let Some(table) = table_of(block) {
        cases(work, block, table, before.and_then(length));
    }
}

/// Notes the cases of a switch.
fn cases(work: &mut Work<'_>, block: &Block, table: Table, length: Option<usize>) {
    let width = if table.relative { 4 } else { 8 };
    let mut bytes = vec![0; length.unwrap_or(UNKNOWN).min(MOST) * width];
    let read = work.source.read_data(table.at, &mut bytes);
    let mut targets: Vec<u64> = bytes[..read]
        .chunks_exact(width)
        .map(|entry| match *entry {
            [a, b, c, d] => {
                let distance = i32::from_le_bytes([a, b, c, d]);
                table.at.wrapping_add_signed(i64::from(distance))
            }
            _ => u64::from_le_bytes(entry.try_into().expect("eight bytes")),
        })
        .take_while(|target| target.abs_diff(block.pc.0) < FUNCTION)
        .collect();
    targets.sort_unstable();
    targets.dedup();
    // One of so many.
    let doubt = work.doubt.saturating_add(targets.len().checked_ilog2().unwrap_or(0) as u8);
    for target in targets {
        work.queue.push(Candidate::indirect(AppPc(target), doubt));
    }
}

/// Address of the word that an indirect branch always jumps through.
fn fixed_word(last: &Instruction) -> Option<u64> {
    let fixed = last.op0_kind() == OpKind::Memory
        && last.segment_prefix() == Register::None
        && last.memory_index() == Register::None;
    match last.memory_base() {
        _ if !fixed => None,
        Register::RIP => Some(last.ip_rel_memory_address()),
        Register::None => Some(last.memory_displacement64()),
        _ => None,
    }
}

/// The table that the jump at the end of a block goes by, as compilers write it:
///
/// ```text
/// jmp  [8 * index + table]
/// mov  r, [8 * index + table];  jmp r
/// lea  t, [rip + table];  movsxd r, dword [t + 4 * index];  add r, t;  jmp r
/// ```
fn table_of(block: &Block) -> Option<Table> {
    let last = &block.last;
    if !matches!(last.code(), Code::Jmp_rm64) {
        return None;
    }
    if last.op0_kind() == OpKind::Memory {
        return absolute(last);
    }
    let target = last.op0_register();
    let body = &block.bytes[..usize::from(block.terminator_offset)];
    let mut distances = false;
    let mut found = None;
    for insn in Decoder::with_ip(64, body, block.pc.0, DecoderOptions::NONE).iter() {
        match insn.code() {
            Code::Lea_r64_m if insn.is_ip_rel_memory_operand() => {
                found = Some(Table { at: insn.ip_rel_memory_address(), relative: true });
            }
            Code::Movsxd_r64_rm32 if insn.memory_index_scale() == 4 => distances = true,
            Code::Mov_r64_rm64 if insn.op0_register() == target => {
                if let Some(table) = absolute(&insn) {
                    return Some(table);
                }
            }
            _ => {}
        }
    }
    found.filter(|_| distances)
}

/// A table of addresses at a fixed place.
fn absolute(insn: &Instruction) -> Option<Table> {
    let fixed = insn.memory_base() == Register::None
        && insn.memory_index() != Register::None
        && insn.memory_index_scale() == 8
        && insn.segment_prefix() == Register::None;
    fixed.then(|| Table { at: insn.memory_displacement64(), relative: false })
}

/// Returns the number of cases, where the block before compares with that:
/// `cmp r, last; ja default`.
fn length(before: &Block) -> Option<usize> {
    // Below or above, with or without equal.
    if !matches!(before.terminator, Terminator::Conditional { condition: 2 | 3 | 6 | 7, .. }) {
        return None;
    }
    let body = &before.bytes[..usize::from(before.terminator_offset)];
    let compared = Decoder::with_ip(64, body, before.pc.0, DecoderOptions::NONE)
        .iter()
        .filter(|insn| insn.mnemonic() == Mnemonic::Cmp)
        .last()?;
    let immediate = matches!(
        compared.op1_kind(),
        OpKind::Immediate8
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate32to64
    );
    immediate.then(|| usize::try_from(compared.immediate(1)).ok()?.checked_add(1)).flatten()
}

//! The records and frames by which a thread measures its calling contexts ([`lwp_dbt::trace`]).
//!
//! The program can write to them: everything that is read here is taken for what it is, and no
//! number is relied on.

use lwp_dbt::trace;

use super::Context;
use crate::memory_map::slot_bytes;

/// The number of records that the host keeps room for, for what it makes itself.
const RESERVED: u64 = 4096;

/// Set in the address of a frame that no return is to find.
const NOT_RETURNED: u64 = 1;
/// Set in that of the frame below all others.
const BASE: u64 = 2;
/// Bytes by which the stack pointer may be below the innermost frame.
const REACH: u64 = 1 << trace::REACH_BITS;
/// Bytes by which the frame below all others is above it, so that jumps find that near.
const ABOVE: u64 = REACH / 2;

/// A frame as a thread has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// Where its return address lies.
    pub stack: u64,
    /// The name of its caller.
    pub caller: u64,
    /// True if it is that of a signal's handler.
    pub handler: bool,
}

/// A record as a thread has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord {
    /// Its caller's name.
    pub caller: u64,
    /// The displacement of the counter that names its site.
    pub site: u32,
    /// Where it leads, if the site does not say that.
    pub target: u64,
}

/// A thread's records and frames.
#[derive(Clone, Copy, Debug)]
pub struct RecordWords<'a>(pub(super) Context<'a>);

impl RecordWords<'_> {
    fn get(self, displacement: u32) -> u64 {
        self.0.word(u64::from(displacement))
    }

    fn set(self, displacement: u32, value: u64) {
        self.0.memory().store(self.0.base() + u64::from(displacement), value);
    }

    /// Begins in a context that is zero: the thread has no frame, and no room for one, so that it
    /// asks at its first transfer.
    pub fn begin(self) {
        self.set(trace::FRAMES, trace::FRAMES_END.into());
        self.set(trace::NEXT_RECORD, trace::RECORD_BYTES.into());
        self.set(trace::LEFT, u64::from(self.most()) - 1);
    }

    /// Makes a thread without records ask at its next transfer, whatever its frames were.
    pub fn begin_anew(self) {
        let innermost = trace::FRAMES_END - trace::FRAME_BYTES;
        self.set(innermost + trace::FRAME_STACK, BASE | NOT_RETURNED);
        self.set(trace::PRESENT, 0);
        self.begin();
    }

    /// Forgets all records. The frames and the present record are to be set next.
    pub fn forget(self) {
        let at = |displacement: u32| self.0.base() + u64::from(displacement);
        let used = self.count() as u64 * u64::from(trace::RECORD_BYTES);
        self.0.memory().clear(at(trace::RECORDS), used);
        let places = trace::place(name_of(self.count()), trace::SPREAD, None);
        self.0.memory().clear(at(trace::TABLE), u64::from(places) * 4);
        self.begin();
    }

    /// The instructions that translated code has added up.
    pub fn passed(self) -> u64 {
        (0..trace::WORDS).map(|word| self.get(trace::word(word))).fold(0, u64::wrapping_add)
    }

    /// The host counts so many more.
    pub fn pass(self, instructions: u64) {
        self.set(trace::word(0), self.get(trace::word(0)).wrapping_add(instructions));
    }

    /// The name of the present record; 0 where there is none.
    pub fn present(self) -> u64 {
        self.get(trace::PRESENT)
    }

    /// The name that was present before the jump or return that is being made.
    pub fn before(self) -> u64 {
        self.get(trace::BEFORE)
    }

    /// The name of the record that the jump that is being made has led to.
    pub fn led_to(self) -> u64 {
        self.get(trace::LED_TO) << 32
    }

    /// Makes a record the present one.
    pub fn set_present(self, name: u64) {
        self.set(trace::PRESENT, name);
    }

    /// The site of the transfer that the thread asks about: the displacement of its counter.
    pub fn site(self) -> u32 {
        self.get(trace::SITE) as u32
    }

    /// The number of records, with the first one, which stands for none.
    pub fn count(self) -> usize {
        let next = self.get(trace::NEXT_RECORD) / u64::from(trace::RECORD_BYTES);
        next.min(self.most().into()) as usize
    }

    /// Returns whether the thread itself finds the innermost frame near a stack pointer, and there
    /// is room for records.
    pub fn is_near(self, stack: u64) -> bool {
        let innermost = self.frame(self.frame_count().saturating_sub(1)).stack;
        innermost.wrapping_sub(stack) < REACH && !self.is_nearly_full()
    }

    /// Returns whether there is less room for records than the host may need.
    pub fn is_nearly_full(self) -> bool {
        self.get(trace::LEFT) < RESERVED
    }

    /// The number of records that there is room for, with the first one.
    fn most(self) -> u32 {
        let bytes = slot_bytes(self.0.local()) - u64::from(trace::RECORDS);
        bytes as u32 / trace::RECORD_BYTES
    }

    /// Displacement of a field of a record.
    fn field(self, index: usize, offset: u32) -> u32 {
        let index = (index as u32).min(self.most() - 1);
        trace::RECORDS + index * trace::RECORD_BYTES + offset
    }

    /// A record.
    pub fn record(self, index: usize) -> RawRecord {
        let key = self.get(self.field(index, trace::RECORD_KEY)).wrapping_neg();
        let target = self.get(self.field(index, trace::RECORD_TARGET)).wrapping_neg();
        RawRecord { caller: key & !u64::from(u32::MAX), site: key as u32, target }
    }

    /// How often a record was entered.
    pub fn calls(self, index: usize) -> u64 {
        self.get(self.field(index, trace::RECORD_CALLS))
    }

    /// Its instructions: those at which it was left, less those at which it was entered.
    pub fn instructions(self, index: usize) -> u64 {
        self.get(self.field(index, trace::RECORD_PASSED))
    }

    /// Adds to the calls of a record.
    pub fn add_calls(self, name: u64, calls: u64) {
        let field = self.field(index_of(name), trace::RECORD_CALLS);
        self.set(field, self.get(field).wrapping_add(calls));
    }

    /// Adds to its instructions.
    pub fn add_instructions(self, name: u64, instructions: u64) {
        let field = self.field(index_of(name), trace::RECORD_PASSED);
        self.set(field, self.get(field).wrapping_add(instructions));
    }

    /// Makes a record that no transfer leads to. Returns its name.
    pub fn make(self) -> u64 {
        let index = self.count().min(self.most() as usize - 1);
        let name = name_of(index);
        self.set(trace::NEXT_RECORD, (index as u64 + 1) * u64::from(trace::RECORD_BYTES));
        self.set(trace::LEFT, self.get(trace::LEFT).saturating_sub(1));
        self.set(self.field(index, trace::RECORD_NAME), name);
        name
    }

    /// Makes a record that this transfer leads to, and that stands for `name`; `targeted` if the
    /// site, which has this `spread`, does not say where it leads. Returns its own name.
    pub fn lead(self, to: RawRecord, spread: u32, targeted: bool, name: u64) -> u64 {
        let own = self.make();
        let index = index_of(own);
        let key = to.caller.wrapping_add(to.site.into());
        self.set(self.field(index, trace::RECORD_KEY), key.wrapping_neg());
        self.set(self.field(index, trace::RECORD_TARGET), to.target.wrapping_neg());
        self.set(self.field(index, trace::RECORD_NAME), name);
        let target = targeted.then_some(to.target);
        let place = trace::place(to.caller, spread, target).min(trace::PLACES - 1);
        let place = trace::TABLE + place * 4;
        self.set32(self.field(index, trace::RECORD_NEXT), self.get32(place));
        self.set32(place, index as u32 * trace::RECORD_BYTES);
        own
    }

    fn get32(self, displacement: u32) -> u32 {
        let word = self.get(displacement & !7);
        (if displacement & 4 == 0 { word } else { word >> 32 }) as u32
    }

    fn set32(self, displacement: u32, value: u32) {
        let word = self.get(displacement & !7);
        let value = u64::from(value);
        let word = match displacement & 4 {
            0 => word & !u64::from(u32::MAX) | value,
            _ => word & u64::from(u32::MAX) | value << 32,
        };
        self.set(displacement & !7, word);
    }

    /// The number of frames, with that below all others.
    fn frame_count(self) -> u32 {
        let end = self.get(trace::FRAMES).clamp(trace::FRAMES_AT.into(), trace::FRAMES_END.into());
        (end as u32 - trace::FRAMES_AT) / trace::FRAME_BYTES
    }

    fn frame(self, index: u32) -> RawFrame {
        let at = trace::FRAMES_AT + index * trace::FRAME_BYTES;
        let stack = self.get(at + trace::FRAME_STACK);
        let handler = stack & NOT_RETURNED != 0;
        let caller = self.get(at + trace::FRAME_CALLER);
        RawFrame { stack: stack & !NOT_RETURNED, caller, handler }
    }

    /// The frames, the innermost last.
    pub fn frames(self) -> impl Iterator<Item = RawFrame> {
        (1..self.frame_count()).map(move |index| self.frame(index))
    }

    /// Sets the frames. If there are none below these, the stack pointer is `stack`.
    pub fn set_frames(self, frames: impl Iterator<Item = RawFrame>, stack: Option<u64>) {
        let below = stack.map_or(0, |stack| stack.wrapping_add(ABOVE) & !7);
        let base = RawFrame { stack: below | BASE, caller: 0, handler: true };
        let mut at = trace::FRAMES_AT;
        for frame in [base].into_iter().chain(frames) {
            if at >= trace::FRAMES_END {
                break;
            }
            let flag = if frame.handler { NOT_RETURNED } else { 0 };
            self.set(at + trace::FRAME_STACK, frame.stack | flag);
            self.set(at + trace::FRAME_CALLER, frame.caller);
            at += trace::FRAME_BYTES;
        }
        self.set(trace::FRAMES, at.into());
    }

    /// Takes the innermost frame away again.
    pub fn pop_frame(self) {
        let end = self.get(trace::FRAMES);
        self.set(trace::FRAMES, end.wrapping_sub(trace::FRAME_BYTES.into()));
    }

    /// Puts the frame back that was the innermost one.
    pub fn push_frame(self) {
        let end = self.get(trace::FRAMES);
        self.set(trace::FRAMES, end.wrapping_add(trace::FRAME_BYTES.into()));
    }

    /// The caller's name in the innermost frame.
    pub fn innermost_caller(self) -> u64 {
        self.frame(self.frame_count().saturating_sub(1)).caller
    }
}

/// The record that a name stands for.
pub fn index_of(name: u64) -> usize {
    ((name >> 32) / u64::from(trace::RECORD_BYTES)) as usize
}

/// The name of a record.
pub fn name_of(index: usize) -> u64 {
    (index as u64 * u64::from(trace::RECORD_BYTES)) << 32
}

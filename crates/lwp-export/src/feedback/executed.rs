//! What a recording has of one file, at the file's own addresses.

use std::collections::BTreeMap;

use lwp_profile::{Block, BlockCount, BlockEnd, RecordedJump, Recording, ThreadExecutions};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Binary;

/// Where a branch led: an address of this file, or another file.
pub(super) type Target = Option<u64>;

/// Executions of one file's code. Sums are signed: corrections may come before what they correct.
#[derive(Debug, Default)]
pub(super) struct Executed {
    /// Executions of each instruction.
    pub instructions: BTreeMap<u64, i64>,
    /// How often the instruction behind one was executed next, where nothing led elsewhere.
    pub falls: BTreeMap<u64, i64>,
    /// How often code was entered here: by a branch, or behind an instruction that ended a block.
    pub entered: FxHashMap<u64, i64>,
    /// Of these, entries from a known place.
    pub explained: FxHashMap<u64, i64>,
    /// Branches and calls that were taken, by where they led.
    pub taken: BTreeMap<(u64, Target), i64>,
    /// Executions of indirect jumps.
    pub indirect_jumps: BTreeMap<u64, i64>,
}

/// The recording, the modules that are the file, and the file.
struct Reader<'a> {
    recording: &'a Recording,
    modules: FxHashSet<u32>,
    binary: &'a Binary,
    /// Calls at the ends of blocks, and the instructions behind them.
    calls: BTreeMap<(u64, u64), i64>,
    out: Executed,
}

/// Instructions that the blocks of a module have executed in all threads.
pub(super) fn instructions(recording: &Recording, module: u32) -> u64 {
    let counts = recording.threads.values().flat_map(|thread| &thread.blocks);
    let of_module = counts.filter_map(|count| {
        let block = recording.blocks.get(&count.block).filter(|block| block.module == module)?;
        Some(count.runs.saturating_mul(block.counted.into()))
    });
    of_module.fold(0, u64::saturating_add)
}

impl Executed {
    pub(super) fn of(recording: &Recording, modules: &[u32], binary: &Binary) -> Self {
        let modules = modules.iter().copied().collect();
        let (calls, out) = (BTreeMap::new(), Self::default());
        let mut reader = Reader { recording, modules, binary, calls, out };
        recording.threads.values().for_each(|thread| reader.thread(thread));
        reader.returns();
        reader.out
    }

    /// Entries at an address from nowhere that is known.
    pub(super) fn unexplained(&self, address: u64) -> u64 {
        let entered = self.entered.get(&address).copied().unwrap_or_default();
        let explained = self.explained.get(&address).copied().unwrap_or_default();
        u64::try_from(entered.saturating_sub(explained)).unwrap_or(0)
    }
}

/// Adds without minding an overflow, which only a forged recording can cause.
fn add<K: Ord>(sums: &mut BTreeMap<K, i64>, key: K, times: i64) {
    let sum = sums.entry(key).or_default();
    *sum = sum.wrapping_add(times);
}

fn add_at(sums: &mut FxHashMap<u64, i64>, address: u64, times: i64) {
    let sum = sums.entry(address).or_default();
    *sum = sum.wrapping_add(times);
}

impl Reader<'_> {
    fn thread(&mut self, thread: &ThreadExecutions) {
        for count in &thread.blocks {
            self.runs(count);
        }
        for &(block, instructions, times) in &thread.partial {
            self.cut_short(block, instructions, times as i64);
        }
        for &(module, address, times) in &thread.steps {
            let Some(address) = self.target(module, address) else { continue };
            add(&mut self.out.instructions, address, times);
            add(&mut self.out.falls, address, times);
        }
        thread.jumps.iter().for_each(|jump| self.jump(jump));
    }

    /// The address in the file of one in a process; `None` if it is another file's.
    fn target(&self, module: Option<u32>, address: u64) -> Target {
        let module = module.filter(|module| self.modules.contains(module))?;
        let recorded = self.recording.modules.get(&module)?;
        self.binary.address_of(recorded.offset_of(address))
    }

    /// A block of this file, and the addresses of its instructions and of the one behind it.
    fn block(&self, number: u32) -> Option<(&Block, Vec<u64>)> {
        let block = self.recording.blocks.get(&number)?;
        let start = self.target(Some(block.module), block.address)?;
        let mut at = start;
        let mut addresses = vec![start];
        addresses.extend(block.lengths.iter().map(|length| {
            at = at.wrapping_add(u64::from(*length));
            at
        }));
        Some((block, addresses))
    }

    /// Complete runs of a block.
    fn runs(&mut self, count: &BlockCount) {
        let Some((block, addresses)) = self.block(count.block) else { return };
        let (runs, not_taken) = (count.runs as i64, count.not_taken as i64);
        let counted = usize::from(block.counted).min(block.lengths.len());
        let (whole, end) = (counted == block.lengths.len(), block.end);
        let direct = block.target.map(|target| self.target(Some(block.module), target));
        self.straight(&addresses, counted, runs);
        let [.., last, next] = addresses[..] else { return };
        if !whole {
            // The rest is executed alone.
            add_at(&mut self.out.explained, addresses[counted], runs);
            return;
        }
        // Until here the last instruction fell through.
        let taken = match end {
            BlockEnd::Other => 0,
            BlockEnd::Conditional => runs.wrapping_sub(not_taken),
            _ => runs,
        };
        add(&mut self.out.falls, last, taken.wrapping_neg());
        add_at(&mut self.out.explained, next, runs.wrapping_sub(taken));
        match (end, direct) {
            (BlockEnd::Jump | BlockEnd::Conditional, Some(to)) => self.led(last, to, taken),
            (BlockEnd::Call, Some(to)) => self.led(last, to, taken),
            (BlockEnd::IndirectJump, _) => add(&mut self.out.indirect_jumps, last, taken),
            _ => {}
        }
        if matches!(end, BlockEnd::Call | BlockEnd::IndirectCall) {
            add(&mut self.calls, (last, next), runs);
        }
    }

    /// Runs of a block that ended behind some of its instructions.
    fn cut_short(&mut self, number: u32, instructions: u16, times: i64) {
        let Some((block, addresses)) = self.block(number) else { return };
        let executed = usize::from(instructions).min(block.lengths.len());
        if executed > 0 {
            self.straight(&addresses, executed, times);
            add_at(&mut self.out.explained, addresses[executed], times);
        }
    }

    /// The first instructions of a block were executed one behind the other.
    fn straight(&mut self, addresses: &[u64], instructions: usize, times: i64) {
        add_at(&mut self.out.entered, addresses[0], times);
        for address in &addresses[..instructions] {
            add(&mut self.out.instructions, *address, times);
            add(&mut self.out.falls, *address, times);
        }
    }

    /// A branch led somewhere so many times.
    fn led(&mut self, from: u64, to: Target, times: i64) {
        add(&mut self.out.taken, (from, to), times);
        if let Some(to) = to {
            add_at(&mut self.out.explained, to, times);
        }
    }

    /// Targets that blocks don't tell.
    fn jump(&mut self, jump: &RecordedJump) {
        let Some(from) = self.target(jump.from.0, jump.from.1) else { return };
        let to = self.target(jump.to.0, jump.to.1);
        let times = jump.times as i64;
        if jump.alone && jump.taken {
            add(&mut self.out.falls, from, times.wrapping_neg());
        }
        match jump.end {
            _ if !jump.taken => {}
            // A return's place is behind its call.
            BlockEnd::Return | BlockEnd::Other => {}
            BlockEnd::IndirectJump => {
                self.led(from, to, times);
                if !jump.alone {
                    // Where the word led that it goes through.
                    add(&mut self.out.indirect_jumps, from, times.wrapping_neg());
                }
            }
            _ => self.led(from, to, times),
        }
    }

    /// Calls come back behind themselves, unless they never do: then no code was entered there.
    fn returns(&mut self) {
        for ((call, next), times) in std::mem::take(&mut self.calls) {
            let entered = self.out.entered.get(&next).copied().unwrap_or_default();
            let returned = times.min(entered);
            add(&mut self.out.falls, call, returned);
            add_at(&mut self.out.explained, next, returned);
        }
    }
}

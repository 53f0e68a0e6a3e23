//! Callers and callees, from the executions of blocks.
//!
//! Exact are: the calls made by a direct call, those made by an indirect call, by where they led,
//! how often a function's first instruction was executed, direct jumps from one function to the
//! start of another. A jump through an imported word goes to the function that the dynamic linker
//! put there, which recordings know since format 1.2; in older ones, and where the process was
//! gone, it is looked up by name in the linker's order, and so it is for calls in recordings before
//! format 1.1. What remains of a function's executions came by other indirect jumps, which the
//! counts do not tell, or from the kernel.

use lwp_profile::{Block, BlockEnd, CallKind, FunctionId, LocationId, RecordedJump};
use rustc_hash::FxHashMap;

use crate::elf::branch_through;
use crate::resolve::Resolver;

/// The start of a function, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
struct Start {
    /// Executions of its first instruction.
    executed: u64,
    /// Of these, explained by calls, jumps and what stands before it.
    explained: u64,
}

/// Executions of a block over all threads.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    runs: u64,
    not_taken: u64,
    /// Runs cut short, and steps, that executed the first instruction.
    partial: u64,
}

/// A function by module and start.
type Key = (u32, u64);

/// A place in a process, by the number of its own module.
type Place = (u32, u64);

/// Enters the calls of everything that was executed.
pub fn add(resolver: &mut Resolver<'_>) {
    let mut calls = Calls {
        resolver,
        starts: FxHashMap::default(),
        executed: FxHashMap::default(),
        led: FxHashMap::default(),
        words: FxHashMap::default(),
    };
    let totals = calls.totals();
    for (block, total) in &totals {
        calls.first_instructions(block, total);
    }
    calls.steps();
    calls.jumps();
    for (block, total) in &totals {
        calls.block(block, total);
    }
    calls.unexplained();
}

struct Calls<'r, 'a> {
    resolver: &'r mut Resolver<'a>,
    starts: FxHashMap<Key, (FunctionId, Start)>,
    /// Executions of instructions that start a function, by module and address.
    executed: FxHashMap<Key, u64>,
    /// Indirect calls of blocks of which it is known where they led, and that no block has been
    /// found for.
    led: FxHashMap<Place, u64>,
    /// The targets of the words that jumps go through, when the recording was made.
    words: FxHashMap<Place, Place>,
}

impl<'a> Calls<'_, 'a> {
    fn totals(&self) -> Vec<(&'a Block, Total)> {
        let recording = self.resolver.recording;
        let mut totals: FxHashMap<u32, Total> = FxHashMap::default();
        for thread in recording.threads.values() {
            for count in &thread.blocks {
                let total = totals.entry(count.block).or_default();
                total.runs = total.runs.saturating_add(count.runs);
                total.not_taken = total.not_taken.saturating_add(count.not_taken);
            }
            for &(block, instructions, times) in &thread.partial {
                if instructions > 0 {
                    let total = totals.entry(block).or_default();
                    total.partial = total.partial.saturating_add(times);
                }
            }
        }
        let counted = recording.blocks.iter();
        let counted = counted.filter_map(|(id, block)| Some((block, *totals.get(id)?)));
        let mut totals: Vec<(&Block, Total)> = counted.collect();
        // Neighbours are looked up one after the other.
        totals.sort_unstable_by_key(|(block, _)| (block.module, block.address, block.id));
        totals
    }

    /// Notes how often functions that start in this block were entered.
    fn first_instructions(&mut self, block: &Block, total: &Total) {
        let start = self.resolver.file_address(block.module, block.address);
        let mut offset = 0u64;
        for (index, &len) in block.lengths.iter().take(usize::from(block.counted)).enumerate() {
            let address = start.wrapping_add(offset);
            let (function, first) = self.resolver.function_at(block.module, address);
            if first == address {
                let times = match index {
                    0 => total.runs.saturating_add(total.partial),
                    _ => total.runs,
                };
                let key = (self.resolver.same(block.module), address);
                self.entered(key, function, times);
                let entry = self.starts.entry(key).or_insert((function, Start::default()));
                if index > 0 {
                    // Straight code runs into it: from a label, or from the function before.
                    entry.1.explained = entry.1.explained.saturating_add(total.runs);
                }
            }
            offset += u64::from(len);
        }
    }

    /// The first instruction of a function was executed.
    fn entered(&mut self, key: Key, function: FunctionId, times: u64) {
        let entry = self.starts.entry(key).or_insert((function, Start::default()));
        entry.1.executed = entry.1.executed.saturating_add(times);
        let executed = self.executed.entry(key).or_default();
        *executed = executed.saturating_add(times);
    }

    /// Notes how often functions were entered one instruction at a time.
    fn steps(&mut self) {
        let recording = self.resolver.recording;
        for &(module, address, times) in recording.threads.values().flat_map(|it| &it.steps) {
            let (Some(module), Ok(times)) = (module, u64::try_from(times)) else { continue };
            let address = self.resolver.file_address(module, address);
            let (function, first) = self.resolver.function_at(module, address);
            if first == address {
                self.entered((self.resolver.same(module), address), function, times);
            }
        }
    }

    /// Enters the calls and jumps of which it is known where they led.
    fn jumps(&mut self) {
        let recording = self.resolver.recording;
        for jump in recording.threads.values().flat_map(|thread| &thread.jumps) {
            let ((Some(module), address), (Some(to), target)) = (jump.from, jump.to) else {
                continue;
            };
            if !jump.alone && jump.end == BlockEnd::IndirectJump {
                self.words.insert((module, address), (to, target));
                continue;
            }
            if !jump.alone {
                let led = self.led.entry((module, address)).or_default();
                *led = led.saturating_add(jump.times);
            }
            self.led_to(jump, module, address, to, target);
        }
    }

    fn led_to(&mut self, jump: &RecordedJump, module: u32, from: u64, to: u32, target: u64) {
        let from = self.resolver.file_address(module, from);
        let site = self.resolver.location(module, from, &[]);
        match jump.end {
            BlockEnd::Call => self.call(site, (to, target), CallKind::Direct, jump.times),
            BlockEnd::IndirectCall => {
                self.call(site, (to, target), CallKind::Indirect, jump.times);
            }
            BlockEnd::Jump | BlockEnd::Conditional | BlockEnd::IndirectJump => {
                let (here, _) = self.resolver.function_at(module, from);
                self.jump(here, site, (to, target), jump.times);
            }
            BlockEnd::Return | BlockEnd::Other => {}
        }
    }

    /// Enters the call or jump at the end of a block.
    fn block(&mut self, block: &Block, total: &Total) {
        let instructions = self.resolver.instructions(block, block.lengths.len());
        let Some(&(site, _)) = instructions.last() else { return };
        let taken = match block.end {
            BlockEnd::Conditional => total.runs.saturating_sub(total.not_taken),
            _ => total.runs,
        };
        match (block.end, block.target) {
            (BlockEnd::Call, Some(target)) => {
                self.call(site, (block.module, target), CallKind::Direct, taken);
            }
            (BlockEnd::Jump | BlockEnd::Conditional, Some(target)) => {
                let here = self.resolver.file_address(block.module, block.address);
                let (here, _) = self.resolver.function_at(block.module, here);
                self.jump(here, site, (block.module, target), taken);
            }
            (BlockEnd::IndirectJump, _) => self.import(block, site, taken),
            (BlockEnd::IndirectCall, _) => {
                let unknown = self.not_led(block, taken);
                self.import(block, site, unknown);
            }
            _ => {}
        }
        let falls = match block.end {
            BlockEnd::Conditional => total.not_taken,
            BlockEnd::Other => total.runs,
            _ => 0,
        };
        self.fall(block, site, falls);
    }

    /// Returns the number of the `runs` of a block that ends in an indirect call whose target is
    /// not known.
    fn not_led(&mut self, block: &Block, runs: u64) -> u64 {
        let before: u64 = block.lengths.iter().rev().skip(1).map(|len| u64::from(*len)).sum();
        let place = (block.module, block.address.wrapping_add(before));
        let Some(led) = self.led.get_mut(&place) else { return runs };
        let known = runs.min(*led);
        *led -= known;
        runs - known
    }

    fn call(&mut self, site: LocationId, to: Place, kind: CallKind, count: u64) {
        let (module, target) = (to.0, self.resolver.file_address(to.0, to.1));
        let (to, start) = self.resolver.function_at(module, target);
        if count > 0 {
            self.resolver.builder.call(Some(site), to, kind, count);
        }
        if start == target {
            self.explain((self.resolver.same(module), start), count);
        }
    }

    /// A jump to the start of another function is a call that does not come back here.
    fn jump(&mut self, from: FunctionId, site: LocationId, to: Place, count: u64) {
        let (module, target) = (to.0, self.resolver.file_address(to.0, to.1));
        let (to, start) = self.resolver.function_at(module, target);
        if start != target {
            return;
        }
        if from != to && count > 0 {
            self.resolver.builder.call(Some(site), to, CallKind::Tail, count);
        }
        self.explain((self.resolver.same(module), start), count);
    }

    /// Control runs from the end of a block into the start of a function.
    fn fall(&mut self, block: &Block, site: LocationId, count: u64) {
        let len: u64 = block.lengths.iter().map(|len| u64::from(*len)).sum();
        let next = self.resolver.file_address(block.module, block.address).wrapping_add(len);
        let key = (self.resolver.same(block.module), next);
        if count == 0 || !self.starts.contains_key(&key) {
            return;
        }
        let here = self.resolver.file_address(block.module, block.address);
        let (from, _) = self.resolver.function_at(block.module, here);
        let (to, _) = self.resolver.function_at(block.module, next);
        if from != to {
            self.resolver.builder.call(Some(site), to, CallKind::Tail, count);
        }
        self.explain(key, count);
    }

    /// A branch through a word that holds an imported function's address.
    fn import(&mut self, block: &Block, site: LocationId, count: u64) {
        let Some((&len, before)) = block.lengths.split_last() else { return };
        let offset: usize = before.iter().map(|len| usize::from(*len)).sum();
        let Some(code) = block.bytes.get(offset..offset + usize::from(len)) else { return };
        let address =
            self.resolver.file_address(block.module, block.address).wrapping_add(offset as u64);
        let Some(word) = branch_through(code, address) else { return };
        let elf = self
            .resolver
            .names
            .get(&self.resolver.same(block.module))
            .and_then(|names| names.elf());
        // A word that the program writes itself may have held anything before.
        let Some(name) = elf.and_then(|elf| elf.import_at(word)).map(str::to_owned) else {
            return;
        };
        let key = (self.resolver.same(block.module), word);
        self.resolver.found.imports.insert(key, name.clone());
        let place = (block.module, block.address.wrapping_add(offset as u64));
        let led = self.words.get(&place).copied().and_then(|led| self.entry(led));
        let exported = if led.is_none() { self.exporter(&name) } else { None };
        if let Some((module, address)) = exported {
            self.resolver.found.exports.insert((module, name), address);
        }
        let Some(key) = led.or(exported) else { return };
        let (to, _) = self.resolver.function_at(key.0, key.1);
        if count > 0 {
            self.resolver.builder.call(Some(site), to, CallKind::Import, count);
        }
        self.explain(key, count);
    }

    /// The function that starts at a place, if one that was entered does.
    fn entry(&mut self, (module, address): Place) -> Option<Key> {
        let key = (self.resolver.same(module), self.resolver.file_address(module, address));
        self.executed.contains_key(&key).then_some(key)
    }

    /// The first module that exports `name` as a function that was entered.
    fn exporter(&self, name: &str) -> Option<Key> {
        self.resolver.names.iter().find_map(|(&module, names)| {
            let (address, resolver) = names.elf()?.export(name)?;
            (!resolver && self.executed.contains_key(&(module, address)))
                .then_some((module, address))
        })
    }

    fn explain(&mut self, key: Key, count: u64) {
        if let Some((_, start)) = self.starts.get_mut(&key) {
            start.explained = start.explained.saturating_add(count);
        }
    }

    /// Ascribes the rest to indirect jumps, or to the kernel.
    fn unexplained(&mut self) {
        for (function, start) in self.starts.values() {
            let left = start.executed.saturating_sub(start.explained);
            if left > 0 {
                self.resolver.builder.call(None, *function, CallKind::Indirect, left);
            }
        }
    }
}

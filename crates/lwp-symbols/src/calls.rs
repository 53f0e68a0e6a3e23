//! Who called whom, from the executions of blocks.
//!
//! Exact are: the calls made by a direct call, how often a function's first instruction was executed,
//! direct jumps from one function to the start of another. A jump or call through an imported word goes to
//! the function that the dynamic linker found for the name; that is looked up in the same order. What
//! remains of a function's executions came by indirect calls and jumps from places that the counts
//! do not tell.

use std::collections::HashMap;

use lwp_profile::{Block, BlockEnd, CallKind, FunctionId, LocationId};

use crate::elf::branch_through;
use crate::resolve::Resolver;

/// What is known about the start of a function.
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

/// Enters the calls of everything that was executed.
pub fn add(resolver: &mut Resolver<'_>) {
    let mut calls = Calls { resolver, starts: HashMap::new(), executed: HashMap::new() };
    let totals = calls.totals();
    for (block, total) in &totals {
        calls.first_instructions(block, total);
    }
    for (block, total) in &totals {
        calls.block(block, total);
    }
    calls.unexplained();
}

struct Calls<'r, 'a> {
    resolver: &'r mut Resolver<'a>,
    starts: HashMap<Key, (FunctionId, Start)>,
    /// Executions of instructions that start a function, by module and address.
    executed: HashMap<Key, u64>,
}

impl<'a> Calls<'_, 'a> {
    fn totals(&self) -> Vec<(&'a Block, Total)> {
        let recording = self.resolver.recording;
        let mut totals: HashMap<u32, Total> = HashMap::new();
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
        let mut totals: Vec<(&Block, Total)> =
            totals.into_iter().map(|(id, total)| (&recording.blocks[&id], total)).collect();
        totals.sort_by_key(|(block, _)| block.id);
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
                let entry = self.starts.entry(key).or_insert((function, Start::default()));
                entry.1.executed = entry.1.executed.saturating_add(times);
                let executed = self.executed.entry(key).or_default();
                *executed = executed.saturating_add(times);
                if index > 0 {
                    // Straight code runs into it: from a label, or from the function before.
                    entry.1.explained = entry.1.explained.saturating_add(total.runs);
                }
            }
            offset += u64::from(len);
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
            (BlockEnd::Call, Some(target)) => self.call(block, site, target, taken),
            (BlockEnd::Jump | BlockEnd::Conditional, Some(target)) => {
                self.jump(block, site, target, taken);
            }
            (BlockEnd::IndirectCall | BlockEnd::IndirectJump, _) => {
                self.import(block, site, taken);
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

    fn call(&mut self, block: &Block, site: LocationId, target: u64, count: u64) {
        let target = self.resolver.file_address(block.module, target);
        let (to, start) = self.resolver.function_at(block.module, target);
        if count > 0 {
            self.resolver.builder.call(Some(site), to, CallKind::Direct, count);
        }
        if start == target {
            self.explain((self.resolver.same(block.module), start), count);
        }
    }

    /// A jump to the start of another function is a call that does not come back here.
    fn jump(&mut self, block: &Block, site: LocationId, target: u64, count: u64) {
        let target = self.resolver.file_address(block.module, target);
        let here = self.resolver.file_address(block.module, block.address);
        let (to, start) = self.resolver.function_at(block.module, target);
        if start != target {
            return;
        }
        let (from, _) = self.resolver.function_at(block.module, here);
        if from != to && count > 0 {
            self.resolver.builder.call(Some(site), to, CallKind::Tail, count);
        }
        self.explain((self.resolver.same(block.module), start), count);
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
        let Some(name) = elf.and_then(|elf| elf.import_at(word)).map(str::to_owned) else {
            return;
        };
        let Some(key) = self.exporter(&name) else { return };
        let (to, _) = self.resolver.function_at(key.0, key.1);
        if count > 0 {
            self.resolver.builder.call(Some(site), to, CallKind::Import, count);
        }
        self.explain(key, count);
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

    /// What is left came from indirect branches.
    fn unexplained(&mut self) {
        for (function, start) in self.starts.values() {
            let left = start.executed.saturating_sub(start.explained);
            if left > 0 {
                self.resolver.builder.call(None, *function, CallKind::Indirect, left);
            }
        }
    }
}

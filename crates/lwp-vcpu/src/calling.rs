//! Calling contexts of threads, measured: reads what translated code writes down of calls, returns
//! and jumps between functions ([`lwp_dbt::trace`]).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use iced_x86::{Decoder, DecoderOptions};
use lwp_contexts::{Functions, Leave, Transfer, Tree};
use lwp_dbt::trace::{self, Half, Written};
use lwp_dbt::{FragmentId, Role, Slot, counter_index};
use lwp_ptrace::Tid;

use crate::contexts::Context as ThreadContext;
use crate::family::Family;
use crate::machine::Counting;

/// The end of a block that may lead to another function.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// How control leaves; `None` where a signal's handler ends.
    leave: Option<Leave>,
    /// Its address.
    pc: u64,
    /// Its last byte.
    last: u64,
    /// Where it leads, with a number that nothing else in this process has, unless the thread
    /// writes down where it leads.
    target: Option<(u64, u32)>,
}

/// The sites of a family, by the counters that name them.
#[derive(Debug, Default)]
pub struct Sites {
    /// One more than the place in `all`, by counter; 0 where it is not known.
    places: Vec<u32>,
    all: Vec<Site>,
}

/// The half of a thread's room for transfers that is full, if there is one: the host has not looked
/// at it yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct FullHalf(Option<Half>);

/// Where the application stands, with the instruction there not executed.
#[derive(Clone, Copy, Debug)]
pub struct Stand {
    /// The instruction's address.
    pub pc: u64,
    /// The stack pointer.
    pub stack: u64,
}

impl Site {
    fn of(family: &Family, id: FragmentId) -> Self {
        let fragment = family.code_cache.fragment(id);
        let next = fragment.pc.0 + u64::from(fragment.app_len);
        let deltas = fragment.deltas;
        let leave = match (deltas.calls, deltas.returns) {
            (1, _) => Leave::Call,
            (_, 1) => Leave::Return,
            _ => Leave::Jump,
        };
        let is_written = deltas.indirect == 1 || deltas.returns == 1;
        let target = if fragment.target.0 == 0 { next } else { fragment.target.0 };
        let is_call = |bytes: &[u8]| bytes.ends_with(&[0x0f, 0x05]);
        let ends_handler =
            deltas.branches == 0 && family.origin_of(id).is_some_and(|(_, bytes)| is_call(&bytes));
        Self {
            leave: (!ends_handler).then_some(leave),
            pc: last_instruction(family, id).unwrap_or(next - 1),
            last: next - 1,
            target: (!is_written).then(|| (target, next_number())),
        }
    }
}

/// A number that has not been used yet. There are fewer than 2^31, because each belongs to a
/// fragment.
fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1)
}

/// The address of the last instruction of a fragment.
fn last_instruction(family: &Family, id: FragmentId) -> Option<u64> {
    let pc = family.code_cache.fragment(id).pc.0;
    let (_, bytes) = family.origin_of(id)?;
    let all = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE);
    all.into_iter().last().map(|it| it.ip())
}

impl ThreadContext<'_> {
    /// The half of the room that the thread writes transfers to, and their number.
    fn half(self) -> (Half, u32) {
        Half::in_use(self.get(Slot::Transfers)).unwrap_or((Half::First, 0))
    }

    /// The first transfers of a half.
    fn transfers(self, half: Half, count: u32) -> impl Iterator<Item = Written> {
        let words = self.words(half.place(0), u64::from(count) * trace::LENGTH as u64);
        let (transfers, _) = words.as_chunks::<{ trace::LENGTH }>();
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        transfers.iter().map(move |words| Written::of(words.each_ref().map(load)))
    }

    /// The instructions that translated code has added up.
    fn passed(self) -> u64 {
        (0..trace::WORDS)
            .map(|word| self.word(u64::from(trace::word(word))))
            .fold(0, u64::wrapping_add)
    }
}

impl Counting<'_> {
    /// Has a thread write to the other half of its room, so that it can go on.
    pub fn turn_transfers(&mut self, tid: Tid) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let context = self.contexts.context(thread.slot);
        let (half, count) = context.half();
        if count < trace::MOST || thread.account.profile.transfers.0.is_some() {
            return self.take_transfers(tid, None);
        }
        context.set(Slot::Transfers, half.other().start());
        thread.account.profile.transfers = FullHalf(Some(half));
        self.tasks.traced.push(tid);
    }

    /// Takes the halves that are full into the contexts of their threads.
    pub fn take_full_halves(&mut self) {
        while let Some(tid) = self.tasks.traced.pop() {
            self.take_full_half(tid);
        }
    }

    fn take_full_half(&mut self, tid: Tid) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        if let Some(half) = thread.account.profile.transfers.0.take() {
            self.put_together(tid, (half, trace::MOST), None);
        }
    }

    /// Takes what a thread has written down into its contexts. It is stopped, or waits; `at` is
    /// where it stands.
    pub fn take_transfers(&mut self, tid: Tid, at: Option<Stand>) {
        self.take_full_half(tid);
        let Some(thread) = self.tasks.threads.get(&tid) else { return };
        let context = self.contexts.context(thread.slot);
        let (half, count) = context.half();
        context.set(Slot::Transfers, half.start());
        if count > 0 {
            self.put_together(tid, (half, count), at);
        }
    }

    /// Takes the transfers of a half into the contexts of a thread. If it stands `at` a place, the
    /// last one may not have been made.
    fn put_together(&mut self, tid: Tid, (half, count): (Half, u32), at: Option<Stand>) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let Some(space) = self.tasks.processes.get(&thread.pid).map(|it| it.space) else { return };
        let Some(Some(space)) = self.caches.spaces.get(thread.side.unwrap_or(space)) else {
            return;
        };
        let Some(Some(family)) = self.caches.families.get_mut(space.family) else { return };
        let Some(mut functions) = family.functions.take() else { return };
        let corrected = thread.account.correction.instructions();
        let context = self.contexts.context(thread.slot);
        let passed = context.passed();
        let mut sites = std::mem::take(&mut family.sites);
        let tree = &mut thread.account.profile.contexts;
        for (index, written) in (1..).zip(context.transfers(half, count)) {
            let site = counter_index(written.site).and_then(|it| sites.get(family, it));
            let Some(site) = site else { continue };
            if index == count && at.is_some_and(|at| site.is_not_left(&written, at, passed)) {
                break;
            }
            let tree = tree.get_or_insert_with(|| {
                let entry = functions.at(site.pc).start;
                Box::new(Tree::new(entry, 0, &mut functions))
            });
            let instructions = written.passed.wrapping_add(corrected);
            match site.leave {
                Some(leave) => tree.transfer(
                    &Transfer {
                        leave,
                        stack: written.stack,
                        instructions,
                        site: site.last,
                        target: site.target.map_or(written.target, |(target, _)| target),
                        edge: site.target.map(|(_, number)| number),
                    },
                    &mut functions,
                ),
                None => tree.resume(instructions),
            }
        }
        family.sites = sites;
        family.functions = Some(functions);
    }

    /// A thread that has been accounted for to where it is has executed everything that its context
    /// says: adds that up.
    pub fn pass_instructions(&mut self, tid: Tid) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let passed = self.contexts.context(thread.slot).passed();
        let instructions = passed.wrapping_add(thread.account.correction.instructions());
        if let Some(tree) = &mut thread.account.profile.contexts {
            tree.pass(instructions);
        }
    }

    /// A signal has interrupted a thread at `at`: its handler begins at `entry`, with its return
    /// address at `stack`.
    pub fn enter_handler(&mut self, tid: Tid, at: u64, entry: u64, stack: u64) {
        self.take_transfers(tid, None);
        self.pass_instructions(tid);
        let Some((_, family)) = self.caches.space_of(self.tasks, tid) else { return };
        let Some(functions) = &mut family.functions else { return };
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let tree = thread.account.profile.contexts.get_or_insert_with(|| {
            let root = functions.at(at).start;
            Box::new(Tree::new(root, 0, functions))
        });
        tree.interrupt(at, entry, stack, functions);
    }

    /// A child process begins in the context of its maker, whose call has made it.
    pub fn inherit_contexts(&mut self, maker: Tid, child: Tid) {
        self.take_transfers(maker, None);
        let made = self.tasks.threads.get(&maker);
        let tree = made.and_then(|it| it.account.profile.contexts.as_ref()).map(|it| it.forked());
        if let (Some(child), Some(mut tree)) = (self.tasks.threads.get_mut(&child), tree) {
            tree.begin_at(0);
            child.account.profile.contexts = Some(Box::new(tree));
        }
    }

    /// What a thread's counters have said so far is in its account, and reported.
    pub fn begin_contexts_anew(&mut self, tid: Tid) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let passed = self.contexts.context(thread.slot).passed();
        let instructions = passed.wrapping_add(thread.account.correction.instructions());
        if let Some(tree) = &mut thread.account.profile.contexts {
            tree.begin_at(instructions);
        }
    }
}

impl Site {
    /// Returns whether a thread that stands `at` a place, where it has executed `passed`
    /// instructions, has written a transfer down and not made it: it begins with that anew.
    fn is_not_left(&self, written: &Written, at: Stand, passed: u64) -> bool {
        self.pc == at.pc && written.stack == at.stack && written.passed == passed
    }
}

impl Sites {
    fn get(&mut self, family: &Family, counter: usize) -> Option<Site> {
        if let Some(place @ 1..) = self.places.get(counter) {
            return self.all.get(*place as usize - 1).copied();
        }
        let Some(Role::Transfer(id)) = family.code_cache.counters().role(counter) else {
            return None;
        };
        let site = Site::of(family, id);
        self.all.push(site);
        if self.places.len() <= counter {
            self.places.resize(counter + 1, 0);
        }
        self.places[counter] = self.all.len() as u32;
        Some(site)
    }
}

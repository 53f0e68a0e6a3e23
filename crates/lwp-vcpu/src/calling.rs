//! Calling contexts of threads, measured: reads what translated code writes down of calls, returns
//! and jumps between functions ([`lwp_dbt::trace`]).

use iced_x86::{Decoder, DecoderOptions};
use lwp_contexts::{Functions, Leave, Transfer, Tree};
use lwp_dbt::{FragmentId, Role, Slot, counter_index, trace};
use lwp_ptrace::Tid;
use rustc_hash::FxHashMap;

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
    /// Where it leads, unless the thread writes that down.
    target: Option<u64>,
}

/// The sites of a family, by the counters that name them.
#[derive(Debug, Default)]
pub struct Sites(FxHashMap<usize, Site>);

/// What a thread has written down of a transfer.
#[derive(Clone, Copy, Debug)]
struct Written {
    site: usize,
    stack: u64,
    words: u64,
    target: u64,
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
            target: (!is_written).then_some(target),
        }
    }
}

/// The address of the last instruction of a fragment.
fn last_instruction(family: &Family, id: FragmentId) -> Option<u64> {
    let pc = family.code_cache.fragment(id).pc.0;
    let (_, bytes) = family.origin_of(id)?;
    let all = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE);
    all.into_iter().last().map(|it| it.ip())
}

impl Written {
    /// Everything that a thread has written down, and room for more.
    fn take(context: ThreadContext<'_>) -> Vec<Self> {
        let place = context.get(Slot::Transfers).cast_signed();
        let room = i64::from(trace::MOST * trace::BYTES);
        context.set(Slot::Transfers, trace::EMPTY);
        let written = place + room;
        if !(0..=room).contains(&written) {
            return Vec::new();
        }
        let count = written / i64::from(trace::BYTES);
        let first = u64::from(trace::END) - u64::from(trace::MOST * trace::BYTES);
        (0..count.unsigned_abs())
            .map_while(|index| {
                let at = first + index * u64::from(trace::BYTES);
                let word = |offset: u32| context.word(at + u64::from(offset));
                let site = counter_index(word(trace::SITE) as u32)?;
                let [one, other] = trace::RUNS.map(word);
                let words = one.wrapping_add(other);
                Some(Self { site, stack: word(trace::STACK), words, target: word(trace::TARGET) })
            })
            .collect()
    }
}

impl ThreadContext<'_> {
    /// The instructions that translated code has added up.
    fn passed(self) -> u64 {
        (0..trace::WORDS)
            .map(|word| self.word(u64::from(trace::word(word))))
            .fold(0, u64::wrapping_add)
    }
}

impl Counting<'_> {
    /// Takes what a thread has written down into its contexts. It is stopped, or waits; `at` is
    /// where the application stands, with the instruction there not executed.
    pub fn take_transfers(&mut self, tid: Tid, at: Option<u64>) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let Some(space) = self.tasks.processes.get(&thread.pid).map(|it| it.space) else { return };
        let Some(Some(space)) = self.caches.spaces.get(thread.side.unwrap_or(space)) else {
            return;
        };
        let Some(Some(family)) = self.caches.families.get_mut(space.family) else { return };
        let Some(mut functions) = family.functions.take() else { return };
        let context = self.contexts.context(thread.slot);
        let corrected = thread.account.correction.instructions();
        let mut written = Written::take(context);
        let mut sites = std::mem::take(&mut family.sites);
        if let (Some(at), Some(last)) = (at, written.last())
            && let Some(site) = sites.get(family, last.site)
            && site.pc == at
        {
            // The thread has been interrupted before it was made, and begins with it anew.
            written.pop();
        }
        for transfer in &written {
            let Some(site) = sites.get(family, transfer.site) else { continue };
            let instructions = transfer.words.wrapping_add(corrected);
            let tree = thread.account.profile.contexts.get_or_insert_with(|| {
                let entry = functions.at(site.pc).start;
                Box::new(Tree::new(entry, 0, &mut functions))
            });
            match site.leave {
                Some(leave) => tree.transfer(
                    &Transfer {
                        leave,
                        stack: transfer.stack,
                        instructions,
                        site: site.last,
                        target: site.target.unwrap_or(transfer.target),
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
        self.take_transfers(tid, Some(at));
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

impl Sites {
    fn get(&mut self, family: &Family, counter: usize) -> Option<Site> {
        if let Some(site) = self.0.get(&counter) {
            return Some(*site);
        }
        let Some(Role::Transfer(id)) = family.code_cache.counters().role(counter) else {
            return None;
        };
        let site = Site::of(family, id);
        self.0.insert(counter, site);
        Some(site)
    }
}

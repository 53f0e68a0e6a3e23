//! Measured calling contexts of threads. Threads move from one context to another by themselves
//! ([`lwp_dbt::trace`]), and ask the host for contexts that they don't know.

use lwp_arch::retired::BranchKind;
use lwp_code::family::Family;
use lwp_code::functions::MappedFunctions;
use lwp_code::transfer_sites::{Site, Sites};
use lwp_contexts::{Frame, Functions, Place, Stack, Stacks, Tree};
use lwp_dbt::trace::{self, Leave};
use lwp_dbt::{FragmentId, counter_index, transfer_stores};
use lwp_mailbox::contexts::{RawFrame, RawRecord, RecordWords, index_of, name_of};
use lwp_process::Tid;
use lwp_process::memory::read_u64;
use rustc_hash::FxHashMap;

use crate::machine::Counting;

/// Most frames that a thread gets; the others stay here until it comes back to them.
const MOST_FRAMES: usize = 1024;

// Threads and the host agree on which stack a stack pointer is.
const _: () = assert!(lwp_contexts::REACH == 1 << lwp_dbt::trace::REACH_BITS);

/// One call less.
const NOT_ONE: u64 = 1_u64.wrapping_neg();

/// The calling contexts of a thread.
#[derive(Clone, Debug)]
pub struct Calling {
    tree: Tree,
    /// The stacks; where the thread has records, it has the one in use itself.
    stacks: Stacks,
    /// The frames of that below those that the thread has.
    deep: Vec<Frame>,
    /// True if the thread has records and frames.
    in_thread: bool,
    /// What the thread's records stand for.
    records: Vec<Known>,
    /// Records by what they stand for.
    names: FxHashMap<Place, u64>,
    /// The part of the thread's correction that is in its sum.
    corrected: u64,
}

/// What a record stands for.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    place: Place,
    /// True if its calls are those of its context.
    counts: bool,
}

/// A transfer that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Stand {
    /// The stack pointer before.
    pub stack: u64,
    /// Where it leads.
    pub target: u64,
}

/// A branch that the host has seen a thread make.
#[derive(Clone, Copy, Debug)]
pub struct Branched {
    /// Its kind; `None` where control has gone on to the next instruction.
    pub kind: Option<BranchKind>,
    /// The instruction.
    pub at: u64,
    /// Where it has led.
    pub target: u64,
    /// The stack pointer now.
    pub stack: u64,
    /// The bytes of arguments that a return has taken off the stack.
    pub released: u64,
}

/// A signal's handler that begins.
#[derive(Clone, Copy, Debug)]
struct Handler {
    entry: u64,
    /// Where its return address lies.
    stack: u64,
    /// Its return address.
    ends: u64,
}

/// A transfer between functions whose instruction has not been executed.
#[derive(Clone, Copy, Debug)]
pub struct Unmade {
    /// The fragment that ends with it.
    pub fragment: FragmentId,
    /// How many bytes of its code have been executed.
    pub past: u32,
    /// r11, which says where a call leads.
    pub r11: u64,
    /// The stack pointer.
    pub stack: u64,
}

impl Calling {
    /// The thread begins at `entry`.
    fn new(entry: u64, functions: &mut dyn Functions) -> Self {
        Self::with(Tree::new(entry, functions), Stacks::new(0))
    }

    fn with(tree: Tree, stacks: Stacks) -> Self {
        Self {
            tree,
            stacks,
            deep: Vec::new(),
            in_thread: false,
            records: vec![Known::default()],
            names: FxHashMap::default(),
            corrected: 0,
        }
    }

    /// Those of a thread that begins where this one is, and has counted nothing.
    fn forked(&self, words: RecordWords<'_>) -> Self {
        let mut stacks = self.stacks.clone();
        stacks.current = self.stack(words);
        let kept: Vec<u32> = stacks.places().map(|place| place.context).collect();
        let (mut tree, numbers) = self.tree.forked(kept.into_iter());
        let number = |context: u32| numbers.get(context as usize).copied().flatten().unwrap_or(0);
        for place in stacks.places() {
            place.context = number(place.context);
            place.within = place.within.map(number);
        }
        for stack in stacks.others().iter().chain([&stacks.current]) {
            stack.awaited().for_each(|context| tree.add_calls(context, 1));
        }
        Self::with(tree, stacks)
    }

    /// What a name stands for.
    fn place_of(&self, name: u64) -> Place {
        self.records.get(index_of(name)).copied().unwrap_or_default().place
    }

    /// The stack in use.
    fn stack(&self, words: RecordWords<'_>) -> Stack {
        if !self.in_thread {
            return self.stacks.current.clone();
        }
        let frame = |raw: RawFrame| Frame {
            stack: raw.stack,
            caller: self.place_of(raw.caller),
            handler: raw.handler,
        };
        let frames = self.deep.iter().copied().chain(words.frames().map(frame)).collect();
        Stack { frames, present: self.present(words) }
    }

    /// Where the thread is.
    fn present(&self, words: RecordWords<'_>) -> Place {
        match self.in_thread {
            true => self.place_of(words.present()),
            false => self.stacks.current.present,
        }
    }

    /// Takes the stack in use from the thread.
    fn take_stack(&mut self, words: RecordWords<'_>) {
        self.stacks.current = self.stack(words);
        self.in_thread = false;
    }

    /// Gives the stack in use to the thread, whose stack pointer is `stack`.
    fn give_stack(&mut self, words: RecordWords<'_>, stack: u64) {
        for context in self.stacks.take_unreturned() {
            self.tree.add_calls(context, NOT_ONE);
        }
        if words.is_nearly_full() {
            self.harvest(words);
        }
        let Stack { mut frames, present } = std::mem::take(&mut self.stacks.current);
        let own = frames.split_off(frames.len().saturating_sub(MOST_FRAMES));
        self.deep = frames;
        let mut raw = Vec::with_capacity(own.len());
        for frame in own {
            let caller = self.name_of(words, frame.caller);
            raw.push(RawFrame { stack: frame.stack, caller, handler: frame.handler });
        }
        words.set_frames(raw.into_iter(), self.deep.is_empty().then_some(stack));
        words.set_present(self.name_of(words, present));
        self.in_thread = true;
    }

    /// The record of a place.
    fn name_of(&mut self, words: RecordWords<'_>, place: Place) -> u64 {
        if let Some(name) = self.names.get(&place) {
            return *name;
        }
        let name = words.make();
        self.know(name, Known { place, counts: true });
        self.names.insert(place, name);
        name
    }

    fn know(&mut self, name: u64, known: Known) {
        let index = index_of(name);
        if index >= self.records.len() {
            self.records.resize(index + 1, Known::default());
        }
        self.records[index] = known;
    }

    /// Takes the counts of the thread's records, which are forgotten. Its stack has been taken.
    fn harvest(&mut self, words: RecordWords<'_>) {
        add_counts(&mut self.tree, &self.records, words);
        words.forget();
        self.records.truncate(1);
        self.names.clear();
    }

    /// The contexts with their counts.
    fn counted(&self, words: RecordWords<'_>) -> Tree {
        let mut tree = self.tree.clone();
        add_counts(&mut tree, &self.records, words);
        tree.add_instructions(self.present(words).context, words.passed());
        // What is counted when a handler is entered.
        for stack in self.stacks.others().iter().chain([&self.stack(words)]) {
            stack.awaited().for_each(|context| tree.add_calls(context, NOT_ONE));
        }
        tree
    }

    /// Instructions count from here on.
    fn begin(&mut self, words: RecordWords<'_>) {
        let present = self.present(words);
        self.tree.add_instructions(present.context, words.passed().wrapping_neg());
    }

    /// The stack in use, taken from the thread, has been led from one context to another, by
    /// nothing that the thread counts.
    fn led_from(&mut self, from: Place, words: RecordWords<'_>) {
        let to = self.stacks.current.present;
        if to.context != from.context {
            self.tree.add_instructions(from.context, words.passed());
            self.tree.add_instructions(to.context, words.passed().wrapping_neg());
        }
    }

    /// Finds the stack that the stack pointer is on.
    fn settle(&mut self, stack: u64, words: RecordWords<'_>) {
        let from = self.stacks.current.present;
        self.stacks.settle(stack);
        self.led_from(from, words);
    }
}

/// Adds what a thread's records say that are known to stand for something.
fn add_counts(tree: &mut Tree, records: &[Known], words: RecordWords<'_>) {
    for (index, known) in records.iter().enumerate().take(words.count()).skip(1) {
        let Known { place, counts } = *known;
        let instructions = words.instructions(index);
        tree.add_instructions(place.context, instructions);
        if let Some(within) = place.within {
            tree.add_instructions(within, instructions.wrapping_neg());
        }
        if counts {
            tree.add_calls(place.context, words.calls(index));
        }
    }
}

/// A thread's contexts, with what they are made of.
struct Scene<'a> {
    calling: &'a mut Calling,
    words: RecordWords<'a>,
    functions: &'a mut MappedFunctions,
    sites: &'a mut Sites,
    family: &'a Family,
}

impl Scene<'_> {
    fn site(&mut self, displacement: u32) -> Option<Site> {
        counter_index(displacement).and_then(|counter| self.sites.get(self.family, counter))
    }

    /// Learns what the records stand for that the thread has made.
    fn learn(&mut self) {
        for index in self.calling.records.len()..self.words.count() {
            let record = self.words.record(index);
            let from = self.calling.place_of(record.caller);
            let known = match self.site(record.site) {
                Some(site) => {
                    let target = site.target_of(record);
                    let tree = &mut self.calling.tree;
                    if site.leave.is_call() {
                        let context = tree.call(from.context, site.last, target, self.functions);
                        let within = Some(from.context);
                        Known { place: Place { context, within }, counts: true }
                    } else {
                        let led = tree.jump(from.context, site.last, target, self.functions);
                        Known { place: Place { context: led.to, ..from }, counts: led.enters }
                    }
                }
                None => Known::default(),
            };
            self.calling.names.entry(known.place).or_insert(name_of(index));
            self.calling.records.push(known);
        }
    }

    /// Does what a thread cannot do that stands before a transfer, so that it can make it.
    fn prepare(&mut self, displacement: u32, at: Stand) {
        self.learn();
        let Some(site) = self.site(displacement) else { return };
        if self.calling.in_thread && self.words.present() == 0 {
            // The program has written to it.
            self.calling.in_thread = false;
        }
        let is_jump = matches!(site.leave, Leave::Jump | Leave::IndirectJump);
        if is_jump && self.calling.in_thread && self.words.is_near(at.stack) {
            return self.lead_jump(displacement, site, at);
        }
        self.calling.take_stack(self.words);
        match site.leave {
            Leave::Call | Leave::IndirectCall => self.calling.give_stack(self.words, at.stack),
            Leave::Jump | Leave::IndirectJump => {
                self.calling.settle(at.stack, self.words);
                self.calling.give_stack(self.words, at.stack);
                self.lead_jump(displacement, site, at);
            }
            Leave::Return | Leave::Resume => {
                self.prepare_return(site, at);
                self.calling.give_stack(self.words, at.stack);
            }
        }
    }

    /// Leads a jump to where it leads to from the thread's present record.
    fn lead_jump(&mut self, displacement: u32, site: Site, at: Stand) {
        let from = self.calling.place_of(self.words.present());
        let targeted = !site.leave.is_direct();
        let target = if targeted { at.target } else { site.target };
        let led = self.calling.tree.jump(from.context, site.last, target, self.functions);
        let to = Place { context: led.to, ..from };
        let name = self.calling.name_of(self.words, to);
        let record =
            RawRecord { caller: self.words.present(), site: displacement, target: at.target };
        let index = self.words.lead(record, trace::spread(site.last), targeted, name);
        self.calling.know(index, Known { place: to, counts: led.enters });
    }

    fn prepare_return(&mut self, site: Site, at: Stand) {
        let Stand { stack, target } = at;
        let from = self.calling.stacks.current.present;
        let stacks = &mut self.calling.stacks;
        let resumes = site.leave == Leave::Resume;
        let found = match resumes {
            true => stacks.return_from_handler(stack),
            false => stacks.return_from(stack),
        };
        if found {
            return self.calling.led_from(from, self.words);
        }
        let mut caller = from;
        if !resumes {
            self.calling.settle(stack.wrapping_add(8), self.words);
            caller = self.jump(self.calling.stacks.current.present, site.last, target);
        }
        let current = &mut self.calling.stacks.current;
        current.push(Frame { stack, caller, handler: resumes });
        current.present.within = Some(caller.context);
    }

    /// Where a jump leads that the host makes.
    fn jump(&mut self, from: Place, site: u64, target: u64) -> Place {
        let tree = &mut self.calling.tree;
        let led = tree.jump(from.context, site, target, self.functions);
        tree.add_calls(led.to, u64::from(led.enters));
        Place { context: led.to, ..from }
    }

    /// Takes a transfer back that has not been made.
    fn take_back(&mut self, unmade: Unmade) {
        let Unmade { fragment, past, r11, stack } = unmade;
        let site = Site::of(self.family, fragment);
        let stores = transfer_stores(site.leave);
        let done = stores.iter().filter(|end| **end <= past).count();
        let words = self.words;
        let passed = words.passed();
        match site.leave {
            Leave::Call | Leave::IndirectCall => {
                let name = r11 << 32;
                if done > 0 {
                    words.add_instructions(name, passed);
                }
                if done > 1 {
                    words.add_calls(name, 1_u64.wrapping_neg());
                }
                if done > 3 {
                    words.set_present(words.innermost_caller());
                }
                if done > 2 {
                    words.pop_frame();
                }
            }
            Leave::Jump | Leave::IndirectJump => {
                if done > 0 {
                    words.add_instructions(words.before(), passed.wrapping_neg());
                }
                if done > 1 {
                    words.add_instructions(words.led_to(), passed);
                }
                if done > 2 {
                    words.add_calls(words.led_to(), 1_u64.wrapping_neg());
                }
                if done > 3 {
                    words.set_present(words.before());
                }
            }
            Leave::Return | Leave::Resume => {
                if done > 0 {
                    words.add_instructions(words.before(), passed.wrapping_neg());
                }
                if done > 1 {
                    words.push_frame();
                }
                if done > 2 {
                    words.set_present(words.before());
                }
            }
        }
        if site.falls {
            self.fall(site, stack);
        }
    }

    /// Control has fallen into another function.
    fn fall(&mut self, site: Site, stack: u64) {
        self.learn();
        self.calling.take_stack(self.words);
        self.calling.settle(stack, self.words);
        let from = self.calling.stacks.current.present;
        self.calling.stacks.current.present = self.jump(from, site.last, site.target);
        self.calling.led_from(from, self.words);
        self.calling.give_stack(self.words, stack);
    }

    /// The thread has made a branch without looking for a record.
    fn branched(&mut self, branched: Branched) {
        let Branched { kind, at, target, stack, .. } = branched;
        let calls = matches!(kind, Some(BranchKind::DirectCall | BranchKind::IndirectCall));
        let returns = kind == Some(BranchKind::Return);
        let mut leaves = || self.functions.at(at).start != self.functions.at(target).start;
        if !calls && !returns && !leaves() {
            return;
        }
        self.learn();
        self.calling.take_stack(self.words);
        let from = self.calling.stacks.current.present;
        if calls {
            self.calling.stacks.settle(stack.wrapping_add(8));
            let caller = self.calling.stacks.current.present;
            let tree = &mut self.calling.tree;
            let context = tree.call(caller.context, at, target, self.functions);
            tree.add_calls(context, 1);
            let current = &mut self.calling.stacks.current;
            current.push(Frame { stack, caller, handler: false });
            current.present = Place { context, within: Some(caller.context) };
        } else if !returns || !self.returned(stack.wrapping_sub(branched.released)) {
            self.calling.stacks.settle(stack);
            let present = self.calling.stacks.current.present;
            self.calling.stacks.current.present = self.jump(present, at, target);
        }
        self.calling.led_from(from, self.words);
        self.calling.give_stack(self.words, stack);
    }

    /// The thread has returned, with a return address just below `stack`. Returns false if no call
    /// is known that has put it there.
    fn returned(&mut self, stack: u64) -> bool {
        if !self.calling.stacks.return_from(stack.wrapping_sub(8)) {
            return false;
        }
        let current = &mut self.calling.stacks.current;
        if let Some(frame) = current.frames.pop() {
            current.present = frame.caller;
        }
        true
    }

    /// A signal's `handler` has interrupted the thread at `at`.
    fn interrupt(&mut self, at: u64, handler: Handler) {
        let Handler { entry, stack, ends } = handler;
        self.learn();
        self.calling.take_stack(self.words);
        let from = self.calling.stacks.current.present;
        let context = self.calling.tree.signal(from.context, at, entry, self.functions);
        self.calling.tree.add_calls(context, 1);
        // What the handler returns to makes the call that ends it. The thread finds both frames.
        let within = Some(from.context);
        let ends = self.jump(Place { context, within }, entry, ends);
        let current = &mut self.calling.stacks.current;
        current.interrupt(stack, ends);
        current.present = Place { context, within: Some(ends.context) };
        self.calling.led_from(from, self.words);
        self.calling.give_stack(self.words, stack);
    }
}

impl Counting<'_> {
    /// Does something with the contexts of a thread, which begin in the function of `at` if there
    /// are none yet.
    fn in_contexts<R>(
        &mut self,
        tid: Tid,
        at: Option<u64>,
        act: impl FnOnce(&mut Scene<'_>) -> R,
    ) -> Option<R> {
        let thread = self.tasks.threads.get_mut(&tid)?;
        let space = self.tasks.processes.get(&thread.pid)?.space;
        let space = self.caches.spaces.get(thread.side.unwrap_or(space))?.as_ref()?;
        let family = self.caches.families.get_mut(space.family)?.as_mut()?;
        let mut functions = family.functions.take()?;
        let mut sites = std::mem::take(&mut family.sites);
        let corrected = thread.account.correction.instructions();
        let words = self.contexts.context(thread.slot).records();
        let kept = &mut thread.account.profile.contexts;
        if let (None, Some(at)) = (&kept, at) {
            let entry = functions.at(at).start;
            *kept = Some(Box::new(Calling::new(entry, &mut functions)));
        }
        let result = kept.as_deref_mut().map(|calling| {
            words.pass(corrected.wrapping_sub(calling.corrected));
            calling.corrected = corrected;
            let (functions, sites) = (&mut functions, &mut sites);
            act(&mut Scene { calling, words, functions, sites, family })
        });
        family.sites = sites;
        family.functions = Some(functions);
        result
    }

    /// A thread stands before a transfer that it does not know, and waits.
    pub fn prepare_transfer(&mut self, tid: Tid, pc: u64, at: Stand) {
        self.in_contexts(tid, Some(pc), |scene| {
            let displacement = scene.words.site();
            scene.prepare(displacement, at);
        });
    }

    /// A transfer has not been made: the thread begins with it anew.
    pub fn take_transfer_back(&mut self, tid: Tid, unmade: Unmade) {
        self.in_contexts(tid, None, |scene| scene.take_back(unmade));
    }

    /// A thread has made a branch at the end of a cut fragment, which looks for no record.
    pub fn branched(&mut self, tid: Tid, branched: Branched) {
        self.in_contexts(tid, Some(branched.at), |scene| scene.branched(branched));
    }

    /// A thread was about to add the instructions of a fragment to its sum.
    pub fn add_run(&mut self, tid: Tid, fragment: FragmentId) {
        self.in_contexts(tid, None, |scene| {
            let deltas = scene.family.code_cache.fragment(fragment).deltas;
            scene.words.pass(deltas.instructions as u64);
        });
    }

    /// The instructions that the host has counted for a thread are its present context's.
    pub fn pass_corrections(&mut self, tid: Tid) {
        self.in_contexts(tid, None, |_| ());
    }

    /// A signal has interrupted a thread at `at`: its handler begins at `entry`, with its return
    /// address at `stack`.
    pub fn enter_handler(&mut self, tid: Tid, at: u64, entry: u64, stack: u64) {
        self.in_contexts(tid, Some(at), |scene| {
            let ends = read_u64(tid, stack).unwrap_or(0);
            scene.interrupt(at, Handler { entry, stack, ends });
        });
    }

    /// The contexts of a thread with their counts.
    pub fn counted_contexts(&mut self, tid: Tid) -> Option<Tree> {
        self.in_contexts(tid, None, |scene| {
            scene.learn();
            scene.calling.counted(scene.words)
        })
    }

    /// A child process begins in the context of its maker, whose call has made it.
    pub fn inherit_contexts(&mut self, maker: Tid, child: Tid) {
        let made = self.in_contexts(maker, None, |scene| {
            scene.learn();
            scene.calling.forked(scene.words)
        });
        self.begin_contexts(child, made);
    }

    /// A thread leaves its translations for others: takes its contexts out of its records.
    pub fn take_contexts(&mut self, tid: Tid) {
        self.in_contexts(tid, None, |scene| {
            scene.learn();
            scene.calling.take_stack(scene.words);
            scene.calling.harvest(scene.words);
        });
    }

    /// What a thread's counters have said so far is reported.
    pub fn begin_contexts_anew(&mut self, tid: Tid) {
        let copy = self.in_contexts(tid, None, |scene| scene.calling.forked(scene.words));
        self.begin_contexts(tid, copy);
    }

    /// A thread has these contexts, in which it has counted nothing.
    fn begin_contexts(&mut self, tid: Tid, calling: Option<Calling>) {
        let Some(thread) = self.tasks.threads.get_mut(&tid) else { return };
        let Some(mut calling) = calling else { return };
        let words = self.contexts.context(thread.slot).records();
        words.begin_anew();
        calling.corrected = thread.account.correction.instructions();
        calling.begin(words);
        thread.account.profile.contexts = Some(Box::new(calling));
    }
}

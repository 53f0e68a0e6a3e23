//! A runtime that optimises itself: a small compiler for a bytecode machine, which profiles its own
//! generated code through its own ring, compiles it again, and gets faster.
//!
//!     lwp run -- target/debug/examples/self_optimizing [INTERVAL [RECORDS [ROUNDS]]]
//!
//! The first version of the code has the blocks in the program's order, and every call of a method
//! looks for it. While it works, the processor writes a record of every INTERVAL-th branch (1000
//! unless given) and LWPVAL one of every INTERVAL-th method, into a ring of RECORDS (4096). Between
//! two pieces of work, where a runtime has its safepoints, the runtime empties the ring. Once it
//! knows enough, it compiles the second version: likely ways straight ahead, and the usual method
//! inline behind a check. No system call and no signal is involved. In the end both versions are
//! counted, and measured ROUNDS times in turns (15).
//!
//! Exit status: 0 if all went well, 1 if not, and 77 where there is no LWP to learn from.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example is short")]

mod compile;
mod knowledge;
mod memory;
mod program;
mod times;

use std::process::ExitCode;

use compile::{Compiled, Plan, compile};
use knowledge::Knowledge;
use lwp::{BranchFlags, Error, Event, EventKind, Lwp, Profile, Reader};
use memory::Code;
use program::{Block, METHODS, interpret, items, program};
use times::Times;

/// Items of the whole input, and those of them that are counted.
const ITEMS: usize = 1_000_000;
const COUNTED: usize = 500;
/// Items between two looks into the ring, as long as nothing is lost.
const PIECE: usize = 4096;
const SMALLEST_PIECE: usize = 64;
const NO_LWP: u8 = 77;

fn main() -> ExitCode {
    let numbers: Result<Vec<u32>, _> = std::env::args().skip(1).map(|it| it.parse()).collect();
    let [interval, records, rounds] = match numbers.as_deref() {
        Ok([]) => [1000, 4096, 15],
        Ok(&[interval]) => [interval, 4096, 15],
        Ok(&[interval, records]) => [interval, records, 15],
        Ok(&[interval, records, rounds]) => [interval, records, rounds],
        _ => {
            eprintln!("usage: self_optimizing [INTERVAL [RECORDS [ROUNDS]]]");
            return ExitCode::FAILURE;
        }
    };
    let lwp = match Lwp::detect() {
        Ok(lwp) => lwp,
        Err(error) => {
            eprintln!("self_optimizing: {error}");
            return ExitCode::from(NO_LWP);
        }
    };
    match run(&Sampling { lwp, interval, records }, rounds) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("self_optimizing: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How code is sampled.
struct Sampling {
    lwp: Lwp,
    interval: u32,
    records: u32,
}

impl Sampling {
    fn profile(&self) -> Result<(Profile, Reader), Error> {
        // Intervals vary, or every sample could be of the same branch of the loop.
        let random = self.interval.checked_ilog2().unwrap_or(0).min(4);
        let profile = self.lwp.profile().event(EventKind::BranchesRetired, self.interval);
        let profile = profile.event(EventKind::ValueSample, self.interval);
        profile.random_bits(random).ring_records(self.records).build()
    }
}

/// Code that can be called, with what the compiler knows of it.
struct Version {
    code: Code,
    compiled: Compiled,
}

impl Version {
    fn new(program: &[Block], plan: &Plan) -> Result<Self, Error> {
        let compiled = compile(program, plan);
        let code = Code::of(&compiled).map_err(Error::Memory)?;
        Ok(Self { code, compiled })
    }

    /// Nothing yet.
    fn knowledge(&self) -> Knowledge {
        Knowledge::new(self.code.addresses(), &self.compiled)
    }
}

/// Works, optimises, and prints what that changed. Returns whether results are right.
fn run(sampling: &Sampling, rounds: u32) -> Result<bool, Error> {
    let (program, items) = (program(), items(ITEMS));
    let plain = Plan { order: (0..program.len()).collect(), ..Plan::default() };
    let first = Version::new(&program, &plain)?;
    let sampled = Version::new(&program, &Plan { samples_values: true, ..plain })?;

    let mut work = Work { items: &items, done: 0, sum: 1, piece: PIECE };
    let knowledge = learn(sampling, &sampled, &mut work)?;
    let plan = knowledge.plan(&program);
    let second = Version::new(&program, &plan)?;
    while work.proceed(&second.code) {}

    tell(&knowledge, &plan);
    // What a record of every branch and method says.
    let every = count(sampling.lwp, &sampled, &items)?.knowledge.plan(&program);
    println!("decided as from a record of everything: {}", yes(every == plan));
    let is_right = work.sum == interpret(&program, &items, 1);
    println!("result as interpreted: {}", yes(is_right));
    let before = count(sampling.lwp, &first, &items)?;
    let after = count(sampling.lwp, &second, &items)?;
    println!("per 1,000 items      first version    second version");
    println!("instructions {:>21} {:>17}", before.instructions, after.instructions);
    println!("branches taken {:>19} {:>17}", before.taken, after.taken);
    Times::measure(sampling, [&first, &sampled, &second], &items, rounds)?.print();
    Ok(is_right)
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "NO" }
}

/// Work that is done in pieces.
struct Work<'items> {
    items: &'items [u64],
    done: usize,
    sum: u64,
    piece: usize,
}

impl Work<'_> {
    /// Does the next piece. Returns false if there is none.
    fn proceed(&mut self, code: &Code) -> bool {
        let end = self.items.len().min(self.done + self.piece);
        let items = &self.items[self.done..end];
        self.sum = code.run(items, self.sum);
        self.done = end;
        !items.is_empty()
    }
}

/// Works until enough is known.
fn learn(sampling: &Sampling, version: &Version, work: &mut Work<'_>) -> Result<Knowledge, Error> {
    let (mut profile, mut reader) = sampling.profile()?;
    let mut knowledge = version.knowledge();
    let (mut polls, mut lost) = (0, 0);
    let running = profile.start()?;
    while !knowledge.is_enough() && work.proceed(&version.code) {
        running.flush();
        reader.drain().for_each(|record| knowledge.add(&record));
        polls += 1;
        if reader.missed() > lost {
            // The ring was full too soon. What it has is true all the same; look more often.
            lost = reader.missed();
            work.piece = SMALLEST_PIECE.max(work.piece / 2);
        }
    }
    running.stop();
    println!(
        "learnt from {} branches and {} methods of {} items, in {polls} polls; {lost} lost, \
         {} of the runtime",
        knowledge.branches, knowledge.values, work.done, knowledge.elsewhere
    );
    Ok(knowledge)
}

/// Prints what was learnt, and what follows from it.
fn tell(knowledge: &Knowledge, plan: &Plan) {
    for (block, [no, yes]) in &knowledge.ways {
        println!("block {block}: {yes} yes, {no} no");
    }
    for (block, samples) in &knowledge.methods {
        let of_method = METHODS.iter().zip(samples);
        let words: Vec<_> = of_method.map(|((name, _), times)| format!("{times} {name}")).collect();
        println!("block {block}: {}", words.join(", "));
    }
    println!("order of blocks: {:?}", plan.order);
    for (block, method) in &plan.usual {
        println!("inline in block {block}: {}", METHODS[usize::from(*method)].0);
    }
}

/// What code does, exactly.
struct Counts {
    /// Per 1,000 items.
    instructions: usize,
    taken: usize,
    knowledge: Knowledge,
}

/// Counts code on some items, with a record of everything.
fn count(lwp: Lwp, version: &Version, items: &[u64]) -> Result<Counts, Error> {
    let profile = lwp.profile().event(EventKind::InstructionsRetired, 1);
    let profile = profile.event(EventKind::BranchesRetired, 1).event(EventKind::ValueSample, 1);
    let (mut profile, mut reader) = profile.ring_records(64 * COUNTED as u32).build()?;
    let running = profile.start()?;
    version.code.run(&items[..COUNTED], 1);
    running.stop();
    assert_eq!(reader.missed(), 0, "the ring has room for all");
    let (mut instructions, mut taken) = (0, 0);
    let (mut knowledge, addresses) = (version.knowledge(), version.code.addresses());
    for record in reader.drain().filter(|record| addresses.contains(&record.ip().0)) {
        knowledge.add(&record);
        match record.event() {
            Some(Event::InstructionsRetired) => instructions += 1,
            Some(Event::BranchesRetired { flags, .. }) if flags.contains(BranchFlags::TKN) => {
                taken += 1;
            }
            _ => {}
        }
    }
    let per_thousand = |sum: usize| sum * 1000 / COUNTED;
    let (instructions, taken) = (per_thousand(instructions), per_thousand(taken));
    Ok(Counts { instructions, taken, knowledge })
}

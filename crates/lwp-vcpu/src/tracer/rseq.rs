//! Restartable sequences of processes that lwp attaches to.
//!
//! The kernel restarts a critical section only while the thread's instruction pointer is inside,
//! which is never so in translated code. So lwp refuses rseq(2) to programs that it starts. A
//! running process has already registered its threads. lwp doesn't attach to it if it has critical
//! sections; otherwise, its threads stay registered, and so do those that it creates.

use lwp_process::maps::{self, Mapping};
use lwp_process::{Tid, Tracee, memory};
use object::{Object, ReadCache};
use rustc_hash::FxHashSet;

use crate::machine::{Machine, Tasks};

/// Offset of the address of the current critical section in an area.
const SECTION_AT: u64 = 8;
/// The section of a file in which it describes its critical sections.
const DESCRIPTORS: &str = "__rseq_cs";

/// Returns whether some of the stopped threads have registered an area.
///
/// # Errors
///
/// The reason for which the process cannot be translated: it has critical sections.
pub fn are_registered(machine: &Machine, pid: i32, threads: &[Tracee]) -> Result<bool, String> {
    // Kernels before 5.13 do not tell.
    let areas: Vec<(Tid, Option<u64>)> = threads
        .iter()
        .filter_map(|&Tracee(tid)| match machine.tracees.rseq_area(tid) {
            Ok(area) => area.map(|area| (tid, Some(area))),
            Err(_) => Some((tid, None)),
        })
        .collect();
    if areas.is_empty() {
        return Ok(false);
    }
    let describes = maps::read(pid).into_iter().find(has_sections(pid));
    let uses = || areas.iter().find(|(tid, area)| area.is_some_and(|it| is_used(*tid, it)));
    let user = match describes {
        Some(file) => format!("{} has", file.name),
        None => match uses() {
            Some((tid, _)) => format!("thread {tid} uses"),
            None => return Ok(true),
        },
    };
    Err(format!(
        "{user} restartable sequences (rseq), which a process keeps only if it runs natively; have \
         lwp start the program, which is then told that there are none"
    ))
}

/// Returns whether the threads of a thread's process are registered.
pub fn has_rseq(tasks: &Tasks, tid: Tid) -> bool {
    let thread = tasks.threads.get(&tid);
    thread.and_then(|it| tasks.processes.get(&it.pid)).is_some_and(|process| process.rseq)
}

/// Returns whether a thread has entered a critical section since it was last preempted.
fn is_used(tid: Tid, area: u64) -> bool {
    let section = memory::read_u64(tid, area.wrapping_add(SECTION_AT));
    section.is_ok_and(|section| section != 0)
}

/// Finds the mappings of files that have critical sections, each file once.
fn has_sections(pid: i32) -> impl FnMut(&Mapping) -> bool {
    let mut seen = FxHashSet::default();
    move |mapping| {
        let is_code = mapping.execute && mapping.inode != 0;
        is_code && seen.insert((mapping.device, mapping.inode)) && describes_sections(pid, mapping)
    }
}

/// Returns whether a mapped file describes critical sections, as far as it can be read.
fn describes_sections(pid: i32, mapping: &Mapping) -> bool {
    let Some(file) = mapping.open(pid) else { return false };
    let cache = ReadCache::new(file);
    object::File::parse(&cache).is_ok_and(|file| file.section_by_name(DESCRIPTORS).is_some())
}

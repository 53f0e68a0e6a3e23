//! The arenas of a family, and the chunks of them that belong to no module.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use lwp_process::SharedMemory;
use rustc_hash::FxHashMap;

use super::modules::Module;
use super::{LEAST_CHUNK, PRIVATE_CHUNK, REGION_ROOM, chunk_for};
use crate::arena::{Arena, ArenaSink, Chunk, STUB_BYTES};

/// The arenas of a family, and the memory that they lie in.
#[derive(Debug)]
pub struct Arenas {
    /// The memory that the family's address spaces can read and execute, and only the host writes:
    /// template, prepared tables, arenas.
    pub memory: Arc<SharedMemory>,
    all: Vec<Arena>,
    /// The chunks in which cut fragments lie, by arena.
    cut_chunks: FxHashMap<usize, Chunk>,
    /// The chunks with the stubs of fragments that have been cut off, by arena.
    stub_chunks: FxHashMap<usize, Chunk>,
}

impl Deref for Arenas {
    type Target = [Arena];

    fn deref(&self) -> &[Arena] {
        &self.all
    }
}

impl DerefMut for Arenas {
    fn deref_mut(&mut self) -> &mut [Arena] {
        &mut self.all
    }
}

impl Arenas {
    /// None yet.
    pub(super) fn new(memory: Arc<SharedMemory>) -> Self {
        let (cut_chunks, stub_chunks) = (FxHashMap::default(), FxHashMap::default());
        Self { memory, all: Vec::new(), cut_chunks, stub_chunks }
    }

    /// Adds an arena, which begins with a copy of `routines`.
    pub fn add(&mut self, address: u64, bytes: u64, offset: u64, routines: &[u8]) {
        self.all.push(Arena::new(&self.memory, address, offset, bytes, routines));
    }

    /// The arena for code of a module, if there is one: its own, or one near it.
    pub fn of(&self, module: &Module) -> Option<usize> {
        let (low, high) = module.extent;
        let near = || self.iter().position(|arena| arena.reaches(low, high));
        module.arena.or_else(near)
    }

    /// Returns whether `pc` lies in one of them.
    pub fn contain(&self, pc: u64) -> bool {
        self.iter().any(|arena| arena.contains(pc))
    }

    /// Returns whether one of them has no room for code any more.
    pub fn lack_room(&self) -> bool {
        self.iter().any(|arena| arena.left() < LEAST_CHUNK)
    }

    /// A chunk of an arena as a sink for the translator.
    pub fn sink<'a>(&'a self, arena: usize, chunk: &'a mut Chunk) -> ArenaSink<'a> {
        self.all[arena].sink(chunk, &self.memory)
    }

    /// Makes sure that there is room for a region of a module in one of its chunks. Returns false
    /// if there is none to be had.
    pub fn find_chunk(&mut self, arena: usize, module: &mut Module) -> bool {
        if module.chunk.is_some_and(|(chunk, _)| chunk.room() >= REGION_ROOM) {
            return true;
        }
        let wanted = match module.chunk {
            _ if module.changes() => PRIVATE_CHUNK,
            None => chunk_for(module.code_bytes),
            Some((chunk, _)) => chunk.bytes,
        };
        let only = module.chunk.is_none();
        let Some(chunk) = self[arena].chunk(wanted, LEAST_CHUNK) else { return false };
        module.arena = Some(arena);
        module.chunk = Some((chunk, only));
        true
    }

    /// The chunk that an arena has for cut fragments, with room for one, as a sink; `None` if there
    /// is no room.
    pub fn for_cut(&mut self, arena: usize) -> Option<ArenaSink<'_>> {
        if self.cut_chunks.get(&arena).is_none_or(|chunk| chunk.room() < REGION_ROOM) {
            let chunk = self.all[arena].chunk(LEAST_CHUNK, LEAST_CHUNK)?;
            self.cut_chunks.insert(arena, chunk);
        }
        let chunk = self.cut_chunks.get_mut(&arena)?;
        Some(self.all[arena].sink(chunk, &self.memory))
    }

    /// The chunk that an arena has for stubs of fragments that are cut off, with room for those of
    /// one, as a sink.
    pub fn for_stubs(&mut self, arena: usize) -> Option<ArenaSink<'_>> {
        if self.stub_chunks.get(&arena).is_none_or(|chunk| chunk.room() < STUB_BYTES) {
            let chunk = self.all[arena].stubs_chunk().expect("room was set aside for each stub");
            self.stub_chunks.insert(arena, chunk);
        }
        let chunk = self.stub_chunks.get_mut(&arena)?;
        Some(self.all[arena].sink(chunk, &self.memory))
    }
}

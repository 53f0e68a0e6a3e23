//! Conversion of the virtual CPU's reports to the form that recordings have.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lwp_profile::{
    Block, BlockCount, BlockEnd, Image, Mapping, RecordedFile, RecordedJump, RecordedMisses,
    RecordedModule, ThreadExecutions, path_text,
};
use lwp_vcpu::ProcessReport;
use lwp_vcpu::profile as vcpu;

/// A block.
pub fn block(block: &vcpu::Block) -> Block {
    Block {
        id: block.id,
        module: block.module,
        address: block.pc,
        lengths: block.lengths.clone(),
        counted: block.counted,
        end: block_end(block.end),
        target: block.target,
        bytes: block.bytes.clone(),
    }
}

/// A module, with what tells its file from another.
pub fn module(module: &vcpu::Module) -> RecordedModule {
    let mut recorded = RecordedModule {
        id: module.id,
        path: path_text(&module.path),
        pid: module.pid,
        mappings: module
            .mappings
            .iter()
            .map(|m| Mapping { start: m.start, end: m.end, offset: m.offset })
            .collect(),
        ..RecordedModule::default()
    };
    if recorded.is_anonymous() || module.is_served() {
        return recorded;
    }
    // The process may have another root directory, and may be gone already.
    let inside = vcpu::path_in_process(module.pid, &module.path);
    let path = if inside.exists() { inside } else { module.path.clone() };
    recorded.build_id = lwp_symbols::build_id_of(&path);
    recorded.version = std::fs::metadata(&path).ok().map(|file| {
        let mtime = file.mtime().wrapping_mul(1_000_000_000).wrapping_add(file.mtime_nsec());
        (file.len(), mtime)
    });
    recorded
}

/// The file of a module, where its path leads to another one outside the process, or to none: in
/// another root directory, or on a file system that only the process has mounted. It will not be
/// found again.
pub fn hidden_file(module: &vcpu::Module) -> Option<RecordedFile> {
    if module.is_served() {
        return None;
    }
    let inside = vcpu::path_in_process(module.pid, &module.path);
    let identity = |path: &Path| {
        let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((file.dev(), file.ino()))
    };
    let known = identity(&inside)?;
    if identity(&module.path) == Some(known) {
        return None;
    }
    let path = path_text(&module.path);
    Some(RecordedFile { path, bytes: std::fs::read(inside).ok()? })
}

/// A process image.
pub fn image(id: usize, process: &ProcessReport) -> Image {
    Image {
        id: u32::try_from(id).unwrap_or(u32::MAX),
        pid: process.pid,
        parent: process.parent,
        comm: process.comm.clone(),
        uncounted: process.uncounted.clone(),
    }
}

/// Converts the executions of a thread.
pub fn thread(thread: &vcpu::ThreadExecutions) -> ThreadExecutions {
    let count = |count: &vcpu::BlockCount| BlockCount {
        block: count.block,
        runs: count.runs,
        not_taken: count.not_taken,
    };
    ThreadExecutions {
        serial: thread.serial,
        image: thread.image,
        pid: thread.pid,
        tid: thread.tid,
        comm: thread.comm.clone(),
        blocks: thread.blocks.iter().map(count).collect(),
        partial: thread.partial.clone(),
        steps: thread.steps.clone(),
        jumps: thread.jumps.iter().map(jump).collect(),
        misses: thread.misses.iter().map(misses).collect(),
    }
}

/// Converts an instruction's misses of the modelled caches.
pub fn misses((module, address, misses): &(Option<u32>, u64, vcpu::Misses)) -> RecordedMisses {
    let vcpu::Misses { loads, stores, memory_loads, memory_stores } = *misses;
    RecordedMisses { at: (*module, *address), loads, stores, memory_loads, memory_stores }
}

fn jump(jump: &vcpu::Jump) -> RecordedJump {
    RecordedJump {
        from: (jump.from.module, jump.from.address),
        to: (jump.to.module, jump.to.address),
        end: block_end(jump.end),
        alone: jump.alone,
        taken: jump.taken,
        times: jump.times,
    }
}

fn block_end(end: vcpu::BlockEnd) -> BlockEnd {
    match end {
        vcpu::BlockEnd::Other => BlockEnd::Other,
        vcpu::BlockEnd::Jump => BlockEnd::Jump,
        vcpu::BlockEnd::Conditional => BlockEnd::Conditional,
        vcpu::BlockEnd::Call => BlockEnd::Call,
        vcpu::BlockEnd::IndirectJump => BlockEnd::IndirectJump,
        vcpu::BlockEnd::IndirectCall => BlockEnd::IndirectCall,
        vcpu::BlockEnd::Return => BlockEnd::Return,
    }
}

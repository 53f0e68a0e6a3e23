//! Conversion of the virtual CPU's reports to the form that recordings have.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lwp_profile::{
    Block, BlockCount, BlockEnd, ContextEdge, ContextKind, Image, Mapping, RecordedContexts,
    RecordedFile, RecordedJump, RecordedMisses, RecordedModule, ThreadExecutions, path_text,
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
    let Some(file) = module.file.as_ref().filter(|_| !recorded.is_anonymous()) else {
        return recorded;
    };
    recorded.build_id = lwp_symbols::build_id_in(file);
    recorded.version = file.metadata().ok().map(|file| {
        let mtime = file.mtime().wrapping_mul(1_000_000_000).wrapping_add(file.mtime_nsec());
        (file.len(), mtime)
    });
    recorded
}

/// The file of a module, where its path leads to another one outside the process, or to none: in
/// another root directory, or on a file system that only the process has mounted. It will not be
/// found again. One that the process has removed or replaced is left out: it is held open until its
/// names are found.
pub fn hidden_file(module: &vcpu::Module) -> Option<RecordedFile> {
    let file = module.file.as_ref()?;
    let metadata = file.metadata().ok()?;
    let known = (metadata.dev(), metadata.ino());
    let leads_there =
        |path: &Path| std::fs::metadata(path).is_ok_and(|it| (it.dev(), it.ino()) == known);
    let inside = vcpu::path_in_process(module.pid, &module.path);
    if leads_there(&module.path) || !leads_there(&inside) {
        return None;
    }
    let bytes = lwp_symbols::read_whole(file, &metadata).ok()?.to_vec();
    Some(RecordedFile { path: path_text(&module.path), bytes })
}

/// Most characters of a process's arguments that are kept.
const LONGEST_COMMAND: usize = 1024;

/// A process image.
pub fn image(id: usize, process: &ProcessReport) -> Image {
    Image {
        id: u32::try_from(id).unwrap_or(u32::MAX),
        pid: process.pid,
        parent: process.parent,
        comm: process.comm.clone(),
        uncounted: process.uncounted.clone(),
        command: process.command.chars().take(LONGEST_COMMAND).collect(),
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
        contexts: RecordedContexts::gather(thread.contexts.iter().map(context)),
    }
}

/// Converts a calling context: its caller, the way into it, calls and instructions.
fn context(context: &vcpu::Context) -> (Option<u32>, ContextEdge, u64, u64) {
    let place = |place: vcpu::Place| (place.module, place.address);
    let kind = match context.kind {
        vcpu::ContextKind::Root => ContextKind::Root,
        vcpu::ContextKind::Call => ContextKind::Call,
        vcpu::ContextKind::Jump => ContextKind::Jump,
        vcpu::ContextKind::Signal => ContextKind::Signal,
        vcpu::ContextKind::Merged => ContextKind::Merged,
    };
    let edge = ContextEdge { kind, site: context.site.map(place), entry: place(context.entry) };
    (context.caller, edge, context.calls, context.instructions)
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

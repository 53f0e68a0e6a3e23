//! Measured calling contexts, by function.
//!
//! The virtual CPU tells contexts apart by the addresses of calls and of what they led to. Here
//! each gets its function. A jump within a function enters no other context. What the stub of a
//! linkage table jumps to was called by the stub's caller, and so is what the dynamic linker's
//! resolver jumps to; what these executed themselves stays theirs. The handler of a signal is at the
//! root of its thread, because the function that it interrupted did not call it.
//!
//! Promise: R127

use lwp_profile::{
    BlockEnd, Context, ContextEdge, ContextKind, Frame, Function, FunctionId, Location, LocationId,
    Module, Origin, RecordedContexts, Recording, ThreadExecutions, ThreadId,
};
use rustc_hash::FxHashMap;

use crate::resolve::Resolver;

/// The name of the function that stands for contexts that there was no room for.
const MERGED: &str = "[merged contexts]";

/// Starts of the functions' names by which the dynamic linker finds an imported function, to which
/// it then jumps.
const RESOLVERS: [&str; 2] = ["_dl_runtime_resolve", "_dl_runtime_profile"];

/// Enters the contexts of all threads, if all were measured.
pub fn add(resolver: &mut Resolver<'_>) {
    let recording = resolver.recording;
    let counted = |thread: &&ThreadExecutions| {
        !thread.blocks.is_empty() || !thread.steps.is_empty() || !thread.partial.is_empty()
    };
    let threads = recording.threads.values();
    let without = threads.clone().filter(counted).filter(|it| it.contexts.is_empty()).count();
    if threads.clone().all(|thread| thread.contexts.is_empty()) {
        return;
    }
    if without > 0 {
        resolver.remarks.push(format!(
            "calling contexts of {without} threads were not measured: inclusive counts are estimated"
        ));
        return;
    }
    let sites = Sites::of(recording);
    for (serial, executions) in &recording.threads {
        if let Some(thread) = resolver.thread(*serial) {
            Entering { resolver, sites: &sites, thread }.contexts(&executions.contexts);
        }
    }
}

/// The branches of a recording: where each ends, and where it starts.
struct Sites {
    /// By module and last byte.
    starts: FxHashMap<(u32, u64), u64>,
    /// Branches that were executed alone, whose length is not known, in order.
    alone: Vec<(u32, u64)>,
}

/// No instruction is longer.
const LONGEST: u64 = 15;

impl Sites {
    fn of(recording: &Recording) -> Self {
        let mut starts = FxHashMap::default();
        for block in recording.blocks.values().filter(|block| block.end != BlockEnd::Other) {
            let Some((last, before)) = block.lengths.split_last() else { continue };
            let before: u64 = before.iter().map(|len| u64::from(*len)).sum();
            let start = block.address.wrapping_add(before);
            let last = start.wrapping_add(u64::from(*last)).wrapping_sub(1);
            starts.insert((block.module, last), start);
        }
        let jumps = recording.threads.values().flat_map(|thread| &thread.jumps);
        let alone = jumps.filter(|jump| jump.alone);
        let mut alone: Vec<(u32, u64)> =
            alone.filter_map(|jump| Some((jump.from.0?, jump.from.1))).collect();
        alone.sort_unstable();
        Self { starts, alone }
    }

    /// The start of the branch with this last byte.
    fn start(&self, module: u32, last: u64) -> Option<u64> {
        let alone = || {
            let behind = self.alone.partition_point(|place| *place <= (module, last));
            let (of, start) = *self.alone.get(behind.checked_sub(1)?)?;
            (of == module && last - start < LONGEST).then_some(start)
        };
        self.starts.get(&(module, last)).copied().or_else(alone)
    }
}

/// An edge by function.
#[derive(Clone, Copy)]
struct Edge {
    kind: ContextKind,
    /// The calling instruction, if there is one.
    site: Option<LocationId>,
    function: FunctionId,
    /// The first instruction of what was called.
    entry: LocationId,
    /// What it jumps to was called by its caller.
    transparent: bool,
}

/// A context that has been entered.
#[derive(Clone, Copy)]
struct Entered {
    number: u32,
    function: FunctionId,
    /// A place in the function, where that of a call from it is not known.
    entry: LocationId,
    /// What it jumps to was called in this way: by whom, and where.
    jumps: Option<(Option<u32>, Option<LocationId>, ContextKind)>,
}

/// The contexts of a thread, being entered.
struct Entering<'s, 'r, 'a> {
    resolver: &'r mut Resolver<'a>,
    sites: &'s Sites,
    thread: ThreadId,
}

impl Entering<'_, '_, '_> {
    fn contexts(mut self, contexts: &RecordedContexts) {
        let edges: Vec<Edge> = contexts.edges().iter().map(|edge| self.edge(edge)).collect();
        let mut entered: Vec<Entered> = Vec::with_capacity(contexts.contexts().len());
        for context in contexts.contexts() {
            let edge = edges[context.edge()];
            let caller = context.caller().map(|caller| entered[caller as usize]);
            entered.push(self.enter(&edge, caller, [context.calls(), context.instructions()]));
        }
    }

    fn edge(&mut self, edge: &ContextEdge) -> Edge {
        if edge.kind == ContextKind::Merged {
            let (function, entry) = self.merged();
            return Edge { kind: edge.kind, site: None, function, entry, transparent: false };
        }
        let module = edge.entry.0.unwrap_or(u32::MAX);
        let address = self.resolver.file_address(module, edge.entry.1);
        let (function, _) = self.resolver.function_at(module, address);
        let entry = self.resolver.location(module, address, &[]);
        let called = self.resolver.builder.function_at(function);
        let resolves = RESOLVERS.iter().any(|name| called.name.starts_with(name));
        let transparent = called.origin == Origin::Stub || resolves;
        Edge { kind: edge.kind, site: self.site(edge), function, entry, transparent }
    }

    fn site(&mut self, edge: &ContextEdge) -> Option<LocationId> {
        let (module, last) = edge.site.filter(|_| edge.kind != ContextKind::Signal)?;
        let module = module?;
        let start = self.sites.start(module, last)?;
        let address = self.resolver.file_address(module, start);
        Some(self.resolver.location(module, address, &[]))
    }

    /// The function that stands for merged contexts, and its only location.
    fn merged(&mut self) -> (FunctionId, LocationId) {
        let builder = &mut self.resolver.builder;
        let module = builder.module(Module { path: "[merged]".into(), ..Module::default() });
        let (name, origin) = (MERGED.to_owned(), Origin::Generated);
        let function = builder.function(Function { module, name, origin, ..Function::default() });
        let frames = [Frame { function, ..Frame::default() }].into();
        (function, builder.location(Location { module, frames, ..Location::default() }))
    }

    fn enter(
        &mut self,
        edge: &Edge,
        caller: Option<Entered>,
        [calls, instructions]: [u64; 2],
    ) -> Entered {
        let jumped = edge.kind == ContextKind::Jump;
        if let Some(same) = caller.filter(|it| jumped && it.function == edge.function) {
            self.resolver.builder.add_to_context(same.number, 0, instructions);
            return same;
        }
        let called = caller.filter(|_| edge.kind != ContextKind::Signal);
        let called_from =
            called.map(|it| (Some(it.number), Some(edge.site.unwrap_or(it.entry)), edge.kind));
        let (caller, site, kind) = called
            .and_then(|it| it.jumps.filter(|_| jumped))
            .or(called_from)
            .unwrap_or((None, None, root(edge.kind)));
        let (thread, function) = (self.thread, edge.function);
        let context = Context { thread, caller, site, function, kind, calls, instructions };
        let number = self.resolver.builder.context(context);
        // A stub that nobody is known to have called stays the caller of what it leads to.
        let jumps = Some((caller, site, kind)).filter(|_| edge.transparent && caller.is_some());
        Entered { number, function, entry: edge.entry, jumps }
    }
}

/// The kind of a context without a caller.
fn root(kind: ContextKind) -> ContextKind {
    match kind {
        ContextKind::Signal | ContextKind::Merged => kind,
        _ => ContextKind::Root,
    }
}

#[cfg(test)]
mod tests {
    use lwp_profile::{
        Block, BlockCount, Mapping, Measured, NamedCode, Profile, RecordedJump, RecordedModule,
        RecordedNames,
    };

    use super::*;
    use crate::resolve::{self, Options, Resolved};

    /// Functions of 256 bytes each, from 0x1000 on, by name; stubs have an `@`.
    const FUNCTIONS: [&str; 8] = [
        "main",
        "work",
        "puts@plt",
        "_dl_runtime_resolve_xsave",
        "_dl_fixup",
        "puts",
        "handler",
        "out",
    ];

    fn entry(name: &str) -> u64 {
        let at = FUNCTIONS.iter().position(|function| *function == name).expect("a function");
        0x1000 + 0x100 * at as u64
    }

    /// A context: caller, kind, name, calls, instructions. Each function calls from its 16th byte,
    /// by five bytes.
    type Made = (Option<u32>, ContextKind, &'static str, u64, u64);

    fn recording(made: &[Made]) -> Recording {
        let edge = |&(caller, kind, name, calls, instructions): &Made| {
            let from = caller.map(|caller| entry(made[caller as usize].2) + 0x14);
            let edge = ContextEdge {
                kind,
                site: from.map(|from| (Some(0), from)),
                entry: (Some(0), entry(name)),
            };
            (caller, edge, calls, instructions)
        };
        let contexts = RecordedContexts::gather(made.iter().map(edge).collect::<Vec<_>>());
        let mapping = Mapping { start: 0x1000, end: 0x9000, offset: 0x1000 };
        let mut recording = Recording::default();
        recording.modules.insert(
            0,
            RecordedModule { path: "/p".into(), mappings: vec![mapping], ..Default::default() },
        );
        let mut thread = ThreadExecutions { contexts, ..ThreadExecutions::default() };
        for (id, name) in (0..).zip(FUNCTIONS) {
            let call = entry(name) + 0x10;
            let block = |id, address, lengths: &[u8], end| Block {
                id,
                address,
                lengths: lengths.to_vec(),
                counted: 1,
                end,
                ..Block::default()
            };
            recording.blocks.insert(id, block(id, entry(name), &[1], BlockEnd::Other));
            recording.blocks.insert(100 + id, block(100 + id, call, &[5], BlockEnd::Call));
            let own = made.iter().filter(|one| one.2 == name).map(|one| one.4).sum();
            thread.blocks.push(BlockCount { block: id, runs: own, not_taken: 0 });
        }
        recording.threads.insert(0, thread);
        let code = |name: &str| NamedCode {
            address: entry(name),
            size: 0x100,
            name: name.trim_end_matches("@plt").into(),
            stub: name.contains('@'),
            ..NamedCode::default()
        };
        let functions = FUNCTIONS.map(code).to_vec();
        recording.names.push(RecordedNames { functions, ..RecordedNames::default() });
        recording
    }

    fn profile(recording: &Recording) -> Resolved {
        resolve::profile(recording, &Options::default())
    }

    fn name(profile: &Profile, function: FunctionId) -> String {
        let function = profile.function(function);
        let stub = if function.origin == Origin::Stub { "@plt" } else { "" };
        format!("{}{stub}", function.name)
    }

    /// Each context by its path, with its kind, calls and instructions.
    fn paths(profile: &Profile) -> Vec<(String, ContextKind, u64, u64)> {
        let path = |context: &Context| {
            let next = |at: &Context| Some(profile.contexts[at.caller? as usize]);
            let around: Vec<Context> = std::iter::successors(Some(*context), next).collect();
            let names: Vec<String> =
                around.iter().rev().map(|at| name(profile, at.function)).collect();
            (names.join(" "), context.kind, context.calls, context.instructions)
        };
        profile.contexts.iter().map(path).collect()
    }

    #[test]
    fn the_caller_of_an_imported_function_is_who_called_its_stub() {
        use ContextKind::{Call, Jump, Root};
        // The first call finds puts, the others jump to it at once.
        let resolved = profile(&recording(&[
            (None, Root, "main", 1, 100),
            (Some(0), Call, "puts@plt", 10, 30),
            (Some(1), Jump, "_dl_runtime_resolve_xsave", 1, 40),
            (Some(2), Call, "_dl_fixup", 1, 500),
            (Some(2), Jump, "puts", 1, 7),
            (Some(1), Jump, "puts", 9, 63),
        ]));
        let profile = resolved.profile;
        let expected = [
            ("main", Root, 1, 100),
            ("main puts@plt", Call, 10, 30),
            ("main _dl_runtime_resolve_xsave", Call, 1, 40),
            ("main _dl_runtime_resolve_xsave _dl_fixup", Call, 1, 500),
            ("main puts", Call, 10, 70),
        ];
        let mut found = paths(&profile);
        found.sort_unstable();
        let mut expected =
            expected.map(|(path, kind, calls, own)| (path.to_owned(), kind, calls, own));
        expected.sort_unstable();
        assert_eq!(found, expected);
        // Every call stands at the start of the calling instruction.
        for site in profile.contexts.iter().filter_map(|context| context.site) {
            assert_eq!(profile.location(site).address % 0x100, 0x10);
        }
        let inclusive = Measured::of(&profile, 0).unwrap().inclusive();
        let main = profile.contexts[0].function;
        assert_eq!(inclusive[main.index()], profile.total().get(0));
    }

    #[test]
    fn jumps_inside_a_function_stay_in_its_context_and_handlers_are_roots() {
        use ContextKind::{Call, Jump, Merged, Root, Signal};
        let resolved = profile(&recording(&[
            (None, Root, "main", 1, 5),
            (Some(0), Call, "work", 3, 50),
            (Some(1), Jump, "work", 2, 20),
            (Some(2), Jump, "out", 2, 8),
            (Some(1), Signal, "handler", 1, 9),
            (Some(4), Call, "work", 1, 4),
            (None, Merged, "main", 77, 0),
        ]));
        let mut found = paths(&resolved.profile);
        found.sort_unstable();
        let expected = [
            ("[merged contexts]", Merged, 77, 0),
            ("handler", Signal, 1, 9),
            ("handler work", Call, 1, 4),
            ("main", Root, 1, 5),
            ("main work", Call, 3, 70),
            ("main work out", Jump, 2, 8),
        ];
        assert_eq!(
            found,
            expected.map(|(path, kind, calls, own)| (path.to_owned(), kind, calls, own))
        );
    }

    #[test]
    fn places_of_calls_that_are_not_known_are_in_the_caller() {
        let mut recording = recording(&[
            (None, ContextKind::Root, "main", 1, 5),
            (Some(0), ContextKind::Call, "work", 3, 50),
        ]);
        recording.blocks.retain(|id, _| *id < 100);
        let site = |recording: &Recording| {
            let profile = profile(recording).profile;
            let context = profile.contexts.iter().find(|context| context.caller.is_some());
            profile.location(context.unwrap().site.unwrap()).address
        };
        assert_eq!(site(&recording), entry("main"));
        // Calls that were executed alone have no block.
        let alone = RecordedJump {
            from: (Some(0), entry("main") + 0x10),
            end: BlockEnd::Call,
            alone: true,
            taken: true,
            times: 3,
            to: (Some(0), entry("work")),
        };
        recording.threads.get_mut(&0).unwrap().jumps.push(alone);
        assert_eq!(site(&recording), entry("main") + 0x10);
    }

    #[test]
    fn contexts_of_some_threads_are_no_contexts() {
        let mut recording = recording(&[(None, ContextKind::Root, "main", 1, 5)]);
        assert!(profile(&recording).profile.has_contexts());
        let mut other = recording.threads[&0].clone();
        (other.serial, other.contexts) = (1, RecordedContexts::default());
        recording.threads.insert(1, other);
        let resolved = profile(&recording);
        assert!(!resolved.profile.has_contexts());
        assert!(resolved.warnings.iter().any(|it| it.contains("of 1 threads were not measured")));
        // A thread that has executed nothing has none.
        let idle = ThreadExecutions { serial: 1, ..ThreadExecutions::default() };
        recording.threads.insert(1, idle);
        assert!(profile(&recording).profile.has_contexts());
    }
}

//! Whatever a recording claims behind correct checksums, every format is written without a panic.

use lwp_export::Format;
use lwp_profile::{
    Block, BlockCount, BlockEnd, ContextEdge, ContextKind, Mapping, RecordedContexts,
    RecordedModule, Recording, ThreadExecutions,
};
use lwp_symbols::Options;
use proptest::prelude::*;

/// Numbers at the edges as often as in between.
fn edgy() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0u64..0x3000, Just(u64::MAX), Just(i64::MAX as u64)]
}

fn block() -> impl Strategy<Value = Block> {
    let lengths = prop::collection::vec(any::<u8>(), 0..5);
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    (0u32..3, edgy(), lengths, any::<u16>(), 0u64..9, prop::option::of(edgy()), bytes).prop_map(
        |(module, address, lengths, counted, end, target, bytes)| Block {
            id: 0,
            module,
            address,
            lengths,
            counted,
            end: BlockEnd::from_raw(end),
            target,
            bytes,
        },
    )
}

fn thread() -> impl Strategy<Value = ThreadExecutions> {
    let count = (0u32..4, edgy(), edgy());
    let counts = prop::collection::vec(count, 0..6).prop_map(|counts| {
        let one = |(block, runs, not_taken)| BlockCount { block, runs, not_taken };
        counts.into_iter().map(one).collect::<Vec<_>>()
    });
    let partial = prop::collection::vec((0u32..4, any::<u16>(), edgy()), 0..3);
    let steps = prop::collection::vec((prop::option::of(0u32..3), edgy(), any::<i64>()), 0..3);
    (counts, partial, steps, contexts(), "\\PC{0,9}").prop_map(
        |(blocks, partial, steps, contexts, comm)| ThreadExecutions {
            comm,
            blocks,
            partial,
            steps,
            contexts,
            ..ThreadExecutions::default()
        },
    )
}

/// Contexts of every kind, with callers that may come before them.
fn contexts() -> impl Strategy<Value = RecordedContexts> {
    let place = || (prop::option::of(0u32..3), edgy());
    let edge = (0u64..6, prop::option::of(place()), place()).prop_map(|(kind, site, entry)| {
        ContextEdge { kind: ContextKind::from_raw(kind), site, entry }
    });
    let context = (prop::option::of(0u32..8), edge, edgy(), edgy());
    prop::collection::vec(context, 0..8).prop_map(RecordedContexts::gather)
}

fn recordings() -> impl Strategy<Value = Recording> {
    let blocks = prop::collection::vec(block(), 4);
    let threads = prop::collection::vec(thread(), 0..3);
    let mapping = (edgy(), edgy(), edgy());
    (blocks, threads, mapping).prop_map(|(blocks, threads, (start, end, offset))| {
        let module = |id, path: &str| RecordedModule {
            id,
            path: path.into(),
            mappings: vec![Mapping { start, end, offset }],
            ..RecordedModule::default()
        };
        Recording {
            modules: [(0, module(0, "")), (1, module(1, "/no such file"))].into(),
            blocks: (0..).zip(blocks).collect(),
            threads: (0..).zip(threads).collect(),
            ..Recording::default()
        }
    })
}

proptest! {
    #[test]
    fn every_format_is_written(recording in recordings()) {
        let profile = lwp_symbols::profile(&recording, &Options::default()).profile;
        for row in Format::ALL {
            prop_assert!(!row.0.write(&recording, &profile, 0).is_empty() || row.1 == "folded");
        }
    }
}

//! Whatever a recording claims behind correct checksums, every format is written without a panic.
//!
//! Promise: R138, R146

use std::process::Command;
use std::sync::{Arc, LazyLock};

use lwp_export::Format;
use lwp_export::feedback::{Binary, Feedback};
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

/// A small program with symbols and lines; empty where there is no compiler.
static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("lwp-any-recording-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("directory");
    let source = "#include <stdlib.h>\n\
        static inline long f(long n) { return n % 3 ? n * 7 : labs(n); }\n\
        int main(int n, char **words) {\n long sum = 0;\n\
        for (long i = 0; i < n; i++) switch (i % 7) {\n case 0: sum += f(i); break;\n\
        case 1: sum ^= 5; break; case 2: sum -= f(sum); break; case 3: sum *= 3; break;\n\
        case 4: sum = ~sum; break; default: sum++; }\n return sum & 1; }\n";
    std::fs::write(dir.join("a.c"), source).expect("source");
    let compile = ["-g", "-O2", "-Wl,--build-id", "-no-pie", "-o", "a", "a.c"];
    let compiled = Command::new("gcc").args(compile).current_dir(&dir).status();
    let made = compiled.is_ok_and(|status| status.success());
    let program = if made { std::fs::read(dir.join("a")).expect("program") } else { Vec::new() };
    std::fs::remove_dir_all(&dir).expect("directory");
    program
});

/// A recording that claims to be of this program, whose code lies from 4 KiB on.
fn of_program(mut recording: Recording, binary: &Binary) -> Recording {
    let module = recording.modules.get_mut(&1).expect("a module");
    module.path = "/program".into();
    module.build_id = binary.build_id().to_vec();
    module.mappings = vec![Mapping { start: 0, end: 0x10_0000, offset: 0 }];
    for block in recording.blocks.values_mut() {
        block.module = 1;
        // Every other one is at the edges of numbers.
        if block.address.is_multiple_of(2) {
            block.address = 0x1000 + block.address % 0x300;
        }
    }
    recording
}

/// Writes every profile for optimisers of a program that may be damaged.
fn write_feedback(recording: Recording, bytes: &[u8]) {
    let Ok(binary) = Binary::parse(Arc::from(bytes), None) else { return };
    let recording = of_program(recording, &binary);
    for row in Feedback::ALL {
        match row.0.write(&recording, "/program", &binary) {
            Ok(written) if row.0 == Feedback::BranchStacks => {
                assert!(written.content.starts_with(b"PERFILE2"));
            }
            Ok(written) => {
                let text = String::from_utf8(written.content).expect("text");
                assert!(text.lines().all(|line| !line.trim().is_empty()));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn there_is_a_program_to_be_damaged() {
    if PROGRAM.is_empty() {
        println!("skipped: no gcc");
        return;
    }
    let binary = Binary::parse(Arc::from(PROGRAM.as_slice()), None).expect("a program");
    assert!(binary.has_symbols() && binary.has_debug_info() && !binary.build_id().is_empty());
}

proptest! {
    // Each case reads the program's tables eight times.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_profile_for_optimisers_is_written_or_refused(
        recording in recordings(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..24),
    ) {
        let mut bytes = PROGRAM.clone();
        write_feedback(recording.clone(), &bytes);
        for (at, byte) in damage.iter().filter(|_| !PROGRAM.is_empty()) {
            // The headers, and everything behind.
            let at = at.index(bytes.len() * 2);
            let place = if at < bytes.len() { at } else { at % bytes.len() % 0x400 };
            bytes[place] = *byte;
        }
        write_feedback(recording, &bytes);
    }
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

//! Misses of modelled caches in recordings: written, read, joined.

use lwp_profile::{
    MergeError, RecordedMisses, RecordedModule, Recording, ThreadExecutions, Writer,
};

/// A recording of a thread with these misses, by the model `model`, if there is one.
fn recording(model: Option<&str>, misses: Vec<RecordedMisses>) -> Recording {
    let mut recording = Recording { complete: true, ..Recording::default() };
    let module = RecordedModule { path: "/bin/true".into(), ..RecordedModule::default() };
    recording.modules.insert(0, module);
    if let Some(model) = model {
        recording.info.insert("model".into(), model.into());
    }
    let thread = ThreadExecutions { comm: "true".into(), misses, ..ThreadExecutions::default() };
    recording.threads.insert(0, thread);
    recording
}

fn some() -> Vec<RecordedMisses> {
    let misses = |at, loads| RecordedMisses {
        at,
        loads,
        stores: 1 << 40,
        memory_loads: 3,
        memory_stores: u64::MAX,
    };
    vec![misses((Some(0), 0x1010), 7), misses((None, u64::MAX), 0)]
}

#[test]
fn misses_are_read_as_they_were_written() {
    let recording = recording(Some("4096/2/64@4,memory@200"), some());
    assert!(recording.is_modelled());
    let mut writer = Writer::new(Vec::new()).expect("memory");
    writer.thread(&recording.threads[&0]).expect("memory");
    let bytes = writer.into_inner();
    assert_eq!(Recording::parse(&bytes).expect("read").threads, recording.threads);
    // Every cut is noticed, and none is fatal.
    for len in lwp_profile::chunk::HEADER_BYTES..bytes.len() {
        assert!(!Recording::parse(&bytes[..len]).expect("read").warnings.is_empty());
    }
}

#[test]
fn recordings_of_one_model_are_joined_and_of_others_refused() {
    let mut both = recording(Some("a"), some());
    both.join(recording(Some("a"), some())).expect("the same model");
    let moved = &both.threads[&1].misses;
    assert_eq!((moved[0].at, moved[1].at), ((Some(1), 0x1010), (None, u64::MAX)));
    for other in [Some("b"), None] {
        let refused = recording(Some("a"), some()).join(recording(other, some()));
        assert!(matches!(refused, Err(MergeError::Events { .. })), "{other:?}");
    }
}

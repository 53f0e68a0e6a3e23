//! Recordings, which come from other people and other machines.

use lwp_export::Format;
use lwp_profile::Recording;
use lwp_report::tree_text::{self, Shown};
use lwp_report::{Options, Paint, Table};
use lwp_terminal::escape::{is_hostile, lines};

/// Bytes before a chunk's payload, and of the file's header.
const CHUNK_BYTES: usize = 12;
const HEADER_BYTES: usize = 16;

/// A recording as it lies in a file.
pub fn chunks(bytes: &[u8]) {
    if let Ok(recording) = Recording::parse(bytes) {
        show(&recording);
    }
}

/// A recording whose checksums are made right first, so that the input reaches what they protect.
pub fn recording(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let mut at = HEADER_BYTES;
    while let Some(head) = bytes.get(at..at + CHUNK_BYTES) {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let payload = at + CHUNK_BYTES;
        // One that claims more than there is ends with the file.
        let end = payload.saturating_add(length).min(bytes.len());
        bytes[at + 4..at + 8].copy_from_slice(&((end - payload) as u32).to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 8]), &bytes[payload..end]);
        bytes[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
        at = end;
    }
    chunks(&bytes);
}

/// Everything that commands do with a recording, in memory.
fn show(recording: &Recording) {
    let mut recording = recording.clone();
    // Files of this machine are another's bytes.
    for module in recording.modules.values_mut().filter(|module| !module.is_anonymous()) {
        module.path = format!("/nonexistent{}", module.path);
    }
    let options = lwp_symbols::Options::default();
    let resolved = lwp_symbols::profile(&recording, &options);
    let profile = &resolved.profile;
    for event in 0..profile.events.len() {
        let table = Table::new(profile, &Options { event, ..Options::default() });
        let text = lwp_report::text::table(&table, None);
        assert!(!lines(&text).chars().any(|c| is_hostile(c) && c != '\n' && c != '\t'));
        assert_eq!(lines(&text), text, "a name that was not escaped");
        let in_context = lwp_symbols::contexts(&recording, &options, event);
        let shown =
            Shown { event, percent_limit: 0.0, max_stack: 64, demangle: true, paint: Paint::Ansi };
        let _ = tree_text::tree(&in_context.resolved.profile, &in_context.tree, &shown);
        for (format, ..) in Format::ALL {
            let _ = format.write(&recording, profile, event);
        }
    }
    let mut written = Vec::new();
    recording.write(&mut written).expect("memory takes everything");
    assert!(Recording::parse(&written).is_ok());
}

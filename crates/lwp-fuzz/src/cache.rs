//! Kept translations. Their files are trusted no further than their hashes, and these are put right
//! here.

use std::sync::Mutex;

use lwp_dbt::block::Emulated;
use lwp_dbt::context::SyscallClass;
use lwp_dbt::freeze::Freeze;
use lwp_dbt::{
    AppPc, Checks, CodeSink, CodeTarget, Image, Knowledge, Lwp, Placement, Plan, RegionLimits,
};
use lwp_vcpu::store::{Header, Reader};
use twox_hash::XxHash3_128;

use crate::bench::Bench;

/// Bytes of a file's header, and of the hash at its end.
const HEADER_BYTES: usize = 4096;
const HASH_AT: usize = HEADER_BYTES - 16;

/// The address of the application's code.
const CODE: u64 = 0x1_0000_0000;
/// The code: enough blocks, calls and loops for every table.
const APPLICATION: &[u8] = &[
    0x48, 0xff, 0xc0, 0xe8, 0x09, 0x00, 0x00, 0x00, 0x75, 0xf6, 0xff, 0x15, 0x00, 0x10, 0x00, 0x00,
    0xc3, 0x8b, 0x05, 0x20, 0x10, 0x00, 0x00, 0xe2, 0xf8, 0x74, 0x02, 0xff, 0xe0, 0xc3, 0xc3, 0xc3,
];

fn bench() -> Bench {
    let classes = Box::new([SyscallClass::Native; 512]);
    let application = APPLICATION.repeat(8);
    let emulated = Emulated::default();
    let (plan, lwp, checks) = (Plan::Exact, Lwp::Absent, Checks::None);
    let mut bench = Bench::with_lwp(plan, lwp, checks, CODE, &application, emulated, classes);
    pad(&mut bench, 4096);
    bench
}

fn pad(bench: &mut Bench, to: usize) {
    let len = bench.cache.bytes.len().next_multiple_of(to);
    bench.cache.bytes.resize(len, 0xcc);
}

fn placement(bench: &Bench) -> Placement {
    let (code, routines) = (bench.cache.position(), bench.cache.routines_at());
    Placement { code, routines, module: AppPc(bench.app.start) }
}

fn translate(bench: &mut Bench, offset: u64) {
    let (pc, limits) = (AppPc(CODE + offset), RegionLimits::fragments(20));
    let (translator, mut to, app) = bench.parts();
    translator.translate(&mut to, app, pc, true, limits);
}

/// An image that is as it should be, for the corpus.
#[must_use]
pub fn good_image() -> Vec<u8> {
    let mut bench = bench();
    let at = placement(&bench);
    translate(&mut bench, 0);
    translate(&mut bench, 40);
    let code = bench.cache.bytes[bench.cache.offset(at.code)..].to_vec();
    let layout = bench.translator.layout();
    let frozen = bench
        .tables
        .freeze(layout, Freeze { unit: &bench.unit, at, code, knowledge: Knowledge::Little });
    frozen.map(|image| image.to_vec()).unwrap_or_default()
}

/// A translation: put in place, looked up, and translated further.
pub fn image(bytes: &[u8]) {
    let Ok(image) = Image::parse(Box::new(bytes.to_vec())) else { return };
    // More than any of the corpus has. What claims more is refused by its file's size elsewhere.
    if image.code_len() > 1 << 22 {
        return;
    }
    let mut bench = bench();
    let at = placement(&bench);
    let code = Mutex::new(vec![0; image.code_len()]);
    let write = |offset: u64, piece: &[u8]| {
        let mut code = code.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let start = offset as usize;
        code[start..start + piece.len()].copy_from_slice(piece);
        true
    };
    let to = CodeTarget { write: &write, threads: 1 };
    if bench.tables.restore(&mut bench.unit, image, at, &to).is_err() {
        return;
    }
    let code = code.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let inside = at.code.0..at.code.0 + code.len() as u64;
    for pc in (CODE..CODE + 300).map(AppPc) {
        if let Some(id) = bench.unit.fragment_at(pc) {
            assert!(inside.contains(&bench.tables.fragment(id).join.0), "{pc:?} leads elsewhere");
        }
    }
    for pc in inside.clone().step_by(3).take(4096) {
        bench.tables.state_at(lwp_dbt::CachePc(pc));
    }
    bench.cache.bytes.extend(&code);
    pad(&mut bench, 64);
    translate(&mut bench, 70);
    let whole = bench.cache.bytes[bench.cache.offset(at.code)..].to_vec();
    let layout = bench.translator.layout();
    let _ = bench.tables.freeze(
        layout,
        Freeze { unit: &bench.unit, at, code: whole, knowledge: Knowledge::Little },
    );
}

/// A file of the store.
pub fn store(bytes: &[u8]) {
    let mut head = [0; HEADER_BYTES];
    let len = bytes.len().min(HEADER_BYTES);
    head[..len].copy_from_slice(&bytes[..len]);
    let hash = XxHash3_128::oneshot(&head[..HASH_AT]);
    head[HASH_AT..].copy_from_slice(&hash.to_le_bytes());
    if let Some(header) = Header::parse(&head) {
        let again = header.to_bytes();
        let again: &[u8; HEADER_BYTES] = again.as_slice().try_into().expect("a header's bytes");
        // What it says stands, but for a path that is no text and grows by being shown.
        if !header.path.contains('\u{fffd}') {
            assert_eq!(Header::parse(again).as_ref(), Some(&header));
        }
    }
    image(&bytes[len..]);
}

/// An archive of `lwp cache export`, the hashes of its heads put right.
pub fn archive(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    mend_heads(&mut bytes);
    let Ok(mut reader) = Reader::new(&bytes[..]) else { return };
    while let Ok(Some(header)) = reader.next_header() {
        // More than any of the corpus has; elsewhere the store's limit refuses it.
        if header.image_bytes() > 1 << 22 {
            continue;
        }
        if let Some(image) = reader.image(&header) {
            assert_eq!(image.len() as u64, header.image_bytes());
            let _ = Image::parse(Box::new(image));
        }
    }
}

/// Writes the right hash behind each entry's head, as far as there are entries.
fn mend_heads(bytes: &mut [u8]) {
    const HASH_BYTES: usize = HEADER_BYTES - HASH_AT;
    let number = |bytes: &[u8], at: usize, len: usize| {
        let mut word = [0; 8];
        word[..len].copy_from_slice(bytes.get(at..at + len)?);
        usize::try_from(u64::from_le_bytes(word)).ok()
    };
    let mut at = 12;
    while let (Some(head), Some(packed)) = (number(bytes, at, 4), number(bytes, at + 4, 8)) {
        let start = at + 12;
        let Some(front) = head.checked_sub(HASH_BYTES).filter(|front| *front <= HASH_AT) else {
            return;
        };
        let Some(short) = bytes.get_mut(start..start + head) else { return };
        let mut whole = [0; HASH_AT];
        whole[..front].copy_from_slice(&short[..front]);
        let hash = XxHash3_128::oneshot(&whole);
        short[front..].copy_from_slice(&hash.to_le_bytes());
        let Some(next) = (start + head).checked_add(packed).filter(|it| *it < bytes.len()) else {
            return;
        };
        at = next;
    }
}

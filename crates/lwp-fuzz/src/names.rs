//! Files that names and stacks come from.

use lwp_profile::{
    Block, BlockCount, BlockEnd, Mapping, RecordedFile, RecordedModule, Recording, ThreadExecutions,
};
use lwp_symbols::Options;

/// Addresses that tables are asked about besides those that a file mentions.
const ADDRESSES: [u64; 8] = [0, 1, 0x1000, 0x1234, 0x40_1000, 0x7fff_ffff, 1 << 63, u64::MAX];

/// A program: its symbols, its lines and inlined functions, and all instructions of its functions.
pub fn elf(bytes: &[u8]) {
    if let Ok(elf) = lwp_symbols::Elf::parse(bytes) {
        let starts: Vec<u64> = elf.symbols().map(|symbol| symbol.address).take(64).collect();
        for address in starts.into_iter().chain(ADDRESSES) {
            let _ = (elf.function_at(address), elf.function_about(address));
            let _ = (elf.code_in(address, 64), elf.import_at(address));
            let _ = (elf.address_of(address), elf.offset_of(address));
        }
    }
    let recording = about(bytes);
    let options = Options { whole_functions: Some(1 << 20), ..Options::default() };
    let profile = lwp_symbols::profile(&recording, &options).profile;
    let table = lwp_report::Table::new(&profile, &lwp_report::Options::default());
    let _ = lwp_report::text::table(&table, None);
}

/// A recording of a program that `bytes` are: two blocks of each of its first pages were executed.
fn about(bytes: &[u8]) -> Recording {
    let path = "/fuzzed".to_owned();
    let mapping = Mapping { start: 0x10_0000, end: 0x11_0000, offset: 0 };
    let module =
        RecordedModule { path: path.clone(), mappings: vec![mapping], ..RecordedModule::default() };
    let block = |id: u32| Block {
        id,
        address: 0x10_0000 + u64::from(id) * 0x810,
        lengths: vec![1, 2],
        counted: 2,
        end: BlockEnd::from_raw(0),
        bytes: vec![0x90, 0x66, 0x90],
        ..Block::default()
    };
    let count = |block| BlockCount { block, runs: 1, not_taken: 0 };
    let thread =
        ThreadExecutions { blocks: (0..16).map(count).collect(), ..ThreadExecutions::default() };
    Recording {
        modules: [(0, module)].into(),
        blocks: (0..16).map(|id| (id, block(id))).collect(),
        threads: [(0, thread)].into(),
        files: vec![RecordedFile { path, bytes: bytes.to_vec() }],
        ..Recording::default()
    }
}

/// A program's unwind tables.
pub fn unwind(bytes: &[u8]) {
    let mut image = lwp_unwind::Image::of_bytes(bytes);
    let near = (0..64).map(|page| page * 0x111);
    for address in near.chain(ADDRESSES) {
        let _ = image.address_of(address);
        let _ = image.row(address);
    }
}

/// A list of generated functions.
pub fn perf_map(bytes: &[u8]) {
    let symbols = lwp_symbols::parse_perf_map(7, bytes);
    assert!(symbols.iter().all(|symbol| !symbol.name.is_empty() && symbol.pid == 7));
    named(symbols);
}

/// Generated functions and their code.
pub fn jitdump(bytes: &[u8]) {
    named(lwp_symbols::parse_jitdump(bytes).symbols);
}

/// Finds the names of generated code by `symbols`.
fn named(symbols: Vec<lwp_profile::RecordedSymbol>) {
    let mut recording = about(&[]);
    if let Some(module) = recording.modules.get_mut(&0) {
        module.path.clear();
    }
    recording.files.clear();
    recording.symbols = symbols;
    let _ = lwp_symbols::profile(&recording, &Options::default());
}

//! Application code and translated code in vectors.
#![allow(dead_code, reason = "each test uses its part")]

use lwp_dbt::block::Emulated;
use lwp_dbt::context::{INDEX_MASK, SyscallClass, TABLE_SLOTS, TargetFeatures};
use lwp_dbt::{
    AppPc, CachePc, Checks, CodeCache, CodeSink, CodeSource, Destination, HEAD, Layout, Lwp, Plan,
    Region, RegionLimits, Selection, Translator, Unit,
};
use lwp_testkit::native::Machine;

pub const LOW: u64 = 0x7000_0000;
pub const CACHE: u64 = 0xa000_0000;
pub const PLANS: [Plan; 2] = [Plan::Plain, Plan::Exact];
pub const ALL_PLANS: [Plan; 3] = [Plan::Plain, Plan::Exact, Plan::Calls];
pub const CHECKS: [Checks; 3] = [Checks::None, Checks::Notified, Checks::SelfCheck];

pub struct App {
    pub start: u64,
    pub bytes: Vec<u8>,
    /// True if notice is given of changes.
    pub gives_notice: bool,
    /// Where its function lies, if that is known.
    pub function: Option<std::ops::Range<u64>>,
}

impl App {
    pub fn new(start: u64, bytes: Vec<u8>) -> Self {
        Self { start, bytes, gives_notice: false, function: None }
    }

    pub fn at(&self, pc: AppPc) -> &[u8] {
        pc.0.checked_sub(self.start)
            .and_then(|offset| self.bytes.get(offset as usize..))
            .unwrap_or_default()
    }
}

impl CodeSource for App {
    fn read_code(&mut self, pc: AppPc, buffer: &mut [u8]) -> usize {
        let bytes = self.at(pc);
        let len = bytes.len().min(buffer.len());
        buffer[..len].copy_from_slice(&bytes[..len]);
        len
    }

    fn function(&mut self, _: AppPc) -> Option<std::ops::Range<u64>> {
        self.function.clone()
    }

    fn gives_notice(&mut self, _: AppPc, _: usize) -> bool {
        self.gives_notice
    }
}

#[derive(Default)]
pub struct Cache {
    pub bytes: Vec<u8>,
    /// Start and end of every piece that was appended.
    pub appended: Vec<(u64, u64)>,
    pub patched: Vec<CachePc>,
}

impl Cache {
    pub fn offset(&self, pc: CachePc) -> usize {
        (pc.0 - CACHE) as usize
    }

    /// Returns the address that the displacement at `at` leads to.
    pub fn led_from(&self, at: CachePc) -> CachePc {
        let offset = self.offset(at);
        let raw: [u8; 4] = self.bytes[offset..offset + 4].try_into().unwrap();
        CachePc((at.0 + 4).wrapping_add(i64::from(i32::from_le_bytes(raw)) as u64))
    }
}

impl CodeSink for Cache {
    fn position(&self) -> CachePc {
        CachePc(CACHE + self.bytes.len() as u64)
    }
    fn room(&self) -> usize {
        (8 << 20) - self.bytes.len()
    }
    fn routines_at(&self) -> CachePc {
        CachePc(CACHE)
    }
    fn append(&mut self, code: &[u8]) {
        let start = self.position().0;
        self.bytes.extend_from_slice(code);
        self.appended.push((start, self.position().0));
    }
    fn patch(&mut self, at: CachePc, displacement: i32) {
        assert!(at.0 % 64 <= 60, "{at:?} crosses a line");
        let offset = self.offset(at);
        self.bytes[offset..offset + 4].copy_from_slice(&displacement.to_le_bytes());
        self.patched.push(at);
    }
    fn patch_head(&mut self, head: CachePc, target: CachePc) {
        assert!(head.0 % 8 <= 3, "{head:?} crosses eight aligned bytes");
        let offset = self.offset(head);
        let displacement = target.0.wrapping_sub(head.0 + 5) as u32;
        self.bytes[offset] = 0xe9;
        self.bytes[offset + 1..offset + 5].copy_from_slice(&displacement.to_le_bytes());
    }
    fn restore_head(&mut self, head: CachePc) {
        let offset = self.offset(head);
        assert_eq!(self.bytes[offset], 0xe9, "{head:?} was not patched");
        self.bytes[offset..offset + 5].copy_from_slice(&HEAD);
    }
}

pub struct Bench {
    pub app: App,
    pub cache: Cache,
    pub unit: Unit,
    pub tables: CodeCache,
    pub translator: Translator,
}

impl Bench {
    pub fn new(plan: Plan, checks: Checks, start: u64, bytes: &[u8]) -> Self {
        let classes = Box::new([SyscallClass::Native; 512]);
        Self::with(plan, checks, start, bytes, Emulated::default(), classes)
    }

    pub fn with(
        plan: Plan,
        checks: Checks,
        start: u64,
        bytes: &[u8],
        emulated: Emulated,
        classes: Box<[SyscallClass; 512]>,
    ) -> Self {
        Self::with_lwp(plan, Lwp::Absent, checks, start, bytes, emulated, classes)
    }

    /// A bench whose code counts down what is selected, and counts nothing else.
    pub fn counting_down(selection: Selection, checks: Checks, start: u64, bytes: &[u8]) -> Self {
        let classes = Box::new([SyscallClass::Native; 512]);
        let (emulated, lwp) = (Emulated::default(), Lwp::On(selection));
        Self::with_lwp(Plan::Plain, lwp, checks, start, bytes, emulated, classes)
    }

    pub fn with_lwp(
        plan: Plan,
        lwp: Lwp,
        checks: Checks,
        start: u64,
        bytes: &[u8],
        emulated: Emulated,
        classes: Box<[SyscallClass; 512]>,
    ) -> Self {
        let layout = Layout { low: LOW, features: TargetFeatures::of_this_processor() };
        let translator = Translator::new(plan, lwp, layout, emulated, classes);
        Self::with_translator(translator, checks, start, bytes)
    }

    pub fn with_translator(
        translator: Translator,
        checks: Checks,
        start: u64,
        bytes: &[u8],
    ) -> Self {
        let mut tables = translator.code_cache();
        tables.keep_roles();
        let mut cache = Cache { bytes: translator.routines().code.to_vec(), ..Cache::default() };
        while !cache.bytes.len().is_multiple_of(64) {
            cache.bytes.push(0xcc);
        }
        let app = App::new(start, bytes.to_vec());
        Self { app, cache, unit: Unit::new(checks), tables, translator }
    }

    /// Starts again with tables that do not keep the roles of counters.
    pub fn forget_roles(&mut self) {
        self.tables = self.translator.code_cache();
    }

    /// Returns the places where code goes, with the application's code and the translator.
    pub fn parts(&mut self) -> (&Translator, Destination<'_>, &mut App) {
        let Self { app, cache, unit, tables, translator } = self;
        (translator, Destination { cache: tables, unit, sink: cache }, app)
    }

    pub fn translate(&mut self, pc: u64, entry: bool, fragments: usize) -> Region {
        let (translator, mut to, app) = self.parts();
        translator.translate(&mut to, app, AppPc(pc), entry, RegionLimits::fragments(fragments))
    }

    /// Returns the place where a direct branch to `pc` enters, if there is one.
    pub fn head(&self, pc: u64) -> Option<CachePc> {
        self.tables.head_of(self.unit.fragment_at(AppPc(pc))?)
    }

    /// Translates the first `most` instructions at `pc` as a cut fragment.
    #[allow(dead_code, reason = "not every test that shares this makes cuts")]
    pub fn cut(&mut self, pc: AppPc, most: usize) -> bool {
        let (translator, mut to, app) = self.parts();
        translator.cut(&mut to, app, pc, most).is_some()
    }

    /// Translates `pc` and everything it leads to directly.
    pub fn translate_all(&mut self, pc: u64, entry: bool, fragments: usize) -> Vec<Region> {
        let mut todo = vec![pc];
        let mut regions = Vec::new();
        while let Some(next) = todo.pop() {
            let region = self.translate(next, entry && next == pc, fragments);
            todo.extend(region.rest.iter().map(|ahead| ahead.pc.0));
            regions.push(region);
        }
        regions
    }

    /// Returns the contents of the low window when the entries of `regions` have been inserted:
    /// addresses and bytes.
    pub fn low_window(&self, regions: &[Region]) -> Vec<(u64, Vec<u8>)> {
        let layout = self.translator.layout();
        let mut memory = vec![
            (layout.table(), Machine::MISSED.to_le_bytes().repeat(TABLE_SLOTS as usize)),
            (layout.index_mask(), INDEX_MASK.to_le_bytes().to_vec()),
            (layout.routines(), self.translator.routines().code.to_vec()),
        ];
        let landing = layout.table_slot(Machine::LANDING);
        memory.push((landing, Machine::LANDING_SPILLED.to_le_bytes().to_vec()));
        // An entry goes to the head of its slot's chain.
        let mut heads = std::collections::HashMap::new();
        for id in regions.iter().flat_map(|region| &region.entries) {
            let entry = self.tables.entry(*id);
            let slot = layout.table_slot(entry.pc.0);
            let old = heads.insert(slot, entry.stub.0).unwrap_or(Machine::MISSED);
            memory.push((layout.chain_slot(id.0), old.to_le_bytes().to_vec()));
            memory.push((slot, entry.stub.0.to_le_bytes().to_vec()));
        }
        memory
    }
}

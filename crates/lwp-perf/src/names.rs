//! Names that mean the same on every machine: the kernel's generic events, its software events, and
//! the PAPI presets that have a generic counterpart.
//!
//! Spec: perf_event_open(2), "config"; PAPI preset names as documented by PAPI. Solaris writes
//! presets as `PAPI_` and lower case, PAPI in upper case; both are accepted.

use crate::attr::kind::{HARDWARE, HW_CACHE, SOFTWARE};

/// A name, its other spelling, type and config.
pub type Row = (&'static str, &'static str, u32, u64);

/// A cache event: which cache, which operation (0 read, 1 write, 2 prefetch), 0 access or 1 miss.
const fn cache(cache: u64, operation: u64, miss: u64) -> u64 {
    cache | operation << 8 | miss << 16
}

const L1D: u64 = 0;
const L1I: u64 = 1;
const LL: u64 = 2;
const DTLB: u64 = 3;
const ITLB: u64 = 4;
const BPU: u64 = 5;

#[rustfmt::skip] // A table: one event a line.
pub const GENERIC: &[Row] = &[
    ("cpu-cycles",              "cycles",               HARDWARE, 0),
    ("instructions",            "",                     HARDWARE, 1),
    ("cache-references",        "",                     HARDWARE, 2),
    ("cache-misses",            "",                     HARDWARE, 3),
    ("branch-instructions",     "branches",             HARDWARE, 4),
    ("branch-misses",           "",                     HARDWARE, 5),
    ("bus-cycles",              "",                     HARDWARE, 6),
    ("stalled-cycles-frontend", "idle-cycles-frontend", HARDWARE, 7),
    ("stalled-cycles-backend",  "idle-cycles-backend",  HARDWARE, 8),
    ("ref-cycles",              "",                     HARDWARE, 9),
    ("L1-dcache-loads",         "",                     HW_CACHE, cache(L1D, 0, 0)),
    ("L1-dcache-load-misses",   "",                     HW_CACHE, cache(L1D, 0, 1)),
    ("L1-dcache-stores",        "",                     HW_CACHE, cache(L1D, 1, 0)),
    ("L1-dcache-store-misses",  "",                     HW_CACHE, cache(L1D, 1, 1)),
    ("L1-dcache-prefetches",    "",                     HW_CACHE, cache(L1D, 2, 0)),
    ("L1-icache-loads",         "",                     HW_CACHE, cache(L1I, 0, 0)),
    ("L1-icache-load-misses",   "",                     HW_CACHE, cache(L1I, 0, 1)),
    ("LLC-loads",               "",                     HW_CACHE, cache(LL, 0, 0)),
    ("LLC-load-misses",         "",                     HW_CACHE, cache(LL, 0, 1)),
    ("LLC-stores",              "",                     HW_CACHE, cache(LL, 1, 0)),
    ("LLC-store-misses",        "",                     HW_CACHE, cache(LL, 1, 1)),
    ("dTLB-loads",              "",                     HW_CACHE, cache(DTLB, 0, 0)),
    ("dTLB-load-misses",        "",                     HW_CACHE, cache(DTLB, 0, 1)),
    ("dTLB-stores",             "",                     HW_CACHE, cache(DTLB, 1, 0)),
    ("dTLB-store-misses",       "",                     HW_CACHE, cache(DTLB, 1, 1)),
    ("iTLB-loads",              "",                     HW_CACHE, cache(ITLB, 0, 0)),
    ("iTLB-load-misses",        "",                     HW_CACHE, cache(ITLB, 0, 1)),
    ("branch-loads",            "",                     HW_CACHE, cache(BPU, 0, 0)),
    ("branch-load-misses",      "",                     HW_CACHE, cache(BPU, 0, 1)),
];

#[rustfmt::skip] // A table: one event a line.
pub const SOFTWARE_EVENTS: &[Row] = &[
    ("cpu-clock",        "",       SOFTWARE, 0),
    ("task-clock",       "",       SOFTWARE, 1),
    ("page-faults",      "faults", SOFTWARE, 2),
    ("context-switches", "cs",     SOFTWARE, 3),
    ("cpu-migrations",   "migrations", SOFTWARE, 4),
    ("minor-faults",     "",       SOFTWARE, 5),
    ("major-faults",     "",       SOFTWARE, 6),
    ("alignment-faults", "",       SOFTWARE, 7),
    ("emulation-faults", "",       SOFTWARE, 8),
    ("dummy",            "",       SOFTWARE, 9),
    ("bpf-output",       "",       SOFTWARE, 10),
    ("cgroup-switches",  "",       SOFTWARE, 11),
];

/// Presets whose meaning a generic event has. The second column is the preset in capitals.
#[rustfmt::skip] // A table: one event a line.
pub const PAPI: &[Row] = &[
    ("PAPI_tot_cyc", "PAPI_TOT_CYC", HARDWARE, 0),
    ("PAPI_tot_ins", "PAPI_TOT_INS", HARDWARE, 1),
    ("PAPI_l3_tca",  "PAPI_L3_TCA",  HARDWARE, 2),
    ("PAPI_l3_tcm",  "PAPI_L3_TCM",  HARDWARE, 3),
    ("PAPI_br_ins",  "PAPI_BR_INS",  HARDWARE, 4),
    ("PAPI_br_msp",  "PAPI_BR_MSP",  HARDWARE, 5),
    ("PAPI_stl_icy", "PAPI_STL_ICY", HARDWARE, 7),
    ("PAPI_res_stl", "PAPI_RES_STL", HARDWARE, 8),
    ("PAPI_ref_cyc", "PAPI_REF_CYC", HARDWARE, 9),
    ("PAPI_l1_dca",  "PAPI_L1_DCA",  HW_CACHE, cache(L1D, 0, 0)),
    ("PAPI_l1_dcm",  "PAPI_L1_DCM",  HW_CACHE, cache(L1D, 0, 1)),
    ("PAPI_l1_ldm",  "PAPI_L1_LDM",  HW_CACHE, cache(L1D, 0, 1)),
    ("PAPI_l1_icm",  "PAPI_L1_ICM",  HW_CACHE, cache(L1I, 0, 1)),
    ("PAPI_tlb_dm",  "PAPI_TLB_DM",  HW_CACHE, cache(DTLB, 0, 1)),
    ("PAPI_tlb_im",  "PAPI_TLB_IM",  HW_CACHE, cache(ITLB, 0, 1)),
];

/// Finds `name` in `rows`, by either spelling, letter case aside.
pub fn find(rows: &[Row], name: &str) -> Option<Row> {
    let same = |row: &&Row| {
        row.0.eq_ignore_ascii_case(name) || (!row.1.is_empty() && row.1.eq_ignore_ascii_case(name))
    };
    rows.iter().find(same).copied()
}

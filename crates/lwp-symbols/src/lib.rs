//! From addresses to functions, lines and inlined functions.
//!
//! [`profile`] turns a recording into a profile. It looks for names where the system keeps them: in
//! the file's symbol tables, in debug files found by build id or debug link, in the program's own
//! list of generated code, in the kernel's vdso. A file that has changed since the recording is not
//! used, because its names would be wrong; a warning says so. [`names`] collects what was found for
//! everything that was executed; a recording that keeps it needs no file any more.
#![forbid(unsafe_code)]

mod bodies;
mod bounds;
mod build_id;
mod builds;
mod calls;
mod compiled;
mod compressed;
mod contexts;
mod debug_file;
mod demangle;
mod dwarf;
mod elf;
mod files;
mod folding;
mod generated;
mod identity;
mod jitdump;
mod keeping;
mod kept;
mod language;
mod live;
mod matching;
mod mini_debug;
mod module;
mod naming;
mod near;
mod origins;
mod parallel;
mod parts;
mod perf_map;
mod resolve;
mod sampled;
mod search;
mod shortening;
mod split;
mod vdso;

pub use build_id::{build_id_in, build_id_of, of_bytes as build_id_of_bytes};
pub use builds::Builds;
pub use compiled::{CallPlace, CodePlace, CodeScope, CompiledError, CompiledFunction};
pub use demangle::{
    Scheme, before_suffix, demangle, demangle_as, short_name, stable_name, stable_name_as,
    whole_function,
};
pub use elf::{Elf, ElfError, Symbol};
pub use files::{read as read_file, read_source, read_whole};
pub use folding::mostly_interpreter;
pub use jitdump::{JitDump, parse as parse_jitdump};
pub use keeping::names;
pub use language::Language;
pub use live::{Live, LiveFunction};
pub use matching::{ModulePair, counterparts, has_module, is_called, matched};
pub use naming::{FunctionNames, function_name, stable_function_name};
pub use near::{Inlined, inlined_named, similar_names};
pub use origins::Origins;
pub use parts::{ends_in, last_part};
pub use perf_map::parse as parse_perf_map;
pub use resolve::{
    Detail, Gathered, InContext, InSamples, Options, Resolved, contexts, profile, samples,
};
pub use search::{NamedFunction, functions_like, functions_named};
pub use shortening::{clipped, fitted, short_forms, simplified};
pub use vdso::vdso_bytes;

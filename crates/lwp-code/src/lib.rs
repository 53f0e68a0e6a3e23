//! Translated code: families of address spaces that share translations, the arenas these lie in,
//! the spaces themselves, images kept from run to run, and guards of pages whose code may change.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open what they have made"))]

pub mod arena;
pub mod arena_placement;
pub mod execution_profiles;
pub mod family;
pub mod file_identity;
pub mod functions;
pub mod guards;
pub mod interpreter_entries;
pub mod module_images;
pub mod origins;
pub mod space;
pub mod store;
pub mod syscall_sites;
pub mod transfer_sites;
pub mod words;

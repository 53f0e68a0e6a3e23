//! The model against the documents, one test per statement.
//!
//! Test names begin with the section they hold: `lwp_spec_` for `docs/lwp.md`, `p07_` for the
//! proposal of
//! 2007. Those with `dev_n` in the name fix a choice of `docs/deviations.md`.

mod events;
mod explore;
mod faults;
mod filters;
mod inserts;
mod llwpcb;
mod machine;
mod proposal;
mod proposal_system;
mod ring;
mod sample_program;
mod slwpcb;
mod state;
mod system;

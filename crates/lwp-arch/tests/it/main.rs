//! The integration tests of this package, in one program: they are linked once.

mod oracle_gas;
mod oracle_iced;

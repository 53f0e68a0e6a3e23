//! The counters of this machine.

use std::sync::Arc;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::{lwp, perf};

/// The counters that were found, and those that were not.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Back ends in the order in which names are looked up.
    pub(crate) backends: Vec<Box<dyn Backend>>,
    /// The reason why another one is not there, one sentence each.
    pub(crate) missing: Vec<String>,
}

/// Looks for every kind of counters.
pub(crate) fn all() -> Result<Found> {
    let mut found = Found::default();
    match lwp::detect() {
        Ok(backend) => found.backends.push(Box::new(backend)),
        Err(reason) => found.missing.push(reason),
    }
    let (backend, missing) = perf::detect(Arc::new(lwp_perf::Linux));
    found.backends.extend(backend.map(|backend| Box::new(backend) as Box<dyn Backend>));
    found.missing.extend(missing);
    if found.backends.is_empty() {
        return Err(Error::described(libc::ENOTSUP, found.missing.join("; ")));
    }
    Ok(found)
}

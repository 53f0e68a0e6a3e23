//! Threads of lwp's own, which a limit on processes may forbid, or one on data: the limit on lwp's
//! own data is lifted first.

use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use crate::failure::Failure;

/// Starts a thread called `name`.
pub fn start<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    lwp_vcpu::lift_limits();
    Builder::new().name(name.into()).spawn(body).map_err(|error| refused(&error))
}

/// Starts a thread named `name` in a scope.
pub fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Failure> {
    lwp_vcpu::lift_limits();
    Builder::new().name(name.into()).spawn_scoped(scope, body).map_err(|error| refused(&error))
}

fn refused(error: &std::io::Error) -> Failure {
    Failure::io("starting a thread", error).with_help(crate::own_limits::of_threads())
}

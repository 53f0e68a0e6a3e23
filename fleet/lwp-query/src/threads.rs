//! The threads that execute questions. Nothing else runs on them, so that a question that computes
//! without a pause delays neither timers nor requests.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::{Error, Result};

/// The runtime of all questions of this process. It is never shut down: a question that does not
/// end would keep the process from ending too.
static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();

/// A way to the threads, of which there are as many as processors.
pub(crate) fn handle() -> Result<Handle> {
    let make = || Builder::new_multi_thread().thread_name("question").enable_all().build().ok();
    let runtime = RUNTIME.get_or_init(make).as_ref();
    let none = || Error::Engine("the system gives no threads".to_owned());
    Ok(runtime.ok_or_else(none)?.handle().clone())
}

/// Executes a task on the threads of questions. It ends early if nobody waits for it any more, and
/// its panic is an error.
pub(crate) async fn execute<T: Send + 'static>(
    task: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let mut task = Aborting(handle()?.spawn(task));
    match (&mut task.0).await {
        Ok(done) => done,
        Err(error) => Err(Error::Execution(error.to_string())),
    }
}

/// A task that ends with whoever waits for it.
struct Aborting<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Aborting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

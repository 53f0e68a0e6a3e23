//! Work on several things at a time.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The results of `work` for `items`, in their order. As many threads as there are processors work,
/// or fewer where no more can be made.
pub fn map<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let most = thread::available_parallelism().map_or(1, NonZero::get).min(items.len());
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    {
        let queue = Mutex::new(items.into_iter().zip(&mut results));
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let take = || {
            while let Some((item, result)) = next() {
                *result = Some(work(item));
            }
        };
        thread::scope(|scope| {
            let spawn =
                |_| thread::Builder::new().name("lwp-names".into()).spawn_scoped(scope, take);
            let _ = (1..most).map(spawn).take_while(Result::is_ok).count();
            take();
        });
    }
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_their_items() {
        assert_eq!(map(Vec::<u32>::new(), |item| item), []);
        let doubled: Vec<u32> = (0..100).map(|item| 2 * item).collect();
        assert_eq!(map((0..100).collect(), |item: u32| 2 * item), doubled);
    }
}

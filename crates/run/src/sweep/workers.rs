//! Threads that take tasks from one list until it is empty.

use std::sync::{Mutex, PoisonError};

/// A task that is done once.
pub(super) trait Task: Send {
    /// Does the task.
    fn work(self);
}

/// Does all `tasks` on `threads` threads, in the order of `tasks`, and calls `meanwhile` on the
/// current thread. Returns the result of `meanwhile`.
pub(super) fn work<T>(
    threads: usize,
    tasks: impl Iterator<Item = impl Task> + Send,
    meanwhile: impl FnOnce() -> T,
) -> T {
    let tasks = Mutex::new(tasks);
    let take = || tasks.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(task) = take() {
                    task.work();
                }
            });
        }
        meanwhile()
    })
}

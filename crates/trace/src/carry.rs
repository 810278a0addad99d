//! Instructions that have begun but are not counted yet: the next row of their thread counts them.
//!
//! ```text
//!   thread 1   [fetch +1  load +2 |2 left]            [fetch +1 ...]  -> counts 1 + 2
//!   thread 2                         [fetch +1 |5 left]
//! ```
//!
//! Such instructions are kept for each thread, so that the sum over a thread's rows is the number
//! of instructions that the thread executed.

use rustc_hash::FxHashMap;

use crate::Meta;

/// The instructions that the next row of each thread counts in addition to its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carry {
    /// The waiting instructions of the current thread.
    pub(crate) now: u64,
    thread: u32,
    waiting: FxHashMap<u32, u64>,
}

impl Carry {
    /// The current thread.
    pub(crate) fn thread(&self) -> u32 {
        self.thread
    }

    /// Makes `thread` the current thread. Returns whether another thread was current before.
    #[inline]
    pub(crate) fn switch(&mut self, thread: u32) -> bool {
        if thread == self.thread {
            return false;
        }
        if self.now != 0 {
            self.waiting.insert(self.thread, self.now);
        }
        self.now = self.waiting.remove(&thread).unwrap_or(0);
        self.thread = thread;
        true
    }

    /// Whether a row with `first` instructions of its own cannot count the waiting instructions
    /// too, because the sum is too large.
    #[inline]
    pub(crate) fn exceeds(&self, first: u32) -> bool {
        self.now + u64::from(first) > u64::from(Meta::INSTRUCTIONS_MAX)
    }

    /// The number of waiting instructions of all threads.
    pub(crate) fn all(&self) -> u64 {
        self.now + self.waiting.values().sum::<u64>()
    }

    /// Returns the waiting instructions, by ascending thread, and resets them.
    pub(crate) fn drain(&mut self) -> Vec<(u32, u64)> {
        let mut rest: Vec<(u32, u64)> = self.waiting.drain().collect();
        if self.now != 0 {
            rest.push((self.thread, self.now));
            self.now = 0;
        }
        rest.sort_unstable();
        rest
    }
}

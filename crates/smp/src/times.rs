//! Whether a round on this host is valid for conclusions about locks.
//!
//! ```text
//!   alone      1 thread                      |  a round:  alone  control  shared
//!   control    n threads, each on its own    |            shared  control  alone
//!   shared     n threads on one HAT layer    |
//! ```
//!
//! The control does the same work on each thread without shared locks or cache lines. If even the
//! control does not reach 1.7 times the throughput on two threads, the host's cores are busy with
//! other work or share too many resources. The times of the shared layer then show nothing about
//! its locks. In a round, one thread alone, the control and the shared layer are each timed twice:
//! in one order and then in the reverse order. A disturbance of one measurement thus appears as a
//! difference between two times. If the control does not scale, or if two times of the same work
//! differ, the round is not valid.

/// The least scaling of the control on two threads.
const CONTROL_MIN: f64 = 1.7;

/// The largest scaling of the control, divided by the number of threads. If the scaling is larger,
/// the measurement on one thread was disturbed.
const CONTROL_MAX: f64 = 1.1;

/// The largest ratio of two times of the same work in one round.
const APART_MAX: f64 = 1.15;

/// Nanoseconds per operation of one thread in one round; each value is the mean of two times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// The number of threads of the control and of the shared layer.
    pub threads: usize,
    /// The time of one thread alone.
    pub alone: f64,
    /// The time on all threads, each on its own layer.
    pub control: f64,
    /// The time on all threads on one layer.
    pub shared: f64,
    /// Whether the two times of each measurement are close to each other.
    is_even: bool,
}

impl Times {
    /// The times of `threads` threads: alone, control and shared, from the first half of the round and
    /// from the second.
    pub fn new(threads: usize, there: [f64; 3], back: [f64; 3]) -> Times {
        let [alone, control, shared] = [0, 1, 2].map(|at| f64::midpoint(there[at], back[at]));
        let mut pairs = there.into_iter().zip(back);
        let is_even = pairs.all(|(one, other)| one.max(other) <= APART_MAX * one.min(other));
        Times { threads, alone, control, shared, is_even }
    }

    /// The throughput of the control on all threads, divided by the throughput of one thread alone.
    pub fn control_scaling(&self) -> f64 {
        self.threads as f64 * self.alone / self.control
    }

    /// The throughput of the shared layer on all threads, divided by the throughput of one thread
    /// alone.
    pub fn scaling(&self) -> f64 {
        self.threads as f64 * self.alone / self.shared
    }

    /// Whether the round is valid: the host ran all threads at the same time and delayed none of
    /// them.
    pub fn count(&self) -> bool {
        let threads = self.threads as f64;
        let wanted = CONTROL_MIN / 2.0 * threads..=CONTROL_MAX * threads;
        self.is_even && wanted.contains(&self.control_scaling())
    }
}

/// The item with the median `number`; for an even number of items, the larger of the two in the
/// middle.
///
/// # Panics
///
/// Panics if there is no item.
pub fn middle<T>(items: impl Iterator<Item = T>, number: impl Fn(&T) -> f64) -> T {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable_by(|a, b| number(a).total_cmp(&number(b)));
    let at = items.len() / 2;
    items.swap_remove(at)
}

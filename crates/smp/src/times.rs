//! Which rounds on this host say something about locks.
//!
//! ```text
//!   alone      1 thread                      |  a round:  alone  control  shared
//!   control    n threads, each on its own    |            shared  control  alone
//!   shared     n threads on one HAT layer    |
//! ```
//!
//! The control does the same work without a lock or a line in common. Where even that does not come
//! to 1.7 times on two threads, the host's cores are busy elsewhere or share too much, and no number
//! of the shared layer says anything about its locks. Each of the three is timed twice in a round, on
//! the way there and on the way back. What held up one of the two shows in their difference. In both
//! cases the round does not count.

/// The control on two threads must reach this many times what it does on one.
const CONTROL_MIN: f64 = 1.7;

/// And no more than this many times as often as there are threads: what does, was held up on one.
const CONTROL_MAX: f64 = 1.1;

/// Two times of the same work in one round are at most so far apart.
const APART_MAX: f64 = 1.15;

/// Nanoseconds of an operation of one thread in one round, the means of two times each.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Times {
    /// Threads of the control and of the shared layer.
    pub threads: usize,
    /// Of one thread.
    pub alone: f64,
    /// Of all threads, each on a layer of its own.
    pub control: f64,
    /// Of all threads on one layer.
    pub shared: f64,
    /// Whether the two times of each are close to each other.
    is_even: bool,
}

impl Times {
    /// The times of `threads`: alone, of the control and shared, on the way there and on the way back.
    pub fn new(threads: usize, there: [f64; 3], back: [f64; 3]) -> Times {
        let [alone, control, shared] = [0, 1, 2].map(|at| f64::midpoint(there[at], back[at]));
        let mut pairs = there.into_iter().zip(back);
        let is_even = pairs.all(|(one, other)| one.max(other) <= APART_MAX * one.min(other));
        Times { threads, alone, control, shared, is_even }
    }

    /// What the control does on all threads over what one thread does alone.
    pub fn control_scaling(&self) -> f64 {
        self.threads as f64 * self.alone / self.control
    }

    /// What the shared layer does on all threads over what one thread does alone.
    pub fn scaling(&self) -> f64 {
        self.threads as f64 * self.alone / self.shared
    }

    /// Whether the host let as many threads run at once and held up none, so that the round says something of the
    /// locks.
    pub fn count(&self) -> bool {
        let threads = self.threads as f64;
        let wanted = CONTROL_MIN / 2.0 * threads..=CONTROL_MAX * threads;
        self.is_even && wanted.contains(&self.control_scaling())
    }
}

/// The item with the median `number`; of an even count the upper one of the two in the middle.
///
/// # Panics
///
/// There is no item.
pub fn middle<T>(items: impl Iterator<Item = T>, number: impl Fn(&T) -> f64) -> T {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable_by(|a, b| number(a).total_cmp(&number(b)));
    let at = items.len() / 2;
    items.swap_remove(at)
}

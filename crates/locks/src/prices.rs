//! The duration of locks, cache-line transfers and sleep on this host, measured so that virtual time can
//! predict its threads.
//!
//! ```text
//!   lock       one thread: take, give back, take, give back ...               half a round
//!   transfer   two threads: a line goes to and fro, each writes it in turn     half a round
//!   release    two threads: one has a lock, the other spins for it             giving it back
//!   handover   the same                                                        from then to having it, at least
//!   pause      one thread: what passes between two tries; and the line fetched for the next
//! ```
//!
//! Each duration is measured in many short batches. A batch of `transfer` shows the cost of a line
//! only if both threads run at the same time on different processors. If the host has put both on
//! one processor, or one of them waits for a processor, a batch takes as long as the host's time
//! slice. Such batches are discarded (`TRANSFER_MAX_NS`), and new threads try again, for a while.
//! Without valid batches there is no price.
//!
//! Work is counted in cycles of virtual time, one per instruction. The duration of a cycle differs
//! between loads, since their cache misses differ: it is derived from the duration of an operation on
//! one thread.

use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use hat::locking::{Class, Mutex as _, Site};
use serde::Serialize;

use crate::{costs::Costs, native::NativeMutex, waiting::pause};

/// In a batch with a longer transfer time, the two threads did not run at the same time:
/// present-day processors exchange a line in some hundred ns.
const TRANSFER_MAX_NS: f64 = 1000.0;

/// If two prices of a line differ by more than this factor, the distance between the two processors
/// changed from one measurement to the next: for example, the processors were first in one core and
/// then in two, or first in one socket and then in two.
const TRANSFER_CHANGE_MAX: f64 = 1.5;

/// The least number of valid batches for a price.
const BATCHES_MIN: usize = 64;

/// The time for which one pair of threads exchanges a line.
const WINDOW: Duration = Duration::from_millis(5);

/// The largest number of pairs of threads that are tried, one after the other.
const PAIRS_MAX: usize = 40;

/// Durations on the host, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct HostPrices {
    /// Taking an uncontended lock, or releasing it.
    pub lock_ns: f64,
    /// Fetching a cache line that another thread wrote last.
    pub transfer_ns: f64,
    /// Releasing a lock while another thread spins for it and has its cache line.
    pub release_ns: f64,
    /// The time from a release until a spinning thread that tries at that moment has the lock.
    pub handover_ns: f64,
    /// The time from one attempt of a spinning thread to its next attempt; each attempt takes the
    /// cache line from the lock's holder.
    pub pause_ns: f64,
}

impl HostPrices {
    /// Measures all durations, which takes some hundredths of a second, or about half a second if
    /// the host is busy. `None` if no two threads ran at the same time while it measured.
    pub fn measured() -> Option<HostPrices> {
        let transfer_ns = transfer()?;
        let (releases, handovers) = handovers();
        let release_ns = quantile(&releases, 0.5).max(0.0);
        let handover_ns = quantile(&handovers, 0.1);
        if release_ns.max(handover_ns) > TRANSFER_MAX_NS {
            return None;
        }
        Some(HostPrices {
            lock_ns: quantile(&lock(), 0.25),
            transfer_ns,
            release_ns,
            handover_ns,
            pause_ns: timed(pause) + release_ns,
        })
    }

    /// Whether the distance between the two processors is the same as for `before`: the transfer of
    /// a line takes about the same time.
    pub fn are_those_of(&self, before: &HostPrices) -> bool {
        let ratio = self.transfer_ns / before.transfer_ns;
        (1.0 / TRANSFER_CHANGE_MAX..=TRANSFER_CHANGE_MAX).contains(&ratio)
    }

    /// The prices in cycles of `cycle_ns` each.
    pub fn costs(&self, cycle_ns: f64) -> Costs {
        let cycles = |ns: f64| (ns / cycle_ns).round() as u64;
        Costs {
            lock: cycles(self.lock_ns),
            transfer: cycles(self.transfer_ns),
            release: cycles(self.release_ns),
            handover: cycles(self.handover_ns),
            pause: cycles(self.pause_ns),
            ..Costs::HOST
        }
    }
}

/// The quantile `share` of `batches`, where 0.5 is the median.
fn quantile(batches: &[f64], share: f64) -> f64 {
    let mut sorted = batches.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[(share * batches.len() as f64) as usize]
}

/// Adds to `sane` those of `batches` in which both threads ran. Returns the price, once there are
/// enough batches.
fn price(sane: &mut Vec<f64>, batches: Vec<f64>) -> Option<f64> {
    sane.extend(batches.into_iter().filter(|&ns| ns <= TRANSFER_MAX_NS));
    (sane.len() >= BATCHES_MIN).then(|| quantile(sane, 0.25))
}

/// The duration of `f` in nanoseconds.
pub fn timed<R>(f: impl Fn() -> R) -> f64 {
    const TIMES: u32 = 4096;
    let began = Instant::now();
    (0..TIMES).for_each(|_| _ = std::hint::black_box(f()));
    began.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

fn lock() -> Vec<f64> {
    const BATCHES: usize = 64;
    const TIMES: u64 = 1000;
    let lock = NativeMutex::new(Class::Hat, 0_u64);
    let batch = || {
        let began = Instant::now();
        for _ in 0..TIMES {
            lock.with(Site::Look, |value| *value = std::hint::black_box(*value + 1));
        }
        began.elapsed().as_nanos() as f64 / (2 * TIMES) as f64
    };
    (0..BATCHES).map(|_| batch()).collect()
}

fn transfer() -> Option<f64> {
    let mut sane = Vec::new();
    (0..PAIRS_MAX).find_map(|_| price(&mut sane, pair()))
}

/// Measures transfers of a line between one pair of threads. Returns the duration of a transfer in
/// each batch, in nanoseconds.
fn pair() -> Vec<f64> {
    /// The value of the shared line at which the threads stop.
    const STOP: u64 = u64::MAX;
    /// The number of transfers per batch.
    const BATCH: u64 = 64;
    let line = AtomicU64::new(0);
    // The threads do not yield here: two threads that yielded to each other on one processor would
    // both stay on it.
    let turn = |odd: u64| {
        loop {
            let value = line.load(Ordering::Acquire);
            if value == STOP || value % 2 == odd {
                return value;
            }
            spin_loop();
        }
    };
    let mut batches = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                match turn(1) {
                    STOP => break,
                    value => line.store(value + 1, Ordering::Release),
                }
            }
        });
        let began = Instant::now();
        let mut last = began;
        while began.elapsed() < WINDOW {
            for _ in 0..BATCH / 2 {
                let value = turn(0);
                line.store(value + 1, Ordering::Release);
            }
            let now = Instant::now();
            batches.push((now - last).as_nanos() as f64 / BATCH as f64);
            last = now;
        }
        turn(0);
        line.store(STOP, Ordering::Release);
    });
    batches
}

/// Two durations in nanoseconds: of a release, and from the release until the other thread has the
/// lock.
fn handovers() -> (Vec<f64>, Vec<f64>) {
    const TIMES: u64 = 128;
    /// How long the lock is held: long enough for the other thread to spin, and too short for it to
    /// sleep.
    const HELD: Duration = Duration::from_micros(2);
    let began = Instant::now();
    let now = || began.elapsed().as_nanos() as f64;
    // The duration of reading the clock, which is part of each measured time.
    let clock = timed(Instant::now);
    let lock = NativeMutex::new(Class::Hat, ());
    let turn = AtomicU64::new(0);
    let wait_for = |wanted| {
        while turn.load(Ordering::Acquire) != wanted {
            spin_loop();
        }
    };
    thread::scope(|scope| {
        let giver = scope.spawn(|| {
            let give = |round| {
                wait_for(2 * round);
                let since = lock.with(Site::Look, |()| {
                    turn.store(2 * round + 1, Ordering::Release);
                    let since = Instant::now();
                    while since.elapsed() < HELD {
                        spin_loop();
                    }
                    now()
                });
                (since, now())
            };
            (0..TIMES).map(give).collect::<Vec<_>>()
        });
        let had = (0..TIMES).map(|round| {
            wait_for(2 * round + 1);
            let at = lock.with(Site::Look, |()| now());
            turn.store(2 * round + 2, Ordering::Release);
            at
        });
        let had: Vec<f64> = had.collect();
        let gave = giver.join().unwrap_or_default();
        let releases = gave.iter().map(|(since, until)| until - since - clock);
        let handovers = gave.iter().zip(had).map(|((_, until), had)| had - until);
        (releases.collect(), handovers.map(|ns| ns.max(0.0)).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses batches that were observed when both threads were on one processor, and batches
    /// observed under load.
    #[test]
    fn a_line_has_no_price_where_threads_take_turns_on_a_processor() {
        let mut sane = Vec::new();
        assert_eq!(price(&mut sane, vec![95_000.0; 1000]), None);
        assert_eq!(price(&mut sane, [vec![150.0; 40], vec![9600.0; 400]].concat()), None);
        // Batches of several pairs of threads are combined.
        assert_eq!(
            price(&mut sane, [vec![8e6; 5], vec![140.0; 23], vec![180.0]].concat()),
            Some(140.0)
        );
    }

    #[test]
    fn prices_can_be_believed_or_are_none() {
        if let Some(of) = HostPrices::measured() {
            assert!((1.0..=TRANSFER_MAX_NS).contains(&of.transfer_ns), "{of:?}");
            assert!(of.lock_ns > 0.0 && of.pause_ns > 0.0, "{of:?}");
        }
    }
}

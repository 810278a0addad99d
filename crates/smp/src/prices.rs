//! What locks, lines and sleep take on this host: measured, so that virtual time can say what its threads do.
//!
//! ```text
//!   lock       one thread: take, give back, take, give back ...               half a round
//!   transfer   two threads: a line goes to and fro, each writes it in turn     half a round
//!   handover   two threads: one has a lock, the other spins for it             from giving back to having
//!   sleep      two threads: one sleeps on a condition, the other wakes it      half a round
//! ```
//!
//! Each is timed in many short batches. A batch of `transfer` shows a line's price only if both threads run
//! at once, each on a processor. Where the host has put both on one, or one of them waits for a processor, a
//! batch takes as long as the host's slice of time. Such batches are thrown away ([`TRANSFER_MAX_NS`]), and new
//! threads try again, for a while. Without batches that can be believed there is no price.
//!
//! Work is counted in cycles of virtual time, which are instructions. How long one takes differs between
//! loads by what they find in caches: it follows from what an operation takes on one thread.

use std::{
    hint::spin_loop,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use hat::locking::{Class, Mutex as _, Site};
use serde::Serialize;

use crate::{costs::Costs, native::NativeMutex};

/// Above this the two threads did not run at once: sockets of today exchange a line in some hundred ns.
const TRANSFER_MAX_NS: f64 = 1000.0;

/// Batches that show a price, at least.
const BATCHES_MIN: usize = 64;

/// How long one pair of threads sends a line to and fro.
const WINDOW: Duration = Duration::from_millis(5);

/// How often new pairs try it.
const PAIRS_MAX: usize = 40;

/// Nanoseconds of the host.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct HostPrices {
    /// A lock taken, or given back, that nobody else wants.
    pub lock_ns: f64,
    /// A line fetched that another thread wrote last.
    pub transfer_ns: f64,
    /// From a lock's being given back until the thread has it that has spun for it.
    pub handover_ns: f64,
    /// A thread put to sleep and woken.
    pub sleep_ns: f64,
}

impl HostPrices {
    /// Measures them, which takes some hundredths of a second; half a second or so where the host is busy. `None`
    /// where two threads do not run at once in all that time.
    pub fn measured() -> Option<HostPrices> {
        Some(HostPrices {
            transfer_ns: transfer()?,
            handover_ns: quantile(handover(), 2),
            lock_ns: quantile(lock(), 4),
            sleep_ns: quantile(sleep(), 2),
        })
    }

    /// In cycles that take `cycle_ns` each.
    pub(crate) fn costs(&self, cycle_ns: f64) -> Costs {
        let cycles = |ns: f64| (ns / cycle_ns).round() as u64;
        Costs {
            lock: cycles(self.lock_ns),
            transfer: cycles(self.transfer_ns),
            handover: cycles(self.handover_ns),
            sleep: cycles(self.sleep_ns),
            ..Costs::HOST
        }
    }
}

/// What one in `parts` of `batches` takes at most.
fn quantile(mut batches: Vec<f64>, parts: usize) -> f64 {
    batches.sort_unstable_by(f64::total_cmp);
    batches[batches.len() / parts]
}

/// Adds to `sane` those of `batches` in which both threads ran; the price, once there are enough.
fn price(sane: &mut Vec<f64>, batches: Vec<f64>) -> Option<f64> {
    sane.extend(batches.into_iter().filter(|&ns| ns <= TRANSFER_MAX_NS));
    (sane.len() >= BATCHES_MIN).then(|| quantile(sane.clone(), 4))
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

/// Nanoseconds of a line's transfer in each batch of one pair of threads.
fn pair() -> Vec<f64> {
    /// Of the line: nobody goes on.
    const STOP: u64 = u64::MAX;
    /// Transfers of a batch.
    const BATCH: u64 = 64;
    let line = AtomicU64::new(0);
    // Nobody gives up the processor here: two threads that take turns on one would stay there.
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

fn handover() -> Vec<f64> {
    const TIMES: u64 = 128;
    /// How long the lock is held: the other spins for it meanwhile, and does not sleep yet.
    const HELD: Duration = Duration::from_micros(2);
    let began = Instant::now();
    let now = || began.elapsed().as_nanos() as u64;
    let given_back = NativeMutex::new(Class::Hat, 0);
    let turn = AtomicU64::new(0);
    let wait_for = |wanted| {
        while turn.load(Ordering::Acquire) != wanted {
            spin_loop();
        }
    };
    let mut times = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..TIMES {
                wait_for(2 * round);
                given_back.with(Site::Look, |at| {
                    turn.store(2 * round + 1, Ordering::Release);
                    let since = Instant::now();
                    while since.elapsed() < HELD {
                        spin_loop();
                    }
                    *at = now();
                });
            }
        });
        for round in 0..TIMES {
            wait_for(2 * round + 1);
            times.push(given_back.with(Site::Look, |at| (now() - *at) as f64));
            turn.store(2 * round + 2, Ordering::Release);
        }
    });
    times
}

fn sleep() -> Vec<f64> {
    const TIMES: u64 = 200;
    let turn = Mutex::new(0_u64);
    let changed = Condvar::new();
    let go_on = |wanted: u64| {
        let mut at = turn.lock().unwrap_or_else(PoisonError::into_inner);
        while *at != wanted {
            at = changed.wait(at).unwrap_or_else(PoisonError::into_inner);
        }
        *at += 1;
        changed.notify_one();
    };
    let mut batches = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| (0..TIMES).for_each(|round| go_on(2 * round + 1)));
        for round in 0..TIMES {
            let began = Instant::now();
            go_on(2 * round);
            batches.push(began.elapsed().as_nanos() as f64 / 2.0);
        }
    });
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was seen where both threads were on one processor, and under load.
    #[test]
    fn a_line_has_no_price_where_threads_take_turns_on_a_processor() {
        let mut sane = Vec::new();
        assert_eq!(price(&mut sane, vec![95_000.0; 1000]), None);
        assert_eq!(price(&mut sane, [vec![150.0; 40], vec![9600.0; 400]].concat()), None);
        // Batches of several pairs come together.
        assert_eq!(
            price(&mut sane, [vec![8e6; 5], vec![140.0; 23], vec![180.0]].concat()),
            Some(140.0)
        );
    }

    #[test]
    fn prices_can_be_believed_or_are_none() {
        if let Some(of) = HostPrices::measured() {
            assert!((1.0..=TRANSFER_MAX_NS).contains(&of.transfer_ns), "{of:?}");
            assert!(of.lock_ns > 0.0 && of.sleep_ns > 0.0, "{of:?}");
        }
    }
}

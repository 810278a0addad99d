//! What locks, lines and sleep take on this host: measured, so that virtual time can say what its threads do.
//!
//! ```text
//!   lock       one thread: take, give back, take, give back ...               half a round
//!   transfer   two threads: a line goes to and fro, each writes it in turn     half a round
//!   sleep      two threads: one sleeps on a condition, the other wakes it      half a round
//! ```
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
    time::Instant,
};

use hat::locking::{Class, Mutex as _, Site};
use serde::Serialize;

use crate::{costs::Costs, native::NativeMutex};

/// Rounds of each measurement, the shortest of which counts: what held up the others is not the price.
const ROUNDS: usize = 5;

/// Nanoseconds of the host.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct HostPrices {
    /// A lock taken, or given back, that nobody else wants.
    pub lock_ns: f64,
    /// A line fetched that another thread wrote last.
    pub transfer_ns: f64,
    /// A thread put to sleep and woken.
    pub sleep_ns: f64,
}

impl HostPrices {
    /// Measures them, which takes some hundredths of a second.
    pub fn measured() -> HostPrices {
        HostPrices {
            lock_ns: shortest(lock),
            transfer_ns: shortest(transfer),
            sleep_ns: shortest(sleep),
        }
    }

    /// In cycles that take `cycle_ns` each.
    pub(crate) fn costs(&self, cycle_ns: f64) -> Costs {
        let cycles = |ns: f64| (ns / cycle_ns).round() as u64;
        Costs {
            lock: cycles(self.lock_ns),
            transfer: cycles(self.transfer_ns),
            sleep: cycles(self.sleep_ns),
            ..Costs::HOST
        }
    }
}

fn shortest(of: fn() -> f64) -> f64 {
    (0..ROUNDS).map(|_| of()).fold(f64::INFINITY, f64::min)
}

fn lock() -> f64 {
    const TIMES: u64 = 100_000;
    let lock = NativeMutex::new(Class::Hat, 0_u64);
    let began = Instant::now();
    for _ in 0..TIMES {
        lock.with(Site::Look, |value| *value = std::hint::black_box(*value + 1));
    }
    began.elapsed().as_nanos() as f64 / (2 * TIMES) as f64
}

fn transfer() -> f64 {
    const TIMES: u64 = 20_000;
    let line = AtomicU64::new(0);
    let turns = |odd: u64| {
        for turn in 0..TIMES {
            let mut spins = 0_u32;
            while line.load(Ordering::Acquire) != 2 * turn + odd {
                spin_loop();
                spins += 1;
                // The other may not run at all now.
                if spins.is_multiple_of(1 << 14) {
                    thread::yield_now();
                }
            }
            line.fetch_add(1, Ordering::AcqRel);
        }
    };
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| turns(1));
        turns(0);
    });
    began.elapsed().as_nanos() as f64 / (2 * TIMES) as f64
}

fn sleep() -> f64 {
    const TIMES: u64 = 200;
    let turn = Mutex::new(0_u64);
    let changed = Condvar::new();
    let turns = |odd: u64| {
        for number in 0..TIMES {
            let mut at = turn.lock().unwrap_or_else(PoisonError::into_inner);
            while *at != 2 * number + odd {
                at = changed.wait(at).unwrap_or_else(PoisonError::into_inner);
            }
            *at += 1;
            changed.notify_one();
        }
    };
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| turns(1));
        turns(0);
    });
    began.elapsed().as_nanos() as f64 / (2 * TIMES) as f64
}

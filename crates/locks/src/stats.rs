//! The cost of locks: acquisitions, waits and holds, by class; and how processors' time was used.

use std::{collections::BTreeMap, ops::AddAssign};

use hat::locking::Class;
use serde::Serialize;

/// The number of powers of two that a histogram distinguishes.
const BUCKETS: usize = 40;

/// A histogram of durations in cycles. Bucket n has the number of durations from 2^(n-1) to 2^n -
/// 1; the first bucket has the zeros.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Histogram {
    /// The number of durations.
    pub count: u64,
    /// The sum of all durations.
    pub cycles: u64,
    /// The number of durations for each power of two; empty buckets at the end are omitted.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// Adds a duration.
    pub fn add(&mut self, cycles: u64) {
        self.count += 1;
        self.cycles += cycles;
        let bucket = (64 - cycles.leading_zeros() as usize).min(BUCKETS - 1);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }

    /// The mean duration in cycles; 0 if no durations were counted.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.cycles as f64 / self.count as f64 }
    }
}

impl AddAssign<&Histogram> for Histogram {
    fn add_assign(&mut self, other: &Histogram) {
        let Histogram { count, cycles, buckets } = other;
        self.count += count;
        self.cycles += cycles;
        if buckets.len() > self.buckets.len() {
            self.buckets.resize(buckets.len(), 0);
        }
        for (own, others) in self.buckets.iter_mut().zip(buckets) {
            *own += others;
        }
    }
}

/// The cost of the locks of one class.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ClassCounts {
    /// The number of times a lock of the class was taken.
    pub acquisitions: u64,
    /// The number of times a lock of the class was found held by another thread.
    pub contended: u64,
    /// The number of acquisitions of a lock that another processor had held last, so that the
    /// lock's cache line had to be fetched.
    pub transfers: u64,
    /// Cycles from the request to the acquisition, for locks that were found held.
    pub waits: Histogram,
    /// Cycles from the acquisition to the release.
    pub holds: Histogram,
}

impl AddAssign<&ClassCounts> for ClassCounts {
    fn add_assign(&mut self, other: &ClassCounts) {
        let ClassCounts { acquisitions, contended, transfers, waits, holds } = other;
        self.acquisitions += acquisitions;
        self.contended += contended;
        self.transfers += transfers;
        self.waits += waits;
        self.holds += holds;
    }
}

/// How the cycles of all processors were used. The sum of all fields is the number of processors
/// times the cycles until the last processor ended its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TimeUse {
    /// Work: of the load itself, the memory manager and the HAT layer.
    pub work_cycles: u64,
    /// Taking and releasing locks, including the transfer of their cache lines from other
    /// processors.
    pub lock_cycles: u64,
    /// Waiting for locks and busy descriptors, without the time of interrupts that arrive during
    /// the wait.
    pub wait_cycles: u64,
    /// Sending shootdowns, waiting for answers, flushing caches.
    pub shootdown_cycles: u64,
    /// Answering shootdowns of other processors.
    pub interrupt_cycles: u64,
    /// Idle cycles from the end of the processor's own work to the end of the last processor's
    /// work.
    pub ended_cycles: u64,
}

impl TimeUse {
    /// The sum of all parts.
    pub fn sum(&self) -> u64 {
        self.parts().iter().sum()
    }

    fn parts(&self) -> [u64; 6] {
        let TimeUse {
            work_cycles,
            lock_cycles,
            wait_cycles,
            shootdown_cycles,
            interrupt_cycles,
            ended_cycles,
        } = *self;
        [work_cycles, lock_cycles, wait_cycles, shootdown_cycles, interrupt_cycles, ended_cycles]
    }
}

impl AddAssign<&TimeUse> for TimeUse {
    fn add_assign(&mut self, other: &TimeUse) {
        let [work, lock, wait, shootdown, interrupt, ended] = other.parts();
        self.work_cycles += work;
        self.lock_cycles += lock;
        self.wait_cycles += wait;
        self.shootdown_cycles += shootdown;
        self.interrupt_cycles += interrupt;
        self.ended_cycles += ended;
    }
}

/// The counts of all classes.
pub type LockCounts = BTreeMap<Class, ClassCounts>;

/// Cycles of work by the class of the lock under which the work was done. If several locks were
/// held, that is the lock taken last. `None` has the work without a lock.
pub type WorkIn = BTreeMap<Option<Class>, u64>;

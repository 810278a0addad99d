//! What locks have cost: acquisitions, waits and holds, by class; and where processors' time has gone.

use std::{collections::BTreeMap, ops::AddAssign};

use hat::locking::Class;
use serde::Serialize;

/// Powers of two that a histogram tells apart.
const BUCKETS: usize = 40;

/// Times in cycles. Bucket n has how many lie from 2^(n-1) to 2^n - 1, the first has zeros.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Histogram {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub cycles: u64,
    /// How many by powers of two; empty ones at the end are left out.
    pub buckets: Vec<u64>,
}

impl Histogram {
    /// One more.
    pub fn add(&mut self, cycles: u64) {
        self.count += 1;
        self.cycles += cycles;
        let bucket = (64 - cycles.leading_zeros() as usize).min(BUCKETS - 1);
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }

    /// Their mean; 0 of none.
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

/// What the locks of one class have cost.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ClassCounts {
    /// How often one was taken.
    pub acquisitions: u64,
    /// How often it was found held by another.
    pub contended: u64,
    /// How often another processor had it last, so that its line had to be fetched.
    pub transfers: u64,
    /// Cycles from asking to having, where it was found held.
    pub waits: Histogram,
    /// Cycles from having to giving back.
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

/// Where the cycles of all processors have gone. The sum is their number times the cycles until the last
/// had ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct TimeUse {
    /// Work: the load's own, the memory manager's and the layer's.
    pub work_cycles: u64,
    /// Locks taken and given back, lines that another processor had among it.
    pub lock_cycles: u64,
    /// Waiting for locks and busy descriptors, but for what interrupts took of it.
    pub wait_cycles: u64,
    /// Sending shootdowns, waiting for the answers, flushing caches.
    pub shootdown_cycles: u64,
    /// Answering other processors' shootdowns.
    pub interrupt_cycles: u64,
    /// After the processor's own end, until that of the last.
    pub ended_cycles: u64,
}

impl TimeUse {
    /// All of it.
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

/// All classes.
pub type LockCounts = BTreeMap<Class, ClassCounts>;

/// Cycles of work in which a lock of the class was the last taken of those held; `None`: no lock.
pub type WorkIn = BTreeMap<Option<Class>, u64>;

//! What locks have cost: acquisitions, waits and holds, by class.

use std::{collections::BTreeMap, ops::AddAssign};

use hat::locking::Class;
use serde::Serialize;

/// Powers of two that a histogram tells apart.
const BUCKETS: usize = 40;

/// Times in cycles: how many, their sum, and how many lie from 2^(n-1) to 2^n - 1; the first bucket
/// has zeros.
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
        self.count += other.count;
        self.cycles += other.cycles;
        if other.buckets.len() > self.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (own, others) in self.buckets.iter_mut().zip(&other.buckets) {
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
    /// Cycles from asking to having, where it was found held.
    pub waits: Histogram,
    /// Cycles from having to giving back.
    pub holds: Histogram,
}

impl AddAssign<&ClassCounts> for ClassCounts {
    fn add_assign(&mut self, other: &ClassCounts) {
        self.acquisitions += other.acquisitions;
        self.contended += other.contended;
        self.waits += &other.waits;
        self.holds += &other.holds;
    }
}

/// All classes.
pub type LockCounts = BTreeMap<Class, ClassCounts>;

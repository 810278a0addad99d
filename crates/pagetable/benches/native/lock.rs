use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::work::{Order, PAGE_BYTES, REGION_PAGES};

/// The number of entries in a table of the lowest level.
const TABLE_ENTRIES: u64 = 512;

/// Measures the cost of a locked instruction by two loops over the entries of all pages: one
/// changes each entry by a plain store, the other by a compare-and-exchange.
pub(crate) struct Lock {
    /// The entries of tables of the lowest level, laid out as in each measured table.
    entries: Vec<AtomicU64>,
    /// The indices of the pages' entries, in the order in which operations on single pages use
    /// them.
    order: Vec<u32>,
    plain: Duration,
    locked: Duration,
}

impl Lock {
    pub(crate) fn new(order: &Order) -> Lock {
        let place = |page: u64| {
            let table = order.region_of(page) * TABLE_ENTRIES;
            (table + page / PAGE_BYTES % REGION_PAGES) as u32
        };
        let order: Vec<u32> = order.pages().iter().map(|&page| place(page)).collect();
        let tables = order.len() as u64 / REGION_PAGES;
        let entries = (0..tables * TABLE_ENTRIES).map(AtomicU64::new).collect();
        Lock { entries, order, plain: Duration::MAX, locked: Duration::MAX }
    }

    pub(crate) fn round(&mut self) {
        let Lock { entries, order, plain, locked } = self;
        let time = |change: &dyn Fn(&[AtomicU64], &[u32])| {
            let start = Instant::now();
            change(entries, order);
            start.elapsed()
        };
        *plain = time(&store).min(*plain);
        *locked = time(&exchange).min(*locked);
    }

    /// The additional nanoseconds of an exchange, compared with a plain store.
    pub(crate) fn nanoseconds(&self) -> f64 {
        let extra = self.locked.saturating_sub(self.plain);
        extra.as_secs_f64() * 1e9 / self.order.len() as f64
    }
}

#[inline(never)]
fn store(entries: &[AtomicU64], order: &[u32]) {
    for &place in order {
        let entry = &entries[place as usize];
        entry.store(entry.load(Relaxed) ^ 2, Relaxed);
    }
}

#[inline(never)]
fn exchange(entries: &[AtomicU64], order: &[u32]) {
    for &place in order {
        let entry = &entries[place as usize];
        let found = entry.load(Relaxed);
        _ = black_box(entry.compare_exchange(found, found ^ 2, Relaxed, Relaxed));
    }
}

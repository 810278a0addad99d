//! The code of the library that reports allocations. Its accesses are not recorded.

use core::sync::atomic::{AtomicU64, Ordering};

/// The address range of the library's code: the first address, and the end.
static CODE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether `pc` is in the library's code.
pub(crate) fn holds(pc: u64) -> bool {
    let [start, end] = &CODE;
    (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&pc)
}

/// Called for an executable mapping of the file at `path`, of `bytes` bytes at the address `start`.
/// The library's path begins with `stem`, which is empty if no library is used.
pub(crate) fn mapped(stem: &[u8], path: &[u8], start: u64, bytes: u64) {
    if !stem.is_empty() && path.starts_with(stem) {
        // The end is stored first, so that other code never seems to be between the two addresses.
        CODE[1].store(start.saturating_add(bytes), Ordering::Relaxed);
        CODE[0].store(start, Ordering::Relaxed);
    }
}

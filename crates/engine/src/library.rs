//! The code of the library that marks allocations, whose accesses are left out.

use core::sync::atomic::{AtomicU64, Ordering};

/// The address range of the library's code: the first address, and the end.
static CODE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether `pc` is in the library's code.
pub(crate) fn holds(pc: u64) -> bool {
    let [start, end] = &CODE;
    (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&pc)
}

/// Takes note of an executable mapping of `bytes` bytes from `start` of the file at `path`. The library's path begins with
/// `stem`, which is empty if there is none.
pub(crate) fn mapped(stem: &[u8], path: &[u8], start: u64, bytes: u64) {
    if !stem.is_empty() && path.starts_with(stem) {
        // The end first, so that at no time other code seems to be between them.
        CODE[1].store(start.saturating_add(bytes), Ordering::Relaxed);
        CODE[0].store(start, Ordering::Relaxed);
    }
}

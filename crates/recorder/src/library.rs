//! The code of the library `preload/allocations.c`, which reports allocations ([`ring::Said`]) and is not recorded.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::global;

/// The address range of the library's code: the first address, and the end.
static LIBRARY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether `pc` is in the library's code.
pub(crate) fn is_library(pc: u64) -> bool {
    let [start, end] = &LIBRARY;
    (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&pc)
}

/// Called for an executable mapping of the file at `path`, of `bytes` bytes at the address `start`.
/// Remembers the address range if the file is the library.
pub(crate) fn mapped(path: &[u8], start: u64, bytes: u64) {
    let stem = global::shared().session().allocations.split(|&byte| byte == 0).next();
    if stem.is_some_and(|stem| !stem.is_empty() && path.starts_with(stem)) {
        // The end is stored first, so that other code never seems to be between the two addresses.
        LIBRARY[1].store(start.saturating_add(bytes), Ordering::Relaxed);
        LIBRARY[0].store(start, Ordering::Relaxed);
    }
}

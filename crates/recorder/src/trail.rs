//! Data that the last block has left, if its accesses are counted or may have to be recorded.
//!
//! ```text
//!   the block begins    block = its number, state = 0; its accesses write addresses and old
//!   it has run          clock is moved on; state has its highest bit set if all of it was counted
//! ```

use core::cell::UnsafeCell;

use ring::SPAN_ROOM;

use crate::words::HELD;

/// Data that translated code writes at a known address.
#[repr(C, align(64))]
pub(crate) struct Trail {
    /// The highest bit is set if nothing is to be recorded before the next block.
    pub(crate) state: u64,
    /// The time of the next access: see [`crate::words`].
    pub(crate) clock: u64,
    /// The number of the block.
    pub(crate) block: u64,
    /// The earlier word of the block's fetch, if control flow merges before its first access.
    pub(crate) fetched: u64,
    /// One more than the number of accesses that it has made, if a fault shows that number.
    pub(crate) made: u64,
    /// The earlier values of the words that it has written, in the order of its accesses, the fetch
    /// first.
    pub(crate) old: [u64; SPAN_ROOM],
    /// The addresses that the block records.
    pub(crate) addresses: [u64; SPAN_ROOM],
}

impl Trail {
    /// A state in which nothing is to be recorded.
    pub(crate) const TOLD: u64 = HELD;
    /// A state in which something is to be recorded.
    pub(crate) const UNTOLD: u64 = 0;
}

struct Cell(UnsafeCell<Trail>);

// SAFETY: it is used while the process has one thread, by that.
unsafe impl Sync for Cell {}

static TRAIL: Cell = Cell(UnsafeCell::new(Trail {
    state: Trail::UNTOLD,
    clock: 0,
    block: 0,
    fetched: 0,
    made: 0,
    old: [0; SPAN_ROOM],
    addresses: [0; SPAN_ROOM],
}));

/// The address of the trail.
pub(crate) fn trail() -> *mut Trail {
    TRAIL.0.get()
}

//! The data that the last block has written to memory, if its accesses are counted or may have to
//! be recorded.
//!
//! ```text
//!   a block begins    block = its number, state = 0; its accesses write addresses and old
//!   it has run        clock is advanced; state has its highest bit set if all of it was counted
//! ```

use core::cell::UnsafeCell;

use ring::SPAN_ROOM;

use crate::words::HELD;

/// The data. Translated code writes them at a fixed address.
#[repr(C, align(64))]
pub(crate) struct Trail {
    /// The highest bit is set if nothing is to be recorded before the next block.
    pub(crate) state: u64,
    /// The time of the next access: see [`crate::words`].
    pub(crate) clock: u64,
    /// The number of the block.
    pub(crate) block: u64,
    /// If control flow merges in the block before its first access: the earlier value of the word
    /// for the block's fetch.
    pub(crate) fetched: u64,
    /// If a fault shows how many accesses the block has made: one more than this number.
    pub(crate) made: u64,
    /// The earlier values of the words that the block has changed, in the order of its accesses.
    /// The fetch is first.
    pub(crate) old: [u64; SPAN_ROOM],
    /// The addresses that the block records.
    pub(crate) addresses: [u64; SPAN_ROOM],
}

impl Trail {
    /// The state in which nothing is to be recorded before the next block.
    pub(crate) const TOLD: u64 = HELD;
    /// The state in which something is to be recorded before the next block.
    pub(crate) const UNTOLD: u64 = 0;
}

struct Cell(UnsafeCell<Trail>);

// SAFETY: the trail is used only while the process has one thread, by this thread.
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

//! The table of pages that translated code looks up, and its layout behind the data of a thread.
//!
//! ```text
//!   gs:0x110000   a window of pages that can be read, up to a guard: see [`POLL`]
//!   gs:0x300000   64 bytes for each page of the program's addresses, by its number
//!
//!   3 x loads | 3 x stores | 3 x fetches, instructions | used | fetched | kinds | more
//! ```
//!
//! The table has an address range for all pages; only the part that is written takes memory. An entry whose
//! `kinds` is 0 is of a page that is not held. Counts are those of accesses that were not reported. Each count has
//! three words, and code in different places adds to different words: an addition waits for the last one to the same
//! word, and most accesses are to few pages.

use crate::own;
use crate::state::State;
use crate::sys::{self, nr};

/// The offset of the window that each block reads at its clock. Its end stops the interval of counting; all of
/// it becomes unreadable for a signal.
pub(crate) const POLL: i32 = 0x11_0000;
/// The size of the window in bytes, which limits the clock of an interval.
pub(crate) const POLL_BYTES: u64 = 1 << 20;
/// The size of the guard behind it: no block advances the clock as far.
pub(crate) const GUARD_BYTES: u64 = 1 << 16;
/// The offset of the entry of the page at address 0.
pub(crate) const ENTRIES: i32 = 0x30_0000;

/// For computing the offset of a page's entry from an address: a shift, and a mask for its result.
pub(crate) const SHIFT: u8 = 6;
pub(crate) const MASK: i8 = -64;
/// The number of words of each kind of count.
pub(crate) const SLOTS: usize = 3;
/// The size of the table in bytes.
pub(crate) const BYTES: u64 = 1 << (held::ADDRESS_BITS - SHIFT as u32);

/// The offsets of the first of each kind of count, of 4, 4 and 8 bytes, and of the other fields.
pub(crate) const LOADS: i32 = ENTRIES;
pub(crate) const STORES: i32 = ENTRIES + 12;
pub(crate) const FETCHES: i32 = ENTRIES + 24;
pub(crate) const USED: i32 = ENTRIES + 48;
pub(crate) const FETCHED: i32 = ENTRIES + 52;
pub(crate) const KINDS: i32 = ENTRIES + 56;

/// The number of bits of the fetches in the word that has instructions above them.
const FETCHES_BITS: u32 = 24;

/// Bits of `kinds`: the page is held for loads, for stores, for both of them, for fetches.
pub(crate) const LOADED: u8 = 1;
pub(crate) const STORED: u8 = 2;
pub(crate) const BOTH: u8 = 4;
pub(crate) const RUN: u8 = 8;

/// The slot of the address of a group's first byte at a miss, and of the clock.
pub(crate) const MISS_AT: i32 = 0x180;
pub(crate) const MISS_CLOCK: i32 = 0x188;
/// The slot of the address to continue at after a miss, and of the program's stack pointer meanwhile.
pub(crate) const MISS_BACK: i32 = 0x190;
pub(crate) const MISS_RSP: i32 = 0x198;
/// The slot in which rax, or the stack pointer, is saved while flags are saved in that register.
pub(crate) const KEPT: i32 = 0x1a0;

/// The entry of a page.
#[derive(Default, Debug)]
#[repr(C)]
pub(crate) struct Entry {
    loads: [u32; SLOTS],
    stores: [u32; SLOTS],
    /// See [`run`]; less than 0 between a fetch that was recorded and the code that counts it.
    runs: [u64; SLOTS],
    pub(crate) used: u32,
    pub(crate) fetched: u32,
    pub(crate) kinds: u8,
    pad: [u8; 3],
    /// Fetches of earlier intervals.
    more: u32,
}

/// The value that a run of a block with this number of instructions adds to its word of an entry.
pub(crate) fn run(instructions: u32) -> u64 {
    1 | u64::from(instructions) << FETCHES_BITS
}

/// The number of fetches in a word to which values of [`run`] were added.
fn fetches(runs: u64) -> i64 {
    (runs << (u64::BITS - FETCHES_BITS)) as i64 >> (u64::BITS - FETCHES_BITS)
}

impl Entry {
    /// Counts this number of loads and stores.
    pub(crate) fn count(&mut self, loads: u32, stores: u32) {
        self.loads[0] = self.loads[0].wrapping_add(loads);
        self.stores[0] = self.stores[0].wrapping_add(stores);
    }

    /// Subtracts loads and stores that were counted before.
    pub(crate) fn uncount(&mut self, loads: u32, stores: u32) {
        self.count(loads.wrapping_neg(), stores.wrapping_neg());
    }

    /// Counts a run of a block.
    pub(crate) fn count_run(&mut self, instructions: u32) {
        self.runs[0] = self.runs[0].wrapping_add(run(instructions));
    }

    /// Subtracts a run of a block that was counted before; it may be counted again later.
    pub(crate) fn uncount_run(&mut self, instructions: u32) {
        self.runs[0] = self.runs[0].wrapping_sub(run(instructions));
    }

    /// The largest of the numbers of loads, stores, and fetches of earlier intervals.
    pub(crate) fn most(&self) -> u32 {
        let sum =
            |counts: &[u32]| counts.iter().fold(0, |sum: u32, &count| sum.wrapping_add(count));
        sum(&self.loads).max(sum(&self.stores)).max(self.more)
    }

    /// Returns the number of loads and resets it to 0.
    pub(crate) fn take_loads(&mut self) -> u32 {
        take(&mut self.loads)
    }

    /// Returns the number of stores and resets it to 0.
    pub(crate) fn take_stores(&mut self) -> u32 {
        take(&mut self.stores)
    }

    /// Moves the fetches out of the words that translated code counts in. Returns the instructions.
    pub(crate) fn drain(&mut self) -> u64 {
        let mut instructions = 0u64;
        for runs in core::mem::take(&mut self.runs) {
            let fetches = fetches(runs);
            self.more = self.more.wrapping_add(fetches as u32);
            let rest = runs.wrapping_sub(fetches as u64) as i64 >> FETCHES_BITS;
            instructions = instructions.wrapping_add(rest as u64);
        }
        instructions
    }

    /// The number of fetches of earlier intervals; it is 0 from here on.
    pub(crate) fn take_fetches(&mut self) -> u32 {
        core::mem::take(&mut self.more)
    }

    /// Takes one fetch back that is recorded; false if none is counted here.
    pub(crate) fn uncount_fetch(&mut self) -> bool {
        let count: i64 = self.runs.iter().map(|&runs| fetches(runs)).sum();
        let is_counted = count + i64::from(self.more) > 0;
        self.runs[0] = self.runs[0].wrapping_sub(u64::from(is_counted));
        is_counted
    }
}

/// The sum of counts, which are 0 from here on.
fn take(counts: &mut [u32; SLOTS]) -> u32 {
    core::mem::take(counts).into_iter().fold(0, u32::wrapping_add)
}

const _: () = {
    assert!(size_of::<Entry>() == 64);
    assert!(core::mem::offset_of!(Entry, stores) as i32 == STORES - ENTRIES);
    assert!(core::mem::offset_of!(Entry, runs) as i32 == FETCHES - ENTRIES);
    assert!(core::mem::offset_of!(Entry, used) as i32 == USED - ENTRIES);
    assert!(core::mem::offset_of!(Entry, fetched) as i32 == FETCHED - ENTRIES);
    assert!(core::mem::offset_of!(Entry, kinds) as i32 == KINDS - ENTRIES);
};

/// The bit of `kinds` that an entry must have for a group of accesses with or without loads and
/// stores.
pub(crate) fn needed(loads: bool, stores: bool) -> u8 {
    match (loads, stores) {
        (true, true) => BOTH,
        (_, false) => LOADED,
        (false, true) => STORED,
    }
}

/// The offset of the entry of the page at `address` from the first entry.
pub(crate) fn offset(address: u64) -> u64 {
    address >> SHIFT & MASK as i64 as u64
}

/// The table behind a thread's data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table(State);

impl Table {
    /// The table behind this data, where room for it was left.
    pub(crate) fn new(state: State) -> Table {
        Table(state)
    }

    /// The entry of the page at `address`, which must be one of a program's.
    pub(crate) fn at(self, address: u64) -> *mut Entry {
        debug_assert!(address >> held::ADDRESS_BITS == 0);
        (self.0.0 + ENTRIES as u64 + offset(address)) as *mut Entry
    }

    /// The entry of the page at `address`, for as long as the caller uses no other reference to it.
    #[allow(clippy::mut_from_ref)]
    pub(crate) fn get(&self, address: u64) -> &mut Entry {
        // SAFETY: the entries of all addresses of programs are mapped; only this thread uses them, and each
        // reference is dropped before the next one is made or translated code runs.
        unsafe { &mut *self.at(address) }
    }
}

/// Makes the window readable or not: then the next block stops before it does anything.
pub(crate) fn show(state: State, is_shown: bool) {
    let rights = if is_shown { sys::PROT_READ } else { 0 };
    let window = [state.0 + POLL as u64, POLL_BYTES, rights, 0, 0, 0];
    // SAFETY: the window belongs to the engine.
    unsafe { sys::call(nr::MPROTECT, window) };
}

/// Maps the window behind a thread's data.
pub(crate) fn map_window(state: State) -> Option<()> {
    let kind =
        sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE | sys::MAP_FIXED_NOREPLACE;
    let (window, bytes) = (state.0 + POLL as u64, POLL_BYTES + GUARD_BYTES);
    sys::map(window, bytes, 0, kind, -1, 0).filter(|&at| at == window)?;
    own::note(window, bytes);
    show(state, true);
    Some(())
}

/// Maps the window and the table behind a thread's data.
pub(crate) fn map(state: State) -> Option<()> {
    let kind =
        sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE | sys::MAP_FIXED_NOREPLACE;
    map_window(state)?;
    let table = state.0 + ENTRIES as u64;
    let rights = sys::PROT_READ | sys::PROT_WRITE;
    sys::map(table, BYTES, rights, kind, -1, 0).filter(|&at| at == table)?;
    own::note(table, BYTES);
    const MADV_DONTDUMP: u64 = 16;
    // SAFETY: the table is the engine's. The kernel would look at each page of it for a core file.
    unsafe { sys::call(nr::MADVISE, [table, BYTES, MADV_DONTDUMP, 0, 0, 0]) };
    Some(())
}

/// The size in bytes of the room that is left behind the data of any thread, for the window.
pub(crate) const WINDOW_ROOM_BYTES: u64 = 2 << 20;
const _: () = assert!(
    crate::state::BYTES <= POLL as u64
        && POLL as u64 + POLL_BYTES + GUARD_BYTES <= crate::state::BYTES + WINDOW_ROOM_BYTES
        && POLL as u64 + POLL_BYTES + GUARD_BYTES <= ENTRIES as u64
);
/// The size in bytes of the room that is left behind the data of a thread that may count.
pub(crate) const ROOM_BYTES: u64 = ENTRIES as u64 + BYTES;

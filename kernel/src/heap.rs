//! The kernel's heap: blocks whose sizes are powers of two, cut from one range of memory, and freed to a list
//! for their size.
//!
//! ```text
//!   32 -> [ ] [ ]     64 -> [ ]     128 ->     ...     1M -> [ ]          a list per size, linked in the blocks
//!   begin ....... next .................................. end             what was never cut
//! ```
//!
//! The crates' data on spaces and frames is allocated here, so the kernel must refuse work before the heap is
//! full: an operation that could allocate is refused if less than [`RESERVE`] is left ([`has_room`]). The
//! kernel never panics for lack of memory.

use core::{
    alloc::{GlobalAlloc, Layout},
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use hat::locking::{Mutex, Site};

use crate::locks::PolledMutex;

/// The most memory, in bytes, that an operation needs.
const RESERVE: usize = 2 << 20;
const SMALLEST: u32 = 5;
const LISTS: usize = 24;

struct Blocks {
    next: usize,
    end: usize,
    free: [usize; LISTS],
}

struct Heap(PolledMutex<Blocks>);

#[global_allocator]
static HEAP: Heap = Heap(PolledMutex::free(Blocks { next: 0, end: 0, free: [0; LISTS] }));

/// Sets the memory of the heap.
///
/// # Safety
/// These bytes are nobody else's, for ever.
pub unsafe fn begin(start: usize, end: usize) {
    HEAP.0.with(Site::Look, |blocks| (blocks.next, blocks.end) = (start, end));
}

/// The number of questions for room up to the one that is answered with no, for tests; 0 if none is.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Makes one later check for room fail: that with this number, counted from 1.
pub fn refuse(number: u64) {
    REFUSED.store(number, Ordering::Relaxed);
}

/// Whether there is enough memory to begin an operation that needs memory of the heap.
pub fn has_room() -> bool {
    if REFUSED.load(Ordering::Relaxed) != 0 && REFUSED.fetch_sub(1, Ordering::Relaxed) == 1 {
        return false;
    }
    HEAP.0.with(Site::Look, |blocks| blocks.end - blocks.next >= RESERVE)
}

fn list(layout: Layout) -> usize {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST).next_power_of_two();
    (bytes.trailing_zeros() - SMALLEST) as usize
}

// SAFETY: a block is cut once, aligned to its size, and is in its list or in use.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let list = list(layout);
        if list >= LISTS {
            return ptr::null_mut();
        }
        let bytes = 1usize << (list as u32 + SMALLEST);
        self.0.with(Site::Look, |blocks| {
            let free = blocks.free[list];
            if free != 0 {
                // SAFETY: a free block begins with the address of the next one.
                blocks.free[list] = unsafe { *(free as *const usize) };
                return free as *mut u8;
            }
            // The bytes skipped for alignment are at most as many as the block's, and at most a page.
            let start = blocks.next.next_multiple_of(bytes.min(4096));
            if start + bytes > blocks.end {
                return ptr::null_mut();
            }
            blocks.next = start + bytes;
            start as *mut u8
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let list = list(layout);
        self.0.with(Site::Look, |blocks| {
            // SAFETY: the block is free from here on, and at least as large as an address.
            unsafe { *block.cast::<usize>() = blocks.free[list] };
            blocks.free[list] = block as usize;
        });
    }
}

/// Runs `f`: no memory is refused here, as tests of the host do.
#[cfg(feature = "stream")]
pub(crate) fn unrefused<R>(f: impl FnOnce() -> R) -> R {
    f()
}

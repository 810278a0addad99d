//! The kernel's heap: free blocks by powers of two, cut from one piece of memory, and given back to their list.
//!
//! ```text
//!   32 -> [ ] [ ]     64 -> [ ]     128 ->     ...     1M -> [ ]          a list per size, linked in the blocks
//!   begin ....... next .................................. end             what was never cut
//! ```
//!
//! What the crates keep of spaces and frames lies here, so that its end must be seen coming: an operation that could
//! make it grow is refused while less than [`RESERVE`] is left ([`has_room`]). Nothing in the kernel panics for memory.

use core::{
    alloc::{GlobalAlloc, Layout},
    ptr,
};

use hat::locking::{Mutex, Site};

use crate::locks::PolledMutex;

/// What an operation needs at most.
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

/// Gives the heap its memory.
///
/// # Safety
/// These bytes are nobody else's, for ever.
pub unsafe fn begin(start: usize, end: usize) {
    HEAP.0.with(Site::Look, |blocks| (blocks.next, blocks.end) = (start, end));
}

/// Whether an operation may begin that needs memory of the heap.
pub fn has_room() -> bool {
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
            // What is skipped for alignment is at most as large as the block: pages and less, but for tables.
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

//! The engine's own heap: pieces whose sizes are powers of two, from memory that is never returned
//! to the system.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr;

use crate::lock::Lock;
use crate::own;

const CLASSES: usize = 40;
const CHUNK_BYTES: u64 = 4 << 20;

/// The allocator of a process.
pub struct Heap(UnsafeCell<Free>);

/// Taken while the heap is changed.
pub(crate) static LOCK: Lock = Lock::new();

struct Free {
    /// For each power of two: the first free piece. Each free piece begins with the address of the
    /// next one.
    lists: [*mut u8; CLASSES],
    next: u64,
    end: u64,
}

// SAFETY: only a thread that has the lock changes the heap, and signal handlers do not allocate.
unsafe impl Sync for Heap {}

impl Heap {
    /// An empty heap.
    pub const fn new() -> Heap {
        Heap(UnsafeCell::new(Free { lists: [ptr::null_mut(); CLASSES], next: 0, end: 0 }))
    }
}

impl Default for Heap {
    fn default() -> Heap {
        Heap::new()
    }
}

fn class(layout: Layout) -> usize {
    layout.size().max(layout.align()).max(16).next_power_of_two().trailing_zeros() as usize
}

// SAFETY: a piece is as large and as aligned as its class, and is in one list or with its user.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class(layout);
        if class >= CLASSES {
            return ptr::null_mut();
        }
        LOCK.take();
        // SAFETY: as explained at `Heap`, only the thread with the lock comes here, and the heap
        // owns the pieces.
        let piece = unsafe { self.piece(class) };
        LOCK.give_back();
        piece
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        LOCK.take();
        // SAFETY: the heap owns the piece again.
        unsafe {
            let free = &mut *self.0.get();
            piece.cast::<*mut u8>().write(free.lists[class(layout)]);
            free.lists[class(layout)] = piece;
        }
        LOCK.give_back();
    }
}

impl Heap {
    /// A piece of this size class.
    ///
    /// # Safety
    ///
    /// The lock is taken.
    unsafe fn piece(&self, class: usize) -> *mut u8 {
        // SAFETY: the caller's; the pieces are the heap's.
        unsafe {
            let free = &mut *self.0.get();
            let first = free.lists[class];
            if !first.is_null() {
                free.lists[class] = first.cast::<*mut u8>().read();
                return first;
            }
            let bytes = 1u64 << class;
            if bytes >= CHUNK_BYTES {
                return own::private(bytes).map_or(ptr::null_mut(), |at| at as *mut u8);
            }
            let at = free.next.next_multiple_of(bytes);
            if at + bytes > free.end {
                let Some(chunk) = own::private(CHUNK_BYTES) else { return ptr::null_mut() };
                (free.next, free.end) = (chunk, chunk + CHUNK_BYTES);
            }
            let at = free.next.next_multiple_of(bytes);
            free.next = at + bytes;
            at as *mut u8
        }
    }
}

//! The allocator of a test program, which refuses single allocations as if no memory were left.
//!
//! ```text
//!   refusing(3, operation)     its third allocation: no memory     it must return an error, or do without
//!   without(operation)         each allocation: no memory          what frees memory must need none
//! ```
//!
//! An operation that relies on an allocation ends the program: the standard library aborts if an allocation
//! fails that has no error. Data of the tests themselves is allocated by [`unrefused`].

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
};

/// The allocations of a thread that are refused.
#[derive(Clone, Copy)]
enum Refused {
    None,
    /// The allocation after this number of successful ones.
    After(u64),
    All,
}

thread_local! {
    static REFUSED: Cell<Refused> = const { Cell::new(Refused::None) };
}

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

fn is_refused() -> bool {
    // A panic needs memory for its message.
    if std::thread::panicking() {
        return false;
    }
    let refused = REFUSED.try_with(|refused| match refused.get() {
        Refused::None => false,
        Refused::All => true,
        Refused::After(0) => {
            refused.set(Refused::None);
            true
        }
        Refused::After(others) => {
            refused.set(Refused::After(others - 1));
            false
        }
    });
    refused.unwrap_or(false)
}

// SAFETY: every block is one of the system's allocator.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        if is_refused() { ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the block came from the system's allocator.
        if is_refused() { ptr::null_mut() } else { unsafe { System.realloc(block, layout, bytes) } }
    }
}

/// Restores what is refused, also after a panic.
struct Back(Refused);

impl Drop for Back {
    fn drop(&mut self) {
        REFUSED.set(self.0);
    }
}

fn with<R>(refused: Refused, f: impl FnOnce() -> R) -> (R, Refused) {
    let _back = Back(REFUSED.replace(refused));
    let done = f();
    (done, REFUSED.get())
}

/// Runs `f` and refuses its allocation with this number, from 1 on. Returns whether there was such an
/// allocation.
pub(crate) fn refusing<R>(number: u64, f: impl FnOnce() -> R) -> (R, bool) {
    let (done, left) = with(Refused::After(number - 1), f);
    (done, matches!(left, Refused::None))
}

/// Runs `f` and refuses all of its allocations.
pub(crate) fn without<R>(f: impl FnOnce() -> R) -> R {
    with(Refused::All, f).0
}

/// Runs `f` without refusing any allocation.
#[allow(dead_code, reason = "not every test binary has data of its own in an operation")]
pub(crate) fn unrefused<R>(f: impl FnOnce() -> R) -> R {
    let before = REFUSED.replace(Refused::None);
    let done = f();
    REFUSED.set(before);
    done
}

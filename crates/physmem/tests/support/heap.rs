//! The heap allocator of a test program. It refuses single allocations as if no memory were left.
//!
//! ```text
//!   refusing(3, operation)     its third allocation: no memory     it must return an error, or do without
//!   without(operation)         each allocation: no memory          what frees memory must need none
//! ```
//!
//! If an operation uses an allocation that cannot report an error, the refusal ends the program,
//! because the standard library aborts. Data of the tests themselves is allocated in [`unrefused`].

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    ptr,
};

/// Which allocations of a thread are refused.
#[derive(Clone, Copy)]
enum Refused {
    None,
    /// The allocation that follows this number of successful allocations.
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
    // A panicking thread is never refused memory, because the panic message needs memory.
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

// SAFETY: every block is allocated and freed by the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of `alloc`, which is passed on unchanged.
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

/// Restores the previous setting when it is dropped, also after a panic.
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

/// Runs `f` and refuses the `number`-th allocation, counted from 1. Returns whether there was such
/// an allocation.
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

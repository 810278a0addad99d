//! The engine's own memory, and which address ranges it is in.
//!
//! ```text
//!   the engine's image   private memory, in the order in which it was mapped ->
//!   |====|               |=====|======|   |====|=====|
//!   0xff000000000        0x100000000000    ^ the program was there already, or may still come
//! ```
//!
//! The ranges are also in the slot of the process, where the host reads them: all other memory is the program's.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use ring::{Own, own_add};

use crate::lock::Lock;
use crate::sys;

/// Taken while memory is mapped. A process that forks has it.
pub(crate) static LOCK: Lock = Lock::new();
/// The ranges of this process.
static RANGES: Own = Own::new();
/// Where the host reads them, once the process has a slot.
static PUBLISHED: AtomicPtr<Own> = AtomicPtr::new(core::ptr::null_mut());
/// Where memory is mapped next.
static NEXT: AtomicU64 = AtomicU64::new(0x1000_0000_0000);

/// Memory is mapped at multiples of this number of bytes, and the rest up to the next multiple stays free.
const STEP_BYTES: u64 = 1 << 20;
/// The most bytes that are passed over at once where the program has memory.
const SKIP_BYTES_MAX: u64 = 1 << 36;

/// Maps new private memory above 16 TiB, where the kernel does not place mappings by default.
pub(crate) fn private(bytes: u64) -> Option<u64> {
    map(bytes, 0, 0)
}

/// As [`private`], but also leaves `room` bytes of addresses after the memory, where nothing is mapped yet.
pub(crate) fn private_before(bytes: u64, room: u64) -> Option<u64> {
    map(bytes, 0, room)
}

/// As [`private_before`]. The room is noted as the engine's, so that the memory of all threads is in one range.
pub(crate) fn private_and(bytes: u64, room: u64) -> Option<u64> {
    map(bytes, room, 0)
}

/// Maps `bytes` bytes, followed by `own` bytes of addresses that are noted as the engine's, and `free` bytes that are not.
fn map(bytes: u64, own: u64, free: u64) -> Option<u64> {
    let step = bytes.next_multiple_of(STEP_BYTES);
    LOCK.take();
    let mut skip = step;
    let mut found = None;
    for _ in 0..64 {
        let at = NEXT.load(Ordering::Relaxed);
        let flags =
            sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE | sys::MAP_FIXED_NOREPLACE;
        if sys::map(at, bytes, sys::PROT_READ | sys::PROT_WRITE, flags, -1, 0) == Some(at) {
            let end = at + step + own.next_multiple_of(STEP_BYTES);
            NEXT.store(end + (free & !(STEP_BYTES - 1)), Ordering::Relaxed);
            found = Some(at).filter(|&at| add([at, end]));
            break;
        }
        NEXT.store(at + skip, Ordering::Relaxed);
        skip = (2 * skip).min(SKIP_BYTES_MAX);
    }
    LOCK.give_back();
    found
}

/// Takes note of memory of the engine that was mapped otherwise. Returns whether there was room for the note.
pub(crate) fn note(start: u64, bytes: u64) -> bool {
    LOCK.take();
    let is_noted = add([start, start + bytes]);
    LOCK.give_back();
    is_noted
}

/// The lock is taken.
fn add(range: [u64; 2]) -> bool {
    let mut ranges = RANGES.ranges();
    let is_added = own_add(&mut ranges, range);
    RANGES.set(&ranges);
    // SAFETY: it is null, or in the slot of this process, which stays mapped.
    if let Some(published) = unsafe { PUBLISHED.load(Ordering::Relaxed).as_ref() } {
        published.set(&ranges);
    }
    is_added
}

/// Makes the ranges visible to the host from here on, at `to`.
pub(crate) fn publish(to: &Own) {
    LOCK.take();
    to.set(&RANGES.ranges());
    PUBLISHED.store(core::ptr::from_ref(to).cast_mut(), Ordering::Relaxed);
    LOCK.give_back();
}

/// In a child that has no slot: makes the ranges visible no more.
pub(crate) fn hide() {
    PUBLISHED.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// The address of the ranges.
pub(crate) fn ranges_at() -> u64 {
    &raw const RANGES as u64
}

/// Whether memory at this address is the engine's.
pub(crate) fn holds(address: u64) -> bool {
    RANGES.holds(address)
}

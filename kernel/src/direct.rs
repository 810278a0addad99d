//! Physical memory through the direct map, for page tables that processors walk at the same time.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use addr::{Memory, PhysAddr};

use crate::arch::DIRECT;

/// All of physical memory. The bytes of a frame are accessed by its owner, which `physmem` knows.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

/// The virtual address of a physical address.
pub fn seen(at: PhysAddr) -> *mut u8 {
    (DIRECT + at.get()) as *mut u8
}

macro_rules! word {
    ($name:ident, $atomic:ty) => {
        fn $name<'a>(at: PhysAddr) -> &'a $atomic {
            // SAFETY: the direct map has all memory that frames are of, for as long as the kernel runs; walkers and
            // processors reach such a word by atomic accesses alone while it is in a table.
            unsafe { <$atomic>::from_ptr(seen(at).cast()) }
        }
    };
}
word!(word_u64, AtomicU64);
word!(word_u32, AtomicU32);
word!(word_u8, AtomicU8);

macro_rules! memory {
    ($of:ty) => {
        impl Memory for $of {
            memory!(@plain read_u64 write_u64 word_u64 u64);
            memory!(@plain read_u32 write_u32 word_u32 u32);
            memory!(@plain read_u8 write_u8 word_u8 u8);
            memory!(@exchange swap_u64 invert_u64 compare_exchange_u64 word_u64 u64);
            memory!(@exchange swap_u32 invert_u32 compare_exchange_u32 word_u32 u32);
        }
    };
    (@plain $read:ident $write:ident $word:ident $value:ty) => {
        #[inline]
        fn $read(&self, at: PhysAddr) -> $value {
            $word(at).load(Ordering::Acquire)
        }
        #[inline]
        fn $write(&mut self, at: PhysAddr, value: $value) {
            $word(at).store(value, Ordering::Release);
        }
    };
    (@exchange $swap:ident $invert:ident $compare:ident $word:ident $value:ty) => {
        #[inline]
        fn $swap(&mut self, at: PhysAddr, new: $value) -> $value {
            $word(at).swap(new, Ordering::AcqRel)
        }
        #[inline]
        fn $invert(&mut self, at: PhysAddr, bits: $value) -> $value {
            $word(at).fetch_xor(bits, Ordering::AcqRel)
        }
        #[inline]
        fn $compare(&mut self, at: PhysAddr, current: $value, new: $value) -> Result<(), $value> {
            $word(at).compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
        }
    };
}
memory!(Direct);
memory!(&Direct);

/// Fills a frame with zeros.
pub fn zero(frame: PhysAddr, bytes: u64) {
    // SAFETY: the frame is the caller's, and lies in the direct map.
    unsafe { seen(frame).write_bytes(0, bytes as usize) };
}

/// Copies bytes from one frame to another.
pub fn copy(from: PhysAddr, to: PhysAddr, bytes: u64) {
    // SAFETY: both are the caller's, and frames do not overlap.
    unsafe { seen(from).copy_to_nonoverlapping(seen(to), bytes as usize) };
}

/// Copies `from` to a frame, and fills the rest of the frame with zeros.
pub fn fill(to: PhysAddr, from: &[u8], bytes: u64) {
    zero(to, bytes);
    // SAFETY: the frame is the caller's and has so many bytes.
    unsafe { seen(to).copy_from_nonoverlapping(from.as_ptr(), from.len().min(bytes as usize)) };
}

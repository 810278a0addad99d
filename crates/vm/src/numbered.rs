//! Numbered elements that several processors look up at the same time without a lock.
//!
//! ```text
//!   number + 16  =  1 | place ...      chunk by the highest bit:  16, 32, 64, 128, ... elements
//! ```
//!
//! A chunk is created when one of its elements is first used, and never moves.

use alloc::{boxed::Box, vec::Vec};

use hat::locking::{Locks, Once};

/// log2 of the number of elements in the first chunk.
const FIRST_SHIFT: u32 = 4;
/// The number of chunks for all 32-bit numbers.
const CHUNKS: usize = (u32::BITS - FIRST_SHIFT) as usize + 1;

/// Numbered elements.
pub(crate) struct Numbered<X, L: Locks> {
    chunks: Box<[L::Once<Box<[X]>>]>,
}

impl<X, L: Locks> Numbered<X, L> {
    pub(crate) fn new() -> Numbered<X, L> {
        Numbered { chunks: (0..CHUNKS).map(|_| L::Once::new()).collect() }
    }

    /// Returns an element. If its chunk does not exist yet, `make` creates the chunk's elements.
    /// `None` if no memory is left for them.
    pub(crate) fn get(&self, number: u32, make: impl Fn() -> X) -> Option<&X> {
        let (chunk, place) = place(number);
        let elements = self.chunks[chunk].try_get(|| {
            let (mut made, count) = (Vec::new(), 1 << (FIRST_SHIFT + chunk as u32));
            made.try_reserve_exact(count).ok()?;
            made.resize_with(count, make);
            Some(made.into_boxed_slice())
        });
        Some(&elements?[place])
    }

    /// The element with this number, if it exists.
    #[inline]
    pub(crate) fn made(&self, number: u32) -> Option<&X> {
        let (chunk, place) = place(number);
        self.chunks[chunk].made()?.get(place)
    }

    /// All existing elements, with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &X)> {
        let elements = self.chunks.iter().filter_map(|chunk| chunk.made()).flatten();
        (0..).zip(elements)
    }
}

/// The chunk of an element, and its index there.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let above = u64::from(number) + (1 << FIRST_SHIFT);
    let shift = above.ilog2();
    ((shift - FIRST_SHIFT) as usize, (above - (1 << shift)) as usize)
}

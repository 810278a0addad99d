//! Elements by number that several processors look up at once, without a lock.
//!
//! ```text
//!   number + 16  =  1 | place ...      chunk by the highest bit:  16, 32, 64, 128, ... elements
//! ```
//!
//! A chunk is made when one of its elements is first asked for, and stays where it is.

use alloc::{boxed::Box, vec::Vec};

use hat::locking::{Locks, Once};

/// log2 of the elements of the first chunk.
const FIRST_SHIFT: u32 = 4;
/// Chunks for all numbers of 32 bits.
const CHUNKS: usize = (u32::BITS - FIRST_SHIFT) as usize + 1;

/// Elements by number.
pub(crate) struct Numbered<X, L: Locks> {
    chunks: Box<[L::Once<Box<[X]>>]>,
}

impl<X, L: Locks> Numbered<X, L> {
    pub(crate) fn new() -> Numbered<X, L> {
        Numbered { chunks: (0..CHUNKS).map(|_| L::Once::new()).collect() }
    }

    /// An element; those of its chunk are made by `make` if it is the first.
    pub(crate) fn get(&self, number: u32, make: impl Fn() -> X) -> &X {
        let (chunk, place) = place(number);
        let elements = self.chunks[chunk].get(|| {
            let mut made = Vec::new();
            made.resize_with(1 << (FIRST_SHIFT + chunk as u32), make);
            made.into_boxed_slice()
        });
        &elements[place]
    }

    /// The element of this number, if it was made.
    #[inline]
    pub(crate) fn made(&self, number: u32) -> Option<&X> {
        let (chunk, place) = place(number);
        self.chunks[chunk].made()?.get(place)
    }

    /// All that were made, with their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &X)> {
        let elements = self.chunks.iter().filter_map(|chunk| chunk.made()).flatten();
        (0..).zip(elements)
    }
}

/// The chunk of an element, and its place there.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let above = u64::from(number) + (1 << FIRST_SHIFT);
    let shift = above.ilog2();
    ((shift - FIRST_SHIFT) as usize, (above - (1 << shift)) as usize)
}

//! A sparse array: a part exists only once one of its elements has been used.
//!
//! ```text
//!   parts by the upper bits  -->  chunks of 1024 by the middle bits  -->  element
//! ```

use alloc::{boxed::Box, vec::Vec};

/// The number of elements per chunk.
pub(crate) const CHUNK: usize = 1 << 10;
/// The number of chunks per part.
pub(crate) const PART: usize = 1 << 10;
/// The number of parts.
pub(crate) const PARTS: usize = 1 << 12;

/// The largest number of elements, which is the number of 4-KiB frames in 16 TiB.
pub(crate) const ELEMENTS_MAX: u64 = (CHUNK * PART * PARTS) as u64;

type Part<D> = Box<[Option<Box<[D]>>]>;

/// Numbered elements; each is created when it is first used.
pub(crate) struct Sparse<D> {
    parts: Vec<Option<Part<D>>>,
}

impl<D: Default> Sparse<D> {
    pub(crate) const fn new() -> Sparse<D> {
        Sparse { parts: Vec::new() }
    }

    /// # Panics
    /// Panics if `number` is [`ELEMENTS_MAX`] or more.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut D> {
        let [part, chunk, place] = places(number);
        if part >= self.parts.len() {
            self.parts.try_reserve(part + 1 - self.parts.len()).ok()?;
            self.parts.resize_with(part + 1, || None);
        }
        let part = made(&mut self.parts[part], PART)?;
        Some(&mut made(&mut part[chunk], CHUNK)?[place])
    }

    /// Calls `f` for each element of the chunks that exist.
    pub(crate) fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        for (part, chunks) in self.parts.iter().enumerate() {
            for (chunk, elements) in chunks.iter().flatten().enumerate() {
                for (place, element) in elements.iter().flatten().enumerate() {
                    f(((part * PART + chunk) * CHUNK + place) as u64, element);
                }
            }
        }
    }
}

/// The index of the part, of the chunk in it, and of the element in that chunk.
pub(crate) fn places(number: u64) -> [usize; 3] {
    assert!(number < ELEMENTS_MAX, "there is no element {number}");
    let number = number as usize;
    [number / CHUNK / PART, number / CHUNK % PART, number % CHUNK]
}

/// The elements of a part. If they do not exist yet, they are created. `None` if no memory is left.
#[inline]
fn made<D: Default>(part: &mut Option<Box<[D]>>, count: usize) -> Option<&mut [D]> {
    if part.is_none() {
        *part = many(count);
    }
    part.as_deref_mut()
}

#[cold]
fn many<D: Default>(count: usize) -> Option<Box<[D]>> {
    let mut made = Vec::new();
    made.try_reserve_exact(count).ok()?;
    made.resize_with(count, D::default);
    Some(made.into_boxed_slice())
}

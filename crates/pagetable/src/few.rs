//! A list that stores its first elements without heap memory.
//!
//! ```text
//!   | a | b | c | d |   inside the list itself          | e | f | g |   on the heap, or an error
//! ```
//!
//! Most operations need few elements, so they can run when no heap memory is left. Other operations
//! return an error before they have changed anything.

use alloc::{collections::TryReserveError, vec::Vec};
use core::cmp::Ordering;

/// A list of `T`. The first `N` elements are stored in the list itself, and further elements on the
/// heap.
#[derive(Debug)]
pub(crate) struct Few<T, const N: usize> {
    first: [T; N],
    len: usize,
    more: Vec<T>,
}

impl<T: Copy, const N: usize> Few<T, N> {
    /// Creates an empty list. Unused places contain `filler`, which can be any value.
    pub(crate) const fn new(filler: T) -> Few<T, N> {
        Few { first: [filler; N], len: 0, more: Vec::new() }
    }

    /// Reserves memory for one more element, so that the next [`Few::push`] cannot fail.
    #[inline]
    pub(crate) fn prepare(&mut self) -> Result<(), TryReserveError> {
        if self.len < N { Ok(()) } else { self.more.try_reserve(1) }
    }

    #[inline]
    pub(crate) fn push(&mut self, element: T) -> Result<(), TryReserveError> {
        self.prepare()?;
        match self.first.get_mut(self.len) {
            Some(place) => *place = element,
            None => self.more.push(element),
        }
        self.len += 1;
        Ok(())
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<T> {
        let all = if number < N { self.first.get(..self.len.min(N))? } else { &self.more[..] };
        all.get(number - if number < N { 0 } else { N }).copied()
    }

    /// Mutable access to the last element, if there is one.
    pub(crate) fn last_mut(&mut self) -> Option<&mut T> {
        match self.len.checked_sub(1)? {
            last if last < N => Some(&mut self.first[last]),
            _ => self.more.last_mut(),
        }
    }

    /// Whether the list, which is in ascending order, has an element for which `order` returns
    /// `Equal`.
    pub(crate) fn has(&self, order: impl Fn(&T) -> Ordering) -> bool {
        self.first[..self.len.min(N)].binary_search_by(&order).is_ok()
            || self.more.binary_search_by(&order).is_ok()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = T> + Clone + '_ {
        self.first[..self.len.min(N)].iter().chain(&self.more).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_list() {
        for count in 0..10 {
            let (mut few, mut model) = (Few::<u32, 4>::new(0), Vec::new());
            for number in 0..count {
                few.push(number).unwrap();
                model.push(number);
                assert_eq!(few.last_mut().copied(), Some(number));
            }
            assert_eq!(few.len(), model.len());
            assert!(few.iter().eq(model.iter().copied()));
            assert!((0..11).all(|number| few.has(|of| of.cmp(&number)) == model.contains(&number)));
            assert!((0..11).all(|number| few.get(number) == model.get(number).copied()));
        }
    }
}

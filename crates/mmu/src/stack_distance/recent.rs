//! The youngest keys of an LRU stack, in order.

/// A list of the last keys, youngest first.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    keys: [u64; Recent::KEYS],
    len: usize,
}

impl Recent {
    /// The capacity of the list, which is so small that searching and shifting cost less than a
    /// tree.
    pub(super) const KEYS: usize = 16;

    pub(super) fn new() -> Recent {
        Recent { keys: [0; Recent::KEYS], len: 0 }
    }

    /// The number of keys.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Removes `key`, if it is in the list.
    pub(super) fn forget(&mut self, key: u64) {
        if let Some(depth) = self.keys[..self.len].iter().position(|&held| held == key) {
            self.keys.copy_within(depth + 1..self.len, depth);
            self.len -= 1;
        }
    }

    /// Makes `key` the youngest. Returns its previous depth or, if `key` was not in the list, the
    /// key that it has displaced.
    #[inline]
    pub(super) fn touch(&mut self, key: u64) -> Result<usize, Option<u64>> {
        let Some(depth) = self.keys[..self.len].iter().position(|&held| held == key) else {
            return Err(self.push(key));
        };
        // A loop rather than `copy_within`: most keys are only a few steps deep, and a call would
        // cost more than these steps.
        let mut before = key;
        for place in &mut self.keys[..=depth] {
            before = core::mem::replace(place, before);
        }
        Ok(depth)
    }

    /// Adds `key`, which is not in the list, as the youngest. Returns the key that it has
    /// displaced.
    #[inline]
    fn push(&mut self, key: u64) -> Option<u64> {
        let last = self.keys[Recent::KEYS - 1];
        self.keys.copy_within(..Recent::KEYS - 1, 1);
        self.keys[0] = key;
        if self.len == Recent::KEYS {
            return Some(last);
        }
        self.len += 1;
        None
    }
}

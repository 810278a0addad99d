//! The youngest keys of an LRU stack, in order.

/// A list of the last keys, youngest first.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    keys: [u64; Recent::KEYS],
    len: usize,
}

impl Recent {
    /// How many keys it holds: few enough that to search and shift them costs less than a tree.
    pub(super) const KEYS: usize = 16;

    pub(super) fn new() -> Recent {
        Recent { keys: [0; Recent::KEYS], len: 0 }
    }

    /// Makes `key` the youngest. Gives the depth where it was or, if it was not here, the key
    /// that made room for it.
    #[inline]
    pub(super) fn touch(&mut self, key: u64) -> Result<usize, Option<u64>> {
        let found = self.keys[..self.len].iter().position(|&held| held == key);
        let (depth, outcome) = match found {
            Some(depth) => (depth, Ok(depth)),
            None if self.len < Recent::KEYS => {
                self.len += 1;
                (self.len - 1, Err(None))
            }
            None => (Recent::KEYS - 1, Err(Some(self.keys[Recent::KEYS - 1]))),
        };
        self.keys.copy_within(..depth, 1);
        self.keys[0] = key;
        outcome
    }
}

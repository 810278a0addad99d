//! Stack distances: the hits of fully associative LRU arrays of every size, in one pass.
//!
//! ```text
//!   LRU stack, youngest first      touch(c): c lies 3 deep: a hit for every size above 3
//!     e  a  f  c  b  d
//!     0  1  2  3  4  5   depth     c  e  a  f  b  d    c is the youngest now
//! ```
//!
//! LRU has the inclusion property: an array of n entries holds all keys that an array of n - 1
//! entries holds, and one more key. If a key is found at depth d, it is therefore a hit in every
//! array of more than d entries. The depths that a stream has determine the hits of all sizes
//! (Mattson, Gecsei, Slutz and Traiger 1970).
//!
//! Most touches find their key in the first few places, which are a plain list that is searched and
//! shifted. Deeper keys are not kept in order. Instead, each key has the time at which it was moved
//! out of the list. Its depth is the number of keys with a later time, which a tree over the times
//! counts (Bennett and Kruskal 1975, Olken 1981). A touch costs the logarithm of the depth.

mod older;
mod recent;

use older::Older;
use recent::Recent;

/// An LRU stack of limited depth.
#[derive(Clone, Debug)]
pub struct StackDistance {
    depth_max: usize,
    recent: Recent,
    older: Older,
}

impl StackDistance {
    /// An empty stack of at most `depth_max` keys: the number of entries of the largest array of
    /// interest. This number limits the memory that the stack takes.
    pub fn new(depth_max: usize) -> StackDistance {
        let recent = Recent::new();
        let older = Older::new(depth_max.saturating_sub(Recent::KEYS));
        StackDistance { depth_max, recent, older }
    }

    /// Touches `key` and returns its previous depth: the number of other keys that have been
    /// touched since. `None` if `key` is not among the last `depth_max` keys.
    #[inline]
    pub fn touch(&mut self, key: u64) -> Option<usize> {
        let depth = match self.recent.touch(key) {
            Ok(depth) => Some(depth),
            Err(pushed_out) => {
                // If `key` displaced no other key from the list, the list already includes `key`
                // itself.
                let younger = self.recent.len() - usize::from(pushed_out.is_none());
                let depth = self.older.take(key).map(|depth| depth + younger);
                if let Some(pushed_out) = pushed_out {
                    self.older.push(pushed_out);
                }
                depth
            }
        };
        depth.filter(|&depth| depth < self.depth_max)
    }

    /// Removes `key`, if it is in the stack, as if it had never been touched.
    pub fn forget(&mut self, key: u64) {
        self.recent.forget(key);
        self.older.forget(key);
    }
}

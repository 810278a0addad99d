//! The assignment of tags to spaces.
//!
//! ```text
//!   unused --create--> in use --destroy--> retired --sweep of the array--> free --create--> in use
//! ```
//!
//! When a space ends, its entries stay in the array, since no other space has its tag. When every
//! tag has been assigned, one sweep clears the entries of all retired tags. Ending a space is
//! therefore cheap, however large the cache is.

use alloc::{collections::TryReserveError, vec::Vec};

use crate::Space;

#[derive(Debug, Default)]
pub(super) struct Tags {
    /// The tag of each space, by the space's number.
    of_space: Vec<Option<u64>>,
    unused_from: u64,
    retired: Vec<u64>,
    free: Vec<u64>,
}

impl Tags {
    /// The tag of `space`, if the space exists.
    #[inline]
    pub(super) fn of(&self, space: Space) -> Option<u64> {
        self.of_space.get(space.id() as usize).copied().flatten()
    }

    /// Reserves memory for `spaces + 1` spaces, so that neither the creation nor the end of the
    /// next space needs memory.
    pub(super) fn prepare(&mut self, spaces: u64) -> Result<(), TryReserveError> {
        let (spaces, tags) = (spaces as usize + 1, self.unused_from as usize + 1);
        self.of_space.try_reserve(spaces.saturating_sub(self.of_space.len()))?;
        self.free.try_reserve(tags.saturating_sub(self.free.len()))?;
        self.retired.try_reserve(tags.saturating_sub(self.retired.len()))
    }

    /// Assigns a tag below `max` to `space`. If only retired tags are left, it first calls `sweep`,
    /// which must clear all entries whose tag the passed predicate accepts.
    pub(super) fn assign(
        &mut self,
        space: Space,
        max: u64,
        sweep: impl FnOnce(&dyn Fn(u64) -> bool),
    ) {
        if self.free.is_empty() && self.unused_from < max {
            self.free.push(self.unused_from);
            self.unused_from += 1;
        }
        if self.free.is_empty() {
            sweep(&|tag| self.retired.contains(&tag));
            self.free.append(&mut self.retired);
        }
        let index = space.id() as usize;
        if index >= self.of_space.len() {
            self.of_space.resize(index + 1, None);
        }
        self.of_space[index] = self.free.pop();
    }

    /// Retires the tag of a space that has ended.
    pub(super) fn retire(&mut self, space: Space) {
        let tag = self.of_space.get_mut(space.id() as usize).and_then(Option::take);
        self.retired.extend(tag);
    }
}

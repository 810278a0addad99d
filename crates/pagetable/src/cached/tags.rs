//! Which tag stands for which space.
//!
//! ```text
//!   unused --create--> in use --destroy--> retired --sweep of the array--> free --create--> in use
//! ```
//!
//! A space that ends leaves its entries where they are: no other space has its tag. Only when
//! every tag has been given out does one sweep clear the entries of all the retired ones, so that
//! ending a space costs next to nothing however large the cache is.

use alloc::vec::Vec;

use crate::Space;

#[derive(Debug, Default)]
pub(super) struct Tags {
    /// By number of the space.
    of_space: Vec<Option<u64>>,
    unused_from: u64,
    retired: Vec<u64>,
    free: Vec<u64>,
}

impl Tags {
    /// The tag of `space`, if that exists.
    #[inline]
    pub(super) fn of(&self, space: Space) -> Option<u64> {
        self.of_space.get(space.id() as usize).copied().flatten()
    }

    /// Gives `space` a tag, one of fewer than `max`. Where only retired ones are left, `sweep`
    /// clears the entries of those that it says yes to.
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

    /// Takes the tag of a space that has ended.
    pub(super) fn retire(&mut self, space: Space) {
        let tag = self.of_space.get_mut(space.id() as usize).and_then(Option::take);
        self.retired.extend(tag);
    }
}

//! Lists that store a few elements without heap memory. If no heap memory is left for more
//! elements, the list keeps those that it has.
//!
//! ```text
//!   memory is left     | all that was found |           one pass
//!   none is left       | the first few | --> done --> | the next few | --> ...     several passes
//! ```
//!
//! An operation that only removes translations must not fail because no memory is left for a list.
//! It then handles as many elements as fit into the list, and searches again.

use alloc::collections::TryReserveError;

use smallvec::{Array, SmallVec};

/// The heap has no memory left for a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoMemory;

impl From<TryReserveError> for NoMemory {
    fn from(_: TryReserveError) -> NoMemory {
        NoMemory
    }
}

/// Adds an element. If no memory is left, the list does not change.
pub(crate) fn push<A: Array>(list: &mut SmallVec<A>, element: A::Item) -> Result<(), NoMemory> {
    list.try_reserve(1).map_err(|_| NoMemory)?;
    list.push(element);
    Ok(())
}

/// A list for elements from a callback that cannot stop the search when no memory is left.
pub(crate) struct Gathered<A: Array> {
    list: SmallVec<A>,
    is_short: bool,
}

impl<A: Array> Gathered<A> {
    pub(crate) fn new() -> Gathered<A> {
        Gathered { list: SmallVec::new(), is_short: false }
    }

    pub(crate) fn add(&mut self, element: A::Item) {
        self.is_short = self.is_short || push(&mut self.list, element).is_err();
    }

    /// Returns all elements, or an error if there was no memory for one of them.
    pub(crate) fn all(self) -> Result<SmallVec<A>, NoMemory> {
        if self.is_short { Err(NoMemory) } else { Ok(self.list) }
    }
}

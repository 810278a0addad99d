//! Lists that hold a limited number of elements in themselves. If the heap has no memory for more
//! elements, the list keeps those that it has.
//!
//! ```text
//!   memory is left     | all that was found |           one pass
//!   none is left       | the first few | --> done --> | the next few | --> ...     several passes
//! ```
//!
//! An operation that only gives something up must not fail because no memory is left for a list. It then handles as
//! many elements as there is room for, and looks again.

use alloc::collections::TryReserveError;

use smallvec::{Array, SmallVec};

/// No memory is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoMemory;

impl From<TryReserveError> for NoMemory {
    fn from(_: TryReserveError) -> NoMemory {
        NoMemory
    }
}

/// Adds an element, or fails with the list as it was.
pub(crate) fn push<A: Array>(list: &mut SmallVec<A>, element: A::Item) -> Result<(), NoMemory> {
    list.try_reserve(1).map_err(|_| NoMemory)?;
    list.push(element);
    Ok(())
}

/// A list of elements that a callback gathers, and that cannot stop when no memory is left.
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

    /// All elements, or an error if there was no memory for one of them.
    pub(crate) fn all(self) -> Result<SmallVec<A>, NoMemory> {
        if self.is_short { Err(NoMemory) } else { Ok(self.list) }
    }
}

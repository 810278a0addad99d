//! One object for each processor, for machines on which one processor runs at a time.
//!
//! ```text
//!   turn_to(2):   here: 0's   parked: [  -  | 1's | 2's ]
//!            -->  here: 2's   parked: [ 0's | 1's |  -  ]
//! ```
//!
//! The object of the running processor is in a fixed place, so that an access need not search for
//! it.

/// A `T` for each processor.
pub struct InTurn<T> {
    /// The object of the running processor.
    pub here: T,
    on: usize,
    /// The objects of the other processors, by processor; `None` at the index of the running
    /// processor.
    parked: Vec<Option<T>>,
}

impl<T> InTurn<T> {
    /// Creates the set of objects: `first` for processor 0, which runs first, and `others` for the
    /// following processors.
    pub fn new(first: T, others: impl Iterator<Item = T>) -> InTurn<T> {
        let parked = std::iter::once(None).chain(others.map(Some)).collect();
        InTurn { here: first, on: 0, parked }
    }

    /// The number of the running processor.
    pub fn on(&self) -> usize {
        self.on
    }

    /// How many processors there are.
    pub fn count(&self) -> usize {
        self.parked.len()
    }

    /// Makes `processor` the running processor. Before that, `hand_over` is called with the old and
    /// the new object, to move shared data between them.
    pub fn turn_to(&mut self, processor: usize, hand_over: impl FnOnce(&mut T, &mut T)) {
        let Some(mut next) = self.parked[processor].take() else { return };
        hand_over(&mut self.here, &mut next);
        self.parked[self.on] = Some(std::mem::replace(&mut self.here, next));
        self.on = processor;
    }

    /// The object of `processor`.
    pub fn of(&mut self, processor: usize) -> &mut T {
        self.parked[processor].as_mut().unwrap_or(&mut self.here)
    }

    /// All objects by processor.
    pub fn each(&self) -> impl Iterator<Item = &T> {
        self.parked.iter().map(|parked| parked.as_ref().unwrap_or(&self.here))
    }

    /// Calls `what` for each object, by processor.
    pub fn for_each(&mut self, mut what: impl FnMut(&mut T)) {
        (0..self.count()).for_each(|processor| what(self.of(processor)));
    }
}

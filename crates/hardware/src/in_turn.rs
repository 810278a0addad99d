//! One of something for each processor, where one processor runs at a time.
//!
//! ```text
//!   turn_to(2):   here: 0's   parked: [  -  | 1's | 2's ]
//!            -->  here: 2's   parked: [ 0's | 1's |  -  ]
//! ```
//!
//! What belongs to the processor that runs is at hand, so that an access need not look for it.

/// A `T` for each processor.
pub struct InTurn<T> {
    /// That of the processor that runs.
    pub here: T,
    on: usize,
    /// By processor; none at the place of the one that runs.
    parked: Vec<Option<T>>,
}

impl<T> InTurn<T> {
    /// `first` for the processor 0, which runs, and the `others` for those behind it.
    pub fn new(first: T, others: impl Iterator<Item = T>) -> InTurn<T> {
        let parked = std::iter::once(None).chain(others.map(Some)).collect();
        InTurn { here: first, on: 0, parked }
    }

    /// The processor that runs.
    pub fn on(&self) -> usize {
        self.on
    }

    /// How many processors there are.
    pub fn count(&self) -> usize {
        self.parked.len()
    }

    /// Lets `processor` run, once `hand_over` has moved what goes from the one that runs to it.
    pub fn turn_to(&mut self, processor: usize, hand_over: impl FnOnce(&mut T, &mut T)) {
        let Some(mut next) = self.parked[processor].take() else { return };
        hand_over(&mut self.here, &mut next);
        self.parked[self.on] = Some(std::mem::replace(&mut self.here, next));
        self.on = processor;
    }

    /// That of `processor`.
    pub fn of(&mut self, processor: usize) -> &mut T {
        self.parked[processor].as_mut().unwrap_or(&mut self.here)
    }

    /// All of them by processor.
    pub fn each(&self) -> impl Iterator<Item = &T> {
        self.parked.iter().map(|parked| parked.as_ref().unwrap_or(&self.here))
    }

    /// Does `what` to each, by processor.
    pub fn for_each(&mut self, mut what: impl FnMut(&mut T)) {
        (0..self.count()).for_each(|processor| what(self.of(processor)));
    }
}

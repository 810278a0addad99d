use crate::{Counted, Error, Event, Shape, ShapeId, Taken};

/// Receives what a recorder observes: executed blocks, changes of the thread, events.
///
/// [`crate::Writer`] encodes it into a file; [`crate::Batcher`] expands it into batches for a
/// simulation that runs at the same time as the program. All calls are in the order of the trace.
pub trait Sink {
    /// Defines `shape`. The caller keeps the returned value and calls this once per distinct shape.
    ///
    /// For a shape that [`Shape::check`] refuses, the next call that can fail returns the error.
    fn shape(&mut self, shape: &Shape) -> ShapeId;

    /// Makes `thread` the thread of all rows and events until the next call of this function. The
    /// first thread is 0.
    fn thread(&mut self, thread: u32);

    /// Records an execution of the block `shape`. `addrs` are, in order, the addresses of all its
    /// operations, or only those that are [`crate::Address::Said`].
    ///
    /// An error if `addrs` has neither of these lengths, if the derived addresses have other values, or if the output
    /// fails.
    fn execute(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error>;

    /// Declares that, from now on, block `number` of the recorder's words usually is `shape`, and
    /// that the words of its operations have `tags`. There are words only for operations whose
    /// address is [`crate::Address::Said`].
    fn usual(&mut self, number: usize, shape: ShapeId, tags: &[u16]);

    /// [`Sink::execute`] for the blocks at the beginning of a recorder's `words` (see
    /// [`crate::WORD_SHIFT`]). It stops at the latest before a block that did not behave as usual,
    /// before one whose end is not in `words`, and before a word that does not begin a block.
    fn execute_words(&mut self, words: &[u64]) -> Result<Taken, Error>;

    /// [`Sink::execute`] with the physical address of every row: that of the fetch first, if the
    /// shape has one, then those of the operations. 0 means unknown.
    fn execute_physical(
        &mut self,
        shape: ShapeId,
        addrs: &[u64],
        paddrs: &[u64],
    ) -> Result<(), Error>;

    /// Adds `instructions` instructions of the thread that have no row, because their blocks are
    /// filtered. The thread's next row counts them.
    fn advance(&mut self, instructions: u64);

    /// Records accesses that are counted and not listed. Only a simulation that runs at the same time
    /// as the program requests them, and only its sink accepts them.
    fn counted(&mut self, counted: Counted) -> Result<(), Error> {
        Err(Error::Recorder(format!(
            "the recorder has counted accesses that it must report one by one: {counted:?}"
        )))
    }

    /// Begins another program, with blocks of its own: drops the properties of the last program's
    /// blocks.
    fn begin_program(&mut self);

    /// The number of accesses so far.
    fn accesses(&self) -> u64;

    /// The number of instructions that these accesses count, and of those after the last access of
    /// threads that have ended.
    fn instructions(&self) -> u64;

    /// Records that everything so far was done by the time `ns`. Only a recording stores it.
    fn stamp(&mut self, ns: u64) {
        let _ = ns;
    }

    /// Records that `event` happened to `thread` before everything that follows.
    fn event(&mut self, thread: u32, event: Event) -> Result<(), Error>;
}

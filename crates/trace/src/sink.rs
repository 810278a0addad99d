use crate::{Counted, Error, Event, Shape, ShapeId, Taken};

/// Receives what a recorder observes: executed blocks, changes of the thread, events.
///
/// [`crate::Writer`] encodes these data into a file; [`crate::Batcher`] expands them into batches
/// for a simulation that runs at the same time as the program. All calls are in the order of the
/// trace.
pub trait Sink {
    /// Defines `shape`. The caller calls this function once for each distinct shape, and keeps the
    /// returned value.
    ///
    /// For a shape that [`Shape::check`] refuses, the next call that can fail returns the error.
    fn shape(&mut self, shape: &Shape) -> ShapeId;

    /// Makes `thread` the thread of all rows and events until the next call of this function. The
    /// first thread is 0.
    fn thread(&mut self, thread: u32);

    /// Records an execution of the block `shape`. `addrs` are, in order, the addresses of all its
    /// operations, or only those that are [`crate::Address::Said`].
    ///
    /// Returns an error if `addrs` has neither of these lengths, if a derived address differs from
    /// its computed value, or if the output fails.
    fn execute(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error>;

    /// Declares that, from now on, the block `number` in the recorder's words usually executes as
    /// `shape`, and that the words of its operations then have the tags `tags`. There are words
    /// only for operations whose address is [`crate::Address::Said`].
    fn usual(&mut self, number: usize, shape: ShapeId, tags: &[u16]);

    /// Like [`Sink::execute`], for all blocks at the beginning of a recorder's `words` (see
    /// [`crate::WORD_SHIFT`]). Stops at the latest before (1) a block that was not executed with
    /// its usual shape, (2) a block whose end is not in `words`, and (3) a word that does not begin
    /// a block.
    fn execute_words(&mut self, words: &[u64]) -> Result<Taken, Error>;

    /// Like [`Sink::execute`], with the physical address of every row: first the address of the
    /// fetch, if the shape has one, then the addresses of the operations. 0 means unknown.
    fn execute_physical(
        &mut self,
        shape: ShapeId,
        addrs: &[u64],
        paddrs: &[u64],
    ) -> Result<(), Error>;

    /// Adds `instructions` instructions of the current thread that have no row, because their
    /// blocks are filtered. The thread's next row counts them.
    fn advance(&mut self, instructions: u64);

    /// Records accesses that are only counted and have no rows. Only a simulation that runs at the
    /// same time as the program requests such counts, and only its sink accepts them.
    fn counted(&mut self, counted: Counted) -> Result<(), Error> {
        Err(Error::Recorder(format!(
            "the recorder only counted accesses that it must report one by one, which is an error \
             in Pagewalk: {counted:?}"
        )))
    }

    /// Called when the process executes another program, whose blocks are different: drops the
    /// usual shapes of the previous program's blocks.
    fn begin_program(&mut self);

    /// The number of accesses so far.
    fn accesses(&self) -> u64;

    /// The number of instructions so far: those that the accesses count (see [`crate::Meta`]), and
    /// those after the last access of each thread that has ended.
    fn instructions(&self) -> u64;

    /// Records that all accesses and events so far were made by the time `ns`. Only a recording of
    /// processes stores this.
    fn stamp(&mut self, ns: u64) {
        let _ = ns;
    }

    /// Records that `event` happened to `thread` before everything that follows.
    fn event(&mut self, thread: u32, event: Event) -> Result<(), Error>;
}

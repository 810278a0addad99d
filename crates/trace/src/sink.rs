use crate::{Counted, Error, Event, Shape, ShapeId, Taken};

/// Takes what a recorder sees: blocks that run, threads that change, events.
///
/// [`crate::Writer`] encodes it into a file, [`crate::Batcher`] expands it into batches for a
/// simulation that runs beside the program. Everything comes in one order, that of the trace.
pub trait Sink {
    /// Makes `shape` known. The caller keeps the answer and asks once per distinct shape.
    ///
    /// A shape that [`Shape::check`] refuses is reported by the next call that can fail.
    fn shape(&mut self, shape: &Shape) -> ShapeId;

    /// What follows is done by `thread`, until the next call. Thread 0 is assumed at first.
    fn thread(&mut self, thread: u32);

    /// The block `shape` ran; `addrs` are the addresses of its operations, in their order: of all, or
    /// of those that are [`crate::Address::Said`].
    ///
    /// Fails if `addrs` has another length, if the others do not follow from them, or if the output
    /// fails.
    fn execute(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error>;

    /// From now on, block `number` of the recorder's words is usually `shape`, and the words of its
    /// operations have `tags`. There are words for those whose address is
    /// [`crate::Address::Said`].
    fn usual(&mut self, number: usize, shape: ShapeId, tags: &[u16]);

    /// As [`Sink::execute`] for the blocks at the beginning of a recorder's `words`; see
    /// [`crate::WORD_SHIFT`] for what words are. It ends before a block that did not do what is
    /// usual, before one whose end is not seen, before what is no block, or earlier.
    fn execute_words(&mut self, words: &[u64]) -> Result<Taken, Error>;

    /// As [`Sink::execute`], with the physical address of every row: the fetch's first if the
    /// shape has one, then those of the operations. 0 stands for "not known".
    fn execute_physical(
        &mut self,
        shape: ShapeId,
        addrs: &[u64],
        paddrs: &[u64],
    ) -> Result<(), Error>;

    /// The thread began `instructions` more instructions that have no row: filtered blocks.
    /// They are counted at its next row.
    fn advance(&mut self, instructions: u64);

    /// What the thread did that is counted, not told. Only a run beside the program asks for it, whose
    /// sink takes it.
    fn counted(&mut self, counted: Counted) -> Result<(), Error> {
        Err(Error::Recorder(format!("{counted:?} where every access is to be told")))
    }

    /// Another program begins, with blocks of its own: what was usual is forgotten.
    fn begin_program(&mut self);

    /// Accesses so far.
    fn accesses(&self) -> u64;

    /// Instructions that these count, and those that were left of threads which have ended.
    fn instructions(&self) -> u64;

    /// What came so far was done by the time `ns`. Only a recording keeps it.
    fn stamp(&mut self, ns: u64) {
        let _ = ns;
    }

    /// `event` happened to `thread`, before whatever comes next.
    fn event(&mut self, thread: u32, event: Event) -> Result<(), Error>;
}

use crate::{Error, Event, Shape, ShapeId};

/// A block that ran, among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// What it does.
    pub shape: ShapeId,
    /// How many operations it has.
    pub ops: u32,
}

impl Run {
    /// Bits of a word below the address.
    pub const ADDR_SHIFT: u32 = 16;

    /// The words of its operations, and those after them.
    pub(crate) fn split<'a>(&self, words: &'a [u64]) -> Result<(&'a [u64], &'a [u64]), Error> {
        let rest = words.get(1..).unwrap_or_default();
        rest.split_at_checked(self.ops as usize).ok_or_else(crate::batcher::too_few)
    }
}

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

    /// The block `shape` ran; `addrs` are the addresses of its operations, in their order.
    ///
    /// Fails if `addrs` has another length than the shape has operations, or if the output
    /// fails.
    fn execute(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error>;

    /// As [`Sink::execute`] for each of `runs` in order. Faster for small blocks, which most are.
    ///
    /// `words` are a recorder's: one for each run, which means nothing here, and after it one for
    /// each of its operations, the address shifted up by [`Run::ADDR_SHIFT`].
    fn execute_all(&mut self, runs: &[Run], mut words: &[u64]) -> Result<(), Error> {
        let mut addrs = Vec::new();
        for run in runs {
            let own;
            (own, words) = run.split(words)?;
            addrs.clear();
            addrs.extend(own.iter().map(|word| word >> Run::ADDR_SHIFT));
            self.execute(run.shape, &addrs)?;
        }
        Ok(())
    }

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

    /// `event` happened to `thread`, before whatever comes next.
    fn event(&mut self, thread: u32, event: Event) -> Result<(), Error>;
}

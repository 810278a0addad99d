//! Blocks to batches: the sink of a simulation that runs beside the program.
//!
//! ```text
//!   execute(shape, addrs) --> rows of the shape + addresses --> Batch --take()--> machine
//! ```

use crate::carry::Carry;
use crate::shape::Rows;
use crate::{Batch, Error, Event, Meta, Run, Segment, Shape, ShapeId, Sink};

/// A [`Sink`] that expands blocks into a [`Batch`].
#[derive(Debug, Default)]
pub struct Batcher {
    shapes: Vec<Rows>,
    /// The same, as [`Batcher::append_all`] wants it.
    flat: Vec<Flat>,
    /// The rows of all shapes, each shape's up to a multiple of [`LANES`].
    metas: Vec<Meta>,
    batch: Batch,
    carry: Carry,
    refused: Option<Error>,
    given: u64,
}

/// Rows that are copied at a time; nearly all blocks have no more.
const LANES: usize = 4;

/// A shape, without what has to be looked for elsewhere.
#[derive(Clone, Copy, Debug)]
struct Flat {
    pc: u64,
    /// Index of its first row in [`Batcher::metas`].
    metas: u32,
    rows: u32,
    ops: u32,
    /// Instructions that the first row counts itself, and those after the last.
    first: u32,
    trailing: u32,
}

impl Batcher {
    /// Accesses after which a batch is full.
    pub const FULL: usize = 1 << 16;

    /// A batcher that has seen nothing.
    pub fn new() -> Batcher {
        Batcher::default()
    }

    /// Whether there are enough accesses for a batch: time to [`Batcher::take`] them.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.batch.len() >= Batcher::FULL
    }

    /// Replaces `batch` with what has come since the last call; false if there was no access.
    /// There may be events all the same. The memory of `batch` is used again.
    pub fn take(&mut self, batch: &mut Batch) -> bool {
        batch.clear();
        self.batch.first = self.given;
        self.given += self.batch.len() as u64;
        std::mem::swap(&mut self.batch, batch);
        !batch.is_empty()
    }

    /// Instructions that no row has counted become gaps: call it after the last block.
    pub fn finish(&mut self) {
        for (thread, instructions) in self.carry.drain() {
            self.batch.push_event(thread, Event::Gap { accesses: 0, instructions });
        }
    }

    /// Appends the first of `runs`, and says how many and how many words they have: up to one
    /// that needs more than this.
    fn append_all(&mut self, runs: &[Run], words: &[u64]) -> (usize, usize) {
        if self.refused.is_some() || !self.batch.paddr.is_empty() {
            return (0, 0);
        }
        let (batch, carry) = (&mut self.batch, &mut self.carry);
        let start = batch.len();
        let most = start + words.len() + LANES;
        batch.addr.resize(most, 0);
        batch.meta.resize(most, Meta::default());
        let (mut rest, mut out) = (words, start);
        let mut done = 0;
        for run in runs {
            let Some(flat) = self.flat.get(run.shape.0 as usize) else { break };
            if flat.ops != run.ops || flat.rows == 0 || carry.exceeds(flat.first) {
                break;
            }
            let (rows, ops) = (flat.rows as usize, flat.ops as usize);
            let Some(own) = rest.get(1..ops + 1) else { break };
            batch.addr[out] = flat.pc;
            let to = &mut batch.addr[out + rows - ops..];
            // How many operations a block has cannot be predicted, that they are few can.
            if let (Some(lanes), true) = (rest[1..].first_chunk::<LANES>(), ops <= LANES) {
                to[..LANES].copy_from_slice(&lanes.map(|word| word >> Run::ADDR_SHIFT));
            } else {
                to.iter_mut().zip(own).for_each(|(to, word)| *to = word >> Run::ADDR_SHIFT);
            }
            let mut row = 0;
            while row < rows {
                let from = flat.metas as usize + row;
                let lanes = &self.metas[from..from + LANES];
                batch.meta[out + row..out + row + LANES].copy_from_slice(lanes);
                row += LANES;
            }
            batch.meta[out] = batch.meta[out].plus_instructions(carry.now as u32);
            carry.now = u64::from(flat.trailing);
            out += rows;
            rest = &rest[ops + 1..];
            done += 1;
        }
        batch.addr.truncate(out);
        batch.meta.truncate(out);
        let thread = carry.thread();
        if out > start && batch.segments.last().is_none_or(|segment| segment.thread != thread) {
            batch.segments.push(Segment { start: start as u32, thread });
        }
        (done, words.len() - rest.len())
    }

    fn append(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<usize, Error> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        let Some(rows) = self.shapes.get(shape.0 as usize) else { return Err(unknown(shape)) };
        if addrs.len() != rows.ops() {
            return Err(miscounted(rows, addrs.len()));
        }
        let Some(first) = rows.metas.first() else {
            self.carry.now += u64::from(rows.trailing);
            return Ok(0);
        };
        let (batch, carry) = (&mut self.batch, &mut self.carry);
        let thread = carry.thread();
        if carry.exceeds(first.instructions()) {
            batch.push_event(thread, Event::Gap { accesses: 0, instructions: carry.now });
            carry.now = 0;
        }
        if batch.segments.last().is_none_or(|segment| segment.thread != thread) {
            batch.segments.push(Segment { start: batch.len() as u32, thread });
        }
        if rows.fetch {
            batch.addr.push(rows.pc);
        }
        batch.addr.extend_from_slice(addrs);
        let start = batch.meta.len();
        batch.meta.extend_from_slice(&rows.metas);
        batch.meta[start] = first.plus_instructions(carry.now as u32);
        carry.now = u64::from(rows.trailing);
        Ok(rows.metas.len())
    }
}

impl Sink for Batcher {
    fn shape(&mut self, shape: &Shape) -> ShapeId {
        if let Err(error) = shape.check() {
            self.refused.get_or_insert(error);
            return ShapeId(u32::MAX);
        }
        let rows = Rows::from(shape);
        self.flat.push(Flat {
            pc: rows.pc,
            metas: self.metas.len() as u32,
            rows: rows.metas.len() as u32,
            ops: rows.ops() as u32,
            first: rows.metas.first().map_or(0, |meta| meta.instructions()),
            trailing: rows.trailing,
        });
        self.metas.extend_from_slice(&rows.metas);
        self.metas.resize(self.metas.len().next_multiple_of(LANES), Meta::default());
        self.shapes.push(rows);
        ShapeId(self.shapes.len() as u32 - 1)
    }

    #[inline]
    fn thread(&mut self, thread: u32) {
        self.carry.switch(thread);
    }

    #[inline]
    fn execute(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        let rows = self.append(shape, addrs)?;
        if !self.batch.paddr.is_empty() {
            self.batch.paddr.resize(self.batch.paddr.len() + rows, 0);
        }
        Ok(())
    }

    fn execute_all(&mut self, mut runs: &[Run], mut words: &[u64]) -> Result<(), Error> {
        while let [next, rest @ ..] = runs {
            let (done, used) = self.append_all(runs, words);
            (runs, words) = (&runs[done..], &words[used..]);
            if done == 0 {
                let own;
                (own, words) = next.split(words)?;
                let addrs: Vec<u64> = own.iter().map(|word| word >> Run::ADDR_SHIFT).collect();
                self.execute(next.shape, &addrs)?;
                runs = rest;
            }
        }
        Ok(())
    }

    fn execute_physical(
        &mut self,
        shape: ShapeId,
        addrs: &[u64],
        paddrs: &[u64],
    ) -> Result<(), Error> {
        let rows = self.append(shape, addrs)?;
        if paddrs.len() != rows {
            return Err(miscounted(&self.shapes[shape.0 as usize], paddrs.len()));
        }
        self.batch.paddr.resize(self.batch.len() - rows, 0);
        self.batch.paddr.extend_from_slice(paddrs);
        Ok(())
    }

    fn advance(&mut self, instructions: u64) {
        self.carry.now = self.carry.now.saturating_add(instructions);
    }

    fn event(&mut self, thread: u32, event: Event) -> Result<(), Error> {
        self.batch.push_event(thread, event);
        self.refused.take().map_or(Ok(()), Err)
    }
}

/// The error for a shape that this sink has not given out.
#[cold]
pub(crate) fn unknown(shape: ShapeId) -> Error {
    Error::Recorder(format!("block {} ran before its shape was known", shape.0))
}

/// The error for blocks that need more addresses than came with them.
#[cold]
pub(crate) fn too_few() -> Error {
    Error::Recorder("blocks ran with fewer addresses than they have memory operations".to_owned())
}

/// The error for an execution with too many or too few addresses.
#[cold]
pub(crate) fn miscounted(rows: &Rows, addrs: usize) -> Error {
    Error::Recorder(format!(
        "the block at {:#x} has {} memory operations but ran with {addrs} addresses",
        rows.pc,
        rows.ops(),
    ))
}

//! Converts executed blocks to batches: the sink that is used when a program is simulated while it
//! runs.
//!
//! ```text
//!   execute(shape, addrs) --> rows of the shape + addresses --> Batch --take()--> machine
//! ```

use crate::carry::Carry;
use crate::shape::{Link, Rows};
use crate::words::{Ready, Take, Usual, address};
use crate::{Batch, Counted, Error, Event, Hits, Meta, Segment, Shape, ShapeId, Sink, Taken};

/// A [`Sink`] that expands executed blocks into a [`Batch`].
#[derive(Debug, Default)]
pub struct Batcher {
    shapes: Vec<Rows>,
    /// The meaning of a recorder's words.
    usual: Usual,
    ready: Ready<Own>,
    /// The data of each shape, if the shape is plain (see [`Rows`]).
    plain: Vec<Option<Own>>,
    /// The rows of plain shapes that have more than [`LANES`] rows.
    metas: Vec<Meta>,
    /// For plain shapes in which some addresses are derived from others: how each address is
    /// obtained.
    links: Vec<Link>,
    batch: Batch,
    carry: Carry,
    refused: Option<Error>,
    given: u64,
    given_instructions: u64,
    /// The number of accesses that were only counted.
    passed: u64,
}

/// The number of rows that are copied for every block, even if the block has fewer; few blocks have
/// more.
const LANES: usize = 4;

/// The data of a shape that is needed for each execution of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    pc: u64,
    /// The first rows.
    first: [Meta; LANES],
    /// The index of the shape's first row in [`Batcher::metas`], if the shape has more than
    /// [`LANES`] rows.
    metas: u32,
    /// The index of the shape's first link in [`Batcher::links`].
    links: u32,
    /// The number of links: 0 if all addresses are given explicitly.
    links_count: u16,
    rows: u16,
    /// The instructions after the last row: at most [`Rows::PLAIN_INSTRUCTIONS_MAX`].
    trailing: u16,
}

impl Own {
    /// The data for `rows`. If there are more rows than [`LANES`], they are appended to `metas`;
    /// links are appended to `links`.
    fn new(rows: &Rows, metas: &mut Vec<Meta>, links: &mut Vec<Link>) -> Own {
        let mut first = [Meta::default(); LANES];
        first.iter_mut().zip(&rows.metas).for_each(|(first, &meta)| *first = meta);
        let from = metas.len() as u32;
        if rows.metas.len() > LANES {
            metas.extend_from_slice(&rows.metas);
        }
        let own = rows.links.as_ref().map_or(&[][..], |links| &links.all);
        let links_from = links.len() as u32;
        links.extend_from_slice(own);
        Own {
            pc: rows.pc,
            first,
            metas: from,
            links: links_from,
            links_count: own.len() as u16,
            rows: rows.metas.len() as u16,
            trailing: rows.trailing as u16,
        }
    }
}

/// Pointers to the next rows to be written, which stay in registers. At the start there is room for
/// the rows of all words that are processed, and for [`LANES`] more.
struct Columns<'a> {
    addr: *mut u64,
    meta: *mut Meta,
    metas: &'a [Meta],
    links: &'a [Link],
    /// Instructions that the next row will count.
    carry: u32,
}

impl Take<Own> for Columns<'_> {
    #[inline(always)]
    fn take<const SHIFT: u32>(&mut self, own: &Own, words: &[u64]) {
        let rows = usize::from(own.rows);
        // SAFETY: there is room for the rows of the block. Each row except the fetch is an
        // operation. There is one link for each operation or, if there are no links, one word.
        unsafe {
            self.meta.cast::<[Meta; LANES]>().write(own.first);
            self.meta.write(own.first[0].plus_instructions(self.carry));
            if rows > LANES {
                let rest = &self.metas[own.metas as usize..][LANES..rows];
                self.meta.add(LANES).copy_from_nonoverlapping(rest.as_ptr(), rest.len());
            }
            self.addr.write(own.pc);
            (self.addr, self.meta) = (self.addr.add(rows), self.meta.add(rows));
            if own.links_count != 0 {
                let links = &self.links[own.links as usize..][..own.links_count.into()];
                let addrs = self.addr.sub(links.len());
                for (index, link) in links.iter().enumerate() {
                    let base = words
                        .get(usize::from(link.from))
                        .map_or(own.pc, |&word| address::<SHIFT>(word));
                    addrs.add(index).write(base.wrapping_add(link.distance));
                }
                self.carry = u32::from(own.trailing);
                return;
            }
            let addrs = self.addr.sub(words.len());
            for (index, word) in words.iter().enumerate() {
                addrs.add(index).write(address::<SHIFT>(*word));
            }
        }
        self.carry = u32::from(own.trailing);
    }
}

impl Batcher {
    /// The number of accesses of a full batch. Two batches, of which one is filled while the other
    /// is simulated, fit into the cache of one core.
    pub const FULL: usize = 1 << 13;

    /// A batcher without accesses.
    pub fn new() -> Batcher {
        Batcher::default()
    }

    /// Whether [`Batcher::take`] should be called: there are enough accesses for a batch, or a
    /// recorder waits for an answer.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.batch.len() + self.batch.hits.len() >= Batcher::FULL || self.batch.asks
    }

    /// Replaces the contents of `batch` by everything since the last call. Returns false if there
    /// was no access; there may be events nevertheless. The memory of `batch` is reused.
    pub fn take(&mut self, batch: &mut Batch) -> bool {
        batch.clear();
        self.batch.first = self.given;
        self.given += self.batch.len() as u64;
        self.given_instructions += self.batch.instructions();
        std::mem::swap(&mut self.batch, batch);
        !batch.is_empty()
    }

    /// Converts instructions that no row has counted to gaps. Must be called after the last block.
    pub fn finish(&mut self) {
        for (thread, instructions) in self.carry.drain() {
            self.batch.push_event(thread, Event::Gap { accesses: 0, instructions });
        }
    }

    /// Appends the blocks at the beginning of `words`, up to the first block that was not executed
    /// with its usual shape (see [`crate::WORD_SHIFT`]) or whose data are not ready. Returns the
    /// number of words processed.
    fn append_words(&mut self, words: &[u64]) -> usize {
        let carry_max = u64::from(Rows::PLAIN_INSTRUCTIONS_MAX);
        if self.refused.is_some() || !self.batch.paddr.is_empty() || self.carry.now > carry_max {
            return 0;
        }
        let batch = &mut self.batch;
        let start = batch.len();
        let rows_max = self.usual.rows_of(words.len());
        batch.addr.reserve(rows_max + LANES);
        batch.meta.reserve(rows_max + LANES);
        let addrs = batch.addr.spare_capacity_mut();
        let mut columns = Columns {
            addr: addrs.as_mut_ptr().cast(),
            meta: batch.meta.spare_capacity_mut().as_mut_ptr().cast(),
            metas: &self.metas,
            links: &self.links,
            carry: self.carry.now as u32,
        };
        let taken = self.usual.follow(words, &self.ready, &mut columns).words;
        let rows = start + (columns.addr.addr() - addrs.as_ptr().addr()) / size_of::<u64>();
        self.carry.now = u64::from(columns.carry);
        // SAFETY: so many have been written, in room that was reserved.
        unsafe {
            batch.addr.set_len(rows);
            batch.meta.set_len(rows);
        }
        let thread = self.carry.thread();
        if rows > start && batch.segments.last().is_none_or(|segment| segment.thread != thread) {
            batch.segments.push(Segment { start: start as u32, thread });
        }
        taken
    }

    fn append(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<usize, Error> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        let Some(rows) = self.shapes.get(shape.0 as usize) else { return Err(unknown(shape)) };
        let are_all = addrs.len() == rows.ops();
        if !are_all && addrs.len() != rows.said() {
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
        match &rows.links {
            Some(links) if !are_all => batch.addr.extend(links.addrs(addrs, rows.pc)),
            _ => batch.addr.extend_from_slice(addrs),
        }
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
        let own = || Own::new(&rows, &mut self.metas, &mut self.links);
        self.plain.push(rows.is_plain().then(own));
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

    fn usual(&mut self, number: usize, shape: ShapeId, tags: &[u16]) {
        let rows = self.shapes.get(shape.0 as usize).map_or(0, |rows| rows.metas.len());
        self.usual.set(number, shape, tags, rows);
        self.ready.forget(number);
    }

    fn execute_words(&mut self, words: &[u64]) -> Result<Taken, Error> {
        let before = self.batch.len();
        let mut taken = 0;
        loop {
            taken += self.append_words(&words[taken..]);
            let Some((known, addrs)) = self.usual.first(&words[taken..]) else { break };
            self.execute(known.shape, &addrs)?;
            if let Some(own) = self.plain[known.shape.0 as usize] {
                self.ready.set(words[taken], &self.usual, known, own);
            }
            taken += 1 + addrs.len();
        }
        Ok(Taken { words: taken, accesses: (self.batch.len() - before) as u64 })
    }

    fn begin_program(&mut self) {
        self.usual = Usual::default();
        self.ready.forget_all();
    }

    fn accesses(&self) -> u64 {
        self.given + self.batch.len() as u64 + self.passed
    }

    fn instructions(&self) -> u64 {
        self.given_instructions + self.batch.instructions() + self.carry.all()
    }

    fn counted(&mut self, counted: Counted) -> Result<(), Error> {
        let (at, thread) = (self.batch.len() as u32, self.carry.thread());
        match counted {
            Counted::Passed(accesses) => {
                self.passed += accesses;
                self.batch.passed.push((at, accesses));
            }
            Counted::Hits { kind, page, count, goes } => {
                self.batch.hits.push(Hits { at, thread, kind, page, count, goes });
            }
            Counted::Asked => self.batch.asks = true,
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

/// The error for a shape that this sink did not define.
#[cold]
pub(crate) fn unknown(shape: ShapeId) -> Error {
    Error::Recorder(format!(
        "the recorder reported an execution of block {} before it described the block, which is \
         an error in Pagewalk",
        shape.0
    ))
}

/// The error for an execution with the wrong number of addresses.
#[cold]
pub(crate) fn miscounted(rows: &Rows, addrs: usize) -> Error {
    Error::Recorder(format!(
        "the block at {:#x} has {} memory operations, but the recorder reported {addrs} addresses \
         for it{}",
        rows.pc,
        rows.ops(),
        if addrs == rows.ops() {
            ", one of which differs from the address that the block \
                                  computes"
        } else {
            ""
        },
    ))
}

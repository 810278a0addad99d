//! Executions in, chunks out.
//!
//! ```text
//!   execute(shape, addrs)
//!      context of the thread:  shape --> local shape        (first time: a new one)
//!      sequence                <- local shape
//!      slot of each operation: address - last = distance
//!         the same distance again:     code 0
//!         otherwise:                   code 1 + n, n bytes of residual
//! ```
//!
//! A *context* is the threads that share local shapes. Threads get the contexts of a chunk in
//! the order in which they appear; from the seventeenth on they share.

use rustc_hash::FxHashMap;
use serde::Serialize;
use zstd::bulk::Compressor;

use super::chunk::{Head, sequence_bytes};
use super::codes::{self, Slot};
use super::physical::PhysicalEncoder;
use super::segments::Segment;
use super::{
    CHUNK_ACCESSES_MAX, EVENT_BYTES_FULL, EVENT_BYTES_MAX, LOCAL_SHAPES_MAX, dictionary, segments,
};
use crate::batcher::{miscounted, unknown};
use crate::carry::Carry;
use crate::shape::Rows;
use crate::{Error, Event, Meta, Run, Shape, ShapeId};

const CONTEXTS: usize = 16;
/// What no chunk has for a number, and neither has a shape that is not known yet, which has 0.
const NO_CHUNK: u32 = u32::MAX;
/// Operations whose predictors are listed at a time; nearly all blocks have no more.
const PLANNED_AT_ONCE: usize = 2;
/// The most instructions that a row counts.
const COUNTED_MAX: u64 = Meta::INSTRUCTIONS_MAX as u64;

/// What a context knows of a shape, good while the chunk is `chunk`.
#[derive(Clone, Copy, Debug, Default)]
struct Local {
    chunk: u32,
    number: u32,
    /// Index of its first slot.
    slot: u32,
    ops: u32,
    rows: u32,
    /// Instructions that the first row counts itself.
    first: u32,
    /// Instructions of all rows.
    instructions: u32,
    trailing: u32,
}

#[derive(Serialize)]
struct PlacedEvent<'a> {
    at: u32,
    thread: u32,
    event: &'a Event,
}

/// Encodes executions into one chunk after the other.
#[derive(Debug)]
pub(crate) struct Encoder {
    chunk_accesses: u32,
    shapes: Vec<Rows>,
    carry: Carry,
    /// By context, what is known of each shape. That of the present context is in `known`.
    contexts: Vec<Vec<Local>>,
    known: Vec<Local>,
    context: usize,

    /// The number of the present chunk, from 1.
    chunk: u32,
    /// The same while a segment is open, else [`NO_CHUNK`].
    open_chunk: u32,
    /// Rows, or executions without any, that still fit; the chunk is full at 0 or below.
    room: i64,
    head: Head,
    context_of: FxHashMap<u32, usize>,
    /// The shape of each local shape.
    locals: Vec<ShapeId>,
    slots: Vec<Slot>,
    segments: Vec<Segment>,
    /// Where the open segment begins in the sequence, if one is open.
    segment: Option<usize>,
    sequence: Vec<u16>,
    /// One code a byte, packed when the chunk is closed; `head.ops` of them are in use, and
    /// the others are 0.
    codes: Vec<u8>,
    /// The first `residual_bytes` are in use. There is room for all that a chunk can need;
    /// what is never touched costs no memory.
    residual: Vec<u8>,
    residual_bytes: usize,
    /// The address of the last operation.
    addr: u64,
    events: Vec<u8>,
    physical: Option<PhysicalEncoder>,
    /// The predictor of each operation of the runs at hand.
    planned: Vec<u32>,
    /// Sequence and codes as they are stored; kept for its memory.
    packed: Vec<u8>,
}

impl Encoder {
    /// An encoder that wants chunks of about `chunk_accesses` accesses.
    pub(crate) fn new(chunk_accesses: u32) -> Encoder {
        let chunk_accesses = chunk_accesses.clamp(1, CHUNK_ACCESSES_MAX);
        Encoder {
            chunk_accesses,
            shapes: Vec::new(),
            carry: Carry::default(),
            contexts: Vec::new(),
            known: Vec::new(),
            context: 0,
            chunk: 1,
            open_chunk: NO_CHUNK,
            room: i64::from(chunk_accesses),
            head: Head::default(),
            context_of: FxHashMap::default(),
            locals: Vec::new(),
            slots: Vec::new(),
            segments: Vec::new(),
            segment: None,
            sequence: Vec::new(),
            codes: Vec::new(),
            residual: Vec::new(),
            residual_bytes: 0,
            addr: 0,
            events: Vec::new(),
            physical: None,
            planned: Vec::new(),
            packed: Vec::new(),
        }
    }

    /// Makes a shape known.
    pub(crate) fn shape(&mut self, rows: Rows) -> ShapeId {
        self.shapes.push(rows);
        ShapeId(self.shapes.len() as u32 - 1)
    }

    /// How many shapes are known.
    pub(crate) fn shapes(&self) -> usize {
        self.shapes.len()
    }

    /// Forgets all shapes. The present chunk must be empty.
    pub(crate) fn forget_shapes(&mut self) {
        debug_assert!(self.is_empty());
        self.shapes.clear();
        self.contexts.clear();
        self.known.clear();
        self.context = 0;
    }

    /// What follows is done by `thread`.
    #[inline]
    pub(crate) fn thread(&mut self, thread: u32) {
        if self.carry.switch(thread) {
            self.end_segment();
        }
    }

    /// The thread began instructions that have no row.
    pub(crate) fn advance(&mut self, instructions: u64) {
        self.end_segment();
        self.carry.now = self.carry.now.saturating_add(instructions);
    }

    /// The counts of the present chunk.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Whether the chunk must be closed before anything else comes.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.room <= 0
    }

    /// Whether the chunk holds nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.sequence.is_empty() && self.head.events == 0
    }

    /// Encodes an execution. The chunk must not be full.
    #[inline]
    pub(crate) fn execute(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        let local = match self.known.get(shape.0 as usize) {
            Some(local) if local.chunk == self.open_chunk => *local,
            _ => return self.execute_unprepared(shape, addrs),
        };
        if addrs.len() != local.ops as usize {
            return Err(miscounted(&self.shapes[shape.0 as usize], addrs.len()));
        }
        if self.carry.exceeds(local.first) && local.rows != 0 {
            self.leave_gap()?;
        }
        self.append(&local);

        let Some(last) = addrs.last() else { return Ok(()) };
        self.addr = *last;
        let slots = &mut self.slots[local.slot as usize..][..addrs.len()];
        let surprise = slots.iter().zip(addrs).fold(0, |surprise, (slot, &addr)| {
            surprise | (addr.wrapping_sub(slot.last) ^ slot.distance)
        });
        let codes = &mut self.codes[self.head.ops as usize..][..addrs.len()];
        self.head.ops += local.ops;
        if surprise == 0 {
            // The codes are 0 already.
            slots.iter_mut().zip(addrs).for_each(|(slot, &addr)| slot.last = addr);
            return Ok(());
        }
        let mut at = self.residual_bytes;
        for ((slot, code), &addr) in slots.iter_mut().zip(codes).zip(addrs) {
            at += slot.encode(addr, code, &mut self.residual[at..]);
        }
        self.residual_bytes = at;
        Ok(())
    }

    /// Encodes the first of `runs`, and says how many and how many addresses they have: up to
    /// one that needs more than this, or that fills the chunk.
    ///
    /// Small blocks come in an order that is hard to predict, so nothing here turns on how many
    /// operations a block has: first the predictors of all operations are listed, then all
    /// operations are encoded in one loop.
    pub(crate) fn execute_all(&mut self, runs: &[Run], addrs: &[u64]) -> (usize, usize) {
        if self.physical.is_some() {
            return (0, 0);
        }
        self.planned.resize(addrs.len() + PLANNED_AT_ONCE, 0);
        let before = self.sequence.len();
        self.sequence.resize(before + runs.len(), 0);
        // Locals, so that what is written through them is not thought to change `self`.
        let (known, open_chunk) = (self.known.as_slice(), self.open_chunk);
        let (mut carry, mut room) = (self.carry.now, self.room);
        let (mut instructions, mut accesses) = (0, 0);
        let (mut done, mut ops) = (0, 0);
        for (run, number) in runs.iter().zip(&mut self.sequence[before..]) {
            let Some(local) = known.get(run.shape.0 as usize) else { break };
            let strange = local.chunk ^ open_chunk | local.ops ^ run.ops;
            let counted = carry + u64::from(local.first);
            if strange != 0 || local.rows == 0 || counted > COUNTED_MAX || room <= 0 {
                break;
            }
            let end = ops + local.ops as usize;
            let Some(planned) = self.planned.get_mut(ops..end + PLANNED_AT_ONCE) else { break };
            (planned[0], planned[1]) = (local.slot, local.slot + 1);
            if local.ops as usize > PLANNED_AT_ONCE {
                planned.iter_mut().zip(local.slot..).for_each(|(planned, slot)| *planned = slot);
            }
            *number = local.number as u16;
            instructions += carry + u64::from(local.instructions);
            carry = u64::from(local.trailing);
            accesses += local.rows;
            room -= i64::from(local.rows);
            ops = end;
            done += 1;
        }
        self.sequence.truncate(before + done);
        (self.carry.now, self.room) = (carry, room);
        self.head.instructions += instructions;
        self.head.accesses += accesses;

        let Some(addrs) = addrs.get(..ops) else { return (0, 0) };
        let codes = &mut self.codes[self.head.ops as usize..][..ops];
        let (slots, residual) = (self.slots.as_mut_slice(), self.residual.as_mut_slice());
        let mut at = self.residual_bytes;
        for ((&slot, code), &addr) in self.planned.iter().zip(codes).zip(addrs) {
            at += slots[slot as usize].encode(addr, code, &mut residual[at..]);
        }
        self.residual_bytes = at;
        self.head.ops += ops as u32;
        self.addr = addrs.last().copied().unwrap_or(self.addr);
        (done, ops)
    }

    /// Encodes an execution that begins a segment or is the first of its shape.
    #[cold]
    fn execute_unprepared(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        let Some(rows) = self.shapes.get(shape.0 as usize) else { return Err(unknown(shape)) };
        if addrs.len() != rows.ops() {
            return Err(miscounted(rows, addrs.len()));
        }
        if self.segment.is_none() {
            self.begin_segment();
        }
        if self.known.len() < self.shapes.len() {
            self.known.resize(self.shapes.len(), Local::default());
        }
        if self.known[shape.0 as usize].chunk == self.chunk {
            return self.execute(shape, addrs);
        }
        let rows = &self.shapes[shape.0 as usize];
        let local = Local {
            chunk: self.chunk,
            number: self.locals.len() as u32,
            slot: self.slots.len() as u32,
            ops: rows.ops() as u32,
            rows: rows.metas.len() as u32,
            first: rows.metas.first().map_or(0, |meta| meta.instructions()),
            instructions: rows.metas.iter().map(|meta| meta.instructions()).sum(),
            trailing: rows.trailing,
        };
        self.known[shape.0 as usize] = local;
        self.locals.push(shape);
        if self.locals.len() == LOCAL_SHAPES_MAX {
            self.room = 0;
        }
        if self.carry.exceeds(local.first) && local.rows != 0 {
            self.leave_gap()?;
        }
        self.append(&local);
        for &addr in addrs {
            let mut slot = Slot { last: self.addr, distance: 0 };
            let code = &mut self.codes[self.head.ops as usize];
            self.residual_bytes +=
                slot.encode(addr, code, &mut self.residual[self.residual_bytes..]);
            self.head.ops += 1;
            self.slots.push(Slot { last: addr, distance: 0 });
            self.addr = addr;
        }
        Ok(())
    }

    /// Counts an execution of `local` and puts it into the sequence.
    #[inline]
    fn append(&mut self, local: &Local) {
        self.sequence.push(local.number as u16);
        if local.rows == 0 {
            self.carry.now = self.carry.now.saturating_add(u64::from(local.trailing));
            self.room -= 1;
            return;
        }
        self.head.instructions += self.carry.now + u64::from(local.instructions);
        self.carry.now = u64::from(local.trailing);
        self.head.accesses += local.rows;
        self.room -= i64::from(local.rows);
        if self.physical.is_some() {
            self.pad_physical();
        }
    }

    /// Encodes an execution whose rows have the physical addresses `paddrs`.
    pub(crate) fn execute_physical(
        &mut self,
        shape: ShapeId,
        addrs: &[u64],
        paddrs: &[u64],
    ) -> Result<(), Error> {
        let Some(rows) = self.shapes.get(shape.0 as usize) else { return Err(unknown(shape)) };
        if paddrs.len() != rows.metas.len() || addrs.len() != rows.ops() {
            return Err(miscounted(rows, paddrs.len().min(addrs.len())));
        }
        let accesses = self.head.accesses as usize;
        let mut physical =
            self.physical.take().unwrap_or_else(|| PhysicalEncoder::starting_at(accesses));
        let fetch = rows.fetch.then_some(rows.pc);
        for (addr, &paddr) in fetch.into_iter().chain(addrs.iter().copied()).zip(paddrs) {
            physical.push(addr, paddr);
        }
        // While it is taken out, the execution does not pad it.
        let done = self.execute(shape, addrs);
        self.physical = Some(physical);
        done
    }

    #[cold]
    fn pad_physical(&mut self) {
        if let Some(physical) = &mut self.physical {
            physical.pad(self.head.accesses as usize);
        }
    }

    /// Adds an event before whatever comes next.
    pub(crate) fn event(&mut self, thread: u32, event: &Event) -> Result<(), Error> {
        let too_large =
            |what: String| Error::Recorder(format!("an event cannot be stored: {what}"));
        let placed = PlacedEvent { at: self.head.accesses, thread, event };
        let json = serde_json::to_vec(&placed).map_err(|error| too_large(error.to_string()))?;
        if json.len() > EVENT_BYTES_MAX {
            return Err(too_large(format!(
                "{} bytes, at most {EVENT_BYTES_MAX} can be",
                json.len()
            )));
        }
        if self.head.events != 0 {
            self.events.push(b',');
        }
        self.events.extend_from_slice(&json);
        self.head.events += 1;
        if self.events.len() >= EVENT_BYTES_FULL {
            self.room = 0;
        }
        Ok(())
    }

    /// What no row has counted becomes gaps: call it after the last execution.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.end_segment();
        for (thread, instructions) in self.carry.drain() {
            self.event(thread, &Event::Gap { accesses: 0, instructions })?;
        }
        Ok(())
    }

    /// More instructions wait than a row can count: they become an event.
    #[cold]
    fn leave_gap(&mut self) -> Result<(), Error> {
        let instructions = std::mem::take(&mut self.carry.now);
        self.event(self.carry.thread(), &Event::Gap { accesses: 0, instructions })?;
        self.end_segment();
        self.begin_segment();
        Ok(())
    }

    fn begin_segment(&mut self) {
        let thread = self.carry.thread();
        let next = self.context_of.len() % CONTEXTS;
        let context = *self.context_of.entry(thread).or_insert(next);
        if self.contexts.len() <= context.max(self.context) {
            self.contexts.resize(context.max(self.context) + 1, Vec::new());
        }
        self.contexts.swap(context, self.context);
        std::mem::swap(&mut self.known, &mut self.contexts[self.context]);
        self.contexts.swap(context, self.context);
        self.context = context;
        if self.residual.is_empty() {
            let ops_max = self.chunk_accesses as usize + Shape::OPS_MAX;
            self.codes = vec![0; ops_max];
            self.residual = vec![0; 8 * ops_max + 8];
        }
        self.segments.push(Segment { thread, executions: 0, carry: self.carry.now });
        self.segment = Some(self.sequence.len());
        self.open_chunk = self.chunk;
    }

    fn end_segment(&mut self) {
        let Some(start) = self.segment.take() else { return };
        self.open_chunk = NO_CHUNK;
        let executions = (self.sequence.len() - start) as u32;
        if executions == 0 {
            self.segments.pop();
        } else if let Some(segment) = self.segments.last_mut() {
            segment.executions = executions;
        }
    }

    /// Writes the chunk, whose first access has the index `first` in the trace, as the body of
    /// a frame to `out`, and begins the next one.
    pub(crate) fn close(
        &mut self,
        first: u64,
        compressor: &mut Compressor<'_>,
        out: &mut Vec<u8>,
    ) -> std::io::Result<Head> {
        self.end_segment();
        self.head.first = first;
        self.head.executions = self.sequence.len() as u32;
        self.head.shapes = self.locals.len() as u32;
        self.head.segments = self.segments.len() as u32;
        self.head.physical = self.physical.is_some();

        let (mut dictionary, mut pc) = (Vec::new(), 0);
        for shape in &self.locals {
            dictionary::put(&mut dictionary, &self.shapes[shape.0 as usize], &mut pc);
        }
        let mut segments = Vec::new();
        self.segments.iter().for_each(|&segment| segments::put(&mut segments, segment));
        let (packed, ops) = (&mut self.packed, self.head.ops as usize);
        packed.clear();
        match sequence_bytes(self.head.shapes) {
            1 => packed.extend(self.sequence.iter().map(|&local| local as u8)),
            _ => packed.extend(self.sequence.iter().flat_map(|local| local.to_le_bytes())),
        }
        let sequence_end = packed.len();
        codes::pack(&self.codes[..ops], packed);
        let (sequence, codes) = packed.split_at(sequence_end);
        let events = [b"[", self.events.as_slice(), b"]"].concat();
        let physical = self.physical.take().map(PhysicalEncoder::finish).unwrap_or_default();
        let residual = &self.residual[..self.residual_bytes];
        let streams =
            [&dictionary, &segments, sequence, codes, residual, &events, physical.as_slice()];
        self.head.write(streams, compressor, out)?;
        Ok(self.begin_chunk())
    }

    /// Forgets the present chunk; gives its counts.
    fn begin_chunk(&mut self) -> Head {
        self.chunk = self.chunk % (NO_CHUNK - 1) + 1;
        self.codes[..self.head.ops as usize].fill(0);
        self.room = i64::from(self.chunk_accesses);
        self.context_of.clear();
        self.locals.clear();
        self.slots.clear();
        self.segments.clear();
        self.sequence.clear();
        self.residual_bytes = 0;
        self.addr = 0;
        self.events.clear();
        std::mem::take(&mut self.head)
    }
}

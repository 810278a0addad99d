//! Encodes executions to chunks.
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
//! Addresses that are derived from others are not encoded.
//!
//! A *context* is a set of threads that share local shapes. Threads get the contexts of a chunk in
//! the order in which they appear; from the seventeenth thread on, contexts are shared.

mod words;

use rustc_hash::FxHashMap;
use serde::Serialize;

use self::words::Own;
use super::chunk::{Head, Owner, sequence_bytes};
use super::codes::{self, Slot};
use super::compression::Compressor;
use super::physical::PhysicalEncoder;
use super::segments::Segment;
use super::translations::TranslationsEncoder;
use super::{
    CHUNK_ACCESSES_MAX, EVENT_BYTES_FULL, EVENT_BYTES_MAX, LOCAL_SHAPES_MAX, STAMPS_MAX,
    dictionary, segments, stamps, translations,
};
use crate::batcher::{miscounted, unknown};
use crate::carry::Carry;
use crate::shape::Rows;
use crate::words::{Ready, Usual};
use crate::{Error, Event, Shape, ShapeId, Stamp};

const CONTEXTS: usize = 16;
/// A number that no chunk has. It differs from 0, which a shape has as its chunk number before it
/// is known.
const NO_CHUNK: u32 = u32::MAX;

/// The data that the threads of a context share.
#[derive(Clone, Debug, Default)]
struct Context {
    /// The data of each shape.
    known: Vec<Local>,
    /// The blocks in a recorder's words whose local shapes are known.
    ready: Ready<Own>,
}

/// The data of a shape in a context, valid only in the chunk `chunk`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Local {
    chunk: u32,
    /// The rows and instructions of an execution.
    totals: Totals,
    /// The index of the first slot of its operations.
    slot: u32,
    number: u16,
    trailing: u32,
}

/// The remaining room for rows, and the instructions counted. Both are in one number, so that one
/// addition updates both.
#[derive(Clone, Copy, Debug, Default)]
struct Totals(i64);

impl Totals {
    /// The number of bits for instructions: enough for a chunk.
    const INSTRUCTION_BITS: u32 = 40;

    fn new(rows_left: i64, instructions: u64) -> Totals {
        Totals((rows_left << Totals::INSTRUCTION_BITS) + instructions as i64)
    }

    fn rows_left(self) -> i64 {
        self.0 >> Totals::INSTRUCTION_BITS
    }

    fn instructions(self) -> u64 {
        self.0 as u64 & (u64::MAX >> (64 - Totals::INSTRUCTION_BITS))
    }
}

#[derive(Serialize)]
struct PlacedEvent<'a> {
    at: u32,
    thread: u32,
    event: &'a Event,
}

/// A finished chunk.
pub(crate) struct Closed {
    /// The counts of the chunk.
    pub(crate) head: Head,
    /// The CRC-32 of the streams that describe its accesses.
    pub(crate) accesses_crc: u32,
    /// The CRC-32 of the parts of its events that do not differ between recordings.
    pub(crate) events_crc: u32,
}

/// The part of a chunk's event that does not differ between recordings, as bytes; `json` is the
/// complete event.
fn identity(at: u32, thread: u32, event: &Event, json: &[u8]) -> serde_json::Result<Vec<u8>> {
    match event.steady() {
        None => Ok(Vec::new()),
        Some(steady) if steady == *event => Ok(json.to_vec()),
        Some(steady) => serde_json::to_vec(&PlacedEvent { at, thread, event: &steady }),
    }
}

/// Encodes executions into consecutive chunks.
#[derive(Debug)]
pub(crate) struct Encoder {
    chunk_accesses: u32,
    shapes: Vec<Rows>,
    carry: Carry,
    /// All contexts. The current context is in `present`, and an empty context is in its place
    /// here.
    contexts: Vec<Context>,
    present: Context,
    context: usize,
    /// The meaning of a recorder's words.
    usual: Usual,

    /// The number of the current chunk, from 1.
    chunk: u32,
    /// The number of the current chunk while a segment is open, otherwise [`NO_CHUNK`].
    open_chunk: u32,
    /// How many more rows (or executions without rows) fit; the chunk is full at 0 or below.
    room: i64,
    head: Head,
    context_of: FxHashMap<u32, usize>,
    /// The shape of each local shape.
    locals: Vec<ShapeId>,
    slots: Vec<Slot>,
    segments: Vec<Segment>,
    /// The position, in the sequence, of the start of the open segment, if one is open.
    segment: Option<u32>,
    /// The first `head.executions` elements are in use. This vector and the next two have room for
    /// everything that a chunk can need; memory that is never touched costs nothing.
    sequence: Vec<[u8; 2]>,
    /// One code per byte, packed when the chunk is finished. The first `head.ops` are in use; the
    /// others are 0.
    codes: Vec<u8>,
    /// The first `residual_bytes` elements are in use.
    residual: Vec<u8>,
    residual_bytes: u32,
    /// The address of the last operation.
    addr: u64,
    events: Vec<u8>,
    /// The CRC-32 of the parts of the events that do not differ between recordings.
    events_crc: crc32fast::Hasher,
    stamps: Vec<u8>,
    stamp: Stamp,
    /// The number of events before the last stamp.
    stamped_events: u32,
    physical: Option<PhysicalEncoder>,
    translations: TranslationsEncoder,
    /// A buffer, reused for each chunk, for the sequence and the codes in their stored form.
    packed: Vec<u8>,
}

impl Encoder {
    /// An encoder that makes chunks of about `chunk_accesses` accesses.
    pub(crate) fn new(chunk_accesses: u32) -> Encoder {
        let chunk_accesses = chunk_accesses.clamp(1, CHUNK_ACCESSES_MAX);
        Encoder {
            chunk_accesses,
            shapes: Vec::new(),
            carry: Carry::default(),
            contexts: Vec::new(),
            present: Context::default(),
            context: 0,
            usual: Usual::default(),
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
            events_crc: crc32fast::Hasher::new(),
            stamps: Vec::new(),
            stamp: Stamp::default(),
            stamped_events: 0,
            physical: None,
            translations: TranslationsEncoder::default(),
            packed: Vec::new(),
        }
    }

    /// The following chunks belong to process `number` of a recording; the process began at the
    /// time `ns`.
    pub(crate) fn own(&mut self, number: u32, ns: u64) {
        self.stamp.ns = ns;
        self.head.owner = Some(Owner { process: number, stamps: 0, began_ns: ns });
    }

    /// Records that all accesses and events so far were made by the time `ns`. A time before the
    /// last stamp counts as the time of the last stamp.
    pub(crate) fn stamp(&mut self, ns: u64) {
        let Some(owner) = &mut self.head.owner else { return };
        let events = self.head.events + self.translations.count;
        let at = self.head.accesses;
        // A second stamp at the same position would add no information.
        if owner.stamps != 0 && self.stamp.at == at && self.stamped_events == events {
            return;
        }
        let stamp = Stamp { at, ns: ns.max(self.stamp.ns) };
        stamps::put(&mut self.stamps, self.stamp, stamp);
        (self.stamp, self.stamped_events) = (stamp, events);
        owner.stamps += 1;
        if owner.stamps == STAMPS_MAX {
            self.room = 0;
        }
    }

    /// Defines a shape.
    pub(crate) fn shape(&mut self, rows: Rows) -> ShapeId {
        self.shapes.push(rows);
        ShapeId(self.shapes.len() as u32 - 1)
    }

    /// The number of defined shapes.
    pub(crate) fn shapes(&self) -> usize {
        self.shapes.len()
    }

    /// Removes all shapes. The current chunk must be empty.
    pub(crate) fn forget_shapes(&mut self) {
        debug_assert!(self.is_empty());
        self.shapes.clear();
        self.contexts.clear();
        self.present = Context::default();
        self.usual = Usual::default();
        self.context = 0;
    }

    /// Called when the process executes another program: drops the usual shapes of the previous
    /// program's blocks.
    pub(crate) fn begin_program(&mut self) {
        self.usual = Usual::default();
        self.present.ready.forget_all();
        self.contexts.iter_mut().for_each(|context| context.ready.forget_all());
    }

    /// Makes `thread` the thread of the following rows and events.
    #[inline]
    pub(crate) fn thread(&mut self, thread: u32) {
        if self.carry.switch(thread) {
            self.end_segment();
        }
    }

    /// Records instructions of the thread that have no row.
    pub(crate) fn advance(&mut self, instructions: u64) {
        self.end_segment();
        self.carry.now = self.carry.now.saturating_add(instructions);
    }

    /// The counts of the current chunk.
    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Whether the chunk must be finished before anything else is added.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.room <= 0
    }

    /// Whether the chunk is empty.
    pub(crate) fn is_empty(&self) -> bool {
        let stamps = self.head.owner.map_or(0, |owner| owner.stamps);
        let events = self.head.events + self.translations.count;
        self.head.executions == 0 && events == 0 && stamps == 0
    }

    /// Encodes an execution. The chunk must not be full.
    #[inline]
    pub(crate) fn execute(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        let local = match self.present.known.get(shape.0 as usize) {
            Some(local) if local.chunk == self.open_chunk => *local,
            _ => return self.execute_unprepared(shape, addrs),
        };
        let rows = &self.shapes[shape.0 as usize];
        if addrs.len() != rows.said() {
            return self.execute_all(shape, addrs);
        }
        self.append(shape, &local)?;

        let Some(last) = addrs.last() else { return Ok(()) };
        self.addr = *last;
        let slots = &mut self.slots[local.slot as usize..][..addrs.len()];
        let mispredicted = slots.iter().zip(addrs).fold(0, |mispredicted, (slot, &addr)| {
            mispredicted | (addr.wrapping_sub(slot.last) ^ slot.distance)
        });
        let codes = &mut self.codes[self.head.ops as usize..][..addrs.len()];
        self.head.ops += addrs.len() as u32;
        if mispredicted == 0 {
            // The codes are 0 already.
            slots.iter_mut().zip(addrs).for_each(|(slot, &addr)| slot.last = addr);
            return Ok(());
        }
        let mut at = self.residual_bytes;
        for ((slot, code), &addr) in slots.iter_mut().zip(codes).zip(addrs) {
            at += slot.encode(addr, code, &mut self.residual[at as usize..]);
        }
        self.residual_bytes = at;
        Ok(())
    }

    /// Encodes an execution whose `addrs` include the derived addresses, which are not encoded.
    #[cold]
    fn execute_all(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        let rows = &self.shapes[shape.0 as usize];
        match rows.said_of(addrs) {
            Some(said) => self.execute(shape, &said),
            None => Err(miscounted(rows, addrs.len())),
        }
    }

    /// Encodes an execution that begins a segment or is the first of its shape.
    #[cold]
    fn execute_unprepared(&mut self, shape: ShapeId, addrs: &[u64]) -> Result<(), Error> {
        let Some(rows) = self.shapes.get(shape.0 as usize) else { return Err(unknown(shape)) };
        if addrs.len() != rows.said() {
            return self.execute_all(shape, addrs);
        }
        if self.segment.is_none() {
            self.begin_segment();
        }
        if self.present.known.len() < self.shapes.len() {
            self.present.known.resize(self.shapes.len(), Local::default());
        }
        if self.present.known[shape.0 as usize].chunk == self.chunk {
            return self.execute(shape, addrs);
        }
        let rows = &self.shapes[shape.0 as usize];
        let instructions: u64 = rows.metas.iter().map(|meta| u64::from(meta.instructions())).sum();
        let instructions = instructions + u64::from(rows.trailing);
        let local = Local {
            chunk: self.chunk,
            totals: Totals::new(-(rows.metas.len() as i64), instructions),
            slot: self.slots.len() as u32,
            number: self.locals.len() as u16,
            trailing: rows.trailing,
        };
        self.present.known[shape.0 as usize] = local;
        self.locals.push(shape);
        if self.locals.len() == LOCAL_SHAPES_MAX {
            self.room = 0;
        }
        self.append(shape, &local)?;
        for &addr in addrs {
            let mut slot = Slot { last: self.addr, distance: 0 };
            let code = &mut self.codes[self.head.ops as usize];
            let residual = &mut self.residual[self.residual_bytes as usize..];
            self.residual_bytes += slot.encode(addr, code, residual);
            self.head.ops += 1;
            self.slots.push(Slot { last: addr, distance: 0 });
            self.addr = addr;
        }
        Ok(())
    }

    /// Counts an execution of `shape` and appends it to the sequence.
    #[inline]
    fn append(&mut self, shape: ShapeId, local: &Local) -> Result<(), Error> {
        let Some(first) = self.shapes[shape.0 as usize].metas.first() else {
            self.sequence[self.head.executions as usize] = local.number.to_le_bytes();
            self.head.executions += 1;
            self.carry.now = self.carry.now.saturating_add(u64::from(local.trailing));
            self.room -= 1;
            return Ok(());
        };
        if self.carry.exceeds(first.instructions()) {
            self.leave_gap()?;
        }
        self.sequence[self.head.executions as usize] = local.number.to_le_bytes();
        self.head.executions += 1;
        let trailing = u64::from(local.trailing);
        self.head.instructions += self.carry.now + local.totals.instructions() - trailing;
        self.carry.now = trailing;
        self.head.accesses += -local.totals.rows_left() as u32;
        self.room += local.totals.rows_left();
        if self.physical.is_some() {
            self.pad_physical();
        }
        Ok(())
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
        // While the physical stream is taken out of `self`, `execute` does not pad it.
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

    /// Adds an event, which comes before the next access.
    pub(crate) fn event(&mut self, thread: u32, event: &Event) -> Result<(), Error> {
        let too_large = |what: String| {
            Error::Recorder(format!("the trace format cannot store an event: {what}"))
        };
        if translations::is_here(event) {
            translations::check(event).map_err(|what| too_large(format!("it has {what}")))?;
            let Head { accesses, events, .. } = self.head;
            self.translations.push(accesses, events, thread, event);
            if self.translations.is_full() {
                self.room = 0;
            }
            return Ok(());
        }
        let placed = PlacedEvent { at: self.head.accesses, thread, event };
        let json = serde_json::to_vec(&placed).map_err(|error| too_large(error.to_string()))?;
        if json.len() > EVENT_BYTES_MAX {
            return Err(too_large(format!(
                "{} bytes, but at most {EVENT_BYTES_MAX} are possible",
                json.len()
            )));
        }
        if self.head.events != 0 {
            self.events.push(b',');
        }
        self.events.extend_from_slice(&json);
        self.head.events += 1;
        self.head.instructions += event.uncounted_instructions();
        if self.head.owner.is_some() {
            self.identify(&placed, &json)?;
        }
        if self.events.len() >= EVENT_BYTES_FULL {
            self.room = 0;
        }
        Ok(())
    }

    /// Includes an event in the digest.
    fn identify(&mut self, placed: &PlacedEvent<'_>, json: &[u8]) -> Result<(), Error> {
        let crc = identity(placed.at, placed.thread, placed.event, json).map_err(|error| {
            Error::Recorder(format!("the trace format cannot store an event: {error}"))
        })?;
        self.events_crc.update(&crc);
        Ok(())
    }

    /// Converts instructions that no row has counted to gaps. Must be called after the last
    /// execution.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        self.end_segment();
        for (thread, instructions) in self.carry.drain() {
            self.event(thread, &Event::Gap { accesses: 0, instructions })?;
        }
        Ok(())
    }

    /// Adds a gap for waiting instructions, because there are more of them than a row can count.
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
            self.contexts.resize(context.max(self.context) + 1, Context::default());
        }
        std::mem::swap(&mut self.present, &mut self.contexts[self.context]);
        std::mem::swap(&mut self.present, &mut self.contexts[context]);
        self.context = context;
        if self.residual.is_empty() {
            let ops_max = self.chunk_accesses as usize + Shape::OPS_MAX;
            self.sequence = vec![[0; 2]; ops_max];
            self.codes = vec![0; ops_max];
            self.residual = vec![0; 8 * ops_max + 8];
        }
        self.segments.push(Segment { thread, executions: 0, carry: self.carry.now });
        self.segment = Some(self.head.executions);
        self.open_chunk = self.chunk;
    }

    fn end_segment(&mut self) {
        let Some(start) = self.segment.take() else { return };
        self.open_chunk = NO_CHUNK;
        let executions = self.head.executions - start;
        if executions == 0 {
            self.segments.pop();
        } else if let Some(segment) = self.segments.last_mut() {
            segment.executions = executions;
        }
    }

    /// Appends the chunk, whose first access has the index `first` in the trace, as the body of a
    /// frame to `out`, and begins the next chunk.
    pub(crate) fn close(
        &mut self,
        first: u64,
        compressor: &mut Compressor,
        out: &mut Vec<u8>,
    ) -> std::io::Result<Closed> {
        self.end_segment();
        self.head.first = first;
        self.head.shapes = self.locals.len() as u32;
        self.head.segments = self.segments.len() as u32;
        self.head.physical = self.physical.is_some();

        let (mut dictionary, mut pc) = (Vec::new(), 0);
        let shapes = self.locals.iter().map(|shape| &self.shapes[shape.0 as usize]);
        self.head.linked = shapes.clone().any(|rows| rows.links.is_some());
        shapes.for_each(|rows| {
            dictionary::put(&mut dictionary, rows, self.head.linked, &mut pc);
        });
        let mut segments = Vec::new();
        self.segments.iter().for_each(|&segment| segments::put(&mut segments, segment));
        let sequence = &self.sequence[..self.head.executions as usize];
        self.packed.clear();
        codes::pack(&self.codes[..self.head.ops as usize], &mut self.packed);
        let codes_end = self.packed.len();
        let is_narrow = sequence_bytes(self.head.shapes) == 1;
        if is_narrow {
            self.packed.extend(sequence.iter().map(|&number| u16::from_le_bytes(number) as u8));
        }
        let (codes, narrow) = self.packed.split_at(codes_end);
        let sequence = if is_narrow { narrow } else { sequence.as_flattened() };
        let events = [b"[", self.events.as_slice(), b"]"].concat();
        let physical = self.physical.take().map(PhysicalEncoder::finish).unwrap_or_default();
        let residual = &self.residual[..self.residual_bytes as usize];
        let physical = physical.as_slice();
        let stamps = self.stamps.as_slice();
        self.head.translations = self.translations.count;
        self.head.tables = self.translations.has_tables;
        let translations = self.translations.out.as_slice();
        let streams = [
            &dictionary,
            &segments,
            sequence,
            codes,
            residual,
            &events,
            physical,
            stamps,
            translations,
        ];
        let accesses_crc = self.head.write(streams, compressor, out)?;
        let events_crc = std::mem::take(&mut self.events_crc).finalize();
        let head = self.begin_chunk();
        Ok(Closed { head, accesses_crc, events_crc })
    }

    /// Empties the current chunk and returns its counts.
    fn begin_chunk(&mut self) -> Head {
        self.chunk = self.chunk % (NO_CHUNK - 1) + 1;
        self.present.ready.forget_all();
        self.contexts.iter_mut().for_each(|context| context.ready.forget_all());
        self.codes[..self.head.ops as usize].fill(0);
        self.room = i64::from(self.chunk_accesses);
        self.context_of.clear();
        self.locals.clear();
        self.slots.clear();
        self.segments.clear();
        self.residual_bytes = 0;
        self.addr = 0;
        self.events.clear();
        self.stamps.clear();
        self.translations.clear();
        (self.stamp.at, self.stamped_events) = (0, 0);
        let owner = self.head.owner;
        let owner = owner.map(|owner| Owner { stamps: 0, began_ns: self.stamp.ns, ..owner });
        std::mem::replace(&mut self.head, Head { owner, ..Head::default() })
    }
}

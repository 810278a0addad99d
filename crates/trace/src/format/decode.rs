//! Chunks in, batches out.
//!
//! ```text
//!   sequence --> local shape --> metas of its rows, copied        meta[..]
//!                            --> pc                               addr[0]
//!            codes, residual --> slot.last + distance             addr[1..]
//! ```
//!
//! The common execution takes the same way whatever its addresses are: the code looks up in
//! tables how many bytes of the residual count and whether the distance is added, so that there
//! is nothing to predict. What a wrong chunk could do is checked before: all codes together need
//! as many bytes as there are.

use serde::Deserialize;
use zstd::bulk::Decompressor;

use super::chunk::{Head, NAMES, STREAMS, sequence_bytes};
use super::codes::{Slot, WORD, word};
use super::physical::PhysicalDecoder;
use super::segments::Segment;
use super::wire::Bytes;
use super::{Damage, codes, dictionary, segments};
use crate::{Batch, Event, Meta, Placed, Shape};

/// Rows that are copied without looking at their number; buffers have as many to spare.
const SPARE: usize = 8;

/// Index of the residual among the streams.
const RESIDUAL: usize = 4;

/// What is needed of a local shape for every execution.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Local {
    /// Its first rows.
    metas: [Meta; SPARE],
    pc: u64,
    /// Index of its first row in the templates.
    template: u32,
    /// Index of its first slot.
    slot: u32,
    trailing: u32,
    rows: u16,
    ops: u16,
    /// The bits of the next eight codes that are its operations', if it has at most eight.
    codes: u64,
}

#[derive(Debug, Deserialize)]
struct PlacedEvent {
    at: u32,
    thread: u32,
    event: Event,
}

/// Decodes one chunk after the other, each batch by batch.
#[derive(Debug)]
pub(crate) struct Decoder {
    streams: [Vec<u8>; STREAMS],
    head: Head,
    locals: Vec<Local>,
    templates: Vec<Meta>,
    slots: Vec<Slot>,
    segments: Vec<Segment>,
    sequence: Vec<u16>,
    codes: Vec<u8>,
    events: std::vec::IntoIter<PlacedEvent>,
    physical: Option<PhysicalDecoder>,
    at: Position,
}

/// How far into the chunk decoding has come.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    rows: u32,
    executions: usize,
    ops: usize,
    residual: usize,
    segment: usize,
    /// Executions left of the segment.
    segment_left: u32,
    carry: u64,
    /// Local shapes that have been executed.
    defined: usize,
    /// The address of the last operation.
    addr: u64,
}

impl Decoder {
    /// A decoder at the end of no chunk.
    pub(crate) fn new() -> Decoder {
        Decoder {
            streams: Default::default(),
            head: Head::default(),
            locals: Vec::new(),
            templates: Vec::new(),
            slots: Vec::new(),
            segments: Vec::new(),
            sequence: Vec::new(),
            codes: Vec::new(),
            events: Vec::new().into_iter(),
            physical: None,
            at: Position::default(),
        }
    }

    /// Begins the chunk whose frame has the body `body`.
    pub(crate) fn open(
        &mut self,
        body: &[u8],
        decompressor: &mut Decompressor<'_>,
    ) -> Result<Head, Damage> {
        self.head = Head::default();
        let head = Head::open(body, decompressor, &mut self.streams)?;
        let [dictionary, segments, sequence, codes, residual, events, physical] = &self.streams;

        let (mut bytes, mut pc) = (Bytes(dictionary), 0);
        self.locals.clear();
        self.templates.clear();
        let mut slots = 0;
        for _ in 0..head.shapes {
            let template = self.templates.len();
            let entry = dictionary::take(&mut bytes, &mut pc, &mut self.templates)?;
            if self.templates.len() > head.accesses as usize {
                return Err(Damage::new("its dictionary has more rows than the chunk"));
            }
            let mut metas = [Meta::default(); SPARE];
            let rows = &self.templates[template..];
            metas.iter_mut().zip(rows).for_each(|(meta, &row)| *meta = row);
            self.locals.push(Local {
                metas,
                pc: entry.pc,
                template: template as u32,
                slot: slots,
                trailing: entry.trailing,
                rows: entry.ops + u16::from(entry.fetch),
                ops: entry.ops,
                codes: u64::MAX
                    .checked_shl(8 * u32::from(entry.ops))
                    .map_or(u64::MAX, |rest| !rest),
            });
            slots += u32::from(entry.ops);
        }
        bytes.end(NAMES[0])?;
        self.slots.clear();
        self.slots.resize(slots as usize, Slot::default());

        segments::take_all(segments, head.segments, head.executions, &mut self.segments)?;
        self.sequence.clear();
        match sequence_bytes(head.shapes) {
            1 => self.sequence.extend(sequence.iter().map(|&local| u16::from(local))),
            _ => {
                let (pairs, _) = sequence.as_chunks::<2>();
                self.sequence.extend(pairs.iter().map(|&pair| u16::from_le_bytes(pair)));
            }
        }
        if self.sequence.len() != head.executions as usize
            || sequence.len() != self.sequence.len() * sequence_bytes(head.shapes)
        {
            return Err(Damage::new("its sequence has another length than it has executions"));
        }
        codes::unpack(codes, head.ops as usize, residual.len(), &mut self.codes)?;

        let events: Vec<PlacedEvent> = serde_json::from_slice(events)
            .map_err(|error| Damage(format!("its events cannot be read: {error}")))?;
        if events.len() != head.events as usize
            || !events.is_sorted_by_key(|event| event.at)
            || events.last().is_some_and(|event| event.at > head.accesses)
        {
            return Err(Damage::new("its events are not where they can be"));
        }
        self.events = events.into_iter();
        self.physical = match head.physical {
            true => Some(PhysicalDecoder::start(physical)?),
            false => None,
        };
        // Reading eight bytes at the last one must not run off the end.
        self.streams[RESIDUAL].extend_from_slice(&[0; 8]);
        self.at = Position::default();
        self.head = head;
        Ok(head)
    }

    /// Accesses of the chunk that have not been given.
    pub(crate) fn left(&self) -> u32 {
        self.head.accesses - self.at.rows
    }

    /// Replaces `batch` with the next accesses of the chunk, about `rows_max` of them at most,
    /// and their events; with the chunk's last accesses also come the events after them.
    pub(crate) fn fill(&mut self, batch: &mut Batch, rows_max: usize) -> Result<(), Damage> {
        batch.paddr.clear();
        batch.segments.clear();
        batch.events.clear();
        batch.first = self.head.first + u64::from(self.at.rows);
        // One execution may go beyond `rows_max`, and each copies more than it keeps.
        let rows_max = rows_max.min(self.left() as usize);
        let room = rows_max + Shape::OPS_MAX + 1 + SPARE;
        // Growing without shrinking first spares zeroing what is overwritten anyway.
        batch.addr.resize(batch.addr.len().max(room), 0);
        batch.meta.resize(batch.meta.len().max(room), Meta::default());

        let start = self.at.rows;
        let mut rows = 0;
        while rows < rows_max {
            if self.at.segment_left == 0 {
                let Some(segment) = self.segments.get(self.at.segment) else {
                    return Err(Damage::new("it has fewer rows than it claims"));
                };
                self.at.segment += 1;
                self.at.segment_left = segment.executions;
                self.at.carry = segment.carry;
                continue;
            }
            let thread = self.segments[self.at.segment - 1].thread;
            let before = rows;
            rows = self.run(&mut batch.addr, &mut batch.meta, rows, rows_max)?;
            if rows > before && batch.segments.last().is_none_or(|last| last.thread != thread) {
                batch.segments.push(crate::Segment { start: before as u32, thread });
            }
            self.at.rows = start + rows as u32;
            if self.at.rows > self.head.accesses {
                return Err(Damage::new("it has more rows than it claims"));
            }
        }
        batch.addr.truncate(rows);
        batch.meta.truncate(rows);
        if self.left() == 0 && self.at.ops != self.head.ops as usize {
            return Err(Damage::new("it has fewer operations than it claims"));
        }
        if let Some(physical) = &mut self.physical {
            physical.extend(&self.streams[6], &batch.addr, &mut batch.paddr)?;
        }
        self.fill_events(batch, start);
        Ok(())
    }

    fn fill_events(&mut self, batch: &mut Batch, start: u32) {
        let end = self.at.rows;
        let last = self.left() == 0;
        while let Some(event) = self.events.as_slice().first()
            && (event.at < end || last)
            && let Some(PlacedEvent { at, thread, event }) = self.events.next()
        {
            batch.events.push(Placed { at: at - start, thread, event });
        }
    }

    /// Runs executions of the present segment until it ends or there are `rows_max` rows;
    /// `rows` are there already. Gives the new number of rows.
    fn run(
        &mut self,
        addr: &mut [u64],
        meta: &mut [Meta],
        mut rows: usize,
        rows_max: usize,
    ) -> Result<usize, Damage> {
        while self.at.segment_left > 0 && rows < rows_max {
            rows = self.run_known(addr, meta, rows, rows_max)?;
            if self.at.segment_left > 0 && rows < rows_max {
                rows = self.run_first(addr, meta, rows)?;
            }
        }
        Ok(rows)
    }

    /// Runs the first execution of a local shape.
    #[cold]
    fn run_first(
        &mut self,
        addr: &mut [u64],
        meta: &mut [Meta],
        rows: usize,
    ) -> Result<usize, Damage> {
        let number = usize::from(self.sequence[self.at.executions]);
        let Some(local) = self.locals.get(number).filter(|_| number == self.at.defined) else {
            return Err(Damage::new("its sequence and its dictionary do not fit together"));
        };
        self.at.defined += 1;
        self.at.executions += 1;
        self.at.segment_left -= 1;
        let (count, ops) = (local.rows as usize, local.ops as usize);
        if count == 0 {
            self.at.carry = self.at.carry.saturating_add(u64::from(local.trailing));
            return Ok(rows);
        }
        let template = &self.templates[local.template as usize..][..count];
        meta[rows..][..count].copy_from_slice(template);
        meta[rows] = template[0].plus_instructions(self.at.carry as u32);
        self.at.carry = u64::from(local.trailing);
        addr[rows] = local.pc;
        let Some(codes) = self.codes.get(self.at.ops..).and_then(|codes| codes.get(..ops)) else {
            return Err(Damage::new("it has more operations than it claims"));
        };
        let out = &mut addr[rows + count - ops..][..ops];
        let slots = &mut self.slots[local.slot as usize..][..ops];
        for ((slot, &code), out) in slots.iter_mut().zip(codes).zip(out) {
            let rest = &self.streams[RESIDUAL][self.at.residual..];
            let (now, used) = Slot { last: self.at.addr, distance: 0 }.decode(code, word(rest));
            self.at.residual += used;
            self.at.addr = now.last;
            *slot = Slot { last: now.last, distance: 0 };
            *out = now.last;
        }
        self.at.ops += ops;
        Ok(rows + count)
    }

    /// Runs executions of shapes that have been executed before, until another one comes.
    #[inline(never)]
    fn run_known(
        &mut self,
        addr: &mut [u64],
        meta: &mut [Meta],
        mut rows: usize,
        rows_max: usize,
    ) -> Result<usize, Damage> {
        let (locals, templates) = (&self.locals[..self.at.defined], self.templates.as_slice());
        let slots = self.slots.as_mut_slice();
        let residual = self.streams[RESIDUAL].as_slice();
        let (mut codes, mut rest) = (&self.codes[self.at.ops..], &residual[self.at.residual..]);
        let (mut carry, mut last_addr) = (self.at.carry, self.at.addr);
        let mut ran = 0;
        for &number in &self.sequence[self.at.executions..][..self.at.segment_left as usize] {
            let Some(local) = locals.get(usize::from(number)) else { break };
            if rows >= rows_max {
                break;
            }
            ran += 1;
            let count = local.rows as usize;
            if count == 0 {
                carry = carry.saturating_add(u64::from(local.trailing));
                continue;
            }
            meta[rows..][..SPARE].copy_from_slice(&local.metas);
            meta[rows] = local.metas[0].plus_instructions(carry as u32);
            if count > SPARE {
                let template = &templates[local.template as usize..][..count];
                meta[rows + 1..][..count - 1].copy_from_slice(&template[1..]);
            }
            carry = u64::from(local.trailing);
            addr[rows] = local.pc;

            let ops = local.ops as usize;
            let Some((now, later)) = codes.split_at_checked(ops) else {
                return Err(Damage::new("it has more operations than it claims"));
            };
            let now_and_later = std::mem::replace(&mut codes, later);
            rows += count;
            let out = &mut addr[rows - ops..rows];
            let slots = &mut slots[local.slot as usize..][..ops];
            if ops <= WORD && word(now_and_later) & local.codes == 0 {
                for (slot, out) in slots.iter_mut().zip(out) {
                    slot.last = slot.last.wrapping_add(slot.distance);
                    *out = slot.last;
                    last_addr = slot.last;
                }
                continue;
            }
            for ((slot, &code), out) in slots.iter_mut().zip(now).zip(out) {
                let (now, used) = slot.decode(code, word(rest));
                rest = &rest[used..];
                *slot = now;
                *out = now.last;
                last_addr = now.last;
            }
        }
        self.at.ops = self.codes.len() - codes.len();
        self.at.residual = residual.len() - rest.len();
        self.at.executions += ran;
        self.at.segment_left -= ran as u32;
        self.at.carry = carry;
        self.at.addr = last_addr;
        Ok(rows)
    }
}

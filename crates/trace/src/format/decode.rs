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
use super::physical::PhysicalDecoder;
use super::segments::Segment;
use super::wire::{Bytes, unzigzag};
use super::{Damage, dictionary, segments};
use crate::{Batch, Event, Meta, Placed};

/// Rows that are copied without looking at their number; buffers have as many to spare.
const SPARE: usize = 8;

/// For each code, a mask of the residual's bytes that count.
const MASK: [u64; 16] = {
    let mut masks = [0; 16];
    let mut code = 2;
    while code < 10 {
        masks[code] = u64::MAX >> (72 - 8 * code);
        code += 1;
    }
    masks
};

/// For each code, how many bytes of the residual count.
const BYTES: [u8; 16] = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0];

/// The last code that means anything.
const CODE_MAX: u8 = 9;

/// What is needed of a local shape for every execution.
#[derive(Clone, Copy, Debug)]
struct Local {
    pc: u64,
    /// Index of its first row in the templates.
    template: u32,
    /// Index of its first slot.
    slot: u32,
    trailing: u32,
    rows: u16,
    fetch: u16,
}

/// The predictor of one operation.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    last: u64,
    distance: u64,
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
            self.locals.push(Local {
                pc: entry.pc,
                template: template as u32,
                slot: slots,
                trailing: entry.trailing,
                rows: entry.ops + u16::from(entry.fetch),
                fetch: u16::from(entry.fetch),
            });
            slots += u32::from(entry.ops);
        }
        bytes.end(NAMES[0])?;
        let rows = self.templates.len();
        self.templates.resize(rows + SPARE, Meta::default());
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
        self.codes.clear();
        self.codes.extend(codes.iter().flat_map(|&pair| [pair & 15, pair >> 4]));
        check_codes(&mut self.codes, head.ops as usize, residual.len())?;

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
        self.streams[4].extend_from_slice(&[0; 8]);
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
        let room = rows_max + crate::Shape::OPS_MAX + 1 + SPARE;
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
    #[inline(never)]
    fn run(
        &mut self,
        addr: &mut [u64],
        meta: &mut [Meta],
        mut rows: usize,
        rows_max: usize,
    ) -> Result<usize, Damage> {
        let Position { executions, mut ops, mut residual, segment_left, mut carry, .. } = self.at;
        let Position { mut defined, addr: mut last_addr, .. } = self.at;
        let bytes = self.streams[4].as_slice();
        let sequence = &self.sequence[executions..][..segment_left as usize];
        let mut ran = 0;
        for &number in sequence {
            if rows >= rows_max {
                break;
            }
            let number = usize::from(number);
            let Some(local) = self.locals.get(number) else {
                return Err(Damage::new("its sequence names a shape that is not there"));
            };
            let (count, fetch) = (usize::from(local.rows), usize::from(local.fetch));
            ran += 1;
            if count == 0 {
                if number >= defined {
                    defined = number + 1;
                }
                carry = carry.saturating_add(u64::from(local.trailing));
                continue;
            }
            let template = &self.templates[local.template as usize..];
            meta[rows..][..SPARE].copy_from_slice(&template[..SPARE]);
            if count > SPARE {
                meta[rows..][..count].copy_from_slice(&template[..count]);
            }
            meta[rows] = meta[rows].plus_instructions(carry as u32);
            carry = u64::from(local.trailing);

            addr[rows] = local.pc;
            let out = &mut addr[rows + fetch..][..count - fetch];
            let slots = &mut self.slots[local.slot as usize..][..count - fetch];
            let Some(codes) = self.codes.get(ops..ops + (count - fetch)) else {
                return Err(Damage::new("it has more operations than it claims"));
            };
            if number >= defined {
                defined = number + 1;
                for ((slot, &code), out) in slots.iter_mut().zip(codes).zip(out) {
                    *slot = Slot { last: last_addr, distance: 0 };
                    *out = slot.decode(code, bytes, &mut residual);
                    slot.distance = 0;
                    last_addr = *out;
                }
            } else {
                for ((slot, &code), out) in slots.iter_mut().zip(codes).zip(&mut *out) {
                    *out = slot.decode(code, bytes, &mut residual);
                }
                last_addr = out.last().copied().unwrap_or(last_addr);
            }
            ops += count - fetch;
            rows += count;
        }
        self.at = Position {
            executions: executions + ran,
            ops,
            residual,
            segment_left: segment_left - ran as u32,
            carry,
            defined,
            addr: last_addr,
            ..self.at
        };
        Ok(rows)
    }
}

impl Slot {
    /// The address that `code` and the residual from `at` on stand for; moves `at` on.
    #[inline]
    fn decode(&mut self, code: u8, residual: &[u8], at: &mut usize) -> u64 {
        let code = usize::from(code & 15);
        let word = residual.get(*at..).and_then(|rest| rest.first_chunk::<8>());
        let bits = word.map_or(0, |word| u64::from_le_bytes(*word)) & MASK[code];
        let again = if code == 0 { self.distance } else { 0 };
        let distance = (unzigzag(bits) as u64).wrapping_add(again);
        *at += usize::from(BYTES[code]);
        *self = Slot { last: self.last.wrapping_add(distance), distance };
        self.last
    }
}

/// That there are codes for `ops` operations, that all mean something, and that together they
/// need `residual_bytes`. Cuts off the unused half of the last byte.
fn check_codes(codes: &mut Vec<u8>, ops: usize, residual_bytes: usize) -> Result<(), Damage> {
    if codes.len() != ops.next_multiple_of(2) || codes.len() > ops && codes[ops] != 0 {
        return Err(Damage::new("it has another number of codes than of operations"));
    }
    codes.truncate(ops);
    if codes.iter().any(|&code| code > CODE_MAX) {
        return Err(Damage::new("one of its codes means nothing"));
    }
    let needed: usize = codes.iter().map(|&code| usize::from(code.saturating_sub(1))).sum();
    if needed != residual_bytes {
        return Err(Damage(format!(
            "its codes need {needed} bytes, its residual has {residual_bytes}"
        )));
    }
    Ok(())
}

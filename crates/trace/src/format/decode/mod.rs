//! Decodes chunks to batches.
//!
//! ```text
//!   open   body --> streams, dictionary --> local shapes, their rows and slots
//!   fill   segment --> known shapes, as many as come (known.rs)  --> rows of a batch
//!                      a shape's first execution                 --> rows of a batch
//! ```

mod executions;
mod known;

use addr::Kind;
use serde::Deserialize;

use super::chunk::{Head, NAMES, STREAMS, sequence_bytes};
use super::codes::{Slot, WORD, word};
use super::compression::Decompressor;
use super::physical::PhysicalDecoder;
use super::segments::Segment;
use super::translations::PlacedTranslation;
use super::wire::Bytes;
use super::{Damage, codes, dictionary, segments, stamps, translations};
use crate::shape::Link;
use crate::{Batch, Event, Meta, Placed, Shape, Stamp};

/// The number of rows that are copied for every execution, even if it has fewer. Buffers have this
/// number of extra rows.
const SPARE: usize = 8;

/// The index of the residual stream.
const RESIDUAL: usize = 4;

/// The data of a local shape that is needed for every execution.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Local {
    /// The first rows.
    metas: [Meta; SPARE],
    pc: u64,
    /// The index of the shape's first row in the templates.
    template: u32,
    /// The index of the shape's first slot.
    slot: u32,
    trailing: u16,
    rows: u16,
    /// The number of operations whose addresses are coded.
    said: u16,
    /// Whether some addresses are derived from others; if so, the rows have links.
    linked: bool,
    /// A mask that selects the codes of the shape's operations among the next [`WORD`] codes, if
    /// the shape has at most [`WORD`] coded addresses.
    codes: u64,
}

const _: () = assert!(size_of::<Local>() == 64);

#[derive(Debug, Deserialize)]
struct PlacedEvent {
    at: u32,
    thread: u32,
    event: Event,
}

/// Decodes consecutive chunks, each in batches.
#[derive(Debug)]
pub(crate) struct Decoder {
    streams: [Vec<u8>; STREAMS],
    head: Head,
    locals: Vec<Local>,
    templates: Vec<Meta>,
    /// For each row of the templates, how its address is derived, if some addresses are derived.
    links: Vec<Link>,
    /// The coded addresses of an execution, followed by the block's start.
    said: Vec<u64>,
    slots: Vec<Slot>,
    segments: Vec<Segment>,
    sequence: Vec<u16>,
    codes: Vec<u8>,
    events: std::vec::IntoIter<PlacedEvent>,
    stamps: std::vec::IntoIter<Stamp>,
    physical: Option<PhysicalDecoder>,
    at: Position,
}

/// The position of decoding in the chunk.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    rows: u32,
    executions: usize,
    ops: usize,
    residual: usize,
    segment: usize,
    /// The number of executions left in the segment.
    segment_left: u32,
    carry: u64,
    /// The number of local shapes that have been executed.
    defined: usize,
    /// The last coded address.
    addr: u64,
}

impl Decoder {
    /// A decoder without a chunk.
    pub(crate) fn new() -> Decoder {
        Decoder {
            streams: Default::default(),
            head: Head::default(),
            locals: Vec::new(),
            templates: Vec::new(),
            links: Vec::new(),
            said: vec![0; Shape::OPS_MAX + 1],
            slots: Vec::new(),
            segments: Vec::new(),
            sequence: Vec::new(),
            codes: Vec::new(),
            events: Vec::new().into_iter(),
            stamps: Vec::new().into_iter(),
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
        // If the chunk is refused, none of its accesses is returned.
        (self.head, self.at) = (Head::default(), Position::default());
        let head = Head::open(body, decompressor, &mut self.streams)?;
        let [
            dictionary,
            segments,
            sequence,
            codes,
            residual,
            events,
            physical,
            stamps,
            translations,
        ] = &self.streams;

        let (mut bytes, mut pc) = (Bytes(dictionary), 0);
        self.locals.clear();
        self.templates.clear();
        self.links.clear();
        let mut slots = 0;
        for _ in 0..head.shapes {
            let template = self.templates.len();
            let (metas, links) = (&mut self.templates, &mut self.links);
            let entry = dictionary::take(&mut bytes, head.linked, &mut pc, metas, links)?;
            if self.templates.len() > head.accesses as usize {
                return Err(Damage::new("its dictionary has more rows than it has accesses"));
            }
            let mut metas = [Meta::default(); SPARE];
            let rows = &self.templates[template..];
            metas.iter_mut().zip(rows).for_each(|(meta, &row)| *meta = row);
            self.locals.push(Local {
                metas,
                pc: entry.pc,
                template: template as u32,
                slot: slots,
                trailing: entry.trailing as u16,
                rows: entry.ops + u16::from(entry.fetch),
                said: entry.said,
                linked: entry.said != entry.ops,
                codes: u64::MAX
                    .checked_shl(8 * u32::from(entry.said))
                    .map_or(u64::MAX, |rest| !rest),
            });
            slots += u32::from(entry.said);
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
            return Err(Damage::new(
                "its sequence has more or fewer blocks than its header counts",
            ));
        }
        codes::unpack(codes, head.ops as usize, residual.len(), &mut self.codes)?;

        let events: Vec<PlacedEvent> = serde_json::from_slice(events)
            .map_err(|error| Damage(format!("its events cannot be read: {error}")))?;
        if events.len() != head.events as usize
            || !events.is_sorted_by_key(|event| event.at)
            || events.last().is_some_and(|event| event.at > head.accesses)
        {
            return Err(Damage::new("its events are out of order, or their number is wrong"));
        }
        if events.iter().any(|event| translations::is_here(&event.event)) {
            return Err(Damage::new(
                "its list of events has a translation, which must be in its \
                                    list of translations",
            ));
        }
        let found = translations::take_all(
            translations,
            head.translations,
            head.tables,
            head.accesses,
            head.events,
        )?;
        self.events = merged(events, found)?.into_iter();
        let stamps = match head.owner {
            Some(owner) => stamps::take_all(stamps, owner.stamps, head.accesses, owner.began_ns)?,
            None => Vec::new(),
        };
        self.stamps = stamps.into_iter();
        self.physical = match head.physical {
            true => Some(PhysicalDecoder::start(physical)?),
            false => None,
        };
        // Reading a whole word at the last byte must not go beyond the end of the buffer.
        self.streams[RESIDUAL].extend_from_slice(&[0; WORD]);
        self.head = head;
        Ok(head)
    }

    /// The number of accesses of the chunk that have not been returned yet.
    pub(crate) fn left(&self) -> u32 {
        self.head.accesses - self.at.rows
    }

    /// Replaces the contents of `batch` by the next accesses of the chunk and their events. There
    /// are at most `rows_max` accesses, unless one execution alone has more. With the chunk's last
    /// accesses, the events after them are returned too.
    pub(crate) fn fill(&mut self, batch: &mut Batch, rows_max: usize) -> Result<(), Damage> {
        batch.paddr.clear();
        batch.segments.clear();
        batch.events.clear();
        batch.stamps.clear();
        batch.first = self.head.first + u64::from(self.at.rows);
        let rows_max = rows_max.min(self.left() as usize);
        make_room(batch, rows_max);

        let start = self.at.rows;
        let mut rows = 0;
        while rows < rows_max {
            if self.at.segment_left == 0 {
                let Some(segment) = self.segments.get(self.at.segment) else {
                    return Err(Damage::new("it has fewer accesses than its header counts"));
                };
                self.at.segment += 1;
                self.at.segment_left = segment.executions;
                self.at.carry = segment.carry;
                continue;
            }
            let thread = self.segments[self.at.segment - 1].thread;
            let before = rows;
            rows = self.run(&mut batch.addr, &mut batch.meta, rows)?;
            if rows > before && batch.segments.last().is_none_or(|last| last.thread != thread) {
                batch.segments.push(crate::Segment { start: before as u32, thread });
            }
            self.at.rows = start + rows as u32;
            if self.at.rows > self.head.accesses {
                return Err(Damage::new("it has more accesses than its header counts"));
            }
            // The batch has no room for the rest of the segment.
            if self.at.segment_left > 0 {
                if rows > 0 {
                    break;
                }
                make_room(batch, Shape::OPS_MAX + 1);
            }
        }
        batch.addr.truncate(rows);
        batch.meta.truncate(rows);
        if self.left() == 0 && self.at.ops != self.head.ops as usize {
            return Err(Damage::new("it has fewer memory operations than its header counts"));
        }
        if let Some(physical) = &mut self.physical {
            physical.extend(&self.streams[6], &batch.addr, &mut batch.paddr)?;
        }
        self.fill_events(batch, start);
        self.fill_stamps(batch, start);
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

    fn fill_stamps(&mut self, batch: &mut Batch, start: u32) {
        let stamps = self.stamps.as_slice();
        let count = stamps.partition_point(|stamp| stamp.at <= self.at.rows);
        let stamps = self.stamps.by_ref().take(count);
        batch.stamps.extend(stamps.map(|stamp| Stamp { at: stamp.at - start, ..stamp }));
    }

    /// Decodes executions of the current segment until it ends or the next one has too little room.
    /// `rows` rows exist already; [`SPARE`] rows at the end of `addr` and `meta` stay free. Returns
    /// the new number of rows.
    fn run(
        &mut self,
        addr: &mut [u64],
        meta: &mut [Meta],
        mut rows: usize,
    ) -> Result<usize, Damage> {
        loop {
            rows = self.run_known(addr, meta, rows)?;
            let before = self.at.executions;
            rows = self.run_first(addr, meta, rows)?;
            if self.at.executions == before {
                return Ok(rows);
            }
        }
    }

    /// Decodes the next execution of the segment if it is the first of its shape and there is room.
    fn run_first(
        &mut self,
        addr: &mut [u64],
        meta: &mut [Meta],
        rows: usize,
    ) -> Result<usize, Damage> {
        let left = &self.sequence[self.at.executions..][..self.at.segment_left as usize];
        let number = match left.first() {
            Some(&number) if usize::from(number) >= self.at.defined => usize::from(number),
            _ => return Ok(rows),
        };
        let Some(local) = self.locals.get(number).filter(|_| number == self.at.defined) else {
            return Err(Damage::new("its sequence has a block that is not in its dictionary"));
        };
        let (count, said) = (usize::from(local.rows), usize::from(local.said));
        if rows + count + SPARE > addr.len() {
            return Ok(rows);
        }
        self.at.defined += 1;
        self.at.executions += 1;
        self.at.segment_left -= 1;
        if count == 0 {
            self.at.carry = self.at.carry.saturating_add(u64::from(local.trailing));
            return Ok(rows);
        }
        let template = &self.templates[local.template as usize..][..count];
        meta[rows..][..count].copy_from_slice(template);
        meta[rows] = template[0].plus_instructions(self.at.carry as u32);
        self.at.carry = u64::from(local.trailing);
        addr[rows] = local.pc;
        let codes = &self.codes[self.at.ops..self.head.ops as usize];
        let Some(codes) = codes.get(..said) else {
            return Err(Damage::new("it has more memory operations than its header counts"));
        };
        let out = if local.linked {
            &mut self.said[..said]
        } else {
            &mut addr[rows + count - said..][..said]
        };
        let slots = &mut self.slots[local.slot as usize..][..said];
        for ((slot, &code), out) in slots.iter_mut().zip(codes).zip(out) {
            let rest = &self.streams[RESIDUAL][self.at.residual..];
            let (now, used) = Slot { last: self.at.addr, distance: 0 }.decode(code, word(rest));
            self.at.residual += used;
            self.at.addr = now.last;
            *slot = Slot { last: now.last, distance: 0 };
            *out = now.last;
        }
        self.at.ops += said;
        if local.linked {
            self.said[said] = local.pc;
            let ops = count - usize::from(template[0].kind() == Kind::Fetch);
            let links = &self.links[local.template as usize..][count - ops..count];
            for (addr, link) in addr[rows + count - ops..][..ops].iter_mut().zip(links) {
                *addr = self.said[usize::from(link.from)].wrapping_add(link.distance);
            }
        }
        Ok(rows + count)
    }
}

/// The events of a chunk with its translations among them.
fn merged(
    events: Vec<PlacedEvent>,
    found: Vec<PlacedTranslation>,
) -> Result<Vec<PlacedEvent>, Damage> {
    if found.is_empty() {
        return Ok(events);
    }
    let mut all = Vec::with_capacity(events.len() + found.len());
    let (mut events, mut passed) = (events.into_iter(), 0);
    for PlacedTranslation { at, events: before, thread, event } in found {
        all.extend(events.by_ref().take((before - passed) as usize));
        passed = before;
        all.push(PlacedEvent { at, thread, event });
    }
    all.extend(events);
    match all.is_sorted_by_key(|event| event.at) {
        true => Ok(all),
        false => Err(Damage::new("its translations are out of order")),
    }
}

/// Makes room in `batch` for `rows` rows and [`SPARE`] more.
fn make_room(batch: &mut Batch, rows: usize) {
    // The vectors grow without being emptied first, because zeroing elements that are overwritten
    // anyway would take time.
    let room = batch.len().max(rows + SPARE);
    batch.addr.resize(room, 0);
    batch.meta.resize(room, Meta::default());
}

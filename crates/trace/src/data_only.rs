//! A trace without its fetches, as if it had been recorded without them.
//!
//! ```text
//!   source   fetch +1   load +2   fetch +1   fetch +3   store +1
//!   given               load +3                         store +5
//! ```
//!
//! A load or store also counts the instructions of the fetches that were dropped before it. So the
//! sum over a thread's rows is still the number of instructions that the thread executed.

use std::ops::DerefMut;

use addr::Kind;
use sha2::{Digest, Sha256};

use crate::carry::Carry;
use crate::switches::Switches;
use crate::{Batch, Error, Event, Header, Meta, Placed, Process, Segment, Source};

/// A source that returns only the loads and stores of another source. `P` is a box of the other
/// source, or a reference to it.
pub struct DataOnly<P> {
    source: P,
    header: Header,
    carry: Carry,
    /// The number of accesses given so far.
    given: u64,
    /// Events before the next access to be given.
    before: Vec<Placed>,
    /// Switches of programs before the next access to be given.
    switched: Vec<(u32, &'static str)>,
    /// The segments of the current batch, as the source gave them.
    segments: Vec<Segment>,
}

impl<P: DerefMut<Target: Source>> DataOnly<P> {
    /// The loads and stores of `source`.
    pub fn new(source: P) -> DataOnly<P> {
        let mut header = source.header().clone();
        if header.fetches {
            header.fetches = false;
            header.notes.push("its fetches are left out".to_owned());
        }
        let (before, switched, segments) = (Vec::new(), Vec::new(), Vec::new());
        DataOnly { source, header, carry: Carry::default(), given: 0, before, switched, segments }
    }

    /// Removes the fetches from `batch`.
    fn cut(&mut self, batch: &mut Batch) {
        moved(&batch.meta, batch.events.iter_mut().map(|placed| &mut placed.at));
        moved(&batch.meta, batch.switches.iter_mut().map(|(at, _)| at));
        moved(&batch.meta, batch.stamps.iter_mut().map(|stamp| &mut stamp.at));
        self.segments.clear();
        self.segments.append(&mut batch.segments);
        let mut kept = 0;
        for index in 0..self.segments.len() {
            let Segment { start, thread } = self.segments[index];
            let end = self.segments.get(index + 1).map_or(batch.len(), |next| next.start as usize);
            self.carry.switch(thread);
            for at in start as usize..end {
                let meta = batch.meta[at];
                if meta.kind() == Kind::Fetch {
                    self.carry.now += u64::from(meta.instructions());
                    continue;
                }
                if self.carry.exceeds(meta.instructions()) {
                    let event = Event::Gap { accesses: 0, instructions: self.carry.now };
                    self.carry.now = 0;
                    let place = batch.events.partition_point(|placed| placed.at <= kept as u32);
                    batch.events.insert(place, Placed { at: kept as u32, thread, event });
                }
                if batch.segments.last().is_none_or(|segment| segment.thread != thread) {
                    batch.segments.push(Segment { start: kept as u32, thread });
                }
                batch.meta[kept] = meta.plus_instructions(self.carry.now as u32);
                self.carry.now = 0;
                batch.addr[kept] = batch.addr[at];
                if !batch.paddr.is_empty() {
                    batch.paddr[kept] = batch.paddr[at];
                }
                kept += 1;
            }
        }
        batch.addr.truncate(kept);
        batch.meta.truncate(kept);
        batch.paddr.truncate(kept);
        batch.first = self.given;
        self.given += kept as u64;
    }
}

/// Converts ascending indices among all rows to indices among the rows that are not fetches.
fn moved<'a>(all: &[Meta], places: impl Iterator<Item = &'a mut u32>) {
    let (mut at, mut kept) = (0, 0);
    for place in places {
        let passed = &all[at as usize..*place as usize];
        kept += passed.iter().filter(|meta| meta.kind() != Kind::Fetch).count() as u32;
        at = *place;
        *place = kept;
    }
}

impl<P: DerefMut<Target: Source>> Source for DataOnly<P> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        loop {
            let more = self.source.next(batch)?;
            self.cut(batch);
            if batch.is_empty() && more {
                self.before.append(&mut batch.events);
                self.switched.extend(batch.switches.drain(..).map(|(_, cause)| (0, cause)));
                continue;
            }
            batch.switches.splice(0..0, self.switched.drain(..));
            let before = self.before.drain(..).map(|placed| Placed { at: 0, ..placed });
            batch.events.splice(0..0, before);
            if !more {
                for (thread, instructions) in self.carry.drain() {
                    batch.push_event(thread, Event::Gap { accesses: 0, instructions });
                }
            }
            return Ok(more);
        }
    }

    fn while_waiting(&mut self, go_on: Box<dyn FnMut() -> bool + Send>) {
        self.source.while_waiting(go_on);
    }

    /// The total is unknown before the end, unless the source has no fetches.
    fn total(&self) -> Option<u64> {
        if self.source.header().fetches { None } else { self.source.total() }
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }

    fn processes(&self) -> &[Process] {
        self.source.processes()
    }

    fn switches(&self) -> Option<Switches> {
        self.source.switches()
    }

    fn foretold(&self) -> Option<Box<dyn Source + Send>> {
        self.source.foretold()
    }

    /// The digest of the whole trace, with a note that fetches were dropped.
    fn digest(&self) -> Option<String> {
        let whole = self.source.digest()?;
        let digest = Sha256::digest(format!("data only 1 {whole}").as_bytes());
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

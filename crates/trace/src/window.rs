//! A part of a trace: skipped accesses before it, a warm-up that is not counted, and an end.
//!
//! ```text
//!   accesses   | skip ........ | warm-up ..... | counted ............ | not read
//!   events     all of them, so that what is mapped is known           |
//!                                              ^ Event::WarmupEnd
//! ```
//!
//! Skipped accesses are decoded and dropped. The events among them are returned before the first
//! access, so that a machine knows the address spaces. Only [`Event::Gap`]s are dropped, because
//! they report missing accesses outside the counted part.

use std::collections::BTreeMap;
use std::ops::DerefMut;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::switches::Switches;
use crate::{Batch, Error, Event, Header, Placed, Process, Source};

/// Which accesses of a source are returned, and which of the returned accesses are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// The number of accesses that are skipped at the beginning.
    pub skip: u64,
    /// The number of accesses after the skipped ones that are simulated but not counted.
    pub warmup: u64,
    /// The number of accesses after the warm-up, after which the trace ends; `None`: the trace does
    /// not end early.
    #[serde(rename = "max_accesses")]
    pub accesses_max: Option<u64>,
}

impl Bounds {
    /// Whether no access is skipped, and all accesses are counted.
    pub fn is_whole(&self) -> bool {
        *self == Bounds::default()
    }

    /// The index of the first access that is not returned because the trace ends before it.
    fn end(&self) -> u64 {
        let max = self.accesses_max.unwrap_or(u64::MAX);
        self.skip.saturating_add(self.warmup).saturating_add(max)
    }

    /// The note about the bounds for results.
    fn note(&self) -> String {
        let mut parts = Vec::new();
        if self.skip > 0 {
            parts.push(format!("its first {} accesses are left out", self.skip));
        }
        if self.warmup > 0 {
            let next = if self.skip > 0 { "next" } else { "first" };
            parts.push(format!(
                "the {next} {} warm up the machine and are not counted",
                self.warmup
            ));
        }
        if let Some(max) = self.accesses_max {
            parts.push(format!("it ends after {max} counted accesses"));
        }
        format!("a part of the trace: {}", parts.join("; "))
    }
}

/// A source that returns only a part of another source. `P` is a box of the other source, or a
/// reference to it.
pub struct Window<P> {
    source: P,
    header: Header,
    bounds: Bounds,
    /// The index, in the source, of the next access.
    at: u64,
    /// Events before the first access that is returned.
    before: Vec<Placed>,
    /// Whether [`Event::WarmupEnd`] has not been returned yet.
    warming: bool,
    /// The number of switches between programs in the counted part, by cause.
    switched: BTreeMap<&'static str, u64>,
}

impl<P: DerefMut<Target: Source>> Window<P> {
    /// The part of `source` within `bounds`.
    pub fn new(source: P, bounds: Bounds) -> Window<P> {
        let mut header = source.header().clone();
        header.notes.push(bounds.note());
        let warming = bounds.warmup > 0;
        Window {
            source,
            header,
            bounds,
            at: 0,
            before: Vec::new(),
            warming,
            switched: BTreeMap::new(),
        }
    }

    /// Removes the skipped accesses, and those after the end, from `batch`, whose first access has
    /// the index `self.at`.
    fn cut(&mut self, batch: &mut Batch) {
        let length = batch.len() as u64;
        let within = |index: u64| index.saturating_sub(self.at).min(length) as u32;
        let (from, to) = (within(self.bounds.skip), within(self.bounds.end()));
        // A switch before the first counted access happened before counting began.
        let first = self.bounds.skip.saturating_add(self.bounds.warmup);
        for &(at, cause) in &batch.switches {
            let index = self.at + u64::from(at);
            if (index > first || first == 0) && index < self.bounds.end() {
                *self.switched.entry(cause).or_insert(0) += 1;
            }
        }
        if (from, u64::from(to)) != (0, length) {
            // Events after the last access of the window are outside the window.
            batch.events.retain(|placed| placed.at < to || u64::from(to) == length);
            batch.keep(from, to);
        }
        for placed in &mut batch.events {
            placed.at = placed.at.saturating_sub(from);
        }
        if self.at <= self.bounds.skip && self.bounds.skip > 0 {
            batch.events.retain(|placed| placed.at > 0 || !is_gap(&placed.event));
        }
        self.at += length;
    }

    /// Inserts the end of the warm-up into the events of `batch`, whose last access is before the
    /// index `self.at` of the source.
    fn end_warmup(&mut self, batch: &mut Batch) {
        let end = self.bounds.skip.saturating_add(self.bounds.warmup);
        let stop = self.at.min(self.bounds.end());
        let first = stop - batch.len() as u64;
        // If the warm-up ends at the end of a batch, the event is inserted into the next batch,
        // which may have events before its first access.
        if !self.warming || end > stop || (end == stop && stop < self.bounds.end()) {
            return;
        }
        self.warming = false;
        let at = (end - first) as u32;
        // The event is inserted after the other events before this access, so that their effects
        // belong to the warm-up.
        let place = batch.events.partition_point(|placed| placed.at <= at);
        let thread = batch.segments.first().map_or(0, |segment| segment.thread);
        batch.events.insert(place, Placed { at, thread, event: Event::WarmupEnd });
    }

    /// Called when the source has no more accesses.
    fn ended(&self) -> Result<(), Error> {
        let Bounds { skip, warmup, .. } = self.bounds;
        if self.at < skip || (skip > 0 && self.at == skip && warmup == 0) {
            return Err(Error::Parameters(format!(
                "--skip {skip}: the trace ends after {} accesses; skip fewer",
                self.at
            )));
        }
        if warmup > 0 && self.at <= skip.saturating_add(warmup) {
            return Err(Error::Parameters(format!(
                "--warmup {warmup}: the trace ends after {} accesses, so that no access would be \
                 counted; give a smaller number",
                self.at
            )));
        }
        Ok(())
    }
}

fn is_gap(event: &Event) -> bool {
    matches!(event, Event::Gap { .. })
}

impl<P: DerefMut<Target: Source>> Source for Window<P> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        loop {
            if self.at >= self.bounds.end() {
                batch.clear();
                return Ok(false);
            }
            let more = self.source.next(batch)?;
            self.cut(batch);
            if batch.is_empty() && more {
                self.before.append(&mut batch.events);
                continue;
            }
            // Both lists are short, and only the first returned batch has events before it.
            let before = self.before.drain(..).map(|placed| Placed { at: 0, ..placed });
            batch.events.splice(0..0, before);
            if !more {
                self.ended()?;
            }
            self.end_warmup(batch);
            return Ok(more);
        }
    }

    fn while_waiting(&mut self, go_on: Box<dyn FnMut() -> bool + Send>) {
        self.source.while_waiting(go_on);
    }

    fn total(&self) -> Option<u64> {
        let total = self.source.total().map(|total| total.min(self.bounds.end()));
        // The total is unknown if the source's total is unknown.
        total.map(|total| total.saturating_sub(self.bounds.skip))
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }

    fn processes(&self) -> &[Process] {
        self.source.processes()
    }

    fn foretold(&self) -> Option<Box<dyn Source + Send>> {
        self.source.foretold()
    }

    fn switches(&self) -> Option<Switches> {
        let mut switches = self.source.switches()?.none();
        self.switched.iter().for_each(|(cause, times)| switches.count(cause, *times));
        Some(switches)
    }

    /// The digest of the whole trace and of the bounds.
    fn digest(&self) -> Option<String> {
        let Bounds { skip, warmup, accesses_max } = self.bounds;
        let whole = self.source.digest()?;
        let text = format!("window 1 {skip} {warmup} {accesses_max:?} {whole}");
        let digest = Sha256::digest(text.as_bytes());
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

//! Plays the part of the recorder for TLBs with FIFO or random replacement. It reports every access
//! until it has been told the contents of the TLBs. From then on, it determines the evictions
//! itself.

use std::collections::BTreeMap;

use addr::Kind;
use trace::{
    Batch, Contents, Error, Event, Header, Hits, Meta, Place, Replaces, Source, SurePages,
};

use super::PAGE;
use crate::support::{Row, Rows, Stream};

/// The contents of a TLB, by set.
struct Tlb {
    sets: Vec<Vec<Place>>,
    replaces: Replaces,
    sequence: u64,
}

impl Tlb {
    fn set(&mut self, page: u64) -> &mut Vec<Place> {
        let sets = self.sets.len() as u64;
        &mut self.sets[(page / PAGE % sets) as usize]
    }

    fn holds(&mut self, page: u64) -> bool {
        self.set(page).contains(&Place::Page(page))
    }

    /// Inserts a page. Returns the contents of the place that it gets, if the place was in use.
    fn fill(&mut self, page: u64) -> Option<Place> {
        let (replaces, mut sequence) = (self.replaces, self.sequence);
        let set = self.set(page);
        if let Some(empty) = set.iter_mut().find(|place| **place == Place::Empty) {
            *empty = Place::Page(page);
            return None;
        }
        let gone = if replaces == Replaces::Fifo {
            set.push(Place::Page(page));
            set.remove(0)
        } else {
            let way = draw(&mut sequence, set.len() as u64);
            std::mem::replace(&mut set[way], Place::Page(page))
        };
        self.sequence = sequence;
        Some(gone)
    }
}

/// The next number below `ways` of a splitmix64 sequence (Steele, Lea and Flood, OOPSLA 2014, figure 13).
fn draw(sequence: &mut u64, ways: u64) -> usize {
    *sequence = sequence.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = *sequence;
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let z = z ^ (z >> 31);
    (u128::from(z) * u128::from(ways) / (1 << 64)) as usize
}

/// A source of rows that asks for the contents of the TLBs.
pub(crate) struct Asking {
    header: Header,
    rows: std::vec::IntoIter<Row>,
    sure: SurePages,
    stream: Stream,
    /// The contents of the TLBs; `None` until they are known.
    tlbs: Option<Vec<Tlb>>,
    counts: BTreeMap<(u64, usize), u64>,
    passed: u64,
    instructions: u64,
    /// The number of accesses in batches, and the number of answers.
    pub(crate) told: usize,
    pub(crate) answers: usize,
}

impl Asking {
    pub(crate) fn new(rows: Vec<Row>, sure: SurePages, seed: u64) -> Asking {
        Asking {
            header: Rows::new(Vec::new()).header().clone(),
            rows: rows.into_iter(),
            sure,
            stream: Stream(seed),
            tlbs: None,
            counts: BTreeMap::new(),
            passed: 0,
            instructions: 0,
            told: 0,
            answers: 0,
        }
    }

    fn index(&self, kind: Kind) -> usize {
        usize::from(kind != Kind::Fetch && !self.sure.together)
    }

    fn access(&mut self, batch: &mut Batch, (kind, addr, bytes): (Kind, u64, u32)) {
        let (first, last) = (addr / PAGE * PAGE, (addr + u64::from(bytes) - 1) / PAGE * PAGE);
        let index = self.index(kind);
        if let Some(tlbs) = &mut self.tlbs {
            if first == last && tlbs[index].holds(first) {
                *self.counts.entry((first, kind as usize)).or_insert(0) += 1;
                self.passed += 1;
                self.instructions += 1;
                return;
            }
            for page in [first, last] {
                let tlb = &mut self.tlbs.as_mut().unwrap()[index];
                if !tlb.holds(page)
                    && let Some(Place::Page(gone)) = tlb.fill(page)
                {
                    let kinds = Kind::ALL.into_iter().filter(|&kind| self.index(kind) == index);
                    kinds.collect::<Vec<_>>().into_iter().for_each(|of| self.tell(batch, gone, of));
                }
            }
        }
        batch.passed.push((batch.len() as u32, std::mem::take(&mut self.passed)));
        batch.push(0, addr, Meta::new(kind, bytes, 1));
        self.told += 1;
    }

    /// Reports how many accesses of `kind` to a page were counted.
    fn tell(&mut self, batch: &mut Batch, page: u64, kind: Kind) {
        if let Some(count) = self.counts.remove(&(page, kind as usize)) {
            let at = batch.len() as u32;
            batch.hits.push(Hits { at, thread: 0, kind, page, count, goes: false });
        }
    }

    /// Reports all accesses that were counted.
    fn settle(&mut self, batch: &mut Batch) {
        let counted: Vec<(u64, usize)> = self.counts.keys().copied().collect();
        counted.into_iter().for_each(|(page, kind)| self.tell(batch, page, Kind::ALL[kind]));
        batch.passed.push((batch.len() as u32, std::mem::take(&mut self.passed)));
        let instructions = std::mem::take(&mut self.instructions);
        batch.push_event(0, Event::Gap { accesses: 0, instructions });
    }
}

impl Source for Asking {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        for _ in 0..1 + self.stream.below(200) {
            match self.rows.next() {
                Some(Row::Access(kind, addr, bytes)) => self.access(batch, (kind, addr, bytes)),
                Some(Row::Event(event)) => {
                    self.settle(batch);
                    self.tlbs = None;
                    batch.push_event(0, event);
                }
                Some(Row::Thread(_)) => unreachable!("there is one"),
                None => {
                    self.settle(batch);
                    return Ok(false);
                }
            }
            if self.stream.below(500) == 0 {
                self.settle(batch);
            }
        }
        batch.asks = self.tlbs.is_none() && self.stream.below(3) > 0;
        Ok(true)
    }

    fn answer(&mut self, contents: Option<[Contents; 2]>) {
        let Some(contents) = contents else { return };
        self.answers += 1;
        let sure = self.sure;
        let tlb = |(index, Contents { places, sequence }): (usize, Contents)| {
            let ways = places.len() / sure.sets[index] as usize;
            let sets = places.chunks(ways).map(<[Place]>::to_vec).collect();
            Tlb { sets, replaces: sure.replaces[index], sequence }
        };
        self.tlbs = Some(contents.into_iter().enumerate().map(tlb).collect());
    }
}

//! Accesses that a batch counts instead of holding them: they hit the first TLB.
//!
//! ```text
//!   rows     | a | b |           | c | d |         |
//!   passed        ^ 900 accesses  ^ 4000
//!   hits                 ^ pages p, q, r ^           used once each, in this order, with their counts
//! ```
//!
//! A recorder that knows which pages are sure to be in the TLB tells what is not sure, and of all else each page's
//! number of accesses: when a page goes, which it says before another comes, or else of all pages in the order
//! in which they were used last. In between nothing is asked for that order. Where hits change nothing of it, the
//! recorder asks what the TLBs hold ([`Batch::asks`]) and knows from then on which page goes.
//!
//! Histories want to know when a miss was: so many accesses have passed before it.

use std::{ops::Range, slice};

use addr::VirtAddr;
use description::Error;
use hardware::behind::Behind;
use mmu::{Occupant, Occupants};
use results::count::census::SHARED;
use trace::{Batch, Contents, Hits};

use super::{
    Run,
    access::{UNCACHED, shared_hits},
};

/// How many counted accesses of the batch came before a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    /// Index of the first in [`Batch::passed`] that is not added yet.
    next: usize,
    sum: u64,
}

impl Passed {
    /// Before the access with that index; those that were asked for before are not behind it.
    #[inline]
    pub(super) fn before(&mut self, batch: &Batch, index: usize) -> u64 {
        while let Some(&(_, count)) =
            batch.passed.get(self.next).filter(|&&(at, _)| at as usize <= index)
        {
            self.sum += count;
            self.next += 1;
        }
        self.sum
    }

    /// In the whole batch, which ends.
    pub(super) fn all(&mut self, batch: &Batch) -> u64 {
        let all = self.before(batch, batch.len());
        *self = Passed::default();
        all
    }
}

impl Run {
    /// Runs accesses among which there is no event, and `hits` among them.
    pub(super) fn with_hits<const CHECK: bool>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        hits: &mut slice::Iter<'_, Hits>,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        let is_here = |hits: &&Hits| hits.at as usize <= span.end;
        if hits.as_slice().first().filter(is_here).is_none() {
            return self.turns::<CHECK>(batch, span, behind);
        }
        self.begin_here(behind);
        let mut from = span.start;
        while let Some(&counted) = hits.as_slice().first().filter(is_here) {
            self.rows::<CHECK>(batch, from..counted.at as usize, behind)?;
            from = counted.at as usize;
            hits.next();
            self.counted(counted)?;
        }
        self.rows::<CHECK>(batch, from..span.end, behind)?;
        self.count(batch, span);
        Ok(())
    }

    /// Runs accesses that lie between counted ones, one by one: most of them miss. Nothing is due by the clock there,
    /// no cache hears of hits, and nothing stands before the TLBs: else all accesses are told.
    fn rows<const CHECK: bool>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        for row in span {
            let what = (VirtAddr::new(batch.addr[row]), batch.meta[row]);
            let access = self.seen.position + row as u64;
            self.access::<CHECK, UNCACHED>(batch, what, access, None, behind)?;
        }
        Ok(())
    }

    /// What the first TLBs hold for fetches and for data of the space that runs, for a recorder that asks.
    pub fn contents(&self) -> Option<[Contents; 2]> {
        let here = &self.processors.here;
        let of = |kind| {
            let unit = here.hardware.units.get(here.hardware.first[kind as usize])?;
            let Occupants { slots, sequence } = unit.tlb.occupants(here.asid)?;
            let place = |occupant| match occupant {
                Occupant::Nothing => trace::Place::Empty,
                Occupant::Other => trace::Place::Other,
                Occupant::Page(page) => trace::Place::Page(page.start().get()),
            };
            Some(Contents { places: slots.into_iter().map(place).collect(), sequence })
        };
        Some([of(addr::Kind::Fetch)?, of(addr::Kind::Load)?])
    }

    /// Uses the page of `hits`, and counts them.
    fn counted(&mut self, Hits { kind, page, count, goes, .. }: Hits) -> Result<(), Error> {
        let addr = VirtAddr::new(page);
        let here = &mut self.processors.here;
        here.counts.accesses[kind as usize] += count;
        self.seen.fetches += if kind == addr::Kind::Fetch { count } else { 0 };
        let unit = here.hardware.first[kind as usize];
        let Some(label) = here.hardware.units[unit].tlb.hits(addr, here.asid, kind, count, goes)
        else {
            let what = format!("{count} accesses to {addr} were counted as hits, and would miss");
            return Err(Error::Check(what));
        };
        if label == SHARED {
            shared_hits(&mut self.layout, &mut self.seen.census, self.who, addr, kind, count);
        }
        Ok(())
    }
}

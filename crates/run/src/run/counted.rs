//! Accesses that a batch only counts, as they are guaranteed to hit the first-level TLB.
//!
//! ```text
//!   rows     | a | b |           | c | d |         |
//!   passed        ^ 900 accesses  ^ 4000
//!   hits                 ^ pages p, q, r ^           used once each, in this order, with their counts
//! ```
//!
//! A recorder that knows which pages are guaranteed to be in the TLB sends full records only of all
//! other accesses. For each page in the TLB, the recorder counts the accesses. It sends the count
//! of a page when the page is evicted, before the record of the page that replaces it. At other
//! times, the recorder sends the counts of all pages, in the order of their last use. Between these
//! reports, no part of a run needs the order of use. Under a replacement policy for which hits make
//! no difference (FIFO, random), the recorder requests the contents of the TLBs once
//! ([`Batch::asks`]). From then on it can compute itself which page is evicted.
//!
//! Histograms over time need the time of a miss. The time is the number of all accesses before the
//! miss, including accesses that batches only count.

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

/// Finds the number of counted accesses of a batch before a given access.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    /// The index of the first value in [`Batch::passed`] that is not added yet.
    next: usize,
    sum: u64,
}

impl Passed {
    /// The number of counted accesses before the access with the index `index`. Indices must not
    /// decrease from call to call.
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

    /// The number of counted accesses in the whole batch, at its end.
    pub(super) fn all(&mut self, batch: &Batch) -> u64 {
        let all = self.before(batch, batch.len());
        *self = Passed::default();
        all
    }
}

impl Run {
    /// Runs the accesses of `span`, between which there are no events, and the counted `hits` at
    /// their positions among the accesses.
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

    /// Runs the accesses between counted hits one by one, as most of them miss. Called only if (1)
    /// the clock has no deadline, (2) no data cache needs to see hits, and (3) no structure is
    /// looked up before the TLBs. In all other cases the recorder sends all accesses.
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

    /// The entries of the first-level TLBs for fetches and for data, in the space that is running,
    /// for a recorder that requests them.
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

    /// Uses the TLB entry of the page of `hits`, and counts the hits.
    fn counted(&mut self, Hits { kind, page, count, goes, .. }: Hits) -> Result<(), Error> {
        let addr = VirtAddr::new(page);
        let here = &mut self.processors.here;
        here.counts.accesses[kind as usize] += count;
        self.seen.fetches += if kind == addr::Kind::Fetch { count } else { 0 };
        let unit = here.hardware.first[kind as usize];
        let Some(label) = here.hardware.units[unit].tlb.hits(addr, here.asid, kind, count, goes)
        else {
            let what = format!(
                "the recorder counted {count} accesses to {addr} as guaranteed hits, but the TLB \
                 does not have the page"
            );
            return Err(Error::Check(what));
        };
        if label == SHARED {
            shared_hits(&mut self.layout, &mut self.seen.census, self.who, addr, kind, count);
        }
        Ok(())
    }
}

//! The rows that TLBs look up, if they differ from the rows of the trace.
//!
//! ```text
//!   trace   load a   fetch b   fetch c   store d   ...
//!                       |         |
//!                       |      trace cache has c
//!                       v
//!   TLBs    load a+base   fetch b+base   store d+base   ...       up to the limit of the space
//! ```
//!
//! If the segments of a space have a base, addresses are relocated. Fetches that a trace cache
//! delivers are looked up in no TLB. The rows of a span are relocated and filtered before the first
//! lookup of the span. Prepared rows are kept if they have not run yet, because the operating
//! system must be woken first.

use std::ops::Range;

use addr::{Asid, Kind, VirtAddr};
use description::{Description, Error};
use hardware::behind::Behind;
use mmu::TraceCache;
use trace::{Batch, Meta};

use super::{Run, small::View};

/// Prepared rows.
#[derive(Default)]
pub(super) struct Rows {
    uops_per_instruction: f64,
    /// The number, in the trace, of the first access of the span whose rows were prepared.
    from: u64,
    to: u64,
    addrs: Vec<u64>,
    metas: Vec<Meta>,
    /// For each row, the number of accesses between the first access of the span and the access of
    /// the row. Empty if every access has a row.
    places: Vec<u32>,
}

impl Rows {
    pub(super) fn new(description: &Description) -> Rows {
        let described = description.trace_cache.as_ref();
        let uops_per_instruction = described.map_or(1.0, |cache| cache.uops_per_instruction);
        Rows { uops_per_instruction, ..Rows::default() }
    }

    /// Prepares the accesses of `span` up to the first access beyond the limit of the space. `from`
    /// is the number of the first access.
    fn relocate(&mut self, batch: &Batch, span: Range<usize>, from: u64, view: View) {
        self.places.clear();
        let (metas, addrs) = (&batch.meta[span.clone()], &batch.addr[span]);
        super::small::relocate(addrs, view, &mut self.addrs);
        self.metas.clear();
        self.metas.extend_from_slice(&metas[..self.addrs.len()]);
        (self.from, self.to) = (from, from + self.addrs.len() as u64);
    }

    /// Prepares the accesses of `span` up to the first access beyond the limit of the space,
    /// without fetches that `cache` delivers. `from` is the number of the first access in the
    /// trace.
    fn filter(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        from: u64,
        (view, asid): (View, Asid),
        cache: &mut TraceCache,
    ) {
        self.addrs.clear();
        self.metas.clear();
        self.places.clear();
        let rows = batch.addr[span.clone()].iter().zip(&batch.meta[span]);
        let mut place = 0;
        for (&addr, &meta) in rows {
            if addr >= view.limit {
                break;
            }
            let addr = addr.wrapping_add(view.base);
            let delivered = meta.kind() == Kind::Fetch && {
                let uops = meta.instructions() as f64 * self.uops_per_instruction;
                cache.fetch(VirtAddr::new(addr), meta.size(), uops.ceil() as u32, asid)
            };
            if !delivered {
                self.addrs.push(addr);
                self.metas.push(meta);
                self.places.push(place);
            }
            place += 1;
        }
        (self.from, self.to) = (from, from + u64::from(place));
    }

    /// The number of accesses between the first access and the access of row `row`.
    fn place(&self, row: usize, is_whole: bool) -> usize {
        let end = (self.to - self.from) as usize;
        if is_whole { row } else { self.places.get(row).map_or(end, |place| *place as usize) }
    }
}

impl Run {
    /// Like [`Run::accesses`], for accesses whose rows have to be prepared first.
    pub(super) fn prepared<const CHECK: bool, const CACHES: u8>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        to_miss: bool,
        behind: &mut impl Behind,
    ) -> Result<(usize, u64), Error> {
        let access = self.seen.position + span.start as u64;
        if !(self.rows.from..self.rows.to).contains(&access) {
            if batch.addr[span.start] >= self.view.limit {
                self.outgrows(batch.addr[span.start], access, behind)?;
                return Ok((span.start, 0));
            }
            self.has_run();
            let asid = self.processors.here.asid;
            let (rows, view) = (&mut self.rows, self.view);
            match &mut self.processors.here.trace_cache {
                None => rows.relocate(batch, span.clone(), access, view),
                Some(cache) => rows.filter(batch, span.clone(), access, (view, asid), cache),
            }
        }
        let rows = std::mem::take(&mut self.rows);
        let is_whole = self.processors.here.trace_cache.is_none();
        // Of the prepared rows, those that belong to this span.
        let (before, wanted) = ((access - rows.from) as usize, span.len());
        let index = |place: usize| {
            if is_whole { place } else { rows.places.partition_point(|of| (*of as usize) < place) }
        };
        let end = (before + wanted).min((rows.to - rows.from) as usize);
        let (first, last) = (index(before), index(end));
        // The index of a row's access in the batch.
        let place = |row: usize| span.start + rows.place(first + row, is_whole) - before;
        let own = (&rows.addrs[first..last], &rows.metas[first..last]);
        let left_out = self.seen.left_out;
        let ran = self.looked_up::<CHECK, CACHES>(batch, own, span.start, place, to_miss, behind);
        self.rows = rows;
        let ran = ran?;
        let next = if first + ran == last {
            span.start + end - before
        } else {
            span.start + self.rows.place(first + ran, is_whole) - before
        };
        let delivered = (next - span.start - ran) as u64;
        self.seen.left_out = left_out + delivered;
        Ok((next, delivered))
    }
}

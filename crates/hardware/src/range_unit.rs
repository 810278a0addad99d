//! The range TLB of a processor, with its counts.

use addr::{Asid, Kind, VirtAddr};
use description::{Description, Refusal, WalkerKind};
use mmu::{Policy, RangeEntry, RangeTlb, RangeTlbParams};
use results::RangeTlbCounts;

/// The source of a range TLB's entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangesFrom {
    /// The operating system's range table.
    Table,
    /// The line of page-table entries that a walk reads, merged with entries that are present.
    Line,
}

impl RangesFrom {
    const ALL: [RangesFrom; 2] = [RangesFrom::Table, RangesFrom::Line];

    const fn name(self) -> &'static str {
        match self {
            RangesFrom::Table => "table",
            RangesFrom::Line => "line",
        }
    }
}

/// A range TLB with its counts.
pub struct RangeUnit {
    pub tlb: RangeTlb,
    pub from: RangesFrom,
    pages_min: u64,
    lookups: u64,
    hits: u64,
}

impl RangeUnit {
    /// The range TLB in `description`, if there is one. The error has the key that is wrong.
    pub fn of(description: &Description) -> Result<Option<RangeUnit>, Refusal> {
        let Some(described) = &description.range_tlb else { return Ok(None) };
        let refuse = |key: &str, what: String| Err(Refusal::new(format!("range_tlb{key}"), what));
        if description.page_table.is_none() || description.walker.kind == WalkerKind::Software {
            let what = "a range TLB needs a hardware walker, which reads the table of ranges: give \
                        the machine a page_table and walker.kind=hardware, or leave [range_tlb] \
                        out";
            return refuse("", what.to_owned());
        }
        if description.page_table.as_ref().is_some_and(|table| table.format == "linear") {
            let what = "the entries of a linear page table are read through the TLB; this is not \
                        modelled together with a range TLB: choose another page_table.format, or \
                        leave [range_tlb] out";
            return refuse("", what.to_owned());
        }
        if description.nested.is_some() {
            let what = "a range TLB of a virtual machine would need the ranges of two tables, which \
                        is not modelled: leave [range_tlb] or [nested] out";
            return refuse("", what.to_owned());
        }
        let replacement: Policy = match described.replacement.parse() {
            Ok(policy) => policy,
            Err(error) => return refuse(".replacement", format!("{error}")),
        };
        let params =
            RangeTlbParams { entries: described.entries, replacement, seed: described.seed };
        let tlb = RangeTlb::new(params);
        let tlb = tlb.map_err(|error| Refusal::new("range_tlb.entries", error.to_string()))?;
        let pages_min = described.pages_min.into();
        let known = RangesFrom::ALL.into_iter().find(|from| from.name() == described.from);
        let Some(from) = known else {
            let names = RangesFrom::ALL.map(RangesFrom::name).join(", ");
            let what = format!("there is no `{}`: choose one of {names}", described.from);
            return refuse(".from", what);
        };
        Ok(Some(RangeUnit { tlb, from, pages_min, lookups: 0, hits: 0 }))
    }

    /// Looks up `va`; `serves` returns whether a matching entry allows the access.
    pub fn lookup(
        &mut self,
        va: VirtAddr,
        asid: Asid,
        kind: Kind,
        serves: impl FnOnce() -> bool,
    ) -> Option<RangeEntry> {
        self.lookups += 1;
        let found = self.tlb.lookup(va, asid, kind).ok().filter(|_| serves())?;
        self.hits += 1;
        Some(found)
    }

    /// Whether a range of `pages` pages gets an entry.
    pub fn takes(&self, pages: u64) -> bool {
        pages >= self.pages_min
    }

    pub fn forget_counts(&mut self) {
        let RangeUnit { tlb, from: _, pages_min: _, lookups, hits } = self;
        (*lookups, *hits) = (0, 0);
        tlb.forget_counts();
    }

    /// The counts of the range TLB, together with the number of ranges in the range table and their bytes.
    pub fn counts(&self, (ranges, range_bytes): (u64, u64)) -> RangeTlbCounts {
        let (params, counts) = (self.tlb.params(), self.tlb.counts());
        RangeTlbCounts {
            entries: params.entries.into(),
            replacement: params.replacement.to_string(),
            from: self.from.name().to_owned(),
            lookups: self.lookups,
            hits: self.hits,
            misses: self.lookups - self.hits,
            fills: counts.fills,
            evictions: counts.evictions,
            flushed: counts.flushed,
            ranges,
            range_bytes,
        }
    }
}

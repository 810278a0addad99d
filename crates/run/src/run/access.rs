//! The common case: accesses that hit a TLB. All other accesses are detected here and passed to the
//! slower paths.

use std::ops::Range;

use addr::{Kind, PageSize, PhysAddr, VirtAddr};
use description::Error;
use hardware::{
    behind::Behind,
    processor::Processor,
    tlbs::{FIRST_LEVEL_MAX, NONE},
};
use mmu::{EACH, Found, Hit, NOTHING, SpanTlb, SpanTlbs, TIME};
use os::Who;
use results::count::{
    census::{Census, SHARED},
    labels::Layout,
};
use trace::{Batch, Meta};

use super::{Run, miss::AllMissed};

/// The caches behind the TLBs for the program's accesses: none, caches that are looked up by
/// physical address, or caches that are looked up by the address with which the TLB is looked up.
pub(super) const UNCACHED: u8 = 0;
pub(super) const PHYSICAL: u8 = 1;
pub(super) const VIRTUAL: u8 = 2;

/// One lookup: the address, the kind of access, and the first-level TLB.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) addr: VirtAddr,
    pub(super) kind: Kind,
    pub(super) unit: usize,
    pub(super) access: u64,
    /// The batch that has the access.
    pub(super) batch: &'a Batch,
}

impl Run {
    /// Runs the accesses of `span`: hits in a fast loop, all other accesses one by one. Stops after
    /// an access if the operating system has then requested to be woken and, if `to_miss`, after
    /// the first access that is not a hit. Returns the index of the next access, and the number of
    /// fetches that the trace cache delivered.
    pub(super) fn accesses<const CHECK: bool, const CACHES: u8>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        to_miss: bool,
        behind: &mut impl Behind,
    ) -> Result<(usize, u64), Error> {
        if self.view.base != 0 || self.processors.here.trace_cache.is_some() {
            return self.prepared::<CHECK, CACHES>(batch, span, to_miss, behind);
        }
        let rows = (&batch.addr[span.clone()], &batch.meta[span.clone()]);
        let (from, place) = (span.start, |row| span.start + row);
        let ran = self.looked_up::<CHECK, CACHES>(batch, rows, from, place, to_miss, behind)?;
        Ok((span.start + ran, 0))
    }

    /// Looks up rows with the addresses that TLBs use: some or all rows of a batch, the first one
    /// at index `from` or later. `place` maps a row to its index in the batch. Returns the number
    /// of rows that ran.
    pub(super) fn looked_up<const CHECK: bool, const CACHES: u8>(
        &mut self,
        batch: &Batch,
        (addrs, metas): (&[u64], &[Meta]),
        from: usize,
        place: impl Fn(usize) -> usize,
        to_miss: bool,
        behind: &mut impl Behind,
    ) -> Result<usize, Error> {
        let mut next = 0;
        // The number of accesses of the trace, between the rows so far, that have no row.
        let mut skipped = 0;
        while next < addrs.len() {
            if !CHECK && self.tempo.pace.wants_span() {
                let (addrs, metas) = (&addrs[next..], &metas[next..]);
                let (ran, time) = match (self.constants.learns, self.constants.granules.1.is_some())
                {
                    (NOTHING, false) => self.hits::<CACHES, NOTHING, false>(addrs, metas, behind),
                    (NOTHING, true) => self.hits::<CACHES, NOTHING, true>(addrs, metas, behind),
                    (TIME, false) => self.hits::<CACHES, TIME, false>(addrs, metas, behind),
                    (TIME, true) => self.hits::<CACHES, TIME, true>(addrs, metas, behind),
                    (_, false) => self.hits::<CACHES, EACH, false>(addrs, metas, behind),
                    (_, true) => self.hits::<CACHES, EACH, true>(addrs, metas, behind),
                };
                let first_level = self.processors.here.hardware.first_level_mut().iter_mut();
                first_level.for_each(|unit| unit.tlb.set_now(time));
                next += ran;
                self.tempo.pace.had_span(ran);
            }
            let mut missed = None;
            let number = self.seen.position + (from + next + skipped) as u64 - self.seen.left_out;
            if !CHECK && !to_miss && self.is_dense(number) {
                let rows = (&addrs[next..], &metas[next..]);
                let ran;
                let first = (from + next + skipped, number);
                (ran, missed) = self.dense::<CACHES>(batch, rows, first, behind);
                next += ran;
            }
            if let (Some(&addr), Some(&meta)) = (addrs.get(next), metas.get(next)) {
                let row = place(next);
                let access = self.seen.position + row as u64;
                self.seen.left_out += (row - from - next - skipped) as u64;
                skipped = row - from - next;
                let addr = VirtAddr::new(addr.wrapping_sub(self.view.base));
                if self.tempo.pace.is_dense() {
                    let Run { tempo, stack, who, view, .. } = self;
                    tempo.ahead.soon::<CACHES>((addrs, next), (*who, *view), stack, behind);
                }
                self.access::<CHECK, CACHES>(batch, (addr, meta), access, missed, behind)?;
                next += 1;
                if to_miss || self.timing.has_new_deadline {
                    break;
                }
            }
        }
        Ok(next)
    }

    /// Whether misses follow each other so closely that determining the kinds of TLBs once for many
    /// misses saves time.
    fn is_dense(&self, number: u64) -> bool {
        self.tempo.pace.is_dense() && number >= self.tempo.worth.until
    }

    /// Runs accesses as long as each access is found through a shortcut of a first-level TLB and
    /// lies within one page. Returns the number of accesses that ran, and the time of the last of
    /// them. A run spends most of its time in this loop: nothing in it can fail, and the borrowed
    /// state stays in registers.
    fn hits<const CACHES: u8, const LEARNS: u8, const TWO: bool>(
        &mut self,
        addrs: &[u64],
        metas: &[Meta],
        behind: &mut impl Behind,
    ) -> (usize, u64) {
        let Processor { hardware, asid, .. } = &mut self.processors.here;
        let first = hardware.first;
        let first_level = hardware.first_level_mut();
        let before = first_level.iter().map(|unit| unit.tlb.now()).max().unwrap_or(0);
        let mut spans: [Option<SpanTlb<'_, LEARNS>>; FIRST_LEVEL_MAX] = [const { None }; _];
        for (span, unit) in spans.iter_mut().zip(first_level) {
            *span = unit.tlb.span(*asid, self.constants.granules);
        }
        let serving = |kind: usize| *spans.get(*first.get(kind)?)?;
        let spans =
            SpanTlbs::<LEARNS, TWO>::new(serving, self.constants.granules, self.tempo.large_first);
        // The array has four elements, so that the index `kind & 3` needs no bounds check.
        let is_left_out: [bool; 4] = std::array::from_fn(|kind| first.get(kind) == Some(&NONE));
        let tag = self.view.tag;
        let (mut ran, mut left_out, mut far) = (0, 0, [0; 4]);
        for (&addr, &meta) in addrs.iter().zip(metas) {
            let (addr, kind, bytes) = (VirtAddr::new(addr), meta.kind_index(), meta.size());
            let time = before + 1 + ran as u64;
            if let Some(found) = spans.lookup(addr, bytes, kind, time) {
                let Found { phys, label, is_far } = found;
                if TWO && is_far {
                    far[kind & 3] += 1;
                }
                if label == SHARED {
                    let addr = VirtAddr::new(addr.get().wrapping_sub(self.view.base));
                    shared_hit(
                        &mut self.layout,
                        &mut self.seen.census,
                        self.who,
                        addr,
                        meta.kind(),
                    );
                }
                if CACHES != UNCACHED {
                    let at = if CACHES == VIRTUAL { PhysAddr::new(addr.get() | tag) } else { phys };
                    behind.data(at, bytes, meta.kind());
                }
            } else if is_left_out[kind & 3] {
                left_out += 1;
            } else {
                break;
            }
            ran += 1;
        }
        let time = before + ran as u64;
        self.seen.left_out += left_out;
        // For each kind of access, the granule in which more accesses are found is searched first.
        if TWO && far.iter().sum::<usize>() * 8 > ran {
            let mut hits = [0; 4];
            metas[..ran].iter().for_each(|meta| hits[meta.kind_index() & 3] += 1);
            for ((large_first, far), hits) in self.tempo.large_first.iter_mut().zip(far).zip(hits) {
                *large_first ^= far * 2 > hits;
            }
        }
        (ran, time)
    }

    /// Runs one access of any outcome. An access that has `missed` every level already is not looked
    /// up again.
    // This function is inlined into its callers, because passing the arguments takes 30
    // instructions.
    #[inline(always)]
    pub(super) fn access<const CHECK: bool, const CACHES: u8>(
        &mut self,
        batch: &Batch,
        (addr, meta): (VirtAddr, Meta),
        access: u64,
        missed: Option<AllMissed>,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        let (kind, bytes) = (meta.kind(), meta.size());
        let unit = self.processors.here.hardware.first[kind as usize];
        if unit == NONE {
            self.seen.left_out += 1;
            return Ok(());
        }
        let place = Lookup { addr, kind, unit, access, batch };
        let (phys, size) = match missed {
            Some(missed) => self.miss_all(place, missed, behind)?,
            None => self.translate::<CHECK>(place, behind)?,
        };
        if addr.offset_in(size) + u64::from(bytes) > size.bytes() {
            return self.straddle::<CHECK, CACHES>(place, phys, size, bytes, behind);
        }
        self.data::<CACHES>(addr, phys, bytes, kind, behind);
        Ok(())
    }

    /// Passes one access, which was translated singly, to the data caches.
    fn data<const CACHES: u8>(
        &mut self,
        addr: VirtAddr,
        phys: PhysAddr,
        bytes: u32,
        kind: Kind,
        behind: &mut impl Behind,
    ) {
        let at = match CACHES {
            UNCACHED => return,
            VIRTUAL => PhysAddr::new(addr.wrapping_add(self.view.base).get() | self.view.tag),
            _ => phys,
        };
        if std::mem::take(&mut self.walking.missed) {
            behind.first_data(at, bytes, kind);
        } else {
            behind.data(at, bytes, kind);
        }
    }

    /// The physical address of one access that lies within a page, and the size of the page.
    fn translate<const CHECK: bool>(
        &mut self,
        place: Lookup<'_>,
        behind: &mut impl Behind,
    ) -> Result<(PhysAddr, PageSize), Error> {
        let Processor { hardware, asid, .. } = &mut self.processors.here;
        let linear = place.addr.wrapping_add(self.view.base);
        let tlb = &mut hardware.units[place.unit].tlb;
        let found = if self.tempo.pace.is_dense() {
            tlb.lookup_apart(linear, *asid, place.kind)
        } else {
            tlb.lookup(linear, *asid, place.kind)
        };
        match found {
            Ok(hit) => {
                self.tempo.pace.hit();
                if hit.label == SHARED {
                    let Lookup { addr, kind, .. } = place;
                    shared_hit(&mut self.layout, &mut self.seen.census, self.who, addr, kind);
                }
                if CHECK {
                    self.compare(place, &hit)?;
                }
                Ok((hit.phys, hit.size))
            }
            Err(why) => {
                self.tempo.pace.missed();
                self.miss(place, why, behind)
            }
        }
    }

    /// Completes an access that crosses a page boundary and whose first page was translated: one
    /// lookup for each further page, of any size.
    #[cold]
    fn straddle<const CHECK: bool, const CACHES: u8>(
        &mut self,
        place: Lookup<'_>,
        phys: PhysAddr,
        size: PageSize,
        bytes: u32,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        self.seen.page_crossings += 1;
        let (mut addr, mut left) = (place.addr, u64::from(bytes));
        let (mut phys, mut size) = (phys, size);
        loop {
            let part = left.min(size.bytes() - addr.offset_in(size));
            self.data::<CACHES>(addr, phys, part as u32, place.kind, behind);
            left -= part;
            if left == 0 {
                return Ok(());
            }
            let Some(next) = addr.checked_add(part) else {
                let what = format!("{bytes} bytes at {} run past the end of the space", place.addr);
                return Err(Error::Access { access: place.access, what });
            };
            addr = next;
            self.seen.crossing_lookups[place.kind as usize] += 1;
            (phys, size) = self.translate::<CHECK>(Lookup { addr, ..place }, behind)?;
        }
    }

    /// Fails if a translation differs from the present one in the page table, or allows an access
    /// that the page table forbids.
    #[cold]
    fn compare(&mut self, place: Lookup<'_>, hit: &Hit) -> Result<(), Error> {
        let table = self.stack.query(self.who.space, place.addr);
        let phys = table.map(|translation| translation.apply(place.addr));
        let said = match (phys, table) {
            (Some(phys), Some(table)) if phys == hit.phys => {
                if table.rights.allows(place.kind) {
                    return Ok(());
                }
                format!("that it allows only {}", table.rights)
            }
            (Some(phys), _) => phys.to_string(),
            (None, _) => "nothing".to_owned(),
        };
        Err(Error::Check(format!(
            "access {}: tlb.{} translates {} to {} for a {}, the page table says {said}",
            place.access,
            self.processors.here.hardware.units[place.unit].name,
            place.addr,
            hit.phys,
            place.kind.name()
        )))
    }
}

/// Counts a hit on a page that several regions share, for the region of the address.
#[cold]
#[inline(never)]
pub(super) fn shared_hit(
    layout: &mut Layout,
    census: &mut Census,
    who: Who,
    addr: VirtAddr,
    kind: Kind,
) {
    shared_hits(layout, census, who, addr, kind, 1);
}

/// Counts `count` hits on a page that several regions share for the region of `addr`.
pub(super) fn shared_hits(
    layout: &mut Layout,
    census: &mut Census,
    who: Who,
    addr: VirtAddr,
    kind: Kind,
    count: u64,
) {
    let region = layout.label_of(who.number, addr);
    census.region(region).hits[kind as usize] += count;
}

//! The rare case: a lookup that the first level did not answer, down to the fault.

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use description::Error;
use hardware::{
    behind::{Behind, Refill},
    processor::Processor,
    tlbs::{NONE, Unit},
};
use mmu::{BlockKind, BlockParams, Evicted, Miss, Spot, TlbEntry};
use os::{Answer, Ask, Who};
use pagetable::{Fault, Leads, Reference, Translation, Usage};
use ram::{Ram, walk::Walk};
use results::count::{
    census::{Census, TABLES},
    history::History,
    labels::Layout,
    origins::{Missed, Origins},
};
use trace::{Batch, Block};

use super::{Run, access::Place};

impl Run {
    /// A lookup that the first level did not answer; gives the place, and the size of the page.
    #[inline(never)]
    pub(super) fn miss(
        &mut self,
        place: Place<'_>,
        why: Miss,
        behind: &mut impl Behind,
    ) -> Result<(PhysAddr, PageSize), Error> {
        let Place { addr, kind, .. } = place;
        let region = self.layout.label_of(self.who.number, addr);
        self.census.region(region).l1_misses[kind as usize] += 1;
        if why != Miss::Absent {
            self.no_hit(place.unit, addr, why);
        }
        let linear = addr.wrapping_add(self.view.base);
        let Processor { hardware, asid, .. } = &mut self.processors.here;
        let second = hardware.second[kind as usize];
        if second == NONE {
            return self.miss_all(place, AllMissed::here(why, region), behind);
        }
        match hardware.units[second].tlb.lookup_apart(linear, *asid, kind) {
            Ok(hit) => {
                let entry = hit.entry(linear, *asid);
                if self.block_pages > 0 {
                    let Run { processors, block_pages, around, .. } = self;
                    let Processor { hardware, asid, .. } = &processors.here;
                    hardware.units[second].tlb.block_around(linear, *asid, *block_pages, around);
                }
                self.unit(place.unit).counts.missed(kind, hit.size, false);
                let pair = self.pair(entry);
                self.fill(place.unit, kind, &pair, hit.label);
                let when = self.when(place);
                self.history.l1_miss(when);
                Ok((hit.phys, hit.size))
            }
            Err(Miss::Absent) => self.miss_all(place, AllMissed::here(why, region), behind),
            Err(said) => {
                self.no_hit(second, addr, said);
                // What the walk is for: an entry that forbids the access tells more than none.
                self.miss_all(place, AllMissed::here(said, region), behind)
            }
        }
    }

    /// A lookup that no level of TLBs answered.
    #[inline(never)]
    pub(super) fn miss_all(
        &mut self,
        place: Place<'_>,
        missed: AllMissed,
        behind: &mut impl Behind,
    ) -> Result<(PhysAddr, PageSize), Error> {
        let Place { addr, kind, access, .. } = place;
        let region = missed.region;
        let second = self.processors.here.hardware.second[kind as usize];
        let is_heard = self.hooks.is_any();
        if is_heard && let Some(found) = self.on_miss(place, second, behind)? {
            return Ok(found);
        }
        let populated = self.populated && self.stack.guest.mapping(self.who.space, addr).is_none();
        if populated {
            // An address that no table can hold is told by the walk.
            self.fault(place, Fault::NotMapped { level: 1 }, behind)?;
        }
        let (translation, cold) = self.walk(place, missed, behind)?;
        if is_heard {
            self.on_walk(translation);
        }
        let label = self.label(translation, region);
        let Translation { page, frame, mut rights, global, .. } = translation;
        if self.tracks_dirty && kind != Kind::Store {
            rights = without_dirt(&self.stack.guest, self.who, addr, rights);
        }
        let asid = self.processors.here.asid;
        let global = global || self.view.is_global;
        let pair = self.pair(TlbEntry::single(page, frame, asid, global, rights));
        if self.block_pages > 0 {
            self.look_around(&pair.entry);
        }
        if second != NONE {
            self.unit(second).counts.missed(kind, page.size(), cold);
            self.fill(second, kind, &pair, label);
        }
        self.unit(place.unit).counts.missed(kind, page.size(), cold);
        self.fill(place.unit, kind, &pair, label);
        let when = self.when(place);
        let index = (access - self.position) as usize;
        let Run { census, history, origins, layout, who, .. } = self;
        let counts = MissCounts { census, history, origins, layout, who: *who };
        counts.count(place.batch, index, when, addr, (region, page.size(), cold));
        self.census.region(region).pages += u64::from(cold || populated);
        if is_heard {
            self.on_fill(place, translation, behind)?;
        }
        let linear = addr.wrapping_add(self.view.base);
        Ok((translation.apply(linear), translation.page.size()))
    }

    /// Counts why a TLB had no hit. An entry that does not allow the access goes.
    #[cold]
    fn no_hit(&mut self, unit: usize, addr: VirtAddr, why: Miss) {
        let addr = addr.wrapping_add(self.view.base);
        let Processor { hardware, asid, .. } = &mut self.processors.here;
        let Unit { level, tlb, counts, .. } = &mut hardware.units[unit];
        match why {
            Miss::Absent => {}
            Miss::Invalid => counts.invalid += 1,
            Miss::Denied => {
                counts.denied += 1;
                let census = &mut self.census;
                let dropped = tlb.flush_page(addr, *asid, &mut |gone| {
                    census.collect(counts, *level == 1, &gone);
                });
                counts.dropped += dropped;
            }
        }
    }

    /// A store has found a page that is clean, and no hardware sets its bit: the handler that is
    /// trapped to writes the entry which the last of the `references` has read.
    pub(super) fn trap_if_clean(
        &mut self,
        place: Place<'_>,
        found: bool,
        references: &mut Vec<Reference>,
    ) -> Result<(), Error> {
        let Place { addr, kind, access, .. } = place;
        let may_trap = self.tracks_dirty && !self.marks && found && kind == Kind::Store;
        if !may_trap || !self.stack.guest.is_clean(self.who.space, addr) {
            return Ok(());
        }
        self.processors.here.counts.modify_traps += 1;
        self.dirtied = true;
        let read = references.last().copied();
        references.extend(read.map(|read| Reference {
            write: true,
            leads: Leads::Nowhere,
            ..read
        }));
        let dirty = Usage { dirty: true, ..Usage::default() };
        let set = self.stack.guest.set_usage(self.who.space, addr, dirty);
        set.map_err(|failure| self.failed(failure, access))
    }

    /// Walks until there is a translation, with the operating system's help where it faults. Says whether the page
    /// was touched for the first time.
    fn walk(
        &mut self,
        place: Place<'_>,
        AllMissed { why, region, mut walked }: AllMissed,
        behind: &mut impl Behind,
    ) -> Result<(Translation, bool), Error> {
        let Place { addr, kind, .. } = place;
        let mut cold = false;
        self.dirtied = self.marks
            && self.tracks_dirty
            && (kind, why) == (Kind::Store, Miss::Denied)
            && self.stack.guest.is_clean(self.who.space, addr);
        self.processors.here.counts.dirty_assists += u64::from(self.dirtied);
        let translation = loop {
            let found = match walked.take() {
                Some(found) => found,
                None => self.walk_once(place, behind)?,
            };
            match found {
                Ok(translation) => break translation,
                // The root that is loaded lacked the entry, not the space.
                Err(_) if self.view.base != 0 && self.copies(place, behind) => {}
                Err(fault) => {
                    if behind.speculates() {
                        let wants_runs = behind.wants_runs();
                        let there = self.stack.query(self.who.space, addr);
                        let there = there.map(|page| self.spot(addr, page, wants_runs));
                        behind.faulted(self.instruction(place, wants_runs), there);
                    }
                    cold |= self.fault(place, fault, behind)? == Answer::FirstTouch;
                }
            }
        };
        let instead = self.by_software && why != Miss::Absent;
        let sized = self.sets_size();
        if behind.speculates() {
            self.missed = true;
            let wants_runs = behind.wants_runs();
            let spot = self.spot(addr, translation, wants_runs);
            behind.found(self.instruction(place, wants_runs), spot);
        }
        let data = kind != Kind::Fetch;
        behind.refilled(Refill { region, cold, data, instead, dirtied: self.dirtied, sized });
        Ok((translation, cold))
    }

    /// Whether a handler in software sets the size of each page.
    pub(super) fn sets_size(&self) -> bool {
        self.by_software && (self.always_sized || self.system.has_many_sizes(self.who.number))
    }

    /// Where `addr` lies by `translation`, for those who predict it.
    #[cold]
    fn spot(&self, addr: VirtAddr, translation: Translation, wants_runs: bool) -> Spot {
        let mapping = self.stack.guest.mapping(self.who.space, addr);
        let guest = mapping.map(|mapping| mapping.translation.apply(addr));
        let marked = mapping.is_some_and(|mapping| mapping.usage.marked);
        Spot {
            phys: translation.apply(addr),
            size: translation.page.size(),
            // What lay in one when it was placed still lies as if it did.
            reserved: marked || guest.is_some_and(|frame| self.stack.guest.is_reserved(frame)),
            marked,
            run: if wants_runs { self.run_around(addr, translation) } else { 0 },
        }
    }

    /// Base pages around `addr` that lie side by side in adjacent frames, up to [`Spot::RUN_MAX`].
    fn run_around(&self, addr: VirtAddr, translation: Translation) -> u32 {
        let (size, phys) = (self.granules.0, translation.apply(addr).get());
        let is_beside = |bytes: u64| {
            let at = VirtAddr::new(addr.get().wrapping_add(bytes));
            let found = self.stack.query(self.who.space, at);
            found.is_some_and(|found| found.apply(at).get() == phys.wrapping_add(bytes))
        };
        let mut run = 1;
        for ahead in [true, false] {
            let mut step = 1;
            while run < Spot::RUN_MAX {
                let bytes = step * size.bytes();
                if !is_beside(if ahead { bytes } else { bytes.wrapping_neg() }) {
                    break;
                }
                (run, step) = (run + 1, step + 1);
            }
        }
        run
    }

    /// The instruction that makes an access, if it is wanted and its batch has the fetch: an address in its block.
    fn instruction(&self, place: Place<'_>, is_wanted: bool) -> Option<u64> {
        if !is_wanted {
            return None;
        }
        match place.batch.block_of((place.access - self.position) as usize) {
            Block::At { address, instruction } => Some(address.wrapping_add(instruction.into())),
            Block::Before { .. } | Block::Unknown => None,
        }
    }

    /// Has the operating system answer a fault.
    fn fault(
        &mut self,
        place: Place<'_>,
        fault: Fault,
        behind: &mut impl Behind,
    ) -> Result<Answer, Error> {
        let Place { addr, kind, access, .. } = place;
        let ask = Ask { who: self.who, addr, kind, fault };
        let answer = self.ask(access, behind, |system, platform| system.fault(&ask, platform))?;
        let counts = &mut self.processors.here.counts;
        counts.faults += 1;
        if !self.system.prices_its_work() {
            let costs = self.prices.costs();
            counts.work_cycles += costs.map_or(0, |costs| u64::from(costs.fault_cycles));
        }
        self.has_new_deadline = self.system.deadline().is_some();
        match answer {
            Answer::FirstTouch => self.first_touches += 1,
            Answer::Returned => self.returns += 1,
            Answer::Granted => self.protection_faults += 1,
        }
        Ok(answer)
    }

    /// One walk, as the table is now; or, where a flush was forgotten, as hardware remembers it.
    fn walk_once(
        &mut self,
        place: Place<'_>,
        behind: &mut impl Behind,
    ) -> Result<Result<Translation, Fault>, Error> {
        if self.stack.guest.is_linear() {
            return self.walk_array(place, behind);
        }
        let Place { addr, kind, access, .. } = place;
        let mut references = std::mem::take(&mut self.references);
        references.clear();
        let failed = |run: &Run, failure| run.failed(failure, access);
        // Hardware knows no other addresses than those behind the segments, and no other root.
        let (linear, root) = (addr.wrapping_add(self.view.base), self.view.root);
        let found = self.stack.guest.walk(root, linear, kind, &mut references);
        if self.check && self.view.base != 0 {
            self.is_own(place, found)?;
        }
        self.trap_if_clean(place, found.is_ok(), &mut references)?;
        let mut placed = found;
        if self.stack.host().is_some() {
            placed = self
                .stack
                .place(addr, kind, &references, found)
                .map_err(|failure| failed(self, failure))?;
        }
        if self.in_segment(addr, found, behind) {
            self.references = references;
            return Ok(placed);
        }
        let (asid, root) = (self.processors.here.asid, self.stack.guest.root(root));
        let size = placed.map_or(PageSize::SIZE_4K, |page| page.page.size());
        let walk = Walk { va: linear, asid, root, found: found.is_ok(), size, nested_misses: 0 };
        if let Err(stale) = behind.walk(&walk, self.stack.way(&references)) {
            if self.check {
                return Err(Error::Check(format!(
                    "access {access}: the MMU cache leads the walk of {addr} to a table of level \
                     {} at {}, which the page table does not have there",
                    stale.level, stale.table
                )));
            }
            references.clear();
            let found = self.stack.guest.walk_from(stale, linear, kind, &mut references);
            placed = self
                .stack
                .place(addr, kind, &references, found)
                .map_err(|failure| failed(self, failure))?;
            behind.walk_from_stale(
                &Walk { found: found.is_ok(), ..walk },
                self.stack.way(&references),
            );
        }
        self.references = references;
        Ok(placed)
    }

    /// The label of the entry for a page ([`Layout::label_of_entry`]).
    pub(super) fn label(&self, translation: Translation, region: u32) -> u32 {
        // A slot is larger than any page, so both addresses of it are aligned alike.
        let start = translation.page.start().wrapping_add(self.view.base.wrapping_neg());
        let mut page = VirtRange::of_page(start.page(translation.page.size()));
        if self.block_pages > 0 {
            let bytes = self.block_pages as u64 * translation.page.size().bytes();
            let first = VirtAddr::new(start.get() & !(bytes - 1));
            page = VirtRange::new(first, bytes).unwrap_or(page);
        }
        self.layout.label_of_entry(self.who.number, page, region)
    }

    /// What the TLBs are refilled with. Where one holds pairs, it takes the neighbour too, if
    /// that is mapped.
    #[inline]
    fn pair(&self, entry: TlbEntry) -> Pair {
        let other = if self.has_pairs { self.neighbour(&entry) } else { None };
        Pair { entry, other, has_block: self.block_pages > 0 }
    }

    /// What a refill that reads the entries of a whole block knows of its pages: those that hardware could
    /// hold, whose accessed bits are set where hardware sets them.
    #[cold]
    fn look_around(&mut self, entry: &TlbEntry) {
        let mut around = std::mem::take(&mut self.around);
        let size = entry.page.size();
        let first = entry.page.start().get() & !(self.block_pages as u64 * size.bytes() - 1);
        around.clear();
        around.extend((0..self.block_pages as u64).map(|at| {
            let va = VirtAddr::new(first + at * size.bytes());
            if va == entry.page.start() {
                return entry.frames[0].map(|frame| (frame, entry.rights[0]));
            }
            let known = self.stack.guest.mapping(self.who.space, va)?;
            if self.marks && !known.usage.referenced {
                return None;
            }
            let page = self.stack.query(self.who.space, va)?;
            let mut rights = page.rights;
            if self.tracks_dirty {
                rights = without_dirt(&self.stack.guest, self.who, va, rights);
            }
            (page.page.size() == size && page.global == entry.global)
                .then_some((page.frame, rights))
        }));
        self.around = around;
    }

    /// Frame and rights of the other page of the pair, if it is mapped.
    #[cold]
    fn neighbour(&self, entry: &TlbEntry) -> Option<(PhysAddr, Rights)> {
        let page = entry.page;
        let neighbour = VirtAddr::new(page.start().get() ^ page.size().bytes());
        let other = self.stack.query(self.who.space, neighbour)?;
        let mut rights = other.rights;
        if self.tracks_dirty {
            rights = without_dirt(&self.stack.guest, self.who, neighbour, rights);
        }
        (other.page.size() == page.size()).then_some((other.frame, rights))
    }

    #[inline(always)]
    pub(super) fn fill(&mut self, index: usize, kind: Kind, pair: &Pair, label: u32) {
        let Run { processors, census, around, .. } = self;
        let unit = &mut processors.here.hardware.units[index];
        if let Some(blocks) = unit.tlb.blocks() {
            if blocks.kind == BlockKind::Mosaic {
                return self.fill_mosaic(index, kind, pair, label);
            }
            let known = if pair.has_block { part(around, blocks, &pair.entry) } else { &[] };
            return fill_block(unit, census, kind, &pair.entry, known, label);
        }
        if unit.params.paired {
            return fill_pair(unit, census, kind, pair, label);
        }
        let Unit { level, tlb, counts, .. } = unit;
        let tag = (pair.entry.page, pair.entry.asid);
        let is_first = *level == 1;
        tlb.fill(&pair.entry, label, kind, &mut |evicted: Evicted| {
            counts.evictions += u64::from((evicted.page, evicted.asid) != tag);
            // Of an entry without hits there is nothing to add, and the miss has counted its size.
            let is_size_known = label != TABLES && evicted.page.size() == tag.0.size();
            if evicted.hits != [0; Kind::COUNT] || !is_size_known {
                census.collect(counts, is_first, &evicted);
            }
        });
    }

    /// Fills a TLB whose entries hold pages that lie where their addresses allow it. A page that does not has
    /// an entry for itself.
    #[cold]
    fn fill_mosaic(&mut self, index: usize, kind: Kind, pair: &Pair, label: u32) {
        let Some(blocks) = self.unit(index).tlb.blocks() else { return };
        let known = if pair.has_block { part(&self.around, blocks, &pair.entry) } else { &[] };
        let (page, mut pages) = (pair.entry.page, known.to_vec());
        let own = page.number() as usize & (blocks.pages as usize - 1);
        let first = page.start().get() - own as u64 * page.size().bytes();
        let is_alone = |frame| !self.is_hashed(page.start(), frame);
        let is_alone = pair.entry.frames[0].is_some_and(is_alone);
        for (at, known) in pages.iter_mut().enumerate().filter(|(at, _)| *at != own) {
            let va = VirtAddr::new(first + at as u64 * page.size().bytes());
            *known = known.filter(|(frame, _)| !is_alone && self.is_hashed(va, *frame));
        }
        let Run { processors, census, .. } = self;
        let unit = &mut processors.here.hardware.units[index];
        fill_block(unit, census, kind, &pair.entry, &pages, label);
    }

    /// A TLB of the processor that runs.
    pub(super) fn unit(&mut self, index: usize) -> &mut Unit {
        &mut self.processors.here.hardware.units[index]
    }
}

/// A lookup that missed every level.
#[derive(Clone, Copy)]
pub(super) struct AllMissed {
    pub(super) why: Miss,
    /// The label of the region that it was in.
    pub(super) region: u32,
    /// What the walk for it has found, if there was one.
    pub(super) walked: Option<Result<Translation, Fault>>,
}

impl AllMissed {
    /// One that missed right now.
    fn here(why: Miss, region: u32) -> AllMissed {
        AllMissed { why, region, walked: None }
    }
}

/// What counts lookups that missed every level.
pub(super) struct MissCounts<'a> {
    pub(super) census: &'a mut Census,
    pub(super) history: &'a mut History,
    pub(super) origins: &'a mut Option<Origins>,
    pub(super) layout: &'a Layout,
    pub(super) who: Who,
}

impl MissCounts<'_> {
    /// Counts one of `addr` in a page of some size that may be `cold`, in the region with that label: the access at
    /// `index` of `batch`, `when` so many were before it.
    #[inline(always)]
    pub(super) fn count(
        self,
        batch: &Batch,
        index: usize,
        when: u64,
        addr: VirtAddr,
        (region, page, cold): (u32, PageSize, bool),
    ) {
        let MissCounts { census, history, origins, layout, who } = self;
        history.miss(when, addr.get(), region, cold);
        if let Some(origins) = origins {
            let site = layout.site_of(who.number, addr);
            let missed = Missed { region, site, page, cold };
            origins.miss(batch, index, who.number, layout, missed);
        }
        let census = census.region(region);
        census.misses += 1;
        census.cold_misses += u64::from(cold);
    }
}

/// Fills a TLB that holds pairs.
#[inline(never)]
fn fill_pair(unit: &mut Unit, census: &mut Census, kind: Kind, pair: &Pair, label: u32) {
    let Unit { level, tlb, counts, .. } = unit;
    // An entry of the same pair makes no room: it is renewed.
    let entry = pair.both();
    let even = VirtAddr::new(entry.page.start().get() & !entry.page.size().bytes());
    let tag = (even.page(entry.page.size()), entry.asid);
    let is_first = *level == 1;
    tlb.fill(&entry, label, kind, &mut |evicted: Evicted| {
        counts.evictions += u64::from((evicted.page, evicted.asid) != tag);
        census.collect(counts, is_first, &evicted);
    });
}

/// Of what is known `around` an entry's page, what lies in its block of the size of `blocks`.
fn part<'a>(
    around: &'a [Option<(PhysAddr, Rights)>],
    blocks: BlockParams,
    entry: &TlbEntry,
) -> &'a [Option<(PhysAddr, Rights)>] {
    let pages = blocks.pages as usize;
    let at = entry.page.number() as usize & (around.len().max(1) - 1);
    around.get(at / pages * pages..(at / pages + 1) * pages).unwrap_or(&[])
}

/// Fills a TLB that has entries of blocks, with the page alone if nothing is known of others.
#[inline(never)]
fn fill_block(
    unit: &mut Unit,
    census: &mut Census,
    kind: Kind,
    entry: &TlbEntry,
    pages: &[Option<(PhysAddr, Rights)>],
    label: u32,
) {
    let Unit { level, tlb, counts, .. } = unit;
    let is_first = *level == 1;
    let before = tlb.counts_of_evictions();
    let gone = &mut |evicted: Evicted| census.collect(counts, is_first, &evicted);
    if pages.is_empty() {
        tlb.fill(entry, label, kind, gone);
    } else {
        tlb.fill_block(entry.page, (entry.asid, entry.global), pages, label, kind, gone);
    }
    counts.evictions += tlb.counts_of_evictions() - before;
}

/// A translation, with frame and rights of the other page of its pair if that is there.
pub(super) struct Pair {
    pub(super) entry: TlbEntry,
    pub(super) other: Option<(PhysAddr, Rights)>,
    /// Whether the run knows what lies around it, for TLBs with entries of blocks.
    pub(super) has_block: bool,
}

impl Pair {
    /// The entry of a TLB that holds both pages.
    fn both(&self) -> TlbEntry {
        let mut entry = self.entry;
        let odd = (entry.page.number() & 1) as usize;
        entry.frames[odd] = self.entry.frames[0];
        entry.frames[1 - odd] = self.other.map(|(frame, _)| frame);
        entry.rights[1 - odd] = self.other.map_or(Rights::NONE, |(_, rights)| rights);
        entry
    }
}

/// What a machine that tracks dirty pages gives its TLBs of the `rights` to the page that holds `addr`: all but the one
/// to store if the page is clean.
#[inline]
pub(super) fn without_dirt(ram: &Ram, who: Who, addr: VirtAddr, rights: Rights) -> Rights {
    let is_clean = rights.allows(Kind::Store) && ram.is_clean(who.space, addr);
    if is_clean { rights.without_write() } else { rights }
}

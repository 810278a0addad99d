//! A run: every access of a trace through the machine, in order.
//!
//! ```text
//!   access --> first-level TLB -- hit --------------------------> data caches
//!                  | miss
//!                  v
//!              second-level TLB -- hit --> fill the first ------> data caches
//!                  | miss
//!                  v
//!              walk -> references -> data caches, from the level where the walker enters
//!                  | fault                            ^
//!                  v                                  |
//!              Os::fault -> walk again -> fill both --+--------> data caches
//! ```
//!
//! This is the only way for an access. The first line is the common case and is kept free of
//! allocation, hashing and indirect calls; the rest is [`Run::miss`].

use std::ops::Range;

use addr::{Asid, Kind, PageSize, PhysAddr, VirtAddr, VirtRange};
use mmu::{Entry, Evicted, Hit, Requester, Served, Stride};
use pagetable::{Reference, Translation};
use trace::{Batch, Event, Meta, Source};

use crate::{
    Error, Machine, Results,
    census::{Census, SHARED},
    check,
    os::{Answer, Failure, Os, Shootdown},
    summary,
    timeline::History,
    translate::{FIRST_LEVEL_MAX, Hardware, NONE},
};

/// Where fewer accesses than this hit in a row, beginning a stride does not pay ...
const STRIDE_MIN: usize = 4;
/// ... and so many are looked up one by one before the next.
const SINGLE: u32 = 32;

/// How to run.
pub struct RunOptions<'a> {
    /// Compare each translation with the page table and stop at the first that differs.
    pub check: bool,
    /// Called a few times a second at most; `false` stops the run with [`Error::Interrupted`].
    pub progress: &'a mut dyn FnMut(Progress) -> bool,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Accesses that ran.
    pub accesses: u64,
    /// Accesses in all, where that is known.
    pub total: Option<u64>,
}

/// Runs all of `source` on `machine`.
pub(crate) fn run(
    machine: &Machine,
    source: &mut dyn Source,
    options: RunOptions<'_>,
) -> Result<Results, Error> {
    let mut run = Run::new(machine)?;
    let mut batch = Batch::default();
    loop {
        let more = source.next(&mut batch)?;
        if options.check {
            run.batch::<true>(&batch)?;
        } else {
            run.batch::<false>(&batch)?;
        }
        if !more {
            break;
        }
        let progress = Progress { accesses: run.position, total: source.total() };
        if !(options.progress)(progress) {
            return Err(Error::Interrupted);
        }
    }
    run.hardware.drain(&mut run.census);
    let results = summary::summarize(machine, source, run, options.check);
    check::identities(&results)?;
    Ok(results)
}

/// Counts of the walks of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct WalkCensus {
    pub(crate) walks: u64,
    pub(crate) cold: u64,
    pub(crate) references: u64,
    pub(crate) cold_references: u64,
    /// How many walks that were not cold took as many references as the index says.
    pub(crate) per_walk: Vec<u64>,
    /// References by level (index) and by what served them.
    pub(crate) served: Vec<[u64; Served::COUNT]>,
}

/// Cycles by what serves a reference.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies {
    /// Whether the machine file gives all that its caches and memory need.
    pub(crate) known: bool,
    pub(crate) served_cycles: [u64; Served::COUNT],
    pub(crate) refill_cycles: u64,
}

/// A run under way.
pub(crate) struct Run {
    pub(crate) hardware: Hardware,
    pub(crate) os: Os,
    pub(crate) census: Census,
    pub(crate) walks: WalkCensus,
    pub(crate) history: History,
    pub(crate) latencies: Latencies,
    pub(crate) accesses: [u64; Kind::COUNT],
    pub(crate) instructions: u64,
    pub(crate) page_crossings: u64,
    pub(crate) threads: Vec<bool>,
    pub(crate) gap_accesses: u64,
    pub(crate) switches: u64,
    pub(crate) saw_events: bool,
    pub(crate) saw_physical: bool,
    /// Data accesses by what served them, for the time of the program itself.
    pub(crate) program_served: [u64; Served::COUNT],
    pub(crate) translation_cycles: u64,
    /// Accesses of the trace so far, those that the machine leaves out among them.
    pub(crate) position: u64,
    /// Accesses that the machine leaves out, so far.
    pub(crate) left_out: u64,
    asids: Asids,
    asid: Asid,
    page_size: PageSize,
    references: Vec<Reference>,
}

impl Run {
    fn new(machine: &Machine) -> Result<Run, Error> {
        let description = machine.description();
        let built = |(key, what): (String, String)| Error::Description {
            origin: machine.name().to_owned(),
            line: 1,
            what: format!("{key}: {what}"),
        };
        let hardware = Hardware::new(description).map_err(built)?;
        let os = Os::new(description).map_err(built)?;
        Ok(Run {
            census: Census::new(hardware.units.len()),
            walks: WalkCensus::default(),
            history: History::new(),
            latencies: summary::latencies(description),
            accesses: [0; Kind::COUNT],
            instructions: 0,
            page_crossings: 0,
            threads: Vec::new(),
            gap_accesses: 0,
            switches: 0,
            saw_events: false,
            saw_physical: false,
            program_served: [0; Served::COUNT],
            translation_cycles: 0,
            position: 0,
            left_out: 0,
            asids: Asids::new(description.core.asid_bits),
            asid: Asid(0),
            page_size: os.page_size(),
            references: Vec::with_capacity(64),
            hardware,
            os,
        })
    }

    /// Runs the accesses and events of one batch in their order.
    fn batch<const CHECK: bool>(&mut self, batch: &Batch) -> Result<(), Error> {
        for segment in &batch.segments {
            let index = segment.thread as usize;
            if self.threads.len() <= index {
                self.threads.resize(index + 1, false);
            }
            self.threads[index] = true;
        }
        self.saw_physical |= !batch.paddr.is_empty();
        let mut from = 0;
        for placed in &batch.events {
            let to = placed.at as usize;
            self.span::<CHECK>(batch, from..to)?;
            from = to;
            self.event(&placed.event, self.position + to as u64)?;
        }
        self.span::<CHECK>(batch, from..batch.len())?;
        self.position += batch.len() as u64;
        Ok(())
    }

    /// Runs accesses among which there is no event.
    fn span<const CHECK: bool>(&mut self, batch: &Batch, span: Range<usize>) -> Result<(), Error> {
        self.count(batch, span.clone());
        if self.hardware.caches.is_some() {
            self.accesses::<CHECK, true>(batch, span)
        } else {
            self.accesses::<CHECK, false>(batch, span)
        }
    }

    fn count(&mut self, batch: &Batch, span: Range<usize>) {
        let metas = &batch.meta[span];
        let mut kinds = [0u64; Kind::COUNT];
        for kind in Kind::ALL {
            if self.hardware.first[kind as usize] != NONE {
                let of_kind = metas.iter().map(|meta| u32::from(meta.kind() == kind));
                kinds[kind as usize] = u64::from(of_kind.sum::<u32>());
            }
        }
        for (sum, count) in self.accesses.iter_mut().zip(kinds) {
            *sum += count;
        }
        self.instructions += metas.iter().map(|meta| u64::from(meta.instructions())).sum::<u64>();
    }

    /// Runs accesses: hits by themselves, everything else one by one.
    fn accesses<const CHECK: bool, const CACHES: bool>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
    ) -> Result<(), Error> {
        let (addrs, metas) = (&batch.addr[span.clone()], &batch.meta[span.clone()]);
        let mut next = 0;
        let mut single = 0;
        while next < addrs.len() {
            if !CHECK && single == 0 {
                let ran = self.hits::<CACHES>(&addrs[next..], &metas[next..]);
                next += ran;
                single = if ran < STRIDE_MIN { SINGLE } else { 1 };
            }
            single = single.saturating_sub(1);
            if let (Some(&addr), Some(&meta)) = (addrs.get(next), metas.get(next)) {
                let access = self.position + (span.start + next) as u64;
                self.access::<CHECK, CACHES>(VirtAddr::new(addr), meta, access)?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Runs accesses as long as each is found at once and lies in one page, and says how many
    /// were. This is where a run spends its time: nothing here can fail, and what it borrows
    /// stays in registers.
    fn hits<const CACHES: bool>(&mut self, addrs: &[u64], metas: &[Meta]) -> usize {
        let Hardware { units, first, caches, .. } = &mut self.hardware;
        let (first, page_size) = (*first, self.page_size);
        let mut time = units.iter().map(|unit| unit.tlb.now()).max().unwrap_or(0);
        let mut strides = [const { Stride::nothing() }; FIRST_LEVEL_MAX];
        for (stride, unit) in strides.iter_mut().zip(units.iter_mut()) {
            *stride = unit.tlb.stride(self.asid);
        }
        let (mut ran, mut left_out) = (0, 0);
        for (&addr, &meta) in addrs.iter().zip(metas) {
            let (addr, kind, bytes) = (VirtAddr::new(addr), meta.kind(), meta.size());
            // Kinds that the machine leaves out have a unit beyond the last.
            if let Some(stride) = strides.get_mut(first[kind as usize]) {
                if addr.offset_in(page_size) + u64::from(bytes) > page_size.bytes() {
                    break;
                }
                time += 1;
                let Some((phys, label)) = stride.lookup(addr, kind, time) else { break };
                if label == SHARED {
                    let region = self.os.label_of(addr);
                    self.census.region(region).hits[kind as usize] += 1;
                }
                if CACHES && let Some(caches) = caches {
                    let store = kind == Kind::Store;
                    let served = caches.access(phys, bytes, store, Requester::Program(kind));
                    self.program_served[served as usize] += 1;
                }
            } else {
                left_out += 1;
            }
            ran += 1;
        }
        for unit in units.iter_mut() {
            unit.tlb.set_now(time);
        }
        self.left_out += left_out;
        ran
    }

    /// One access, whatever becomes of it.
    fn access<const CHECK: bool, const CACHES: bool>(
        &mut self,
        addr: VirtAddr,
        meta: Meta,
        access: u64,
    ) -> Result<(), Error> {
        let (kind, bytes) = (meta.kind(), meta.size());
        let unit = self.hardware.first[kind as usize];
        if unit == NONE {
            self.left_out += 1;
            return Ok(());
        }
        let place = Place { addr, kind, unit, access };
        let phys = self.translate::<CHECK>(place)?;
        if addr.offset_in(self.page_size) + u64::from(bytes) > self.page_size.bytes() {
            self.straddle::<CHECK, CACHES>(place, phys, bytes)?;
        } else if CACHES {
            self.data(phys, bytes, kind);
        }
        Ok(())
    }

    /// The physical address of one access that lies within a page.
    fn translate<const CHECK: bool>(&mut self, place: Place) -> Result<PhysAddr, Error> {
        let found = self.hardware.units[place.unit].tlb.lookup(place.addr, self.asid, place.kind);
        match found {
            Some(hit) => {
                if hit.label == SHARED {
                    self.shared_hit(place);
                }
                if CHECK {
                    self.compare(place, &hit)?;
                }
                Ok(hit.phys)
            }
            None => self.miss(place),
        }
    }

    /// An access that does not end in the page where it starts: a lookup for each page.
    #[cold]
    fn straddle<const CHECK: bool, const CACHES: bool>(
        &mut self,
        place: Place,
        phys: PhysAddr,
        bytes: u32,
    ) -> Result<(), Error> {
        self.page_crossings += 1;
        let Ok(range) = VirtRange::new(place.addr, u64::from(bytes.max(1))) else {
            let what = format!("{bytes} bytes at {} run past the end of the space", place.addr);
            return Err(Error::Access { access: place.access, what });
        };
        for page in range.pages(self.page_size) {
            // Both ranges hold the page's part of the access.
            let Some(part) = range.intersection(VirtRange::of_page(page)) else { continue };
            let phys = if part.start() == place.addr {
                phys
            } else {
                self.translate::<CHECK>(Place { addr: part.start(), ..place })?
            };
            if CACHES {
                self.data(phys, part.bytes() as u32, place.kind);
            }
        }
        Ok(())
    }

    /// The program's own access to the data caches.
    #[inline(always)]
    fn data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) {
        if let Some(caches) = &mut self.hardware.caches {
            let served = caches.access(phys, bytes, kind == Kind::Store, Requester::Program(kind));
            self.program_served[served as usize] += 1;
        }
    }

    /// A hit on a page that several regions share is counted for its own region.
    #[cold]
    fn shared_hit(&mut self, place: Place) {
        let region = self.os.label_of(place.addr);
        self.census.region(region).hits[place.kind as usize] += 1;
    }

    /// A lookup that the first level did not answer.
    #[cold]
    #[inline(never)]
    fn miss(&mut self, place: Place) -> Result<PhysAddr, Error> {
        let Place { addr, kind, access, .. } = place;
        let region = self.os.label_of(addr);
        self.census.region(region).l1_misses[kind as usize] += 1;

        let second = self.hardware.second[kind as usize];
        if second != NONE {
            let unit = &mut self.hardware.units[second];
            if let Some(hit) = unit.tlb.lookup(addr, self.asid, kind) {
                let cycles = unit.latency_cycles;
                self.census.tlbs[place.unit].missed(kind, hit.size, false);
                let (page, frame) = (addr.page(hit.size), hit.frame());
                let (rights, global) = (hit.rights, hit.global);
                let entry = self.entry(Translation { page, frame, rights, global });
                self.fill(place.unit, &entry, hit.label);
                self.history.l1_miss(access - self.left_out);
                self.translation_cycles += cycles;
                self.census.region(region).walk_cycles += cycles;
                return Ok(hit.phys);
            }
        }

        let (translation, cold) = self.walk(place, region)?;
        let label = self.label(translation, region);
        let entry = self.entry(translation);
        if second != NONE {
            self.census.tlbs[second].missed(kind, translation.page.size(), cold);
            self.fill(second, &entry, label);
        }
        self.census.tlbs[place.unit].missed(kind, translation.page.size(), cold);
        self.fill(place.unit, &entry, label);
        self.history.miss(access - self.left_out, addr.get(), cold);
        let census = self.census.region(region);
        census.misses += 1;
        census.cold_misses += u64::from(cold);
        census.pages += u64::from(cold);
        Ok(translation.apply(addr))
    }

    /// Walks until there is a translation, with the operating system's help where it faults.
    /// Says whether the page was touched for the first time.
    fn walk(&mut self, place: Place, region: u32) -> Result<(Translation, bool), Error> {
        let Place { addr, kind, access, .. } = place;
        let mut references = std::mem::take(&mut self.references);
        references.clear();
        let mut cold = false;
        let translation = loop {
            match self.os.walk(addr, kind, &mut references) {
                Ok(translation) => break translation,
                Err(fault) => {
                    let answer = self.os.fault(addr, kind, fault);
                    match answer.map_err(|failure| self.failed(failure, access))? {
                        Answer::FirstTouch => cold = true,
                        Answer::Granted(shootdown) => self.shoot_down(shootdown),
                    }
                }
            }
        };
        let cycles = self.charge(&references, cold);
        self.census.region(region).walk_references += references.len() as u64;
        self.census.region(region).walk_cycles += cycles;
        self.references = references;
        Ok((translation, cold))
    }

    /// Sends the references of a walk through the caches and counts them; gives their cycles.
    fn charge(&mut self, references: &[Reference], cold: bool) -> u64 {
        let mut cycles = self.latencies.refill_cycles;
        for reference in references {
            let served = match &mut self.hardware.caches {
                Some(caches) => {
                    let bytes = u32::from(reference.bytes);
                    caches.access(reference.addr, bytes, reference.write, Requester::Walker)
                }
                None => Served::Memory,
            };
            let level = usize::from(reference.level);
            if self.walks.served.len() <= level {
                self.walks.served.resize(level + 1, [0; Served::COUNT]);
            }
            self.walks.served[level][served as usize] += 1;
            cycles += self.latencies.served_cycles[served as usize];
        }
        let count = references.len();
        self.walks.walks += 1;
        self.walks.references += count as u64;
        if cold {
            self.walks.cold += 1;
            self.walks.cold_references += count as u64;
        } else {
            if self.walks.per_walk.len() <= count {
                self.walks.per_walk.resize(count + 1, 0);
            }
            self.walks.per_walk[count] += 1;
        }
        self.translation_cycles += cycles;
        cycles
    }

    /// The label of the entry for a page: its region, or [`SHARED`].
    fn label(&self, translation: Translation, region: u32) -> u32 {
        let page = VirtRange::of_page(translation.page);
        if self.os.is_single(page) { region } else { SHARED }
    }

    /// What a TLB holds after a refill. A paired one takes the neighbour too, if it is mapped.
    fn entry(&mut self, translation: Translation) -> Entry {
        let page = translation.page;
        let paired = self.hardware.units.iter().any(|unit| unit.params.paired);
        let neighbour = VirtAddr::new(page.start().get() ^ page.size().bytes());
        let other = paired
            .then(|| self.os.query(neighbour))
            .flatten()
            .filter(|other| other.page.size() == page.size())
            .map(|other| other.frame);
        let mut entry = Entry::single(
            page,
            translation.frame,
            self.asid,
            translation.global,
            translation.rights,
        );
        if paired {
            let odd = page.number() & 1;
            let both = [Some(translation.frame), other];
            entry.frames = [both[odd as usize], both[1 - odd as usize]];
        }
        entry
    }

    fn fill(&mut self, unit: usize, entry: &Entry, label: u32) {
        let first_level = self.hardware.units[unit].level == 1;
        let (census, tlb) = (&mut self.census, &mut self.hardware.units[unit].tlb);
        tlb.fill(entry, label, &mut |evicted: Evicted| {
            census.tlbs[unit].evictions += 1;
            census.collect(unit, first_level, &evicted);
        });
    }

    /// Stops at a translation that is not what the page table says now.
    #[cold]
    fn compare(&mut self, place: Place, hit: &Hit) -> Result<(), Error> {
        let table = self.os.query(place.addr).map(|translation| translation.apply(place.addr));
        if table == Some(hit.phys) {
            return Ok(());
        }
        let said = table.map_or_else(|| "nothing".to_owned(), |phys| phys.to_string());
        Err(Error::Check(format!(
            "access {}: tlb.{} translates {} to {}, the page table says {said}",
            place.access, self.hardware.units[place.unit].name, place.addr, hit.phys
        )))
    }

    #[cold]
    fn event(&mut self, event: &Event, access: u64) -> Result<(), Error> {
        if let Event::Gap { accesses, instructions } = *event {
            self.gap_accesses += accesses;
            self.instructions += instructions;
            return Ok(());
        }
        self.saw_events |= matches!(event, Event::Mapping { .. } | Event::Mmap { .. });
        let shootdowns = self.os.event(event).map_err(|failure| self.failed(failure, access))?;
        for shootdown in shootdowns {
            self.shoot_down(shootdown);
        }
        if let Event::Switch { space } = *event {
            self.switches += 1;
            let (asid, taken) = self.asids.of(space);
            self.asid = asid;
            match taken {
                Taken::Own => {}
                Taken::FromOther => self.hardware.flush_asid(asid, &mut self.census),
                Taken::NoAsids => self.hardware.flush_non_global(&mut self.census),
            }
        }
        Ok(())
    }

    fn shoot_down(&mut self, shootdown: Shootdown) {
        self.hardware.flush(&shootdown.flush, self.asid, &mut self.census);
        self.os.complete(shootdown);
    }

    fn failed(&self, failure: Failure, access: u64) -> Error {
        match failure {
            Failure::OutOfFrames => {
                Error::OutOfFrames { access, frames_bytes: self.os.frame_bytes().0 }
            }
            Failure::Table(what) => Error::Access { access, what },
        }
    }
}

/// One lookup: what is accessed, how, and by whom it is looked up first.
#[derive(Clone, Copy)]
struct Place {
    addr: VirtAddr,
    kind: Kind,
    unit: usize,
    access: u64,
}

/// Which space has which ASID.
struct Asids {
    owners: Vec<Option<u32>>,
}

/// How a space came by its ASID.
enum Taken {
    /// It had it before.
    Own,
    /// Another space had it, or nobody: whatever bears it is stale.
    FromOther,
    /// The hardware has none.
    NoAsids,
}

impl Asids {
    fn new(bits: u8) -> Asids {
        let mut owners = vec![None; if bits == 0 { 0 } else { 1 << bits.min(16) }];
        if let Some(first) = owners.first_mut() {
            *first = Some(0);
        }
        Asids { owners }
    }

    fn of(&mut self, space: u32) -> (Asid, Taken) {
        if self.owners.is_empty() {
            return (Asid(0), Taken::NoAsids);
        }
        let asid = space as usize % self.owners.len();
        let taken = match self.owners[asid].replace(space) {
            Some(owner) if owner == space => Taken::Own,
            _ => Taken::FromOther,
        };
        (Asid(asid as u16), taken)
    }
}

//! The walker. Through the data caches, it makes the references of a walk that its MMU cache cannot
//! serve, and counts them.
//!
//! ```text
//!   walk ---> where to start? --- skipped: no reference
//!              MMU cache
//!                 |  held? ------ served by the MMU cache
//!                 v
//!   program --> data caches ----- l1d, l2, l3 or memory, at their price
//! ```
//!
//! The page table supplies all references of a walk, from the root down. If a cache holds a node on
//! this path, the walk starts there, and the references before it are not made. In a virtual
//! machine, the host first translates the address of each reference.
//!
//! If software refills the TLB, a [`Handler`] makes these references, and its instructions are
//! counted in addition.

mod build;
mod dimension;
pub mod handler;
mod many_at_once;
mod processors;
mod speculation;
mod virtual_machine;

pub use build::{hierarchy, latencies};
pub use dimension::{Dimension, UpperEntries};
pub use handler::Handler;
pub use many_at_once::{Miss, Steps, WalkMade};
pub use processors::Walkers;
pub use speculation::{PredictedWalks, Speculator};
pub use virtual_machine::HostSide;

use addr::{Asid, Kind, PhysAddr, VirtAddr, VirtRange};
use description::Shared;
use mmu::{Hierarchy, Requester, Served, Spot};
use pagetable::{Node, Reference};
use ram::walk::{Walk, Way};

use super::{
    behind::{Forget, Refill},
    contexts::{VIRTUAL_CACHE_BITS, tag_of_context},
    nodes::{References, WALKS},
};
use speculation::{DeviceFrames, Made};
use virtual_machine::page_node;

/// The cycles of a reference, by the cache or memory that serves it.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Whether the machine file gives all cycles that its caches and memory need.
    pub known: bool,
    pub served_cycles: [u64; Served::COUNT],
    pub refill_cycles: u64,
    /// The cycles of a refill after a load or a store has missed.
    pub data_refill_cycles: u64,
    /// The cycles of an exception that is not a refill.
    pub exception_cycles: u64,
    /// The cycles of a walk's reference, by the cache or memory that serves it. For a walk by
    /// software, the cycles of a hit in the nearest cache are subtracted, since this hit is part of
    /// the load instruction.
    pub reference_cycles: [u64; Served::COUNT],
}

/// Counts of the walks of a run.
#[derive(Clone, Debug, Default)]
pub struct WalkCensus {
    pub walks: u64,
    pub cold: u64,
    pub references: u64,
    pub cold_references: u64,
    /// The number of walks by the number of references they made (the index), without cold walks.
    pub per_walk: Vec<u64>,
    /// The counts of each region, by its label.
    pub regions: Vec<RegionWalks>,
    /// Instructions of the refill handler.
    pub handler_instructions: u64,
    /// Misses on the page table itself, by the level of the table (the index).
    pub nested_misses: Vec<u64>,
    /// The cycles of all walks if nothing hides them.
    pub cycles: u64,
}

/// The references of walks and their cycles, either for one region or since the last refill.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegionWalks {
    pub references: u64,
    pub cycles: u64,
}

/// The walker of a processor, with its caches.
pub struct Walker {
    /// The only dimension or, in a virtual machine, the guest's.
    pub dimension: Dimension,
    pub host: Option<HostSide>,
    pub handler: Option<Handler>,
    /// The predictors of the page at which a walk ends: one predictor for each of those designs of
    /// a sweep that differ only in the predictor.
    pub speculators: Vec<Speculator>,
    /// Frames that devices own, which must not be read speculatively.
    devices: DeviceFrames,
    /// The address and space of the last walk.
    walked: (VirtAddr, Asid),
    /// Whether walks read only the last entry of their path.
    lowest_only: bool,
    pub port: Port,
    pub walks: WalkCensus,
    /// Accesses of the program, by kind and by the cache or memory that served them.
    pub program_served: [[u64; Served::COUNT]; Kind::COUNT],
    /// For each kind, accesses that changed nothing in the cache they reached first; neither that
    /// cache nor `program_served` has counted them yet.
    repeats: [u64; Kind::COUNT],
}

/// The data caches and memory, to which the walker's references go.
pub struct Port {
    pub caches: Option<Hierarchy>,
    /// Whether the caches are virtually addressed.
    pub is_virtual: bool,
    pub latencies: Latencies,
    /// References to memory by node, if memory has nodes.
    pub nodes: Option<References>,
    /// log2 of the line size, in bytes, of the cache that references reach first. The next field
    /// counts the additional lines of references that touch more than one line.
    line_shift: u32,
    pub further_lines: u64,
    /// Reads and writes that changed nothing in the first cache they reached, and that this cache
    /// has not counted yet.
    repeats: [u64; 2],
    /// References and cycles since the last refill.
    under_way: RegionWalks,
    /// The references of the current walk, kept if there is a predictor of walks.
    made: Option<Made>,
}

impl Walker {
    /// The counts of a region's walks.
    pub fn region(&self, label: u32) -> RegionWalks {
        self.walks.regions.get(label as usize).copied().unwrap_or_default()
    }

    /// Counts `hits` accesses of the program that changed nothing in the cache they reached first.
    pub fn repeated(&mut self, kind: Kind, hits: u64) {
        if let Some(caches) = &mut self.port.caches {
            let place = caches.repeated(kind, hits) as usize;
            self.program_served[kind as usize][place] += hits;
        }
    }

    /// Makes an access of the program to memory.
    #[inline(always)]
    pub fn data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) {
        let Some(caches) = &mut self.port.caches else { return };
        if caches.hit(phys, bytes, kind) {
            self.repeats[kind as usize] += 1;
        } else {
            self.changes(phys, bytes, kind);
        }
    }

    /// Makes an access of the program that may change a cache.
    #[inline(never)]
    fn changes(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) {
        if let Some(caches) = &mut self.port.caches {
            let served = caches.access_anew(phys, bytes, kind);
            self.program_served[kind as usize][served as usize] += 1;
            if let (Served::Memory, Some(nodes)) = (served, &mut self.port.nodes) {
                nodes.refer(phys, kind as usize, 1);
            }
        }
    }

    /// Makes the access for which the last refill was made.
    pub fn first_data(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) {
        if let Some(caches) = &mut self.port.caches {
            let served = caches.access(phys, bytes, kind == Kind::Store, Requester::Program(kind));
            self.program_served[kind as usize][served as usize] += 1;
            if let (Served::Memory, Some(nodes)) = (served, &mut self.port.nodes) {
                nodes.refer(phys, kind as usize, 1);
            }
            self.speculators.iter_mut().for_each(|one| one.accessed(kind, served));
        }
    }

    /// Records that a device owns the frame from now on or, if `lent` is false, no longer owns it.
    pub fn device(&mut self, frame: PhysAddr, lent: bool) {
        self.devices.lend(frame, lent);
    }

    /// Records that the processor switched to another space.
    pub fn switched(&mut self) {
        self.speculators.iter_mut().for_each(Speculator::switched);
    }

    /// Reports the end of the last walk to the predictors. The walk ended at the page `there`; if `faulted`, that
    /// page forbids the access, or there is no page. `by` is the instruction that caused the walk.
    pub fn speculate(&mut self, by: Option<u64>, there: Option<Spot>, faulted: bool) {
        let Some(made) = self.port.made.take() else { return };
        let (va, asid) = self.walked;
        let devices = Some(&self.devices);
        let walked =
            |one: &mut Speculator| one.walked((va, by, asid), there, faulted, &made, devices);
        self.speculators.iter_mut().for_each(walked);
        if let Some(host) = self.host.as_mut().filter(|_| self.speculators.is_empty()) {
            host.critical += made.critical();
        }
    }

    /// Whether there is a predictor of where walks end, in either dimension.
    pub fn speculates(&self) -> bool {
        let host = self.host.as_ref();
        !self.speculators.is_empty() || host.is_some_and(|host| host.speculator.is_some())
    }

    /// Begins a walk.
    fn begin(&mut self, walk: &Walk) {
        if self.speculates() {
            self.walked = (walk.va, walk.asid);
            self.port.made = Some(Made::default());
        }
    }

    /// Adds the accesses that changed nothing, and that were only counted so far, to the counts of
    /// the caches.
    pub fn settle(&mut self) {
        let repeats = std::mem::take(&mut self.repeats);
        for (kind, hits) in Kind::ALL.into_iter().zip(repeats) {
            self.repeated(kind, hits);
        }
        let [reads, writes] = std::mem::take(&mut self.port.repeats);
        if let Some(caches) = &mut self.port.caches {
            caches.repeated_walks(reads, writes);
        }
    }

    /// See [`Behind::walk`](crate::behind::Behind::walk).
    pub fn walk(&mut self, walk: &Walk, way: Way<'_>) -> Result<(), Node> {
        self.begin(walk);
        // Nothing is cached: all references are made.
        if self.host.is_none() && !self.lowest_only && !self.dimension.has_cache() {
            let followed = self.follow(walk, way, 0);
            self.dimension.repeats = !walk.found;
            return followed;
        }
        let holds_pages = self.host.as_ref().is_some_and(|side| side.shared == Shared::Tlb);
        if holds_pages && (!walk.found || way.references.iter().any(|reference| reference.write)) {
            // The cached entry for the page, if there is one, does not allow the access, or the
            // walk sets bits in the page-table entry.
            let page = VirtRange::of_page(walk.va.page(walk.size));
            self.dimension.forget(Forget::Pages(page, walk.asid));
        }
        let mut skipped = self.dimension.start(walk, way.references)?;
        if self.lowest_only {
            skipped = way.references.iter().rposition(|reference| !reference.write).unwrap_or(0);
        }
        let is_page_held = holds_pages && walk.found && skipped == way.references.len();
        let followed = if is_page_held {
            self.pass(way);
            Ok(())
        } else {
            self.follow(walk, way, skipped)
        };
        if holds_pages
            && walk.found
            && !is_page_held
            && followed.is_ok()
            && let Some(end) = way.host.last()
        {
            let frame = end.page.apply(end.walk.va).align_down(walk.size);
            self.dimension.page(walk, page_node(frame, walk.size));
        }
        self.dimension.repeats = !walk.found;
        followed
    }

    /// See [`Behind::beside`](crate::behind::Behind::beside).
    pub fn beside(&mut self, references: &[Reference]) {
        let Walker { dimension, port, .. } = self;
        references.iter().for_each(|reference| port.fetch(reference, dimension));
    }

    /// Makes the references of a walk from a node that the page table no longer has.
    pub fn walk_from_stale(&mut self, walk: &Walk, way: Way<'_>) {
        self.begin(walk);
        // A second stale entry further down is ignored, because the walk is already wrong.
        let _ = self.follow(walk, way, 0);
    }

    /// Completes a refill. The walks since the last refill belong to this one.
    pub fn refilled(&mut self, refill: Refill) {
        let Refill { region, cold, data, instead, dirtied, sized } = refill;
        if let Some(handler) = &self.handler {
            self.execute(handler.always(sized));
        }
        self.dimension.repeats = false;
        let mut made = std::mem::take(&mut self.port.under_way);
        let latencies = &self.port.latencies;
        made.cycles += match (instead, data) {
            (true, _) => latencies.exception_cycles,
            (false, true) => latencies.data_refill_cycles,
            (false, false) => latencies.refill_cycles,
        };
        made.cycles += if dirtied && !instead { latencies.exception_cycles } else { 0 };
        made.cycles += self.dimension.take_search_cycles();
        if let Some(host) = &mut self.host {
            made.cycles += host.dimension.take_search_cycles();
        }
        let (walks, times) = (&mut self.walks, self.dimension.times);
        let all = RegionWalks { references: made.references * times, cycles: made.cycles * times };
        walks.walks += times;
        walks.references += all.references;
        walks.cycles += all.cycles;
        if cold {
            walks.cold += times;
            walks.cold_references += all.references;
        } else {
            let count = made.references as usize;
            if walks.per_walk.len() <= count {
                walks.per_walk.resize(count + 1, 0);
            }
            walks.per_walk[count] += times;
        }
        let index = region as usize;
        if walks.regions.len() <= index {
            walks.regions.resize(index + 1, RegionWalks::default());
        }
        walks.regions[index].references += all.references;
        walks.regions[index].cycles += all.cycles;
    }

    /// Flushes the entries that the OS requests to be flushed, also from virtually addressed
    /// caches.
    fn forget(&mut self, forget: Forget) {
        self.dimension.forget(forget);
        let Some(caches) = self.port.caches.as_mut().filter(|_| self.port.is_virtual) else {
            return;
        };
        match forget {
            // These flush tables only; the pages are flushed by a separate request.
            Forget::Range(..) | Forget::Space(_) => {}
            Forget::All => caches.flush_first(u64::MAX, |_| true),
            Forget::Pages(range, asid) => {
                let own = tag_of_context(asid) >> VIRTUAL_CACHE_BITS;
                let goes = |line: PhysAddr| {
                    let tag = line.get() >> VIRTUAL_CACHE_BITS;
                    let addr = line.get() & ((1 << VIRTUAL_CACHE_BITS) - 1);
                    (tag == 0 || tag == own) && range.contains(VirtAddr::new(addr))
                };
                caches.flush_first(range.bytes(), goes);
            }
        }
    }

    /// Resets the counts to zero; the contents of caches stay.
    pub fn forget_counts(&mut self) {
        let Walker {
            dimension,
            host,
            handler: _,
            speculators,
            devices: _,
            walked: _,
            lowest_only: _,
            port,
            walks,
            program_served,
            repeats,
        } = self;
        *walks = WalkCensus::default();
        *program_served = Default::default();
        *repeats = [0; Kind::COUNT];
        port.forget_counts();
        dimension.forget_counts();
        speculators.iter_mut().for_each(Speculator::forget_counts);
        if let Some(host) = host {
            host.forget_counts();
        }
    }

    /// Makes the references of `way` from number `skipped` on, except for entries that the MMU
    /// cache holds. The error is another node to which a cached entry leads.
    #[inline]
    fn follow(&mut self, walk: &Walk, way: Way<'_>, skipped: usize) -> Result<(), Node> {
        if walk.nested_misses > 0 {
            self.nest(usize::from(walk.nested_misses));
        }
        if let Some(handler) = &self.handler {
            self.execute(handler.instructions(&way.references[skipped..]));
        }
        let Walker { dimension, host: Some(side), port, .. } = self else {
            return self.follow_plain(walk, &way.references[skipped..]);
        };
        let mut below = way.host_references;
        let mut hosts = way.host.iter();
        for passed in hosts.by_ref().take(skipped) {
            side.moved(passed, dimension);
            below = &below[usize::from(passed.references)..];
        }
        let mut references = way.references[skipped..].iter();
        for host in hosts {
            let own;
            (own, below) = below.split_at(usize::from(host.references));
            let place = side.place(host, own, port, dimension);
            // The last walk of the host translates the address of the page that the guest's walk
            // found.
            let Some(reference) = references.next() else { break };
            let placed = Reference { addr: place, ..*reference };
            if dimension.needs(walk, &placed)? {
                port.fetch(&placed, dimension);
            }
        }
        dimension.finish(walk);
        Ok(())
    }

    /// Makes no reference of `way`, because the cache holds its page.
    fn pass(&mut self, way: Way<'_>) {
        if let Some(side) = &mut self.host {
            way.host.iter().for_each(|passed| side.moved(passed, &mut self.dimension));
        }
    }

    #[inline]
    fn follow_plain(&mut self, walk: &Walk, references: &[Reference]) -> Result<(), Node> {
        let Walker { dimension, port, .. } = self;
        if !dimension.has_cache() {
            let repeated = port.repeat(references, dimension);
            for reference in &references[repeated..] {
                dimension.fetched(reference);
                port.fetch(reference, dimension);
            }
            return Ok(());
        }
        for reference in references {
            if dimension.needs(walk, reference)? {
                port.fetch(reference, dimension);
            }
        }
        dimension.finish(walk);
        Ok(())
    }

    /// Counts instructions of the handler, at one per cycle, since each instruction depends on the
    /// one before.
    fn execute(&mut self, instructions: u64) {
        self.walks.handler_instructions += instructions;
        self.port.under_way.cycles += instructions;
    }

    /// Counts misses on the tables of the `misses` lowest levels.
    fn nest(&mut self, misses: usize) {
        let by_level = &mut self.walks.nested_misses;
        by_level.resize(by_level.len().max(misses + 1), 0);
        by_level[1..=misses].iter_mut().for_each(|count| *count += 1);
        if let Some(handler) = &self.handler {
            self.port.under_way.cycles += misses as u64 * handler.nested_cycles();
        }
    }
}

impl Port {
    /// Resets the counts to zero; the contents of the caches stay.
    fn forget_counts(&mut self) {
        let Port {
            caches,
            is_virtual: _,
            latencies: _,
            nodes,
            line_shift: _,
            further_lines,
            repeats,
            // `under_way` is zero between two accesses.
            under_way: _,
            made: _,
        } = self;
        (*further_lines, *repeats) = (0, [0; 2]);
        if let Some(caches) = caches {
            caches.forget_counts();
        }
        if let Some(nodes) = nodes {
            nodes.forget_counts();
        }
    }

    /// Makes the first of the `references`, up to the first that would change the cache that it
    /// reaches first. This is faster than [`Port::fetch`] for each. Returns the number of
    /// references made.
    #[inline]
    fn repeat(&mut self, references: &[Reference], dimension: &mut Dimension) -> usize {
        let Some(caches) = self.caches.as_ref().filter(|_| self.made.is_none()) else { return 0 };
        let reads = references.iter().take_while(|reference| !reference.write);
        let reads = reads.map(|reference| (reference.addr, reference.bytes.into()));
        let Some((repeated, served)) = caches.repeated_reads(reads) else { return 0 };
        for reference in &references[..repeated] {
            dimension.fetched(reference);
            dimension.count(reference.level, served);
        }
        self.repeats[0] += repeated as u64;
        self.under_way.references += repeated as u64;
        self.under_way.cycles += repeated as u64 * self.latencies.reference_cycles[served as usize];
        repeated
    }

    /// Makes one reference through the data caches.
    // Inlined whatever its size, because most references repeat an earlier one and a call would
    // double their cost.
    #[inline(always)]
    fn fetch(&mut self, reference: &Reference, dimension: &mut Dimension) {
        let Reference { addr, bytes, write, .. } = *reference;
        let caches = self.caches.as_ref();
        let served = match caches.and_then(|all| all.is_repeated_walk(addr, bytes.into(), write)) {
            Some(served) => {
                self.repeats[usize::from(write)] += 1;
                served
            }
            None => self.changes(reference),
        };
        dimension.count(reference.level, served);
        let mut cycles = self.latencies.reference_cycles[served as usize];
        if let (Served::Memory, Some(nodes)) = (served, &mut self.nodes) {
            cycles += nodes.refer(addr, WALKS, dimension.times);
        }
        self.under_way.references += 1;
        self.under_way.cycles += cycles;
        if let Some(made) = &mut self.made {
            made.served[served as usize] += 1;
            made.cycles += cycles;
            if !write {
                made.pte = Some(served);
            }
        }
    }

    /// Makes a reference that may change a cache.
    #[inline(never)]
    fn changes(&mut self, reference: &Reference) -> Served {
        let Some(caches) = &mut self.caches else { return Served::Memory };
        let Reference { addr, bytes, write, .. } = *reference;
        let (first, last) = (addr.get(), addr.get() + u64::from(bytes.saturating_sub(1)));
        self.further_lines += (last >> self.line_shift) - (first >> self.line_shift);
        caches.access(addr, bytes.into(), write, Requester::Walker)
    }
}

#[cfg(test)]
mod tests;

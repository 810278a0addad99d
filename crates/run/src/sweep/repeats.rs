//! Repeated accesses. They do not change their cache, so they need not be logged one by one.
//!
//! ```text
//!   a set, last used first    X a b c      X again: a hit, and the set stays as it is
//!   the filter's slot         X            so the line is the slot's: counted here, not logged
//! ```
//!
//! An access is a repeat if it is to the line that was used last in its cache set. This can be
//! determined from the accesses alone, if a slot of the filter gets all accesses to the set: those
//! of the program, and every walk reference that any design might make. The number of slots is a
//! power of two that divides the number of sets of each design. If a slot covers several sets,
//! fewer repeats are found, but every access that is found is a repeat. A store to a line that may
//! be clean is logged, as it makes the line dirty.
//!
//! Each processor has its own filters, as it has its own caches. If the program's accesses first
//! reach a cache that several processors share, there are no filters.

use addr::{Kind, PhysAddr};
use hardware::{
    in_turn::InTurn,
    walker::{Walker, Walkers},
};
use mmu::{Entrance, Requester, Served};
use ram::walk::Way;

/// The largest number of slots: with more slots, hardly more repeats are found.
const SLOTS_MAX: usize = 1 << 12;

/// The value of an empty slot: no line has this number.
const NONE: u64 = u64::MAX;

/// The filters of a front, by processor.
pub(super) struct Repeats(InTurn<Filters>);

/// The filters of a processor: one for each cache that accesses of the program reach first.
#[derive(Clone, Debug, Default)]
struct Filters {
    filters: Vec<Filter>,
    /// The index of the filter for each kind of access.
    of_kind: [Option<usize>; Kind::COUNT],
    /// Repeats so far, by kind.
    counts: [u64; Kind::COUNT],
}

/// By set: the line used last, and whether it has been stored to.
#[derive(Clone, Debug)]
struct Filter {
    entrance: Entrance,
    /// Whether this is the first cache that walks use, in any design.
    walks: bool,
    slots: Box<[u64]>,
}

impl Repeats {
    /// Creates filters that are correct for all of `walkers`, which must have the same number of
    /// processors.
    pub(super) fn new<'a>(walkers: impl Iterator<Item = &'a Walkers> + Clone) -> Repeats {
        let count = walkers.clone().map(|all| all.count()).max().unwrap_or(1);
        let mut filters = Filters::default();
        for kind in Kind::ALL {
            let filter = Filter::new(kind, walkers.clone().map(|all| &all.here));
            let Some(filter) = filter else { continue };
            let place = filter.entrance.place;
            if place == Served::L3 && count > 1 {
                continue;
            }
            let known = filters.filters.iter().position(|one| one.entrance.place == place);
            filters.of_kind[kind as usize] = Some(known.unwrap_or(filters.filters.len()));
            if known.is_none() {
                filters.filters.push(filter);
            }
        }
        let others = vec![filters.clone(); count - 1];
        Repeats(InTurn::new(filters, others.into_iter()))
    }

    /// Makes `processor` the processor of the next accesses.
    pub(super) fn on(&mut self, processor: usize) {
        self.0.turn_to(processor, |_, _| ());
    }

    /// Empties the filters of a processor after it has flushed lines.
    pub(super) fn flushed(&mut self, processor: usize) {
        self.0.of(processor).filters.iter_mut().for_each(|filter| filter.slots.fill(NONE));
    }

    /// Repeats so far, by processor and kind.
    pub(super) fn counts(&self) -> impl Iterator<Item = [u64; Kind::COUNT]> {
        self.0.each().map(|filters| filters.counts)
    }

    /// Resets the counts to zero.
    pub(super) fn forget_counts(&mut self) {
        self.0.for_each(|Filters { filters: _, of_kind: _, counts }| *counts = [0; Kind::COUNT]);
    }

    /// Whether an access of the program is a repeat. If it is, counts it.
    #[inline]
    pub(super) fn is_one(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) -> bool {
        let Filters { filters, of_kind, counts } = &mut self.0.here;
        let filter = of_kind[kind as usize].and_then(|index| filters.get_mut(index));
        let repeated = filter.is_some_and(|filter| filter.used(phys, bytes, kind == Kind::Store));
        counts[kind as usize] += u64::from(repeated);
        repeated
    }

    /// Updates the filter for an access of the program that is logged in any case.
    pub(super) fn told(&mut self, phys: PhysAddr, bytes: u32, kind: Kind) {
        let Filters { filters, of_kind, .. } = &mut self.0.here;
        if let Some(filter) = of_kind[kind as usize].and_then(|index| filters.get_mut(index)) {
            filter.used(phys, bytes, kind == Kind::Store);
        }
    }

    /// Updates the filter for the walk references in `way`, which perhaps only some designs make.
    #[inline]
    pub(super) fn walk(&mut self, way: Way<'_>) {
        for filter in self.0.here.filters.iter_mut().filter(|filter| filter.walks) {
            for reference in way.references.iter().chain(way.host_references) {
                filter.forget(reference.addr, u32::from(reference.bytes));
            }
            // The host-physical addresses of the guest's references.
            for (host, reference) in way.host.iter().zip(way.references) {
                filter.forget(host.page.apply(host.walk.va), u32::from(reference.bytes));
            }
        }
    }
}

impl Default for Repeats {
    fn default() -> Repeats {
        Repeats(InTurn::new(Filters::default(), std::iter::empty()))
    }
}

impl Filter {
    /// The filter for accesses of `kind`; `None` if the caches of `walkers` differ too much.
    fn new<'a>(kind: Kind, walkers: impl Iterator<Item = &'a Walker> + Clone) -> Option<Filter> {
        let caches = || walkers.clone().filter_map(|walker| walker.port.caches.as_ref());
        let entrances = || caches().map(|caches| caches.entrance(Requester::Program(kind)));
        let entrance = entrances().next()?;
        let agree = entrances().all(|other| {
            (other.place, other.line_shift) == (entrance.place, entrance.line_shift)
                && other.repeats_change_nothing
        });
        let walks =
            caches().any(|caches| caches.entrance(Requester::Walker).place == entrance.place);
        let slots = entrances().map(|entrance| 1 << entrance.sets.trailing_zeros()).min()?;
        let slots = vec![NONE; SLOTS_MAX.min(slots)].into_boxed_slice();
        agree.then_some(Filter { entrance, walks, slots })
    }

    /// Whether an access is to the line that was used last in its set. Records the line of this
    /// access as the line used last.
    #[inline]
    fn used(&mut self, phys: PhysAddr, bytes: u32, store: bool) -> bool {
        let (first, last) = self.lines(phys, bytes);
        let slot = self.slot(first);
        let repeats = *slot >> 1 == first;
        if first == last && repeats && (!store || *slot & 1 == 1) {
            return true;
        }
        *slot = first << 1 | u64::from(store || (repeats && *slot & 1 == 1));
        for line in first..last {
            *self.slot(line + 1) = (line + 1) << 1 | u64::from(store);
        }
        false
    }

    /// Empties the slots of lines that are used in some designs and not in others. After such a
    /// use, it is unknown which line was used last.
    fn forget(&mut self, phys: PhysAddr, bytes: u32) {
        let (first, last) = self.lines(phys, bytes);
        for line in first..=last {
            *self.slot(line) = NONE;
        }
    }

    fn lines(&self, phys: PhysAddr, bytes: u32) -> (u64, u64) {
        let end = phys.get().saturating_add(u64::from(bytes.saturating_sub(1)));
        (phys.get() >> self.entrance.line_shift, end >> self.entrance.line_shift)
    }

    #[inline]
    fn slot(&mut self, line: u64) -> &mut u64 {
        // The number of slots is a power of two.
        let index = line as usize & (self.slots.len() - 1);
        &mut self.slots[index]
    }
}

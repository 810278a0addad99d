//! Hooks for optional features of a machine, one file each, which are called at misses, walks and
//! flushes.
//!
//! ```text
//!   every TLB missed --> on_miss --> walk --> TLBs filled --> counted --> on_fill
//!                        ranges       |                       origins     prefault
//!                        overheads    |                                   nodes
//!                        promotion    |
//!                        prefault     v
//!                     read_otherwise --> on_read --> on_fault or on_walk
//!                     array              small       small       ranges
//!                                        traps       spots       spots
//!                                        nested
//!                                        segments
//!
//!   shootdown --> on_flush: ranges; is_forgotten, flushed: watch       event --> on_event: promotion, nodes, origins
//! ```
//!
//! On the path of a miss there is a single test: whether any feature is to be called
//! ([`Hooks::is_any`]). All other code for features is in this file and not on the common path. A
//! new feature needs a file with a [`Hook`], a field of [`Hooks`] (which does not compile before
//! `all` names it too), and a line in each function of this file that has to call it.

use addr::{Asid, PageSize, PhysAddr, VirtAddr};
use description::{Description, Error, Refusal};
use hardware::{behind::Behind, tlbs::TlbUnits};
use os::{System, events::Gone, host::Stack, ranges::RangeTable};
use pagetable::{Fault, Flush, Reference, Translation};
use ram::Ram;
use results::count::{
    labels::Layout,
    origins::{Missed, Origins},
};
use trace::{Batch, Event, Process};

use super::{
    Run, access::Lookup, constants::Constants, dirty::Traps, linear::Array, nested::Nested,
    nodes::Nodes, overheads::Overheads, prefault::Prefault, promotion::Promotion, ranges::Ranges,
    segments::Segments, small::Small, spots::Spots, walk::Read, watch::Watch,
};

/// The calls to a feature that do not need access to the run.
pub(super) trait Hook {
    /// Whether many misses may be handled together, because the feature need not be called for each
    /// miss in order.
    fn allows_dense(&self) -> bool {
        false
    }

    /// Whether a miss that does not fault keeps its normal price: the feature adds no price of its
    /// own.
    fn leaves_prices(&self) -> bool {
        false
    }

    /// Whether the feature must be called at each miss and each walk.
    fn hears_misses(&self) -> bool {
        true
    }

    /// Ends the warm-up: resets the counts to zero. State on which later decisions depend stays.
    fn forget_counts(&mut self);

    /// Called when hardware flushes the entries of `space` that `flush` names.
    fn on_flush(&mut self, _space: u32, _flush: &Flush) {}

    /// Called when pages of `space` are unmapped or replaced.
    fn on_gone(&mut self, _space: u32, _gone: &Gone) {}
}

/// The features that a machine has; `None` for a feature that it does not have.
pub struct Hooks {
    /// On-line promotion, which charges misses to candidates.
    pub promotion: Option<Promotion>,
    /// References by memory node, if memory has several nodes.
    pub nodes: Option<Nodes>,
    /// Small address spaces.
    pub small: Option<Small>,
    /// The origins of misses, if requested.
    pub origins: Option<Origins>,
    /// The translation overhead of each space, if the operating system requests it.
    pub(super) overheads: Option<Overheads>,
    pub(super) ranges: Option<Ranges>,
    pub(super) prefault: Option<Prefault>,
    pub(super) array: Option<Array>,
    pub(super) traps: Option<Traps>,
    pub(super) nested: Option<Nested>,
    pub(super) segments: Option<Segments>,
    pub(super) spots: Option<Spots>,
    pub(super) watch: Option<Watch>,
    answers: Answers,
}

/// The combined answers of all features.
#[derive(Clone, Copy)]
struct Answers {
    allow_dense: bool,
    leave_prices: bool,
    hear_misses: bool,
}

/// The features that are present, each passed through the function `one`.
macro_rules! all {
    ($hooks:expr, $one:ident) => {{
        let Hooks {
            promotion,
            nodes,
            small,
            origins,
            overheads,
            ranges,
            prefault,
            array,
            traps,
            nested,
            segments,
            spots,
            watch,
            answers: _,
        } = $hooks;
        let told = [$one(promotion), $one(nodes), $one(small), $one(origins), $one(overheads)];
        let asked = [$one(ranges), $one(prefault), $one(array), $one(traps), $one(nested)];
        let last = [$one(segments), $one(spots), $one(watch)];
        told.into_iter().chain(asked).chain(last).flatten()
    }};
}

impl Hooks {
    /// The features that `description` requests, on a machine with these parts. The error has the
    /// key that is wrong.
    pub(super) fn of(
        description: &Description,
        constants: &Constants,
        system: &dyn System,
        hardware: &TlbUnits,
        stack: &Stack,
    ) -> Result<Hooks, Refusal> {
        let mut hooks = Hooks {
            promotion: Promotion::of(description, system)?,
            nodes: Nodes::of(description, system)?,
            overheads: Overheads::of(description)?,
            small: Small::of(description)?,
            origins: None,
            ranges: Ranges::of(hardware),
            prefault: Prefault::of(constants),
            array: Array::of(&stack.guest),
            traps: Traps::of(constants),
            nested: Nested::of(stack),
            segments: Segments::of(hardware),
            spots: None,
            watch: Watch::of(description, constants),
            answers: Answers { allow_dense: false, leave_prices: false, hear_misses: true },
        };
        hooks.ask();
        Ok(hooks)
    }

    /// The features that are present.
    fn each(&self) -> impl Iterator<Item = &dyn Hook> {
        fn one<T: Hook>(hook: &Option<T>) -> Option<&dyn Hook> {
            hook.as_ref().map(|hook| hook as &dyn Hook)
        }
        all!(self, one)
    }

    /// The features that are present, mutably.
    fn each_mut(&mut self) -> impl Iterator<Item = &mut dyn Hook> {
        fn one<T: Hook>(hook: &mut Option<T>) -> Option<&mut dyn Hook> {
            hook.as_mut().map(|hook| hook as &mut dyn Hook)
        }
        all!(self, one)
    }

    /// Updates the stored answers of the features. These answers do not differ from miss to miss.
    fn ask(&mut self) {
        let answers = Answers {
            allow_dense: self.each().all(Hook::allows_dense),
            leave_prices: self.each().all(Hook::leaves_prices),
            hear_misses: self.each().any(Hook::hears_misses),
        };
        self.answers = answers;
    }

    /// Whether any feature must be called at misses and walks.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.answers.hear_misses
    }

    /// Whether many misses may be handled together: no feature needs to be called for each miss in
    /// order.
    #[inline]
    pub(super) fn allow_dense(&self) -> bool {
        self.answers.allow_dense
    }

    /// Whether no feature adds a price of its own to a miss.
    #[inline]
    pub(super) fn leave_prices(&self) -> bool {
        self.answers.leave_prices
    }

    /// The operating system's range table, if hardware uses one.
    pub fn range_table(&self) -> Option<&RangeTable> {
        self.ranges.as_ref()?.table.as_ref()
    }

    /// Starts a trace with these processes.
    pub(super) fn begin(&mut self, processes: &[Process], ram: &mut Ram) -> Result<(), Refusal> {
        self.small.as_mut().map_or(Ok(()), |small| small.begin(processes, ram))
    }

    /// At the end of a trace: the error for a space that was requested to be small and never ran.
    pub(super) fn unmet(&self) -> Option<Refusal> {
        self.small.as_ref().and_then(Small::unmet)
    }

    /// Called before accesses run, with the hardware `behind` the TLBs.
    pub(super) fn look(&mut self, behind: &impl Behind) {
        if self.spots.is_some() != behind.speculates() {
            self.spots = behind.speculates().then_some(Spots);
            self.ask();
        }
    }

    /// Counts `instructions` that ran in a space.
    #[inline]
    pub(super) fn ran(&mut self, space: u32, instructions: u64) {
        if let Some(overheads) = &mut self.overheads {
            overheads.ran(space, instructions);
        }
    }

    /// Called after the access at `index` of `batch` missed every level. The other arguments are: the space,
    /// address and layout; the label of the region, the size of the page, and whether this is the page's
    /// first touch.
    #[inline(always)]
    pub(super) fn counted(
        &mut self,
        batch: &Batch,
        index: usize,
        (space, addr, layout): (u32, VirtAddr, &Layout),
        (region, page, cold): (u32, PageSize, bool),
    ) {
        if let Some(origins) = &mut self.origins {
            let site = layout.site_of(space, addr);
            let missed = Missed { region, site, page, cold };
            origins.miss(batch, index, space, layout, missed);
        }
    }

    /// Called after a batch has run.
    pub(super) fn batch_ends(&mut self, batch: &Batch) {
        if let Some(origins) = &mut self.origins {
            origins.batch_ends(batch);
        }
    }

    /// Called before hardware flushes the entries of `space` that `flush` names. Returns whether
    /// this flush must be left out.
    pub(super) fn on_flush(&mut self, space: u32, flush: &Flush) -> bool {
        self.each_mut().for_each(|hook| hook.on_flush(space, flush));
        self.watch.as_mut().is_some_and(Watch::is_forgotten)
    }

    /// Whether some feature checks the entries of hardware after a flush. With small spaces the
    /// answer is false, as other spaces have pages at the same linear addresses; in that case only
    /// hits are compared.
    pub(super) fn look_at_flushes(&self) -> bool {
        self.small.is_none() && self.watch.as_ref().is_some_and(Watch::looks)
    }

    /// Called after the TLBs of processor `number` have flushed the entries that `flush` names in a
    /// context, or have skipped this flush on purpose.
    pub(super) fn flushed(
        &mut self,
        (number, hardware): (usize, &TlbUnits),
        stack: &Stack,
        (flush, asid): (&Flush, Asid),
    ) {
        if let Some(watch) = &mut self.watch {
            watch.look(number, hardware, stack, flush, asid);
        }
    }

    /// The first stale entry found since the last call, as an error message.
    pub(super) fn lie(&mut self) -> Option<String> {
        self.watch.as_mut()?.lie.take()
    }

    /// The translation overhead of each space, for an operating system that requests it.
    pub(super) fn take_overheads(&mut self) -> Vec<(u32, u64)> {
        self.overheads.as_mut().map_or(Vec::new(), Overheads::take)
    }

    /// The memory node of a processor, if memory has several nodes.
    pub(super) fn node_of(&self, processor: usize) -> Option<usize> {
        self.nodes.as_ref().map(|nodes| nodes.topology.of_processor(processor))
    }

    /// Resets the counts of all features to zero.
    pub(super) fn forget_counts(&mut self) {
        self.each_mut().for_each(Hook::forget_counts);
    }
}

impl Hook for Origins {
    fn allows_dense(&self) -> bool {
        true
    }

    fn leaves_prices(&self) -> bool {
        true
    }

    /// False, because [`Hooks::counted`] reports each miss to this feature.
    fn hears_misses(&self) -> bool {
        false
    }

    fn forget_counts(&mut self) {
        Origins::forget_counts(self);
    }
}

impl Run {
    /// Called if no level of TLBs has hit. Returns the physical address and page size if a feature
    /// translates the access without a walk.
    #[cold]
    pub(super) fn on_miss(
        &mut self,
        place: Lookup<'_>,
        behind: &mut impl Behind,
    ) -> Result<Option<(PhysAddr, PageSize)>, Error> {
        if self.hooks.ranges.is_some()
            && let Some(found) = self.in_range(place)
        {
            return Ok(Some(found));
        }
        if let Some(overheads) = &mut self.hooks.overheads {
            overheads.missed(self.who.number);
        }
        if self.hooks.promotion.is_some() {
            self.charge(place, behind)?;
        }
        if self.hooks.prefault.is_some() {
            self.prefault(place, behind)?;
        }
        Ok(None)
    }

    /// Called before the page table is read for a walk. Returns the result of the walk if a feature
    /// makes the walk instead of the run.
    #[cold]
    pub(super) fn read_otherwise(
        &mut self,
        place: Lookup<'_>,
        references: &mut Vec<Reference>,
        behind: &mut impl Behind,
    ) -> Result<Option<Result<Translation, Fault>>, Error> {
        match self.hooks.array {
            Some(Array) => self.walk_array(place, references, behind).map(Some),
            None => Ok(None),
        }
    }

    /// Called after the page table was read for a walk, with the walk's `references`. Returns the
    /// result of the walk as hardware gets it.
    #[cold]
    pub(super) fn on_read(
        &mut self,
        place: Lookup<'_>,
        found: Result<Translation, Fault>,
        references: &mut Vec<Reference>,
        behind: &mut impl Behind,
    ) -> Result<Read, Error> {
        if self.hooks.small.is_some() && self.constants.check && self.view.base != 0 {
            self.is_own(place, found)?;
        }
        self.trap_if_clean(place, found.is_ok(), references)?;
        let placed = match self.hooks.nested {
            Some(Nested) => self.place_in_host(place, references, found)?,
            None => found,
        };
        let is_beside = self.hooks.segments.is_some() && self.in_segment(place.addr, found, behind);
        Ok(if is_beside { Read::Beside(placed) } else { Read::Walked(placed) })
    }

    /// Called after a walk has faulted. Returns whether the walk can be repeated without a call of the
    /// operating system.
    #[cold]
    pub(super) fn on_fault(&mut self, place: Lookup<'_>, behind: &mut impl Behind) -> bool {
        // The loaded root lacked a copy of an entry that the space's own root has.
        if self.view.base != 0 && self.copies(place, behind) {
            return true;
        }
        if self.hooks.spots.is_some() {
            self.spot_fault(place, behind);
        }
        false
    }

    /// Called after a walk has found `page`.
    #[cold]
    pub(super) fn on_walk(
        &mut self,
        place: Lookup<'_>,
        page: Translation,
        behind: &mut impl Behind,
    ) {
        if self.hooks.ranges.is_some() {
            self.note_ranges(page);
        }
        if self.hooks.spots.is_some() {
            self.spot_walk(place, page, behind);
        }
    }

    /// Called after the TLBs have been filled with the page that a walk has found. `region` is the
    /// label of the page's region; `cold` says whether this is the page's first touch.
    #[cold]
    pub(super) fn on_fill(
        &mut self,
        place: Lookup<'_>,
        (found, cold, region): (Translation, bool, u32),
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        if self.hooks.prefault.as_mut().is_some_and(Prefault::take) && !cold {
            self.seen.census.region(region).pages += 1;
        }
        if self.hooks.nodes.is_some() {
            self.refer(place, found, behind)?;
        }
        Ok(())
    }

    /// Called after the operating system has handled `event` and before the layout is updated.
    pub(super) fn on_event(&mut self, event: &Event) {
        let Run { hooks, layout, who, .. } = self;
        let regions = layout.regions(who.number);
        let before = regions.and_then(|regions| regions.program_break());
        if let Some(gone) = Gone::by(event, before) {
            hooks.each_mut().for_each(|hook| hook.on_gone(who.number, &gone));
        }
    }

    /// Called after the layout has been updated for `event`.
    pub(super) fn after_event(&mut self, event: &Event) {
        if let Some(origins) = self.hooks.origins.as_mut().filter(|_| event.changes_mappings()) {
            origins.mappings_changed();
        }
    }

    /// Called when the running processor enters a space. Returns whether a feature has done all of
    /// the switch.
    pub(super) fn on_switch(
        &mut self,
        processor: usize,
        space: u32,
        is_first: bool,
        behind: &mut impl Behind,
    ) -> bool {
        let is_done = self.hooks.small.is_some();
        if is_done {
            self.enter_small(processor, space, is_first, behind);
        }
        is_done
    }
}

//! A run: every access of a trace through the machine, in order.
//!
//! ```text
//!   access --> first-level TLB -- hit --------------------------> data caches
//!                  | miss
//!                  v
//!              second-level TLB -- hit --> fill the first ------> data caches
//!                  | miss
//!                  v
//!              walk -> references -> MMU cache, data caches
//!                  | fault                            ^
//!                  v                                  |
//!              System::fault -> walk again -> fill both --+--------> data caches
//! ```
//!
//! This is the only way for an access. The first line is the common case and is kept free of
//! allocation, hashing and indirect calls; the rest is in `miss`. Data caches and walker are
//! behind [`Behind`]: the run tells it what it needs. Which processor's TLBs these are changes
//! between spans of accesses, never within one (`turn`); so does what is due by the clock (`clock`).

mod access;
mod ahead;
mod clock;
mod counted;
mod dense;
pub(crate) mod foreseen;
pub(crate) mod hooks;
mod linear;
mod miss;
pub(crate) mod nodes;
pub(crate) mod overheads;
mod pace;
pub(crate) mod promotion;
mod ranges;
mod rows;
mod segments;
mod shootdown;
pub(crate) mod small;
mod turn;
mod watch;

use std::{collections::VecDeque, ops::Range, sync::Arc};

use addr::{Kind, PageSize, PhysAddr, Rights};
use description::{
    Clock, Description, Error, Inject, PageMask, Refusal, WalkerKind, settings::Written,
};
use hardware::{
    behind::Behind, contexts::Contexts, in_turn::InTurn, processor::Processor, tlbs::NONE,
};
use os::{System, Who, at::Change, host::Stack};
use pagetable::Reference;
use ram::hashed::hashed;
use results::{
    ChangedSetting,
    count::{census::Census, history::History, labels::Layout, origins::Origins},
};
use trace::{Batch, Event, Placed, Source};
use vm::Hashed;

use ahead::Ahead;
use clock::Prices;
use counted::Passed;
use dense::Worth;
use foreseen::Foreseen;
use hooks::Hooks;
use pace::Pace;
use rows::Rows;
use small::{Small, View};
use watch::Watch;

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Accesses that ran.
    pub accesses: u64,
    /// Accesses in all, where that is known.
    pub total: Option<u64>,
}

/// What a run is made of that is chosen by name: memory, and who decides on it.
pub struct Parts {
    /// The text of the machine file, for what is wrong with it once the trace is known.
    pub written: Arc<Written>,
    pub stack: Stack,
    pub system: Box<dyn System>,
    /// Settings that will change, in the order of time.
    pub changes: Vec<Change>,
}

/// A run under way, without what lies behind the TLBs.
pub struct Run {
    /// What the machine was made of, for what is wrong with it once the trace is known.
    written: Arc<Written>,
    pub processors: InTurn<Processor>,
    pub stack: Stack,
    pub layout: Layout,
    pub system: Box<dyn System>,
    /// What else hears of misses and flushes.
    pub hooks: Hooks,
    /// Small address spaces, if there are some.
    pub small: Option<Small>,
    watch: Watch,
    pub census: Census,
    pub history: History,
    /// Where misses come from, where that is asked for.
    pub origins: Option<Origins>,
    pub page_crossings: u64,
    /// Lookups of their pages beyond the first, by kind.
    pub crossing_lookups: [u64; Kind::COUNT],
    pub threads: Vec<bool>,
    pub gap_accesses: u64,
    pub saw_events: bool,
    pub saw_physical: bool,
    pub saw_calls: bool,
    pub saw_kernel: bool,
    /// Fetches of the trace, whoever delivers them.
    pub fetches: u64,
    /// Whether translations are compared with the page table.
    pub check: bool,
    /// Accesses of the trace so far, those that the machine leaves out among them.
    pub position: u64,
    /// Accesses that the machine leaves out, so far.
    pub left_out: u64,
    /// Accesses that the batch counts and does not hold, as far as the batch has run.
    passed: Passed,
    /// Pages touched for the first time, and accesses that had to be granted.
    pub first_touches: u64,
    /// Pages that were there before and came back.
    pub returns: u64,
    pub protection_faults: u64,
    /// Whether clean pages come into the TLBs without the right to store.
    tracks_dirty: bool,
    /// Whether walks set the bits of page-table entries.
    marks: bool,
    by_software: bool,
    /// Whether the refill handler sets the size of every page.
    always_sized: bool,
    /// Whether the walk under way is for a store that found a clean page.
    dirtied: bool,
    /// Whether the access under way has missed, and what lies behind speculates.
    missed: bool,
    /// Whether each page is mapped before its first walk.
    pub populated: bool,
    /// Which space runs on which processor, and what its context is.
    contexts: Contexts,
    /// The space that runs, as a register of the processor holds it.
    who: Who,
    /// Where its addresses are for the TLBs.
    view: View,
    /// Rows as the TLBs are to see them, where that is not as the trace has them.
    rows: Rows,
    /// Whether the kernel's are global.
    has_global_pages: bool,
    /// Whether caches hold lines by the addresses that TLBs are asked for, and whether contexts tell these
    /// apart.
    virtual_caches: bool,
    has_contexts: bool,
    /// Whether the trace says where accesses are made.
    is_scheduled: bool,
    prices: Prices,
    /// Settings that will change, in the order of time, and those that did.
    changes: VecDeque<Change>,
    pub changed: Vec<ChangedSetting>,
    /// Whether it wants to be woken since the last fault.
    has_new_deadline: bool,
    /// Whether the operating system was woken by the clock.
    pub had_deadline: bool,
    /// What the policies of the first-level TLBs learn of hits, at most.
    learns: u8,
    /// What the shortcuts of the TLBs are for, and whether the larger of them serve more accesses.
    granules: (PageSize, Option<PageSize>),
    large_first: [bool; 4],
    pace: Pace,
    /// Whether it pays to run several accesses at once where misses are dense.
    dense: Worth,
    /// What the host fetches before it is needed.
    ahead: Ahead,
    /// Whether some TLB holds two pages under one tag.
    has_pairs: bool,
    /// The pages of the largest block of which some TLB has entries, or 0, and what is known of the pages
    /// of the last one that was refilled.
    block_pages: usize,
    around: Vec<Option<(PhysAddr, Rights)>>,
    /// Which frames pages may have by their addresses, if these say so.
    hashed: Option<Hashed>,
    references: Vec<Reference>,
}

impl Run {
    /// A run on the machine of `description`, which is made of `parts`, with the operating system's time by
    /// `clock`.
    pub fn new(
        description: &Description,
        parts: Parts,
        check: bool,
        clock: Clock,
    ) -> Result<Run, Error> {
        let Parts { written, mut stack, system, changes } = parts;
        // Whoever read the description has refused what cannot be built.
        let refused = |Refusal { key, what }| written.locate(&key, &what);
        let processor = || Processor::new(description).map_err(refused);
        let (first, others) = (processor()?, 1..description.core.count);
        let others: Vec<Processor> = others.map(|_| processor()).collect::<Result<_, _>>()?;
        let count = description.core.count as usize;
        let mut contexts =
            Contexts::new(description.core.contexts, description.core.asid_bits, count);
        // The trace begins on the first processor.
        let (asid, _) = contexts.enter(0, 0);
        debug_assert_eq!(asid, first.asid);
        let ranges = first.hardware.ranges.as_ref().map(|ranges| ranges.from);
        let hooks = Hooks::of(description, system.as_ref(), ranges).map_err(refused)?;
        let small = Small::of(description).map_err(refused)?;
        let space = stack.guest.first_space().map_err(refused)?;
        let mut layout = Layout::default();
        layout.enter(0);
        let until_forgotten = match description.os.inject {
            Some(Inject::SkipShootdown(number)) => Some(number),
            Some(Inject::FailAllocation(number)) => {
                stack.guest.refuse(number);
                None
            }
            None => None,
        };
        let mut run = Run {
            written: written.clone(),
            census: Census::default(),
            history: History::new(0),
            origins: None,
            page_crossings: 0,
            crossing_lookups: [0; Kind::COUNT],
            threads: Vec::new(),
            gap_accesses: 0,
            saw_events: false,
            saw_physical: false,
            saw_calls: false,
            saw_kernel: false,
            fetches: 0,
            check,
            position: 0,
            left_out: 0,
            passed: Passed::default(),
            first_touches: 0,
            returns: 0,
            protection_faults: 0,
            tracks_dirty: description.walker.tracks_dirty && description.page_table.is_some(),
            marks: description.walker.kind == WalkerKind::Hardware && !stack.guest.is_linear(),
            by_software: description.walker.kind == WalkerKind::Software,
            always_sized: description.walker.page_mask == PageMask::Always,
            dirtied: false,
            missed: false,
            populated: description.os.populated,
            contexts,
            who: Who { number: 0, space },
            view: View::flat(space),
            rows: Rows::new(description),
            has_global_pages: description.core.global_pages,
            virtual_caches: description.core.virtual_caches,
            has_contexts: description.core.asid_bits > 0,
            is_scheduled: false,
            prices: Prices::new(description, clock),
            changes: changes.into(),
            changed: Vec::new(),
            has_new_deadline: false,
            had_deadline: false,
            learns: first.hardware.first_level_learns(),
            granules: description.granules(),
            large_first: [false; 4],
            pace: Pace::default(),
            dense: Worth::default(),
            ahead: Ahead::default(),
            has_pairs: first.hardware.units.iter().any(|unit| unit.params.paired),
            block_pages: first.hardware.block_pages(),
            around: Vec::new(),
            hashed: hashed(description).map_err(refused)?,
            references: Vec::with_capacity(64),
            processors: InTurn::new(first, others.into_iter()),
            stack,
            layout,
            system,
            hooks,
            small,
            watch: Watch { until_forgotten, check, lie: None },
        };
        run.view.tag = run.tag_of(0);
        Ok(run)
    }

    /// A trace with these processes is about to run.
    pub fn begin(&mut self, source: &Foreseen<'_>) -> Result<(), Error> {
        let processes = source.processes();
        self.layout.foresee(source.told().clone());
        self.system.begin(processes);
        match &mut self.small {
            Some(small) => small.begin(processes, &mut self.stack.guest),
            None => Ok(()),
        }
        .map_err(|Refusal { key, what }| self.written.locate(&key, &what))
    }

    /// At the end of a trace: what was wished and never came.
    pub fn unmet(&self) -> Result<(), Error> {
        if let Some(wrong) = self.system.unmet() {
            return Err(Error::Place(wrong));
        }
        let wrong = self.small.as_ref().and_then(Small::unmet);
        wrong.map_or(Ok(()), |Refusal { key, what }| Err(self.written.locate(&key, &what)))
    }

    /// Runs the accesses and events of one batch in their order.
    pub fn batch<const CHECK: bool>(
        &mut self,
        batch: &Batch,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        self.ahead.look(&self.stack.guest, behind);
        for segment in &batch.segments {
            let index = segment.thread as usize;
            if self.threads.len() <= index {
                self.threads.resize(index + 1, false);
            }
            self.threads[index] = true;
        }
        self.saw_physical |= !batch.paddr.is_empty();
        let mut from = 0;
        let mut hits = batch.hits.iter();
        for placed in &batch.events {
            let to = placed.at as usize;
            self.with_hits::<CHECK>(batch, from..to, &mut hits, behind)?;
            from = to;
            self.event(placed, self.position + to as u64, behind)?;
        }
        self.with_hits::<CHECK>(batch, from..batch.len(), &mut hits, behind)?;
        if let Some(origins) = &mut self.origins {
            origins.batch_ends(batch);
        }
        self.position += batch.len() as u64 + self.passed.all(batch);
        Ok(())
    }

    fn count(&mut self, batch: &Batch, span: Range<usize>) {
        let metas = &batch.meta[span];
        // One pass, with sums that fit into the lanes of a vector.
        let [mut fetches, mut loads] = [0u32; 2];
        let mut instructions = 0u64;
        for some in metas.chunks(1 << 16) {
            let mut began = 0;
            for meta in some {
                fetches += u32::from(meta.kind() == Kind::Fetch);
                loads += u32::from(meta.kind() == Kind::Load);
                began += meta.instructions();
            }
            instructions += u64::from(began);
        }
        let [fetches, loads] = [fetches, loads].map(u64::from);
        let kinds = [fetches, loads, metas.len() as u64 - fetches - loads];
        let Processor { hardware, counts, .. } = &mut self.processors.here;
        for (kind, count) in Kind::ALL.into_iter().zip(kinds) {
            if hardware.first[kind as usize] != NONE {
                counts.accesses[kind as usize] += count;
            }
        }
        counts.instructions += instructions;
        self.fetches += fetches;
        self.hooks.ran(self.who.number, instructions);
    }

    #[cold]
    fn event(
        &mut self,
        placed: &Placed,
        access: u64,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        let Placed { event, thread, .. } = placed;
        if let Event::Run { cpu, space } = *event {
            return self.goes_on(cpu, *thread, space, access, behind);
        }
        // Who goes on is told by this event; where and in which space, by the one after it.
        if !matches!(event, Event::Process { .. }) {
            self.thread_runs(*thread, behind);
        }
        if let Event::Gap { accesses, instructions } = *event {
            self.gap_accesses += accesses;
            // A gap without accesses has instructions of the run that no row counts. Those of a gap with
            // accesses were left out with them, as by a recording that begins late.
            if accesses == 0 {
                self.processors.here.counts.instructions += instructions;
            }
            return Ok(());
        }
        if matches!(event, Event::WarmupEnd) {
            self.forget_counts(access, behind);
            return Ok(());
        }
        self.saw_calls |= matches!(event, Event::Call(_));
        self.saw_events |= matches!(event, Event::Mapping { .. } | Event::Mmap { .. });
        let who = self.who;
        self.ask(access, behind, |system, platform| system.event(who, event, platform))?;
        self.on_event(event);
        self.layout.apply(who.number, event);
        if let Some(origins) = self.origins.as_mut().filter(|_| event.changes_mappings()) {
            origins.mappings_changed();
        }
        Ok(())
    }

    /// The warm-up is over: counts begin anew with `access`, and all else stays as it is.
    fn forget_counts(&mut self, access: u64, behind: &mut impl Behind) {
        let (prices, census) = (&self.prices, &mut self.census);
        self.processors.for_each(|processor| {
            processor.cycles_before += prices.cycles(processor);
            processor.forget_counts(census);
        });
        self.census.forget_counts();
        self.stack.forget_counts();
        self.system.forget_counts(&mut self.stack.guest);
        self.hooks.forget_counts();
        if let Some(small) = &mut self.small {
            small.forget_counts();
        }
        self.crossing_lookups = [0; Kind::COUNT];
        (self.first_touches, self.returns, self.protection_faults) = (0, 0, 0);
        self.history = History::new(access - self.left_out);
        if let Some(origins) = &mut self.origins {
            origins.forget_counts();
        }
        (self.page_crossings, self.fetches) = (0, 0);
        behind.forget_counts();
    }

    /// Accesses that ran, by kind.
    pub fn by_kind(&self) -> [u64; Kind::COUNT] {
        Kind::ALL.map(|kind| {
            self.processors.each().map(|each| each.counts.accesses[kind as usize]).sum()
        })
    }

    /// Instructions that ran.
    pub fn instructions(&self) -> u64 {
        self.processors.each().map(|each| each.counts.instructions).sum()
    }

    /// Adds the hits of all entries to the counts; the entries stay.
    pub fn drain(&mut self) {
        self.processors.for_each(|processor| processor.hardware.drain(&mut self.census));
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod ticks;
#[cfg(test)]
mod two_processors;

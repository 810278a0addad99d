//! A run: the machine processes every access of a trace, in order.
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
//! All accesses are processed in this way. The first line is the common case, which does no
//! allocation, hashing or indirect call; all other cases are in `miss`. Data caches and walker are
//! behind [`Behind`]: the run reports accesses and walks to it. The running processor, and so its
//! TLBs, changes only between spans of accesses, never within one (`turn`); events that the clock
//! times also happen between spans (`clock`).

mod access;
mod ahead;
mod clock;
mod constants;
mod counted;
mod counts;
mod dense;
mod dirty;
mod fill;
mod flushing;
pub(crate) mod foreseen;
pub(crate) mod hooks;
mod linear;
mod miss;
mod nested;
pub(crate) mod nodes;
pub(crate) mod overheads;
mod pace;
mod prefault;
pub(crate) mod promotion;
mod ranges;
mod rows;
mod seen;
mod segments;
mod shootdown;
pub(crate) mod small;
mod spots;
mod tempo;
mod turn;
mod walk;
mod watch;

use std::{ops::Range, sync::Arc};

use addr::Kind;
use description::{Clock, Description, Error, Inject, Refusal, settings::Written};
use hardware::{
    behind::Behind, contexts::Contexts, in_turn::InTurn, processor::Processor, tlbs::NONE,
};
use os::{System, Who, at::Change, host::Stack};
use results::count::labels::Layout;
use trace::{Batch, Event, Placed, Source};

use clock::Timing;
use constants::Constants;
use fill::Around;
use flushing::Flushing;
use foreseen::Foreseen;
use hooks::Hooks;
use rows::Rows;
use seen::Seen;
use small::View;
use tempo::Tempo;
use walk::Walking;

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The number of accesses that ran.
    pub accesses: u64,
    /// The number of accesses in the whole trace, if known.
    pub total: Option<u64>,
}

/// The parts of a run that are built from the description: memory, and the operating system.
pub struct Parts {
    /// The text of the machine file, to show the wrong line if an error is found only with the
    /// trace.
    pub written: Arc<Written>,
    pub stack: Stack,
    pub system: Box<dyn System>,
    /// Settings that are yet to change, in the order of time.
    pub changes: Vec<Change>,
}

/// A run in progress, without the hardware behind the TLBs.
pub struct Run {
    /// The text of the machine file, to show the wrong line if an error is found only with the
    /// trace.
    written: Arc<Written>,
    /// The properties of the machine that do not change.
    pub constants: Constants,
    /// The counts so far, and the facts that are known from the trace so far.
    pub seen: Seen,
    pub processors: InTurn<Processor>,
    pub stack: Stack,
    pub layout: Layout,
    pub system: Box<dyn System>,
    /// The space on each processor, and the context of each space.
    contexts: Contexts,
    /// The running space, as a register of the processor identifies it.
    who: Who,
    /// The relocation of the running space's addresses to those that TLBs use.
    view: View,
    /// Whether the trace has a schedule: which processor makes which access.
    is_scheduled: bool,
    /// The rows with the addresses that TLBs use, if these differ from those of the trace.
    rows: Rows,
    /// The walk in progress.
    walking: Walking,
    /// The contents of TLB entries besides the page that a walk has found.
    around: Around,
    /// The operating system's clock, and the events that it times.
    timing: Timing,
    tempo: Tempo,
    /// How shootdowns reach the processors.
    flushing: Flushing,
    /// The features that are called at misses and flushes.
    pub hooks: Hooks,
}

impl Run {
    /// A run on the machine of `description`, which is built from `parts`. `clock` gives the operating
    /// system's time.
    pub fn new(
        description: &Description,
        parts: Parts,
        check: bool,
        clock: Clock,
    ) -> Result<Run, Error> {
        let Parts { written, mut stack, system, changes } = parts;
        // Entries of pages that were unmapped are not checked, because with deferred flushes they
        // stay until a sweep.
        let defers = description.os.flush.as_ref().is_some_and(|flush| flush.deferred);
        let check = check && !defers;
        // A description that cannot be built was already refused when it was read, so no error is
        // expected here.
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
        let constants = Constants::of(description, &first.hardware, &stack.guest, check);
        let hooks = Hooks::of(description, &constants, system.as_ref(), &first.hardware, &stack)
            .map_err(refused)?;
        let space = stack.guest.first_space().map_err(refused)?;
        let mut layout = Layout::default();
        layout.enter(0);
        if let Some(Inject::FailAllocation(number)) = description.os.inject {
            stack.guest.refuse(number);
        }
        let mut run = Run {
            constants,
            seen: Seen::new(),
            contexts,
            who: Who { number: 0, space },
            view: View::flat(space),
            is_scheduled: false,
            rows: Rows::new(description),
            walking: Walking::default(),
            around: Around::of(description, &first.hardware).map_err(refused)?,
            timing: Timing::new(description, clock, changes),
            tempo: Tempo::default(),
            flushing: Flushing::of(description).map_err(refused)?,
            hooks,
            written: written.clone(),
            processors: InTurn::new(first, others.into_iter()),
            stack,
            layout,
            system,
        };
        run.view.tag = run.tag_of(0);
        Ok(run)
    }

    /// Starts the trace of `source`.
    pub fn begin(&mut self, source: &Foreseen<'_>) -> Result<(), Error> {
        if let Some(recorded) = self.system.recorded()
            && let Some(foretold) = source.foretold()
        {
            recorded.foresee(foretold);
        }
        let processes = source.processes();
        self.layout.foresee(source.told().clone());
        self.system.begin(processes);
        let begun = self.hooks.begin(processes, &mut self.stack.guest);
        begun.map_err(|Refusal { key, what }| self.written.locate(&key, &what))
    }

    /// At the end of a trace: fails if a space that was requested to be small never ran.
    pub fn unmet(&self) -> Result<(), Error> {
        if let Some(wrong) = self.system.unmet() {
            return Err(Error::Place(wrong));
        }
        let wrong = self.hooks.unmet();
        wrong.map_or(Ok(()), |Refusal { key, what }| Err(self.written.locate(&key, &what)))
    }

    /// Runs the accesses and events of one batch in their order.
    pub fn batch<const CHECK: bool>(
        &mut self,
        batch: &Batch,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        self.tempo.ahead.look(&self.stack.guest, behind);
        self.hooks.look(behind);
        self.seen.begins(batch);
        let mut from = 0;
        let mut hits = batch.hits.iter();
        for placed in &batch.events {
            let to = placed.at as usize;
            self.with_hits::<CHECK>(batch, from..to, &mut hits, behind)?;
            from = to;
            self.event(placed, self.seen.position + to as u64, behind)?;
        }
        self.with_hits::<CHECK>(batch, from..batch.len(), &mut hits, behind)?;
        self.hooks.batch_ends(batch);
        self.seen.ends(batch);
        Ok(())
    }

    fn count(&mut self, batch: &Batch, span: Range<usize>) {
        let metas = &batch.meta[span];
        // One pass over the accesses, with sums that fit into the lanes of a vector register.
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
        self.seen.fetches += fetches;
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
        // This event names the process that continues; the next event names the processor and the
        // space.
        if !matches!(event, Event::Process { .. }) {
            self.thread_runs(*thread, behind);
        }
        if let Event::Gap { accesses, instructions } = *event {
            self.seen.gap_accesses += accesses;
            // A gap without accesses has instructions of the run that no row counts. The
            // instructions of a gap with accesses are left out together with these accesses, as
            // when a recording begins late.
            if accesses == 0 {
                self.processors.here.counts.instructions += instructions;
            }
            return Ok(());
        }
        if matches!(event, Event::WarmupEnd) {
            self.forget_counts(access, behind);
            return Ok(());
        }
        self.seen.event(event);
        let who = self.who;
        if self.defers() {
            self.before_event(event, behind);
        }
        self.ask(access, behind, |system, platform| system.event(who, event, platform))?;
        if self.defers() {
            self.after_deferring();
        }
        self.on_event(event);
        self.layout.apply(who.number, event);
        self.after_event(event);
        Ok(())
    }

    /// Ends the warm-up: resets the counts to zero before `access`; all other state stays.
    fn forget_counts(&mut self, access: u64, behind: &mut impl Behind) {
        let (prices, census) = (&self.timing.prices, &mut self.seen.census);
        self.processors.for_each(|processor| {
            processor.cycles_before += prices.cycles(processor);
            processor.forget_counts(census);
        });
        self.stack.forget_counts();
        self.system.forget_counts(&mut self.stack.guest);
        self.hooks.forget_counts();
        self.seen.forget_counts(access);
        behind.forget_counts();
    }

    /// The number of accesses that ran, by kind.
    pub fn by_kind(&self) -> [u64; Kind::COUNT] {
        Kind::ALL.map(|kind| {
            self.processors.each().map(|each| each.counts.accesses[kind as usize]).sum()
        })
    }

    /// The number of instructions that ran.
    pub fn instructions(&self) -> u64 {
        self.processors.each().map(|each| each.counts.instructions).sum()
    }

    /// Adds the hits that TLB entries have counted to the counts of the run; the entries stay.
    pub fn drain(&mut self) {
        self.processors.for_each(|processor| processor.hardware.drain(&mut self.seen.census));
    }
}

#[cfg(test)]
mod hooked;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod ticks;
#[cfg(test)]
mod two_processors;

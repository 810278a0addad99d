//! Determines which processor makes each access, and switches between spaces.
//!
//! ```text
//!   with a schedule     Run { cpu: 1, space: 3 }   processor 1, until the next Run
//!   without one         accesses of thread t       processor t mod N, in the space of the last Run
//! ```
//!
//! The order of the trace decides which space runs at a time. The cost of entering another space
//! depends on the machine's contexts; continuing in the same space on a processor costs nothing.

use std::ops::Range;

use addr::VirtRange;
use description::Error;
use hardware::{
    behind::{Behind, Forget},
    contexts::{Stale, tag_of_context},
};
use os::Who;
use trace::{Batch, KERNEL, Segment};

use super::{Run, small::View};

impl Run {
    /// Runs the accesses of `span`, without events among them.
    pub(super) fn turns<const CHECK: bool>(
        &mut self,
        batch: &Batch,
        span: Range<usize>,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        if !span.is_empty() {
            self.begin_here(behind);
        }
        if self.processors.count() == 1 || self.is_scheduled {
            return self.span::<CHECK>(batch, span, behind);
        }
        let started = |segment: &Segment| segment.start as usize <= span.start;
        let first = batch.segments.partition_point(started).saturating_sub(1);
        let mut segments = batch.segments[first..].iter().peekable();
        let mut from = span.start;
        while let Some(segment) = segments.next().filter(|_| from < span.end) {
            let end = segments.peek().map_or(batch.len(), |next| next.start as usize);
            let to = end.min(span.end);
            self.thread_runs(segment.thread, behind);
            self.span::<CHECK>(batch, from..to, behind)?;
            from = to;
        }
        Ok(())
    }

    /// Enters space 0 at the beginning of a trace, if no event names another space.
    pub(super) fn begin_here(&mut self, behind: &mut impl Behind) {
        if self.has_not_begun(self.processors.on()) {
            self.turn_to(self.processors.on(), self.who.number, behind);
        }
    }

    /// Lets `thread` make the next accesses. Without a schedule, the thread runs on the processor
    /// to which it is assigned.
    pub(super) fn thread_runs(&mut self, thread: u32, behind: &mut impl Behind) {
        if self.processors.count() > 1 && !self.is_scheduled {
            self.turn_to(thread as usize % self.processors.count(), self.who.number, behind);
        }
    }

    /// Makes `number` the space of the next accesses. They run on the processor `cpu` if a schedule
    /// gives one, and otherwise on the processor of `thread`.
    pub(super) fn goes_on(
        &mut self,
        cpu: Option<u32>,
        thread: u32,
        number: u32,
        access: u64,
        behind: &mut impl Behind,
    ) -> Result<(), Error> {
        let count = self.processors.count();
        let processor = match cpu {
            Some(cpu) => cpu as usize,
            None => thread as usize % count,
        };
        if processor >= count {
            let (cpus, count) = (processor as u32 + 1, count as u32);
            return Err(Error::Processors { cpus, count });
        }
        self.is_scheduled = cpu.is_some();
        let space = self.ask(access, behind, |system, platform| system.enter(number, platform))?;
        self.who = Who { number, space };
        self.layout.enter(number);
        self.turn_to(processor, number, behind);
        Ok(())
    }

    /// Switches to `processor`, and switches that processor to `space`.
    fn turn_to(&mut self, processor: usize, space: u32, behind: &mut impl Behind) {
        if processor != self.processors.on() {
            self.processors.turn_to(processor, |_, _| ());
            behind.on(processor);
        }
        // The kernel runs in the space of the process that has called it.
        let is_other = self.contexts.running(processor) != Some(space);
        if space != KERNEL && (is_other || self.has_not_begun(processor)) {
            self.enter(processor, space, behind);
        }
        self.view = if space == KERNEL {
            self.seen.kernel = true;
            View { is_global: self.constants.has_global_pages, ..View::flat(self.who.space) }
        } else {
            View { tag: self.tag_of(space), ..self.view_of(processor) }
        };
    }

    /// The tag of lines of the running space `space` in virtual caches, which is its context. All
    /// processes share lines of the kernel, as they share global pages. Without contexts, all other
    /// lines have no tag either.
    pub(super) fn tag_of(&self, space: u32) -> u64 {
        let asid = self.processors.here.asid;
        if self.constants.virtual_caches && self.constants.has_contexts && space != KERNEL {
            tag_of_context(asid)
        } else {
            0
        }
    }

    #[cold]
    fn enter(&mut self, processor: usize, space: u32, behind: &mut impl Behind) {
        if self.flushing.next_sweep.is_some() {
            self.sweep(processor, behind);
        }
        let is_first = self.contexts.running(processor).is_none() || self.has_not_begun(processor);
        let (asid, stale) = self.contexts.enter(processor, space);
        behind.switched();
        self.processors.here.asid = asid;
        self.processors.here.counts.switches += u64::from(!is_first);
        if self.on_switch(processor, space, is_first, behind) {
            return;
        }
        if !is_first {
            let costs = self.timing.prices.costs();
            let counts = &mut self.processors.here.counts;
            counts.root_loads += 1;
            counts.emptying_switches += u64::from(stale != Stale::Nothing);
            counts.switch_cycles += costs.map_or(0, |costs| u64::from(costs.switch_cycles));
        }
        let (held_by, forget) = match stale {
            Stale::Nothing => return,
            Stale::Context { asid, held_by } => (held_by, Forget::Space(asid)),
            Stale::NonGlobal => (1 << processor, Forget::All),
            Stale::Everywhere => (u64::MAX, Forget::All),
        };
        for number in (0..self.processors.count()).filter(|number| held_by >> number & 1 == 1) {
            let processor = self.processors.of(number);
            if let Some(cache) = &mut processor.trace_cache {
                cache.clear();
            }
            let hardware = &mut processor.hardware;
            match forget {
                Forget::Space(asid) => hardware.flush_asid(asid, &mut self.seen.census),
                Forget::All | Forget::Range(..) | Forget::Pages(..) => {
                    hardware.flush_non_global(&mut self.seen.census)
                }
            };
            behind.forget(number, forget);
            if let (true, Forget::Space(asid)) = (self.constants.virtual_caches, forget) {
                behind.forget(number, Forget::Pages(VirtRange::ALL, asid));
            }
        }
    }
}

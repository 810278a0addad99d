//! The run as the platform of the operating system: memory, and flushes of hardware.
//!
//! ```text
//!   System --shoot--> Flush of a space
//!
//!   sender     | flush | send |...... wait ......|      goes on; frames of tables are free
//!   receiver 1                | interrupt, flush |      answers
//!   receiver 2                | interrupt, flush |      answers
//!   others                                              are not asked
//! ```
//!
//! A flush is made on the processors on which the space has a context: the space runs there, or it
//! ran there and no other space has got its context since.

use addr::{Asid, PhysAddr, VirtRange};
use description::{Costs, Error};
use hardware::{
    behind::{Behind, Forget},
    contexts::Contexts,
    in_turn::InTurn,
    processor::Processor,
};
use os::{Platform, Spent, System, host::Stack};
use pagetable::{Flush, Scope};
use ram::{Failure, Ram};
use results::count::{census::Census, labels::Layout};
use trace::KERNEL;

use super::{
    Run,
    flushing::{Flushing, Reach},
    hooks::Hooks,
    small::moved,
};

/// The interface of a run to the operating system.
pub(super) struct Hosted<'a, B> {
    stack: &'a mut Stack,
    layout: &'a Layout,
    processors: &'a mut InTurn<Processor>,
    contexts: &'a Contexts,
    costs: Option<&'a Costs>,
    census: &'a mut Census,
    behind: &'a mut B,
    hooks: &'a mut Hooks,
    flushing: &'a mut Flushing,
    access: u64,
    /// The time of the clock, which is needed if flushes can be deferred to a sweep.
    now: u64,
}

impl<B: Behind> Platform for Hosted<'_, B> {
    fn ram(&mut self) -> &mut Ram {
        &mut self.stack.guest
    }

    fn layout(&self) -> &Layout {
        self.layout
    }

    fn overheads(&mut self) -> Vec<(u32, u64)> {
        self.hooks.take_overheads()
    }

    fn shoot(&mut self, flush: Flush) {
        let asks = flush.scope() != Scope::Nothing || flush.tables().is_some();
        self.stack.guest.recall(&flush);
        if let Some(space) = self.stack.guest.number_of(flush.space()).filter(|_| asks) {
            let is_left_out = self.hooks.on_flush(space, &flush);
            let is_over = is_left_out || self.shoot_down(&flush, space);
            if is_over && self.hooks.look_at_flushes() {
                self.look(&flush, space);
            }
        }
        self.stack.guest.done(flush);
    }

    fn device(&mut self, frame: PhysAddr, lent: bool) {
        if self.behind.speculates() {
            self.behind.device(frame, lent);
        }
    }

    fn access(&self) -> u64 {
        self.access
    }

    fn processor(&self) -> usize {
        self.processors.on()
    }
}

impl<B: Behind> Hosted<'_, B> {
    /// Flushes on each processor that may hold entries of `space`, and counts the cost. Returns
    /// whether all these processors have flushed; false if some of them flush later.
    fn shoot_down(&mut self, flush: &Flush, space: u32) -> bool {
        let wide = self.flushing.widened(flush);
        let is_wide = wide.is_some();
        let flush = wide.as_ref().unwrap_or(flush);
        let pages = match flush.scope() {
            Scope::Nothing => 0,
            Scope::Pages { pages, .. } => pages,
            Scope::Space => u64::MAX,
        };
        let sender = self.processors.on();
        let count = self.processors.count();
        let contexts = self.contexts;
        let holders = || (0..count).filter(|&one| contexts.of(one, space).is_some()).count();
        let reach = self.flushing.reach((space, sender), flush, holders);
        let flush_cycles = self.costs.map_or(0, |costs| costs.flush_cycles(pages));
        let receiver_cycles =
            self.costs.map_or(0, |costs| u64::from(costs.shootdown_receive_cycles) + flush_cycles);
        let (mut asked, mut later, mut here) = (0, 0, false);
        for number in 0..count {
            let is_sender = number == sender;
            if reach == Reach::Swept && !is_sender {
                if contexts.of(number, space).is_some() {
                    self.flushing.leave(number, (space, sender), flush, self.now);
                    later += 1;
                }
                continue;
            }
            let Some(entries) = self.flush_on(number, flush, space) else { continue };
            let counts = &mut self.processors.of(number).counts.shootdowns;
            counts.entries += entries;
            here |= is_sender;
            if !is_sender {
                asked += 1;
                if reach == Reach::Interrupted {
                    counts.received += 1;
                    counts.receiver_cycles += receiver_cycles;
                }
            }
        }
        if asked + later == 0 && !here {
            return true;
        }
        let counts = &mut self.processors.here.counts.shootdowns;
        counts.made += 1;
        counts.widened += u64::from(is_wide);
        match reach {
            Reach::Broadcast { instructions } => {
                counts.broadcast += 1;
                let [each, wait] = self.costs.map_or([0; 2], |costs| {
                    [costs.broadcast_cycles, costs.broadcast_wait_cycles].map(u64::from)
                });
                counts.sender_cycles += instructions.saturating_mul(each) + wait;
            }
            Reach::Interrupted | Reach::Swept => {
                counts.asked += asked;
                counts.deferred += u64::from(later > 0);
                counts.sender_cycles += if here { flush_cycles } else { 0 };
                if asked > 0 {
                    // All processors are interrupted at the same time and take the same time, so
                    // every answer is as slow as the slowest.
                    let send = self.costs.map_or(0, |costs| u64::from(costs.shootdown_send_cycles));
                    counts.sender_cycles += send + receiver_cycles;
                }
            }
        }
        later == 0
    }

    /// Flushes on one processor. Returns the number of TLB entries that were dropped; `None` if the
    /// processor cannot hold entries of `space`.
    pub(super) fn flush_on(&mut self, number: usize, flush: &Flush, space: u32) -> Option<u64> {
        if let Some(small) = &self.hooks.small {
            let hat = self.stack.guest.hat_space(space)?;
            let bases = match space {
                KERNEL => [Some(0), None],
                _ => small.bases(number, hat),
            };
            return self.flush_small(number, flush, bases, small.slot_bytes());
        }
        let asid = match space {
            // Entries of the kernel's pages have the context of the running space.
            KERNEL => self.processors.of(number).asid,
            _ => self.contexts.of(number, space)?,
        };
        let hardware = &mut self.processors.of(number).hardware;
        let mut entries = hardware.flush(flush, asid, self.census);
        let pages = match flush.scope() {
            Scope::Nothing => None,
            Scope::Pages { range, .. } => Some(range),
            Scope::Space => Some(VirtRange::ALL),
        };
        if let Some(range) = pages {
            self.behind.forget(number, Forget::Pages(range, asid));
        }
        if let Some(range) = flush.tables() {
            if self.stack.guest.is_linear() {
                entries += hardware.flush_tables(range, asid, self.census);
            }
            let forget = match range {
                VirtRange::ALL => Forget::Space(asid),
                part => Forget::Range(part, asid),
            };
            self.behind.forget(number, forget);
        }
        Some(entries)
    }

    /// Like [`Hosted::flush_on`], for spaces in slots of `slot_bytes`. `bases` has, for each place
    /// where the space can have entries, the number that is added to its addresses there.
    fn flush_small(
        &mut self,
        number: usize,
        flush: &Flush,
        bases: [Option<u64>; 2],
        slot_bytes: u64,
    ) -> Option<u64> {
        let mut entries = None;
        for base in bases.into_iter().flatten() {
            let sum = entries.get_or_insert(0);
            let Some(range) = moved(flush, base, slot_bytes) else { continue };
            *sum += self.processors.of(number).hardware.flush_range(range, self.census);
            self.behind.forget(number, Forget::Pages(range, Asid(0)));
            if flush.tables().is_some() {
                self.behind.forget(number, Forget::Space(Asid(0)));
            }
        }
        entries
    }

    /// Checks the entries that each processor on which the space has a context still holds after
    /// the flush.
    fn look(&mut self, flush: &Flush, space: u32) {
        for number in 0..self.processors.count() {
            if let Some(asid) = self.contexts.of(number, space) {
                let hardware = &self.processors.of(number).hardware;
                self.hooks.flushed((number, hardware), self.stack, (flush, asid));
            }
        }
    }
}

impl Run {
    /// The operating system, and the interface of the run to it, at `access`.
    pub(super) fn hosted<'a, B: Behind>(
        &'a mut self,
        access: u64,
        behind: &'a mut B,
    ) -> (&'a mut dyn System, Hosted<'a, B>) {
        let now = if self.defers() { self.now() } else { 0 };
        let Run {
            system, stack, layout, processors, contexts, timing, seen, hooks, flushing, ..
        } = self;
        let hosted = Hosted {
            stack,
            layout,
            processors,
            contexts,
            costs: timing.prices.costs(),
            census: &mut seen.census,
            behind,
            hooks,
            flushing,
            access,
            now,
        };
        (system.as_mut(), hosted)
    }

    /// Calls the operating system at `access`.
    pub(super) fn ask<T>(
        &mut self,
        access: u64,
        behind: &mut impl Behind,
        ask: impl FnOnce(&mut dyn System, &mut dyn Platform) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        self.system.settle(&self.stack.guest, &mut self.layout);
        if let Some(node) = self.hooks.node_of(self.processors.on()) {
            self.stack.guest.runs_on(node);
        }
        let (system, mut platform) = self.hosted(access, behind);
        let done = ask(system, &mut platform);
        let Spent { work_cycles, io_cycles } = self.system.spent();
        let counts = &mut self.processors.here.counts;
        counts.work_cycles += work_cycles;
        counts.io_cycles += io_cycles;
        match self.hooks.lie() {
            Some(lie) => Err(Error::Check(format!("access {access}: {lie}"))),
            None => done.map_err(|failure| self.failed(failure, access)),
        }
    }

    pub(super) fn failed(&self, failure: Failure, access: u64) -> Error {
        match failure {
            Failure::OutOfFrames if self.stack.guest.has_refused() => {
                let what = "os.inject made the allocation of a frame fail, and the run cannot \
                            continue without this frame: choose a later allocation, or leave \
                            os.inject out";
                Error::Access { access, what: what.to_owned() }
            }
            Failure::OutOfFrames => {
                Error::OutOfFrames { access, frames_bytes: self.stack.guest.frame_bytes().0 }
            }
            Failure::OutOfMemory(what) => {
                let what = format!("out of memory: {what}. Set a larger memory.size or swap.size");
                Error::Access { access, what }
            }
            Failure::OutOfHostFrames => Error::OutOfHostFrames { access },
            Failure::Table(what) => Error::Access { access, what },
        }
    }
}

//! How a shootdown reaches the processors: `[os.flush]`.
//!
//! ```text
//!   interrupts   sender | flush | send | wait ........ |    receivers | interrupt, flush |
//!   broadcast    sender | one instruction for some pages, ... | wait |      receivers go on
//!   deferred     sender | flush | leaves a note |           receivers, at their next sweep: | flush |
//! ```
//!
//! Linux flushes a whole space instead of single pages if there are more pages from the first to
//! the last changed page than a limit (`arch/x86/mm/tlb.c`, `get_flush_tlb_info`). With INVLPGB, a
//! space that runs on four processors gets a context that is the same on all processors
//! (`consider_global_asid`), and Linux broadcasts the flushes of such spaces.
//!
//! LATR (Kumar and others 2018) interrupts no processor when memory is unmapped or discarded. The
//! flushes are left to the other processors: each processor makes them in a sweep, at each tick of
//! its timer and when it switches to another space. Until its sweep, its TLB has entries of pages
//! that the program may no longer use. In this model, a sweep is made early if a page is to be
//! mapped at the address of such an entry. In LATR, the frames are reused only after all processors
//! have swept; here they are free immediately.

use std::collections::BTreeSet;

use addr::VirtRange;
use description::{ContextPolicy, Description, FlushBy, Flushes, Refusal};
use hardware::behind::Behind;
use os::events::{Request, request};
use pagetable::{Flush, Scope};
use trace::Event;

use super::Run;

/// How flushes are made, and the flushes that are yet to be made.
#[derive(Debug, Default)]
pub(super) struct Flushing {
    asked: Flushes,
    /// The spaces whose flushes are broadcast.
    broadcast: BTreeSet<u32>,
    /// The flushes that each processor makes at its next sweep.
    left: Vec<Vec<Left>>,
    /// Whether the shootdowns of the operation in progress may be left to a sweep.
    may_wait: bool,
    /// The time of the next sweep of all processors; `None` if no flush is left to a sweep.
    pub(super) next_sweep: Option<u64>,
}

/// A flush that one processor has left to another one, to be made in its next sweep.
#[derive(Debug)]
struct Left {
    space: u32,
    flush: Flush,
    sender: usize,
}

/// How a shootdown reaches the processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Each of the other processors is interrupted.
    Interrupted,
    /// This number of instructions flush on all processors.
    Broadcast { instructions: u64 },
    /// Each of the other processors flushes at its next sweep.
    Swept,
}

impl Flushing {
    /// The way of flushing that `description` requests. The error has the key that is wrong.
    pub(super) fn of(description: &Description) -> Result<Flushing, Refusal> {
        let Some(asked) = &description.os.flush else { return Ok(Flushing::default()) };
        let refuse =
            |key: &str, what: &str| Err(Refusal::new(format!("os.flush{key}"), what.to_owned()));
        let core = &description.core;
        let are_shared = matches!(core.contexts, ContextPolicy::Lru | ContextPolicy::Generation);
        if asked.by != FlushBy::Interrupts && (core.asid_bits == 0 || !are_shared) {
            let what = "broadcast flushes need contexts (ASIDs) that are equal on all processors: \
                        set \
                        core.asid_bits to 1 or more and core.contexts to \"lru\" or \"generation\"";
            return refuse(".by", what);
        }
        if description.os.small.is_some() {
            let what = "os.flush does not work with small spaces, which are flushed page by page, \
                        by interrupts: leave os.flush or os.small out";
            return refuse("", what);
        }
        if asked.by == FlushBy::Tlbi && asked.deferred {
            let what =
                "flushes by TLBI cannot be deferred: write by = \"interrupts\" or deferred = false";
            return refuse(".deferred", what);
        }
        for (key, value) in [
            (".broadcast_pages", asked.broadcast_pages),
            (".sweep_cycles", asked.sweep_cycles),
            (".states", asked.states as u64),
        ] {
            if value == 0 {
                return refuse(key, "0 is not possible: write 1 or more");
            }
        }
        let mut flushing = Flushing { asked: asked.clone(), ..Flushing::default() };
        if asked.deferred {
            flushing.left.resize_with(core.count as usize, Vec::new);
        }
        Ok(flushing)
    }

    /// The flush of a whole space in place of `flush`, if `flush` names too many pages.
    pub(super) fn widened(&self, flush: &Flush) -> Option<Flush> {
        let ceiling = self.asked.ceiling?;
        match flush.scope() {
            Scope::Pages { .. } if pages_between(flush) > ceiling => {
                Some(Flush::whole(flush.space(), false))
            }
            Scope::Pages { .. } | Scope::Nothing | Scope::Space => None,
        }
    }

    /// How a shootdown of `flush` in `space` by `sender` reaches the other processors. `processors`
    /// counts the processors that may hold entries of the space.
    pub(super) fn reach(
        &mut self,
        (space, sender): (u32, usize),
        flush: &Flush,
        processors: impl FnOnce() -> usize,
    ) -> Reach {
        // No walker may use a page-table node that was removed, so flushes of such nodes are not
        // deferred.
        if self.may_wait && flush.tables().is_none() && self.has_room(sender) {
            return Reach::Swept;
        }
        let is_broadcast = match self.asked.by {
            FlushBy::Interrupts => false,
            FlushBy::Tlbi => true,
            FlushBy::Invlpgb => {
                let is_known = self.broadcast.contains(&space);
                // The shootdown that first finds this number of processors is still made by
                // interrupts.
                if !is_known && processors() >= self.asked.broadcast_from as usize {
                    self.broadcast.insert(space);
                }
                is_known
            }
        };
        if !is_broadcast {
            return Reach::Interrupted;
        }
        let pages = match flush.scope() {
            Scope::Pages { .. } => pages_between(flush),
            Scope::Nothing | Scope::Space => 1,
        };
        Reach::Broadcast { instructions: pages.div_ceil(self.asked.broadcast_pages).max(1) }
    }

    /// Defers a flush to the next sweep of `processor`.
    pub(super) fn leave(
        &mut self,
        processor: usize,
        (space, sender): (u32, usize),
        flush: &Flush,
        now: u64,
    ) {
        self.left[processor].push(Left { space, flush: flush.without_frames(), sender });
        self.next_sweep.get_or_insert(now.saturating_add(self.asked.sweep_cycles));
    }

    /// Whether `sender` can leave one more flush to each of the other processors.
    fn has_room(&self, sender: usize) -> bool {
        let of_sender = |left: &Vec<Left>| left.iter().filter(|one| one.sender == sender).count();
        self.left.iter().map(of_sender).max().unwrap_or(0) < self.asked.states
    }

    /// Whether a flush of pages in `range` of `space` is left to a sweep.
    fn leaves(&self, space: u32, range: VirtRange) -> bool {
        let is_there = |one: &Left| {
            one.space == space
                && match one.flush.scope() {
                    Scope::Pages { range: left, .. } => left.intersection(range).is_some(),
                    Scope::Space => true,
                    Scope::Nothing => one.flush.tables().is_some(),
                }
        };
        self.left.iter().flatten().any(is_there)
    }

    /// Removes and returns the flushes that were left to `processor`, which makes them now.
    fn take(&mut self, processor: usize) -> Vec<(u32, Flush)> {
        let taken = self.left.get_mut(processor).map(std::mem::take).unwrap_or_default();
        if self.left.iter().all(Vec::is_empty) {
            self.next_sweep = None;
        }
        taken.into_iter().map(|one| (one.space, one.flush)).collect()
    }
}

/// The number of pages from the first to the last page of `flush`, counted in the size of its
/// smallest page.
fn pages_between(flush: &Flush) -> u64 {
    match (flush.scope(), flush.sizes().next()) {
        (Scope::Pages { range, .. }, Some(size)) => range.bytes() >> size.shift(),
        (Scope::Pages { pages, .. }, None) => pages,
        (Scope::Nothing | Scope::Space, _) => 0,
    }
}

/// The addresses at which `event` maps pages. TLBs must not have stale entries there.
fn mapped_by(event: &Event, before: Option<u64>) -> Option<VirtRange> {
    let (start, bytes) = match request(event)? {
        Request::Known { start, bytes, .. }
        | Request::Map { start, bytes, .. }
        | Request::Attach { start, bytes, .. }
        | Request::Populate { start, bytes, .. }
        | Request::Upgrade { start, bytes, .. } => (start, bytes),
        Request::Move { to, to_bytes, .. } => (to, to_bytes),
        Request::Break { now } => {
            let before = before?;
            (before, now.checked_sub(before)?)
        }
        Request::Lock { start, bytes, .. } => (start, bytes),
        Request::LockAll { .. } | Request::Fork { .. } | Request::Replace | Request::Exit => {
            return Some(VirtRange::ALL);
        }
        Request::Unmap { .. }
        | Request::Discard { .. }
        | Request::Wish { .. }
        | Request::Protect { .. }
        | Request::Unlock { .. }
        | Request::UnlockAll
        | Request::Transfer { .. } => return None,
    };
    VirtRange::new(addr::VirtAddr::new(start), bytes).ok()
}

impl Run {
    /// Whether flushes can be deferred to a sweep.
    #[inline]
    pub fn defers(&self) -> bool {
        self.flushing.asked.deferred
    }

    /// Called before the operating system handles `event`.
    #[cold]
    pub(super) fn before_event(&mut self, event: &Event, behind: &mut impl Behind) {
        let asked = request(event);
        self.flushing.may_wait =
            matches!(asked, Some(Request::Unmap { .. } | Request::Discard { .. }));
        let regions = self.layout.regions(self.who.number);
        let before = regions.and_then(|regions| regions.program_break());
        if let Some(range) = mapped_by(event, before) {
            self.sweep_early(range, behind);
        }
    }

    /// Called after the operating system has handled an event.
    #[cold]
    pub(super) fn after_deferring(&mut self) {
        self.flushing.may_wait = false;
    }

    /// Makes all processors sweep if a flush is left of pages in `range`, or in the blocks of 2M
    /// that contain it: a fault may map a large page there, and stale entries could otherwise
    /// overlap with it.
    #[cold]
    pub(super) fn sweep_early(&mut self, range: VirtRange, behind: &mut impl Behind) {
        const AROUND: addr::PageSize = addr::PageSize::SIZE_2M;
        let around = VirtRange::of_page(range.start().page(AROUND))
            .hull(VirtRange::of_page(range.last().page(AROUND)));
        if self.flushing.next_sweep.is_some() && self.flushing.leaves(self.who.number, around) {
            self.processors.here.counts.shootdowns.swept_early += 1;
            self.sweep_all(behind);
        }
    }

    /// Makes every processor do the flushes that were deferred to it.
    #[cold]
    pub(super) fn sweep_all(&mut self, behind: &mut impl Behind) {
        for processor in 0..self.processors.count() {
            self.sweep(processor, behind);
        }
    }

    /// Makes `processor` do the flushes that were deferred to it, before it enters a space or at
    /// its tick.
    #[cold]
    pub(super) fn sweep(&mut self, processor: usize, behind: &mut impl Behind) {
        for (space, flush) in self.flushing.take(processor) {
            let pages = match flush.scope() {
                Scope::Nothing => 0,
                Scope::Pages { pages, .. } => pages,
                Scope::Space => u64::MAX,
            };
            let cycles = self.timing.prices.costs().map_or(0, |costs| costs.flush_cycles(pages));
            let access = self.seen.position;
            let entries = self.hosted(access, behind).1.flush_on(processor, &flush, space);
            let counts = &mut self.processors.of(processor).counts.shootdowns;
            counts.swept += 1;
            counts.entries += entries.unwrap_or(0);
            counts.receiver_cycles += cycles;
        }
    }
}

//! The page sizes and frames that a trace gives by events: page walks of the recorded system, and
//! snapshots of its page tables.
//!
//! ```text
//!   trace     touch A   snapshot: A 2M    touch B    walk: C 4K  touch C    snapshot: A 4K, B 2M
//!   replay    A 2M ^----- foretold        B 2M       C 4K                   A becomes 4K, as from here on
//! ```
//!
//! A snapshot shows what the kernel did before the snapshot. If the trace can be read twice, a
//! second source is read some snapshots ahead, so that a page has at its first touch the size that
//! the next snapshot gives it. A snapshot is taken a few thousand accesses before its position in
//! the trace; a page that was touched in between is in a later snapshot. If the trace cannot be
//! read twice, or if none of these snapshots has the page, the last event for the page determines
//! its size.

use std::collections::{BTreeMap, VecDeque};

use addr::{Page, PageSize, PhysAddr, VirtAddr};
use pagetable::Space;
use rustc_hash::FxHashMap;
use trace::{Batch, Event, KnownPages, Seen, Source, Translation};

/// The number of snapshots that are read ahead. While memory grows fast, several snapshots are
/// taken within one segment of the recorder's ring, and all of them are stored after this segment
/// in the trace.
const AHEAD: usize = 16;

/// The snapshots that a second source of the trace has read ahead.
struct Ahead {
    source: Box<dyn Source + Send>,
    batch: Batch,
    is_over: bool,
    /// The space of the following rows and events.
    number: u32,
    /// Whether the last snapshot may continue in the next batch.
    is_open: bool,
    /// For each space, the snapshots that the run has not reached yet.
    snapshots: FxHashMap<u32, VecDeque<KnownPages>>,
}

impl Ahead {
    /// Reads until space `number` has `count` complete snapshots, or the trace ends.
    fn read(&mut self, number: u32, count: usize) {
        while !self.is_over
            && (self.is_open || self.snapshots.get(&number).map_or(0, VecDeque::len) < count)
        {
            // Errors in the trace are reported by the code that runs it.
            self.is_over = !matches!(self.source.next(&mut self.batch), Ok(true));
            let last = self.batch.events.last();
            self.is_open = last.is_some_and(|last| last.at as usize == self.batch.len());
            for placed in &self.batch.events {
                match &placed.event {
                    Event::Run { space, .. } => self.number = *space,
                    Event::Snapshot { .. } => {
                        let snapshots = self.snapshots.entry(self.number).or_default();
                        snapshots.push_back(KnownPages::default());
                    }
                    Event::Translation(found) if found.seen == Seen::Snapshot => {
                        let snapshots = self.snapshots.entry(self.number).or_default();
                        if let Some(last) = snapshots.back_mut() {
                            last.add(found);
                        }
                    }
                    Event::Translation(_)
                    | Event::Flush { .. }
                    | Event::Interrupt { .. }
                    | Event::Task { .. }
                    | Event::Table { .. }
                    | Event::Entry { .. }
                    | Event::Control { .. }
                    | Event::Process { .. }
                    | Event::ContextSwitch { .. }
                    | Event::WarmupEnd
                    | Event::Gap { .. }
                    | Event::Call(_)
                    | trace::events!(memory)
                    | trace::events!(program)
                    | trace::events!(lives) => {}
                }
            }
        }
    }
}

/// The pages that events of the trace describe.
#[derive(Default)]
pub(super) struct Translated {
    /// Whether the trace is known to have events that describe pages.
    pub(super) is_told: bool,
    /// The pages that events have described so far, by space.
    known: FxHashMap<u32, KnownPages>,
    ahead: Option<Ahead>,
    /// The mapped pages, by space in the page table and first address.
    mapped: BTreeMap<(u32, u64), PageSize>,
    /// Where the search for a free frame begins, by page size.
    next: BTreeMap<PageSize, u64>,
}

impl std::fmt::Debug for Translated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Translated").field("is_told", &self.is_told).finish_non_exhaustive()
    }
}

impl Translated {
    /// Sets a second source of the trace, from which snapshots are read ahead.
    pub(super) fn foresee(&mut self, source: Box<dyn Source + Send>) {
        self.is_told = true;
        self.ahead = Some(Ahead {
            source,
            batch: Batch::default(),
            is_over: false,
            number: 0,
            is_open: false,
            snapshots: FxHashMap::default(),
        });
    }

    /// Records an event that describes translations of the space `number`.
    pub(super) fn tell(&mut self, number: u32, found: &Translation) {
        self.is_told = true;
        self.known.entry(number).or_default().add(found);
    }

    /// Called when the run reaches a snapshot of the space `number`, which is therefore no longer
    /// ahead.
    pub(super) fn passes_snapshot(&mut self, number: u32) {
        self.is_told = true;
        if let Some(ahead) = &mut self.ahead {
            ahead.read(number, 1);
            if let Some(snapshots) = ahead.snapshots.get_mut(&number) {
                snapshots.pop_front();
            }
        }
    }

    /// Drops the recorded translations of unmapped addresses.
    pub(super) fn forget(&mut self, number: u32, (start, bytes): (u64, u64)) {
        if let Some(known) = self.known.get_mut(&number)
            && let Some(last) = bytes.checked_sub(1).and_then(|more| start.checked_add(more))
        {
            known.forget(start, last);
        }
    }

    /// The size of the page at `addr`, which is the largest of `sizes` that is not larger than the
    /// size in the trace; and the physical address of `addr`, if the trace gives it.
    pub(super) fn at(
        &mut self,
        number: u32,
        addr: VirtAddr,
        sizes: &[PageSize],
    ) -> Option<(PageSize, Option<PhysAddr>)> {
        let addr = addr.get();
        let ahead = self.ahead.as_mut().and_then(|ahead| {
            ahead.read(number, AHEAD);
            let snapshots = ahead.snapshots.get(&number)?.iter();
            snapshots.take(AHEAD).find_map(|snapshot| snapshot.at(addr))
        });
        let (size, paddr) = ahead.or_else(|| self.known.get(&number)?.at(addr))?;
        let size = sizes.iter().rev().find(|&&known| known <= size)?;
        Some((*size, paddr.map(PhysAddr::new)))
    }

    /// The size and frame of the page at `addr` as the last event described it, with one of
    /// `sizes`.
    pub(super) fn told(
        &self,
        number: u32,
        addr: VirtAddr,
        sizes: &[PageSize],
    ) -> Option<(PageSize, Option<PhysAddr>)> {
        let (size, paddr) = self.known.get(&number)?.at(addr.get())?;
        let size = sizes.iter().rev().find(|&&known| known <= size)?;
        Some((*size, paddr.map(PhysAddr::new)))
    }

    /// Records that `page` is mapped.
    pub(super) fn note(&mut self, space: Space, page: Page) {
        self.mapped.insert((space.id(), page.start().get()), page.size());
    }

    /// Records that `page` is no longer mapped.
    pub(super) fn note_gone(&mut self, space: Space, page: Page) {
        self.mapped.remove(&(space.id(), page.start().get()));
    }

    /// The mapped pages of a space that begin in the range from `first` to `last`, and the page
    /// that contains `first`.
    pub(super) fn mapped(&self, space: Space, first: u64, last: u64) -> Vec<Page> {
        let page = |(&(_, start), &size): (&(u32, u64), &PageSize)| VirtAddr::new(start).page(size);
        let before = self.mapped.range((space.id(), 0)..(space.id(), first)).next_back().map(page);
        let around = before.filter(|page| page.start().get() + page.size().mask() >= first);
        let inside = self.mapped.range((space.id(), first)..=(space.id(), last)).map(page);
        around.into_iter().chain(inside).collect()
    }

    /// The number of a frame to try next, in units of `size` and below `count`. Each call returns
    /// the number after the previous one.
    pub(super) fn candidate(&mut self, size: PageSize, count: u64) -> u64 {
        let next = self.next.entry(size).or_default();
        let candidate = *next % count.max(1);
        *next = candidate + 1;
        candidate
    }
}

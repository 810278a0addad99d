//! Physical addresses of accesses, from the page walks that a recording has.
//!
//! ```text
//!   recorded   Run: space 3   walk 0x7f2000 -> 0x1c5000   0x7f2010   0x7f2018   0x9000
//!   given                                                 0x1c5010   0x1c5018   unknown: 0
//! ```
//!
//! A walk gives the physical addresses of a page from there until another walk of an address of the page, in
//! the space that runs. Snapshots of page tables are not used: a snapshot does not say when a page
//! got its frame. An access that crosses into another page has the physical address of its first byte.

use rustc_hash::FxHashMap;

use crate::count::counted;
use crate::{Batch, Error, Event, Forward, KnownPages, Seen, Source};

/// log2 of the smallest page, and the number of pages whose frames are found without a search.
const PAGE_SHIFT: u32 = 12;
const RECENT: usize = 4096;

/// The frames of pages, at the moment of the trace up to which it has been given the events.
pub(crate) struct Locator {
    /// The space that runs.
    space: u32,
    known: FxHashMap<u32, KnownPages>,
    /// A direct-mapped cache: space, page number, and the physical address of the page's first byte.
    recent: Box<[(u32, u64, u64)]>,
}

/// An entry of the cache without a page. No page has this number.
const NONE: (u32, u64, u64) = (0, u64::MAX, 0);

impl Locator {
    pub(crate) fn new() -> Locator {
        Locator { space: 0, known: FxHashMap::default(), recent: vec![NONE; RECENT].into() }
    }

    /// Processes the next event of the trace.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Run { space, .. } => self.space = *space,
            Event::Translation(found) if found.seen == Seen::Walk => {
                self.known.entry(self.space).or_default().add(found);
                match found.bytes() {
                    Some(bytes) if bytes >> PAGE_SHIFT == 1 => {
                        self.recent[(found.addr >> PAGE_SHIFT) as usize % RECENT] = NONE;
                    }
                    _ => self.recent.fill(NONE),
                }
            }
            Event::Translation(_)
            | Event::Snapshot { .. }
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
            | crate::events!(memory)
            | crate::events!(program)
            | crate::events!(lives) => {}
        }
    }

    /// The physical address of `addr` in the space that runs; 0 if it is unknown.
    pub(crate) fn at(&mut self, addr: u64) -> u64 {
        let (page, offset) = (addr >> PAGE_SHIFT, addr & ((1 << PAGE_SHIFT) - 1));
        let slot = page as usize % RECENT;
        let (space, number, start) = self.recent[slot];
        if (space, number) == (self.space, page) {
            return start | offset;
        }
        let found = self.known.get(&self.space).and_then(|known| known.at(addr - offset)?.1);
        let Some(start) = found else { return 0 };
        self.recent[slot] = (self.space, page, start);
        start | offset
    }
}

/// A source that gives each access of another source its physical address.
pub(crate) struct Located {
    source: Box<dyn Source + Send>,
    locator: Locator,
    /// The numbers of accesses with and without a physical address.
    located: u64,
    unknown: u64,
    /// The warnings of the source, and one about accesses without a physical address, at the end.
    warnings: Vec<String>,
}

impl Located {
    /// The accesses of `source` with their physical addresses. It is an error if `source` is a stored trace that
    /// has none.
    pub(crate) fn new(source: Box<dyn Source + Send>) -> Result<Located, Error> {
        if source.stored().is_some_and(|stored| !stored.is_located) {
            return Err(nowhere());
        }
        let (locator, warnings) = (Locator::new(), Vec::new());
        Ok(Located { source, locator, located: 0, unknown: 0, warnings })
    }

    fn locate(&mut self, batch: &mut Batch) {
        batch.paddr.resize(batch.addr.len(), 0);
        let mut events = batch.events.iter().peekable();
        for (at, (paddr, &addr)) in batch.paddr.iter_mut().zip(&batch.addr).enumerate() {
            while let Some(placed) = events.next_if(|placed| placed.at as usize <= at) {
                self.locator.event(&placed.event);
            }
            // The physical address of an imported row is exact.
            if *paddr == 0 {
                *paddr = self.locator.at(addr);
            }
            self.unknown += u64::from(*paddr == 0);
        }
        events.for_each(|placed| self.locator.event(&placed.event));
        self.located += batch.paddr.iter().filter(|&&paddr| paddr != 0).count() as u64;
    }

    /// Called when the source has no more accesses.
    fn ended(&mut self) -> Result<(), Error> {
        if self.located == 0 && self.unknown > 0 {
            return Err(nowhere());
        }
        self.warnings = self.source.warnings().to_vec();
        if self.unknown > 0 {
            let (one, more) = ("access has no", "accesses have no");
            let rest = "recorded translation: the physical address is left empty";
            self.warnings.push(counted(self.unknown, one, more, rest));
        }
        Ok(())
    }
}

/// The error for a trace without physical addresses.
fn nowhere() -> Error {
    Error::Parameters(
        "the trace has no page walks, from which --physical takes physical addresses, and no physical addresses \
         of its own: leave --physical out, or record with `record --system`"
            .to_owned(),
    )
}

impl Forward for Located {
    fn source(&self) -> &dyn Source {
        &*self.source
    }

    fn source_mut(&mut self) -> &mut dyn Source {
        &mut *self.source
    }

    fn forward(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let more = self.source.next(batch)?;
        self.locate(batch);
        if !more {
            self.ended()?;
        }
        Ok(more)
    }

    fn remarks(&self) -> &[String] {
        &self.warnings
    }
}

//! First touch: a page is mapped when it is first touched, with the rights of its region, and is
//! unmapped with its region.
//!
//! ```text
//!   fault(addr) ----> a frame from memory, a page in the table
//!   event(munmap) --> pages out of the table --> shoot --> their frames are free again
//! ```
//!
//! With `os.page_size` larger than the base page, a page is as large as its region allows:
//!
//! ```text
//!   region     |....############################......|     aligned, inside one mapping, equal
//!   2M blocks  +-------+-------+-------+-------+-------+     rights, no base page there yet, and
//!   pages       bbbbbbb|   2M  |  2M   |bbb                  a frame of 2M is free: else b, base
//! ```
//!
//! If an event concerns only a part of a larger page, the page is split first, as an operating
//! system would do. If no event describes mappings (as in the trace of another tool), regions are
//! unknown: each aligned block of 2 MiB that is touched is treated as a region, in the results too.
//! `os.place` restricts larger pages to some regions, with one of two sizes: base pages, or 2M,
//! which Linux's madvise can request. `os.uniform` gives every page `os.page_size` regardless of
//! regions, which no operating system could do.
//!
//! First touch is the simplest correct operating system. It has no reservations, policies,
//! replacement or sharing.

mod placed;
mod promoted;
mod ranges;
pub(crate) mod recorded;
mod translated;

use std::collections::hash_map::Entry;

use addr::{Kind, Page, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use description::{self, Description, Refusal};
use os::{
    self, Answer, Ask, Platform, System, Who,
    events::{Ends, Request, request},
    names::Names,
    stale, unfit,
};
use pagetable::{Fault, Mapping, Space, Translation};
use ram::{Failure, Ram};
use results::count::labels::Layout;
use rustc_hash::FxHashMap;
use trace::{Event, Regions};

use super::place::Rules;
use recorded::Recorded;

/// The largest page size if regions are unknown.
const UNTOLD_MAX: PageSize = PageSize::SIZE_2M;

/// The manager.
#[derive(Debug)]
pub(super) struct FirstTouch {
    base: PageSize,
    /// The page size that is used if a region has room for such a page.
    large: Option<PageSize>,
    /// Whether the page size `large` is used for all memory to which no rule applies.
    large_everywhere: bool,
    /// The rules that request page sizes for parts of memory.
    rules: Rules,
    /// By space and number of a large page: how many base pages are mapped inside it.
    crowded: FxHashMap<(u32, u64), u32>,
    /// The frames that the trace gives for pages; `None` if this manager chooses the frames.
    recorded: Option<Recorded>,
}

impl FirstTouch {
    /// A manager that maps pages as `os` describes; the page table supports `sizes`.
    pub(super) fn new(os: &description::Os, sizes: &[PageSize]) -> Result<FirstTouch, String> {
        let (base, large) = (os.base(), os.large());
        if let Some(size) = [base].into_iter().chain(large).find(|size| !sizes.contains(size)) {
            let names: Vec<String> = sizes.iter().map(PageSize::to_string).collect();
            return Err(format!("the page table holds pages of {}, not {size}", names.join(", ")));
        }
        Ok(FirstTouch {
            base,
            large,
            large_everywhere: os.page_size.0 > base,
            rules: Rules::default(),
            crowded: FxHashMap::default(),
            recorded: None,
        })
    }

    /// The manager `first-touch`, as a machine file describes it.
    pub(super) fn build(description: &Description, ram: &Ram) -> Result<Box<dyn System>, Refusal> {
        let os = &description.os;
        let rules = placed::rules(os, ram.page_sizes());
        let rules = rules.map_err(|what| Refusal::new("os.place", what))?;
        let system = FirstTouch::new(os, ram.page_sizes());
        let system = system.map_err(|what| Refusal::new("os.page_size", what))?;
        Ok(Box::new(FirstTouch { rules, ..system }))
    }

    /// The page to be mapped at `addr`.
    fn choose(&mut self, who: Who, addr: VirtAddr, layout: &Layout) -> Page {
        let told = self.recorded.as_mut().and_then(|told| told.page_at(who.number, addr));
        if let Some(page) = told {
            return page;
        }
        let wished = self.wished(who, addr, layout);
        let large = wished.map(|size| addr.page(size)).filter(|page| {
            let fits = self
                .recorded
                .as_mut()
                .is_none_or(|recorded| recorded.frame_of(who.number, *page, addr).is_some());
            fits && !self.crowded.contains_key(&(who.space.id(), page.number()))
                && self.has_room(who, *page, layout)
        });
        large.unwrap_or_else(|| addr.page(self.base))
    }

    /// Whether all of `page` is in one region.
    fn has_room(&self, who: Who, page: Page, layout: &Layout) -> bool {
        let range = VirtRange::of_page(page);
        let (first, last) = (range.start().get(), range.last().get());
        let allows = |regions: &Regions| match layout.is_told(who.number) {
            true => regions.covering(first, last).is_some(),
            false => page.size() <= UNTOLD_MAX,
        };
        layout.regions(who.number).is_some_and(allows)
    }

    /// Maps `page`, which contains `touched` and is not mapped.
    fn map(
        &mut self,
        who: Who,
        (page, touched): (Page, VirtAddr),
        rights: Rights,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let frame = self.frame_for(who, (page, touched), platform.ram())?;
        let translation = Translation::new(page, frame, rights);
        let mapped = platform.ram().map(who.space, translation);
        let flush = mapped.inspect_err(|_| self.free(frame, page.size(), platform.ram()))?;
        platform.shoot(flush);
        self.note(who.space, page);
        Ok(())
    }

    /// The frame for a page: a newly allocated frame, or the frame that the trace gives.
    fn frame_for(
        &mut self,
        who: Who,
        (page, touched): (Page, VirtAddr),
        ram: &mut Ram,
    ) -> Result<PhysAddr, Failure> {
        let Some(recorded) = &mut self.recorded else { return ram.allocate(page) };
        match recorded.frame_of(who.number, page, touched) {
            Some(frame) => recorded.take(frame, page.size(), ram).map(|()| frame),
            None if recorded.translated.is_told => recorded.take_any(page.size(), ram),
            None => recorded.take_untold(page, ram),
        }
    }

    /// Ends a page's use of this frame; the translation of the page has been removed.
    fn free(&mut self, frame: PhysAddr, size: PageSize, ram: &mut Ram) {
        match &mut self.recorded {
            Some(recorded) => recorded.release(frame, size, ram),
            None => ram.free(frame, size),
        }
    }

    /// Records that `page` is mapped.
    fn note(&mut self, space: Space, page: Page) {
        if let Some(recorded) = &mut self.recorded {
            recorded.translated.note(space, page);
        }
        if let Some(large) = self.block(page) {
            *self.crowded.entry((space.id(), large.number())).or_insert(0) += 1;
        }
    }

    /// Records that `page` is no longer mapped.
    fn note_gone(&mut self, space: Space, page: Page) {
        if let Some(recorded) = &mut self.recorded {
            recorded.translated.note_gone(space, page);
        }
        let Some(large) = self.block(page) else { return };
        if let Entry::Occupied(mut pages) = self.crowded.entry((space.id(), large.number())) {
            *pages.get_mut() -= 1;
            if *pages.get() == 0 {
                pages.remove();
            }
        }
    }

    /// The large page that contains `page`, if `page` is smaller than a large page.
    fn block(&self, page: Page) -> Option<Page> {
        self.large.filter(|large| *large > page.size()).map(|large| page.start().page(large))
    }
}

impl System for FirstTouch {
    fn enter(&mut self, number: u32, platform: &mut dyn Platform) -> Result<Space, Failure> {
        platform.ram().space(number)
    }

    fn find_by(&mut self, names: Names) {
        self.rules.find_by(names);
    }

    fn promotes_to(&self) -> Vec<PageSize> {
        self.large.into_iter().filter(|_| self.recorded.is_none()).collect()
    }

    fn promote(
        &mut self,
        who: Who,
        range: VirtRange,
        to: PageSize,
        platform: &mut dyn Platform,
    ) -> Result<u64, Failure> {
        self.promoted(who, range.start().page(to), platform)
    }

    fn unmet(&self) -> Option<String> {
        self.rules.unused()
    }

    fn recorded(&mut self) -> Option<&mut dyn os::Recorded> {
        self.recorded.as_mut().map(|told| told as &mut dyn os::Recorded)
    }

    fn moved(
        &mut self,
        who: Who,
        at: (VirtAddr, PhysAddr),
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        FirstTouch::moved(self, who, at, platform)
    }

    /// Grants an access that the rights forbid: the recorded program really made the access, so the
    /// event that allowed it is missing in the trace.
    fn fault(&mut self, ask: &Ask, platform: &mut dyn Platform) -> Result<Answer, Failure> {
        let Ask { who: Who { number, space }, addr, kind, fault } = *ask;
        let needed = match kind {
            Kind::Fetch => Rights::EXECUTE,
            Kind::Load => Rights::READ,
            Kind::Store => Rights::WRITE,
        };
        if fault == Fault::Unfit {
            return Err(unfit(addr, platform.ram()));
        }
        // A page without any rights is not present for hardware, but the page table has a mapping
        // for it.
        if let Some(Mapping { translation: known, .. }) = platform.ram().mapping(space, addr) {
            if known.rights.allows(kind) {
                return Err(stale(addr, fault));
            }
            let (range, rights) = (VirtRange::of_page(known.page), known.rights | needed);
            let flush = platform.ram().protect(space, range, expressible(rights))?;
            platform.shoot(flush);
            return Ok(Answer::Granted);
        }
        let regions = platform.layout().regions(number);
        let rights = regions.and_then(|regions| regions.rights_at(addr.get()));
        let rights = expressible(rights.unwrap_or(Rights::ALL) | needed);
        let page = self.choose(ask.who, addr, platform.layout());
        if self.recorded.is_some() && page.size() > self.base {
            // Smaller pages are mapped here if the trace described them differently before.
            let range = VirtRange::of_page(page);
            self.unmap(space, (range.start().get(), range.bytes()), platform)?;
        }
        match self.map(ask.who, (page, addr), rights, platform) {
            // If no large frame is left, a small one may be free.
            Err(Failure::OutOfFrames) if page.size() > self.base => {
                if let Some(recorded) = &mut self.recorded {
                    recorded.refuse(number, page);
                }
                self.map(ask.who, (addr.page(self.base), addr), rights, platform)?;
            }
            mapped => mapped?,
        }
        Ok(Answer::FirstTouch)
    }

    fn event(
        &mut self,
        who: Who,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        let Who { number, space } = who;
        if self.rules.has_sites() {
            self.rules.allocated(number, event, platform.layout());
        }
        if matches!(event, trace::events!(translation)) {
            return self.translated(who, event, platform);
        }
        let Some(request) = request(event) else { return Ok(()) };
        if let Some(recorded) = &mut self.recorded
            && let Some(gone) = gone(&request)
        {
            recorded.translated.forget(number, gone);
        }
        match request {
            Request::Map { start, bytes, .. }
            | Request::Unmap { start, bytes }
            | Request::Discard { start, bytes, ends: Ends::Behind } => {
                self.unmap(space, (start, bytes), platform)
            }
            Request::Protect { start, bytes, rights, ends: Ends::Behind } => {
                self.protect(space, (start, bytes), rights, platform)
            }
            // The address at which the call stopped is not known.
            Request::Discard { ends: Ends::AtHole | Ends::AtLocked, .. }
            | Request::Protect { ends: Ends::AtHole | Ends::AtLocked, .. } => Ok(()),
            Request::Move { from, from_bytes, to, to_bytes } => {
                self.remap(space, (from, from_bytes), (to, to_bytes), platform)
            }
            Request::Break { now } => {
                let regions = platform.layout().regions(number);
                let before = regions.and_then(|regions| regions.program_break()).unwrap_or(now);
                match before.checked_sub(now) {
                    Some(gone) => self.unmap(space, (now, gone), platform),
                    None => Ok(()),
                }
            }
            Request::Replace => {
                let regions = platform.layout().regions(number);
                let mapped: Vec<(u64, u64)> =
                    regions.into_iter().flat_map(|regions| regions.mapped()).collect();
                mapped.into_iter().try_for_each(|range| self.unmap(space, range, platform))
            }
            // Pages are loaded at their first access, and mappings at the address of an attached
            // segment were removed before.
            Request::Known { .. } | Request::Attach { .. } => Ok(()),
            // These requests have no effect: no page is ever evicted or shared, and there is no
            // page cache.
            Request::Wish { .. } | Request::Upgrade { .. } => Ok(()),
            // Here, these pages too are mapped when they are first touched.
            Request::Populate { .. } => Ok(()),
            Request::Lock { .. }
            | Request::Unlock { .. }
            | Request::LockAll { .. }
            | Request::UnlockAll
            | Request::Fork { .. }
            | Request::Exit
            | Request::Transfer { .. } => Ok(()),
        }
    }
}

/// The range whose pages a request removes, so that the translations recorded for this range are
/// dropped.
fn gone(request: &Request<'_>) -> Option<(u64, u64)> {
    match *request {
        Request::Map { start, bytes, .. }
        | Request::Attach { start, bytes, .. }
        | Request::Unmap { start, bytes }
        | Request::Discard { start, bytes, .. } => Some((start, bytes)),
        Request::Move { from, from_bytes, .. } => Some((from, from_bytes)),
        Request::Break { now } => Some((now, u64::MAX - now)),
        Request::Replace | Request::Exit => Some((0, u64::MAX)),
        Request::Known { .. }
        | Request::Wish { .. }
        | Request::Upgrade { .. }
        | Request::Populate { .. }
        | Request::Protect { .. }
        | Request::Lock { .. }
        | Request::Unlock { .. }
        | Request::LockAll { .. }
        | Request::UnlockAll
        | Request::Fork { .. }
        | Request::Transfer { .. } => None,
    }
}

/// The smallest set of rights that contains `rights` and that hardware supports: a page that may be
/// written or executed may also be read.
fn expressible(rights: Rights) -> Rights {
    if Kind::ALL.into_iter().any(|kind| rights.allows(kind)) {
        rights | Rights::READ | Rights::USER
    } else {
        Rights::NONE
    }
}

//! Large pages at a fault: a layer above the fault of base pages (G98 section 6.6).
//!
//! ```text
//!   policy: a size -- base page --------------------------------> the fault of a base page
//!     |
//!     |   aligned block in one region?       no: RegionTooSmall, Unaligned, MixedRights
//!     |   no page of another size there?     no: OtherSizePresent
//!     |   nor in the other half of its pair? no: PairRule
//!     |   in memory already, all or nothing? no: BasePages, InPageCache, Shared
//!     |   nothing of it in swap?             no: InSwap
//!     |   is more free than the high mark?   no: Scarce
//!     |   a large frame is free?             no: NoFrame; or wait for the daemon: WaitTimedOut
//!     v                                               |
//!   fault each of its base pages into the frame       +--> the next smaller size
//!   one translation of that size                           (down to the base page)
//! ```
//!
//! The base pages of a large page are owned, written and swapped like all other base pages: only
//! the translation is large. If all base pages of a block are in the right frames already (another
//! space mapped them as a large page, or the translation was dropped), the block is loaded as a
//! large page again without allocating a frame.
//!
//! A large page takes memory for base pages that may never be touched. No large page is therefore
//! filled if pages would soon have to be evicted for it. For the same reason a swapped page is read
//! alone, as a base page: reading its neighbours would evict as many other pages (G98 sections 5
//! and 6.9).

mod resize;
mod upgrade;

use core::ops::Range;

use addr::{Kind, PageSize, Rights, VirtRange};
use hat::{HatSpace, LoadError};
use pagetable::{Mapping, Translation};
use physmem::FrameId;

use crate::{
    error::{Error, Stop},
    fault::{Needed, RegionPage},
    frames::{DIRTY, REFERENCED},
    host::Host,
    kernel::Kernel,
    map::note_used,
    module::Fallback,
    object::{ObjectId, PageLocation},
    policy::{Ask, Choice},
    region::{Backing, Region},
    vm::{AddressSpace, Within},
    work::{How, Why},
};

/// Which base pages of a block are in memory.
pub(crate) enum Presence {
    /// All base pages are in memory, in the frames of a large page that begins with this frame. The
    /// flag is true if hardware may allow stores.
    Whole(FrameId, bool),
    /// No base page is in memory in a form that could be loaded: each needs a frame.
    Nothing,
}

impl<H: Host> Kernel<'_, H> {
    /// Brings the page into memory and loads it, with the page size that the policy requests if
    /// possible.
    pub(crate) fn bring(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        kind: Kind,
    ) -> Result<How, Error> {
        let (base, addr) = (self.vm.base, self.vm.addr_of(page));
        let Some(region) = at.known.regions.at(page) else {
            self.grow_stack(at, page)?;
            return self.bring(at, page, kind);
        };
        if !region.rights.allows(kind) {
            return Err(Error::Denied { addr, rights: region.rights });
        }
        if region.backing.is_given() {
            let region = region.clone();
            return self.bring_given(at, &region, page);
        }
        self.want_for(region, page);
        if let Some(thp) = &self.vm.thp {
            return self.bring_linux(at, page, kind, thp);
        }
        let said = RegionPage::of(region, page);
        let ask = Ask { space: at.space, page, kind, region, sizes: &self.vm.sizes };
        let Choice { size: wanted, fallback } = self.vm.sizing.choose(&ask);
        // With reservations, this is not done: a large page has a single dirty bit, so a clean one
        // is split at its first store.
        if at.known.has_large
            && self.vm.reserving.is_none()
            && let Some(how) = self.stays_large(at, page, kind, wanted)?
        {
            return Ok(how);
        }
        let mut first = None;
        let mut below = Some(wanted).filter(|wanted| *wanted > base);
        while let Some(size) = below {
            below = Some(self.vm.below(size)).filter(|smaller| *smaller > base);
            let mut try_size = |kernel: &mut Self, first| {
                kernel.pages_stay(|kernel| kernel.try_size(at, page, kind, size, (wanted, first)))
            };
            let mut tried = try_size(self, first)?;
            if let (Err(Why::NoFrame), Fallback::Wait(moves)) = (tried, fallback)
                && first.is_none()
            {
                self.work.waits += 1;
                self.pages_move(|kernel| kernel.coalesce_for(size, moves));
                tried = try_size(self, first)?;
                tried =
                    tried.map_err(|why| if why == Why::NoFrame { Why::WaitTimedOut } else { why });
            }
            match tried {
                Ok(how) => return Ok(how),
                Err(why) => first = first.or(Some(why)),
            }
        }
        let decision = (wanted, first.unwrap_or(Why::PolicyAsksBase));
        let how = self.resolve(at, (page, &said), kind, decision)?;
        if self.vm.reserving.is_some() && self.vm.sizes.len() > 1 {
            self.pages_stay(|kernel| kernel.promote(at, page, kind))?;
        }
        Ok(how)
    }

    /// Handles the fault without changing the page size, if a page larger than `wanted` is loaded
    /// and only a right is missing.
    fn stays_large(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        kind: Kind,
        wanted: PageSize,
    ) -> Result<Option<How>, Error> {
        let addr = self.vm.addr_of(page);
        let held = self.hat.query(at.space, addr).map(|held| held.translation.page.size());
        let (Some(size), Some(region)) = (held, at.known.regions.at(page)) else { return Ok(None) };
        let (region, pages) = (region.clone(), self.vm.block(page, size));
        let is_inside = region.pages.start <= pages.start && pages.end <= region.pages.end;
        if size <= wanted || size == self.vm.base || !is_inside {
            return Ok(None);
        }
        self.pages_stay(|kernel| {
            let presence = kernel.presence(at.known, &region, &pages, kind == Kind::Store);
            let Ok(Presence::Whole(frame, writable)) = presence else { return Ok(None) };
            let mut how = How::Minor;
            match kernel.load_whole(at, &region, &pages, frame, writable, kind, &mut how) {
                Ok(_) => Ok(Some(how)),
                Err(Stop::Full) => Ok(None),
                Err(Stop::Refused(error)) => Err(error),
            }
        })
    }

    /// Loads a page of `size`, or returns why that is impossible. `wanted` has the size that the
    /// policy requested and, if `size` is smaller, the reason why the requested size was
    /// impossible.
    fn try_size(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        kind: Kind,
        size: PageSize,
        wanted: (PageSize, Option<Why>),
    ) -> Result<Result<How, Why>, Error> {
        let region = at.known.regions.at(page).ok_or(Error::NoRegion(self.vm.addr_of(page)))?;
        let (region, pages) = (region.clone(), self.vm.block(page, size));
        if let Err(why) = self.fits(at, &region, &pages) {
            return Ok(Err(why));
        }
        let presence = match self.presence(at.known, &region, &pages, kind == Kind::Store) {
            Ok(presence) => presence,
            Err(why) => return Ok(Err(why)),
        };
        let mut how = How::Minor;
        let loaded = match presence {
            Presence::Whole(frame, writable) => {
                self.load_whole(at, &region, &pages, frame, writable, kind, &mut how)
            }
            Presence::Nothing if self.is_scarce(size) => return Ok(Err(Why::Scarce)),
            Presence::Nothing => self.fill(at, &region, &pages, kind, &mut how),
        };
        match loaded {
            Ok(loaded) => {
                if loaded {
                    let decision = (wanted.0, wanted.1.unwrap_or(Why::Obtained));
                    self.decided((at.space, page), decision, size, 1);
                }
                Ok(Ok(how))
            }
            Err(Stop::Full) => Ok(Err(Why::NoFrame)),
            Err(Stop::Refused(error)) => Err(error),
        }
    }

    /// Whether a page of `size` would leave fewer frames free than the high mark, so that pages would
    /// soon be evicted for it.
    pub(crate) fn is_scarce(&self, size: PageSize) -> bool {
        self.free_pages() < size.count_of(self.vm.base) + self.vm.marks.high()
    }

    /// Checks whether `pages` can be one page, regardless of the pages in memory.
    pub(crate) fn fits(
        &mut self,
        at: &Within<'_>,
        region: &Region,
        pages: &Range<u64>,
    ) -> Result<(), Why> {
        if pages.start < region.pages.start || pages.end > region.pages.end {
            return Err(outside(at.known, region, pages));
        }
        let (space, size) = (at.space, self.vm.size_of(pages));
        let other = |mapping: &Mapping| mapping.translation.page.size() != size;
        if self.mappings_in(space, pages).iter().any(other) {
            return Err(Why::OtherSizePresent);
        }
        if self.has_smaller_pair(space, pages) { Err(Why::PairRule) } else { Ok(()) }
    }

    /// Which base pages of a block in `region` are in memory.
    pub(crate) fn presence(
        &self,
        known: &AddressSpace,
        region: &Region,
        pages: &Range<u64>,
        store: bool,
    ) -> Result<Presence, Why> {
        let per_page = 1 << self.memory.order(self.vm.base);
        let mut first: Option<FrameId> = None;
        let (mut here, mut writable, mut shared) = (0, true, false);
        let (mut is_run, mut swapped) = (true, false);
        for page in pages.clone() {
            let into = page - region.pages.start;
            let (place, may_store) = match (known.anons.get(page), region.backing) {
                (Some(anon), _) => {
                    let anon = self.anon(anon);
                    let is_own = anon.refs == 1;
                    shared |= !is_own;
                    match anon.place {
                        // Each of these pages would need two frames: one for the swapped page, and
                        // one for the copy.
                        PageLocation::Swapped(_) if store && !is_own => return Err(Why::Shared),
                        PageLocation::Resident(_) if store && !is_own => (None, false),
                        place => (Some(place), is_own),
                    }
                }
                (None, Backing::Anonymous) => (None, true),
                (None, Backing::Frames { .. }) => return Err(Why::Wired),
                (None, Backing::Private { .. }) if store => (None, true),
                (None, Backing::Private { object, first } | Backing::Shared { object, first }) => {
                    let place = self.object_place_of(object, first + into);
                    let is_shared = matches!(region.backing, Backing::Shared { .. });
                    let is_dirty = matches!(place, Some(PageLocation::Resident(frame))
                        if self.pfdat(frame).flags & DIRTY != 0);
                    (place, is_shared && (store || is_dirty))
                }
            };
            writable &= may_store;
            swapped |= matches!(place, Some(PageLocation::Swapped(_)));
            if let Some(PageLocation::Resident(frame)) = place {
                let expected = (page - pages.start) as u32 * per_page;
                is_run &= here == page - pages.start
                    && first.is_none_or(|first| frame.0 == first.0 + expected);
                first = first.or(Some(frame));
                here += 1;
            }
        }
        let count = pages.end - pages.start;
        match first {
            _ if swapped => Err(Why::InSwap),
            None => Ok(Presence::Nothing),
            Some(frame)
                if here == count
                    && is_run
                    && u64::from(frame.0) % (count * u64::from(per_page)) == 0 =>
            {
                Ok(Presence::Whole(frame, writable))
            }
            Some(_) if shared => Err(Why::Shared),
            Some(_) => Err(Why::missing(region)),
        }
    }

    /// Loads a block as one page; all of its base pages are in memory.
    #[expect(clippy::too_many_arguments, reason = "these are the results of the fault so far")]
    pub(crate) fn load_whole(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        frame: FrameId,
        writable: bool,
        kind: Kind,
        how: &mut How,
    ) -> Result<bool, Stop> {
        self.work.region_lookups += 1;
        if region.backing.object().is_some() && *how == How::Minor {
            *how = How::Cache;
        }
        let stores = kind == Kind::Store && matches!(region.backing, Backing::Shared { .. });
        let flags = REFERENCED | if stores { DIRTY } else { 0 };
        let frames = self.frames_of(frame, pages);
        self.frames(|memory| frames.for_each(|frame| memory.pfdat_mut(frame).flags |= flags));
        let loaded = self.load_large(at, region, pages, frame, writable, how)?;
        if region.wired.stays() {
            for (page, frame) in pages.clone().zip(self.frames_of(frame, pages)) {
                self.wire_at(at, page, frame);
            }
        }
        Ok(loaded)
    }

    /// Allocates a large frame, brings every base page of the block into it, and loads it as one
    /// page. If memory runs out before the end, the base pages that were already brought in stay.
    pub(crate) fn fill(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        kind: Kind,
        how: &mut How,
    ) -> Result<bool, Stop> {
        let count = pages.end - pages.start;
        if self.free_pages() < count + self.vm.marks.min() {
            return Err(Stop::Full);
        }
        let large = self.block_frames(at, region, pages).ok_or(Stop::Full)?;
        let filled = self.fill_into(at, region, pages, large, kind, how);
        self.prezeroed = false;
        filled
    }

    /// Allocates adjacent frames for `pages`: at the place of their region if it has one, otherwise
    /// anywhere.
    pub(crate) fn block_frames(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
    ) -> Option<FrameId> {
        let placed = self.placed(at, pages);
        let request = self.large_request(region, pages);
        let first = placed.or_else(|| self.frames(|memory| memory.allocate(&request)).ok())?;
        self.prezeroed = self.frames(|memory| memory.was_zeroed());
        self.work.frames_taken += 1 << request.order;
        Some(first)
    }

    /// Brings every base page of the large page `pages` into the frames from `large` on, which are
    /// allocated and have no owner, and loads it. If memory runs out before the end, the base pages
    /// that were already brought in stay.
    pub(crate) fn fill_into(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        large: FrameId,
        kind: Kind,
        how: &mut How,
    ) -> Result<bool, Stop> {
        let (mut stopped, mut left) = (None, alloc::vec::Vec::new());
        let mut rights = region.rights;
        for (page, frame) in pages.clone().zip(self.frames_of(large, pages)) {
            let mut given = Some(frame);
            if stopped.is_none() {
                match self.page_for(
                    at,
                    (page, &RegionPage::of(region, page)),
                    kind,
                    &mut given,
                    how,
                ) {
                    Ok(Needed { rights: allowed, left: more, .. }) => {
                        left.extend(more);
                        rights = Rights::from_bits(rights.bits() & allowed.bits());
                    }
                    Err(stop) => stopped = Some(stop),
                }
            }
            if let Some(frame) = given {
                self.free_frame(frame);
            }
        }
        let writable = rights.contains(Rights::WRITE) || !region.rights.contains(Rights::WRITE);
        let loaded = match stopped {
            None => self.load_large(at, region, pages, large, writable, how),
            Some(stop) => Err(stop),
        };
        left.into_iter().for_each(|anon| self.leave(anon, loaded.is_ok()));
        let loaded = loaded?;
        if region.wired.stays() {
            for (page, frame) in pages.clone().zip(self.frames_of(large, pages)) {
                self.wire_at(at, page, frame);
            }
        }
        Ok(loaded)
    }

    /// Loads a block whose pages are in the frames from `frame` on as one page. Returns whether the
    /// page was not loaded before.
    pub(crate) fn load_large(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
        frame: FrameId,
        writable: bool,
        how: &mut How,
    ) -> Result<bool, Stop> {
        self.not_idle(frame);
        self.keep_apart(at, pages.clone())?;
        let rights = if writable { region.rights } else { region.rights.without_write() };
        let size = self.vm.size_of(pages);
        let page = self.vm.addr_of(pages.start).page(size);
        let translation = Translation::new(page, self.address(frame), rights);
        let (space, range) = (at.space, VirtRange::of_page(page));
        self.work.table_reads += 1;
        let known = self.hat.query(space, page.start()).map(|known| known.translation);
        let (memory, site, base) = (self.memory, self.site, self.vm.base);
        let (hat, mut below) = self.hat();
        match known {
            Some(known) if (known.page, known.frame) == (page, translation.frame) => {
                if known.rights != rights {
                    hat.protect(space, range, rights, &mut below).map_err(Error::of_table)?;
                    *how = if *how == How::Cache { How::Write } else { (*how).max(How::Write) };
                }
                return Ok(false);
            }
            Some(_) => {
                let each = &mut |gone| note_used(memory, site, base, &gone);
                hat.unload(space, range, each, &mut below).map_err(Error::of_table)?;
            }
            None => {}
        }
        match hat.load(space, translation, 1, &mut below) {
            Ok(()) => {
                at.known.has_large = true;
                let order = size.shift() - self.vm.base.shift();
                at.known.tables.forget(self.vm.page_orders().filter(|of| *of <= order), pages);
                Ok(true)
            }
            Err(LoadError::NoTableMemory) => Err(Stop::Full),
            Err(LoadError::Table(error)) => Err(Error::Table(error).into()),
            Err(LoadError::NoSpace(space)) => Err(Error::NoSpace(space).into()),
            Err(LoadError::NoMemory) => Err(Error::NoMemory.into()),
        }
    }

    /// The frames of the base pages of a block whose first frame is `first`.
    pub(crate) fn frames_of(
        &self,
        first: FrameId,
        pages: &Range<u64>,
    ) -> impl Iterator<Item = FrameId> + use<H> {
        let per_page = 1 << self.memory.order(self.vm.base);
        (0..(pages.end - pages.start) as u32).map(move |into| FrameId(first.0 + into * per_page))
    }

    /// The translations that hardware has in `pages`.
    pub(crate) fn mappings_in(
        &mut self,
        space: HatSpace,
        pages: &Range<u64>,
    ) -> alloc::vec::Vec<Mapping> {
        let mut found = alloc::vec::Vec::new();
        let range = self.vm.range_of(pages);
        self.hat.visit(space, range, &mut |mapping| found.push(mapping));
        self.work.table_reads += found.len() as u64;
        found
    }

    /// Where an object's page is: in memory or in swap.
    pub(crate) fn object_place_of(&self, id: ObjectId, index: u64) -> Option<PageLocation> {
        self.vm.objects.with(self.site, id, |object| object.pages.get(&index).copied())
    }
}

/// The reason why a block cannot be one page because it is not contained in its region.
pub(crate) fn outside(known: &AddressSpace, region: &Region, pages: &Range<u64>) -> Why {
    if known.regions.within(pages).any(|other| other.rights != region.rights) {
        Why::MixedRights
    } else if region.pages.end - region.pages.start < pages.end - pages.start {
        Why::RegionTooSmall
    } else {
        Why::Unaligned
    }
}

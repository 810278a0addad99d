//! Frames that the kernel gives to a region: registers of a device, a framebuffer, a page that the
//! kernel shares with programs.
//!
//! ```text
//!   map(Source::Frames)   frames known with other attributes? --> refused, nothing has changed
//!        |                frames of memory that are not the kernel's? --> refused
//!        v
//!   runs   | e0000..e0100 device, 1 region | e0100..e0200 write-combining, 2 regions | ...
//!        |
//!        +--> region --> all translations at once, the largest pages that fit
//! ```
//!
//! The frames need no descriptors. Those that have a descriptor, because they lie in the memory of
//! [`Physical`](crate::Physical), must be allocated for the kernel ([`State::Kernel`]). They are wired
//! while a region maps them, so that the kernel cannot free them by mistake.
//!
//! If two mappings of a frame have different memory types, a processor can read stale data, or stop
//! with a machine check. The manager therefore records the attributes of each frame that a region
//! of any space maps. The boundaries of the records are boundaries of regions. Before a region is
//! cut, the records are cut at the same address. Therefore no operation that unmaps frames needs
//! memory.
//!
//! Like all translations, those of given frames may be dropped, for example if the memory for page tables
//! is limited. A fault loads them again.

use core::ops::Range;

use addr::{Attributes, PageSize, PhysAddr, Rights, VirtRange};
use hat::LoadError;
use pagetable::Translation;
use physmem::{FrameId, State};

use crate::{
    error::Error,
    fault::ATTEMPTS_MAX,
    host::Host,
    kernel::Kernel,
    module::Module,
    region::{Backing, Region},
    vm::{AddressSpace, Within},
    work::How,
};

/// The frames of `pages`, which are in `region`, if they were given to it.
fn frames_of(region: &Region, pages: &Range<u64>) -> Option<Range<u64>> {
    let Backing::Frames { first, .. } = region.backing else { return None };
    let first = first + (pages.start - region.pages.start);
    Some(first..first + (pages.end - pages.start))
}

impl<H: Host> Kernel<'_, H> {
    /// Maps a new region of frames that the caller gives, and loads its translations.
    pub(crate) fn map_given(
        &mut self,
        at: &mut Within<'_>,
        pages: Range<u64>,
        (rights, asked): (Rights, Rights),
        start: PhysAddr,
        attributes: Attributes,
        label: u32,
    ) -> Result<(), Error> {
        let base = self.vm.base;
        if !start.is_aligned(base) {
            let misaligned = pagetable::Error::Misaligned { addr: start.get(), size: base };
            return Err(Error::Table(misaligned));
        }
        let first = start.get() >> base.shift();
        let frames = first..first + (pages.end - pages.start);
        at.known.regions.reserve(&pages)?;
        self.claim(&frames, attributes)?;
        if let Err(error) = self.pages_stay(|kernel| kernel.remove(at, pages.clone())) {
            self.disclaim(&frames);
            return Err(error);
        }
        let region = Region {
            pages: pages.clone(),
            rights,
            asked,
            backing: Backing::Frames { first, attributes },
            wired: at.known.wires_new,
            label,
            module: Module::default(),
            own: self.vm.new_own(),
            has_own: false,
        };
        at.known.has_given = true;
        at.known.regions.insert(region.clone())?;
        at.known.regions.unreserve();
        let loaded = self.load_given(at, &region, &pages);
        if loaded.is_err() {
            self.pages_stay(|kernel| kernel.remove(at, pages))?;
        }
        loaded
    }

    /// Records that a new region maps `frames`. It refuses frames that are mapped with other
    /// attributes. After an error nothing has changed.
    fn claim(&mut self, frames: &Range<u64>, attributes: Attributes) -> Result<(), Error> {
        let base = self.vm.base;
        let address = |frame: u64| PhysAddr::new(frame << base.shift());
        let order = self.memory.order(base);
        self.lists(|lists, memory| {
            if let Some((frame, known)) = lists.given.clash(frames, attributes) {
                return Err(Error::Attributes { frame: address(frame), known, asked: attributes });
            }
            let all = memory.table().frames();
            for frame in described(&all, frames, order) {
                let pfdat = memory.table().get(frame);
                let at = memory.table().address(frame);
                if pfdat.state() != State::Kernel || lists.zeros.has(frame) {
                    return Err(Error::NotGiven(at));
                }
                if pfdat.wired == u16::MAX {
                    return Err(Error::PinLimit(at));
                }
            }
            let wire = |new| described(&all, &new, order).for_each(|frame| memory.wire(frame));
            Ok(lists.given.add(frames, attributes, wire)?)
        })
    }

    /// Records that a region no longer maps `frames`.
    fn disclaim(&mut self, frames: &Range<u64>) {
        let order = self.memory.order(self.vm.base);
        self.lists(|lists, memory| {
            let all = memory.table().frames();
            lists.given.remove(frames, |gone| {
                described(&all, &gone, order).for_each(|frame| memory.unwire(frame));
            });
        });
    }

    /// Records that a region, which is no longer in any space, does not map its frames any more, if
    /// they were given to it.
    pub(crate) fn forget_given(&mut self, region: &Region) {
        if let Some(frames) = frames_of(region, &region.pages) {
            self.disclaim(&frames);
        }
    }

    /// Records a further region that maps the frames that were given to `region`, if there are any.
    pub(crate) fn share_given(&mut self, region: &Region) {
        if let Some(frames) = frames_of(region, &region.pages) {
            self.lists(|lists, _| lists.given.share(&frames));
        }
    }

    /// Cuts the records of given frames where the ends of `pages` will cut their regions.
    pub(crate) fn cut_given(
        &mut self,
        known: &AddressSpace,
        pages: &Range<u64>,
    ) -> Result<(), Error> {
        for page in [pages.start, pages.end] {
            let Some(region) = known.regions.at(page).filter(|of| of.pages.start < page) else {
                continue;
            };
            if let Some(frames) = frames_of(region, &(page..region.pages.end)) {
                self.lists(|lists, _| lists.given.cut(frames.start))?;
            }
        }
        Ok(())
    }

    /// Loads the translations of `pages`, with the largest pages that fit. None of `pages` has a
    /// translation yet.
    pub(crate) fn load_given(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
    ) -> Result<(), Error> {
        if region.rights == Rights::NONE {
            return Ok(());
        }
        let mut page = pages.start;
        while page < pages.end
            && let Some(frames) = frames_of(region, &(page..pages.end))
        {
            let (size, count) = self.largest_run(page, &frames);
            self.load_run(at, region, (page, frames.start), size, count)?;
            page += count * size.count_of(self.vm.base);
        }
        Ok(())
    }

    /// The size of the largest page that can begin with `page` and `frames`, and how many such pages
    /// follow each other before a larger size fits or `frames` end.
    fn largest_run(&self, page: u64, frames: &Range<u64>) -> (PageSize, u64) {
        let base = self.vm.base;
        let left = frames.end - frames.start;
        let counts = |size: &PageSize| size.count_of(base);
        // Pages that come in pairs must have neighbours of their size, which the region may not have.
        let sizes = if self.vm.paired { &self.vm.sizes[..1] } else { &self.vm.sizes[..] };
        let fits = |size: &&PageSize| {
            let count = counts(size);
            (page | frames.start) & (count - 1) == 0 && count <= left
        };
        let size = sizes.iter().rev().find(fits).copied().unwrap_or(base);
        let count = counts(&size);
        // A larger page fits only if page and frame have the same distance from its boundary.
        let alike = |larger: &&PageSize| {
            **larger > size && (page ^ frames.start) & (counts(larger) - 1) == 0
        };
        let next = sizes.iter().find(alike).map(counts);
        let until = next.map(|larger| page.next_multiple_of(larger) - page).filter(|of| *of > 0);
        (size, until.map_or(left, |until| until.min(left)) / count)
    }

    /// Loads the translations of all given frames of a space in which none of them is loaded, for
    /// the child of a fork. Faults load the translations for which page tables have no memory.
    pub(crate) fn load_all_given(&mut self, at: &mut Within<'_>) {
        let mut next = 0;
        while let Some(region) = at.known.regions.from(next) {
            next = region.pages.end;
            if region.backing.is_given() {
                let region = region.clone();
                let _ = self.load_given(at, &region, &region.pages);
            }
        }
    }

    /// Loads `count` adjacent pages of `size`, and evicts other pages if page tables need memory.
    fn load_run(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        (page, frame): (u64, u64),
        size: PageSize,
        count: u64,
    ) -> Result<(), Error> {
        let Backing::Frames { attributes, .. } = region.backing else { return Ok(()) };
        let base = self.vm.base;
        if self.vm.paired && at.known.has_large {
            (page..page + count).try_for_each(|page| self.keep_apart(at, page..page + 1))?;
        }
        let start = PhysAddr::new(frame << base.shift());
        let first = Translation::new(self.vm.addr_of(page).page(size), start, region.rights);
        for _ in 0..ATTEMPTS_MAX {
            let (hat, mut below) = self.hat();
            match hat.load(at.space, first.with(attributes), count, &mut below) {
                Ok(()) => {
                    at.known.has_large |= size > base;
                    return Ok(());
                }
                Err(LoadError::NoTableMemory) => {
                    if !self.make_room() {
                        break;
                    }
                }
                Err(LoadError::Table(error)) => return Err(Error::Table(error)),
                Err(LoadError::NoSpace(space)) => return Err(Error::NoSpace(space)),
                Err(LoadError::NoMemory) => return Err(Error::NoMemory),
            }
        }
        Err(self.out_of_memory())
    }

    /// Handles a fault in a region whose frames were given to it: the translation was dropped, or it
    /// has fewer rights than its region.
    #[cold]
    pub(crate) fn bring_given(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        page: u64,
    ) -> Result<How, Error> {
        self.work.region_lookups += 1;
        let addr = self.vm.addr_of(page);
        let held = self.hat.query(at.space, addr).map(|held| held.translation);
        self.before = self.before.or(held.map(|held| held.rights));
        let Some(held) = held else {
            self.load_given(at, region, &(page..page + 1))?;
            return Ok(How::Minor);
        };
        let range = VirtRange::of_page(held.page);
        let (hat, mut below) = self.hat();
        hat.protect(at.space, range, region.rights, &mut below).map_err(Error::of_table)?;
        Ok(How::Write)
    }
}

/// The part of `frames`, given in units of `2^order` base frames, that is among the base frames
/// `all`.
fn described(
    all: &Range<u32>,
    frames: &Range<u64>,
    order: u32,
) -> impl Iterator<Item = FrameId> + use<> {
    let first = (frames.start << order).max(all.start.into());
    let end = (frames.end << order).min(all.end.into());
    (first..end).map(|frame| FrameId(frame as u32))
}

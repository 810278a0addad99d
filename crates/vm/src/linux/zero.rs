//! The shared page of zeros, and the pages of a file that a fault loads in addition to the one it
//! needs (`mm/memory.c`).
//!
//! ```text
//!   load of untouched memory  --> the frame of zeros that all share, without the right to store
//!   the first store there     --> a frame of its own
//!
//!   fault on a page of a file:  | . | c | . | c | F | c | . | . |    those that memory has (c) are loaded
//!                               '------ 64K, aligned -----------'    with it, so that they do not fault
//! ```
//!
//! Each 16M of addresses has its own frame of zeros, so that the lists of the frame's mappings stay
//! short. Linux needs only one frame of zeros, since it keeps no list of its mappings.

use core::ops::Range;

use addr::{Kind, PhysAddr};
use hat::locking::{Locks, Mutex, Site};
use pagetable::Translation;
use physmem::{FrameId, Request, State};

use crate::{
    anon::AnonId,
    error::{Error, Stop},
    frames::{DIRTY, Owner},
    host::Host,
    kernel::Kernel,
    object::PageLocation,
    platform::Platform,
    region::{Backing, Region},
    vm::{Vm, Within},
    work::How,
};

/// log2 of the number of base pages whose addresses share a frame of zeros.
const AREA_SHIFT: u32 = 12;

impl<L: Locks> Vm<L> {
    /// The number of frames of zeros.
    pub fn zero_frames(&self) -> u64 {
        self.pages
            .with(Site::Look, |lists| lists.zeros.orders.values().map(|order| 1 << order).sum())
    }

    /// Whether a frame is a frame of zeros.
    pub fn is_zero_frame(&self, frame: FrameId) -> bool {
        self.pages.with(Site::Look, |lists| lists.zeros.has(frame))
    }
}

impl<H: Host> Kernel<'_, H> {
    /// The frame of zeros for a base page, which is allocated if necessary; `None` if no frame is
    /// free.
    pub(crate) fn zero_frame(&mut self, page: u64) -> Option<FrameId> {
        let area = page >> AREA_SHIFT;
        let known = self.lists(|lists, _| lists.zeros.by_area.get(&area).copied());
        known.or_else(|| {
            let frame = self.new_zeros(self.memory.order(self.vm.base))?;
            self.lists(|lists, _| lists.zeros.by_area.insert(area, frame));
            Some(frame)
        })
    }

    /// The large frame of zeros, which is allocated if necessary; `None` if no frame is free.
    pub(crate) fn huge_zero_frame(&mut self) -> Option<FrameId> {
        let known = self.lists(|lists, _| lists.zeros.huge);
        known.or_else(|| {
            let order = self.vm.pmd_order() + self.memory.order(self.vm.base);
            if self.free_pages() < (1 << self.vm.pmd_order()) + self.vm.marks.low() {
                return None;
            }
            let frame = self.new_zeros(order)?;
            self.lists(|lists, _| lists.zeros.huge = Some(frame));
            Some(frame)
        })
    }

    fn new_zeros(&mut self, order: u32) -> Option<FrameId> {
        if self.free_pages() <= self.vm.marks.min() {
            return None;
        }
        let request = Request::new(order, State::Kernel);
        let first = self.frames(|memory| memory.allocate(&request)).ok()?;
        self.work.frames_taken += 1 << order;
        self.work.zeroed += 1 << order;
        let step = self.memory.order(self.vm.base);
        for frame in (first.0..first.0 + (1 << order)).step_by(1 << step) {
            self.platform.zero(self.address(FrameId(frame)), self.vm.base.bytes());
        }
        self.lists(|lists, _| lists.zeros.orders.insert(first.0, order));
        Some(first)
    }

    /// Loads the pages of the file around `page` that are in memory; a fault has just loaded `page`
    /// itself (`do_fault_around`).
    pub(crate) fn fault_around(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        kind: Kind,
    ) -> Result<(), Error> {
        let window = self.vm.thp.map_or(1, |thp| thp.fault_around);
        let Some(region) = at.known.regions.at(page) else { return Ok(()) };
        let Some(object) = region.backing.object() else { return Ok(()) };
        if window < 2 || kind == Kind::Store || at.known.anons.get(page).is_some() {
            return Ok(());
        }
        let first = page & !(window - 1);
        let (pages, rights) = (region.pages.clone(), region.rights);
        let (backing, start, wired) = (region.backing, region.pages.start, region.wired);
        for each in first.max(pages.start)..(first + window).min(pages.end) {
            if each == page || at.known.anons.get(each).is_some() {
                continue;
            }
            let (index, is_shared) = match backing {
                Backing::Anonymous | Backing::Frames { .. } => return Ok(()),
                Backing::Private { first, .. } => (first + (each - start), false),
                Backing::Shared { first, .. } => (first + (each - start), true),
            };
            let Some(PageLocation::Resident(frame)) = self.object_place_of(object, index) else {
                continue;
            };
            self.work.table_reads += 1;
            let addr = self.vm.addr_of(each);
            if self.hat.query(at.space, addr).is_some() {
                continue;
            }
            let is_dirty = self.pfdat(frame).flags & DIRTY != 0;
            let rights = if is_shared && is_dirty { rights } else { rights.without_write() };
            let page = Translation::new(addr.page(self.vm.base), self.address(frame), rights);
            let (hat, mut below) = self.hat();
            match hat.load(at.space, page, 1, &mut below) {
                Ok(()) => self.work.around += 1,
                // Faults load the remaining pages.
                Err(_) => return Ok(()),
            }
            if wired.stays() {
                self.wire_at(at, each, frame);
            }
        }
        Ok(())
    }

    /// Whether a store must copy the page in `frame` although the space is its only user. This is
    /// so if a fork has shared the page and other spaces still use frames of its folio
    /// (`wp_can_reuse_anon_folio`). If no copy is needed, marks the page as exclusive to the space.
    pub(crate) fn is_bound(&mut self, anon: AnonId, frame: FrameId) -> bool {
        if self.vm.thp.is_none() || self.anon(anon).exclusive {
            return false;
        }
        let folio = self.lists(|lists, _| lists.folios.frames_around(frame));
        let step = 1 << self.memory.order(self.vm.base);
        let mut others = folio.into_iter().flat_map(|frames| frames.step_by(step)).map(FrameId);
        let is_shared = others.any(|other| match Owner::of(self.pfdat(other).identity) {
            Some(Owner::Anon(other)) => self.anon(other).refs > 1,
            Some(Owner::Object(..)) | None => false,
        });
        if !is_shared {
            self.vm.anons.with(self.site, anon, |anon| anon.exclusive = true);
        }
        is_shared
    }

    /// Whether an untouched page of anonymous memory gets the page of zeros for an access of `kind`.
    pub(crate) fn wants_zeros(&self, kind: Kind) -> bool {
        self.vm.thp.is_some() && kind != Kind::Store
    }

    /// Loads a large page of zeros for `pages`, none of which is in memory. Returns whether it was
    /// loaded.
    pub(crate) fn load_huge_zero(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        pages: &Range<u64>,
    ) -> Result<bool, Stop> {
        let frame = self.huge_zero_frame().ok_or(Stop::Full)?;
        let mut how = How::Minor;
        // This is first, as in `do_huge_pmd_anonymous_page`, which begins with `vmf_anon_prepare`.
        if !region.has_own {
            at.known.regions.set_own(pages.start);
        }
        self.load_large(at, region, pages, frame, false, &mut how)
    }

    /// Whether the frame at `at`, to which the page table maps an untouched page, is one of the
    /// frames of zeros.
    pub(crate) fn holds_zeros(&self, at: PhysAddr) -> bool {
        let frame = self.memory.frame_at(at);
        self.lists(|lists, _| lists.zeros.has(frame))
    }
}

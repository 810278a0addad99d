//! Pages that a process locks in memory: `mlock`.
//!
//! ```text
//!   lock(range) ----------> regions wired --> each page brought in --> its frame wired, in no list
//!   lock_on_fault(range) -> regions wired --> what is loaded now, or by a fault later: likewise
//!   unlock, unmap, exit --> the frame's count falls; at 0 it is in a list again
//! ```
//!
//! If several spaces have wired a frame, the frame counts each of them. A private page that may be
//! stored to is copied immediately, so that a later store takes no fault. The child of a fork does
//! not inherit locks.

use alloc::vec::Vec;
use core::ops::Range;

use addr::{Kind, Rights, VirtRange};
use hat::{HatSpace, locking::Site};
use pagetable::Translation;
use physmem::FrameId;

use crate::{
    error::Error,
    host::Host,
    kernel::Kernel,
    map::take_range,
    object::PageLocation,
    region::{Backing, Region, Wired},
    vm::Within,
};

impl<H: Host> Kernel<'_, H> {
    /// Brings all mapped pages in `range` into memory and locks them there. If memory is too small,
    /// the pages that were already brought in stay locked.
    pub fn lock(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.site = Site::Call;
        let pages = self.vm.pages_of(range);
        self.within(space, |kernel, at| kernel.lock_pages(at, pages))
    }

    /// Wires all mapped pages in `range`, but brings no page into memory now (`mlock` of a range
    /// with a hole: `apply_vma_lock_flags`).
    pub fn lock_later(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.site = Site::Call;
        let pages = self.vm.pages_of(range);
        self.within(space, |kernel, at| kernel.wire_regions(at, &pages, Wired::Now))
    }

    /// Locks the pages in `range` that are in memory, and pages in `range` that faults bring in
    /// later (`MLOCK_ONFAULT`).
    pub fn lock_on_fault(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.site = Site::Call;
        let pages = self.vm.pages_of(range);
        self.within(space, |kernel, at| kernel.wire_regions(at, &pages, Wired::OnFault))
    }

    /// Wires a new mapping of `range`, because its flags request it (`MAP_LOCKED`). If the space
    /// wires pages of new mappings when a fault brings them in, this mapping is wired in the same
    /// way (`do_mmap` adds `def_flags`).
    pub fn lock_mapping(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.site = Site::Call;
        let pages = self.vm.pages_of(range);
        self.within(space, |kernel, at| match at.known.wires_new {
            Wired::OnFault => Ok(()),
            Wired::No | Wired::Now => kernel.wire_regions(at, &pages, Wired::Now),
        })
    }

    fn lock_pages(&mut self, at: &mut Within<'_>, pages: Range<u64>) -> Result<(), Error> {
        self.wire_regions(at, &pages, Wired::Now)?;
        self.wire_pages(at, pages)
    }

    /// Wires regions, and their pages that are in memory (`mlock_fixup`, `mlock_vma_pages_range`).
    fn wire_regions(
        &mut self,
        at: &mut Within<'_>,
        pages: &Range<u64>,
        wired: Wired,
    ) -> Result<(), Error> {
        self.work.calls += 1;
        for part in at.known.regions.parts(pages, |region| region.wired != wired)? {
            self.pages_stay(|kernel| {
                kernel.cut_large(at, &part)?;
                kernel.wire_present(at, &part);
                Ok::<(), Error>(())
            })?;
        }
        at.known.regions.change(pages.clone(), |region| region.wired = wired)?;
        Ok(())
    }

    /// Wires two kinds of pages in `pages`: those of which hardware has a translation, except pages
    /// of zeros; and the space's own pages that are in memory.
    pub(crate) fn wire_present(&mut self, at: &mut Within<'_>, pages: &Range<u64>) {
        let mut found: Vec<(u64, FrameId)> = Vec::new();
        for mapping in self.mappings_in(at.space, pages) {
            let Translation { page, frame, .. } = mapping.translation;
            let held = self.vm.pages_of(VirtRange::of_page(page));
            // Frames that were given to a region are never evicted, so they need not be wired.
            if at.known.has_given && at.known.is_given(held.start) {
                continue;
            }
            let first = self.memory.frame_at(frame);
            if !(self.vm.thp.is_some() && self.holds_zeros(frame)) {
                found.extend(held.clone().zip(self.frames_of(first, &held)));
            }
        }
        for (page, anon) in at.known.anons.within(pages.clone()) {
            if let PageLocation::Resident(frame) = self.anon(anon).place {
                found.push((page, frame));
            }
        }
        found.into_iter().for_each(|(page, frame)| self.wire_at(at, page, frame));
    }

    /// Unlocks all mapped pages in `range`, so that they may be evicted.
    pub fn unlock(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.site = Site::Call;
        let pages = self.vm.pages_of(range);
        self.within(space, |kernel, at| kernel.unlock_pages(at, pages))
    }

    fn unlock_pages(&mut self, at: &mut Within<'_>, pages: Range<u64>) -> Result<(), Error> {
        self.work.calls += 1;
        self.pages_stay(|kernel| {
            for part in at.known.regions.parts(&pages, |region| region.wired.stays())? {
                kernel.cut_large(at, &part)?;
            }
            at.known.regions.change(pages.clone(), |region| region.wired = Wired::No)?;
            kernel.unwire_pages(at, pages);
            Ok(())
        })
    }

    /// Sets whether and when existing mappings (`current`) and later mappings (`future`) are wired
    /// (`mlockall`: `apply_mlockall_flags`). If `current` is [`Wired::No`], existing mappings are
    /// unchanged.
    pub fn lock_all(
        &mut self,
        space: HatSpace,
        current: Wired,
        future: Wired,
    ) -> Result<(), Error> {
        self.site = Site::Call;
        self.within(space, |kernel, at| {
            at.known.wires_new = future;
            let Some(pages) = at.known.regions.hull() else { return Ok(()) };
            match current {
                Wired::No => Ok(()),
                Wired::Now => kernel.lock_pages(at, pages),
                Wired::OnFault => kernel.wire_regions(at, &pages, current),
            }
        })
    }

    /// Unlocks all pages of the space; later mappings are not wired either.
    pub fn unlock_all(&mut self, space: HatSpace) -> Result<(), Error> {
        self.site = Site::Call;
        self.within(space, |kernel, at| {
            at.known.wires_new = Wired::No;
            match at.known.regions.hull() {
                Some(pages) => kernel.unlock_pages(at, pages),
                None => Ok(()),
            }
        })
    }

    /// Brings all mapped pages in `range` into memory and loads them, for accesses of `kind`
    /// (`MADV_POPULATE_READ`, `MADV_POPULATE_WRITE`, `MAP_POPULATE`: `populate_vma_page_range`,
    /// `faultin_page_range`). Without a kind, pages that are private and writable are brought in
    /// for stores, all other pages for loads. The page faults are not counted for the process. With
    /// a kind, the operation ends at an address without a region and at a region that forbids the
    /// access; without a kind, it skips regions whose pages are wired when a fault brings them in
    /// (`populate_vma_page_range`). If memory is too small, later faults bring in the remaining
    /// pages.
    pub fn prefault(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        kind: Option<Kind>,
    ) -> Result<(), Error> {
        self.site = Site::Call;
        let pages = self.vm.pages_of(range);
        self.within(space, |kernel, at| {
            let mut next = pages.start;
            let mut left = kernel.pages_of_memory();
            while next < pages.end && left > 0 {
                let Some(region) = at.known.regions.from(next) else { break };
                let is_hole = next < region.pages.start;
                let asked = match kind {
                    Some(kind) if is_hole || !region.asked.allows(kind) => break,
                    Some(kind) => kind,
                    // Skips addresses without a mapping, and mappings that allow no access.
                    None if is_hole => {
                        next = region.pages.start;
                        continue;
                    }
                    None => match kind_of(region).filter(|_| region.wired != Wired::OnFault) {
                        Some(kind) => kind,
                        None => {
                            next = region.pages.end;
                            continue;
                        }
                    },
                };
                let held = kernel.hat.query(at.space, kernel.vm.addr_of(next));
                let held = held.map(|held| held.translation).filter(|of| of.rights.allows(asked));
                if let Some(held) = held {
                    next = kernel.vm.pages_of(VirtRange::of_page(held.page)).end;
                    continue;
                }
                match kernel.bring(at, next, asked) {
                    Ok(_) => {
                        // A large page is loaded as a whole, so all its base pages count, even if
                        // it is a large page of zeros.
                        let held = kernel.hat.query(at.space, kernel.vm.addr_of(next));
                        let held = held.map(|held| VirtRange::of_page(held.translation.page));
                        let end = held.map_or(next + 1, |held| kernel.vm.pages_of(held).end);
                        left = left.saturating_sub(end - next);
                        next = end;
                    }
                    Err(Error::OutOfMemory { .. } | Error::TableMemory) => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
    }

    /// The number of base pages of memory. No call loads more pages than this number: pages of
    /// zeros take no memory, but they take page-table entries.
    pub(crate) fn pages_of_memory(&self) -> u64 {
        self.frames(|memory| memory.bytes()) >> self.vm.base.shift()
    }

    /// Loads the pages of wired regions into memory and wires them. The caller must not rely on the
    /// places of pages, because some pages may have to be evicted.
    pub(crate) fn wire_pages(
        &mut self,
        at: &mut Within<'_>,
        pages: Range<u64>,
    ) -> Result<(), Error> {
        let (mut next, mut left) = (pages.start, self.pages_of_memory());
        while let Some(region) = at.known.regions.from(next).filter(|of| of.pages.start < pages.end)
        {
            let (page, end) = (next.max(region.pages.start), region.pages.end);
            next = match kind_of(region) {
                Some(_) if left == 0 => break,
                Some(kind) => {
                    left -= 1;
                    self.bring(at, page, kind)?;
                    page + 1
                }
                None => end,
            };
            if next >= pages.end {
                break;
            }
        }
        Ok(())
    }

    /// Wires `frame` for the space at `page`, in place of another frame that the space had wired
    /// there.
    pub(crate) fn wire_at(&mut self, at: &mut Within<'_>, page: u64, frame: FrameId) {
        let before = at.known.wired.insert(page, frame);
        if before == Some(frame) {
            return;
        }
        self.lists(|lists, memory| lists.wire(memory, frame));
        before.into_iter().for_each(|frame| self.unwire(frame));
    }

    pub(crate) fn unwire_pages(&mut self, at: &mut Within<'_>, pages: Range<u64>) {
        let gone = take_range(&mut at.known.wired, pages);
        gone.into_values().for_each(|frame| self.unwire(frame));
    }

    pub(crate) fn unwire(&mut self, frame: FrameId) {
        self.lists(|lists, memory| lists.unwire(memory, frame));
    }
}

/// The kind of access with which a region's pages are brought in: a store for the space's own pages, so
/// that a later store takes no fault. `None` if no access is allowed, or if the pages are given frames,
/// which are in memory.
fn kind_of(region: &Region) -> Option<Kind> {
    let is_own = !matches!(region.backing, Backing::Shared { .. });
    match region.rights {
        _ if region.backing.is_given() => None,
        rights if is_own && rights.contains(Rights::WRITE) => Some(Kind::Store),
        rights if rights.contains(Rights::READ) => Some(Kind::Load),
        _ => None,
    }
}

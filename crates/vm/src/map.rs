//! System calls that change regions: they are mapped, unmapped, moved, protected, discarded.
//!
//! ```text
//!   cut at both ends --> regions change --> hardware forgets --> pages without users are free
//! ```
//!
//! Regions are the authoritative data and change first; translations are changed after them. If
//! more accesses are allowed than before, translations need not change immediately, because faults
//! update them. The right to store is always granted by a fault, page by page, since a page may
//! have other users.

use alloc::{collections::BTreeMap, vec::Vec};
use core::{iter, ops::Range};

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    HatSpace,
    locking::{Locks, Mutex, Site},
};
use pagetable::{Mapping, Translation, Usage};
use physmem::{Allocator, FrameId, Identity, State};

use crate::{
    anon::AnonId,
    error::Error,
    frames::{Owner, REFERENCED},
    host::Host,
    kernel::Kernel,
    module::Module,
    object::{FileKey, ObjectId, PageLocation},
    physical::Physical,
    platform::{Platform, Step},
    region::{Backing, Region, Wired},
    settings::Source,
    stacks,
    vm::{AddressSpace, Within},
};

impl<H: Host> Kernel<'_, H> {
    /// Maps a new region in place of earlier mappings; `label` is a number that the host gives to
    /// the region. The region consists of all pages that contain a byte of `range`. Whether the
    /// page table supports its addresses is checked at the first fault.
    ///
    /// # Errors
    ///
    /// Fails if there is no such space; in that case nothing has changed. Also fails if the region
    /// must be wired and memory is used up; in that case the region is mapped but not completely
    /// wired.
    ///
    /// [`Source::Frames`] is refused if a frame is mapped with other attributes
    /// ([`Error::Attributes`]), or if it is in the manager's memory and not allocated for the
    /// kernel ([`Error::NotGiven`]); in that case nothing has changed. If the page table cannot
    /// express the attributes or has no memory, the new region is not mapped either, but earlier
    /// mappings in `range` have been removed.
    pub fn map(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        rights: Rights,
        source: Source,
        label: u32,
    ) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let pages = self.vm.pages_of(range);
        self.within(space, |kernel, at| {
            let wired = at.known.wires_new;
            let (asked, rights) = (rights, kernel.expressible(rights));
            let (file, first, shared) = match source {
                Source::Anonymous => (None, 0, None),
                Source::SharedMemory => (None, 0, Some(true)),
                Source::File { key, first, shared } => (Some(key), first, Some(shared)),
                Source::Frames { first, attributes } => {
                    return kernel.map_given(at, pages, (rights, asked), first, attributes, label);
                }
            };
            at.known.regions.reserve(&pages)?;
            kernel.pages_stay(|kernel| {
                kernel.remove(at, pages.clone())?;
                let backing = match shared {
                    None => Backing::Anonymous,
                    Some(shared) => kernel.back(file, first, shared, &pages)?,
                };
                let own = match backing {
                    Backing::Anonymous => kernel.vm.own_beside(at.known, &pages, rights),
                    Backing::Private { .. } | Backing::Shared { .. } | Backing::Frames { .. } => {
                        kernel.vm.new_own()
                    }
                };
                let (pages, module) = (pages.clone(), Module::default());
                let has_own = false;
                let region =
                    Region { pages, rights, asked, backing, wired, label, module, own, has_own };
                at.known.regions.insert(region)?;
                Ok::<(), Error>(())
            })?;
            at.known.regions.unreserve();
            if wired == Wired::Now { kernel.wire_pages(at, pages) } else { Ok(()) }
        })
    }

    /// The backing of a new region of these pages by an object from its page `first` on; the object
    /// counts the pages as mapped.
    fn back(
        &mut self,
        file: Option<FileKey>,
        first: u64,
        shared: bool,
        pages: &Range<u64>,
    ) -> Result<Backing, Error> {
        let count = pages.end - pages.start;
        let object = self.vm.objects.hold(self.site, file, count, |object| {
            object.phase = object.phase.or(Some(pages.start.wrapping_sub(first)));
            object.end = object.end.max(first + count);
        })?;
        Ok(match shared {
            true => Backing::Shared { object, first },
            false => Backing::Private { object, first },
        })
    }

    /// Unmaps all pages in `range`.
    pub fn unmap(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let pages = self.vm.pages_of(range);
        self.staying_within(space, |kernel, at| kernel.remove(at, pages))
    }

    /// Sets the rights of all mapped pages in `range`. Regions that have these rights already do
    /// not change (`mprotect_fixup`).
    pub fn protect(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        rights: Rights,
    ) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let (pages, asked) = (self.vm.pages_of(range), rights);
        self.staying_within(space, |kernel, at| {
            for part in at.known.regions.parts(&pages, |region| region.asked != asked)? {
                kernel.protect_part(at, part, asked)?;
            }
            Ok(())
        })
    }

    fn protect_part(
        &mut self,
        at: &mut Within<'_>,
        pages: Range<u64>,
        asked: Rights,
    ) -> Result<(), Error> {
        let rights = self.expressible(asked);
        self.cut_large(at, &pages)?;
        at.known
            .regions
            .change(pages.clone(), |region| (region.rights, region.asked) = (rights, asked))?;
        let Some(range) = self.loaded_range(at.space, &pages) else { return Ok(()) };
        if rights == Rights::NONE {
            return self.unload_used(at, range);
        }
        let (hat, mut below) = self.hat();
        hat.protect(at.space, range, rights.without_write(), &mut below).map_err(Error::of_table)
    }

    /// Moves the pages that are mapped in `from` to `to`, with a length of `to_bytes`. Earlier
    /// mappings at `to` are unmapped. A region of given frames cannot grow ([`Error::Given`]).
    pub fn move_pages(
        &mut self,
        space: HatSpace,
        from: VirtRange,
        to: VirtAddr,
        to_bytes: u64,
    ) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let from = self.vm.pages_of(from);
        let first = self.vm.page_of(to);
        let count = to_bytes.div_ceil(self.vm.base.bytes());
        let moved = count.min(from.end - from.start);
        self.within(space, |kernel, at| {
            if moved < count
                && let Some(last) = from.end.checked_sub(1)
                && at.known.regions.at(last).is_some_and(|region| region.backing.is_given())
            {
                return Err(Error::Given(kernel.vm.addr_of(last)));
            }
            kernel.pages_stay(|kernel| {
                if first != from.start {
                    // Where the source has a hole, earlier mappings at the target stay
                    // (`remap_move`).
                    let source = from.start..from.start + moved;
                    let parts = match moved == count {
                        true => at.known.regions.parts(&source, |_| true)?,
                        false => iter::once(from.start..from.start + count).collect(),
                    };
                    for part in parts {
                        let to = |page: u64| page - from.start + first;
                        kernel.remove(at, to(part.start)..to(part.end))?;
                    }
                    kernel.move_to(at, from.start..from.start + moved, first)?;
                }
                if from.start + moved < from.end {
                    kernel.remove(at, from.start + moved..from.end)?;
                }
                Ok::<(), Error>(())
            })?;
            if moved < count { kernel.extend(at, first + moved, first + count) } else { Ok(()) }
        })
    }

    /// Moves the end of the heap from `before` to `now`.
    pub fn set_break(
        &mut self,
        space: HatSpace,
        before: VirtAddr,
        now: VirtAddr,
        label: u32,
    ) -> Result<(), Error> {
        let up = |addr: VirtAddr| addr.get().next_multiple_of(self.vm.base.bytes());
        let (before, now) = (up(before), up(now));
        let range = |from: u64, to: u64| VirtRange::new(VirtAddr::new(from), to - from).ok();
        if let Some(grown) = range(before, now.max(before)) {
            let rights = Rights::READ | Rights::WRITE;
            return self.map(space, grown, rights, Source::Anonymous, label);
        }
        match range(now, before.max(now)) {
            Some(gone) => self.unmap(space, gone),
            None => Ok(()),
        }
    }

    /// Discards the contents of private pages in `range`: the next access finds the file's contents
    /// again, or zeros. Wired pages and given frames are not discarded. A pinned page is discarded
    /// too: its frame stays with the pin, and the next use gets another frame.
    pub fn discard(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let pages = self.vm.pages_of(range);
        self.staying_within(space, |kernel, at| {
            let stays = |region: &Region| region.wired.stays() || region.backing.is_given();
            let mut left = pages;
            while let Some(region) = at.known.regions.first_in(&left) {
                let part = left.start.max(region.pages.start)..left.end.min(region.pages.end);
                left.start = part.end;
                if stays(region) {
                    continue;
                }
                kernel.cut_large(at, &part)?;
                kernel.unload(at, &part)?;
                kernel.keep_tables(at, &part);
                kernel.reclaim_tables(at, &part);
                kernel.drop_anons(at, part);
            }
            Ok(())
        })
    }

    /// Attaches this module to all mapped pages in `range` (`pm_attach`). Loaded pages keep their
    /// size, except large pages in which the range begins or ends.
    pub fn attach(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        module: Module,
    ) -> Result<(), Error> {
        self.site = Site::Call;
        self.work.calls += 1;
        let pages = self.vm.pages_of(range);
        self.staying_within(space, |kernel, at| {
            let changes = |region: &Region| region.module != module && !region.module.pool;
            for part in at.known.regions.parts(&pages, changes)? {
                kernel.cut_large(at, &part)?;
                at.known.regions.change(part, |region| region.module = module)?;
            }
            Ok(())
        })
    }

    /// Removes the regions, pages and translations in `pages`.
    pub(crate) fn remove(&mut self, at: &mut Within<'_>, pages: Range<u64>) -> Result<(), Error> {
        match self.remove_at_once(at, pages.clone()) {
            Err(Error::NoMemory) => {
                // No memory is left for a list of the regions, so they are removed one by one.
                at.known.regions.cut_ends(&pages)?;
                while let Some(region) = at.known.regions.first_in(&pages) {
                    let part = region.pages.clone();
                    self.remove_at_once(at, part)?;
                }
                Ok(())
            }
            done => done,
        }
    }

    fn remove_at_once(&mut self, at: &mut Within<'_>, pages: Range<u64>) -> Result<(), Error> {
        self.cut_large(at, &pages)?;
        if !at.known.stacks.is_empty() {
            stacks::cut(&mut at.known.stacks, &pages);
        }
        let gone = at.known.regions.take(pages)?;
        let (Some(first), Some(last)) = (gone.first(), gone.last()) else { return Ok(()) };
        let pages = first.pages.start..last.pages.end;
        self.unload(at, &pages)?;
        self.keep_tables(at, &pages);
        self.free_tables(at, &pages);
        self.unwire_pages(at, pages.clone());
        self.drop_anons(at, pages.clone());
        drop(take_range(&mut at.known.offsets, pages));
        self.unpromise(at.space, &gone);
        self.forget_regions(&gone);
        Ok(())
    }

    /// Updates the counts for regions that are no longer in any space.
    pub(crate) fn forget_regions(&mut self, gone: &[Region]) {
        for region in gone {
            if let Some(object) = region.backing.object() {
                self.unmap_object(object, region.pages.end - region.pages.start);
            }
            self.forget_given(region);
        }
    }

    /// Subtracts `pages` from the number of pages that map an object.
    pub(crate) fn unmap_object(&mut self, id: ObjectId, pages: u64) {
        let left = self.vm.objects.with(self.site, id, |object| {
            object.mapped_pages -= pages;
            object.mapped_pages
        });
        if left == 0 {
            self.end_if_unused(id);
        }
    }

    pub(crate) fn end_if_unused(&mut self, id: ObjectId) {
        if let Some(ended) = self.vm.objects.end_if_unused(self.site, id) {
            for (index, place) in ended.pages.iter() {
                self.free_place(Owner::Object(id, index), *place);
            }
            if ended.file.is_none() {
                self.unpromise_object(id);
            }
            if ended.file.is_some() {
                let Identity { object, .. } = Owner::Object(id, 0).identity();
                self.lists(|lists, _| lists.forget(object, 0..=u64::MAX));
            }
        }
    }

    /// Removes this space as a user of its own pages in `pages`.
    pub(crate) fn drop_anons(&mut self, at: &mut Within<'_>, pages: Range<u64>) {
        at.known.anons.drain(pages, |page, anon| self.release([(page, anon)].into_iter()));
    }

    /// Removes a user of each of these anons. No hardware may have a translation to these anons for
    /// this user.
    pub(crate) fn release(&mut self, anons: impl Iterator<Item = (u64, AnonId)>) {
        for (_, anon) in anons {
            if let Some(place) = self.vm.anons.release(self.site, anon) {
                self.free_place(Owner::Anon(anon), place);
            }
        }
    }

    /// Frees the place of a page whose owner no longer exists.
    pub(crate) fn free_place(&mut self, owner: Owner, place: PageLocation) {
        match place {
            PageLocation::Resident(frame) => self.free_page(frame),
            PageLocation::Swapped(slot) => {
                let group = self.vm.swap.with(self.site, |swap| swap.free(slot));
                self.left_swap(group, false);
                let Identity { object, index } = owner.identity();
                self.lists(|lists, _| lists.forget(object, index..=index));
            }
        }
    }

    /// Inserts a region of which another part, or a copy in another space, exists already.
    pub(crate) fn insert(&mut self, known: &mut AddressSpace, region: Region) -> Result<(), Error> {
        let counted = region.clone();
        known.regions.insert(region)?;
        self.map_object(&counted);
        Ok(())
    }

    /// Counts the region as a further mapping of its object or given frames, which are mapped
    /// already.
    pub(crate) fn map_object(&mut self, region: &Region) {
        self.share_given(region);
        if let Some(id) = region.backing.object() {
            let count = region.pages.end - region.pages.start;
            self.vm.objects.with(self.site, id, |object| object.mapped_pages += count);
        }
    }

    /// Unloads all translations in `pages`. A region may be at addresses that the page table does
    /// not support, so that only the range that is loaded is passed to the HAT layer.
    pub(crate) fn unload(&mut self, at: &mut Within<'_>, pages: &Range<u64>) -> Result<(), Error> {
        let Some(range) = self.loaded_range(at.space, pages) else { return Ok(()) };
        self.unload_used(at, range)
    }

    /// Unloads all translations in `range`. If pages were used through these translations, this is
    /// recorded in the pages' descriptors, because other spaces or the page cache may still use the
    /// pages.
    pub(crate) fn unload_used(
        &mut self,
        at: &mut Within<'_>,
        range: VirtRange,
    ) -> Result<(), Error> {
        self.unload_each(at, range, &mut |_| ())
    }

    /// Unloads all translations in `range`, as [`Kernel::unload_used`] does. `also` is called with
    /// each page, as it was before.
    pub(crate) fn unload_each(
        &mut self,
        at: &mut Within<'_>,
        range: VirtRange,
        also: &mut dyn FnMut(&Mapping),
    ) -> Result<(), Error> {
        let (memory, site, vm) = (self.memory, self.site, self.vm);
        let (tables, mut noted) = (&mut at.known.tables, 0..0);
        let each = &mut |mapping: Mapping| {
            also(&mapping);
            note_used(memory, site, vm.base, &mapping);
            vm.keep_table(tables, &mapping, &mut noted);
        };
        let (hat, mut below) = self.hat();
        hat.unload(at.space, range, each, &mut below).map_err(Error::of_table)
    }

    /// The range from the first to the last loaded page of `pages`.
    pub(crate) fn loaded_range(
        &mut self,
        space: HatSpace,
        pages: &Range<u64>,
    ) -> Option<VirtRange> {
        let range = self.vm.range_of(pages);
        let (mut loaded, mut count): (Option<VirtRange>, u64) = (None, 0);
        self.hat.visit(space, range, &mut |mapping| {
            let page = VirtRange::of_page(mapping.translation.page);
            loaded = Some(loaded.map_or(page, |loaded| loaded.hull(page)));
            count += 1;
        });
        self.work.table_reads += count;
        self.platform.work(Step::Hat(hat::Step::TableRead), count);
        loaded
    }

    /// Moves the regions, own pages and translations of `pages` to the unmapped pages from `first`
    /// on.
    fn move_to(&mut self, at: &mut Within<'_>, pages: Range<u64>, first: u64) -> Result<(), Error> {
        let distance = first.wrapping_sub(pages.start);
        let moved_to = |page: u64| page.wrapping_add(distance);
        self.cut_large(at, &pages)?;
        // All memory is allocated before regions change.
        let known = &mut *at.known;
        let mut moved: Vec<(u64, AnonId)> = Vec::new();
        moved.try_reserve_exact(known.anons.count(pages.clone()) as usize)?;
        moved.extend(known.anons.within(pages.clone()));
        moved.iter().try_for_each(|(page, _)| known.anons.prepare(moved_to(*page)))?;
        let parts = known.regions.parts(&pages, |_| true)?;
        known.regions.reserve_for(&pages, moved_to(pages.start))?;
        self.keep_around(at, &pages);
        let (space, mut loaded) = (at.space, Vec::<Mapping>::new());
        if let Some(range) = self.loaded_range(space, &pages) {
            let (vm, tables, mut noted) = (self.vm, &mut at.known.tables, 0..0);
            let (hat, mut below) = self.hat();
            let each = &mut |mapping| {
                vm.keep_table(tables, &mapping, &mut noted);
                loaded.push(mapping);
            };
            hat.unload(space, range, each, &mut below).map_err(Error::of_table)?;
        }
        let known = &mut *at.known;
        let regions = known.regions.take(pages.clone())?;
        stacks::cut(&mut known.stacks, &pages);
        for mut region in regions {
            self.move_promises(space, &region, distance);
            region.pages = moved_to(region.pages.start)..moved_to(region.pages.end);
            region.own.moved = region.own.moved.wrapping_add(distance);
            known.regions.insert(region)?;
        }
        known.regions.unreserve();
        known.anons.renumber(pages.clone(), &moved, moved_to);
        let wired = take_range(&mut known.wired, pages.clone());
        known.wired.extend(wired.into_iter().map(|(page, frame)| (moved_to(page), frame)));
        for part in parts {
            let to = moved_to(part.start);
            self.move_tables(at, &part, to);
        }
        loaded.into_iter().try_for_each(|mapping| self.load_moved(at, &mapping, distance))
    }

    /// Loads the translations that hardware had before their pages moved by `distance` pages. A
    /// large page stays large if its new place is aligned, and is split otherwise
    /// (`move_page_tables`).
    fn load_moved(
        &mut self,
        at: &mut Within<'_>,
        mapping: &Mapping,
        distance: u64,
    ) -> Result<(), Error> {
        let (base, memory, site) = (self.vm.base, self.memory, self.site);
        let Translation { page, frame, .. } = mapping.translation;
        let there = self.vm.addr_of(self.vm.page_of(page.start()).wrapping_add(distance));
        let size = if there.is_aligned(page.size()) { page.size() } else { base };
        // Pages that come in pairs are not loaded here: another size could be in the other half of the pair.
        if self.vm.paired && at.known.has_large {
            note_used(memory, site, base, mapping);
            return Ok(());
        }
        self.work.downgrades += u64::from(size < page.size());
        for into in (0..page.size().bytes()).step_by(size.bytes() as usize) {
            let page = VirtAddr::new(there.get() + into).page(size);
            let frame = PhysAddr::new(frame.get() + into);
            let (hat, mut below) = self.hat();
            let moved = Translation { page, frame, ..mapping.translation };
            // A minor fault loads pages for which a table has no room.
            if hat.load(at.space, moved, 1, &mut below).is_err() {
                note_used(memory, site, base, &Mapping { translation: moved, ..*mapping });
            } else if mapping.usage != Usage::default() {
                hat.set_usage(at.space, page.start(), mapping.usage).map_err(Error::of_table)?;
            }
        }
        Ok(())
    }

    /// Extends the region that ends before page `from` so that it ends before `to`.
    fn extend(&mut self, at: &mut Within<'_>, from: u64, to: u64) -> Result<(), Error> {
        let wired = self.pages_stay(|kernel| {
            kernel.remove(at, from..to)?;
            let last = from.checked_sub(1).and_then(|page| at.known.regions.at(page));
            let Some(region) = last.cloned() else { return Ok(Wired::No) };
            let backing = region.backing.after(from - region.pages.start);
            let wired = region.wired;
            kernel.insert(at.known, Region { pages: from..to, backing, ..region })?;
            Ok::<Wired, Error>(wired)
        })?;
        if wired == Wired::Now { self.wire_pages(at, from..to) } else { Ok(()) }
    }

    /// The smallest set of rights that contains `rights` and that the page table supports: in every
    /// format, a page that may be written or executed may also be read.
    fn expressible(&self, rights: Rights) -> Rights {
        let asked = Rights::from_bits(rights.bits() & !Rights::USER.bits());
        if asked == Rights::NONE {
            return Rights::NONE;
        }
        self.hat.granted(asked | Rights::READ | Rights::USER)
    }
}

/// If an unloaded page was used, records this use in the descriptors of its frames. The descriptors of
/// frames that the kernel has given to a region, if there are any, are the kernel's.
pub(crate) fn note_used<A: Allocator + Send, L: Locks>(
    memory: &Physical<A, L>,
    site: Site,
    base: PageSize,
    mapping: &Mapping,
) {
    if !mapping.usage.referenced {
        return;
    }
    let Translation { page, frame, .. } = mapping.translation;
    let (order, step) = (memory.order(page.size()), memory.order(base));
    memory.with(site, |memory| {
        let first = memory.table().frame_at(frame);
        let is_page = |of: &FrameId| memory.table().get(*of).state() == State::Movable;
        let Some(FrameId(first)) = first.filter(is_page) else { return };
        let frames = (first..first + (1 << order)).step_by(1 << step);
        frames.for_each(|frame| memory.pfdat_mut(FrameId(frame)).flags |= REFERENCED);
    });
}

/// Removes and returns the entries in `range`.
pub(crate) fn take_range<V>(map: &mut BTreeMap<u64, V>, range: Range<u64>) -> BTreeMap<u64, V> {
    let mut taken = map.split_off(&range.start);
    let mut after = taken.split_off(&range.end);
    map.append(&mut after);
    taken
}

//! What processes ask for their regions: mapped, unmapped, moved, protected, discarded.
//!
//! ```text
//!   cut at both ends --> regions change --> hardware forgets --> pages without users are free
//! ```
//!
//! Regions are the truth, and change first; translations follow. Where more is allowed than
//! before, translations need not follow at once: a fault brings them. The right to store is always
//! given so, page by page, since the page may have other users.

use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::Range;

use addr::{Rights, VirtAddr, VirtRange};
use hat::HatSpace;
use pagetable::{Mounted, Translation};
use physmem::Allocator;

use crate::{
    error::Error,
    fault::without_write,
    object::{ObjectId, Place},
    own::OwnPages,
    platform::Platform,
    policy::Module,
    region::{Backing, Region},
    settings::Source,
    vm::Kernel,
};

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// A new region, in place of what was there. `label` is the number that its pages are counted
    /// under. It fails only where the region is to be wired: then it is there, and not all wired.
    pub fn map(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        rights: Rights,
        source: Source,
        label: u32,
    ) -> Result<(), Error> {
        self.vm.work.calls += 1;
        let pages = self.vm.pages_of(range);
        self.remove(space, pages.clone())?;
        let backing = match source {
            Source::Anonymous => Backing::Anonymous,
            Source::SharedMemory => {
                Backing::Shared { object: self.vm.objects.of_memory(), first: 0 }
            }
            Source::File { key, first, shared } => {
                let object = self.vm.objects.of_file(key);
                match shared {
                    true => Backing::Shared { object, first },
                    false => Backing::Private { object, first },
                }
            }
        };
        let wired = self.vm.space(space)?.wires_all;
        let rights = expressible(rights);
        let module = Module::default();
        let own = match backing {
            Backing::Anonymous => self.vm.own_beside(space, &pages, rights),
            Backing::Private { .. } | Backing::Shared { .. } => self.vm.new_own(),
        };
        if let Backing::Private { object, first } | Backing::Shared { object, first } = backing {
            let known = self.vm.objects.get_mut(object);
            known.phase = known.phase.or(Some(pages.start.wrapping_sub(first)));
            known.end = known.end.max(first + (pages.end - pages.start));
        }
        let region = Region { pages: pages.clone(), rights, backing, wired, label, module, own };
        self.insert(space, region)?;
        if wired { self.wire_pages(space, pages) } else { Ok(()) }
    }

    /// Nothing is mapped in `range` any more.
    pub fn unmap(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.vm.work.calls += 1;
        self.remove(space, self.vm.pages_of(range))
    }

    /// What is mapped in `range` has these rights.
    pub fn protect(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        rights: Rights,
    ) -> Result<(), Error> {
        self.vm.work.calls += 1;
        let (pages, rights) = (self.vm.pages_of(range), expressible(rights));
        self.cut_large(space, &pages)?;
        self.vm.space_mut(space)?.regions.change(pages.clone(), |region| region.rights = rights);
        let Some(range) = self.loaded_range(space, &pages) else { return Ok(()) };
        let (hat, mut below) = self.hat();
        let done = if rights == Rights::NONE {
            hat.unload(space, range, &mut |_| (), &mut below)
        } else {
            hat.protect(space, range, without_write(rights), &mut below)
        };
        done.map_err(Error::Table)
    }

    /// What is mapped in `from` is at `to` from here on, and `to_bytes` long; what was there is
    /// gone.
    pub fn move_pages(
        &mut self,
        space: HatSpace,
        from: VirtRange,
        to: VirtAddr,
        to_bytes: u64,
    ) -> Result<(), Error> {
        self.vm.work.calls += 1;
        let from = self.vm.pages_of(from);
        let first = self.vm.page_of(to);
        let count = to_bytes.div_ceil(self.vm.base.bytes());
        let moved = count.min(from.end - from.start);
        if first != from.start {
            self.remove(space, first..first + count)?;
            self.move_to(space, from.start..from.start + moved, first)?;
        }
        if from.start + moved < from.end {
            self.remove(space, from.start + moved..from.end)?;
        }
        if moved < count {
            self.extend(space, first + moved, first + count)?;
        }
        Ok(())
    }

    /// The heap ends at `now` and not at `before`.
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

    /// The contents of private pages in `range` are needed no more: their next use finds the file
    /// again, or zeros. Pages that are wired are left alone.
    pub fn discard(&mut self, space: HatSpace, range: VirtRange) -> Result<(), Error> {
        self.vm.work.calls += 1;
        let pages = self.vm.pages_of(range);
        let known = self.vm.space(space)?;
        let inside = known.regions.all().filter(|region| !region.wired);
        let part =
            |region: &Region| pages.start.max(region.pages.start)..pages.end.min(region.pages.end);
        let parts: Vec<Range<u64>> = inside.map(part).filter(|part| !part.is_empty()).collect();
        for part in parts {
            self.cut_large(space, &part)?;
            self.unload(space, &part)?;
            self.drop_anons(space, part)?;
        }
        Ok(())
    }

    /// What is mapped in `range` has this module from here on (`pm_attach`). Pages that are loaded
    /// keep their size.
    pub fn attach(
        &mut self,
        space: HatSpace,
        range: VirtRange,
        module: Module,
    ) -> Result<(), Error> {
        self.vm.work.calls += 1;
        let pages = self.vm.pages_of(range);
        self.cut_large(space, &pages)?;
        self.vm.space_mut(space)?.regions.change(pages, |region| region.module = module);
        Ok(())
    }

    /// Removes what is in `pages`.
    pub(crate) fn remove(&mut self, space: HatSpace, pages: Range<u64>) -> Result<(), Error> {
        self.cut_large(space, &pages)?;
        let gone = self.vm.space_mut(space)?.regions.take(pages);
        let (Some(first), Some(last)) = (gone.first(), gone.last()) else { return Ok(()) };
        let pages = first.pages.start..last.pages.end;
        self.unload(space, &pages)?;
        self.unwire_pages(space, pages.clone())?;
        self.drop_anons(space, pages)?;
        self.forget_regions(&gone);
        Ok(())
    }

    /// Regions that are in no space any more.
    pub(crate) fn forget_regions(&mut self, gone: &[Region]) {
        for region in gone {
            if let Some(object) = region.backing.object() {
                let count = region.pages.end - region.pages.start;
                self.vm.objects.get_mut(object).mapped_pages -= count;
                self.end_if_unused(object);
            }
        }
    }

    pub(crate) fn end_if_unused(&mut self, object: ObjectId) {
        // Frames of a memory object name it, so that they go first.
        let known = self.vm.objects.get_mut(object);
        if known.file.is_none() && known.mapped_pages == 0 {
            let pages = core::mem::take(&mut known.pages);
            pages.into_values().for_each(|place| self.free_place(place));
        }
        self.vm.objects.end_if_unused(object);
    }

    /// The space's own pages in `pages` lose this user.
    pub(crate) fn drop_anons(&mut self, space: HatSpace, pages: Range<u64>) -> Result<(), Error> {
        let gone = self.vm.space_mut(space)?.anons.take(pages);
        self.release(&gone);
        Ok(())
    }

    /// Anons with a user less.
    pub(crate) fn release(&mut self, anons: &OwnPages) {
        for (_, anon) in anons.each() {
            if let Some(place) = self.vm.anons.release(anon) {
                self.free_place(place);
            }
        }
    }

    fn free_place(&mut self, place: Place) {
        match place {
            Place::Resident(frame) => self.free_page(frame),
            Place::Swapped(slot) => self.vm.swap.free(slot),
        }
    }

    pub(crate) fn insert(&mut self, space: HatSpace, region: Region) -> Result<(), Error> {
        if let Some(object) = region.backing.object() {
            let count = region.pages.end - region.pages.start;
            self.vm.objects.get_mut(object).mapped_pages += count;
        }
        self.vm.space_mut(space)?.regions.insert(region);
        Ok(())
    }

    /// Hardware forgets what is loaded of `pages`. A region may lie where the page table can hold
    /// nothing, so that only what is there is asked for.
    pub(crate) fn unload(&mut self, space: HatSpace, pages: &Range<u64>) -> Result<(), Error> {
        let Some(range) = self.loaded_range(space, pages) else { return Ok(()) };
        let (hat, mut below) = self.hat();
        hat.unload(space, range, &mut |_| (), &mut below).map_err(Error::Table)
    }

    /// From the first page that is loaded of `pages` to the last.
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
        self.vm.work.table_reads += count;
        loaded
    }

    /// Regions, own pages and translations of `pages` go to where nothing is, from page `first` on.
    fn move_to(&mut self, space: HatSpace, pages: Range<u64>, first: u64) -> Result<(), Error> {
        self.cut_large(space, &pages)?;
        let mut loaded: Vec<Translation> = Vec::new();
        if let Some(range) = self.loaded_range(space, &pages) {
            let (hat, mut below) = self.hat();
            let each = &mut |mapping: pagetable::Mapping| loaded.push(mapping.translation);
            hat.unload(space, range, each, &mut below).map_err(Error::Table)?;
        }
        let distance = first.wrapping_sub(pages.start);
        let known = self.vm.space_mut(space)?;
        for mut region in known.regions.take(pages.clone()) {
            let moved = |page: u64| page.wrapping_add(distance);
            region.pages = moved(region.pages.start)..moved(region.pages.end);
            region.own.moved = region.own.moved.wrapping_add(distance);
            known.regions.insert(region);
        }
        for (page, anon) in known.anons.take(pages.clone()).each() {
            known.anons.insert(page.wrapping_add(distance), anon);
        }
        let wired = take_range(&mut known.wired, pages);
        known
            .wired
            .extend(wired.into_iter().map(|(page, frame)| (page.wrapping_add(distance), frame)));
        let (base, has_large) = (self.vm.base, self.vm.space(space)?.has_large);
        for translation in loaded {
            let page = translation.page.number().wrapping_add(distance);
            let page = self.vm.addr_of(page).page(base);
            let (hat, mut below) = self.hat();
            // One that does not get loaded comes back by a minor fault: so does a large page, which
            // may not be aligned there, and what would stand beside one in a TLB's entry.
            if has_large {
                continue;
            }
            let _ = hat.load(space, Translation { page, ..translation }, 1, &mut below);
        }
        Ok(())
    }

    /// What ends before page `from` ends before `to`.
    fn extend(&mut self, space: HatSpace, from: u64, to: u64) -> Result<(), Error> {
        self.remove(space, from..to)?;
        let last = from.checked_sub(1).and_then(|page| self.vm.space(space).ok()?.regions.at(page));
        let Some(region) = last.cloned() else { return Ok(()) };
        let backing = region.backing.after(from - region.pages.start);
        let wired = region.wired;
        self.insert(space, Region { pages: from..to, backing, ..region })?;
        if wired { self.wire_pages(space, from..to) } else { Ok(()) }
    }
}

/// Takes the entries in `range` out.
pub(crate) fn take_range<V>(map: &mut BTreeMap<u64, V>, range: Range<u64>) -> BTreeMap<u64, V> {
    let mut taken = map.split_off(&range.start);
    let mut after = taken.split_off(&range.end);
    map.append(&mut after);
    taken
}

/// The least that every page table can hold and that allows `rights`: whoever may write or execute
/// a page may read it.
fn expressible(rights: Rights) -> Rights {
    let asked = Rights::from_bits(rights.bits() & !Rights::USER.bits());
    if asked == Rights::NONE { Rights::NONE } else { asked | Rights::READ | Rights::USER }
}

//! Base pages from reservations, and large pages made of them without copying (FreeBSD's
//! `vm_reserv` and `pmap_promote_pde`; B10 section 6.1.1).
//!
//! ```text
//!   fault --> which page of which object? --> its own frame in a reservation, or any frame
//!                                                    |
//!             is the reservation full?     <---------+
//!             all in memory, in its frames?                 no: in-page-cache, shared
//!             equal rights, all dirty or none?              no: mixed-rights; clean pages lose the
//!             v                                                 right to store, so that a store is seen
//!             one translation in place of 512
//! ```
//!
//! Objects correspond to those of FreeBSD: a file, shared memory, or the own pages of one mapping
//! and of the mappings that extend it. After a fork both spaces have new objects, since each page
//! to which they store afterwards is a copy.

use core::ops::Range;

use addr::{Kind, Rights, VirtRange};
use hat::{HatSpace, locking::Locks};
use pagetable::{Mapping, Usage};
use physmem::{Allocator, Neighbor};

use crate::{
    anon::AnonId,
    error::{Error, Stop},
    host::Host,
    kernel::Kernel,
    large::{Presence, outside},
    object::{Object, ObjectId, PageLocation},
    region::{Backing, Own, Region},
    settings::{Reference, Reserving},
    vm::{AddressSpace, Vm, Within},
    work::{How, Why},
};

/// The number that page 0 of an address space has in its object, as long as the object was not
/// moved. An object that was moved up can grow down below the address from which it was moved. This
/// number is so large that even then no page gets a negative number.
const FIRST_NUMBER: u64 = 1 << 62;

impl<L: Locks> Vm<L> {
    /// A new object for a region's own pages.
    pub(crate) fn new_own(&self) -> Own {
        Own { number: self.own_number(), moved: 0 }
    }

    /// The object for the own pages of a new anonymous region in `pages`: the object of an adjacent
    /// region with equal properties, which the new region extends, as a heap grows; otherwise a new
    /// object.
    pub(crate) fn own_beside(
        &self,
        known: &AddressSpace,
        pages: &Range<u64>,
        rights: Rights,
    ) -> Own {
        let beside = [pages.start.checked_sub(1), Some(pages.end)].into_iter().flatten();
        let alike = beside
            .filter_map(|page| known.regions.at(page))
            .find(|region| region.rights == rights && region.backing == Backing::Anonymous);
        match alike.map(|region| region.own) {
            Some(own) => own,
            None => self.new_own(),
        }
    }
}

impl<H: Host> Kernel<'_, H> {
    /// If there are reservations, whether they may extend beyond their object, and the number of
    /// pages of the largest reservation.
    fn reservations(&self) -> Option<(bool, u64)> {
        let Reserving { eager } = self.vm.reserving?;
        let largest = self.frames(|memory| memory.allocator().reserver()?.largest_order())?;
        Some((eager, 1 << (largest - self.memory.order(self.vm.base))))
    }

    /// The request for a frame of one of the space's own pages, if the allocator has reservations.
    /// It has the page's object, its number in the object, and the nearest neighbours that have
    /// frames.
    pub(crate) fn own_place(&self, known: &AddressSpace, page: u64) -> Option<physmem::ObjectPage> {
        let (eager, most) = self.reservations()?;
        let region = known.regions.at(page)?;
        let near = near(page, most);
        let object = known.regions.of_one_object(page, near.clone());
        let before = object.start.max(near.start)..page;
        let after = page + 1..object.end.min(near.end);
        let number = |page: u64| FIRST_NUMBER.wrapping_add(page).wrapping_sub(region.own.moved);
        let resident = |(page, anon): (u64, AnonId)| {
            let anon = self.anon(anon);
            match anon.place {
                // Pages that are shared with another space do not belong to this object.
                PageLocation::Resident(frame) if anon.refs == 1 => {
                    Some(Neighbor { index: number(page), frame })
                }
                PageLocation::Resident(_) | PageLocation::Swapped(_) => None,
            }
        };
        Some(physmem::ObjectPage {
            object: region.own.number << 1,
            index: number(page),
            first: if eager { 0 } else { number(object.start) },
            end: number(object.end),
            grows: eager || region.backing == Backing::Anonymous,
            before: known.anons.within(before).rev().find_map(resident),
            after: known.anons.within(after).find_map(resident),
        })
    }

    /// The request for a frame of a page of an object, if the allocator has reservations. It has
    /// the object, the page's number in it, and the object's nearest resident pages.
    pub(crate) fn object_place(
        &self,
        id: ObjectId,
        known: &Object,
        index: u64,
    ) -> Option<physmem::ObjectPage> {
        let (eager, most) = self.reservations()?;
        let phase = known.phase.unwrap_or(0) & (most - 1);
        let near = near(index, most);
        let resident = |(index, place): (u64, &PageLocation)| match *place {
            PageLocation::Resident(frame) => Some(Neighbor { index: index + phase, frame }),
            PageLocation::Swapped(_) => None,
        };
        Some(physmem::ObjectPage {
            object: id.0 << 1 | 1,
            index: index + phase,
            first: if eager { 0 } else { phase },
            end: known.end.max(index + 1) + phase,
            grows: eager || known.file.is_none(),
            before: known.pages.range(near.start..index).rev().find_map(resident),
            after: known.pages.range(index + 1..near.end).find_map(resident),
        })
    }

    /// Makes a larger page of the block around `page`, which a fault has just loaded, if its
    /// reservation is full and its pages have equal properties.
    pub(crate) fn promote(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        kind: Kind,
    ) -> Result<(), Error> {
        let (space, addr) = (at.space, self.vm.addr_of(page));
        let Some(held) = self.hat.query(space, addr).map(|held| held.translation) else {
            return Ok(());
        };
        let frame = self.memory.frame_at(held.apply(addr));
        let full = self.frames(|memory| memory.allocator().reserver()?.full_order(frame));
        let Some(full) = full else { return Ok(()) };
        for place in (1..self.vm.sizes.len()).rev() {
            let size = self.vm.sizes[place];
            if self.memory.order(size) > full || size <= held.page.size() {
                continue;
            }
            let block = self.vm.block(page, size);
            let Some(region) = at.known.regions.at(page).cloned() else { return Ok(()) };
            let place = (space, page);
            match self.promote_block(at, &region, &block, page, kind) {
                Ok(()) => {
                    self.work.upgrades += 1;
                    self.count_upgrade(place, size, Why::Obtained);
                    return Ok(());
                }
                Err(Stopped::Why(why)) => self.count_upgrade(place, size, why),
                Err(Stopped::Stop(Stop::Full)) => {
                    self.count_upgrade(place, size, Why::NoFrame);
                }
                Err(Stopped::Stop(Stop::Refused(error))) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes one page of `block`, which contains `page`, if its reservation is full and its pages have equal
    /// properties. If this fails, no page of the block is loaded.
    fn promote_block(
        &mut self,
        at: &mut Within<'_>,
        region: &Region,
        block: &Range<u64>,
        page: u64,
        kind: Kind,
    ) -> Result<(), Stopped> {
        if block.start < region.pages.start || block.end > region.pages.end {
            return Err(Stopped::Why(outside(at.known, region, block)));
        }
        let space = at.space;
        // The first and the last page are compared first: most blocks with unequal pages are
        // detected by this comparison, without reading all pages.
        let stored = (kind == Kind::Store).then_some(page);
        for end in [block.start, block.end - 1] {
            self.work.table_reads += 1;
            let [own, other] = [page, end].map(|page| self.hat.query(space, self.vm.addr_of(page)));
            let (Some(own), Some(other)) = (own, other) else { continue };
            if self.promoted_rights(&own, stored) != self.promoted_rights(&other, stored) {
                self.protect_clean(space, &[own, other], stored)?;
                return Err(Stopped::Why(Why::MixedRights));
            }
        }
        let (frame, writable) =
            match self.presence(at.known, region, block, false).map_err(Stopped::Why)? {
                Presence::Whole(frame, writable) => (frame, writable),
                Presence::Nothing => return Err(Stopped::Why(Why::missing(region))),
            };
        let held = self.mappings_in(space, block);
        let rights: alloc::vec::Vec<Rights> =
            held.iter().map(|mapping| self.promoted_rights(mapping, stored)).collect();
        let Some(&all) = rights.first() else { return Ok(()) };
        self.protect_clean(space, &held, stored)?;
        if rights.iter().any(|rights| *rights != all) {
            return Err(Stopped::Why(Why::MixedRights));
        }
        let loaded: u64 = held.iter().map(|held| held.translation.page.size().bytes()).sum();
        if loaded == self.vm.size_of(block).bytes() {
            at.known.has_large = true;
            self.set_size(space, block, self.vm.size_of(block))?;
            return Ok(());
        }
        // Pages of a file that other spaces loaded are not mapped here yet: the whole large page is
        // mapped.
        let may_store = writable && all.contains(Rights::WRITE);
        if (if may_store { region.rights } else { region.rights.without_write() }) != all {
            return Err(Stopped::Why(Why::MixedRights));
        }
        let mut used = Usage::default();
        if let Some(range) = self.loaded_range(space, block) {
            self.unload_each(at, range, &mut |gone| {
                used.referenced |= gone.usage.referenced;
                used.dirty |= gone.usage.dirty;
            })?;
        }
        self.load_large(at, region, block, frame, may_store, &mut How::Minor)?;
        // The large page takes over the referenced and dirty bits of the small pages.
        let start = self.vm.addr_of(block.start);
        self.hat.set_usage(space, start, used).map_err(Error::of_table)?;
        Ok(())
    }

    /// The rights that a page may have as a part of a larger one: a clean page loses the right to
    /// store, since a large page has a single dirty bit. The page `stored`, to which a store is
    /// being made, keeps the right.
    fn promoted_rights(&self, held: &Mapping, stored: Option<u64>) -> Rights {
        let page = self.vm.page_of(held.translation.page.start());
        let is_clean =
            self.vm.reference == Reference::Hardware && !held.usage.dirty && stored != Some(page);
        let rights = held.translation.rights;
        if is_clean { rights.without_write() } else { rights }
    }

    /// Removes the right to store from clean pages, so that their first store causes a fault.
    fn protect_clean(
        &mut self,
        space: HatSpace,
        held: &[Mapping],
        stored: Option<u64>,
    ) -> Result<(), Error> {
        for mapping in held {
            let rights = self.promoted_rights(mapping, stored);
            if rights != mapping.translation.rights {
                let range = VirtRange::of_page(mapping.translation.page);
                let (hat, mut below) = self.hat();
                hat.protect(space, range, rights, &mut below).map_err(Error::of_table)?;
            }
        }
        Ok(())
    }
}

/// The range in which neighbours of `page` are searched for.
fn near(page: u64, most: u64) -> Range<u64> {
    page.saturating_sub(2 * most)..page.saturating_add(2 * most)
}

/// The reason why a block is not promoted.
enum Stopped {
    Why(Why),
    Stop(Stop),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Stop(Stop::Refused(error))
    }
}

impl From<Stop> for Stopped {
    fn from(stop: Stop) -> Stopped {
        Stopped::Stop(stop)
    }
}

//! Invariants that hold between operations, while none is in progress.
//!
//! ```text
//!   regions, anons --> frames  <--> descriptors  <--> lists, free blocks
//!         |              ^
//!         +--> pages of the page table: at most what regions allow
//! ```

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use core::ops::Range;

use addr::{PhysAddr, Rights, VirtRange};
use hat::{
    HatSpace,
    locking::{Mutex, Site},
};
use pagetable::{Mapping, Translation};
use physmem::{Allocator, FrameId, State};

use crate::{
    anon::AnonId,
    frames::{DIRTY, Owner, POOL},
    host::Host,
    kernel::Kernel,
    object::{ObjectId, PageLocation},
    region::Backing,
    vm::AddressSpace,
};

/// The owner of each frame, and whether the frame holds a page of a file.
type Owners = BTreeMap<FrameId, (Owner, bool)>;

impl<H: Host> Kernel<'_, H> {
    /// Checks that data that are kept in several places agree. The error describes the first
    /// difference. The check is slow.
    pub fn check(&mut self) -> Result<(), String> {
        self.site = Site::Look;
        self.hand_in();
        self.hat.check().map_err(String::from)?;
        let frames = self.check_places()?;
        self.check_frames(&frames)?;
        let mut wired = BTreeMap::new();
        let mut right = Ok(());
        self.each_space(|kernel, id, space| {
            if right.is_ok() {
                right = kernel.check_space(id, space, &mut wired);
            }
        });
        right?;
        self.lists(|lists, _| {
            for (frame, pins) in lists.pins.each() {
                *wired.entry(frame).or_insert(0) += pins;
            }
        });
        // A frame of a pool is wired by the pool as well.
        for (frame, count) in wired {
            let of_pool = u16::from(self.pfdat(frame).flags & POOL != 0);
            let count = count + of_pool;
            if self.pfdat(frame).wired != count {
                let counted = self.pfdat(frame).wired;
                return Err(format!(
                    "{frame:?} is wired {count} times, but its descriptor has {counted}"
                ));
            }
        }
        let (traps, writes, answered, decisions) = self.vm.look_at_counts(|counts| {
            let answered: u64 = counts.faults.iter().sum();
            let decisions: u64 = counts.decisions().values().sum();
            (counts.work.traps, counts.work.table_writes, answered, decisions)
        });
        if traps < answered {
            return Err(format!(
                "{answered} faults are counted as answered, but only {traps} as faults"
            ));
        }
        if decisions > writes {
            return Err(format!(
                "{decisions} pages have a reason for their size, but only {writes} entries were \
                 written"
            ));
        }
        Ok(())
    }

    fn each_space(&self, mut each: impl FnMut(&Self, HatSpace, &AddressSpace)) {
        for (number, slot) in self.vm.spaces.all() {
            slot.with(Site::Look, |known| {
                known.iter().for_each(|known| each(self, HatSpace(number), known));
            });
        }
    }

    /// Checks the counts of users of anons and of pages mapped by regions. Returns the owner of
    /// each frame.
    fn check_places(&self) -> Result<Owners, String> {
        let mut users: BTreeMap<AnonId, u32> = BTreeMap::new();
        let mut mapped: BTreeMap<ObjectId, u64> = BTreeMap::new();
        let mut given: Vec<Range<u64>> = Vec::new();
        self.each_space(|_, _, space| {
            space.anons.each().for_each(|(_, anon)| *users.entry(anon).or_insert(0) += 1);
            for region in space.regions.all() {
                if let Backing::Frames { first, .. } = region.backing {
                    given.push(first..first + (region.pages.end - region.pages.start));
                }
                if let Some(object) = region.backing.object() {
                    *mapped.entry(object).or_insert(0) += region.pages.end - region.pages.start;
                }
            }
        });
        self.check_given(&given)?;
        let (mut frames, mut slots) = (BTreeMap::new(), BTreeMap::new());
        let mut enter = |place, owner, is_file| {
            let (taken, what) = match place {
                PageLocation::Resident(frame) => (
                    frames.insert(frame, (owner, is_file)).map(|(owner, _)| owner),
                    format!("{frame:?}"),
                ),
                PageLocation::Swapped(slot) => (slots.insert(slot, owner), format!("{slot:?}")),
            };
            taken.map_or(Ok(()), |other| Err(format!("{what} belongs to {other:?} and {owner:?}")))
        };
        let mut right = Ok(());
        self.vm.anons.each(|id, anon| {
            if right.is_err() {
                return;
            }
            right = match users.remove(&id) == Some(anon.refs) {
                true => enter(anon.place, Owner::Anon(id), false),
                false => Err(format!(
                    "{id:?} has a user count of {}, but another number of pages use it",
                    anon.refs
                )),
            };
        });
        right?;
        if let Some((id, _)) = users.first_key_value() {
            return Err(format!("an address space uses {id:?}, which does not exist"));
        }
        let mut right = Ok(());
        self.vm.objects.each(|id, object| {
            if mapped.remove(&id).unwrap_or(0) != object.mapped_pages {
                right = Err(format!(
                    "{id:?} counts {} mapped pages, but regions map another number",
                    object.mapped_pages
                ));
            }
            for (index, &place) in object.pages.iter() {
                if right.is_ok() {
                    right = enter(place, Owner::Object(id, index), object.file.is_some());
                }
            }
        });
        right?;
        if let Some((id, _)) = mapped.first_key_value() {
            return Err(format!("a region maps {id:?}, which does not exist"));
        }
        let used = self.vm.swapped();
        if slots.len() as u64 != used {
            return Err(format!(
                "{used} places of swap are counted as used, but {} pages are in swap",
                slots.len()
            ));
        }
        Ok(frames)
    }

    /// Checks how many of the regions with these frames, which were given to them, map each frame.
    fn check_given(&self, regions: &[Range<u64>]) -> Result<(), String> {
        let runs = self.lists(|lists, _| lists.given.all().to_vec());
        let mut counted = 0;
        for run in runs {
            let users = regions
                .iter()
                .filter(|of| of.start <= run.frames.start && run.frames.end <= of.end);
            if users.count() as u64 != run.users {
                return Err(format!(
                    "frames {:#x?} count {} users, but another number of regions maps them",
                    run.frames, run.users
                ));
            }
            counted += (run.frames.end - run.frames.start) * run.users;
        }
        let mapped: u64 = regions.iter().map(|of| of.end - of.start).sum();
        match counted == mapped {
            true => Ok(()),
            false => Err(format!("regions map {mapped} given frames, but {counted} are recorded")),
        }
    }

    /// Checks the descriptors, lists and counts of frames.
    fn check_frames(&self, frames: &Owners) -> Result<(), String> {
        let (mut wired, mut kinds) = (0, [0; 3]);
        self.frames(|memory| {
            let table = memory.table();
            let all: u64 = State::ALL.iter().map(|&state| table.count(state)).sum();
            if all != table.frames().len() as u64 {
                let frames = table.frames().len();
                return Err(format!("{all} frames have a state, but there are {frames} frames"));
            }
            let largest = memory.allocator().largest_free().unwrap_or(0);
            let blocks = 0..=largest;
            let free: u64 =
                blocks.map(|order| memory.allocator().free_blocks(order) << order).sum();
            if free != table.count(State::Free) {
                let counted = table.count(State::Free);
                return Err(format!(
                    "the free lists have {free} frames, but {counted} frames are free"
                ));
            }
            for (&frame, &(owner, is_file)) in frames {
                let pfdat = table.get(frame);
                if pfdat.state() != State::Movable || Owner::of(pfdat.identity) != Some(owner) {
                    return Err(format!(
                        "{frame:?} belongs to {owner:?}, but its descriptor does not say so"
                    ));
                }
                wired += u64::from(pfdat.wired > 0);
                kinds[match (owner, is_file) {
                    (Owner::Anon(_), _) => 0,
                    (Owner::Object(..), true) => 1,
                    (Owner::Object(..), false) => 2,
                }] += 1;
            }
            Ok(())
        })?;
        let resident = self.vm.resident();
        if kinds != [resident.anon, resident.file, resident.shared] {
            return Err(format!(
                "{kinds:?} anonymous, file and shared pages are in memory, but {resident:?} are \
                 counted"
            ));
        }
        let listed = self.lists(|lists, _| lists.listed(None));
        if listed + wired != frames.len() as u64 {
            let pages = frames.len();
            return Err(format!(
                "{pages} pages are in memory, but {listed} are on lists and {wired} are wired"
            ));
        }
        Ok(())
    }

    /// Checks the wired pages of a space, and that hardware allows no more than its regions.
    fn check_space(
        &self,
        id: HatSpace,
        space: &AddressSpace,
        wired: &mut BTreeMap<FrameId, u16>,
    ) -> Result<(), String> {
        for (&page, &frame) in &space.wired {
            *wired.entry(frame).or_insert(0) += 1;
            if !space.regions.at(page).is_some_and(|region| region.wired.stays()) {
                return Err(format!("page {page:#x} of {id:?} is wired, but its region is not"));
            }
        }
        let lost = space.anons.each().find(|(page, _)| space.regions.at(*page).is_none());
        if let Some((page, _)) = lost {
            return Err(format!("page {page:#x} of {id:?} belongs to no region"));
        }
        if self.hat.space(id).is_none() {
            return Err(format!("{id:?} has no page table"));
        }
        let (mut held, mut sizes) = (Vec::new(), BTreeMap::new());
        self.hat.visit(id, VirtRange::ALL, &mut |mapping| held.push(mapping));
        for Mapping { translation: held, .. } in held {
            let pages = self.vm.pages_of(VirtRange::of_page(held.page));
            sizes.insert(pages.start, pages.end);
            let stays = space.regions.at(pages.start).is_some_and(|region| region.wired.stays());
            if space.is_given(pages.start) {
                self.check_given_page(space, id, &held)?;
                continue;
            }
            for page in pages.clone() {
                let into = (page - pages.start) << self.vm.base.shift();
                if self.is_zeros(space, page, PhysAddr::new(held.frame.get() + into), held.rights) {
                    continue;
                }
                if stays && !space.wired.contains_key(&page) {
                    return Err(format!(
                        "page {page:#x} of {id:?} is in a wired region, but not wired"
                    ));
                }
                let Some((frame, allowed)) = self.truth(space, page) else {
                    return Err(format!(
                        "the page table has page {page:#x} of {id:?}, which is not in memory"
                    ));
                };
                if held.frame.get() + into != self.address(frame).get()
                    || !allowed.contains(held.rights)
                {
                    return Err(format!(
                        "page {page:#x} of {id:?}: the page table has {held:?}, but the manager has \
                         {frame:?} with at most the rights {allowed}"
                    ));
                }
            }
            if space.regions.at(pages.start).is_none_or(|region| region.pages.end < pages.end) {
                return Err(format!(
                    "the page at {:#x} of {id:?} extends beyond its region",
                    pages.start
                ));
            }
            if pages.end - pages.start > 1 && !space.has_large {
                return Err(format!("{id:?} has a large page, but is recorded as having none"));
            }
        }
        self.check_pairs(&sizes).map_err(|page| {
            format!("page {page:#x} of {id:?} and the other page of its pair have different sizes")
        })
    }

    /// Checks a translation of frames that were given to its region.
    fn check_given_page(
        &self,
        space: &AddressSpace,
        id: HatSpace,
        held: &Translation,
    ) -> Result<(), String> {
        let pages = self.vm.pages_of(VirtRange::of_page(held.page));
        let right = space.regions.at(pages.start).is_some_and(|region| {
            let Backing::Frames { first, attributes } = region.backing else { return false };
            let frame = first + (pages.start - region.pages.start);
            pages.end <= region.pages.end
                && held.frame.get() == frame << self.vm.base.shift()
                && held.attributes == attributes
                && region.rights.contains(held.rights)
                && (pages.end - pages.start == 1 || space.has_large)
        });
        match right {
            true => Ok(()),
            false => Err(format!(
                "{held:?} of {id:?} does not match the frames that were given to its region"
            )),
        }
    }

    /// Checks that the two pages of a pair have the same size, or that one of them is not mapped.
    /// `pages` has the end of each page by its first base page. The error is a page whose pair has
    /// another size.
    fn check_pairs(&self, pages: &BTreeMap<u64, u64>) -> Result<(), u64> {
        for (&start, &end) in pages.iter().filter(|_| self.vm.paired) {
            let other = self.vm.pair_of(&(start..end));
            let before = pages.range(..other.end).next_back();
            let there = before.filter(|&(_, &end)| end > other.start);
            if there.is_some_and(|(&first, &last)| (first, last) != (other.start, other.end)) {
                return Err(start);
            }
        }
        Ok(())
    }

    /// Whether `at` is a frame of zeros at an untouched page of anonymous memory, which hardware may
    /// not store to.
    fn is_zeros(&self, space: &AddressSpace, page: u64, at: PhysAddr, rights: Rights) -> bool {
        let region = space.regions.at(page);
        self.holds_zeros(at)
            && !rights.contains(Rights::WRITE)
            && space.anons.get(page).is_none()
            && region.is_some_and(|region| {
                region.backing == Backing::Anonymous && region.rights.contains(rights)
            })
    }

    /// The frame of a page, if it is in memory, and the rights that hardware may allow at this
    /// page.
    fn truth(&self, space: &AddressSpace, page: u64) -> Option<(FrameId, Rights)> {
        let region = space.regions.at(page)?;
        let into = page - region.pages.start;
        let (place, writable) = match (space.anons.get(page), region.backing) {
            (Some(anon), _) => {
                let anon = self.anon(anon);
                (anon.place, anon.refs == 1)
            }
            (None, Backing::Anonymous | Backing::Frames { .. }) => return None,
            (None, Backing::Private { object, first } | Backing::Shared { object, first }) => {
                let place = self.object_place_of(object, first + into)?;
                let shared = matches!(region.backing, Backing::Shared { .. });
                let dirty = matches!(place, PageLocation::Resident(frame)
                    if self.pfdat(frame).flags & DIRTY != 0);
                (place, shared && dirty)
            }
        };
        let PageLocation::Resident(frame) = place else { return None };
        let rights = if writable { region.rights } else { region.rights.without_write() };
        Some((frame, rights))
    }
}

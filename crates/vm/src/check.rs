//! What must hold between operations (identities, OS.md of this project's design, section 3.4).
//!
//! ```text
//!   regions, anons --> frames  <--> descriptors  <--> lists, free blocks
//!         |              ^
//!         +--> pages of the page table: at most what regions allow
//! ```

use alloc::{collections::BTreeMap, format, string::String};

use addr::{Rights, VirtRange};
use pagetable::{Mapping, Mounted};
use physmem::{Allocator, FrameId, State};

use crate::{
    anon::AnonId,
    frames::{DIRTY, Owner},
    object::Place,
    platform::Platform,
    region::Backing,
    vm::Kernel,
};

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// Compares what is kept in several places. An error says what differs. Slow.
    pub fn check(&self) -> Result<(), String> {
        self.hat.check().map_err(String::from)?;
        let frames = self.check_places()?;
        self.check_frames(&frames)?;
        self.check_spaces()?;
        let decisions: u64 = self.vm.decisions.values().sum();
        let answered: u64 = self.vm.faults.iter().sum();
        if self.vm.work.traps < answered {
            return Err(format!("{answered} faults are answered of {}", self.vm.work.traps));
        }
        if decisions > self.vm.work.table_writes {
            return Err(format!("{decisions} pages have a reason for their size: too many"));
        }
        Ok(())
    }

    /// Users of anons and pages of regions, as counted and as they are. Gives each frame's owner.
    fn check_places(&self) -> Result<BTreeMap<FrameId, Owner>, String> {
        let mut users: BTreeMap<AnonId, u32> = BTreeMap::new();
        let mut mapped = BTreeMap::new();
        for space in self.vm.spaces.values() {
            space.anons.each().for_each(|(_, anon)| *users.entry(anon).or_insert(0) += 1);
            for region in space.regions.all() {
                if let Some(object) = region.backing.object() {
                    *mapped.entry(object).or_insert(0) += region.pages.end - region.pages.start;
                }
            }
        }
        let (mut frames, mut slots) = (BTreeMap::new(), BTreeMap::new());
        let mut enter = |place, owner| {
            let (taken, what) = match place {
                Place::Resident(frame) => (frames.insert(frame, owner), format!("{frame:?}")),
                Place::Swapped(slot) => (slots.insert(slot, owner), format!("{slot:?}")),
            };
            taken.map_or(Ok(()), |other| Err(format!("{what} is {other:?}'s and {owner:?}'s")))
        };
        for (id, anon) in self.vm.anons.all() {
            if users.remove(&id) != Some(anon.refs) {
                return Err(format!("{id:?} does not have its {} users", anon.refs));
            }
            enter(anon.place, Owner::Anon(id))?;
        }
        if let Some((id, _)) = users.first_key_value() {
            return Err(format!("{id:?} is used and does not exist"));
        }
        for (id, object) in self.vm.objects.all() {
            if mapped.remove(&id).unwrap_or(0) != object.mapped_pages {
                return Err(format!("{id:?} is not mapped by {} pages", object.mapped_pages));
            }
            for (&index, &place) in &object.pages {
                enter(place, Owner::Object(id, index))?;
            }
        }
        if slots.len() as u64 != self.vm.swap.used() {
            let used = self.vm.swap.used();
            return Err(format!("{used} places of swap are used, by {} pages", slots.len()));
        }
        Ok(frames)
    }

    /// Descriptors, lists and counts of frames.
    fn check_frames(&self, frames: &BTreeMap<FrameId, Owner>) -> Result<(), String> {
        let table = self.memory.table();
        let all: u64 = State::ALL.iter().map(|&state| table.count(state)).sum();
        if all != table.frames().len() as u64 {
            return Err(format!("frames by state are {all}"));
        }
        let largest = self.memory.allocator().largest_free().unwrap_or(0);
        let blocks = 0..=largest;
        let free: u64 =
            blocks.map(|order| self.memory.allocator().free_blocks(order) << order).sum();
        if free != table.count(State::Free) {
            return Err(format!("{free} frames are in free lists, others are free"));
        }
        let (mut wired, mut kinds) = (0, [0; 3]);
        for (&frame, &owner) in frames {
            let pfdat = table.get(frame);
            if pfdat.state() != State::Movable || Owner::of(pfdat.identity) != Some(owner) {
                return Err(format!("{frame:?} does not know that it is {owner:?}'s"));
            }
            wired += u64::from(pfdat.wired > 0);
            kinds[match owner {
                Owner::Anon(_) => 0,
                Owner::Object(object, _) if self.vm.objects.get(object).file.is_some() => 1,
                Owner::Object(..) => 2,
            }] += 1;
        }
        let resident = self.vm.resident;
        if kinds != [resident.anon, resident.file, resident.shared] {
            return Err(format!("in memory are {kinds:?}, counted {resident:?}"));
        }
        if self.vm.policy.pages() + wired != frames.len() as u64 {
            let listed = self.vm.policy.pages();
            return Err(format!("of {} pages {listed} are listed, {wired} wired", frames.len()));
        }
        Ok(())
    }

    /// Wired pages, and that hardware can do no more than regions allow.
    fn check_spaces(&self) -> Result<(), String> {
        let mut wired: BTreeMap<FrameId, u16> = BTreeMap::new();
        for (&id, space) in &self.vm.spaces {
            for (&page, &frame) in &space.wired {
                *wired.entry(frame).or_insert(0) += 1;
                if !space.regions.at(page).is_some_and(|region| region.wired) {
                    return Err(format!("page {page:#x} of {id:?} is wired in no wired region"));
                }
            }
            let lost = space.anons.each().find(|(page, _)| space.regions.at(*page).is_none());
            if let Some((page, _)) = lost {
                return Err(format!("page {page:#x} of {id:?} is in no region"));
            }
            if self.hat.space(id).is_none() {
                return Err(format!("{id:?} has no page table"));
            }
            let mut wrong = None;
            let mut sizes = BTreeMap::new();
            self.hat.visit(id, VirtRange::ALL, &mut |mapping| {
                let Mapping { translation: held, .. } = mapping;
                let pages = self.vm.pages_of(VirtRange::of_page(held.page));
                sizes.insert(pages.start, pages.end);
                for page in pages.clone() {
                    let Some((frame, allowed)) = self.truth(id, page) else {
                        wrong = Some(format!("hardware has page {page:#x} of {id:?}, nobody else"));
                        return;
                    };
                    let into = (page - pages.start) << self.vm.base.shift();
                    if held.frame.get() + into != self.address(frame).get()
                        || !allowed.contains(held.rights)
                    {
                        wrong = Some(format!(
                            "page {page:#x} of {id:?} is {frame:?} ({allowed}), and {held:?} to \
                             hardware"
                        ));
                    }
                }
                if space.regions.at(pages.start).is_none_or(|region| region.pages.end < pages.end) {
                    wrong = Some(format!("page {:#x} of {id:?} leaves its region", pages.start));
                }
                if pages.end - pages.start > 1 && !space.has_large {
                    wrong = Some(format!("{id:?} does not know that it has large pages"));
                }
            });
            wrong.map_or(Ok(()), Err)?;
            self.check_pairs(&sizes).map_err(|page| {
                format!("page {page:#x} of {id:?} and the other of its pair have two sizes")
            })?;
        }
        for (frame, count) in wired {
            if self.memory.table().get(frame).wired != count {
                return Err(format!("{frame:?} is wired {count} times, and counts others"));
            }
        }
        Ok(())
    }

    /// That both pages of a pair have one size, or one of them is not there: pages by their first base
    /// page, with their end. An error is a page whose pair does not.
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

    /// Where a page is in memory, and what hardware may allow there.
    fn truth(&self, space: hat::HatSpace, page: u64) -> Option<(FrameId, Rights)> {
        let space = self.vm.spaces.get(&space)?;
        let region = space.regions.at(page)?;
        let into = page - region.pages.start;
        let (place, writable) = match (space.anons.get(page), region.backing) {
            (Some(anon), _) => {
                let anon = self.vm.anons.get(anon);
                (anon.place, anon.refs == 1)
            }
            (None, Backing::Anonymous) => return None,
            (None, Backing::Private { object, first } | Backing::Shared { object, first }) => {
                let place = *self.vm.objects.get(object).pages.get(&(first + into))?;
                let shared = matches!(region.backing, Backing::Shared { .. });
                let dirty = matches!(place, Place::Resident(frame)
                    if self.memory.table().get(frame).flags & DIRTY != 0);
                (place, shared && dirty)
            }
        };
        let Place::Resident(frame) = place else { return None };
        let rights =
            if writable { region.rights } else { crate::fault::without_write(region.rights) };
        Some((frame, rights))
    }
}

//! Operations that create translations: loading at a fault, duplicating at a fork, and mapping from
//! another space. They steal another space's tables if no memory is left for tables.

use addr::{Page, PhysAddr, VirtRange};
use pagetable::{Error, Intent, Mapping, Mounted, SubtreeEdit, Translation, Unfit};
use smallvec::SmallVec;

use crate::{
    frame::Noted,
    hat::{Change, Hat, LoadError, mapped, noted},
    locking::{Below, Held, Part, Scheme, Site},
    platform::{Platform, Step},
    room::Gathered,
    space::{AddressSpace, HatSpace, Mmu, MmuPlace, in_place},
    sparse::ELEMENTS_MAX,
    table_frames::PoolFrames,
};

/// The pages found in a range.
pub(crate) type Mappings = SmallVec<[Mapping; 1]>;

/// The largest number of spaces that may lose their tables for one load. It is larger than the
/// number of tables that a load needs.
const STEALS_MAX: u32 = 16;

/// Why an attempt to load has ended.
enum Stop {
    /// The base frame with this number is being unloaded.
    Unloading(u64),
    Refused(LoadError),
}

impl Stop {
    const NO_MEMORY: Stop = Stop::Refused(LoadError::NoMemory);
}

/// Pages to be loaded for the owner of their frames, and the space and MMU to load them into.
#[derive(Clone, Copy)]
struct Wanted {
    space: HatSpace,
    place: MmuPlace,
    first: Translation,
    count: u64,
}

/// How a page is passed from one space to another.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    /// The taker gets a copy, as a sibling of the giver's page.
    Copy,
    /// The giver maps the page to the taker.
    Map,
    /// The giver maps the page to the taker and is about to lose it.
    Grant,
}

/// The taker's state for a page that is passed to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Has {
    Nothing,
    /// The taker has a node with this name; the page itself will be mapped next.
    Node(u32),
    /// The taker already has the page from this giver. The taker's page only gets the rights that
    /// it lacks.
    Already,
}

/// Pages that one space passes to another: the giver's pages, and the taker's.
pub(crate) struct Passed<'a> {
    pub(crate) from: HatSpace,
    pub(crate) to: HatSpace,
    pub(crate) passing: Passing,
    pub(crate) pages: &'a [(Mapping, Translation)],
}

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Maps `count` adjacent pages to adjacent frames, the first of them `first` (K94 operation 1).
    ///
    /// None of the addresses may be mapped: the memory manager first unloads what it replaces. The
    /// layer numbers base frames with 32 bits, so it supports 16 TiB of physical memory in frames
    /// of 4K, whatever the table supports.
    pub fn load(
        &self,
        space: HatSpace,
        first: Translation,
        count: u64,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.load_in(space, MmuPlace::PROCESSOR, first, count, platform)
    }

    /// Like [`Hat::load`], but for another MMU of the space, whose place [`Hat::attach`] returned.
    pub fn load_in(
        &self,
        space: HatSpace,
        place: MmuPlace,
        first: Translation,
        count: u64,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        let bytes = first.page.size().bytes().checked_mul(count);
        let end = bytes.and_then(|bytes| first.frame.get().checked_add(bytes));
        if end.is_none_or(|end| self.number(PhysAddr::new(end)) >= ELEMENTS_MAX) {
            return Err(LoadError::Table(Error::Unfit(Unfit::Physical(first.frame))));
        }
        self.note_size(first.page.size());
        let wanted = Wanted { space, place, first, count };
        self.scheme.enter(Site::Load, |held| {
            platform.work(Step::Operation, 1);
            let mut steals = 0;
            loop {
                match self.try_load(held, wanted, platform) {
                    Ok(()) => return Ok(()),
                    Err(Stop::Unloading(frame)) => {
                        held.frame(frame, |frame| (!frame.is_unloading()).then_some(()));
                    }
                    Err(Stop::Refused(LoadError::NoTableMemory))
                        if steals < STEALS_MAX && self.steal(held, space.0, platform) =>
                    {
                        steals += 1;
                    }
                    Err(Stop::Refused(error)) => return Err(error),
                }
            }
        })
    }

    fn try_load(
        &self,
        held: &mut S::Held<'_>,
        wanted: Wanted,
        platform: &mut impl Platform,
    ) -> Result<(), Stop> {
        let Wanted { space, place, first, count } = wanted;
        held.space(space.0, in_place(place.0), |entry, held| {
            let no_space = Stop::Refused(LoadError::NoSpace(space));
            let Some(entry) = entry else { return Err(no_space) };
            let bytes = first.page.size().bytes();
            let whole = VirtRange::new(first.page.start(), bytes.saturating_mul(count));
            let range = whole.unwrap_or(VirtRange::ALL);
            if entry.limit.is_some_and(|limit| !limit.covers(range)) {
                let unfit = Unfit::Virtual(first.page.start());
                return Err(Stop::Refused(LoadError::Table(Error::Unfit(unfit))));
            }
            let number =
                |place: usize| self.number(PhysAddr::new(first.frame.get() + place as u64 * bytes));
            let page = |number: usize| {
                let start = first.page.start().wrapping_add(number as u64 * bytes);
                mapped(space, place.0, start.page(first.page.size()))
            };
            let size = first.page.size();
            let intent = Intent::Add { size, global: first.global };
            // Nearly every load makes nothing stale, and then there is no token.
            let mut stale = None;
            self.part(held, (space, entry), range, intent, |part, below| {
                if part.table().is_none() {
                    return Err(no_space);
                }
                let (has_notes, mut names) = (part.has_notes(), SmallVec::<[u32; 8]>::new());
                let room = if has_notes { count as usize } else { 0 };
                names.try_reserve(room).map_err(|_| Stop::NO_MEMORY)?;
                if self.is_limited() {
                    part.prepare_loaded().map_err(|_| Stop::NO_MEMORY)?;
                }
                let (mut entered, mut result) = (0, Ok(()));
                below.frames(count as usize, number, |place, frame| {
                    platform.work(Step::Mapping, 1);
                    platform.touch(number(place), true);
                    let Some(frame) = frame else {
                        result = Err(Stop::NO_MEMORY);
                        return false;
                    };
                    if frame.is_unloading() {
                        result = Err(Stop::Unloading(number(place)));
                        return false;
                    }
                    let Ok(name) = frame.insert(page(place)) else {
                        result = Err(Stop::NO_MEMORY);
                        return false;
                    };
                    if has_notes {
                        names.push(name);
                    }
                    entered += 1;
                    true
                });
                let result = result.and_then(|()| {
                    let frames = &mut PoolFrames { below, platform: platform.frames() };
                    match part.map(entry.inner, (first, count), &names, frames) {
                        Ok(flush) if flush.is_empty() => {}
                        Ok(flush) => stale = Some(flush),
                        Err(error) => return Err(Stop::Refused(error.into())),
                    }
                    Ok(())
                });
                match &result {
                    Ok(_) => {
                        platform.work(Step::TableWrite, count);
                        self.count_in(part, size, count as usize);
                        self.note_loaded(part, space);
                    }
                    Err(_) => below.frames(entered, number, |place, frame| {
                        let note = names.get(place).copied().unwrap_or(0);
                        if let Some(frame) = frame {
                            frame.remove(Noted { page: page(place), note });
                        }
                        true
                    }),
                }
                result
            })?;
            if let Some(flush) = stale {
                let mut change = Change::default();
                change.flush(space, flush);
                self.finish(held, &mut change, platform);
            }
            Ok(())
        })
    }

    fn note_loaded(&self, part: &mut Part<'_, Mmu<T>>, space: HatSpace) {
        if let Some(now) = self.tick() {
            part.note_loaded(space, now);
        }
    }

    /// Loads the pages of `passed`. Pages that the giver no longer has, or that are being unloaded, are
    /// skipped. After an error, the taker has some of the pages.
    pub(crate) fn load_passed(
        &self,
        held: &mut S::Held<'_>,
        passed: Passed<'_>,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        let mut passed = passed;
        let mut steals = 0;
        loop {
            let (done, result) = self.try_pass(held, &passed, platform);
            passed.pages = &passed.pages[done..];
            match result {
                Err(LoadError::NoTableMemory)
                    if steals < STEALS_MAX && self.steal(held, passed.to.0, platform) =>
                {
                    steals += 1;
                }
                Ok(()) if !passed.pages.is_empty() => {}
                result => return result,
            }
        }
    }

    /// Tries to load the pages, with the taker's descriptors locked once for all of them. Returns
    /// the number of pages that were loaded.
    fn try_pass(
        &self,
        held: &mut S::Held<'_>,
        passed: &Passed<'_>,
        platform: &mut impl Platform,
    ) -> (usize, Result<(), LoadError>) {
        let &Passed { from, to, passing, pages } = passed;
        if pages.is_empty() {
            return (0, Ok(()));
        }
        let mut has = SmallVec::<[Has; 8]>::new();
        if has.try_reserve(pages.len()).is_err() {
            return (0, Err(LoadError::NoMemory));
        }
        has.resize(pages.len(), Has::Nothing);
        held.space(to.0, AddressSpace::processor, |entry, held| {
            let no_space = LoadError::NoSpace(to);
            let Some(entry) = entry else { return (0, Err(no_space)) };
            let number = |place: usize| self.number(pages[place].1.frame);
            let page = |place: usize| mapped(to, 0, pages[place].1.page);
            let mut change = Change::default();
            let range = hull(pages.iter().map(|(_, page)| page.page));
            let global = pages.iter().any(|(_, page)| page.global);
            let intent = Intent::Add { size: pages[0].1.page.size(), global };
            let done = self.part(held, (to, entry), range, intent, |part, below| {
                if part.table().is_none() {
                    return (0, Err(no_space));
                }
                let has_notes = part.has_notes();
                let (mut done, mut result) = (pages.len(), Ok(()));
                if self.is_limited() && part.prepare_loaded().is_err() {
                    return (0, Err(LoadError::NoMemory));
                }
                below.frames(pages.len(), number, |place, frame| {
                    platform.work(Step::Mapping, 1);
                    platform.touch(number(place), true);
                    let giver = noted(from, 0, &pages[place].0);
                    let Some(frame) = frame else {
                        result = Err(LoadError::NoMemory);
                        return false;
                    };
                    let new = match passing {
                        _ if frame.is_unloading() => Ok(None),
                        Passing::Copy => frame.insert_beside(giver, page(place)),
                        Passing::Map if frame.is_child(giver, page(place)) => {
                            has[place] = Has::Already;
                            return true;
                        }
                        Passing::Map => frame.insert_below(giver, page(place)),
                        Passing::Grant => frame.insert_above(giver, page(place)),
                    };
                    match new {
                        Ok(Some(name)) => has[place] = Has::Node(name),
                        Ok(None) => {}
                        Err(no_memory) => {
                            result = Err(no_memory.into());
                            return false;
                        }
                    }
                    true
                });
                // If no memory is left for a node, no page is passed on.
                let entering = if result.is_ok() { &has[..] } else { &[] };
                if result.is_err() {
                    done = 0;
                }
                for (place, has) in entering.iter().enumerate() {
                    let wanted = pages[place].1;
                    let entered = match *has {
                        Has::Nothing => continue,
                        Has::Node(name) => {
                            let names = if has_notes { &[name][..] } else { &[] };
                            let frames = &mut PoolFrames { below, platform: platform.frames() };
                            let mapped = part.map(entry.inner, (wanted, 1), names, frames);
                            if mapped.is_ok() {
                                self.count_in(part, wanted.page.size(), 1);
                            }
                            mapped
                        }
                        Has::Already => part.widen(entry.inner, wanted),
                    };
                    match entered {
                        Ok(flush) => {
                            if !change.flush(to, flush) {
                                // No further token can be added. The remaining pages are passed on
                                // after the flush.
                                platform.work(Step::TableWrite, 1);
                                done = place + 1;
                                break;
                            }
                        }
                        Err(error) => {
                            (done, result) = (place, Err(LoadError::from(error)));
                            break;
                        }
                    }
                    platform.work(Step::TableWrite, 1);
                }
                if done > 0 {
                    self.note_loaded(part, to);
                }
                let undone = |place: usize| match has[done + place] {
                    Has::Node(note) => Some(Noted { page: page(done + place), note }),
                    Has::Nothing | Has::Already => None,
                };
                let left = pages.len() - done;
                let mut next = 0;
                // Only the frames of pages whose node must be removed again are locked.
                while let Some(first) = (next..left).find(|place| undone(*place).is_some()) {
                    let run = (first..left).take_while(|place| undone(*place).is_some()).count();
                    let number = |at: usize| number(done + first + at);
                    below.frames(run, number, |at, frame| {
                        let (Some(frame), Some(page)) = (frame, undone(first + at)) else {
                            return true;
                        };
                        match passing {
                            Passing::Copy | Passing::Map => frame.remove(page),
                            Passing::Grant => {
                                let giver = noted(from, 0, &pages[done + first + at].0);
                                frame.remove_above(giver.page, page);
                            }
                        }
                        true
                    });
                    next = first + run;
                }
                (done, result)
            });
            self.finish(held, &mut change, platform);
            done
        })
    }

    /// Gives the space `to` the mappings that `from` has in `range`, and removes the right to write
    /// from both spaces. This serves a fork whose pages are copied on write.
    ///
    /// If memory for tables runs out, `to` gets only some of the mappings and faults for the
    /// others.
    pub fn duplicate(
        &self,
        from: HatSpace,
        to: HatSpace,
        range: VirtRange,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.scheme.enter(Site::Duplicate, |held| {
            platform.work(Step::Operation, 1);
            let shared = self.write_protected(held, from, range, platform)?;
            let copy = |mapping: &Mapping| {
                let rights = mapping.translation.rights.without_write();
                (*mapping, Translation { rights, ..mapping.translation })
            };
            let mut pages = SmallVec::<[(Mapping, Translation); 1]>::new();
            pages.try_reserve(shared.len()).map_err(|_| LoadError::NoMemory)?;
            pages.extend(shared.iter().map(copy));
            let passed = Passed { from, to, passing: Passing::Copy, pages: &pages };
            self.load_passed(held, passed, platform)
        })
    }

    /// Removes the right to write from the mappings in `range`. Returns the mappings as they were.
    fn write_protected(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        range: VirtRange,
        platform: &mut impl Platform,
    ) -> Result<Mappings, LoadError> {
        held.space(space.0, AddressSpace::processor, |entry, held| {
            let entry = entry.ok_or(LoadError::NoSpace(space))?;
            let mut change = Change::default();
            let shared = self.part(held, (space, entry), range, Intent::Change, |part, _| {
                part.settle(space);
                let mut shared = Gathered::new();
                let each = &mut |mapping| shared.add(mapping);
                part.table().ok_or(LoadError::NoSpace(space))?.visit(entry.inner, range, each);
                let shared: Mappings = shared.all()?;
                platform.work(Step::TableRead, shared.len() as u64);
                for Mapping { translation, .. } in &shared {
                    let rights = translation.rights.without_write();
                    if rights != translation.rights {
                        let range = VirtRange::of_page(translation.page);
                        let edit = SubtreeEdit::Protect(rights);
                        let flush = part.edit(entry.inner, range, edit, &mut |_| ());
                        // This cannot fail: no table is removed, so all tokens of the space merge
                        // into one.
                        change.flush(space, flush.map_err(LoadError::Table)?);
                        platform.work(Step::TableWrite, 1);
                    }
                }
                Ok(shared)
            });
            self.finish(held, &mut change, platform);
            shared
        })
    }

    /// Removes all page tables of the least recently loaded space other than `but`. The
    /// translations of that space are restored by minor faults. Returns whether there was a space
    /// with tables.
    pub(crate) fn steal<P: Platform>(
        &self,
        held: &mut S::Held<'_>,
        but: u32,
        platform: &mut P,
    ) -> bool {
        let mut loaded = Gathered::<[(usize, u32); 8]>::new();
        let end = held.numbers(|numbers| numbers.mmus.end());
        for mmu in (0..end).filter(|_| self.tick().is_some()) {
            held.mmu(mmu, |mmu, _| {
                mmu.loaded.each().for_each(|(space, at)| loaded.add((at, space)));
            });
        }
        let Ok(mut loaded) = loaded.all() else { return false };
        loaded.sort_unstable();
        let mut others = loaded.into_iter().filter(|&(_, space)| space != but);
        let stolen = others.any(|(_, space)| {
            let space = HatSpace(space);
            let each = &mut |page: &_, platform: &mut P| platform.stolen(space, page);
            let unloaded = self.unload_range(held, space, VirtRange::ALL, each, platform);
            unloaded.is_ok_and(|pages| pages > 0)
        });
        if stolen {
            held.pool(|pool| pool.note_steal());
        }
        stolen
    }
}

/// The range from the first to the last of these pages.
pub(crate) fn hull(pages: impl Iterator<Item = Page>) -> VirtRange {
    let ranges = pages.map(VirtRange::of_page);
    ranges.reduce(|hull, page| hull.hull(page)).unwrap_or(VirtRange::ALL)
}

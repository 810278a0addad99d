//! Translations come: loaded at faults, copied at a fork, and taken from another space where no
//! memory is left for tables.

use alloc::vec::Vec;

use addr::{PhysAddr, Rights, VirtRange};
use pagetable::{Error, Mounted, Translation, Unfit};

use crate::{
    frame::Mapped,
    hat::{Change, Hat, HatSpace, LoadError, mapped},
    locking::{Below, Held, Scheme, Site},
    platform::{Platform, Step},
    pool::PoolFrames,
    space::MmuPlace,
    sparse::ELEMENTS_MAX,
};

/// Spaces that lose their tables for one load, at most: more than a load has tables.
const STEALS_MAX: u32 = 16;

/// Why an attempt has ended.
enum Stop {
    /// This base frame is being unloaded.
    Unloading(u64),
    Refused(LoadError),
}

/// On whose behalf pages are loaded.
#[derive(Clone, Copy)]
pub(crate) enum Behalf {
    /// The owner of the frames.
    Owner,
    /// A copy of this page, as long as it maps the frame.
    CopyOf(Mapped),
    /// The space that has this page, and maps it to another.
    Of(Mapped),
    /// The space that has this page, and is about to lose it to another.
    InPlaceOf(Mapped),
}

/// Pages to load, and where.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) behalf: Behalf,
    pub(crate) space: HatSpace,
    pub(crate) place: MmuPlace,
    pub(crate) first: Translation,
    pub(crate) count: u64,
}

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Maps `count` pages to adjacent frames, the first as `first` says (K94 operation 1).
    ///
    /// Nothing may be mapped there; the memory manager unloads first what it replaces.
    pub fn load(
        &self,
        space: HatSpace,
        first: Translation,
        count: u64,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.load_in(space, MmuPlace::PROCESSOR, first, count, platform)
    }

    /// [`Hat::load`] for another MMU of the space, as [`Hat::attach`] gave it.
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
        let wanted = Wanted { behalf: Behalf::Owner, space, place, first, count };
        self.scheme.enter(Site::Load, |held| self.load_for(held, wanted, platform))
    }

    pub(crate) fn load_for(
        &self,
        held: &mut S::Held<'_>,
        wanted: Wanted,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        let mut steals = 0;
        loop {
            match self.try_load(held, wanted, platform) {
                Ok(()) => return Ok(()),
                Err(Stop::Unloading(frame)) => {
                    held.frame(frame, |frame| (!frame.is_unloading()).then_some(()));
                }
                Err(Stop::Refused(LoadError::NoTableMemory))
                    if steals < STEALS_MAX && self.steal(held, wanted.space.0, platform) =>
                {
                    steals += 1;
                }
                Err(Stop::Refused(error)) => return Err(error),
            }
        }
    }

    fn try_load(
        &self,
        held: &mut S::Held<'_>,
        wanted: Wanted,
        platform: &mut impl Platform,
    ) -> Result<(), Stop> {
        let Wanted { behalf, space, place, first, count } = wanted;
        held.space(space.0, |known, held| {
            let no_space = Stop::Refused(LoadError::NoSpace(space));
            let Some(entry) = known.and_then(|known| known.at(place.0)) else {
                return Err(no_space);
            };
            if entry.limit.is_some_and(|limit| !limit.contains(first.page.start())) {
                let unfit = Unfit::Virtual(first.page.start());
                return Err(Stop::Refused(LoadError::Table(Error::Unfit(unfit))));
            }
            let bytes = first.page.size().bytes();
            let page = |number: u64| {
                let page = first.page.start().wrapping_add(number * bytes).page(first.page.size());
                let frame = PhysAddr::new(first.frame.get() + number * bytes);
                (self.number(frame), mapped(space, place.0, page))
            };
            let mut chain = held.nodes(|nodes| nodes.take(count));
            let flush = held.mmu(entry.table, |mmu, below| {
                let Some(table) = &mut mmu.table else { return Err(no_space) };
                let mut entered = 0;
                let mut result = Ok(());
                while entered < count && result.is_ok() {
                    let (number, mapped) = page(entered);
                    result = below.frame(number, |frame| {
                        platform.work(Step::Mapping, 1);
                        // What the page is a copy of has gone: there is nothing to copy.
                        let gone = Some(Err(Stop::Refused(LoadError::NoTableMemory)));
                        match behalf {
                            Behalf::Owner if frame.is_unloading() => {
                                return Some(Err(Stop::Unloading(number)));
                            }
                            Behalf::CopyOf(_) | Behalf::Of(_) | Behalf::InPlaceOf(_)
                                if frame.is_unloading() =>
                            {
                                return gone;
                            }
                            Behalf::CopyOf(page) if frame.pages().all(|of| of != page) => {
                                return gone;
                            }
                            Behalf::Of(parent) | Behalf::InPlaceOf(parent) => {
                                let adopts = matches!(behalf, Behalf::InPlaceOf(_));
                                if !frame.insert_below(parent, mapped, adopts, &mut chain) {
                                    return gone;
                                }
                            }
                            Behalf::Owner | Behalf::CopyOf(_) => frame.insert(mapped, &mut chain),
                        }
                        Some(Ok(()))
                    });
                    entered += u64::from(result.is_ok());
                }
                let result = result.and_then(|()| {
                    let frames = &mut PoolFrames { below, platform: platform.frames() };
                    let flush = table.map(entry.inner, first, count, frames);
                    flush.map_err(|error| Stop::Refused(error.into()))
                });
                match &result {
                    Ok(_) => {
                        platform.work(Step::TableWrite, count);
                        if let Some(now) = self.tick() {
                            mmu.loaded.insert(space.0, now);
                        }
                    }
                    Err(_) => {
                        for (number, mapped) in (0..entered).map(page) {
                            below.frame(number, |frame| {
                                frame.remove(mapped, &mut chain);
                                Some(())
                            });
                        }
                    }
                }
                result
            });
            match flush {
                // As at nearly every load.
                Ok(flush) if flush.is_empty() => Ok(()),
                Ok(flush) => {
                    let mut change = Change::default();
                    change.flush(space, flush);
                    self.finish(held, change, platform);
                    Ok(())
                }
                Err(stop) => {
                    held.nodes(|nodes| nodes.put(chain));
                    Err(stop)
                }
            }
        })
    }

    /// Gives the space `to` the mappings that `from` has in `range`, both without the right to
    /// write: for a fork whose pages are copied on write.
    ///
    /// Where table memory runs out, `to` has only some of them and faults for the others.
    pub fn duplicate(
        &self,
        from: HatSpace,
        to: HatSpace,
        range: VirtRange,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.scheme.enter(Site::Duplicate, |held| {
            for translation in self.write_protected(held, from, range, platform)? {
                let rights = without_write(translation.rights);
                let copy = Translation { rights, ..translation };
                let behalf = Behalf::CopyOf(mapped(from, 0, translation.page));
                let place = MmuPlace::PROCESSOR;
                let wanted = Wanted { behalf, space: to, place, first: copy, count: 1 };
                self.load_for(held, wanted, platform)?;
            }
            Ok(())
        })
    }

    /// Takes the right to write from what is mapped in `range`, and gives the pages as they were.
    fn write_protected(
        &self,
        held: &mut S::Held<'_>,
        space: HatSpace,
        range: VirtRange,
        platform: &mut impl Platform,
    ) -> Result<Vec<Translation>, LoadError> {
        held.space(space.0, |known, held| {
            let entry = known.and_then(|known| known.processor());
            let entry = entry.ok_or(LoadError::NoSpace(space))?;
            let mut change = Change::default();
            let shared = held.mmu(entry.table, |mmu, _| {
                mmu.settle(space);
                let table = mmu.table.as_mut().ok_or(LoadError::NoSpace(space))?;
                let mut shared = Vec::new();
                table.visit(entry.inner, range, &mut |mapping| shared.push(mapping.translation));
                platform.work(Step::TableRead, shared.len() as u64);
                for translation in &shared {
                    let rights = without_write(translation.rights);
                    if rights != translation.rights {
                        let range = VirtRange::of_page(translation.page);
                        let flush = table.protect(entry.inner, range, rights, &mut |_| ());
                        change.flush(space, flush.map_err(LoadError::Table)?);
                        platform.work(Step::TableWrite, 1);
                    }
                }
                Ok(shared)
            });
            self.finish(held, change, platform);
            shared
        })
    }

    /// Takes the page tables of the space that was loaded least recently, `but` for one: its
    /// translations come back by minor faults. Says whether there was one with any.
    pub(crate) fn steal<P: Platform>(
        &self,
        held: &mut S::Held<'_>,
        but: u32,
        platform: &mut P,
    ) -> bool {
        let mut loaded: Vec<(usize, u32)> = Vec::new();
        let end = held.numbers(|numbers| numbers.mmus.end());
        for mmu in (0..end).filter(|_| self.tick().is_some()) {
            held.mmu(mmu, |mmu, _| {
                loaded.extend(mmu.loaded.iter().map(|(&space, &when)| (when, space)));
            });
        }
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

fn without_write(rights: Rights) -> Rights {
    Rights::from_bits(rights.bits() & !Rights::WRITE.bits())
}

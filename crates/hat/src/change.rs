//! Operations that change translations: their rights, usage bits and page sizes.

use core::cell::RefCell;

use addr::{PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Error, Flush, Intent, Mapping, Mounted, SubtreeEdit, Usage};
use smallvec::SmallVec;

use crate::{
    frame::Noted,
    hat::{Change, Hat, LoadError, mapped},
    locking::{Below, Held, Part, Scheme, Site},
    platform::{Platform, Step},
    room::Gathered,
    space::{AddressSpace, HatSpace, in_place},
    table_frames::{InTurn, PoolFrames},
    unload::FEW,
};

impl<T: Mounted + ?Sized, S: Scheme<Table = T>> Hat<T, S> {
    /// Sets the rights of every mapping in `range` (K94 operation 4).
    pub fn protect(
        &self,
        space: HatSpace,
        range: VirtRange,
        rights: Rights,
        platform: &mut impl Platform,
    ) -> Result<(), Error> {
        self.scheme.enter(Site::Protect, |held| {
            platform.work(Step::Operation, 1);
            held.space(space.0, AddressSpace::whole, |known, held| {
                let mut change = Change::default();
                let mut result = Ok(());
                for (_, entry) in known.iter().flat_map(|known| known.all()) {
                    let (of, edit) = ((space, entry), SubtreeEdit::Protect(rights));
                    result = result.and(self.part(held, of, range, Intent::Change, |part, _| {
                        part.settle(space);
                        let mut pages = 0;
                        let each = &mut |_| pages += 1;
                        let flush = part.edit(entry.inner, range, edit, each)?;
                        change.flush(space, flush);
                        platform.work(Step::TableWrite, pages);
                        Ok(())
                    }));
                }
                self.finish(held, &mut change, platform);
                result
            })
        })
    }

    /// Whether a frame was used, and written, through any of its mappings since its usage bits were
    /// last cleared. Clears the bits that are true in `clear` (K94 operation 5).
    pub fn usage(
        &self,
        frame: PhysAddr,
        size: PageSize,
        clear: Usage,
        platform: &mut impl Platform,
    ) -> Usage {
        self.scheme.enter(Site::Usage, |held| {
            platform.work(Step::Operation, 1);
            let mut usage = Usage::default();
            let mut change = Change::default();
            self.each_at(held, (frame, size), |held, found| {
                if !change.has_room() {
                    self.finish(held, &mut change, platform);
                }
                let space = HatSpace(found.space);
                held.space(found.space, in_place(found.mmu), |entry, held| {
                    let Some(entry) = entry else { return };
                    let range = VirtRange::of_page(found.page);
                    self.part(held, (space, entry), range, Intent::Change, |part, _| {
                        part.settle(space);
                        platform.work(Step::TableRead, 1);
                        let addr = found.page.start();
                        let there = part.table().and_then(|table| table.query(entry.inner, addr));
                        let Some(mapping) = there else { return };
                        let mut note = |mapping: &Mapping| {
                            usage.referenced |= mapping.usage.referenced;
                            usage.dirty |= mapping.usage.dirty;
                            usage.marked |= mapping.usage.marked;
                        };
                        note(&mapping);
                        let set = (clear.referenced && mapping.usage.referenced)
                            || (clear.dirty && mapping.usage.dirty)
                            || (clear.marked && mapping.usage.marked);
                        if set {
                            platform.work(Step::TableWrite, 1);
                            let range = VirtRange::of_page(mapping.translation.page);
                            let edit = SubtreeEdit::ClearUsage(clear);
                            // These are the bits at the moment when they were cleared: hardware may
                            // have set more bits after they were read.
                            let each = &mut |before| note(&before);
                            let cleared = part.edit(entry.inner, range, edit, each);
                            // This cannot fail, because the range is a whole mapped page.
                            if let Ok(flush) = cleared {
                                change.flush(space, flush);
                            }
                        }
                    });
                });
            });
            self.finish(held, &mut change, platform);
            usage
        })
    }

    /// Sets usage bits of the page at `addr`: the bits that it had before it was moved to this
    /// address.
    pub fn set_usage(&self, space: HatSpace, addr: VirtAddr, usage: Usage) -> Result<(), Error> {
        self.scheme.enter(Site::Usage, |held| {
            held.space(space.0, AddressSpace::processor, |entry, held| {
                let Some(entry) = entry else { return Ok(()) };
                held.mmu(entry.table, |mmu, _| match &mut mmu.table {
                    Some(table) => table.set_usage(entry.inner, addr, usage),
                    None => Ok(()),
                })
            })
        })
    }

    /// Replaces the mappings in `range` by pages of the size `to`, with the same frames: a
    /// downgrade or an upgrade (G98 sections 6.7 and 6.8).
    ///
    /// Both ends of the range must be multiples of `to` and of the sizes of the pages that are mapped
    /// there. If pages get larger, each new page must be completely mapped, by adjacent and aligned
    /// frames with equal rights. Otherwise, or if no memory is left for a table, the operation fails
    /// and changes nothing.
    ///
    /// The processors flush the old pages while the operation still holds the page table. Until
    /// they have flushed, processors may set usage bits in the old entries; the operation finally
    /// transfers these bits to the new pages.
    pub fn resize(
        &self,
        space: HatSpace,
        range: VirtRange,
        to: PageSize,
        platform: &mut impl Platform,
    ) -> Result<(), LoadError> {
        self.note_size(to);
        self.scheme.enter(Site::Resize, |held| {
            platform.work(Step::Operation, 1);
            held.space(space.0, AddressSpace::processor, |entry, held| {
                let entry = entry.ok_or(LoadError::NoSpace(space))?;
                let mut change = Change::default();
                let resized: Result<(), LoadError> = held.mmu(entry.table, |mmu, below| {
                    mmu.settle(space);
                    let table = mmu.table.as_ref().ok_or(LoadError::NoSpace(space))?;
                    let mut before = Gathered::<[Mapping; 1]>::new();
                    table.visit(entry.inner, range, &mut |mapping| before.add(mapping));
                    let before = before.all()?;
                    let after = pagetable::resized(&before, range, to)?;
                    let mut names = SmallVec::<[u32; FEW]>::new();
                    let room = names.try_reserve(after.len());
                    if room.is_err() || !change.has_room_for(before.len()) {
                        return Err(LoadError::NoMemory);
                    }
                    // A merge removes the tables of the smaller pages, so copies of root entries are emptied.
                    if before.iter().any(|mapping| mapping.translation.page.size() < to) {
                        mmu.settle_tables(space);
                    }
                    // The pages are inserted even if another operation is unloading the frame: that
                    // operation searches the frame's list again until it finds no page.
                    let number = |place: usize| self.number(after[place].translation.frame);
                    let page = |place: usize| mapped(space, 0, after[place].translation.page);
                    below.frames(after.len(), number, |place, frame| {
                        platform.work(Step::Mapping, 1);
                        let name = frame.map(|frame| frame.insert(page(place)));
                        if let Some(Ok(name)) = name {
                            names.push(name);
                        }
                        names.len() > place
                    });
                    let table = mmu.table.as_mut().ok_or(LoadError::NoSpace(space))?;
                    let resized = if names.len() == after.len() {
                        let in_turn = RefCell::new(&mut *platform);
                        let forget = &mut |flush: &Flush| {
                            let mut platform = in_turn.borrow_mut();
                            platform.work(Step::Shootdown, 1);
                            platform.shoot(&[(space, flush.without_frames())]);
                        };
                        let frames = &mut PoolFrames { below, platform: &mut InTurn(&in_turn) };
                        table.resize(entry.inner, range, to, frames, forget)
                    } else {
                        Err(Error::NoMemory)
                    };
                    let after = match resized {
                        Ok(after) => after,
                        Err(error) => {
                            below.frames(names.len(), number, |place, frame| {
                                let node = Noted { page: page(place), note: names[place] };
                                if let Some(frame) = frame {
                                    frame.remove(node);
                                }
                                true
                            });
                            return Err(error.into());
                        }
                    };
                    for mapping in &before {
                        change.removed(space, 0, mapping);
                    }
                    let mut part = Part::Whole(mmu);
                    self.count_out(&mut part, &change.removed);
                    if part.has_notes() {
                        part.note(entry.inner, after.iter().zip(names));
                    }
                    for mapping in &after {
                        self.count_in(&mut part, mapping.translation.page.size(), 1);
                    }
                    platform.work(Step::TableWrite, before.len() as u64 + after.len() as u64);
                    Ok(())
                });
                self.finish(held, &mut change, platform);
                resized
            })
        })
    }
}

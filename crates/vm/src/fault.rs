//! Faults: from an address to a page in memory that hardware can reach.
//!
//! ```text
//!   region? -- none, or it forbids the access --> refused
//!      |
//!   the space's anon? -- yes -- in swap? --> read it
//!      |                        store, several users? --> a copy of its own
//!      | no
//!   an object? -- yes -- the page, read if it is not in memory; private store? --> a copy
//!      | no
//!   a frame of zeros
//!      |
//!      +--> loaded, without the right to store where a store must be seen:
//!           several users, a private page of an object, a clean page of a shared file
//! ```
//!
//! An attempt ends where a frame is needed and none is to be had. What it has done till then is
//! whole (a page that was read stays), so that the fault is begun anew after pages have left
//! memory.

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr};
use hat::{HatSpace, LoadError};
use pagetable::{Mounted, Translation};
use physmem::{Allocator, FrameId};

use crate::{
    anon::AnonId,
    error::{Error, Stop},
    frames::{DIRTY, Owner, REFERENCED},
    object::{ObjectId, Place},
    platform::{Io, Platform, Store},
    reclaim::BATCH,
    region::Backing,
    reserve::Wanted,
    vm::Kernel,
    work::{Decision, How, Why},
};

/// A base page that is in memory, and how its region has it.
pub(crate) struct Needed {
    pub(crate) frame: FrameId,
    /// What hardware may allow.
    pub(crate) rights: Rights,
    pub(crate) wired: bool,
    pub(crate) label: u32,
}

/// Attempts at one fault. Each one but the last had pages leave memory.
pub(crate) const ATTEMPTS_MAX: u32 = 64;

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// Answers a fault: after it the access succeeds, if no other page has to leave meanwhile.
    pub fn fault(&mut self, space: HatSpace, addr: VirtAddr, kind: Kind) -> Result<How, Error> {
        self.vm.work.traps += 1;
        let how = self.bring(space, self.vm.page_of(addr), kind)?;
        self.vm.faults[how as usize] += 1;
        Ok(how)
    }

    /// Has the base page in memory and loaded; `wanted` is the size that was wished, and why it is
    /// not to be had.
    pub(crate) fn resolve(
        &mut self,
        space: HatSpace,
        page: u64,
        kind: Kind,
        wanted: (PageSize, Why),
    ) -> Result<How, Error> {
        let mut how = How::Minor;
        for _ in 0..ATTEMPTS_MAX {
            match self.attempt(space, page, kind, wanted, &mut how) {
                Ok(()) => return Ok(how),
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Full) => {
                    let gone = self.reclaim(BATCH);
                    if gone == 0 && self.free_pages() <= self.vm.marks.min {
                        break;
                    }
                }
            }
        }
        Err(self.out_of_memory())
    }

    pub(crate) fn out_of_memory(&self) -> Error {
        let wired: usize = self.vm.spaces.values().map(|space| space.wired.len()).sum();
        Error::OutOfMemory { wired: wired as u64, swap_free: self.vm.swap.room() }
    }

    fn attempt(
        &mut self,
        space: HatSpace,
        page: u64,
        kind: Kind,
        wanted: (PageSize, Why),
        how: &mut How,
    ) -> Result<(), Stop> {
        let needed = self.page_for(space, page, kind, &mut None, how)?;
        let Needed { frame, rights, wired, label } = needed;
        if self.enter(space, page, frame, rights, how)? {
            self.decided(label, wanted, self.vm.base);
        }
        if wired {
            self.wire_at(space, page, frame)?;
        }
        Ok(())
    }

    /// Has the base page in memory. `given` is a frame for it, if one is needed for what the space
    /// maps; it is taken then.
    pub(crate) fn page_for(
        &mut self,
        space: HatSpace,
        page: u64,
        kind: Kind,
        given: &mut Option<FrameId>,
        how: &mut How,
    ) -> Result<Needed, Stop> {
        self.vm.work.region_lookups += 1;
        let addr = self.vm.addr_of(page);
        let known = self.vm.space(space)?;
        let region = known.regions.at(page).ok_or(Error::NoRegion(addr))?;
        let (rights, wired, label) = (region.rights, region.wired, region.label);
        if !rights.allows(kind) {
            return Err(Error::Denied { addr, rights }.into());
        }
        let (backing, into) = (region.backing, page - region.pages.start);
        let store = kind == Kind::Store;
        let (frame, writable) = match (known.anons.get(page), backing) {
            (Some(anon), _) => self.anon_page(space, page, anon, store, given, how)?,
            (None, Backing::Anonymous) => {
                let frame = self.frame_from(given, Wanted::Own(space, page))?;
                self.zero(frame, how);
                self.own(space, page, frame)?;
                (frame, true)
            }
            (None, Backing::Private { object, first }) => {
                if store {
                    let from = self.object_page(object, first + into, &mut None, how)?;
                    (self.copy_for(space, page, from, given, how)?, true)
                } else {
                    (self.object_page(object, first + into, given, how)?, false)
                }
            }
            (None, Backing::Shared { object, first }) => {
                let frame = self.object_page(object, first + into, given, how)?;
                let pfdat = self.memory.pfdat_mut(frame);
                pfdat.flags |= if store { DIRTY } else { 0 };
                (frame, pfdat.flags & DIRTY != 0)
            }
        };
        let rights = if writable { rights } else { without_write(rights) };
        Ok(Needed { frame, rights, wired, label })
    }

    /// Counts a page that was loaded at a fault by what was decided about its size.
    pub(crate) fn decided(&mut self, label: u32, (wanted, why): (PageSize, Why), got: PageSize) {
        *self.vm.decisions.entry(Decision { label, wanted, got, why }).or_insert(0) += 1;
    }

    /// The frame that is given, or another.
    fn frame_from(&mut self, given: &mut Option<FrameId>, wanted: Wanted) -> Result<FrameId, Stop> {
        match given.take() {
            Some(frame) => Ok(frame),
            None => self.take_frame(wanted),
        }
    }

    /// The frame of an anon for one of its users, and whether that may store there.
    fn anon_page(
        &mut self,
        space: HatSpace,
        page: u64,
        anon: AnonId,
        store: bool,
        given: &mut Option<FrameId>,
        how: &mut How,
    ) -> Result<(FrameId, bool), Stop> {
        let frame = match self.vm.anons.get(anon).place {
            Place::Resident(frame) => frame,
            Place::Swapped(slot) => {
                let frame = self.frame_from(given, Wanted::Own(space, page))?;
                self.read(frame, Store::Swap(slot), how);
                self.vm.swap.free(slot);
                self.vm.anons.set_place(anon, Place::Resident(frame));
                self.give_to(frame, Owner::Anon(anon));
                frame
            }
        };
        if self.vm.anons.get(anon).refs == 1 {
            Ok((frame, true))
        } else if store {
            let copy = self.copy_for(space, page, frame, given, how)?;
            self.vm.anons.release(anon);
            Ok((copy, true))
        } else {
            Ok((frame, false))
        }
    }

    /// The frame of a page of an object.
    pub(crate) fn object_page(
        &mut self,
        object: ObjectId,
        index: u64,
        given: &mut Option<FrameId>,
        how: &mut How,
    ) -> Result<FrameId, Stop> {
        self.vm.work.object_lookups += 1;
        let known = self.vm.objects.get(object);
        let (file, place) = (known.file, known.pages.get(&index).copied());
        let frame = match place {
            Some(Place::Resident(frame)) => {
                *how = (*how).max(if file.is_some() { How::Cache } else { How::Minor });
                return Ok(frame);
            }
            Some(Place::Swapped(slot)) => {
                let frame = self.frame_from(given, Wanted::Of(object, index))?;
                self.read(frame, Store::Swap(slot), how);
                self.vm.swap.free(slot);
                frame
            }
            None => {
                let frame = self.frame_from(given, Wanted::Of(object, index))?;
                match file {
                    Some(key) => self.read(frame, Store::File(key, index), how),
                    None => self.zero(frame, how),
                }
                frame
            }
        };
        self.vm.objects.get_mut(object).pages.insert(index, Place::Resident(frame));
        self.give_to(frame, Owner::Object(object, index));
        Ok(frame)
    }

    /// A copy of what is in `from`, the space's own.
    fn copy_for(
        &mut self,
        space: HatSpace,
        page: u64,
        from: FrameId,
        given: &mut Option<FrameId>,
        how: &mut How,
    ) -> Result<FrameId, Stop> {
        let frame = self.frame_from(given, Wanted::Own(space, page))?;
        let (from, to) = (self.address(from), self.address(frame));
        self.platform.copy(from, to, self.vm.base.bytes());
        self.vm.work.copied += 1 << self.memory.table().order(self.vm.base);
        *how = (*how).max(How::Copy);
        self.own(space, page, frame)?;
        Ok(frame)
    }

    /// What is in `frame` is the space's page from here on.
    fn own(&mut self, space: HatSpace, page: u64, frame: FrameId) -> Result<(), Stop> {
        let anon = self.vm.anons.add(Place::Resident(frame));
        self.vm.space_mut(space)?.anons.insert(page, anon);
        self.give_to(frame, Owner::Anon(anon));
        Ok(())
    }

    fn zero(&mut self, frame: FrameId, how: &mut How) {
        self.platform.zero(self.address(frame), self.vm.base.bytes());
        self.vm.work.zeroed += 1 << self.memory.table().order(self.vm.base);
        *how = (*how).max(How::Zero);
    }

    fn read(&mut self, frame: FrameId, store: Store, how: &mut How) {
        self.platform.transfer(Io { write: false, frame: self.address(frame), store });
        self.vm.work.reads += 1;
        *how = (*how).max(match store {
            Store::File(..) => How::Disk,
            Store::Swap(_) => How::Swap,
        });
    }

    /// Has hardware find `frame` at the base page, with these rights. Says whether it was loaded for
    /// that.
    fn enter(
        &mut self,
        space: HatSpace,
        page: u64,
        frame: FrameId,
        rights: Rights,
        how: &mut How,
    ) -> Result<bool, Stop> {
        self.memory.pfdat_mut(frame).flags |= REFERENCED;
        self.not_idle(frame);
        self.keep_apart(space, page..page + 1)?;
        let (at, frame) = (self.vm.addr_of(page).page(self.vm.base), self.address(frame));
        self.vm.work.table_reads += 1;
        let known = self.hat.query(space, at.start()).map(|known| known.translation);
        let range = addr::VirtRange::of_page(at);
        let (hat, mut below) = self.hat();
        match known {
            Some(known) if known.page == at && known.frame == frame => {
                if known.rights != rights {
                    let done = hat.protect(space, range, rights, &mut below);
                    done.map_err(Error::Table)?;
                    *how = if *how == How::Cache { How::Write } else { (*how).max(How::Write) };
                }
                return Ok(false);
            }
            Some(_) => {
                let done = hat.unload(space, range, &mut |_| (), &mut below);
                done.map_err(Error::Table)?;
            }
            None => {}
        }
        let translation = Translation { page: at, frame, rights, global: false };
        match hat.load(space, translation, 1, &mut below) {
            Ok(()) => {}
            Err(LoadError::NoTableMemory) => return Err(Stop::Full),
            Err(LoadError::Table(error)) => return Err(Error::Table(error).into()),
            Err(LoadError::NoSpace(space)) => return Err(Error::NoSpace(space).into()),
        }
        Ok(true)
    }

    /// Moves a page between memory and disk, out.
    pub(crate) fn write(&mut self, frame: PhysAddr, store: Store) {
        self.platform.transfer(Io { write: true, frame, store });
        self.vm.work.writes += 1;
    }
}

/// These rights without the one to store.
pub(crate) fn without_write(rights: Rights) -> Rights {
    Rights::from_bits(rights.bits() & !Rights::WRITE.bits())
}

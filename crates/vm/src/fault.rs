//! Page faults: they bring the page of an address into memory and make it accessible for hardware.
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
//! An attempt ends if a frame is needed and none is free. The partial result of the attempt remains
//! valid (a page that was read stays in memory), so that the fault can be started again after pages
//! have been evicted.
//!
//! The space is locked during the whole fault, and no page is evicted during an attempt. A page is
//! read, or filled with zeros, under the lock of its object or anon, so that another processor that
//! needs the same page finds it.

use addr::{Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    HatSpace, LoadError,
    locking::{Mutex, Site},
};
use pagetable::Translation;
use physmem::FrameId;

use crate::{
    anon::AnonId,
    error::{Error, Stop},
    frames::{DIRTY, FILE, Owner, REFERENCED},
    host::Host,
    kernel::Kernel,
    map::note_used,
    object::{ObjectId, PageLocation},
    platform::{Decided, Io, Platform, Step, Store},
    reclaim::BATCH,
    region::{Backing, Region, Wired},
    vm::Within,
    work::{Decision, How, Why},
};

/// The properties that a page has from its region.
#[derive(Clone, Copy)]
pub(crate) struct RegionPage {
    rights: Rights,
    wired: Wired,
    backing: Backing,
    has_own: bool,
    /// The index of the page in its region.
    into: u64,
}

impl RegionPage {
    /// The properties of `page`, which lies in `region`.
    pub(crate) fn of(region: &Region, page: u64) -> RegionPage {
        let Region { rights, wired, backing, has_own, .. } = *region;
        RegionPage { rights, wired, backing, has_own, into: page - region.pages.start }
    }

    /// The properties of `page` for an access by the kernel itself, which the region's rights do
    /// not restrict.
    pub(crate) fn of_kernel(region: &Region, page: u64) -> RegionPage {
        RegionPage { rights: Rights::ALL, ..RegionPage::of(region, page) }
    }
}

/// A base page that is in memory, and how it may be mapped.
pub(crate) struct Needed {
    pub(crate) frame: FrameId,
    /// The rights that hardware may allow.
    pub(crate) rights: Rights,
    /// Whether the page had no contents before, so that hardware cannot have a translation of it.
    pub(crate) is_new: bool,
    /// The anon that the page used before the page was copied. Its reference count is decremented
    /// once hardware no longer has a translation from this page to the anon's frame.
    pub(crate) left: Option<AnonId>,
}

/// The largest number of attempts to handle one fault. After every attempt except the last, pages
/// are evicted.
pub(crate) const ATTEMPTS_MAX: u32 = 64;

impl<H: Host> Kernel<'_, H> {
    /// Handles a fault. Afterwards the access succeeds, unless the page is evicted before.
    ///
    /// An access to an address without a region, or an access that the region forbids, is refused
    /// and not counted.
    pub fn fault(&mut self, space: HatSpace, addr: VirtAddr, kind: Kind) -> Result<How, Error> {
        self.site = Site::Fault;
        self.before = None;
        let page = self.vm.page_of(addr);
        let done = self.within(space, |kernel, at| {
            // A first touch writes to this place. The place is prefetched, because all later steps
            // would wait for it.
            if let Some(place) = at.known.anons.place_of(page) {
                kernel.platform.soon(place);
            }
            let how = kernel.bring(at, page, kind);
            if kernel.vm.has_groups {
                kernel.keep_below_high();
            }
            how
        });
        if !matches!(done, Err(Error::NoRegion(_) | Error::Denied { .. })) {
            self.work.traps += 1;
        }
        let how = done?;
        self.faults[how as usize] += 1;
        Ok(how)
    }

    /// The rights that hardware allowed at the base page of the last fault before it was handled,
    /// if the page was loaded.
    pub fn allowed_before(&self) -> Option<Rights> {
        self.before
    }

    /// Brings the base page into memory and loads it. `wanted` has the size that the policy
    /// requested, and the reason why this size is not possible.
    pub(crate) fn resolve(
        &mut self,
        at: &mut Within<'_>,
        (page, said): (u64, &RegionPage),
        kind: Kind,
        wanted: (PageSize, Why),
    ) -> Result<How, Error> {
        let mut how = How::Minor;
        self.with_room(|kernel| kernel.attempt(at, (page, said), kind, wanted, &mut how))?;
        if self.vm.thp.is_some() && said.backing.object().is_some() {
            self.pages_stay(|kernel| kernel.fault_around(at, page, kind))?;
        }
        Ok(how)
    }

    /// Runs `f` while no page is evicted or moved. If a frame is missing, pages are evicted and `f` is run
    /// again, until it has what it needs or no page can be evicted.
    #[inline]
    pub(crate) fn with_room<R>(
        &mut self,
        mut f: impl FnMut(&mut Self) -> Result<R, Stop>,
    ) -> Result<R, Error> {
        for _ in 0..ATTEMPTS_MAX {
            match self.pages_stay(&mut f) {
                Ok(done) => return Ok(done),
                Err(Stop::Refused(error)) => return Err(error),
                Err(Stop::Full) => {
                    if !self.make_room() {
                        break;
                    }
                }
            }
        }
        Err(self.out_of_memory())
    }

    /// Evicts pages because a frame is needed immediately. Returns whether a frame is available
    /// now.
    ///
    /// If memory for page tables is missing, evicting pages does not help: other operations free table
    /// memory when they end.
    pub(crate) fn make_room(&mut self) -> bool {
        if self.over_limit {
            self.make_room_in_group();
            return true;
        }
        if self.lacks_table_memory() {
            return true;
        }
        let gone = self.pages_move(|kernel| kernel.reclaim(BATCH));
        gone > 0 || self.free_pages() > self.vm.marks.min()
    }

    /// Whether the fault failed because the share of memory for page tables is used up, although
    /// frames are free.
    pub(crate) fn lacks_table_memory(&self) -> bool {
        self.hat.is_limited() && self.free_pages() > self.vm.marks.min()
    }

    pub(crate) fn out_of_memory(&self) -> Error {
        if self.lacks_table_memory() {
            return Error::TableMemory;
        }
        let wired = self.lists(|lists, _| lists.wired);
        Error::OutOfMemory { wired, swap_free: self.vm.swap.with(self.site, |swap| swap.room()) }
    }

    fn attempt(
        &mut self,
        at: &mut Within<'_>,
        (page, said): (u64, &RegionPage),
        kind: Kind,
        wanted: (PageSize, Why),
        how: &mut How,
    ) -> Result<(), Stop> {
        // The result is used by reference: moving it would read memory that was just written, and
        // this read would wait for all earlier stores.
        let came = self.page_for(at, (page, said), kind, &mut None, how);
        let Ok(needed) = &came else { return came.map(drop) };
        let loaded = self.enter(at, page, needed, how);
        if let Some(anon) = needed.left {
            self.leave(anon, loaded.is_ok());
        }
        if loaded? {
            self.decided((at.space, page), wanted, self.vm.base, 1);
        }
        if said.wired.stays()
            && !(self.vm.thp.is_some() && self.holds_zeros(self.address(needed.frame)))
        {
            self.wire_at(at, page, needed.frame);
        }
        Ok(())
    }

    /// Decrements the reference count of `anon`, which the page used before it was copied. Unless
    /// `is_unloaded`, page tables may still map the anon's frame for that page; in that case all
    /// mappings of the frame are removed first.
    pub(crate) fn leave(&mut self, anon: AnonId, is_unloaded: bool) {
        if !is_unloaded && let PageLocation::Resident(frame) = self.anon(anon).place {
            self.unload_frames([frame].into_iter());
        }
        if let Some(place) = self.vm.anons.release(self.site, anon) {
            self.free_place(Owner::Anon(anon), place);
        }
    }

    /// Brings the base page into memory. `given` is a frame, which is used if the page is one of
    /// the space's own pages and needs a frame.
    pub(crate) fn page_for(
        &mut self,
        at: &mut Within<'_>,
        (page, said): (u64, &RegionPage),
        kind: Kind,
        given: &mut Option<FrameId>,
        how: &mut How,
    ) -> Result<Needed, Stop> {
        self.work.region_lookups += 1;
        self.platform.work(Step::Region, 1);
        let RegionPage { rights, backing, has_own, into, .. } = *said;
        if !rights.allows(kind) {
            return Err(Error::Denied { addr: self.vm.addr_of(page), rights }.into());
        }
        let store = kind == Kind::Store;
        let (mut left, mut is_new, mut is_own) = (None, false, false);
        let (frame, writable) = match (at.known.anons.get(page), backing) {
            (Some(anon), _) => {
                let (frame, users) = self.anon_page(at, page, anon, given, how)?;
                if store && (users > 1 || self.is_bound(anon, frame)) {
                    left = Some(anon);
                    (self.copy_for(at, page, frame, given, how)?, true)
                } else {
                    self.frames(|memory| memory.pfdat_mut(frame).flags |= REFERENCED);
                    (frame, users == 1 && !self.is_bound(anon, frame))
                }
            }
            (None, Backing::Anonymous) => {
                let zeros = match given.is_none() && self.wants_zeros(kind) {
                    true => self.zero_frame(page),
                    false => None,
                };
                if let Some(frame) = zeros {
                    *how = (*how).max(How::ZeroPage);
                    (frame, false)
                } else {
                    let frame = self.own_frame(at, page, given)?;
                    self.zero(frame, how);
                    self.own(at, page, frame)?;
                    is_own = true;
                    // With transparent huge pages, hardware may have a translation to the page of
                    // zeros there.
                    is_new = self.vm.thp.is_none();
                    (frame, true)
                }
            }
            (None, Backing::Frames { .. }) => {
                return Err(Error::Given(self.vm.addr_of(page)).into());
            }
            (None, Backing::Private { object, first }) => {
                if store {
                    let (from, _) = self.object_page(object, first + into, 0, &mut None, how)?;
                    is_own = true;
                    (self.copy_for(at, page, from, given, how)?, true)
                } else {
                    (self.object_page(object, first + into, REFERENCED, given, how)?.0, false)
                }
            }
            (None, Backing::Shared { object, first }) => {
                let mark = REFERENCED | if store { DIRTY } else { 0 };
                let (frame, flags) = self.object_page(object, first + into, mark, given, how)?;
                (frame, flags & DIRTY != 0)
            }
        };
        if is_own && !has_own {
            at.known.regions.set_own(page);
        }
        let rights = if writable { rights } else { rights.without_write() };
        Ok(Needed { frame, rights, is_new, left })
    }

    /// Counts `pages` loaded pages, the first of which is `page`, under the decision about their
    /// size.
    pub(crate) fn decided(
        &mut self,
        (space, page): (HatSpace, u64),
        (wanted, why): (PageSize, Why),
        got: PageSize,
        pages: u64,
    ) {
        let decision = Decision { wanted, got, why };
        self.platform.decided(space, self.vm.addr_of(page), decision, Decided::Loaded(pages));
        match &mut self.decided {
            Some((last, all)) if *last == decision => *all += pages,
            last => {
                let before = last.replace((decision, pages));
                if before.is_some() {
                    self.vm.add_counts(|counts| counts.decided(before));
                }
            }
        }
    }

    /// The given frame, or a newly allocated frame, for one of the space's own pages.
    fn own_frame(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        given: &mut Option<FrameId>,
    ) -> Result<FrameId, Stop> {
        match given.take() {
            Some(frame) => Ok(frame),
            None => {
                self.prezeroed = false;
                if let Some(frame) = self.placed(at, &(page..page + 1)) {
                    self.work.frames_taken += 1 << self.memory.order(self.vm.base);
                    return Ok(frame);
                }
                let place = self.own_place(at.known, page);
                self.take_frame(place)
            }
        }
    }

    /// The frame of an anon, and its number of users. If the space is the only user, it remains the
    /// only user while the space is locked.
    fn anon_page(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        id: AnonId,
        given: &mut Option<FrameId>,
        how: &mut How,
    ) -> Result<(FrameId, u32), Stop> {
        let anon = self.anon(id);
        if let PageLocation::Resident(frame) = anon.place {
            return Ok((frame, anon.refs));
        }
        let frame = self.own_frame(at, page, given)?;
        let (vm, site) = (self.vm, self.site);
        let (resident, users) = vm.anons.with(site, id, |anon| -> Result<_, Error> {
            let resident = match anon.place {
                // Another space has loaded the page in the meantime.
                PageLocation::Resident(frame) => frame,
                PageLocation::Swapped(slot) => {
                    self.read(frame, Store::Swap(slot), how)?;
                    let group = vm.swap.with(site, |swap| swap.free(slot));
                    self.left_swap(group, true);
                    anon.place = PageLocation::Resident(frame);
                    self.give_to(frame, Owner::Anon(id), 0);
                    frame
                }
            };
            Ok((resident, anon.refs))
        })?;
        if resident != frame {
            self.free_frame(frame);
        }
        Ok((resident, users))
    }

    /// The frame of an object's page, and the flags of its descriptor, to which `mark` is added.
    pub(crate) fn object_page(
        &mut self,
        id: ObjectId,
        index: u64,
        mark: u8,
        given: &mut Option<FrameId>,
        how: &mut How,
    ) -> Result<(FrameId, u8), Stop> {
        self.work.object_lookups += 1;
        let (vm, site) = (self.vm, self.site);
        vm.objects.with(site, id, |object| {
            self.platform.work(Step::Object, 1);
            let (file, place) = (object.file, object.pages.get(&index).copied());
            if let Some(PageLocation::Resident(frame)) = place {
                *how = (*how).max(if file.is_some() { How::Cache } else { How::Minor });
                let flags = self.frames(|memory| {
                    let flags = &mut memory.pfdat_mut(frame).flags;
                    *flags |= mark;
                    *flags
                });
                return Ok((frame, flags));
            }
            object.pages.reserve([&index; 2], 1)?;
            let frame = match given.take() {
                Some(frame) => frame,
                None => {
                    let place = self.object_place(id, object, index);
                    self.take_frame(place)?
                }
            };
            match (place, file) {
                (Some(PageLocation::Swapped(slot)), _) => {
                    self.read(frame, Store::Swap(slot), how)?;
                    let group = vm.swap.with(site, |swap| swap.free(slot));
                    self.left_swap(group, true);
                }
                (_, Some(key)) => self.read(frame, Store::File(key, index), how)?,
                (_, None) => self.zero(frame, how),
            }
            object.pages.insert(index, PageLocation::Resident(frame))?;
            let flags = mark | if file.is_some() { FILE } else { 0 };
            self.give_to(frame, Owner::Object(id, index), flags);
            Ok((frame, flags))
        })
    }

    /// Copies the page in `from` to a frame of the space's own.
    fn copy_for(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        from: FrameId,
        given: &mut Option<FrameId>,
        how: &mut How,
    ) -> Result<FrameId, Stop> {
        let frame = self.own_frame(at, page, given)?;
        let (from, to) = (self.address(from), self.address(frame));
        self.platform.copy(from, to, self.vm.base.bytes());
        self.work.copied += 1 << self.memory.order(self.vm.base);
        *how = (*how).max(How::Copy);
        self.own(at, page, frame)?;
        Ok(frame)
    }

    /// Makes the page in `frame` the space's own page at `page`. If the manager has no memory for
    /// that, the frame is freed.
    fn own(&mut self, at: &mut Within<'_>, page: u64, frame: FrameId) -> Result<(), Stop> {
        if let Err(error) = at.known.anons.prepare(page) {
            self.free_frame(frame);
            return Err(error.into());
        }
        let anon = self.own_anon(frame)?;
        at.known.anons.insert(page, anon);
        Ok(())
    }

    /// Makes the page in `frame` an anon with one user. If the manager has no memory for that, the frame
    /// is freed.
    pub(crate) fn own_anon(&mut self, frame: FrameId) -> Result<AnonId, Stop> {
        match self.vm.anons.add(self.site, PageLocation::Resident(frame)) {
            Ok(anon) => {
                self.give_to(frame, Owner::Anon(anon), 0);
                Ok(anon)
            }
            Err(error) => {
                self.free_frame(frame);
                Err(error.into())
            }
        }
    }

    fn zero(&mut self, frame: FrameId, how: &mut How) {
        let frames = 1 << self.memory.order(self.vm.base);
        if self.prezeroed {
            self.work.prezeroed += frames;
        } else {
            self.platform.zero(self.address(frame), self.vm.base.bytes());
            self.work.zeroed += frames;
        }
        *how = (*how).max(How::Zero);
    }

    /// Reads a page from disk into `frame`, which has no owner yet. If the disk fails, the frame is
    /// freed.
    fn read(&mut self, frame: FrameId, store: Store, how: &mut How) -> Result<(), Error> {
        let io = Io { write: false, frame: self.address(frame), store };
        if self.platform.try_transfer(io).is_err() {
            self.free_frame(frame);
            return Err(Error::Io(store));
        }
        self.work.reads += 1;
        *how = (*how).max(match store {
            Store::File(..) => How::Disk,
            Store::Swap(_) => How::Swap,
        });
        Ok(())
    }

    /// Loads the translation of a base page. Returns whether it was not loaded before.
    pub(crate) fn enter(
        &mut self,
        at: &mut Within<'_>,
        page: u64,
        needed: &Needed,
        how: &mut How,
    ) -> Result<bool, Stop> {
        let Needed { frame, rights, is_new, .. } = *needed;
        self.not_idle(frame);
        self.keep_apart(at, page..page + 1)?;
        let (page, frame) = (self.vm.addr_of(page).page(self.vm.base), self.address(frame));
        self.work.table_reads += 1;
        if !is_new {
            self.platform.work(Step::Hat(hat::Step::TableRead), 1);
        }
        let space = at.space;
        let known = match is_new {
            true => None,
            false => self.hat.query(space, page.start()).map(|known| known.translation),
        };
        self.before = self.before.or(known.map(|known| known.rights));
        let range = VirtRange::of_page(page);
        let (memory, site, base) = (self.memory, self.site, self.vm.base);
        let (hat, mut below) = self.hat();
        match known {
            Some(known) if known.page == page && known.frame == frame => {
                if known.rights != rights {
                    let done = hat.protect(space, range, rights, &mut below);
                    done.map_err(Error::of_table)?;
                    *how = if *how == How::Cache { How::Write } else { (*how).max(How::Write) };
                }
                return Ok(false);
            }
            Some(_) => {
                let each = &mut |gone| note_used(memory, site, base, &gone);
                hat.unload(space, range, each, &mut below).map_err(Error::of_table)?;
            }
            None => {}
        }
        let translation = Translation::new(page, frame, rights);
        match hat.load(space, translation, 1, &mut below) {
            Ok(()) => {}
            Err(LoadError::NoTableMemory) => return Err(Stop::Full),
            Err(LoadError::Table(error)) => return Err(Error::Table(error).into()),
            Err(LoadError::NoSpace(space)) => return Err(Error::NoSpace(space).into()),
            Err(LoadError::NoMemory) => return Err(Error::NoMemory.into()),
        }
        Ok(true)
    }

    /// Writes a page from memory to disk.
    pub(crate) fn write(&mut self, frame: PhysAddr, store: Store) -> Result<(), Error> {
        let io = Io { write: true, frame, store };
        self.platform.try_transfer(io).map_err(|_| Error::Io(store))?;
        self.work.writes += 1;
        Ok(())
    }
}

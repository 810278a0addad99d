//! Frames of pages: allocation, assignment to an owner, and freeing.
//!
//! ```text
//!   free --take_frame--> nobody's --give_to--> an anon's or an object's, in a list of the policy
//!     ^                                             |
//!     +------------------ free_page ----------------+
//! ```

use addr::PageSize;
use physmem::{Allocator, FrameId, Identity, Pfdat, Physmem};

use crate::{
    anon::AnonId,
    error::{Error, Stop},
    host::Host,
    kernel::Kernel,
    object::ObjectId,
    platform::{Platform, Step},
    settings::Resident,
    thp::{Fate, disown},
};

/// The owner of the page in a frame, as recorded in the frame's descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Anon(AnonId),
    Object(ObjectId, u64),
}

/// The object number in descriptors of anonymous pages.
const ANONS: u32 = 1;

/// The object number in descriptors of pages of the first object.
const OBJECTS: u32 = 2;

impl Owner {
    pub(crate) fn identity(self) -> Identity {
        match self {
            Owner::Anon(anon) => Identity { object: ANONS, index: anon.0.into() },
            Owner::Object(object, index) => Identity { object: OBJECTS + object.0, index },
        }
    }

    /// The owner of a page, if it is a page of this manager.
    pub(crate) fn of(Identity { object, index }: Identity) -> Option<Owner> {
        match object {
            0 | physmem::AGED_OBJECT => None,
            ANONS => Some(Owner::Anon(AnonId(index as u32))),
            object => Some(Owner::Object(ObjectId(object - OBJECTS), index)),
        }
    }
}

/// Flags of a descriptor. The lowest bits belong to the replacement policy.
pub(crate) const REFERENCED: u8 = 1 << 4;
/// The page has been stored to, and its file does not have the new contents yet.
pub(crate) const DIRTY: u8 = 1 << 5;
/// The page belongs to a file.
pub(crate) const FILE: u8 = 1 << 6;
/// The frame belongs to a pool of reserved large pages, so it is in no list.
pub(crate) const POOL: u8 = 1 << 7;
/// All flags that belong to the owner.
pub(crate) const OWNERS: u8 = REFERENCED | DIRTY | FILE;

impl<H: Host> Kernel<'_, H> {
    /// Allocates a frame for a page, without an owner yet. If `place` is given, the result is the
    /// page's own frame in a reservation, if possible.
    pub(crate) fn take_frame(
        &mut self,
        place: Option<physmem::ObjectPage>,
    ) -> Result<FrameId, Stop> {
        if self.vm.has_groups && !self.fits_limit(1) {
            self.over_limit = true;
            return Err(Stop::Full);
        }
        let (min, base) = (self.vm.marks.min(), self.vm.base);
        let order = self.memory.order(base);
        let request = physmem::Request { place, ..self.wanted.request(order) };
        let frame = self.frames(|memory| {
            let is_enough = free_pages(memory, base) > min;
            let frame = if is_enough { memory.allocate(&request).ok() } else { None };
            // If frames are free and only memory for their descriptors is missing, evicting pages
            // does not help.
            frame.ok_or_else(|| match is_enough && memory.is_short_of_memory() {
                true => Error::NoMemory.into(),
                false => Stop::Full,
            })
        });
        self.work.frames_taken += u64::from(frame.is_ok()) << order;
        self.platform.work(Step::Frame, 1);
        frame
    }

    /// Assigns the frame to the page of `owner`, which becomes referenced and gets these `flags`.
    pub(crate) fn give_to(&mut self, frame: FrameId, owner: Owner, flags: u8) {
        self.work.descriptors += 1;
        self.platform.work(Step::Frame, 1);
        let pool = if self.pooled { POOL } else { 0 };
        let group = self.group;
        self.lists(|lists, memory| {
            let pfdat = memory.pfdat_mut(frame);
            pfdat.identity = owner.identity();
            pfdat.flags = REFERENCED | flags | pool;
            *kind_of(owner, flags, &mut lists.resident) += 1;
            if let Some(groups) = &mut lists.groups {
                groups.charge(frame, group);
            }
            if pool != 0 {
                return;
            }
            lists.enter(memory.allocator_mut().1, frame);
        });
    }

    /// Frees the frame of a page that is no longer needed. No translation may lead to this frame. A
    /// pinned frame is freed when its last pin is given back.
    pub(crate) fn free_page(&mut self, frame: FrameId) {
        self.work.descriptors += 1;
        self.free(frame, true);
    }

    /// Frees a frame that is in no list of pages. No translation may lead to this frame.
    pub(crate) fn free_frame(&mut self, frame: FrameId) {
        self.free(frame, false);
    }

    fn free(&mut self, frame: FrameId, is_listed: bool) {
        let order = self.memory.order(self.vm.base);
        self.platform.work(Step::Frame, 1);
        let given = self.lists(|lists, memory| {
            let pfdat = memory.table().get(frame);
            let is_pinned = lists.pins.has(frame);
            if is_listed && pfdat.flags & POOL == 0 && !is_pinned {
                lists.leave(memory.allocator_mut().1, frame);
            }
            if let Some(owner) = Owner::of(pfdat.identity) {
                *kind_of(owner, pfdat.flags, &mut lists.resident) -= 1;
                if let Some(groups) = &mut lists.groups {
                    groups.uncharge(frame);
                }
            }
            if is_pinned {
                memory.pfdat_mut(frame).identity = Identity::default();
                return 0;
            }
            let (first, order) = match lists.folios.unmapped(frame, order) {
                Fate::Free => (frame, order),
                Fate::Whole(first, of, is_reserved) => {
                    if is_reserved {
                        disown(memory.pfdat_mut(frame));
                        let pool = lists.pools.0.get_mut(&(of - order));
                        if !pool.is_some_and(|pool| pool.give_back(first)) {
                            return 0;
                        }
                        (first.0..first.0 + (1 << of))
                            .for_each(|each| memory.unwire(FrameId(each)));
                    }
                    (first, of)
                }
                Fate::Held => {
                    disown(memory.pfdat_mut(frame));
                    return 0;
                }
            };
            memory.try_free(first, order).expect("the frame is this page's");
            1 << order
        });
        self.work.frames_given += given;
    }

    /// Free memory in pages. Memory that is only reserved counts as free, since it is freed on
    /// demand.
    pub(crate) fn free_pages(&self) -> u64 {
        self.frames(|memory| free_pages(memory, self.vm.base))
    }

    /// A copy of a frame's descriptor.
    pub(crate) fn pfdat(&self, frame: FrameId) -> Pfdat {
        self.frames(|memory| memory.table().get(frame))
    }
}

fn free_pages<A: Allocator>(memory: &Physmem<A>, base: PageSize) -> u64 {
    (memory.free_bytes() + memory.reserved_bytes()) >> base.shift()
}

fn kind_of(owner: Owner, flags: u8, resident: &mut Resident) -> &mut u64 {
    match (owner, flags & FILE != 0) {
        (Owner::Anon(_), _) => &mut resident.anon,
        (Owner::Object(..), true) => &mut resident.file,
        (Owner::Object(..), false) => &mut resident.shared,
    }
}

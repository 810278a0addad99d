//! Frames of pages: taken, given to their owner, freed.
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
    error::Stop,
    host::Host,
    kernel::Kernel,
    object::ObjectId,
    platform::{Platform, Step},
    settings::Resident,
    thp::{Fate, disown},
};

/// Whose page a frame has, as its descriptor says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Anon(AnonId),
    Object(ObjectId, u64),
}

/// In a descriptor, the object of anonymous pages.
const ANONS: u32 = 1;

/// In a descriptor, the first of the objects.
const OBJECTS: u32 = 2;

impl Owner {
    pub(crate) fn identity(self) -> Identity {
        match self {
            Owner::Anon(anon) => Identity { object: ANONS, index: anon.0.into() },
            Owner::Object(object, index) => Identity { object: OBJECTS + object.0, index },
        }
    }

    /// Whose page it is, if it is a page of this manager's.
    pub(crate) fn of(Identity { object, index }: Identity) -> Option<Owner> {
        match object {
            0 | physmem::AGED_OBJECT => None,
            ANONS => Some(Owner::Anon(AnonId(index as u32))),
            object => Some(Owner::Object(ObjectId(object - OBJECTS), index)),
        }
    }
}

/// Flags of a descriptor. The replacement's policy has the lowest bits.
pub(crate) const REFERENCED: u8 = 1 << 4;
/// The file does not have what was stored there.
pub(crate) const DIRTY: u8 = 1 << 5;
/// It is a page of a file.
pub(crate) const FILE: u8 = 1 << 6;
/// All of these.
pub(crate) const OWNERS: u8 = REFERENCED | DIRTY | FILE;

impl<H: Host> Kernel<'_, H> {
    /// A frame for a page, that is nobody's yet: its own in a reservation, where it has a `place`.
    pub(crate) fn take_frame(
        &mut self,
        place: Option<physmem::ObjectPage>,
    ) -> Result<FrameId, Stop> {
        let (min, base) = (self.vm.marks.min(), self.vm.base);
        let order = self.memory.order(base);
        let request = physmem::Request { place, ..self.wanted.request(order) };
        let frame = self.frames(|memory| {
            let is_enough = free_pages(memory, base) > min;
            if is_enough { memory.allocate(&request).ok() } else { None }
        });
        self.work.frames_taken += u64::from(frame.is_some()) << order;
        self.platform.work(Step::Frame, 1);
        frame.ok_or(Stop::Full)
    }

    /// The frame has the page of `owner` from here on, which is referenced and has these flags too.
    pub(crate) fn give_to(&mut self, frame: FrameId, owner: Owner, flags: u8) {
        self.work.descriptors += 1;
        self.platform.work(Step::Frame, 1);
        self.lists(|lists, memory| {
            let pfdat = memory.pfdat_mut(frame);
            pfdat.identity = owner.identity();
            pfdat.flags = REFERENCED | flags;
            *kind_of(owner, flags, &mut lists.resident) += 1;
            lists.policy.enter(memory.allocator_mut().1, frame);
        });
    }

    /// A frame whose page nobody needs is free; no hardware leads to it.
    pub(crate) fn free_page(&mut self, frame: FrameId) {
        self.work.descriptors += 1;
        self.free(frame, true);
    }

    /// Frees a frame that is in no list of pages; no hardware leads to it.
    pub(crate) fn free_frame(&mut self, frame: FrameId) {
        self.free(frame, false);
    }

    fn free(&mut self, frame: FrameId, is_listed: bool) {
        let order = self.memory.order(self.vm.base);
        self.platform.work(Step::Frame, 1);
        let given = self.lists(|lists, memory| {
            if is_listed {
                lists.policy.leave(memory.allocator_mut().1, frame);
            }
            let pfdat = memory.table().get(frame);
            if let Some(owner) = Owner::of(pfdat.identity) {
                *kind_of(owner, pfdat.flags, &mut lists.resident) -= 1;
            }
            let (first, order) = match lists.folios.unmapped(frame, order) {
                Fate::Free => (frame, order),
                Fate::Whole(first, order) => (first, order),
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

    /// Free memory in pages. What is only reserved is free as soon as somebody wants it.
    pub(crate) fn free_pages(&self) -> u64 {
        self.frames(|memory| free_pages(memory, self.vm.base))
    }

    /// The descriptor of a frame as it is.
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

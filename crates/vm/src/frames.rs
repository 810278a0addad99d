//! Frames of pages: taken, given to their owner, freed.
//!
//! ```text
//!   free --take_frame--> nobody's --give_to--> an anon's or an object's, in a list of the policy
//!     ^                                             |
//!     +------------------ free_page ----------------+
//! ```

use addr::PhysAddr;
use hat::Hat;
use pagetable::Mounted;
use physmem::{Allocator, FrameId, Identity, State};

use crate::{
    anon::AnonId,
    error::Stop,
    object::ObjectId,
    platform::{Below, Platform},
    reserve::Wanted,
    vm::Kernel,
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
/// All of these.
pub(crate) const OWNERS: u8 = REFERENCED | DIRTY;

impl<T: Mounted + ?Sized, A: Allocator, P: Platform> Kernel<'_, T, A, P> {
    /// The HAT layer, and what it works on.
    pub(crate) fn hat(&mut self) -> (&Hat<T>, Below<'_, A, P>) {
        let Kernel { vm, hat, memory, platform } = self;
        (hat, Below { memory, platform, work: &mut vm.work })
    }

    /// A frame for a page, that is nobody's yet: its own in a reservation, where there are such.
    pub(crate) fn take_frame(&mut self, wanted: Wanted) -> Result<FrameId, Stop> {
        if self.free_pages() <= self.vm.marks.min {
            return Err(Stop::Full);
        }
        let order = self.memory.table().order(self.vm.base);
        let place = self.place_of(wanted);
        let request = physmem::Request { place, ..physmem::Request::new(order, State::Movable) };
        let frame = self.memory.allocate(&request).map_err(|_| Stop::Full)?;
        self.vm.work.frames_taken += 1 << order;
        Ok(frame)
    }

    /// The frame has the page of `owner` from here on.
    pub(crate) fn give_to(&mut self, frame: FrameId, owner: Owner) {
        let pfdat = self.memory.pfdat_mut(frame);
        pfdat.identity = owner.identity();
        pfdat.flags = REFERENCED;
        *self.kind_of(owner) += 1;
        let (_, table) = self.memory.allocator_mut();
        self.vm.policy.enter(table, frame);
        self.vm.work.descriptors += 1;
    }

    /// A frame whose page nobody needs is free; no hardware leads to it.
    pub(crate) fn free_page(&mut self, frame: FrameId) {
        let (_, table) = self.memory.allocator_mut();
        self.vm.policy.leave(table, frame);
        self.vm.work.descriptors += 1;
        self.free_frame(frame);
    }

    /// The same for one that is in no list.
    pub(crate) fn free_frame(&mut self, frame: FrameId) {
        if let Some(owner) = Owner::of(self.memory.table().get(frame).identity) {
            *self.kind_of(owner) -= 1;
        }
        let order = self.memory.table().order(self.vm.base);
        self.memory.try_free(frame, order).expect("the frame is this page's");
        self.vm.work.frames_given += 1 << order;
    }

    fn kind_of(&mut self, owner: Owner) -> &mut u64 {
        let resident = &mut self.vm.resident;
        match owner {
            Owner::Anon(_) => &mut resident.anon,
            Owner::Object(object, _) => match self.vm.objects.get(object).file {
                Some(_) => &mut resident.file,
                None => &mut resident.shared,
            },
        }
    }

    pub(crate) fn address(&self, frame: FrameId) -> PhysAddr {
        self.memory.table().address(frame)
    }

    /// Free memory in pages. What is only reserved is free as soon as somebody wants it.
    pub(crate) fn free_pages(&self) -> u64 {
        (self.memory.free_bytes() + self.memory.reserved_bytes()) >> self.vm.base.shift()
    }
}
